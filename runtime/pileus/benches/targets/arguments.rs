//! What to measure, and for how long.

use std::fmt;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use jiff::SignedDuration;

/// Measures what the design promises, on this machine.
#[derive(Parser)]
#[command(name = "targets")]
pub(crate) struct Arguments {
    /// The parts to measure; without any, all of them
    parts: Vec<Part>,

    /// Name the parts, and measure nothing
    #[arg(long)]
    pub(crate) list: bool,

    /// How long quiet clusters are watched; 30m sees a whole period of refreshes
    #[arg(long, value_name = "DURATION", env = "PILEUS_BENCH_QUIET", default_value = "1m", value_parser = duration)]
    pub(crate) quiet: Duration,

    /// How many swaps there are in a row; the cluster has 50 nodes and 2 Services for each
    #[arg(long, value_name = "COUNT", env = "PILEUS_BENCH_SWAPS", default_value_t = 100)]
    pub(crate) swaps: usize,

    /// How many nodes the part with Azure has
    #[arg(long, value_name = "COUNT", env = "PILEUS_BENCH_AZURE_NODES", default_value_t = 5_000)]
    pub(crate) azure_nodes: usize,

    /// Be another process that a part needs, and measure nothing
    #[arg(long, hide = true)]
    pub(crate) role: Option<Role>,

    /// What cargo passes to each bench
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    /// The parts that are wanted, in their own order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        Part::ALL.into_iter().filter(|part| self.parts.is_empty() || self.parts.contains(part))
    }
}

/// Another process that a part needs.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    /// A web server
    Bodies,
    /// A gate in which requests wait
    Waiting,
}

/// A part of the bench.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Calls through the sandbox, against native ones
    Calls,
    /// Requests through the gate, dialled and cached, against plain HTTP
    Gate,
    /// Honest calls beside hostile ones
    Neighbours,
    /// From the start of the process to the first Node, and what the program weighs
    Start,
    /// 1,000 and 5,000 Nodes that become ready, with and without quotas
    Joining,
    /// 5,000 Nodes with which nothing happens but heartbeats
    Quiet,
    /// 1,000 Nodes that are not ready and whose machines run
    NotReady,
    /// 500 of 5,000 machines that vanish at once
    Vanishing,
    /// The gap that a restart leaves
    Restart,
    /// Routes to 5,000 Nodes, with quotas
    Routes,
    /// 1,000 Services at once, with quotas and operations of 5 s; then Nodes come and go
    Services,
    /// The same where all Services share one load balancer
    Sharing,
    /// As quiet, with 5,000 routes and 1,000 Services besides
    Steady,
    /// Swaps of a provider below a client that looks up a machine each 20 ms
    Serving,
    /// Swaps of a provider while nodes join and Services are made
    Swaps,
    /// Azure with its quotas: 5,000 nodes join and are refreshed, not ready nodes, routes, the time of a call
    Azure,
}

impl Part {
    pub(crate) const ALL: [Self; 16] = [
        Self::Calls,
        Self::Gate,
        Self::Neighbours,
        Self::Start,
        Self::Joining,
        Self::Quiet,
        Self::NotReady,
        Self::Vanishing,
        Self::Restart,
        Self::Routes,
        Self::Services,
        Self::Sharing,
        Self::Steady,
        Self::Serving,
        Self::Swaps,
        Self::Azure,
    ];
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        let name = value.as_ref().map_or("", clap::builder::PossibleValue::get_name);
        let help = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string);
        write!(formatter, "{name:<11}{}", help.unwrap_or_default())
    }
}

/// Reads `30m` or `90s`.
fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|error| format!("{error}; write it as in 30m"))?;
    Duration::try_from(duration).map_err(|_| "it is not negative".to_owned())
}
