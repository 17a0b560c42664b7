//! The controllers: what a cloud-controller-manager does, on top of `pileus-cloud`'s words. Wasm stays out of sight.
//!
//! Each controller is a loop of three steps that live in files of those names:
//!
//! ```text
//!   observe                     plan                        apply
//!   watch + facts/  ──facts──▶  NAME/plan.rs  ──actions──▶  NAME/apply.rs
//!                               pure: no clock,             one call an action;
//!                               no network                  its answer is observed again
//! ```
//!
//! A plan is a value: it can be compared, counted and tested by applying it to a model and planning again.

mod cluster;
pub mod events;
pub mod facts;
pub mod health;
mod metrics;
#[cfg(test)]
mod model;
pub mod node;
pub mod node_lifecycle;
pub mod nodes;
mod objects;
pub mod route;
mod schedule;
pub mod service;
pub mod services;
pub mod well_known;

#[cfg(test)]
mod api_server;
#[cfg(test)]
mod scenarios;

mod error;

pub use error::Error;
pub use health::{Condition, Health};
pub use metrics::Metrics;
