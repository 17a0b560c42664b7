//! Tables of Nodes: before and after they were initialized, and grouped by status.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use crate::nodes::{Joined, condition, provider_id, taint_keys};
use crate::page::{Cell, Tone, format_duration, row};

/// The condition of a Node whose deletion is held.
pub(crate) const MACHINE_ABSENT: &str = "pileus.dev/MachineAbsent";
/// How many Nodes of a group are named.
const NAMED: usize = 3;
/// The text for a value that a Node lacks.
const NONE: &str = "none";

/// A table with a column for each Node as it is now, after one for what all of them were before.
pub(crate) fn before_and_after(joined: &[Joined]) -> Vec<Vec<Cell>> {
    let names = joined.iter().map(|it| Tone::Strong.cell(it.after.name_any()));
    let mut rows = vec![[vec![Tone::Quiet.cell(""), Tone::Quiet.cell("before")], names.collect()].concat()];
    rows.extend(FACTS.iter().map(|(name, fact)| fact_row(name, *fact, joined)));
    let took = joined.iter().map(|it| Tone::Good.cell(format!("after {}", format_duration(it.took))));
    rows.push([row("initialized", Tone::Plain, ""), took.collect()].concat());
    rows.push(row("new labels", Tone::Plain, new_labels(joined).join(", ")));
    rows
}

/// A table of Nodes by status, with one row for all Nodes of the same status.
pub(crate) fn by_status(nodes: &[Node]) -> Vec<Vec<Cell>> {
    let mut groups = BTreeMap::<_, Vec<String>>::new();
    for node in nodes {
        let is_ready = condition(node, "Ready").is_some_and(|ready| ready.status == "True");
        let held = condition(node, MACHINE_ABSENT);
        let held =
            held.map(|held| format!("{}, {}", held.status, held.reason.as_deref().unwrap_or_default()));
        groups.entry((held, is_ready)).or_default().push(node.name_any());
    }
    let head = ["STATUS", MACHINE_ABSENT, "NODES"];
    let mut rows = vec![head.map(|text| Tone::Quiet.cell(text)).to_vec()];
    for ((held, is_ready), names) in groups {
        let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if names.len() > NAMED { ", …" } else { "" };
        rows.push(vec![
            Tone::Plain.cell(if is_ready { "Ready" } else { "NotReady" }),
            Tone::Plain.cell(held.unwrap_or_else(none)),
            Tone::Good.cell(format!("{}: {first}{more}", names.len())),
        ]);
    }
    rows
}

type Fact = fn(&Node) -> String;

const FACTS: [(&str, Fact); 9] = [
    ("taint", |node| taint(node, "uninitialized")),
    ("taint", |node| taint(node, "not-ready")),
    ("provider ID", |node| provider_id(node).map_or_else(none, str::to_owned)),
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

/// The keys of the labels that all of these Nodes have gained.
fn new_labels(joined: &[Joined]) -> Vec<String> {
    let gained = |it: &Joined| -> BTreeSet<String> {
        let had = it.before.labels();
        it.after.labels().keys().filter(|key| !had.contains_key(*key)).cloned().collect()
    };
    let all = joined.iter().map(gained).reduce(|all, one| all.intersection(&one).cloned().collect());
    all.into_iter().flatten().collect()
}

fn taint(node: &Node, name: &str) -> String {
    let found = taint_keys(node).filter_map(|key| key.rsplit('/').next()).find(|key| *key == name);
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
    fn a_node_is_shown_beside_its_state_before() {
        let zone = "topology.kubernetes.io/zone";
        let after =
            node("a").initialized().node_ip("10.0.0.1").provider_id("simulated://m-1").label(zone, "z");
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
            ["initialized", "", "after 42 ms"],
        ];
        for expected in expected {
            let is_there = rows.iter().any(|row| row.iter().map(|cell| &*cell.text).eq(expected));
            assert!(is_there, "{expected:?} is not in {rows:?}");
        }
    }

    #[test]
    fn nodes_of_the_same_status_share_a_row() {
        let held = |name| node(name).not_ready().condition(MACHINE_ABSENT, "True", "DeletionHeld").build();
        let ready = ["a", "b", "c", "d"].map(|name| node(name).build());
        let rows = by_status(&[&ready[..], &[held("x"), held("y")]].concat());
        let expected = [["Ready", NONE, "4: a, b, c, …"], ["NotReady", "True, DeletionHeld", "2: x, y"]];
        let texts = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.clone()).collect::<Vec<_>>();
        assert_eq!(rows.iter().skip(1).map(texts).collect::<Vec<_>>(), expected);
    }
}
