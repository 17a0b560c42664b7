//! `make demo`: a tour of Pileus in a terminal, with a real API server and a simulated cloud. It shows what Pileus does for
//! Nodes, routes and Services, and what a misbehaving provider can't do. It removes everything that it has started.

mod cloud;
mod document;
mod events;
mod guide;
mod http_client;
mod inspection;
mod node_table;
mod nodes;
mod page;
mod pileus;
mod run;
mod scenes;
mod stage;
mod steps;

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    run::run(run::Arguments::parse()).await
}
