//! What the cloud answered before, and what it is being asked right now, so that it isn't asked twice.

mod view;

use serde::Serialize;

pub use view::{Evidence, View};

/// What a gate's cache holds at some time, and what it did since the gate was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CacheState {
    /// How many answers it holds.
    pub entries: usize,
    /// What they take in memory, in bytes, keys and heads included.
    pub bytes: usize,
    /// How many exchanges with the cloud are on their way whose answers others may share.
    pub flights: usize,
    /// How many requests were answered from it.
    pub cached: u64,
    /// How many requests were answered by the exchange of another.
    pub shared: u64,
    /// How many requests were answered from it after the cloud said that nothing had changed.
    pub revalidated: u64,
    /// How many requests that it might have answered had to go to the cloud.
    pub missed: u64,
}
