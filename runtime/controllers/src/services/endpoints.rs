//! How many endpoints Services have on which Node, for providers that read that: kept from EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;
use kube::runtime::watcher;

use crate::objects::{Change, Facts, Keep, Kept};

/// The label of a slice with the name of its Service.
const LABEL_SERVICE: &str = "kubernetes.io/service-name";

/// What is kept of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slice {
    /// Its own name, `namespace/name`.
    pub(super) name: String,
    uid: String,
    resource_version: String,
    /// The Service that it belongs to, by namespace and name.
    pub(super) service: String,
    /// `addressType`: the endpoints of a Service of two families are in slices of each.
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
pub(super) struct Slices(Kept<Slice>);

impl Keep for Slices {
    type Object = EndpointSlice;
    type Facts = Slice;

    fn take_in(&mut self, event: watcher::Event<EndpointSlice>) -> Vec<Change<Slice>> {
        self.0.take_in(event, |slice, _| read(&slice))
    }

    fn kept(&self) -> &Kept<Slice> {
        &self.0
    }
}

impl Slices {
    /// The endpoints of these Services by Node.
    pub(super) fn count(&self, services: &BTreeSet<String>) -> BTreeMap<String, BTreeMap<String, u32>> {
        // Most slices that change are of Services that nobody asks about.
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

/// None where it belongs to no Service, as one that somebody has made by hand.
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

/// Ready and serving; what isn't said is so (KEP-1672).
fn takes_traffic(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .is_none_or(|conditions| conditions.ready != Some(false) && conditions.serving != Some(false))
}
