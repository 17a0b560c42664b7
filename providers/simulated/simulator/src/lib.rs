//! A small cloud with machines, routes and load balancers that lives in one process: what the tests, the benchmarks and the demo run against.
//!
//! What it does is decided by pure code ([`world`], [`faults`], [`quotas`], [`credentials`]); [`server`] puts it behind
//! HTTP. The binary is a thin wrapper, so that other crates' tests can use the types of the API, or run a cloud in their own process.
//!
//! The HTTP API is described in the README of this crate.

pub mod arguments;
pub mod call;
pub mod counters;
pub mod credentials;
pub mod faults;
pub mod page;
pub mod quotas;
pub mod refusal;
pub mod requests;
pub mod server;
pub mod world;

pub use refusal::Refusal;
