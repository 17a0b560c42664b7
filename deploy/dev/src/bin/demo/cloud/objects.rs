//! Routes and load balancers, as the simulated cloud's API shows them.

use serde::Deserialize;

/// A route to a machine.
#[derive(Clone, Deserialize)]
pub(crate) struct Route {
    pub(crate) destination: String,
    pub(crate) machine: String,
}

/// A load balancer.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadBalancer {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) addresses: Vec<String>,
    pub(crate) ports: Vec<Listener>,
    pub(crate) machines: Vec<String>,
    pub(crate) source_ranges: Vec<String>,
    pub(crate) health_check_port: Option<u16>,
}

/// A port of a load balancer, and the node port that it forwards to.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listener {
    pub(crate) protocol: String,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
}
