//! What users have been told about Nodes, so that each cause is told once and not at each lookup.
//!
//! Pure.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher as _};

use crate::facts::node::NodeFacts;
use crate::nodes::Change;

/// The most causes of one Node that are remembered, and so told. A cloud that finds new ones without end is told no more about it.
const MAX_CAUSES: usize = 64;

/// The causes by Node.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The UID of the Node, and the digests of what was told about it, by its name.
    told: HashMap<String, (String, BTreeSet<u64>)>,
    /// Whether the operator knows that node managers run.
    has_node_managers: bool,
}

impl Notices {
    /// Whether this cause is to be told about a Node. It isn't a second time.
    pub(super) fn is_new(&mut self, node: &NodeFacts, cause: &impl Hash) -> bool {
        let told = self.told.entry(node.name.clone()).or_default();
        if told.0 != node.uid {
            *told = (node.uid.clone(), BTreeSet::new());
        }
        let mut hasher = DefaultHasher::new();
        cause.hash(&mut hasher);
        told.1.len() < MAX_CAUSES && told.1.insert(hasher.finish())
    }

    /// Whether these changes show the first Node with a node manager.
    pub(super) fn shows_node_managers(&mut self, changes: &[Change]) -> bool {
        let is_managed = |change: &Change| matches!(change, Change::Present(node) if node.has_node_manager);
        let is_first = !self.has_node_managers && changes.iter().any(is_managed);
        self.has_node_managers |= is_first;
        is_first
    }

    /// Forgets Nodes that are gone.
    pub(super) fn observe(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::Gone(name) = change {
                self.told.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_for_each_node() {
        let mut notices = Notices::default();
        let (a, b) = (NodeFacts::registered("a"), NodeFacts::registered("b"));
        let renewed = NodeFacts { uid: "second".to_owned(), ..a.clone() };
        for (node, cause, is_new) in [
            (&a, "zone", true),
            (&a, "zone", false),
            (&a, "region", true),
            (&a, "zone", false),
            (&b, "zone", true),
            (&renewed, "zone", true),
            (&renewed, "zone", false),
        ] {
            assert_eq!(notices.is_new(node, &cause), is_new, "{} {cause}", node.uid);
        }
        notices.observe(&[Change::Gone("a".to_owned())]);
        assert!(notices.is_new(&renewed, &"zone") && !notices.told.is_empty());
        let told = (0..1000).filter(|cause| notices.is_new(&b, cause)).count();
        assert_eq!(told, MAX_CAUSES - 1);
    }
}
