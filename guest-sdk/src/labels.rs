//! The labels, or tags, that a provider puts on what it creates. They are the same in every cloud that has labels, so
//! that cluster, Service and Node can be found again.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Cluster, OwnedLoadBalancer, Route, Service};

/// The key of the cluster's UID. Clusters that share an account recognize their own resources by it.
pub const CLUSTER: &str = "pileus-cluster";

/// The key of the Service's UID.
pub const SERVICE: &str = "pileus-service";

/// The key of the Service's namespace, for people. It has a label of its own, because many clouds allow no slash in a label.
pub const SERVICE_NAMESPACE: &str = "pileus-service-namespace";

/// The key of the Service's name, for people.
pub const SERVICE_NAME: &str = "pileus-service-name";

/// The key of the name of the Node that a route leads to.
pub const NODE: &str = "pileus-node";

/// A labeled resource, as many clouds list it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Labeled {
    /// Its name.
    pub name: String,
    /// Its labels.
    #[serde(default, alias = "tags")]
    pub labels: BTreeMap<String, String>,
}

/// The labels of a resource that is created for a Service.
pub fn for_service(cluster: &Cluster, service: &Service) -> BTreeMap<String, String> {
    let Service { namespace, name, uid, .. } = service;
    known([
        (CLUSTER, cluster.uid.clone()),
        (SERVICE, Some(uid.clone())),
        (SERVICE_NAMESPACE, Some(namespace.clone())),
        (SERVICE_NAME, Some(name.clone())),
    ])
}

/// The labels of a route.
pub fn for_route(cluster: &Cluster, route: &Route) -> BTreeMap<String, String> {
    known([(CLUSTER, cluster.uid.clone()), (NODE, Some(route.node.clone()))])
}

fn known<const N: usize>(labels: [(&str, Option<String>); N]) -> BTreeMap<String, String> {
    labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// The Node that a route leads to, according to its labels. None for another cluster's route, whose Node may have the
/// same name.
pub fn route_node(mut labels: BTreeMap<String, String>, cluster: &Cluster) -> Option<String> {
    let is_ours = labels.get(CLUSTER) == cluster.uid.as_ref();
    labels.remove(NODE).filter(|_| is_ours)
}

/// The UID of the cluster that a route belongs to, according to its labels.
pub fn route_cluster(labels: &BTreeMap<String, String>) -> Option<String> {
    labels.get(CLUSTER).cloned()
}

/// The owner of a resource, according to its labels. None if it belongs to no Service, or to another cluster.
pub fn owned(
    name: impl Into<String>,
    mut labels: BTreeMap<String, String>,
    cluster: &Cluster,
) -> Option<OwnedLoadBalancer> {
    let service_uid = labels.remove(SERVICE)?;
    let cluster_uid = labels.remove(CLUSTER);
    if cluster_uid.is_some() && cluster_uid != cluster.uid {
        return None;
    }
    let service = labels.remove(SERVICE_NAMESPACE).zip(labels.remove(SERVICE_NAME));
    Some(OwnedLoadBalancer {
        cluster_uid,
        service_uid: Some(service_uid),
        service,
        name: name.into(),
        ..OwnedLoadBalancer::default()
    })
}

/// The resources of a list that belong to a cluster, or whose cluster isn't labeled, see [`owned`].
pub fn list_owned(all: Vec<Labeled>, cluster: &Cluster) -> Vec<OwnedLoadBalancer> {
    all.into_iter().filter_map(|one| owned(one.name, one.labels, cluster)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(uid: Option<&str>) -> Cluster {
        Cluster { uid: uid.map(str::to_owned), ..Cluster::default() }
    }

    #[test]
    fn the_node_of_a_route_is_read_only_from_routes_of_the_same_cluster() {
        let route = Route { node: "node-1".to_owned(), ..Route::default() };
        let (ours, unlabeled) = (Some("c"), None);
        let rows =
            [(ours, ours, true), (ours, Some("d"), false), (ours, None, false), (unlabeled, ours, false)];
        for (maker, reader, is_ours) in rows {
            let node = route_node(for_route(&cluster(maker), &route), &cluster(reader));
            assert_eq!(node.as_deref(), is_ours.then_some("node-1"), "{maker:?} {reader:?}");
            assert_eq!(route_cluster(&for_route(&cluster(maker), &route)).as_deref(), maker);
        }
    }

    #[test]
    fn a_labeled_resource_is_owned_by_its_cluster_or_by_an_unknown_one() {
        let text = |text: &str| text.to_owned();
        let service =
            Service { namespace: text("shop"), name: text("web"), uid: text("u"), ..Service::default() };
        let owned_by = |cluster_uid: Option<&str>| OwnedLoadBalancer {
            cluster_uid: cluster_uid.map(str::to_owned),
            service_uid: Some(text("u")),
            service: Some((text("shop"), text("web"))),
            name: text("lb"),
            ..OwnedLoadBalancer::default()
        };
        let (ours, unlabeled) =
            (for_service(&cluster(Some("c")), &service), for_service(&cluster(None), &service));
        let rows = [
            ("ours", ours.clone(), Some("c"), Some(owned_by(Some("c")))),
            ("another cluster's", ours.clone(), Some("d"), None),
            ("ours, not known yet", ours, None, None),
            ("no cluster label", unlabeled, Some("c"), Some(owned_by(None))),
            ("no Service label", BTreeMap::from([(text(CLUSTER), text("c"))]), Some("c"), None),
        ];
        for (row, labels, uid, expected) in rows {
            assert_eq!(owned("lb", labels, &cluster(uid)), expected, "{row}");
        }
    }
}
