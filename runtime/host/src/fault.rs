//! What can become of a call besides an answer, recognised by type and never by text.

use std::time::Duration;

use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap};
use wasmtime_wasi::I32Exit;

use crate::wire::text;

/// Why a call to a provider brought no answer. The provider is to blame for all but [`Fault::NoSlot`] and
/// [`Fault::Host`]; the host and the other calls go on in every case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It computed for longer than it may.
    #[error("stopped after {} of processor time", human(.limit))]
    Cpu {
        /// What it may use.
        limit: Duration,
    },
    /// It took longer than it may, most of that waiting.
    #[error("stopped at its deadline of {}", human(.limit))]
    Deadline {
        /// What it may take.
        limit: Duration,
    },
    /// It asked for more memory than it may have.
    #[error("stopped when it asked for {} MiB of memory, {} MiB are allowed", .wanted.div_ceil(1 << 20), .limit >> 20)]
    Memory {
        /// What it asked for, in bytes.
        wanted: usize,
        /// What it may have, in bytes.
        limit: usize,
    },
    /// It asked for larger tables than it may have.
    #[error("stopped when it asked for tables of {wanted} elements, {limit} are allowed")]
    Table {
        /// What it asked for, in elements of all tables.
        wanted: usize,
        /// What it may have, in elements of all tables.
        limit: usize,
    },
    /// It called itself too deeply.
    #[error("stopped when its stack was exhausted")]
    StackOverflow,
    /// It trapped: a panic, an assertion, an access out of bounds.
    #[error("trapped: {}", trap_text(*.trap, .last_words.as_deref()))]
    Trapped {
        /// How.
        trap: Trap,
        /// The last line that it printed to its standard error: a panic's message, most often.
        last_words: Option<String>,
    },
    /// It ended its process, which a provider must not.
    #[error("ended itself with exit code {0}")]
    Exited(i32),
    /// It held too many handles or made the host allocate too much.
    #[error("stopped when it used up what the host lends to a call: {0}")]
    Exhausted(String),
    /// Its answer isn't what the contract says.
    #[error("broke the contract: {0}")]
    Contract(String),
    /// All slots were in use for as long as the call may take.
    #[error("no slot became free within {}", human(.0))]
    NoSlot(Duration),
    /// The host itself failed.
    #[error("failed in the host: {0}")]
    Host(String),
}

impl Fault {
    /// Whether the provider is to blame.
    pub fn is_providers(&self) -> bool {
        !matches!(self, Self::NoSlot(_) | Self::Host(_))
    }

    /// The fault as a metric label: a closed set.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Cpu { .. } => "cpu",
            Self::Deadline { .. } => "deadline",
            Self::Memory { .. } => "memory",
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

    /// What a failed wasm call means. `last_words` is what the guest printed last.
    pub(crate) fn of(error: &wasmtime::Error, last_words: Option<String>) -> Self {
        if let Some(fault) = error.downcast_ref::<Self>() {
            return fault.clone();
        }
        if let Some(trap) = error.downcast_ref::<Trap>() {
            return match trap {
                Trap::StackOverflow => Self::StackOverflow,
                trap => Self::Trapped { trap: *trap, last_words },
            };
        }
        if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
            return Self::Exited(*code);
        }
        if let Some(empty) = error.downcast_ref::<PoolConcurrencyLimitError>() {
            return Self::Host(empty.to_string()); // the slots should have seen to that
        }
        if let Some(full) = error.downcast_ref::<ResourceTableError>() {
            return Self::Exhausted(full.to_string());
        }
        // What is left are a host function's or the component model's own refusals, which wasmtime doesn't type.
        Self::Exhausted(text(&error.root_cause().to_string()))
    }
}

/// Whole milliseconds below ten seconds, whole seconds above.
fn human(duration: &Duration) -> String {
    if duration.as_secs() >= 10 {
        format!("{} s", duration.as_secs())
    } else {
        format!("{} ms", duration.as_millis())
    }
}

fn trap_text(trap: Trap, last_words: Option<&str>) -> String {
    match last_words {
        Some(words) => format!("{trap}; its last words: {words}"),
        None => trap.to_string(),
    }
}
