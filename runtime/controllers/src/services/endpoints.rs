//! How many endpoints each Service has on each Node, from EndpointSlices, for providers that read that.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;
use kube::runtime::watcher;

use crate::informer::{Change, Facts, InformerStore, ObjectStore};

/// The label of an EndpointSlice that names its Service.
const LABEL_SERVICE: &str = "kubernetes.io/service-name";

/// The kept facts of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    /// Its own name, `namespace/name`.
    pub(super) name: String,
    uid: String,
    resource_version: String,
    /// The Service that it belongs to, by namespace and name.
    pub(super) service: String,
    /// `addressType`. A Service with two families has slices of each.
    family: String,
    /// How many of its endpoints take traffic, by Node.
    counts: BTreeMap<String, u32>,
}

impl Facts for Slice {
    fn key(&self) -> String {
        self.name.clone()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// All slices that belong to Services.
#[derive(Debug, Default)]
pub(super) struct Slices(ObjectStore<Slice>);

impl InformerStore for Slices {
    type Object = EndpointSlice;
    type Facts = Slice;

    fn on_event(&mut self, event: watcher::Event<EndpointSlice>) -> Vec<Change<Slice>> {
        self.0.on_event(event, |slice, _| read(&slice))
    }

    fn objects(&self) -> &ObjectStore<Slice> {
        &self.0
    }

    fn forget_versions(&mut self) {
        self.0.forget_versions();
    }
}

impl Slices {
    /// How many endpoints each of these Services has on each Node.
    pub(super) fn count(&self, services: &BTreeSet<String>) -> BTreeMap<String, BTreeMap<String, u32>> {
        // Most changes are of Services that aren't kept.
        if services.is_empty() {
            return BTreeMap::new();
        }
        let slices = self.0.all().unwrap_or_default();
        let mut families: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
        for slice in slices.iter().filter(|slice| services.contains(&slice.service)) {
            for (node, count) in &slice.counts {
                *families.entry((&slice.service, node, &slice.family)).or_default() += count;
            }
        }
        let mut counts: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for ((service, node, _), count) in families {
            // A Pod with two addresses is in slices of both families.
            let most = counts.entry(service.to_owned()).or_default().entry(node.to_owned()).or_default();
            *most = count.max(*most);
        }
        counts
    }
}

/// Reads a slice; none where it names no Service, such as one created by hand.
fn read(slice: &EndpointSlice) -> Option<Slice> {
    let (name, namespace) = (slice.name_any(), slice.namespace().unwrap_or_default());
    let service = slice.labels().get(LABEL_SERVICE)?;
    let mut counts = BTreeMap::new();
    for endpoint in slice.endpoints.iter().flatten().filter(|endpoint| takes_traffic(endpoint)) {
        if let Some(node) = &endpoint.node_name {
            *counts.entry(node.clone()).or_default() += 1;
        }
    }
    Some(Slice {
        name: format!("{namespace}/{name}"),
        uid: slice.uid().unwrap_or_default(),
        resource_version: slice.resource_version().unwrap_or_default(),
        service: format!("{namespace}/{service}"),
        family: slice.address_type.clone(),
        counts,
    })
}

/// Whether an endpoint is ready and serving. A condition that isn't set counts as true (KEP-1672).
fn takes_traffic(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .is_none_or(|conditions| conditions.ready != Some(false) && conditions.serving != Some(false))
}
