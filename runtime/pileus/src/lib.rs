//! The cloud-controller-manager as a program: command line, composition, admin server.
//!
//! One node, from the watch to its last write:
//!
//! ```text
//!   kube-apiserver ──watch──▶ controllers/node.rs ──▶ node/waiting.rs (whose turn is it?)
//!                                  │ Instances::lookup, one call for all that are due
//!                                  ▼
//!                             host/guest.rs ─▶ call.rs ─▶ the component, in a sandbox of its own
//!                                  ▲                          │ wasi:http
//!                                  │                          ▼
//!                             host/wire.rs            gate/gate.rs: rule, grant, address, dial ─▶ cloud
//!                                  │ Answer::Found(instance)
//!                                  ▼
//!   kube-apiserver ◀──patch── node/apply.rs ◀── node/plan.rs (pure)
//! ```
//!
//! This crate is the only one that knows all others; `start` is the one place where they meet.

mod admin;
pub mod cli;
pub mod document;
mod error;
mod inspect;
mod leader;
mod release;
mod start;
mod telemetry;

pub use error::Error;

use cli::{Command, Pileus};

/// Carries out a command line.
///
/// # Errors
/// What the user should read, with the exit code that belongs to it.
pub fn run(pileus: Pileus) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Machine)?;
    let outcome = match pileus.command {
        Command::Run(arguments) => runtime.block_on(start::run(arguments)),
        Command::Inspect(arguments) => runtime.block_on(inspect::run(arguments)),
        Command::ReleaseDeletion(arguments) => runtime.block_on(release::run(arguments)),
    };
    // A name that is being resolved or a guest that computes must not keep a process that has lost its lease.
    runtime.shutdown_background();
    outcome
}
