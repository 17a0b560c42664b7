//! The documents of the cluster: all CloudProvider resources, watched.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::api::ApiResource;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use pileus_controllers::{HealthCheck, describe};

use super::{DocumentChange, PresentDocument};
use crate::document::{CloudProvider, ClusterOrigin, DocumentOrigin};
use crate::order_annotation;
use crate::releases::{Record, Revisions, of_resource, revision};

/// The CloudProvider resources of a cluster.
pub(crate) struct FollowedResources {
    client: Client,
    /// The one in which Pileus keeps the settings of releases.
    namespace: String,
    api: Api<DynamicObject>,
    origin: Arc<ClusterOrigin>,
    watch: Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<DynamicObject>>> + Send>>,
    check: HealthCheck,
    versions: Versions,
    unread: VecDeque<DocumentChange>,
    /// Whether all that exist were reported once.
    is_listed: bool,
}

/// The resource as the API server calls it.
pub(crate) fn api_resource() -> ApiResource {
    ApiResource {
        group: "pileus.dev".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: crate::document::API_VERSION.to_owned(),
        kind: "CloudProvider".to_owned(),
        plural: "cloudproviders".to_owned(),
    }
}

impl FollowedResources {
    /// Begins to watch the resources. The namespace is that of Pileus.
    pub(crate) fn new(
        (client, namespace): (Client, &str),
        origin: ClusterOrigin,
        check: HealthCheck,
    ) -> Self {
        let api = Api::all_with(client.clone(), &api_resource());
        let watch = watcher(api.clone(), watcher::Config::default()).default_backoff().boxed();
        let (versions, unread, is_listed) = Default::default();
        let (namespace, origin) = (namespace.to_owned(), Arc::new(origin));
        Self { client, namespace, api, origin, watch, check, versions, unread, is_listed }
    }

    /// The place of a provider's status.
    pub(super) fn record(&self, name: &str) -> Record {
        let revisions = Revisions::new(self.client.clone(), &self.namespace, name);
        let (api, revisions) = (Box::new(self.api.clone()), Box::new(revisions));
        Record::Resource { api, revisions, name: name.to_owned() }
    }

    /// What references in the documents are resolved with.
    pub(super) fn origin(&self) -> DocumentOrigin {
        DocumentOrigin::Cluster(Arc::clone(&self.origin))
    }

    /// Waits for a change.
    pub(super) async fn next(&mut self) -> DocumentChange {
        loop {
            if let Some(change) = self.unread.pop_front() {
                return change;
            }
            match self.watch.next().await {
                Some(Ok(event)) => self.on_event(event),
                Some(Err(error)) => {
                    let error = describe(&error);
                    tracing::warn!(%error, "can't watch CloudProvider resources; trying again");
                    self.check.fail(format!(
                        "can't watch CloudProvider resources: {error}; apply deploy/crd.yaml and deploy/rbac.yaml, or pass --provider"
                    ));
                }
                None => std::future::pending().await,
            }
        }
    }

    fn on_event(&mut self, event: watcher::Event<DynamicObject>) {
        match event {
            watcher::Event::Init => self.versions.listed.clear(),
            watcher::Event::InitApply(resource) => {
                let name = resource.name_any();
                if self.versions.list(&name, revision(&resource)) {
                    // What is in memory is of another history.
                    tracing::warn!(provider = %name, "the API server's store went back, so the provider begins anew");
                    self.unread.push_back(DocumentChange::Gone(name));
                }
                self.present(&resource);
            }
            watcher::Event::InitDone => {
                self.check.pass();
                self.unread.extend(self.versions.end_list().into_iter().map(DocumentChange::Gone));
                if !self.is_listed {
                    self.is_listed = true;
                    self.unread.push_back(DocumentChange::Listed);
                }
            }
            watcher::Event::Apply(resource) => {
                self.check.pass();
                self.versions.known.insert(resource.name_any(), revision(&resource));
                self.present(&resource);
            }
            watcher::Event::Delete(resource) => {
                let name = resource.name_any();
                self.versions.known.remove(&name);
                self.unread.push_back(DocumentChange::Gone(name));
            }
        }
    }

    fn present(&mut self, resource: &DynamicObject) {
        let name = resource.name_any();
        let value = serde_json::to_value(resource).unwrap_or_default();
        let document = CloudProvider::from_resource(&value, &self.origin).map_err(|problems| {
            let each: Vec<_> = problems.iter().map(ToString::to_string).collect();
            let problems = each.join("; ");
            tracing::warn!(provider = %name, problems, "the CloudProvider is invalid, and the former one stays in use");
            problems
        });
        let order = order_annotation::given(resource.annotations());
        self.unread.push_back(DocumentChange::Present(Box::new(PresentDocument {
            name,
            uid: resource.uid(),
            created_at: resource
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            document,
            generation: resource.metadata.generation.and_then(|generation| u64::try_from(generation).ok()),
            recorded: Some(of_resource(resource)),
            order,
        })));
    }
}

/// The versions of the resources that are known, by name. Pure.
#[derive(Default)]
struct Versions {
    known: BTreeMap<String, u64>,
    /// Those of the list that is being read.
    listed: BTreeMap<String, u64>,
}

impl Versions {
    /// A resource is in the list. Returns whether it is older than what is known: the API server's store was restored.
    fn list(&mut self, name: &str, version: u64) -> bool {
        self.listed.insert(name.to_owned(), version);
        self.known.get(name).is_some_and(|known| *known > version)
    }

    /// The list is complete. Returns the names that are gone.
    fn end_list(&mut self) -> Vec<String> {
        let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.listed));
        before.into_keys().filter(|name| !self.known.contains_key(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_what_is_gone_and_what_went_back() {
        let mut versions = Versions::default();
        let lists = [
            (vec![("a", 5), ("b", 7)], vec![], vec![]),
            (vec![("a", 9)], vec![], vec!["b"]),
            (vec![("a", 9), ("b", 8)], vec![], vec![]),
            (vec![("a", 6), ("b", 8)], vec!["a"], vec![]),
        ];
        for (list, back, gone) in lists {
            let went_back: Vec<_> = list
                .iter()
                .filter(|(name, version)| versions.list(name, *version))
                .map(|(name, _)| *name)
                .collect();
            assert_eq!(went_back, back, "{list:?}");
            assert_eq!(versions.end_list(), gone, "{list:?}");
        }
    }
}
