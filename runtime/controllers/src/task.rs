//! The results of spawned tasks.

use tokio::task::JoinError;

/// The result of a task. A panic in a task is a defect of ours. It ends the controller, and with it the process, because the
/// object of that task would otherwise never be handled again.
pub(crate) fn joined<T>(task: Result<T, JoinError>) -> T {
    task.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(cancelled) => unreachable!("no task is cancelled while the loop runs: {cancelled}"),
    })
}
