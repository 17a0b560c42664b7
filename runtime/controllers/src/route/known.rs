//! A route in the cloud's table, and which Node and cluster it is for. Pure.

use ipnet::IpNet;
use pileus_cloud::{ListedRoute, Route, is_uid_of};

use crate::facts::node::NodeFacts;

/// A route in the cloud's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownRoute {
    /// The route.
    pub(super) route: ListedRoute,
    /// Its range. `None` where the cloud's text is an invalid CIDR.
    pub(super) destination: Option<IpNet>,
    /// Whether the cloud has listed the route. A route that we have created since isn't known well enough to be deleted.
    pub(super) is_listed: bool,
}

impl KnownRoute {
    /// A route that the cloud has listed.
    pub(super) fn listed(route: ListedRoute) -> Self {
        let destination = route.destination.parse().ok().map(|range: IpNet| range.trunc());
        Self { route, destination, is_listed: true }
    }

    /// A route that we have created.
    pub(super) fn created(route: &Route) -> Self {
        let Route { name_hint, node, target, addresses, labels: _, destination } = route.clone();
        let listed = ListedRoute {
            name: name_hint,
            node: Some(node),
            target,
            addresses,
            destination: destination.to_string(),
            cluster_uid: None,
            is_blackhole: false,
            extra: Vec::new(),
        };
        Self { route: listed, destination: Some(destination), is_listed: false }
    }

    /// The UID of the other cluster that the route is labeled with, or its beginning. A label that can't mean this cluster is
    /// that of another one.
    pub(super) fn other_cluster(&self, ours: Option<&str>) -> Option<&str> {
        let uid = self.route.cluster_uid.as_deref()?;
        ours.filter(|ours| !is_uid_of(uid, ours)).map(|_| uid)
    }

    /// Whether the route leads to this Node, by everything that the cloud reports. The cloud may report no next hops, or only one
    /// of the Node's addresses.
    pub(super) fn leads_to(&self, node: &NodeFacts) -> bool {
        let ListedRoute { node: name, target, addresses, is_blackhole, .. } = &self.route;
        let is_its_instance = match (target, &node.provider_id) {
            (Some(target), Some(id)) => Some(target == id),
            _ => None,
        };
        let is_named = name.as_ref().map(|name| *name == node.name);
        let has_its_addresses = addresses.iter().all(|hop| has_address(node, &hop.value));
        let is_its_own = match (is_named, is_its_instance) {
            (Some(named), instance) => named && instance != Some(false),
            (None, Some(instance)) => instance,
            (None, None) => !addresses.is_empty(),
        };
        is_its_own && has_its_addresses && !is_blackhole
    }

    /// Whether the route may lead to this Node: the cloud reports only the instance, and the Node's provider ID isn't known before
    /// it is initialized.
    pub(super) fn may_lead_to(&self, node: &NodeFacts) -> bool {
        let ListedRoute { node: name, target, is_blackhole, .. } = &self.route;
        let is_unknown = node.provider_id.is_none() && node.is_uninitialized();
        is_unknown && name.is_none() && target.is_some() && !is_blackhole
    }

    /// Whether the route is meant for this Node, whether or not it is correct.
    pub(super) fn is_for(&self, node: &NodeFacts) -> bool {
        match (&self.route.node, &self.route.target) {
            (Some(name), _) => *name == node.name,
            (None, Some(target)) => node.provider_id.as_ref() == Some(target),
            (None, None) => false,
        }
    }
}

fn has_address(node: &NodeFacts, value: &str) -> bool {
    node.addresses.iter().any(|address| address.value == value)
}
