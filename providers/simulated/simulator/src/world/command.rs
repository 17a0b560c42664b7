//! The words in which the cloud is spoken to: what can be asked of it, and what it answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::{Batch, Changes, Machine, MachineId, NewMachine, State};

/// Where machines are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub(super) region: String,
    pub(super) zones: Vec<String>,
}

impl Place {
    /// A region with its zones. Without any they are the region's name with `a`, `b` and `c` behind it.
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

/// Something that is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make a machine.
    Create {
        /// Which.
        machine: NewMachine,
        /// How long it is `creating` before it runs.
        takes: Duration,
    },
    /// Make many machines, or none if that is refused.
    CreateBatch {
        /// Which.
        batch: Batch,
        /// How long they are `creating` before they run.
        takes: Duration,
    },
    /// Change a machine.
    Change {
        /// Which.
        id: MachineId,
        /// What.
        changes: Changes,
    },
    /// Stop a machine. Nothing happens to one that is stopped.
    Stop(MachineId),
    /// Start a machine. Nothing happens to one that runs.
    Start(MachineId),
    /// Remove a machine. Its name is free at once.
    Delete(MachineId),
    /// Remove many machines: all that the batch asks for, or as many as there are.
    DeleteBatch(Batch),
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The machine is now like this.
    Machine(Arc<Machine>),
    /// Machines of these names were made, or are gone.
    Batch(Vec<String>),
    /// The machine is gone.
    Deleted,
}

/// An overview of the machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// How many machines there are.
    pub total: usize,
    /// How many of them are in which state.
    pub by_state: BTreeMap<State, usize>,
    /// How many of them are in which zone.
    pub by_zone: BTreeMap<String, usize>,
    /// The first machines, by id.
    pub first: Vec<Arc<Machine>>,
}
