//! A small cloud with machines, routes and load balancers, in one process. The tests, the benchmarks and the demo run against
//! it.
//!
//! Pure code decides what it does ([`world`], [`faults`], [`quotas`], [`credentials`]); [`server`] serves it over HTTP. The
//! binary is a thin wrapper, so that tests of other crates can use the types of the API or run a cloud in their own process.
//!
//! The README of this crate describes the HTTP API.

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
pub mod traffic;
pub mod world;

pub use refusal::Refusal;
