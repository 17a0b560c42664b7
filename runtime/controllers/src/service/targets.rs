//! The Nodes behind load balancers, as one table for all Services.
//!
//! As upstream, a Node takes no traffic while it is being deleted, while its label excludes it, or when the cluster
//! autoscaler is about to remove it. Its readiness doesn't matter: the load balancer's own health checks know sooner
//! (KEP-3458). Better than upstream: a Node without an instance isn't sent, and a change of a Node's instance, addresses or
//! zone updates load balancers (U-19). A Node whose instance the cloud hasn't confirmed isn't sent either, since a cloud may
//! refuse the whole change for it: see `nodes/confirmations.rs`.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use pileus_cloud::{LocalEndpoints, Target};

use crate::facts::node::NodeFacts;
use crate::facts::service::ServiceFacts;
use crate::nodes::Change;

/// The targets at one moment.
#[derive(Debug)]
pub(super) struct Targets {
    table: Vec<Target>,
    rows: HashMap<String, u32>,
    /// The UIDs of the Nodes that were left out since the cloud hasn't confirmed their instances.
    unconfirmed: HashSet<String>,
    digest: u64,
}

impl Targets {
    /// The targets among these Nodes, for a provider with these schemes of provider IDs that reads labels with these keys.
    pub(super) fn of(nodes: &[Arc<NodeFacts>], schemes: &[String], label_keys: &[String]) -> Self {
        let target = |node: &Arc<NodeFacts>| target(node, schemes, label_keys);
        Self::from(nodes.iter().filter_map(target).collect())
    }

    /// The same without the Nodes of these UIDs, whose instances the cloud hasn't confirmed.
    pub(super) fn of_confirmed(
        nodes: &[Arc<NodeFacts>],
        unconfirmed: HashSet<String>,
        schemes: &[String],
        label_keys: &[String],
    ) -> Self {
        let confirmed = nodes.iter().filter(|node| !unconfirmed.contains(&node.uid));
        let table = confirmed.filter_map(|node| target(node, schemes, label_keys)).collect();
        Self { unconfirmed, ..Self::from(table) }
    }

    fn from(mut table: Vec<Target>) -> Self {
        table.sort_unstable_by(|a, b| a.node.cmp(&b.node));
        let mut hasher = DefaultHasher::new();
        for Target { node, uid, provider_id, addresses, zone, labels } in &table {
            (node, uid, provider_id, zone, labels, addresses.len()).hash(&mut hasher);
            for address in addresses {
                (address.kind.as_str(), &address.value).hash(&mut hasher);
            }
        }
        let rows = (0..).zip(&table).map(|(row, target)| (target.node.clone(), row)).collect();
        Self { digest: hasher.finish(), table, rows, unconfirmed: HashSet::new() }
    }

    /// Whether a change of a Node changes the targets. Most changes, such as heartbeats, don't.
    pub(super) fn are_changed_by(&self, change: &Change, schemes: &[String], label_keys: &[String]) -> bool {
        let (name, now) = match change {
            Change::Present(node) if self.unconfirmed.contains(&node.uid) => (&node.name, None),
            Change::Present(node) => (&node.name, target(node, schemes, label_keys)),
            Change::Gone(name) => (name, None),
        };
        let row = self.rows.get(name).and_then(|row| usize::try_from(*row).ok());
        row.and_then(|row| self.table.get(row)) != now.as_ref()
    }

    /// Those of the targets that fulfill a condition.
    pub(super) fn filtered(&self, is_kept: impl Fn(&Target) -> bool) -> Self {
        Self::from(self.table.iter().filter(|target| is_kept(target)).cloned().collect())
    }

    /// The targets, in the order of the Nodes' names.
    pub(super) fn table(&self) -> &[Target] {
        &self.table
    }

    /// Tells two tables apart.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// The endpoints of a Service on these Nodes.
    pub(super) fn endpoints(&self, facts: &ServiceFacts) -> Vec<LocalEndpoints> {
        let local = facts.local_endpoints.iter();
        local
            .filter_map(|(node, count)| Some(LocalEndpoints { row: *self.rows.get(node)?, count: *count }))
            .collect()
    }
}

fn target(node: &NodeFacts, schemes: &[String], label_keys: &[String]) -> Option<Target> {
    let provider_id = node.provider_id.clone()?;
    let is_served = schemes.iter().any(|scheme| scheme == provider_id.scheme());
    if !is_served || node.twin.is_some() || node.is_deleting || node.is_excluded() || node.is_leaving() {
        return None;
    }
    Some(Target {
        node: node.name.clone(),
        uid: node.uid.clone(),
        provider_id,
        addresses: node.addresses.clone(),
        zone: node.zone().map(str::to_owned),
        labels: node.labels_of(label_keys),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scenarios::StoredNode;
    use crate::well_known::LABEL_EXCLUDE;

    fn node(change: &Value) -> Arc<NodeFacts> {
        let node = json!({"spec": {"taints": null, "providerID": "fake://a"}});
        Arc::new(StoredNode::registered(&node).with(change).facts())
    }

    #[test]
    fn only_changes_of_a_node_that_load_balancers_see_change_the_targets() {
        let (schemes, keys) = (["fake".to_owned()], ["pool".to_owned()]);
        let label = |key: &str| json!({"metadata": {"labels": {key: "a"}}});
        let exclude = |value| json!({"metadata": {"labels": {LABEL_EXCLUDE: value}}});
        let taint = |key| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
        let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}});
        let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}});
        for (name, change, is_news) in [
            ("nothing", json!({}), false),
            ("a heartbeat", json!({"metadata": {"resourceVersion": "9"}}), false),
            ("ready", json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), false),
            ("cordoned", taint("node.kubernetes.io/unschedulable"), false),
            ("not excluded by the label", exclude("false"), false),
            ("excluded by the label", exclude(""), true),
            ("about to be removed by the autoscaler", taint("ToBeDeletedByClusterAutoscaler"), true),
            ("being deleted", json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}), true),
            ("another instance", json!({"spec": {"providerID": "fake://b"}}), true),
            ("an instance of another cloud", json!({"spec": {"providerID": "other://a"}}), true),
            ("no instance", json!({"spec": {"providerID": null}}), true),
            ("another address", address, true),
            ("another zone", zone, true),
            ("a label that the provider reads", label("pool"), true),
            ("another label", label("team"), false),
            ("another Node of the same name", json!({"metadata": {"uid": "other"}}), true),
        ] {
            let (before, after) = (node(&json!({})), node(&change));
            let changed = |from: &Arc<NodeFacts>, to: &Arc<NodeFacts>| {
                let change = Change::Present(Arc::clone(to));
                Targets::of(&[Arc::clone(from)], &schemes, &keys).are_changed_by(&change, &schemes, &keys)
            };
            assert_eq!(changed(&before, &after), is_news, "{name}");
            assert_eq!(changed(&after, &before), is_news, "{name}, and back");
            let digest = |node: Arc<NodeFacts>| Targets::of(&[node], &schemes, &keys).digest();
            assert_eq!(digest(before) != digest(after), is_news, "{name}: the digest");
        }
        let targets = Targets::of(&[node(&json!({}))], &schemes, &keys);
        assert!(targets.are_changed_by(&Change::Gone("node0".to_owned()), &schemes, &keys));
        assert!(!targets.are_changed_by(&Change::Gone("other".to_owned()), &schemes, &keys));
    }
}
