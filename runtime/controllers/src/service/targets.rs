//! The Nodes behind load balancers.
//!
//! Which Nodes may take traffic is upstream's decision (ccm-behaviour 4.7): not one that is being deleted, that is labelled
//! out, or that the cluster autoscaler is about to take away. Whether a Node is ready isn't asked: the load balancer's own
//! health checks know sooner (KEP-3458). What is better here: a Node without a machine isn't sent, and one whose machine,
//! addresses or zone change is news (P-19).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use pileus_cloud::{LocalEndpoints, Target};

use crate::facts::node::NodeFacts;
use crate::facts::service::ServiceFacts;

/// The targets at one moment.
#[derive(Debug)]
pub(super) struct Targets {
    table: Vec<Target>,
    rows: HashMap<String, u32>,
    digest: u64,
}

impl Targets {
    /// Of these Nodes those that may take traffic, for a provider with these schemes of provider IDs.
    pub(super) fn of(nodes: &[Arc<NodeFacts>], schemes: &[String]) -> Self {
        let is_served = |target: &Target| schemes.iter().any(|scheme| scheme == target.provider_id.scheme());
        let mut table: Vec<_> = nodes.iter().filter_map(|node| target(node)).filter(is_served).collect();
        table.sort_unstable_by(|a, b| a.node.cmp(&b.node));
        let mut hasher = DefaultHasher::new();
        for Target { node, uid, provider_id, addresses, zone } in &table {
            (node, uid, provider_id, zone, addresses.len()).hash(&mut hasher);
            for address in addresses {
                (address.kind.as_str(), &address.value).hash(&mut hasher);
            }
        }
        let rows = (0..).zip(&table).map(|(row, target)| (target.node.clone(), row)).collect();
        Self { digest: hasher.finish(), table, rows }
    }

    /// The table, in the order of the Nodes' names.
    pub(super) fn table(&self) -> &[Target] {
        &self.table
    }

    /// What tells two tables apart.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// The endpoints of a Service on these Nodes, in the order of the rows.
    pub(super) fn endpoints(&self, facts: &ServiceFacts) -> Vec<LocalEndpoints> {
        let local = facts.local_endpoints.iter();
        local
            .filter_map(|(node, count)| Some(LocalEndpoints { row: *self.rows.get(node)?, count: *count }))
            .collect()
    }
}

fn target(node: &NodeFacts) -> Option<Target> {
    if node.is_deleting || node.is_excluded() || node.is_leaving() {
        return None;
    }
    Some(Target {
        node: node.name.clone(),
        uid: node.uid.clone(),
        provider_id: node.provider_id.clone()?,
        addresses: node.addresses.clone(),
        zone: node.zone().map(str::to_owned),
    })
}
