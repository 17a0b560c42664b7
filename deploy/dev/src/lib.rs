//! The local stack that tests, demo and bench run against: a real API server, Nodes as kubelets register them, and the
//! project's own programs as child processes.
//!
//! Nothing here is part of a release. What a test starts through this crate dies with it, however it ends, and listens
//! on loopback only.

pub mod artifact;
pub mod kubernetes;
pub mod nodes;
pub mod process;

mod error;
mod heartbeats;

pub use error::Error;
pub use heartbeats::Heartbeats;
pub use kubernetes::Kubernetes;
pub use process::Process;
