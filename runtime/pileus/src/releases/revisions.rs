//! The settings of a provider's releases, kept as ControllerRevision objects in the namespace of Pileus, as a DaemonSet keeps
//! its history. The status of the provider names settings by digest alone: who may write only the status can name settings
//! that are kept, and can't add any.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use pileus_loader::Digest;
use serde_json::Value;

use super::record::RecordError;
use crate::document::{API_VERSION, Settings};

/// The label with the name of the provider.
const PROVIDER: &str = "pileus.dev/provider";
/// How many digits of a digest are in the name of an object. All of them are checked when it is read.
const DIGITS: usize = 16;

/// The objects of one provider.
#[derive(Clone)]
pub(crate) struct Revisions {
    api: Api<ControllerRevision>,
    provider: String,
}

/// What has to be done before a status may name settings.
#[derive(Debug, PartialEq)]
enum Change {
    /// Another object has the name.
    Delete(String),
    Create(Box<ControllerRevision>),
}

impl Revisions {
    /// Those of a provider in this namespace.
    pub(crate) fn new(client: Client, namespace: &str, provider: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), provider: provider.to_owned() }
    }

    /// Reads settings; `None` where they aren't kept, or the object has others.
    ///
    /// # Errors
    /// Where the API server doesn't answer, or refuses.
    pub(super) async fn read(&self, digest: Digest) -> Result<Option<Value>, RecordError> {
        let found = self.api.get_opt(&name(&self.provider, digest)).await;
        let found = found.map_err(|error| failed("get", &error))?;
        Ok(found.map(settings).filter(|kept| kept.digest == digest).map(|kept| kept.spec))
    }

    /// Keeps these settings, so that a status may name them. `owner` is the UID of the provider's resource. Returns all
    /// objects of the provider that were there before, for [`Revisions::remove`].
    ///
    /// # Errors
    /// Where the API server doesn't answer, or refuses.
    pub(super) async fn keep(
        &self,
        owner: &str,
        settings: &BTreeMap<Digest, Value>,
    ) -> Result<Vec<ControllerRevision>, RecordError> {
        let of_provider = ListParams::default().labels(&format!("{PROVIDER}={}", self.provider));
        let found = self.api.list(&of_provider).await.map_err(|error| failed("list", &error))?.items;
        for change in missing(&self.provider, owner, &found, settings) {
            match change {
                Change::Delete(name) => {
                    let deleted = self.api.delete(&name, &DeleteParams::default()).await;
                    deleted.map_err(|error| failed("delete", &error))?;
                }
                Change::Create(revision) => {
                    let created = self.api.create(&PostParams::default(), &revision).await;
                    created.map_err(|error| failed("create", &error))?;
                }
            }
        }
        Ok(found)
    }

    /// Deletes those of these objects that no settings in `named` have, once the status is written. What can't be deleted is
    /// left for the next write.
    pub(super) async fn remove(&self, found: Vec<ControllerRevision>, named: &BTreeSet<Digest>) {
        let named: BTreeSet<_> = named.iter().map(|digest| name(&self.provider, *digest)).collect();
        for unnamed in found.into_iter().filter(|revision| !named.contains(&revision.name_any())) {
            let same = Preconditions { uid: unnamed.uid(), ..Preconditions::default() };
            let parameters = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
            if let Err(error) = self.api.delete(&unnamed.name_any(), &parameters).await {
                let error = pileus_controllers::describe(&error);
                tracing::debug!(provider = %self.provider, %error, "settings that no release has are left");
            }
        }
    }
}

fn failed(verb: &str, error: &kube::Error) -> RecordError {
    let advice = match error {
        kube::Error::Api(status) if status.code == 403 => "; apply deploy/rbac.yaml",
        _ => "",
    };
    let error = pileus_controllers::describe(error);
    RecordError::new(format!("can't {verb} the ControllerRevisions with former settings: {error}{advice}"))
}

fn name(provider: &str, digest: Digest) -> String {
    format!("{provider}-{}", digest.hex().get(..DIGITS).unwrap_or_default())
}

fn settings(revision: ControllerRevision) -> Settings {
    let RawExtension(spec) = revision.data;
    Settings::kept(spec)
}

/// What has to change so that all of `wanted` is kept: an object that has other settings, or belongs to a former resource of
/// the same name and goes with it, is replaced. Pure.
fn missing(
    provider: &str,
    owner: &str,
    found: &[ControllerRevision],
    wanted: &BTreeMap<Digest, Value>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut last = found.iter().filter_map(|revision| revision.revision).max().unwrap_or_default();
    for (digest, spec) in wanted {
        let name = name(provider, *digest);
        if let Some(same) = found.iter().find(|revision| revision.name_any() == name) {
            let is_owned = same.owner_references().iter().any(|reference| reference.uid == owner);
            if is_owned && settings(same.clone()).digest == *digest {
                continue;
            }
            changes.push(Change::Delete(name.clone()));
        }
        last += 1;
        changes.push(Change::Create(Box::new(revision(name, (provider, owner), spec, last))));
    }
    changes
}

fn revision(
    name: String,
    (provider, owner): (&str, &str),
    spec: &Value,
    revision: i64,
) -> ControllerRevision {
    let owner = OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: "CloudProvider".to_owned(),
        name: provider.to_owned(),
        uid: owner.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let labels = [("app.kubernetes.io/name", "pileus"), (PROVIDER, provider)];
    let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
    let metadata = ObjectMeta {
        name: Some(name),
        labels: Some(labels.into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    ControllerRevision { metadata, revision: Some(revision), data: RawExtension(spec.clone()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(number: u64) -> (Digest, Value) {
        let Settings { digest, spec } = Settings::kept(json!({"configuration": {"number": number}}));
        (digest, spec)
    }

    fn names(changes: &[Change]) -> Vec<String> {
        let said = |change: &Change| match change {
            Change::Delete(name) => format!("delete {name}"),
            Change::Create(revision) => {
                format!("create {} as {}", revision.name_any(), revision.revision.unwrap())
            }
        };
        changes.iter().map(said).collect()
    }

    #[test]
    fn what_a_status_is_about_to_name_is_kept_under_its_digest_and_owned_by_the_resource() {
        let wanted: BTreeMap<_, _> = [kept(1)].into();
        let changes = missing("cloud", "u-1", &[], &wanted);
        let [Change::Create(made)] = &*changes else { panic!("{changes:?}") };
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
            "metadata": {
                "name": format!("cloud-{}", &kept(1).0.hex()[..16]),
                "labels": {"app.kubernetes.io/name": "pileus", "pileus.dev/provider": "cloud"},
                "ownerReferences": [{
                    "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "name": "cloud", "uid": "u-1", "controller": true,
                }],
            },
            "data": {"configuration": {"number": 1}},
        });
        assert_eq!(serde_json::to_value(made).unwrap(), expected);
        assert_eq!(missing("cloud", "u-1", &[(**made).clone()], &wanted), []);
    }

    #[test]
    fn an_object_that_is_not_what_its_name_says_is_replaced() {
        let (digest, spec) = kept(1);
        let name = name("cloud", digest);
        let (other, wanted) = (kept(2).1, BTreeMap::from([(digest, spec.clone())]));
        let sound = revision(name.clone(), ("cloud", "u-1"), &spec, 7);
        let empty = ControllerRevision { data: RawExtension(Value::Null), ..sound.clone() };
        let replaced = vec![format!("delete {name}"), format!("create {name} as 8")];
        for (case, found, expected) in [
            ("as it should be", sound, Vec::new()),
            ("of a former resource", revision(name.clone(), ("cloud", "u-0"), &spec, 7), replaced.clone()),
            ("with other settings", revision(name.clone(), ("cloud", "u-1"), &other, 7), replaced.clone()),
            ("without settings", empty, replaced),
        ] {
            assert_eq!(names(&missing("cloud", "u-1", &[found], &wanted)), expected, "{case}");
        }
    }
}
