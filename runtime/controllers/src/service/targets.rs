//! The Nodes behind load balancers, as one table for all Services.
//!
//! As upstream, a Node takes no traffic while it is being deleted, while its label excludes it, or when the cluster
//! autoscaler is about to remove it. Its readiness doesn't matter: the load balancer's own health checks know sooner
//! (KEP-3458). Better than upstream: a Node without an instance isn't sent, and a change of a Node's instance, addresses or
//! zone updates load balancers (U-19). A Node whose instance the cloud hasn't confirmed isn't sent either, since a cloud may
//! refuse the whole change for it: see `nodes/confirmations.rs`.
//!
//! A Service that chooses Nodes by a selector gets rows of the table. Only a change in those rows is a change for it.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use pileus_cloud::{LocalEndpoints, Target, TargetSelection};

use crate::facts::node::NodeFacts;
use crate::facts::service::{NodeSelector, ServiceFacts};
use crate::nodes::Change;

/// The targets at one moment.
#[derive(Debug)]
pub(super) struct Targets {
    table: Vec<Target>,
    /// The Nodes of the table's rows, for their labels.
    nodes: Vec<Arc<NodeFacts>>,
    rows: HashMap<String, u32>,
    /// The UIDs of the Nodes that were left out since the cloud hasn't confirmed their instances.
    unconfirmed: HashSet<String>,
    version: u64,
    /// The selection of a Service that chooses no Nodes.
    all: Arc<Selection>,
    /// The selections that were asked for: many Services have the same few selectors.
    selections: Mutex<HashMap<NodeSelector, Arc<Selection>>>,
}

/// The targets of one Service.
#[derive(Debug)]
pub(super) struct Selection {
    /// The rows of the table.
    pub(super) rows: TargetSelection,
    /// Tells two selections apart, as far as a load balancer is concerned. It doesn't depend on the other rows of the table.
    pub(super) digest: u64,
    /// Whether there are none.
    pub(super) is_empty: bool,
}

impl Targets {
    /// The targets among these Nodes, for the provider of this name, which reads labels with these keys.
    pub(super) fn of(nodes: &[Arc<NodeFacts>], provider: &str, label_keys: &[String]) -> Self {
        Self::of_confirmed(nodes, HashSet::new(), provider, label_keys)
    }

    /// The same without the Nodes of these UIDs, whose instances the cloud hasn't confirmed.
    pub(super) fn of_confirmed(
        nodes: &[Arc<NodeFacts>],
        unconfirmed: HashSet<String>,
        provider: &str,
        label_keys: &[String],
    ) -> Self {
        let confirmed = nodes.iter().filter(|node| !unconfirmed.contains(&node.uid));
        let target = |node: &Arc<NodeFacts>| Some((target(node, provider, label_keys)?, Arc::clone(node)));
        let targets = Self::from(confirmed.filter_map(target).collect());
        Self { unconfirmed, ..targets }
    }

    fn from(mut rows: Vec<(Target, Arc<NodeFacts>)>) -> Self {
        rows.sort_unstable_by(|(a, _), (b, _)| a.node.cmp(&b.node));
        let (table, nodes): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let digest = digest(&table);
        let mut hasher = DefaultHasher::new();
        digest.hash(&mut hasher);
        for node in &nodes {
            node.labels.hash(&mut hasher);
        }
        let all = Selection { rows: TargetSelection::All, digest, is_empty: table.is_empty() };
        let rows = (0..).zip(&table).map(|(row, target)| (target.node.clone(), row)).collect();
        Self {
            table,
            nodes,
            rows,
            unconfirmed: HashSet::new(),
            version: hasher.finish(),
            all: Arc::new(all),
            selections: Mutex::default(),
        }
    }

    /// Whether a change of a Node changes the targets of a Service. Most changes, such as heartbeats, don't.
    pub(super) fn are_changed_by(&self, change: &Change, provider: &str, label_keys: &[String]) -> bool {
        let (name, now) = match change {
            Change::Present(node) if self.unconfirmed.contains(&node.uid) => (&node.name, None),
            Change::Present(node) => {
                (&node.name, target(node, provider, label_keys).map(|target| (target, &node.labels)))
            }
            Change::Gone(name) => (name, None),
        };
        let row = self.rows.get(name).and_then(|row| usize::try_from(*row).ok());
        let known = row.and_then(|row| Some((self.table.get(row)?, &self.nodes.get(row)?.labels)));
        known != now.as_ref().map(|(target, labels)| (target, *labels))
    }

    /// Those of the targets that fulfill a condition.
    pub(super) fn filtered(&self, is_kept: impl Fn(&Target) -> bool) -> Self {
        let rows = self.table.iter().zip(&self.nodes).filter(|(target, _)| is_kept(target));
        Self::from(rows.map(|(target, node)| (target.clone(), Arc::clone(node))).collect())
    }

    /// A table of only the targets that a Service chooses.
    pub(super) fn chosen_by(self: &Arc<Self>, facts: &ServiceFacts) -> Arc<Self> {
        if facts.node_selector.is_empty() {
            return Arc::clone(self);
        }
        let rows = self.table.iter().zip(&self.nodes);
        let rows = rows.filter(|(_, node)| facts.node_selector.matches(&node.labels));
        Arc::new(Self::from(rows.map(|(target, node)| (target.clone(), Arc::clone(node))).collect()))
    }

    /// The targets, in the order of the Nodes' names.
    pub(super) fn table(&self) -> &[Target] {
        &self.table
    }

    /// Tells two tables apart, as providers see them.
    pub(super) fn digest(&self) -> u64 {
        self.all.digest
    }

    /// Tells two tables apart, as Services choose from them: by any label of a Node.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The targets that a Service chooses.
    pub(super) fn selection(&self, facts: &ServiceFacts) -> Arc<Selection> {
        let selector = &facts.node_selector;
        if selector.is_empty() {
            return Arc::clone(&self.all);
        }
        let mut selections = self.selections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(selection) = selections.get(selector) {
            return Arc::clone(selection);
        }
        let rows = (0..).zip(self.table.iter().zip(&self.nodes));
        let chosen = rows.filter(|(_, (_, node))| selector.matches(&node.labels));
        let (rows, targets): (Vec<u32>, Vec<&Target>) =
            chosen.map(|(row, (target, _))| (row, target)).unzip();
        let (is_empty, digest) = (rows.is_empty(), digest(targets));
        let selection = Arc::new(Selection { rows: TargetSelection::Rows(rows), digest, is_empty });
        selections.insert(selector.clone(), Arc::clone(&selection));
        selection
    }

    /// The endpoints of a Service on the Nodes that it chooses.
    pub(super) fn endpoints(&self, facts: &ServiceFacts) -> Vec<LocalEndpoints> {
        let selection = self.selection(facts);
        let is_chosen = |row: u32| match &selection.rows {
            TargetSelection::All => true,
            TargetSelection::Rows(rows) => rows.binary_search(&row).is_ok(),
        };
        let local = facts.local_endpoints.iter();
        local
            .filter_map(|(node, count)| Some(LocalEndpoints { row: *self.rows.get(node)?, count: *count }))
            .filter(|endpoints| is_chosen(endpoints.row))
            .collect()
    }
}

fn digest<'a>(targets: impl IntoIterator<Item = &'a Target>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for Target { node, uid, provider_id, addresses, zone, labels } in targets {
        (node, uid, provider_id, zone, labels, addresses.len()).hash(&mut hasher);
        for address in addresses {
            (address.kind.as_str(), &address.value).hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn target(node: &NodeFacts, provider: &str, label_keys: &[String]) -> Option<Target> {
    let provider_id = node.provider_id.clone()?;
    if !node.belongs_to(provider)
        || node.twin.is_some()
        || node.is_deleting
        || node.is_excluded()
        || node.is_leaving()
    {
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
    use crate::model::PROVIDER;
    use crate::scenarios::StoredNode;
    use crate::well_known::LABEL_EXCLUDE;

    fn node(change: &Value) -> Arc<NodeFacts> {
        let node = json!({"spec": {"taints": null, "providerID": "fake://a"}});
        Arc::new(StoredNode::registered(&node).with(change).facts())
    }

    #[test]
    fn only_changes_of_a_node_that_load_balancers_see_change_the_targets() {
        let keys = ["pool".to_owned()];
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
            ("excluded by the label", exclude(""), true),
            ("about to be removed by the autoscaler", taint("ToBeDeletedByClusterAutoscaler"), true),
            ("being deleted", json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}), true),
            ("another instance", json!({"spec": {"providerID": "fake://b"}}), true),
            ("an instance of another cloud", json!({"spec": {"providerID": "other://a"}}), true),
            ("no instance", json!({"spec": {"providerID": null}}), true),
            ("another address", address, true),
            ("another zone", zone, true),
            ("a label that the provider reads", label("pool"), true),
            ("another Node of the same name", json!({"metadata": {"uid": "other"}}), true),
        ] {
            let (before, after) = (node(&json!({})), node(&change));
            let changed = |from: &Arc<NodeFacts>, to: &Arc<NodeFacts>| {
                let change = Change::Present(Arc::clone(to));
                Targets::of(&[Arc::clone(from)], PROVIDER, &keys).are_changed_by(&change, PROVIDER, &keys)
            };
            assert_eq!(changed(&before, &after), is_news, "{name}");
            assert_eq!(changed(&after, &before), is_news, "{name}, and back");
            let digest = |node: Arc<NodeFacts>| Targets::of(&[node], PROVIDER, &keys).digest();
            assert_eq!(digest(before) != digest(after), is_news, "{name}: the digest");
        }
        // Services may choose Nodes by other labels, which providers don't see.
        for other in [label("team"), exclude("false")] {
            let (before, after) = (node(&json!({})), node(&other));
            let targets = [&before, &after].map(|node| Targets::of(&[Arc::clone(node)], PROVIDER, &keys));
            assert!(targets[0].are_changed_by(&Change::Present(after), PROVIDER, &keys), "{other}");
            assert_eq!(targets[0].digest(), targets[1].digest(), "{other}");
            assert_ne!(targets[0].version(), targets[1].version(), "{other}");
        }
        let targets = Targets::of(&[node(&json!({}))], PROVIDER, &keys);
        assert!(targets.are_changed_by(&Change::Gone("node0".to_owned()), PROVIDER, &keys));
        assert!(!targets.are_changed_by(&Change::Gone("other".to_owned()), PROVIDER, &keys));
    }
    #[test]
    fn a_selection_has_the_rows_that_a_service_chooses_and_depends_on_no_others() {
        let node = |name: &str, address: &str, labels: Value| {
            node(&json!({
                "metadata": {"name": name, "uid": name, "labels": labels},
                "spec": {"providerID": format!("fake://{name}")},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]},
            }))
        };
        let targets = |nodes: &[Arc<NodeFacts>]| Targets::of(nodes, PROVIDER, &[]);
        let (web, db) = (json!({"pool": "web"}), json!({"pool": "db"}));
        let [a, b, c] =
            [("a", &db), ("b", &web), ("c", &web)].map(|(name, pool)| node(name, "10.0.0.1", pool.clone()));
        let mut facts = ServiceFacts::balanced("s");
        let all = targets(&[a.clone(), b.clone(), c.clone()]);
        assert_eq!(all.selection(&facts).rows, TargetSelection::All);
        facts.node_selector = NodeSelector::of("pool=web");
        facts.local_endpoints = ["a", "c"].map(|name| (name.to_owned(), 2)).into();
        let before = all.selection(&facts);
        assert_eq!((&before.rows, before.is_empty), (&TargetSelection::Rows(vec![1, 2]), false));
        assert_eq!(all.endpoints(&facts), [LocalEndpoints { row: 2, count: 2 }]);
        let (spot, z) = (json!({"pool": "web", "spot": "yes"}), node("0", "10.0.0.1", db.clone()));
        for (name, nodes, rows, is_news) in [
            (
                "another row's address",
                vec![node("a", "10.0.0.9", db.clone()), b.clone(), c.clone()],
                vec![1, 2],
                false,
            ),
            ("a Node that isn't chosen leaves", vec![b.clone(), c.clone()], vec![0, 1], false),
            ("a Node that isn't chosen joins", vec![z, a.clone(), b.clone(), c.clone()], vec![2, 3], false),
            ("another label", vec![a.clone(), node("b", "10.0.0.1", spot), c.clone()], vec![1, 2], false),
            ("a chosen Node leaves", vec![a.clone(), b.clone()], vec![1], true),
            (
                "a Node is chosen now",
                vec![node("a", "10.0.0.1", web), b.clone(), c.clone()],
                vec![0, 1, 2],
                true,
            ),
            (
                "a chosen Node's address",
                vec![a.clone(), node("b", "10.0.0.9", json!({"pool": "web"})), c],
                vec![1, 2],
                true,
            ),
            ("none is chosen", vec![a], vec![], true),
        ] {
            let after = targets(&nodes).selection(&facts);
            assert_eq!(after.rows, TargetSelection::Rows(rows), "{name}");
            assert_eq!(after.digest != before.digest, is_news, "{name}");
            assert_eq!(after.is_empty, name == "none is chosen", "{name}");
        }
    }
}
