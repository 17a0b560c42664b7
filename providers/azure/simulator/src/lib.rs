//! A simulator of Azure Resource Manager in one process: compute, networks, Entra tokens and the instance metadata service.
//! The Azure provider is tested against it.
//!
//! [`state`] is the cloud as a pure state machine: [`State::apply`] turns a request into a response, and the clock is an
//! argument. [`server`] serves it over HTTP or TLS, with the faults, counters and journal that all simulated clouds share.
//!
//! The README of this crate describes what is simulated and how strictly.

pub mod arguments;
mod catalog;
mod compute;
mod id;
mod json;
mod network;
pub mod page;
pub mod refusal;
pub mod request;
pub mod seed;
pub mod server;
pub mod state;
pub mod token;

pub use refusal::Refusal;
pub use request::{Request, Response};
pub use state::State;
