//! The commands for machines, and their replies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::{Batch, Changes, Machine, MachineId, NewMachine, State};

/// A region and its zones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub(super) region: String,
    pub(super) zones: Vec<String>,
}

impl Place {
    /// A region with its zones. The default zones are the region's name followed by `a`, `b` and `c`.
    pub fn new(region: String, zones: Vec<String>) -> Self {
        let zones = if zones.is_empty() {
            ["a", "b", "c"].map(|zone| format!("{region}{zone}")).to_vec()
        } else {
            zones
        };
        Self { region, zones }
    }

    /// The region.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The zones, at least one.
    pub fn zones(&self) -> &[String] {
        &self.zones
    }
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Create a machine.
    Create {
        /// The object of the command.
        machine: NewMachine,
        /// How long it is `creating` before it runs.
        takes: Duration,
    },
    /// Create many machines, or none if it is refused.
    CreateBatch {
        /// The object of the command.
        batch: Batch,
        /// How long they are `creating` before they run.
        takes: Duration,
    },
    /// Change a machine.
    Change {
        /// The object of the command.
        id: MachineId,
        /// The changes.
        changes: Changes,
    },
    /// Stop a machine. Does nothing where it is stopped.
    Stop(MachineId),
    /// Start a machine. Does nothing where it runs.
    Start(MachineId),
    /// Delete a machine. Its name is free immediately.
    Delete(MachineId),
    /// Delete many machines: as many as the batch asks for, or as exist.
    DeleteBatch(Batch),
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The machine's new state.
    Machine(Arc<Machine>),
    /// The names of the machines that were created or deleted.
    Batch(Vec<String>),
    /// The machine was deleted.
    Deleted,
}

/// An overview of the machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// How many machines there are.
    pub total: usize,
    /// How many machines are in each state.
    pub by_state: BTreeMap<State, usize>,
    /// How many machines are in each zone.
    pub by_zone: BTreeMap<String, usize>,
    /// The first machines, by ID.
    pub first: Vec<Arc<Machine>>,
}
