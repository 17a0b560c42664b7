//! The soft deadline of the call. Past it the host sends no new request: a provider answers with what it has. The SDK
//! does its part of that by itself (see [`http`](crate::http) and [`one_by_one`](crate::one_by_one)); an author asks
//! here only before long work of another kind.

use std::time::Duration;

/// What is left until the soft deadline of this call; zero once it has passed.
pub fn remaining() -> Duration {
    crate::host::remaining()
}

/// Whether the soft deadline of this call has passed.
pub fn has_passed() -> bool {
    remaining().is_zero()
}
