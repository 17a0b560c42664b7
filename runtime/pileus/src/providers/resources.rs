//! The documents of the cluster: all CloudProvider resources, watched.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::api::ApiResource;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use pileus_controllers::{HealthCheck, describe};
use pileus_host::swap::{Order, OrderKind};

use super::{DocumentChange, PresentDocument};
use crate::document::{CloudProvider, ClusterOrigin, DocumentOrigin};
use crate::releases::{Record, Revisions, of_resource};

/// The annotation with the operator's last order, as in `7 rollback`.
pub(crate) const ORDER: &str = "pileus.dev/order";

/// The CloudProvider resources of a cluster.
pub(crate) struct FollowedResources {
    client: Client,
    /// The one in which Pileus keeps the settings of releases.
    namespace: String,
    api: Api<DynamicObject>,
    origin: Arc<ClusterOrigin>,
    watch: Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<DynamicObject>>> + Send>>,
    check: HealthCheck,
    /// The names that are known.
    known: Vec<String>,
    /// Those of the list that is being read.
    listed: Vec<String>,
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
        let (known, listed, unread, is_listed) = Default::default();
        let (namespace, origin) = (namespace.to_owned(), Arc::new(origin));
        Self { client, namespace, api, origin, watch, check, known, listed, unread, is_listed }
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
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(resource) => {
                self.listed.push(resource.name_any());
                self.present(&resource);
            }
            watcher::Event::InitDone => {
                self.check.pass();
                let listed = std::mem::take(&mut self.listed);
                let gone = self.known.iter().filter(|name| !listed.contains(name)).cloned();
                self.unread.extend(gone.map(DocumentChange::Gone));
                self.known = listed;
                if !self.is_listed {
                    self.is_listed = true;
                    self.unread.push_back(DocumentChange::Listed);
                }
            }
            watcher::Event::Apply(resource) => {
                self.check.pass();
                if !self.known.contains(&resource.name_any()) {
                    self.known.push(resource.name_any());
                }
                self.present(&resource);
            }
            watcher::Event::Delete(resource) => {
                let name = resource.name_any();
                self.known.retain(|known| *known != name);
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
        let order = resource.annotations().get(ORDER).and_then(|text| read_order(text));
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

/// Reads an order: its number, and what to do.
pub(crate) fn read_order(text: &str) -> Option<Order> {
    let (number, kind) = text.split_once(' ')?;
    let kind = match kind.trim() {
        "pause" => OrderKind::Pause,
        "resume" => OrderKind::Resume,
        "rollback" => OrderKind::Rollback,
        "swap" => OrderKind::SwapNow,
        _ => return None,
    };
    Some(Order { number: number.parse().ok()?, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_number_and_a_word() {
        let read = |text| read_order(text).map(|order| (order.number, order.kind));
        assert_eq!(read("7 rollback"), Some((7, OrderKind::Rollback)));
        assert_eq!(read("1 swap"), Some((1, OrderKind::SwapNow)));
        assert_eq!(read("12 pause"), Some((12, OrderKind::Pause)));
        assert_eq!(read("13 resume"), Some((13, OrderKind::Resume)));
        for wrong in ["", "rollback", "x rollback", "1 delete", "-1 swap"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
