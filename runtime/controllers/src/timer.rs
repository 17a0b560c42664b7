//! A timer that may not be set, as an arm of `select!`.

use tokio::time::Instant;

/// Waits until `deadline`. Without a deadline it waits forever, so that only the other arms of a `select!` can finish.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
