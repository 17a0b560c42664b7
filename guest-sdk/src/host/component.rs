//! The host, as a component imports it.

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
    logging::enabled(word(level))
}

pub(crate) fn log(level: Level, target: &str, message: &str, fields: &[(String, String)]) {
    logging::write(word(level), target, message, fields);
}

/// Runs a future to its end, driven by the pollables of the host.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut output = None;
    run(Box::pin(async { output = Some(future.await) }));
    output.expect("a future that has run to its end has an output")
}

/// The same code for every future, as each kind would take 3 kB of the component.
fn run(future: LocalBoxFuture<'_, ()>) {
    wstd::runtime::block_on(future);
}

fn word(level: Level) -> logging::Level {
    match level {
        Level::TRACE => logging::Level::Trace,
        Level::DEBUG => logging::Level::Debug,
        Level::INFO => logging::Level::Info,
        Level::WARN => logging::Level::Warn,
        Level::ERROR => logging::Level::Error,
    }
}
