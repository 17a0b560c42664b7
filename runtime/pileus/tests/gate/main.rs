//! The gate against a cloud that is a process of its own and keeps its quotas to itself. What is compared is what the
//! cloud let through with what it could have, so that a slow machine changes no verdict.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy lets tests panic, but not the functions that they share"
)]

mod cloud;
mod limits;
mod load;
