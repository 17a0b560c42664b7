//! The four controllers of a cloud-controller-manager: nodes, node lifecycle, Services and routes. They call the cloud
//! through the traits of `pileus-cloud` and don't know that a provider is a WebAssembly component.
//!
//! Each controller repeats three steps, which live in files of those names:
//!
//! ```text
//!   observe                     plan                        apply
//!   watch + facts/  ──facts──▶  NAME/plan.rs  ──actions──▶  NAME/apply.rs
//!                               pure: no clock,             one call an action;
//!                               no network                  its result is observed again
//! ```
//!
//! A plan is a value: it can be compared, counted and tested by applying it to a model and planning again.

mod answers;
pub mod claims;
mod cluster;
mod cluster_addresses;
mod deps;
pub mod events;
pub mod facts;
pub mod health;
mod informer;
mod label_syntax;
mod metrics;
#[cfg(test)]
mod model;
pub mod node;
pub mod node_lifecycle;
pub mod nodes;
mod provider_metrics;
pub mod route;
mod schedule;
pub mod service;
pub mod services;
mod task;
mod timer;
pub mod well_known;

#[cfg(test)]
mod api_server;
#[cfg(test)]
mod scenarios;

mod error;

pub use cluster_addresses::ClusterAddresses;
pub use deps::ControllerDeps;
pub use error::{Error, describe};
pub use health::{Health, HealthCheck};
pub use informer::StoreHistory;
pub use metrics::Metrics;
