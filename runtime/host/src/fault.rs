//! How a call to a provider can fail, told apart by wasmtime's error types and never by text.

use std::time::Duration;

use pileus_gate::MemoryExcess;
use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap};
use wasmtime_wasi::I32Exit;

use crate::sanitize::sanitize_message;

/// Why a call to a provider brought no answer. The provider causes all faults but [`Fault::NoSlot`] and [`Fault::Host`].
/// The host and the other calls continue after every fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The guest used too much CPU time.
    #[error("stopped after {} of CPU time", human(.limit))]
    Cpu {
        /// The CPU time that a call may use.
        limit: Duration,
    },
    /// The call took too long, mostly by waiting.
    #[error("stopped at its deadline of {}{}", human(.limit), cause(.unanswered.as_deref()))]
    Deadline {
        /// How long the call may take.
        limit: Duration,
        /// Which request had no answer, and for how long; `None` if each had one.
        unanswered: Option<String>,
    },
    /// The guest requested too much memory.
    #[error("stopped when it requested {} MiB of memory; the limit is {} MiB (spec.resources.memory)", .wanted.div_ceil(1 << 20), .limit >> 20)]
    Memory {
        /// The bytes that it requested.
        wanted: usize,
        /// The bytes that it may have.
        limit: usize,
    },
    /// The host would have had to hold too much for the call, or for all calls of the provider together.
    #[error("stopped when the host would have held {} MiB for it; the limit is {} MiB", .wanted.div_ceil(1 << 20), .limit >> 20)]
    HostMemory {
        /// The bytes that the host would have held.
        wanted: usize,
        /// The bytes that it may hold.
        limit: usize,
    },
    /// The host would have had to keep too much of the answer for as long as the provider is loaded.
    #[error("answered with {} KiB that the host would have to keep; the limit is {} KiB", .wanted.div_ceil(1 << 10), .limit >> 10)]
    Retained {
        /// The bytes that the host would have kept.
        wanted: usize,
        /// The bytes that it may keep.
        limit: usize,
    },
    /// The guest requested too large tables.
    #[error("stopped when it requested tables of {wanted} elements; the limit is {limit}")]
    Table {
        /// The elements that it requested, in all tables.
        wanted: usize,
        /// The elements that it may have, in all tables.
        limit: usize,
    },
    /// The guest's calls were nested too deeply.
    #[error("stopped when its stack was exhausted")]
    StackOverflow,
    /// The guest trapped: a panic, an assertion, an access out of bounds.
    #[error("trapped: {}", trap_text(*.trap, .stderr_tail.as_deref()))]
    Trapped {
        /// Wasmtime's reason.
        trap: Trap,
        /// The end of its standard error: mostly the message of a panic.
        stderr_tail: Option<String>,
    },
    /// The guest called `exit`, which a provider must not do.
    #[error("ended itself with exit code {0}")]
    Exited(i32),
    /// The guest held too many handles or made the host allocate too much.
    #[error("stopped when it exhausted a resource of the host: {0}")]
    Exhausted(String),
    /// The provider's answer violates the contract.
    #[error("broke the contract: {0}")]
    Contract(String),
    /// All slots were in use for as long as the call may wait.
    #[error("no slot became free within {}", human(.0))]
    NoSlot(Duration),
    /// The host itself failed.
    #[error("failed in the host: {0}")]
    Host(String),
}

impl Fault {
    /// Whether the provider caused it. If so, a batch is repeated in parts to find the failing item.
    pub fn is_caused_by_provider(&self) -> bool {
        !matches!(self, Self::NoSlot(_) | Self::Host(_))
    }

    /// The fault as a metric label: a closed set.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Cpu { .. } => "cpu",
            Self::Deadline { .. } => "deadline",
            Self::Memory { .. } => "memory",
            Self::HostMemory { .. } => "host_memory",
            Self::Retained { .. } => "retained",
            Self::Table { .. } => "table",
            Self::StackOverflow => "stack",
            Self::Trapped { .. } => "trap",
            Self::Exited(_) => "exit",
            Self::Exhausted(_) => "exhausted",
            Self::Contract(_) => "contract",
            Self::NoSlot(_) => "no_slot",
            Self::Host(_) => "host",
        }
    }

    /// The fault behind wasmtime's error. `stderr_tail` is the end of the guest's standard error.
    pub(crate) fn from_wasmtime(error: &wasmtime::Error, stderr_tail: Option<String>) -> Self {
        if let Some(fault) = error.downcast_ref::<Self>() {
            return fault.clone();
        }
        if let Some(trap) = error.downcast_ref::<Trap>() {
            return match trap {
                Trap::StackOverflow => Self::StackOverflow,
                trap => Self::Trapped { trap: *trap, stderr_tail },
            };
        }
        if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
            return Self::Exited(*code);
        }
        if let Some(empty) = error.downcast_ref::<PoolConcurrencyLimitError>() {
            return Self::Host(empty.to_string()); // `Slots` should prevent this
        }
        if let Some(full) = error.downcast_ref::<ResourceTableError>() {
            return Self::Exhausted(full.to_string());
        }
        // Other errors are refusals of host functions or of the component model, which have no type in wasmtime.
        Self::Exhausted(sanitize_message(&error.root_cause().to_string()))
    }
}

impl From<MemoryExcess> for Fault {
    fn from(MemoryExcess { wanted, limit }: MemoryExcess) -> Self {
        Self::HostMemory { wanted, limit }
    }
}

/// Shows whole milliseconds below ten seconds and whole seconds above.
fn human(duration: &Duration) -> String {
    if duration.as_secs() >= 10 {
        format!("{} s", duration.as_secs())
    } else {
        format!("{} ms", duration.as_millis())
    }
}

fn cause(unanswered: Option<&str>) -> String {
    unanswered.map(|unanswered| format!("; {unanswered}")).unwrap_or_default()
}

fn trap_text(trap: Trap, stderr_tail: Option<&str>) -> String {
    match stderr_tail {
        Some(tail) => format!("{trap}; its standard error ends with: {tail}"),
        None => trap.to_string(),
    }
}
