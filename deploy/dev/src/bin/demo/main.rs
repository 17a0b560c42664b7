//! `make demo`: the first thing that a stranger runs. Starts a cluster, a cloud and Pileus, shows what Pileus does for
//! Nodes, routes and Services, and what a provider can't do to it, and leaves nothing behind.

mod cloud;
mod document;
mod events;
mod guide;
mod nodes;
mod page;
mod pileus;
mod scenes;
mod stage;
mod steps;
mod story;
mod table;
mod web;

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main]
async fn main() -> ExitCode {
    story::perform(story::Arguments::parse()).await
}
