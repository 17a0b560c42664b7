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
use crate::nodes::Change;

/// The targets at one moment.
#[derive(Debug)]
pub(super) struct Targets {
    table: Vec<Target>,
    rows: HashMap<String, u32>,
    digest: u64,
}

impl Targets {
    /// Of these Nodes those that may take traffic, for a provider with these schemes of provider IDs, which reads labels
    /// of these keys.
    pub(super) fn of(nodes: &[Arc<NodeFacts>], schemes: &[String], label_keys: &[String]) -> Self {
        let target = |node: &Arc<NodeFacts>| target(node, schemes, label_keys);
        let mut table: Vec<_> = nodes.iter().filter_map(target).collect();
        table.sort_unstable_by(|a, b| a.node.cmp(&b.node));
        let mut hasher = DefaultHasher::new();
        for Target { node, uid, provider_id, addresses, zone, labels } in &table {
            (node, uid, provider_id, zone, labels, addresses.len()).hash(&mut hasher);
            for address in addresses {
                (address.kind.as_str(), &address.value).hash(&mut hasher);
            }
        }
        let rows = (0..).zip(&table).map(|(row, target)| (target.node.clone(), row)).collect();
        Self { digest: hasher.finish(), table, rows }
    }

    /// Whether a change of a Node makes these targets others: most, such as heartbeats, don't.
    pub(super) fn are_changed_by(&self, change: &Change, schemes: &[String], label_keys: &[String]) -> bool {
        let (name, now) = match change {
            Change::Present(node) => (&node.name, target(node, schemes, label_keys)),
            Change::Gone(name) => (name, None),
        };
        let row = self.rows.get(name).and_then(|row| usize::try_from(*row).ok());
        row.and_then(|row| self.table.get(row)) != now.as_ref()
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

fn target(node: &NodeFacts, schemes: &[String], label_keys: &[String]) -> Option<Target> {
    let provider_id = node.provider_id.clone()?;
    let is_served = schemes.iter().any(|scheme| scheme == provider_id.scheme());
    if !is_served || node.is_deleting || node.is_excluded() || node.is_leaving() {
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
    use crate::scenarios::Stored;
    use crate::well_known::LABEL_EXCLUDE;

    fn node(change: &Value) -> Arc<NodeFacts> {
        let node = json!({"spec": {"taints": null, "providerID": "fake://a"}});
        Arc::new(Stored::registered(&node).with(change).facts())
    }

    #[test]
    fn only_what_a_load_balancer_sees_of_a_node_changes_its_targets() {
        let (schemes, keys) = (["fake".to_owned()], ["pool".to_owned()]);
        let label = |key: &str| json!({"metadata": {"labels": {key: "a"}}});
        let exclude = |value| json!({"metadata": {"labels": {LABEL_EXCLUDE: value}}});
        let taint = |key| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
        let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}});
        let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}});
        for (name, change, is_news) in [
            ("nothing", json!({}), false),
            ("a heartbeat", json!({"metadata": {"resourceVersion": "9"}}), false),
            ("it is ready", json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), false),
            ("it is cordoned", taint("node.kubernetes.io/unschedulable"), false),
            ("it is labelled in", exclude("false"), false),
            ("it is labelled out", exclude(""), true),
            ("the autoscaler takes it away", taint("ToBeDeletedByClusterAutoscaler"), true),
            ("it is being deleted", json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}), true),
            ("another machine", json!({"spec": {"providerID": "fake://b"}}), true),
            ("another cloud's machine", json!({"spec": {"providerID": "other://a"}}), true),
            ("no machine", json!({"spec": {"providerID": null}}), true),
            ("another address", address, true),
            ("another zone", zone, true),
            ("a label that the provider reads", label("pool"), true),
            ("another label", label("team"), false),
            ("another of the name", json!({"metadata": {"uid": "other"}}), true),
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
