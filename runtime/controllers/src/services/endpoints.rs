//! How many endpoints each Service has on each Node, from EndpointSlices, for providers that read that.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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
pub(super) struct Slices {
    objects: ObjectStore<Slice>,
    /// The names of the slices of each Service, by the Service's namespace and name.
    by_service: HashMap<String, BTreeSet<String>>,
    /// The Service of each slice, by the slice's name: a slice that is gone doesn't name it.
    services: HashMap<String, String>,
}

impl InformerStore for Slices {
    type Object = EndpointSlice;
    type Facts = Slice;

    fn on_event(&mut self, event: watcher::Event<EndpointSlice>) -> Vec<Change<Slice>> {
        let changes = self.objects.on_event(event, |slice, _| read(&slice));
        for change in &changes {
            self.index(change);
        }
        changes
    }

    fn objects(&self) -> &ObjectStore<Slice> {
        &self.objects
    }

    fn forget_versions(&mut self) {
        self.objects.forget_versions();
    }
}

impl Slices {
    /// Follows a change of a slice, which may belong to another Service than before.
    fn index(&mut self, change: &Change<Slice>) {
        let (name, service) = match change {
            Change::Present(slice) => (&slice.name, Some(&slice.service)),
            Change::Gone(name) => (name, None),
        };
        let before = match service {
            Some(service) => self.services.insert(name.clone(), service.clone()),
            None => self.services.remove(name),
        };
        if let Some(before) = before
            && let Some(slices) = self.by_service.get_mut(&before)
        {
            slices.remove(name);
            if slices.is_empty() {
                self.by_service.remove(&before);
            }
        }
        if let Some(service) = service {
            self.by_service.entry(service.clone()).or_default().insert(name.clone());
        }
    }

    /// How many endpoints each of these Services has on each Node.
    pub(super) fn count(&self, services: &BTreeSet<String>) -> BTreeMap<String, BTreeMap<String, u32>> {
        let slices = services.iter().filter_map(|service| self.by_service.get(service)).flatten();
        let mut families: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
        for slice in slices.filter_map(|name| self.objects.get(name)) {
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use proptest::prelude::*;

    use super::*;

    fn slice(name: &str, version: u64, service: Option<&str>, nodes: &[&str]) -> EndpointSlice {
        let labels = service.map(|service| [(LABEL_SERVICE.to_owned(), service.to_owned())].into());
        let endpoint = |node: &&str| Endpoint { node_name: Some((*node).to_owned()), ..Endpoint::default() };
        EndpointSlice {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("shop".to_owned()),
                uid: Some(format!("uid-{name}")),
                resource_version: Some(version.to_string()),
                labels,
                ..ObjectMeta::default()
            },
            address_type: "IPv4".to_owned(),
            endpoints: Some(nodes.iter().map(endpoint).collect()),
            ..EndpointSlice::default()
        }
    }

    /// What a scan of all slices would count.
    fn scanned(slices: &Slices, service: &str) -> u32 {
        let all = slices.objects.all().unwrap_or_default();
        all.iter().filter(|slice| slice.service == service).flat_map(|slice| slice.counts.values()).sum()
    }

    fn counted(slices: &Slices, service: &str) -> u32 {
        let counts = slices.count(&BTreeSet::from([service.to_owned()]));
        counts.values().flat_map(BTreeMap::values).sum()
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_a_scan_after_any_history(
            steps in proptest::collection::vec((0..4_usize, 0..5_usize, 0..4_usize), 1..60),
        ) {
            let names = ["a", "b", "c", "d", "e"];
            let mut slices = Slices::default();
            slices.on_event(watcher::Event::Init);
            slices.on_event(watcher::Event::InitDone);
            for (version, (step, name, service)) in (1..).zip(steps) {
                let service = ["web", "db", "api"].get(service).copied();
                let slice = slice(names[name], version, service, &["n"]);
                match step {
                    0 | 1 => drop(slices.on_event(watcher::Event::Apply(slice))),
                    2 => drop(slices.on_event(watcher::Event::Delete(slice))),
                    _ => {
                        slices.on_event(watcher::Event::Init);
                        slices.on_event(watcher::Event::InitApply(slice));
                        slices.on_event(watcher::Event::InitDone);
                    }
                }
                for service in ["shop/web", "shop/db", "shop/api"] {
                    prop_assert_eq!(counted(&slices, service), scanned(&slices, service));
                }
                let indexed: usize = slices.by_service.values().map(BTreeSet::len).sum();
                prop_assert_eq!(indexed, slices.objects.all().unwrap_or_default().len());
            }
        }
    }

    #[test]
    fn counting_one_service_costs_the_same_among_thousands_of_slices() {
        let mut slices = Slices::default();
        slices.on_event(watcher::Event::Init);
        for number in 0..20_000 {
            let (name, service) = (format!("slice-{number}"), format!("service-{}", number / 2));
            slices.on_event(watcher::Event::InitApply(slice(&name, 1, Some(&service), &["n"])));
        }
        slices.on_event(watcher::Event::InitDone);
        let started = Instant::now();
        for _ in 0..1000 {
            assert_eq!(counted(&slices, "shop/service-7"), 2);
        }
        // A scan of 20,000 slices took 1.7 ms, so that this would take 1.7 s.
        assert!(started.elapsed().as_millis() < 300, "{:?}", started.elapsed());
    }
}
