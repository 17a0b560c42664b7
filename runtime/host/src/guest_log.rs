//! Where a guest's words go: into the host's log, bounded, on one line, and marked as the provider's. Which provider's, and
//! of which call, says the span of the call.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncWrite;
use tracing::Level;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::bindings::logging;
use crate::limits::{LOG_LINE_BYTES, LOG_LINES};

/// The log of one call. Clones write to the same one.
#[derive(Clone, Default)]
pub(crate) struct GuestLog {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    lines: u32,
    dropped: u64,
    /// The end of what it wrote to standard error, on one line.
    last_words: String,
}

impl GuestLog {
    /// Whether the host keeps lines of this level.
    pub(crate) fn enabled(level: logging::Level) -> bool {
        match tracing_level(level) {
            Level::TRACE => tracing::enabled!(target: "provider", Level::TRACE),
            Level::DEBUG => tracing::enabled!(target: "provider", Level::DEBUG),
            Level::INFO => tracing::enabled!(target: "provider", Level::INFO),
            Level::WARN => tracing::enabled!(target: "provider", Level::WARN),
            _ => tracing::enabled!(target: "provider", Level::ERROR),
        }
    }

    /// Writes a line, unless the call has written too many.
    pub(crate) fn write(
        &self,
        level: logging::Level,
        target: &str,
        message: &str,
        fields: &[(String, String)],
    ) {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.lines >= LOG_LINES {
                state.dropped += 1;
                return;
            }
            state.lines += 1;
        }
        let mut line = one_line(message);
        for (name, value) in fields {
            line.extend([" ", &one_line(name), "=", &one_line(value)]);
            if line.len() > LOG_LINE_BYTES {
                break;
            }
        }
        let line = cut(line);
        let source = cut(one_line(target));
        match tracing_level(level) {
            Level::TRACE => tracing::trace!(target: "provider", source, "{line}"),
            Level::DEBUG => tracing::debug!(target: "provider", source, "{line}"),
            Level::INFO => tracing::info!(target: "provider", source, "{line}"),
            Level::WARN => tracing::warn!(target: "provider", source, "{line}"),
            _ => tracing::error!(target: "provider", source, "{line}"),
        }
    }

    /// A standard output (or error) whose lines go to the log.
    pub(crate) fn output(&self, is_error: bool) -> Output {
        Output { log: self.clone(), is_error }
    }

    /// The end of what was written to standard error: the message of a panic, most often.
    pub(crate) fn last_words(&self) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (!state.last_words.is_empty()).then(|| state.last_words.clone())
    }

    fn remember(&self, line: &str) {
        /// Where a panic happened and what it said.
        const KEPT: usize = 400;
        if line.starts_with("note: run with `RUST_BACKTRACE") {
            return; // Rust's advice, which a provider's operator can't follow
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.last_words.is_empty() {
            state.last_words.push(' ');
        }
        state.last_words.push_str(&one_line(line));
        let cut = state.last_words.len().saturating_sub(KEPT);
        let cut = state.last_words.ceil_char_boundary(cut);
        state.last_words.drain(..cut);
    }

    /// How many lines were not kept.
    pub(crate) fn dropped(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).dropped
    }
}

fn tracing_level(level: logging::Level) -> Level {
    match level {
        logging::Level::Trace => Level::TRACE,
        logging::Level::Debug => Level::DEBUG,
        logging::Level::Info => Level::INFO,
        logging::Level::Warn => Level::WARN,
        logging::Level::Error => Level::ERROR,
    }
}

/// A guest can't forge a log line of the host nor reach a terminal.
fn one_line(text: &str) -> String {
    crate::one_line::one_line(text.get(..text.floor_char_boundary(LOG_LINE_BYTES)).unwrap_or_default())
}

fn cut(mut line: String) -> String {
    if line.len() > LOG_LINE_BYTES {
        line.truncate(line.floor_char_boundary(LOG_LINE_BYTES));
        line.push('…');
    }
    line
}

/// A guest's standard output or error.
pub(crate) struct Output {
    log: GuestLog,
    is_error: bool,
}

impl IsTerminal for Output {
    fn is_terminal(&self) -> bool {
        false // a guest that thought so would send colours
    }
}

impl StdoutStream for Output {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(Lines { log: self.log.clone(), is_error: self.is_error, open: Vec::new() })
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink()) // for WASI 0.3, which isn't linked
    }
}

/// Cuts a stream of bytes into lines, at once and without a task of its own: a panic's message must have arrived when
/// the trap that follows it is reported. What exceeds the bytes of a log line before its end is lost.
struct Lines {
    log: GuestLog,
    is_error: bool,
    open: Vec<u8>,
}

impl Lines {
    fn finish(&mut self) {
        let text = String::from_utf8_lossy(&self.open).trim_end().to_owned();
        self.open.clear();
        if text.is_empty() {
            return;
        }
        if self.is_error {
            self.log.remember(&text);
        }
        let target = if self.is_error { "stderr" } else { "stdout" };
        self.log.write(logging::Level::Info, target, &text, &[]);
    }
}

impl OutputStream for Lines {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        for byte in bytes {
            if byte == b'\n' {
                self.finish();
            } else if self.open.len() < LOG_LINE_BYTES {
                self.open.push(byte);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(LOG_LINE_BYTES)
    }
}

#[async_trait]
impl Pollable for Lines {
    async fn ready(&mut self) {}
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.finish();
    }
}
