//! The soft deadline of the call. After it the host sends no new request, and the provider answers with what it has. The
//! SDK's requests and batch functions stop by themselves (see [`http`](crate::http) and
//! [`lookup_each`](crate::lookup_each)). Check the deadline here only before long work of another kind.

use std::time::Duration;

/// The time until the soft deadline of this call. Zero once it has passed.
pub fn remaining() -> Duration {
    crate::host::remaining()
}

/// Whether the soft deadline of this call has passed.
pub fn has_passed() -> bool {
    remaining().is_zero()
}
