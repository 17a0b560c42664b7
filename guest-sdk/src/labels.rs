//! The labels, or tags, that what a provider makes bears in the cloud, so that it is found again, whoever looks: the same
//! in every cloud that has labels.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Cluster, Owned, Route, Service};

/// The cluster's UID, by which clusters that share an account know their own.
pub const CLUSTER: &str = "pileus-cluster";

/// The Service's UID.
pub const SERVICE: &str = "pileus-service";

/// The Service's namespace and name, for people.
pub const SERVICE_NAME: &str = "pileus-service-name";

/// The name of the Node that a route leads to.
pub const NODE: &str = "pileus-node";

/// Whatever bears labels, as many clouds list it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Labelled {
    /// Its name.
    pub name: String,
    /// Its labels.
    #[serde(default, alias = "tags")]
    pub labels: BTreeMap<String, String>,
}

/// The labels of what is made for a Service.
pub fn of(cluster: &Cluster, service: &Service) -> BTreeMap<String, String> {
    let name = format!("{}/{}", service.namespace, service.name);
    known([(CLUSTER, cluster.uid.clone()), (SERVICE, Some(service.uid.clone())), (SERVICE_NAME, Some(name))])
}

/// The labels of a route.
pub fn of_route(cluster: &Cluster, route: &Route) -> BTreeMap<String, String> {
    known([(CLUSTER, cluster.uid.clone()), (NODE, Some(route.node.clone()))])
}

fn known<const N: usize>(labels: [(&str, Option<String>); N]) -> BTreeMap<String, String> {
    labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// The Node that a route leads to by its labels; none where it is another cluster's, whose Nodes may bear the same names.
pub fn node(mut labels: BTreeMap<String, String>, cluster: &Cluster) -> Option<String> {
    let is_ours = labels.get(CLUSTER) == cluster.uid.as_ref();
    labels.remove(NODE).filter(|_| is_ours)
}

/// What the thing of this name is to a cluster by its labels; none where it is no Service's, or another cluster's.
pub fn owned(
    name: impl Into<String>,
    mut labels: BTreeMap<String, String>,
    cluster: &Cluster,
) -> Option<Owned> {
    let service_uid = labels.remove(SERVICE)?;
    let cluster_uid = labels.remove(CLUSTER);
    if cluster_uid.is_some() && cluster_uid != cluster.uid {
        return None;
    }
    let service = labels.remove(SERVICE_NAME);
    let service =
        service.and_then(|it| it.split_once('/').map(|(of, name)| (of.to_owned(), name.to_owned())));
    Some(Owned {
        cluster_uid,
        service_uid: Some(service_uid),
        service,
        name: name.into(),
        ..Owned::default()
    })
}

/// What of a list is a cluster's, or nobody's, see [`owned`].
pub fn owned_among(all: Vec<Labelled>, cluster: &Cluster) -> Vec<Owned> {
    all.into_iter().filter_map(|one| owned(one.name, one.labels, cluster)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(uid: Option<&str>) -> Cluster {
        Cluster { uid: uid.map(str::to_owned), ..Cluster::default() }
    }

    #[test]
    fn a_route_leads_to_the_node_that_it_names_where_it_is_the_clusters() {
        let route = Route { node: "node-1".to_owned(), ..Route::default() };
        let (ours, nobodys) = (Some("c"), None);
        let rows =
            [(ours, ours, true), (ours, Some("d"), false), (ours, None, false), (nobodys, ours, false)];
        for (maker, reader, is_ours) in rows {
            let node = node(of_route(&cluster(maker), &route), &cluster(reader));
            assert_eq!(node.as_deref(), is_ours.then_some("node-1"), "{maker:?} {reader:?}");
        }
    }

    #[test]
    fn what_bears_the_labels_of_a_service_is_owned_by_its_cluster_or_by_none_that_can_be_told() {
        let text = |text: &str| text.to_owned();
        let service =
            Service { namespace: text("shop"), name: text("web"), uid: text("u"), ..Service::default() };
        let owned_by = |cluster_uid: Option<&str>| Owned {
            cluster_uid: cluster_uid.map(str::to_owned),
            service_uid: Some(text("u")),
            service: Some((text("shop"), text("web"))),
            name: text("lb"),
            ..Owned::default()
        };
        let (ours, nobodys) = (of(&cluster(Some("c")), &service), of(&cluster(None), &service));
        let rows = [
            ("ours", ours.clone(), Some("c"), Some(owned_by(Some("c")))),
            ("another cluster's", ours.clone(), Some("d"), None),
            ("ours, not known yet", ours, None, None),
            ("nobody's", nobodys, Some("c"), Some(owned_by(None))),
            ("no Service's", BTreeMap::from([(text(CLUSTER), text("c"))]), Some("c"), None),
        ];
        for (row, labels, uid, expected) in rows {
            assert_eq!(owned("lb", labels, &cluster(uid)), expected, "{row}");
        }
    }
}
