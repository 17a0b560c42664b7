//! Measures what the design promises, on this machine, against the same work done without Pileus: provider calls
//! against the provider's own code called natively, Nodes against the API server's own time for the same writes.
//!
//! `cargo bench --workspace --bench targets -- nodes` measures one part alone: calls, start or nodes.
//!
//! It prints and never fails on a number: a machine that is busy or slow is no defect. What a column is compared with
//! is measured in the same run, so that a ratio means something on any machine.

mod calls;
mod cloud;
mod cluster;
mod machine;
mod nodes;
mod report;
mod start;

use std::error::Error;
use std::process::ExitCode;

use cluster::Cluster;

/// Whatever ends the bench: a developer reads it, nobody branches on it.
type Failure = Box<dyn Error + Send + Sync>;

/// How many Nodes join at once.
const NODES: [usize; 2] = [1_000, 5_000];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    // As in the program itself.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    machine::print()?;
    runtime.block_on(measure(std::env::args().skip(1).find(|argument| !argument.starts_with('-'))))?;
    println!("\nload at the end: {}", machine::load()?);
    Ok(())
}

async fn measure(only: Option<String>) -> Result<(), Failure> {
    let is_wanted = |part| only.as_ref().is_none_or(|only| only == part);
    if is_wanted("calls") {
        calls::measure().await?;
    }
    if only.as_deref() == Some("calls") {
        return Ok(());
    }
    let cluster = Cluster::start().await?;
    if is_wanted("start") {
        start::measure(&cluster).await?;
    }
    if is_wanted("nodes") {
        for count in NODES {
            nodes::measure(&cluster, count).await?;
        }
    }
    Ok(())
}
