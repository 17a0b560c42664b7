//! The program: command line, composition of the controllers, admin server.
//!
//! The path of one Node, from the watch to the last write:
//!
//! ```text
//!   kube-apiserver ──watch──▶ controllers/nodes.rs ──▶ node/queue.rs (which Node is due?), node/worker.rs
//!                                  │ Instances::lookup, one call for all Nodes that are due
//!                                  ▼
//!                             host/guest/instances.rs ─▶ call.rs ─▶ the component, in its own sandbox
//!                                  ▲                          │ wasi:http
//!                                  │                          ▼
//!                             host/convert.rs         gate/gate/pipeline.rs: grant, rule, cache, limit, credential, dial ─▶ cloud
//!                                  │ Answer::Found(instance)
//!                                  ▼
//!   kube-apiserver ◀──patch── node/completion.rs ◀── node/plan.rs (pure)
//!        ▲
//!        └ cluster/client.rs: sends a write only while this replica leads
//! ```
//!
//! This is the only crate that depends on all others; `start` composes them.

mod access_review;
mod admin;
pub mod cli;
mod cluster;
mod completion;
mod core_dumps;
mod credentials;
mod document;
#[cfg(test)]
mod documents;
mod error;
mod folders;
mod inspect;
mod leader;
mod leading;
mod metrics;
mod node_manager;
mod order;
mod order_annotation;
mod plan;
mod program_code;
mod provider;
mod provider_document;
mod provider_new;
mod provider_test;
mod providers;
mod pull;
mod push;
mod random;
mod recorded;
mod release;
mod releases;
mod resource_status;
mod schema;
mod secrets;
mod signals;
mod sources;
mod start;
mod status;
mod swap_metrics;
mod telemetry;
mod terminal;
mod verify;
mod warm;
mod working;

use std::ffi::OsString;
use std::process::ExitCode;

pub use error::Error;

use pileus_host::swap::OrderKind;

use cli::{Command, LogFormat, Pileus, ProviderCommand};

/// Runs a command line, and writes its error in the format of the log.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let format = telemetry::format(arguments);
    telemetry::log_panics(format);
    match Pileus::from_arguments(arguments).and_then(run) {
        Ok(code) => code,
        // Help and the version, which clap writes to standard output.
        Err(Error::CommandLine(error)) if !error.use_stderr() => error.exit(),
        Err(Error::CommandLine(error)) if format == LogFormat::Text => error.exit(),
        Err(error) => {
            telemetry::write_error(format, &error.to_string(), error.code());
            ExitCode::from(error.code())
        }
    }
}

/// Writes an error in the format of the log, and returns the exit code 1.
pub fn fail(arguments: &[OsString], error: &str) -> ExitCode {
    telemetry::write_error(telemetry::format(arguments), error, 1);
    ExitCode::FAILURE
}

/// Runs a command.
fn run(pileus: Pileus) -> Result<ExitCode, Error> {
    if let Command::Compile = pileus.command {
        return Ok(pileus_host::compiler_main());
    }
    // Before any secret is read: of a document, a kubeconfig or a registry.
    core_dumps::forbid().map_err(Error::Machine)?;
    match pileus.command {
        Command::Run(arguments) => block_on(start::run(*arguments))?,
        Command::NodeManager(arguments) => block_on_one_thread(node_manager::run(*arguments))?,
        Command::Plan(arguments) => return block_on(plan::run(arguments)),
        Command::Inspect(arguments) => block_on(inspect::run(*arguments))?,
        Command::Push(arguments) => block_on(push::run(arguments))?,
        Command::Pull(arguments) => block_on(pull::run(arguments))?,
        Command::Verify(arguments) => block_on(verify::run(arguments))?,
        Command::Warm(arguments) => block_on(warm::run(arguments))?,
        Command::Status(arguments) => block_on(status::run(arguments))?,
        Command::Swap(cli::Swap { order }) => block_on(order::run(order, OrderKind::SwapNow))?,
        Command::Rollback(cli::Rollback { order }) => block_on(order::run(order, OrderKind::Rollback))?,
        Command::Pause(order) => block_on(order::run(order, OrderKind::Pause))?,
        Command::Resume(order) => block_on(order::run(order, OrderKind::Resume))?,
        Command::ReleaseDeletion(arguments) => block_on(release::run(arguments))?,
        Command::Schema(arguments) => schema::run(&arguments),
        Command::Provider(provider) => match provider.command {
            ProviderCommand::New(arguments) => provider_new::run(arguments)?,
            ProviderCommand::Test(arguments) => block_on(provider_test::run(arguments))?,
            ProviderCommand::Document(arguments) => block_on(provider_document::run(*arguments))?,
        },
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Compile => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    finish(&mut tokio::runtime::Builder::new_multi_thread(), work)
}

/// As [`block_on`], for a process that does one thing at a time and has to be small.
fn block_on_one_thread<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    finish(&mut tokio::runtime::Builder::new_current_thread(), work)
}

fn finish<T>(
    builder: &mut tokio::runtime::Builder,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let runtime = builder.enable_all().build().map_err(Error::Machine)?;
    let outcome = runtime.block_on(work);
    // A process that has lost its lease must not wait for a name lookup or a running guest.
    runtime.shutdown_background();
    outcome
}
