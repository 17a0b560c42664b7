//! Measures what the design promises, on this machine: provider calls against the provider's own code called natively,
//! Nodes against the API server's own time for the same writes. Beside each figure stand its target and what the upstream
//! framework took for the same work: k8s.io/cloud-provider v0.37.2 with an ordinary provider, against the same versions of
//! API server and etcd, Nodes of the same weight and a cloud of the same latency and quotas, on two cores.
//!
//! `cargo bench --workspace --bench targets -- joining quiet` measures these parts alone; `--list` names all.
//!
//! It prints and never fails on a number: a machine that is busy or slow is no defect. What a column is compared with
//! is measured in the same run where that can be, so that a ratio means something on any machine.

mod arguments;
mod bodies;
mod calls;
mod cloud;
mod cluster;
mod gate;
mod ingress;
mod joining;
mod machine;
mod neighbours;
mod not_ready;
mod pileus;
mod quiet;
mod relay;
mod report;
mod restart;
mod routes;
mod server;
mod services;
mod start;
mod steady;
mod vanishing;

use std::error::Error;
use std::process::ExitCode;

use arguments::{Arguments, Part, Role};
use clap::Parser as _;
use cloud::Style;

/// Whatever ends the bench: a developer reads it, nobody branches on it.
type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for part in Part::ALL {
            println!("{part}");
        }
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    // As in the program itself.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match arguments.role {
        Some(Role::Bodies) => return runtime.block_on(bodies::serve()),
        Some(Role::Waiting) => return runtime.block_on(gate::weigh()),
        None => {}
    }
    machine::print()?;
    runtime.block_on(measure(arguments))?;
    println!("\nload at the end: {}", machine::load()?);
    Ok(())
}

async fn measure(arguments: &Arguments) -> Result<(), Failure> {
    for part in arguments.parts() {
        match part {
            Part::Calls => calls::measure().await?,
            Part::Gate => gate::measure().await?,
            Part::Neighbours => neighbours::measure().await?,
            Part::Start => start::measure().await?,
            Part::Joining => joining::measure().await?,
            Part::Quiet => quiet::measure(arguments.quiet).await?,
            Part::NotReady => not_ready::measure().await?,
            Part::Vanishing => vanishing::measure().await?,
            Part::Restart => restart::measure().await?,
            Part::Routes => routes::measure().await?,
            Part::Services => services::measure(Style::PerService).await?,
            Part::Sharing => services::measure(Style::Shared).await?,
            Part::Steady => steady::measure(arguments.quiet).await?,
        }
    }
    Ok(())
}
