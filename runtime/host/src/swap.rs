//! Moves a provider from one release to another while it works: a new component, a new configuration, or both. Pure.
//!
//! ```text
//!   tag, range or digest ─▶ Preparing ─▶ DryRun ─▶ Waiting ─▶ Canary ─▶ active, observed ─▶ active, proven
//!    (spec.rs)                  │           │ └▶ Held ─┘          │              │
//!                               └───────────┴── rejected ◀────────┴─ worse ──────┘ back to the previous release
//! ```
//!
//! What runs is decided once, in the [`Status`] that all replicas share. Its writes name the revision that they replace,
//! so its history is a line, regardless of how many replicas believe that they lead. Each replica does two things:
//!
//! - It follows (`replica.rs`): it prepares each release that the status names, and serves the active one as soon as it
//!   has read that from the status. The leader follows in the same way: it writes a decision, and acts when it reads it.
//! - If it leads, it decides (`lead.rs`) the next status, from the status that it read and from what it has observed.
//!
//! Both are functions of facts, not of the order in which these arrived. So a restart loses nothing but time: the replica
//! reads the status and prepares its releases again, and a new leader continues at the phase that the status names.
//!
//! Calls never mix releases (`calls.rs`): each call has one release, lookups may go to the canary, and only the active
//! release is ever asked to change anything. Limits, cache and credentials belong to the provider, not to a release.

mod calls;
mod conditions;
mod failure;
mod health;
mod job;
mod lead;
mod leader;
mod replica;
mod rollout;
mod spec;
mod status;
mod step;

#[cfg(test)]
mod histories;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use calls::{Call, Roles};
pub use failure::{Difference, Failure};
pub use health::Rates;
pub use replica::CanaryShare;
pub use spec::{Canary, Follow, OnDifference, Policy, Spec, TimeWindow};
pub use status::{
    Candidate, Condition, ConditionKind, Differences, LastError, Observation, Phase, Release, Resolved,
    Status, Version,
};
pub use step::{Action, Ended, Event, Order, OrderKind, Stage, State, step};
