//! Tests of the cloud over real sockets: the API and the faults as clients see them, and the process itself.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy lets tests panic, but not the functions that they share"
)]

mod api;
mod client;
mod faults;
mod load_balancers;
mod metadata;
mod operator;
mod process;
mod quotas;
mod shared;
mod tokens;
