//! End-to-end tests: the program with a real API server, under the shipped role, and with a cloud that is a separate
//! process. Other tests that mostly wait for processes are here too, so that all of them wait in parallel. The name of
//! a test is its claim.
//!
//! Each test has a [`world::World`] of its own and starts Pileus in it. Tests wait by watches and log lines; they poll
//! only HTTP endpoints, which can't be watched.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that can't go on should stop"
)]

mod api_server;
mod azure;
mod cloud;
mod cloud_faults;
mod conformance;
mod crd;
mod credentials;
mod delivery;
mod drafts;
mod gate;
mod hetzner;
mod history;
mod http_proxy;
mod interruptions;
mod joining;
mod leader;
mod node;
mod node_lifecycle;
mod node_manager;
mod outputs;
mod plan;
mod planted;
mod providers;
mod proxy;
mod random;
mod refresh;
mod relay;
mod restore;
mod routes;
mod service;
mod service_faults;
mod service_interruptions;
mod services;
mod swaps;
mod web;
mod world;

use std::time::Duration;

/// How long anything may take that happens within a second on a quiet machine. Longer than `/readyz` shows a watch that
/// was interrupted once (70 s), as happens on a busy one, and than the longest delay of work that keeps failing (2 min).
const SOON: Duration = Duration::from_mins(4);
