//! Where the shared status of a provider's releases is kept, with the settings that its releases run under: the status of the
//! resource with the settings beside it, the store, or the memory of this process. Each write names the revision that it
//! replaces.

use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt as _};
use pileus_loader::{Digest, Store};
use serde_json::{Value, json};

use super::revisions::Revisions;
use crate::cluster::in_time;
use crate::document::API_VERSION;
use crate::order_annotation;
use crate::recorded::Recorded;
use crate::resource_status;

/// The place of a record.
#[derive(Clone)]
pub(crate) enum Record {
    /// This process alone knows it: the component is a file that is read at each start.
    Memory,
    /// The store, under the name of the provider. Other processes have stores of their own.
    Store { store: Store, provider: String },
    /// The status of a resource, which all replicas share. It names settings, and the revisions have them.
    Resource { api: Box<Api<DynamicObject>>, revisions: Box<Revisions>, name: String },
}

/// Why a record can't be read or written. Another attempt may succeed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RecordError(String);

impl RecordError {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }
}

/// The field manager of the status.
const MANAGER: &str = "pileus";

impl Record {
    /// Whether only this process decides about it.
    pub(crate) fn is_own(&self) -> bool {
        !matches!(self, Self::Resource { .. })
    }

    /// Reads the record, which is empty before the first write. `known` is what this process wrote or read last.
    pub(crate) async fn read(&self, known: &Recorded) -> Result<Recorded, RecordError> {
        match self {
            Self::Memory => Ok(known.clone()),
            Self::Store { store, provider } => of_store(store, provider),
            Self::Resource { api, name, .. } => {
                let read = async { api.get(name).await.map_err(|error| failed(&error)) };
                Ok(of_resource(&in_time(read, RecordError).await?))
            }
        }
    }

    /// Reads settings that the record names and doesn't hold itself; `None` where they aren't kept any more.
    ///
    /// # Errors
    /// Where the place can't be read.
    pub(crate) async fn settings(&self, digest: Digest) -> Result<Option<Value>, RecordError> {
        match self {
            Self::Memory | Self::Store { .. } => Ok(None),
            Self::Resource { revisions, .. } => in_time(revisions.read(digest), RecordError).await,
        }
    }

    /// Replaces the record with this revision, and returns the new one with its revision.
    ///
    /// # Errors
    /// Where another write came first, or the place can't be written.
    pub(crate) async fn write(&self, recorded: Recorded) -> Result<Recorded, RecordError> {
        let recorded = recorded.pruned();
        match self {
            Self::Memory => Ok(Recorded { revision: recorded.revision + 1, ..recorded }),
            Self::Store { store, provider } => {
                let recorded = Recorded { revision: recorded.revision + 1, ..recorded };
                let bytes = serde_json::to_vec(&recorded).map_err(|error| RecordError(error.to_string()))?;
                let (store, provider) = (store.clone(), provider.clone());
                // To bring it to the disk may take long, and calls of controllers share this thread.
                let written = tokio::task::spawn_blocking(move || store.put_record(&provider, &bytes)).await;
                let written = written.map_err(|panic| RecordError(panic.to_string()))?;
                written.map_err(|error| RecordError(error.to_string()))?;
                Ok(recorded)
            }
            Self::Resource { api, revisions, name } => {
                in_time(write_resource(&recorded, api, revisions, name), RecordError).await
            }
        }
    }
}

/// Replaces the status of a resource. A write that wasn't answered in time may have been done all the same, or be done later: it
/// names the version that it replaces.
async fn write_resource(
    recorded: &Recorded,
    api: &Api<DynamicObject>,
    revisions: &Revisions,
    name: &str,
) -> Result<Recorded, RecordError> {
    let owner = recorded.owner.as_deref().unwrap_or_default();
    let kept = revisions.keep(owner, &recorded.settings).await?;
    // An apply also removes what the former status had.
    let patch = Patch::Apply(json!({
        "apiVersion": API_VERSION,
        "kind": "CloudProvider",
        "metadata": {"name": name, "resourceVersion": recorded.revision.to_string()},
        "status": resource_status::write(recorded),
    }));
    let written = api.patch_status(name, &PatchParams::apply(MANAGER).force(), &patch).await;
    let written = written.map_err(|error| failed(&error))?;
    let named = recorded.status.releases().map(|release| release.settings).collect();
    revisions.remove(kept, &named).await;
    Ok(of_resource(&written))
}

fn failed(error: &kube::Error) -> RecordError {
    RecordError(pileus_controllers::describe(error))
}

/// The record in a resource. A status that can't be one, as after an edit by hand, counts as missing: then the leader begins
/// with what the spec says.
pub(crate) fn of_resource(resource: &DynamicObject) -> Recorded {
    let revision = revision(resource);
    let status = resource.data.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let recorded = resource_status::read(status).inspect_err(|error| {
        let name = resource.name_any();
        tracing::warn!(provider = %name, %error, "the status of the resource can't be read; it counts as empty");
    });
    let mut recorded = Recorded { revision, owner: resource.uid(), ..recorded.unwrap_or_default() };
    // Who may write a status alone must not be able to make Pileus wait for generations and orders that never come.
    let status = &mut recorded.status;
    let generation = resource.metadata.generation.and_then(|generation| u64::try_from(generation).ok());
    status.observed_generation = status.observed_generation.min(generation.unwrap_or_default());
    let ordered = order_annotation::given(resource.annotations());
    status.last_order = status.last_order.min(ordered.map(|order| order.number));
    recorded
}

/// The version of a resource, which grows with each write.
pub(crate) fn revision(resource: &DynamicObject) -> u64 {
    resource.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The record in the store. Nothing replaces one that can't be read: it may say which release is active.
fn of_store(store: &Store, provider: &str) -> Result<Recorded, RecordError> {
    let found = store.record(provider).map_err(|error| RecordError(error.to_string()))?;
    let Some(bytes) = found else { return Ok(Recorded::default()) };
    serde_json::from_slice(&bytes).map_err(|error| {
        let path = store.record_path(provider);
        let advice = "remove it to begin with what the document says";
        RecordError(format!("can't read {}: {error}; {advice}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use kube::api::{ApiResource, GroupVersionKind};
    use pileus_host::swap::Status;

    use super::*;
    use crate::cluster::EXCHANGE_TIMEOUT;

    #[tokio::test(start_paused = true)]
    async fn a_record_of_a_server_that_never_answers_is_given_up() {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = Client::new(silent, "default");
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("pileus.dev", "v1alpha1", "CloudProvider"));
        let record = Record::Resource {
            api: Box::new(Api::all_with(client.clone(), &kind)),
            revisions: Box::new(Revisions::new(client, "kube-system", "p")),
            name: "p".to_owned(),
        };
        let begun = tokio::time::Instant::now();
        for error in [
            record.read(&Recorded::default()).await.unwrap_err(),
            record.settings(Digest::of(b"1")).await.unwrap_err(),
            record.write(recorded(1)).await.unwrap_err(),
        ] {
            assert_eq!(error.to_string(), "no answer within 30 s");
        }
        assert_eq!(begun.elapsed(), EXCHANGE_TIMEOUT * 3);
    }

    fn recorded(revision: u64) -> Recorded {
        Recorded {
            revision,
            status: Status { observed_generation: 7, ..Status::default() },
            ..Recorded::default()
        }
    }

    #[tokio::test]
    async fn a_record_in_the_store_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store"), 0).unwrap();
        let path = store.record_path("p");
        let record = Record::Store { store, provider: "p".to_owned() };
        assert_eq!(record.read(&Recorded::default()).await.unwrap(), Recorded::default());
        let written = record.write(recorded(0)).await.unwrap();
        assert_eq!((written.revision, &written), (1, &record.read(&Recorded::default()).await.unwrap()));
        std::fs::write(&path, "{").unwrap();
        let error = record.read(&Recorded::default()).await.unwrap_err().to_string();
        assert!(error.contains("remove it to begin with what the document says"), "{error}");
    }

    #[tokio::test]
    async fn settings_that_no_release_has_are_dropped() {
        let (used, unused) = (Digest::of(b"1"), Digest::of(b"2"));
        let mut kept = recorded(0);
        kept.settings = [used, unused].map(|digest| (digest, json!({}))).into();
        kept.status.active = Some(pileus_host::swap::Version {
            release: pileus_host::swap::Release { component: Digest::of(b"c"), settings: used },
            since: jiff::Timestamp::UNIX_EPOCH,
            why: String::new(),
        });
        let written = Record::Memory.write(kept).await.unwrap();
        assert_eq!(written.settings.keys().collect::<Vec<_>>(), [&used]);
    }
}
