//! Load tests of the gate against a cloud that is a process of its own and does not publish its quotas. They compare
//! what the cloud accepted with what it could have accepted, so that a slow machine does not change the result.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy lets tests panic, but not the functions that they share"
)]

mod cloud;
mod limits;
mod load;
