//! A simulator of the Hetzner Cloud API (version 1) in one process: servers, networks with routes, load balancers and actions.
//! The Hetzner provider is tested against it.
//!
//! [`world`] is the project as a pure state machine. [`server`] serves it over HTTP, with the faults, quotas, credentials,
//! counters and admin API that all simulated clouds share.
//!
//! The README of this crate describes what is simulated and how strictly.

pub mod arguments;
pub mod page;
pub mod refusal;
pub mod server;
pub mod world;

pub use refusal::{Code, Refusal};
