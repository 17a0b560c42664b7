//! Measures the performance targets on this machine. Provider calls are compared with native calls of the same code,
//! and Nodes with the API server's own time for the same writes. Each figure has its target and that of the upstream
//! framework for the same work: k8s.io/cloud-provider v0.37.2 with an ordinary provider, the same versions of API
//! server and etcd, Nodes of the same size and a cloud with the same latency and quotas, on two cores.
//!
//! `cargo bench --workspace --bench targets -- joining quiet` measures these parts alone; `--list` names all.
//!
//! The bench prints figures and never fails because of one, as a busy or slow machine is not a defect. Where possible,
//! figures that are compared are measured in the same run, so that their ratio is valid on any machine.

mod arguments;
mod azure;
mod bodies;
mod calls;
mod cloud;
mod cluster;
mod gate;
mod image;
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
mod swaps;
mod vanishing;

use std::error::Error;
use std::process::ExitCode;

use arguments::{Arguments, Part, Role};
use clap::Parser as _;
use cloud::Style;

/// Any error that ends the bench; only developers read it.
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
            Part::Serving => swaps::serving(arguments.swaps).await?,
            Part::Swaps => swaps::measure(arguments.swaps).await?,
            Part::Azure => azure::measure(arguments.azure_nodes, arguments.quiet).await?,
        }
    }
    Ok(())
}
