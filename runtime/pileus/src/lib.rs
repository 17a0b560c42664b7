//! The cloud-controller-manager as a program: command line, composition, admin server.
//!
//! One node, from the watch to its last write:
//!
//! ```text
//!   kube-apiserver ──watch──▶ controllers/nodes.rs ──▶ node/roster.rs (whose turn is it?), node/turns.rs
//!                                  │ Instances::lookup, one call for all that are due
//!                                  ▼
//!                             host/guest.rs ─▶ call.rs ─▶ the component, in a sandbox of its own
//!                                  ▲                          │ wasi:http
//!                                  │                          ▼
//!                             host/convert.rs         gate/gate.rs: rule, grant, address, dial ─▶ cloud
//!                                  │ Answer::Found(instance)
//!                                  ▼
//!   kube-apiserver ◀──patch── node/completion.rs ◀── node/plan.rs (pure)
//!        ▲
//!        └ leader/client.rs: a write goes out only while this replica leads
//! ```
//!
//! This crate is the only one that knows all others; `start` is the one place where they meet.

mod admin;
pub mod cli;
mod cluster;
mod comparison;
mod core_dumps;
mod credentials;
mod document;
mod error;
mod inspect;
mod leader;
mod provider;
mod provider_test;
mod rehearsal;
mod release;
mod secrets;
mod start;
mod telemetry;
mod terminal;

use std::process::ExitCode;

pub use error::Error;

use cli::{Command, Pileus, ProviderCommand};

/// Carries out a command line.
///
/// # Errors
/// What the user should read, with the exit code that belongs to it.
pub fn run(pileus: Pileus) -> Result<ExitCode, Error> {
    match pileus.command {
        Command::Run(arguments) => {
            // Before anything secret is read.
            core_dumps::forbid().map_err(Error::Machine)?;
            block_on(start::run(*arguments))?;
        }
        Command::Plan(arguments) => {
            core_dumps::forbid().map_err(Error::Machine)?;
            return block_on(rehearsal::run(arguments));
        }
        Command::Inspect(arguments) => block_on(inspect::run(arguments))?,
        Command::ReleaseDeletion(arguments) => block_on(release::run(arguments))?,
        Command::Provider(provider) => match provider.command {
            ProviderCommand::Test(arguments) => {
                // It may be given a document with credentials.
                core_dumps::forbid().map_err(Error::Machine)?;
                block_on(provider_test::run(arguments))?;
            }
        },
        Command::Compile => return Ok(pileus_host::compiler_main()),
    }
    Ok(ExitCode::SUCCESS)
}

fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Machine)?;
    let outcome = runtime.block_on(work);
    // A name that is being resolved or a guest that computes must not keep a process that has lost its lease.
    runtime.shutdown_background();
    outcome
}
