//! What Pileus' log tells of lookups, requests to the cloud, and problems.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::pileus::{Pileus, between};

/// What Pileus has to log for this.
pub(super) const FILTER: &str = "info,pileus_controllers::node::worker=debug,pileus_gate::record=debug";

/// A line of the log.
pub(super) struct Line {
    pub(super) at: Timestamp,
    fields: Value,
}

/// The lines between two moments.
pub(super) fn lines(pileus: &Pileus, [begin, end]: [Timestamp; 2]) -> Vec<Line> {
    let read = |line: String| {
        let fields: Value = serde_json::from_str(&line).ok()?;
        let at = fields.get("timestamp")?.as_str()?.parse().ok()?;
        Some(Line { at, fields })
    };
    let all = pileus.log().into_iter().filter_map(read);
    all.filter(|line| (begin..=end).contains(&line.at)).collect()
}

impl Line {
    fn text(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The name of the Node that it tells to be initialized.
    pub(super) fn initialised(&self) -> Option<&str> {
        (self.text("message") == "node initialized").then(|| self.text("node"))
    }

    /// The span of this name that the line is in.
    fn span(&self, name: &str) -> Option<&Value> {
        let spans = self.fields.get("spans").and_then(Value::as_array)?;
        spans.iter().find(|span| span.get("name").and_then(Value::as_str) == Some(name))
    }

    /// Whether it is in the work of this controller.
    fn is_of(&self, controller: &str) -> bool {
        let of = self.span("reconcile").and_then(|span| span.get("controller"));
        of.and_then(Value::as_str) == Some(controller)
    }

    /// How many Nodes the lookup is about that the line is in, if it is one of Nodes that wait.
    fn nodes_looked_up(&self) -> Option<u64> {
        let span = self.span("reconcile")?;
        let is_initialisation = span.get("kind").and_then(Value::as_str) == Some("Initialize");
        span.get("nodes").and_then(Value::as_u64).filter(|_| is_initialisation)
    }

    /// Whether it is in the work on one Node that was looked up.
    fn is_of_one_node(&self) -> bool {
        self.span("reconcile").is_some_and(|span| span.get("node").is_some())
    }

    /// Whether it tells the end of a read that the cloud has answered.
    fn is_read(&self) -> bool {
        self.is_request()
            && self.text("effect") == "read"
            && !["cached", "shared", "not_cached"].contains(&self.text("result"))
    }

    fn is_request(&self) -> bool {
        self.text("message") == "request to the cloud finished"
    }
}

/// A lookup of the Nodes that wait.
pub(super) struct Lookup {
    pub(super) began: Timestamp,
    pub(super) nodes: u64,
    /// From its beginning to its last answer of the cloud or the cache.
    pub(super) took: Duration,
    pub(super) reads: u64,
    /// Whether it waited for a read that another call had begun.
    pub(super) shares: bool,
}

/// The lookups of Nodes that wait. They never overlap, so what is between two of them belongs to the first.
pub(super) fn lookups(lines: &[Line]) -> Vec<Lookup> {
    let mut lookups: Vec<Lookup> = Vec::new();
    for line in lines {
        let Some(nodes) = line.nodes_looked_up() else { continue };
        if line.text("message") == "looking up instances" {
            lookups.push(Lookup { began: line.at, nodes, took: Duration::ZERO, reads: 0, shares: false });
        } else if let (true, Some(lookup)) = (line.is_request(), lookups.last_mut()) {
            lookup.took = between(lookup.began, line.at);
            lookup.reads += u64::from(line.is_read());
            lookup.shares |= line.text("result") == "shared";
        }
    }
    lookups
}

/// Reads of the cloud, by what they were for.
#[derive(Clone, Copy, Default)]
pub(super) struct Reads {
    /// The lookups of Nodes.
    pub(super) lookups: usize,
    /// Before a Node is written whose name a deleted Node had: each is a call about one Node.
    pub(super) confirmations: usize,
    pub(super) services: usize,
    /// Without a controller.
    pub(super) dry_runs: usize,
}

/// Counts them.
pub(super) fn reads(lines: &[Line]) -> Reads {
    let mut reads = Reads::default();
    for line in lines.iter().filter(|line| line.is_read()) {
        let count = match () {
            () if line.span("reconcile").is_none() => &mut reads.dry_runs,
            () if line.is_of("service") => &mut reads.services,
            () if line.is_of_one_node() => &mut reads.confirmations,
            () => &mut reads.lookups,
        };
        *count += 1;
    }
    reads
}

/// Warnings and errors, and how often each came.
pub(super) fn problems(lines: &[Line]) -> BTreeMap<String, usize> {
    let mut problems = BTreeMap::new();
    for line in lines.iter().filter(|line| ["WARN", "ERROR"].contains(&line.text("level"))) {
        let text = format!("{}: {}", line.text("message"), line.text("error"));
        *problems.entry(text).or_default() += 1;
    }
    problems
}
