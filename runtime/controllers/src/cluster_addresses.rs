//! The addresses at which the cluster itself is reached: those of the API server, of Services and of Nodes. A provider that gives
//! one of them to a Node or to a load balancer would turn the cluster's own traffic to where it wants, or take traffic that
//! isn't meant for it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use pileus_cloud::{Address, Ingress, IngressPoint};

use crate::error::Error;
use crate::facts::node::NodeFacts;
use crate::informer::with_timeout;
use crate::nodes::Nodes;
use crate::services::{Services, cluster_ips};
use crate::well_known::LABELS_CONTROL_PLANE;

/// The namespace and the name of the Service by which Pods reach the API server, and of the slice with the server's addresses.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// The pause before the API server's own addresses are read again after an error.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// How many times the API server may refuse that read before its answer holds.
const MAX_REFUSALS: u32 = 6;

/// The addresses of one cluster. Clones share them.
#[derive(Clone)]
pub struct ClusterAddresses {
    inner: Arc<Inner>,
}

struct Inner {
    nodes: Nodes,
    /// `None` where Services aren't watched.
    services: Option<Services>,
    own: Mutex<OwnAddresses>,
}

/// The addresses of the API server.
#[derive(Debug, Default)]
struct OwnAddresses {
    /// At which it runs.
    servers: BTreeSet<IpAddr>,
    /// Those of the Service `kubernetes`, at which Pods reach it.
    cluster_ips: BTreeSet<IpAddr>,
}

/// What has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The API server runs there.
    ApiServer,
    /// It is a ClusterIP of the Service `namespace/name`.
    Service(String),
    /// A Node with this name.
    Node(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiServer => f.write_str("the API server's address"),
            Self::Service(name) => write!(f, "a ClusterIP of service {name}"),
            Self::Node(name) => write!(f, "an address of node {name}"),
        }
    }
}

impl ClusterAddresses {
    /// Those of these Nodes and Services, and those at which this process reaches the API server.
    pub fn new(nodes: Nodes, services: Option<Services>, servers: impl IntoIterator<Item = IpAddr>) -> Self {
        let servers = servers.into_iter().map(|ip| ip.to_canonical()).collect();
        let own = Mutex::new(OwnAddresses { servers, cluster_ips: BTreeSet::new() });
        Self { inner: Arc::new(Inner { nodes, services, own }) }
    }

    /// Reads under which addresses the API server is known in the cluster. Never returns.
    pub async fn learn(self, client: Client) {
        let (namespace, name) = API_SERVER;
        let services = Api::<Service>::namespaced(client.clone(), namespace);
        let slices = Api::<EndpointSlice>::namespaced(client, namespace);
        let service = until_answered("ClusterIPs", || services.get(name)).await;
        self.own().cluster_ips.extend(service.iter().flat_map(cluster_ips));
        let slice = until_answered("endpoints", || slices.get(name)).await;
        self.own().servers.extend(slice.iter().flat_map(server_ips));
        std::future::pending::<()>().await;
    }

    /// What has an address, if anything in the cluster has.
    pub(crate) fn owner(&self, ip: IpAddr) -> Option<Owner> {
        let Inner { nodes, services, .. } = &*self.inner;
        let node = || nodes.with_address(ip).map(Owner::Node);
        self.of_control_plane(ip)
            .or_else(|| services.as_ref()?.with_cluster_ip(ip).map(Owner::Service))
            .or_else(node)
    }

    fn of_control_plane(&self, ip: IpAddr) -> Option<Owner> {
        let own = self.own();
        if own.cluster_ips.contains(&ip) {
            let (namespace, name) = API_SERVER;
            return Some(Owner::Service(format!("{namespace}/{name}")));
        }
        own.servers.contains(&ip).then_some(Owner::ApiServer)
    }

    fn own(&self) -> MutexGuard<'_, OwnAddresses> {
        self.inner.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads an object until the API server answers. `None` where it keeps refusing: one that has just started does so for a while.
async fn until_answered<T, F: Future<Output = kube::Result<T>>>(
    what: &str,
    read: impl Fn() -> F,
) -> Option<T> {
    let mut refusals = 0;
    loop {
        match with_timeout(read()).await {
            Ok(object) => return Some(object),
            Err(Error::Forbidden(_) | Error::Gone) if refusals < MAX_REFUSALS => refusals += 1,
            Err(error @ (Error::Forbidden(_) | Error::Gone | Error::Refused(_))) => {
                tracing::info!(what, %error, "API server's own addresses not known completely");
                return None;
            }
            Err(error) => tracing::debug!(what, %error, "API server's own addresses not read, will retry"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn server_ips(slice: &EndpointSlice) -> Vec<IpAddr> {
    let texts = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
    texts.filter_map(|text| Some(text.parse::<IpAddr>().ok()?.to_canonical())).collect()
}

/// The addresses of the cloud that a Node may have, and a sentence for each other one. Another Node's addresses are not left out
/// here: see [`Nodes::conflict`]. The API server may run on the Node, where that is of the control plane or its kubelet
/// reports the address.
pub(crate) fn addresses_of_node(
    node: &NodeFacts,
    addresses: Vec<Address>,
    owner: impl Fn(IpAddr) -> Option<Owner>,
) -> (Vec<Address>, Vec<String>) {
    let is_control_plane = LABELS_CONTROL_PLANE.iter().any(|key| node.labels.contains_key(key));
    let mut left_out = Vec::new();
    let mut is_free = |address: &Address| {
        let Ok(ip) = address.value.parse::<IpAddr>() else { return true };
        let owner = match owner(ip.to_canonical()) {
            None | Some(Owner::Node(_)) => return true,
            Some(Owner::ApiServer) if is_control_plane || node.addresses.contains(address) => return true,
            Some(owner) => owner,
        };
        left_out.push(format!("{} {ip}: it is {owner}", address.kind));
        false
    };
    let kept = addresses.into_iter().filter(|address| is_free(address)).collect();
    (kept, left_out)
}

/// The entries of a load balancer's status that clients may follow, and a sentence for each other one. Nodes send traffic for
/// these addresses to the Service's endpoints, and so would take it from what has the address.
pub(crate) fn free_ingress(
    status: Vec<Ingress>,
    owner: impl Fn(IpAddr) -> Option<Owner>,
) -> (Vec<Ingress>, Vec<String>) {
    let mut left_out = Vec::new();
    let mut is_free = |ingress: &Ingress| {
        let IngressPoint::Ip(text) = &ingress.point else { return true };
        let Some(owner) = text.parse::<IpAddr>().ok().and_then(|ip| owner(ip.to_canonical())) else {
            return true;
        };
        left_out.push(format!("{text} can't be the address of a load balancer: it is {owner}"));
        false
    };
    let kept = status.into_iter().filter(|ingress| is_free(ingress)).collect();
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{AddressKind, IpMode};

    use super::*;

    fn owner(ip: IpAddr) -> Option<Owner> {
        match ip.to_string().as_str() {
            "10.96.0.1" | "fd96::1" => Some(Owner::Service("default/kubernetes".to_owned())),
            "10.96.7.7" => Some(Owner::Service("shop/db".to_owned())),
            "10.0.0.2" => Some(Owner::ApiServer),
            "10.0.0.3" => Some(Owner::Node("b".to_owned())),
            _ => None,
        }
    }

    #[test]
    fn a_node_gets_no_address_of_a_service_and_that_of_the_api_server_only_where_that_may_run_on_it() {
        let plain = NodeFacts::registered("a");
        let label = (LABELS_CONTROL_PLANE[0].to_owned(), String::new());
        let control_plane = NodeFacts { labels: [label].into(), ..plain.clone() };
        let own = vec![Address::new(AddressKind::InternalIp, "10.0.0.2")];
        let reported = NodeFacts { addresses: own, ..plain.clone() };
        for (node, ip, why) in [
            (&plain, "10.0.0.9", None),
            (&plain, "10.96.0.1", Some("a ClusterIP of service default/kubernetes")),
            (&plain, "fd96::1", Some("a ClusterIP of service default/kubernetes")),
            (&plain, "::ffff:10.96.0.1", Some("a ClusterIP of service default/kubernetes")),
            (&plain, "10.96.7.7", Some("a ClusterIP of service shop/db")),
            (&control_plane, "10.96.0.1", Some("a ClusterIP of service default/kubernetes")),
            (&plain, "10.0.0.2", Some("the API server's address")),
            (&control_plane, "10.0.0.2", None),
            (&reported, "10.0.0.2", None),
            (&plain, "10.0.0.3", None), // a conflict, see `nodes/claims.rs`
        ] {
            let name = Address::new(AddressKind::Hostname, "a");
            let given = vec![name.clone(), Address::new(AddressKind::InternalIp, ip)];
            let (kept, left_out) = addresses_of_node(node, given.clone(), owner);
            match why {
                None => assert_eq!((kept, left_out), (given, vec![]), "{ip}"),
                Some(why) => {
                    assert_eq!(kept, [name], "{ip}");
                    assert!(left_out.len() == 1 && left_out[0].contains(why), "{left_out:?}");
                }
            }
        }
    }

    #[test]
    fn a_load_balancer_has_no_address_of_the_cluster() {
        let at = |point| Ingress { point, ip_mode: Some(IpMode::Vip), ports: Vec::new() };
        let ip = |text: &str| at(IngressPoint::Ip(text.to_owned()));
        let name = at(IngressPoint::Hostname("lb.example".to_owned()));
        for (text, why) in [
            ("198.51.100.7", None),
            ("10.96.0.1", Some("a ClusterIP of service default/kubernetes")),
            ("10.96.7.7", Some("a ClusterIP of service shop/db")),
            ("10.0.0.2", Some("the API server's address")),
            ("10.0.0.3", Some("an address of node b")),
        ] {
            let (kept, left_out) = free_ingress(vec![ip(text), name.clone()], owner);
            assert_eq!(kept.len(), if why.is_some() { 1 } else { 2 }, "{text}");
            assert_eq!(left_out.len(), usize::from(why.is_some()));
            assert!(left_out.iter().all(|it| it.contains(why.unwrap_or_default())), "{left_out:?}");
        }
    }
}
