//! The local stack of tests, demo and bench: a real API server, Nodes as kubelets register them, and the project's own
//! programs as child processes.
//!
//! Nothing here is part of a release. Processes that a test starts through this crate end with the test, even if it is
//! killed, and listen on loopback only.

pub mod artifact;
pub mod azure;
pub mod kubernetes;
pub mod nodes;
pub mod process;
pub mod registry;

mod error;
mod heartbeats;

pub use error::Error;
pub use heartbeats::Heartbeats;
pub use kubernetes::Kubernetes;
pub use process::Process;
