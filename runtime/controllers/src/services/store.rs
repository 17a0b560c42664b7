//! Which Services are kept: those that matter to the service controller, and those that did, so that it observes their
//! changes of type.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher;
use pileus_cloud::ServiceRequirements;

use super::cluster_ips::ClusterIps;
use crate::facts::service::ServiceFacts;
use crate::informer::{Change, Facts, InformerStore, ObjectStore};

impl Facts for ServiceFacts {
    fn key(&self) -> String {
        self.key()
    }

    fn uid(&self) -> &str {
        &self.service.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// The kept Services, by `namespace/name`, and the ClusterIPs of all.
#[derive(Debug)]
pub(super) struct ServiceStore {
    pub(super) objects: ObjectStore<ServiceFacts>,
    pub(super) cluster_ips: ClusterIps,
    requirements: ServiceRequirements,
    /// How often the API server's store went back to an older state.
    rollbacks: u32,
}

impl ServiceStore {
    /// An empty store. `requirements` says what of a Service becomes facts.
    pub(super) fn new(requirements: ServiceRequirements) -> Self {
        Self {
            objects: ObjectStore::default(),
            cluster_ips: ClusterIps::default(),
            requirements,
            rollbacks: 0,
        }
    }

    /// Reads a Service into facts.
    pub(super) fn read(&self, service: Service) -> ServiceFacts {
        ServiceFacts { rollbacks: self.rollbacks, ..ServiceFacts::read(service, &self.requirements) }
    }

    /// The names of the Services in these namespaces.
    pub(super) fn within(&self, namespaces: &BTreeSet<String>) -> BTreeSet<String> {
        let all = self.objects.all().into_iter().flatten();
        all.filter(|facts| namespaces.contains(&facts.service.namespace)).map(|facts| facts.key()).collect()
    }
}

impl InformerStore for ServiceStore {
    type Object = Service;
    type Facts = ServiceFacts;

    fn on_event(&mut self, event: watcher::Event<Service>) -> Vec<Change<ServiceFacts>> {
        let Self { objects, cluster_ips, requirements, rollbacks } = self;
        cluster_ips.on_event(&event);
        objects.on_event(event, |service, known| {
            let facts = ServiceFacts { rollbacks: *rollbacks, ..ServiceFacts::read(service, requirements) };
            let is_known = known.is_some_and(|known| known.service.uid == facts.service.uid);
            (is_known || facts.is_load_balancer || facts.has_finalizer()).then_some(facts)
        })
    }

    fn objects(&self) -> &ObjectStore<ServiceFacts> {
        &self.objects
    }

    fn forget_versions(&mut self) {
        self.rollbacks += 1;
        self.objects.forget_versions();
    }
}
