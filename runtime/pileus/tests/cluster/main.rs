//! The whole program against a real API server, under the role that it is shipped with, and a cloud that is a process
//! of its own; and what else mostly waits for processes, so that one program's threads wait for all of it. The names of
//! the tests are the claims.
//!
//! A test has a [`world::World`] for itself, starts Pileus in it as often as it likes, and waits by watches and log
//! lines; only HTTP endpoints, which can't be watched, are asked again and again.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that can't go on should stop"
)]

mod api_server;
mod cloud;
mod cloud_faults;
mod conformance;
mod credentials;
mod gate;
mod history;
mod interruptions;
mod joining;
mod leader;
mod node;
mod node_lifecycle;
mod plan;
mod planted;
mod providers;
mod proxy;
mod random;
mod refresh;
mod relay;
mod routes;
mod service;
mod service_faults;
mod service_interruptions;
mod services;
mod web;
mod world;

use std::time::Duration;

/// How long anything may take that happens within a second on a quiet machine. Longer than `/readyz` shows a watch that
/// was interrupted once (70 s), as happens on a busy one, and than the longest delay of work that keeps failing (2 min).
const SOON: Duration = Duration::from_mins(4);
