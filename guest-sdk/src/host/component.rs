//! The host's functions, as a component imports them.

use std::time::{Duration, SystemTime};

use futures::future::LocalBoxFuture;
use tracing::Level;

use crate::bindings::pileus::provider::{call, logging};

pub(crate) fn configuration() -> String {
    call::configuration()
}

pub(crate) fn remaining() -> Duration {
    Duration::from_millis(call::remaining())
}

pub(crate) fn identity(name: &str) -> Option<String> {
    call::identity(name)
}

pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

pub(crate) fn log_enabled(level: Level) -> bool {
    logging::enabled(to_wit(level))
}

pub(crate) fn log(level: Level, target: &str, message: &str, fields: &[(String, String)]) {
    logging::write(to_wit(level), target, message, fields);
}

/// Runs a future to completion, driven by the host's pollables.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut output = None;
    run(Box::pin(async { output = Some(future.await) }));
    output.expect("a completed future has an output")
}

/// Not generic, because each instance of the code would add 3 kB to the component.
fn run(future: LocalBoxFuture<'_, ()>) {
    wstd::runtime::block_on(future);
}

fn to_wit(level: Level) -> logging::Level {
    match level {
        Level::TRACE => logging::Level::Trace,
        Level::DEBUG => logging::Level::Debug,
        Level::INFO => logging::Level::Info,
        Level::WARN => logging::Level::Warn,
        Level::ERROR => logging::Level::Error,
    }
}
