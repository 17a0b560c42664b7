//! Nodes before and after, in one table: what a cloud-controller-manager is there to write.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use crate::nodes::{Joined, taints};
use crate::page::{Cell, Tone, row, seconds};

/// What stands where a Node has nothing.
const NONE: &str = "none";

/// A table with a column for each Node as it is now, beside one for what they all were.
pub(crate) fn before_and_after(joined: &[Joined]) -> Vec<Vec<Cell>> {
    let names = joined.iter().map(|it| Tone::Strong.cell(it.after.name_any()));
    let mut rows = vec![[vec![Tone::Quiet.cell(""), Tone::Quiet.cell("before")], names.collect()].concat()];
    rows.extend(FACTS.iter().map(|(name, fact)| fact_row(name, *fact, joined)));
    let took = joined.iter().map(|it| Tone::Good.cell(format!("after {}", seconds(it.took))));
    rows.push([row("initialised", Tone::Plain, ""), took.collect()].concat());
    rows.push(row("new labels", Tone::Plain, new_labels(joined).join(", ")));
    rows
}

type Fact = fn(&Node) -> String;

const FACTS: [(&str, Fact); 9] = [
    ("taint", |node| taint(node, "uninitialized")),
    ("taint", |node| taint(node, "not-ready")),
    ("provider ID", |node| node.spec.as_ref().and_then(|it| it.provider_id.clone()).unwrap_or_else(none)),
    ("zone", |node| label(node, "topology.kubernetes.io/zone")),
    ("region", |node| label(node, "topology.kubernetes.io/region")),
    ("type", |node| label(node, "node.kubernetes.io/instance-type")),
    ("internal IP", |node| address(node, "InternalIP")),
    ("external IP", |node| address(node, "ExternalIP")),
    ("labels", |node| node.labels().len().to_string()),
];

fn fact_row(name: &str, fact: Fact, joined: &[Joined]) -> Vec<Cell> {
    let before: BTreeSet<_> = joined.iter().map(|it| fact(&it.before)).collect();
    let before = before.into_iter().collect::<Vec<_>>().join(", ");
    let after = joined.iter().map(|it| {
        let now = fact(&it.after);
        let tone = if now == before { Tone::Plain } else { Tone::Good };
        tone.cell(now)
    });
    [vec![Tone::Quiet.cell(name), Tone::Plain.cell(&before)], after.collect()].concat()
}

/// The keys of the labels that all of them have gained.
fn new_labels(joined: &[Joined]) -> Vec<String> {
    let gained = |it: &Joined| -> BTreeSet<String> {
        let had = it.before.labels();
        it.after.labels().keys().filter(|key| !had.contains_key(*key)).cloned().collect()
    };
    let all = joined.iter().map(gained).reduce(|all, one| all.intersection(&one).cloned().collect());
    all.into_iter().flatten().collect()
}

fn taint(node: &Node, name: &str) -> String {
    let found = taints(node).filter_map(|key| key.rsplit('/').next()).find(|key| *key == name);
    found.map_or_else(none, str::to_owned)
}

fn label(node: &Node, key: &str) -> String {
    node.labels().get(key).cloned().unwrap_or_else(none)
}

fn address(node: &Node, kind: &str) -> String {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let of_kind: Vec<_> = addresses.into_iter().flatten().filter(|it| it.type_ == kind).collect();
    if of_kind.is_empty() {
        return none();
    }
    of_kind.iter().map(|it| it.address.clone()).collect::<Vec<_>>().join(", ")
}

fn none() -> String {
    NONE.to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_dev::nodes::node;

    use super::*;

    #[test]
    fn a_node_stands_beside_what_it_was() {
        let zone = "topology.kubernetes.io/zone";
        let after =
            node("a").initialised().node_ip("10.0.0.1").provider_id("simulated://m-1").label(zone, "z");
        let took = Duration::from_millis(42);
        let joined = Joined { before: node("a").build(), after: after.build(), took };
        let rows = before_and_after(&[joined]);
        let expected = [
            ["taint", "uninitialized", NONE],
            ["provider ID", NONE, "simulated://m-1"],
            ["zone", NONE, "z"],
            ["type", NONE, NONE],
            ["internal IP", NONE, "10.0.0.1"],
            ["labels", "5", "6"],
            ["initialised", "", "after 42 ms"],
        ];
        for expected in expected {
            let is_there = rows.iter().any(|row| row.iter().map(|cell| &*cell.text).eq(expected));
            assert!(is_there, "{expected:?} is not in {rows:?}");
        }
    }
}
