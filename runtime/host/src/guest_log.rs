//! Writes a guest's output to the host's log: limited, sanitized, and marked as the provider's. The span of the call tells
//! which provider and which call it comes from.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncWrite;
use tracing::Level;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::bindings::logging;
use crate::limits::{MAX_LOG_LINE_BYTES, MAX_LOG_LINES};
use crate::sanitize::{sanitize, truncate};

/// The log of one call. Clones write to the same one.
#[derive(Clone, Default)]
pub(crate) struct GuestLog {
    state: Arc<Mutex<LogState>>,
}

#[derive(Default)]
struct LogState {
    lines: u32,
    dropped: u64,
    /// The end of the guest's standard error, on one line.
    stderr_tail: String,
}

impl GuestLog {
    /// Whether the host logs lines of this level.
    pub(crate) fn is_enabled(level: logging::Level) -> bool {
        match tracing_level(level) {
            Level::TRACE => tracing::enabled!(target: "provider", Level::TRACE),
            Level::DEBUG => tracing::enabled!(target: "provider", Level::DEBUG),
            Level::INFO => tracing::enabled!(target: "provider", Level::INFO),
            Level::WARN => tracing::enabled!(target: "provider", Level::WARN),
            _ => tracing::enabled!(target: "provider", Level::ERROR),
        }
    }

    /// Writes a line to the host's log. Drops it when the call has written too many.
    pub(crate) fn write(
        &self,
        level: logging::Level,
        target: &str,
        message: &str,
        fields: &[(String, String)],
    ) {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.lines >= MAX_LOG_LINES {
                state.dropped += 1;
                return;
            }
            state.lines += 1;
        }
        let mut line = sanitize_line(message);
        for (name, value) in fields {
            line.extend([" ", &sanitize_line(name), "=", &sanitize_line(value)]);
            if line.len() > MAX_LOG_LINE_BYTES {
                break;
            }
        }
        let line = truncate_line(line);
        let source = truncate_line(sanitize_line(target));
        match tracing_level(level) {
            Level::TRACE => tracing::trace!(target: "provider", source, "{line}"),
            Level::DEBUG => tracing::debug!(target: "provider", source, "{line}"),
            Level::INFO => tracing::info!(target: "provider", source, "{line}"),
            Level::WARN => tracing::warn!(target: "provider", source, "{line}"),
            _ => tracing::error!(target: "provider", source, "{line}"),
        }
    }

    /// A standard output or standard error whose lines go to the log.
    pub(crate) fn output(&self, is_stderr: bool) -> GuestOutput {
        GuestOutput { log: self.clone(), is_stderr }
    }

    /// The end of the guest's standard error: mostly the message of a panic.
    pub(crate) fn stderr_tail(&self) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (!state.stderr_tail.is_empty()).then(|| state.stderr_tail.clone())
    }

    fn append_stderr(&self, line: &str) {
        /// Enough bytes for the location and the message of a panic.
        const MAX_TAIL_BYTES: usize = 400;
        if line.starts_with("note: run with `RUST_BACKTRACE") {
            return; // Rust's advice, which the operator can't follow
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.stderr_tail.is_empty() {
            state.stderr_tail.push(' ');
        }
        state.stderr_tail.push_str(&sanitize_line(line));
        let cut = state.stderr_tail.len().saturating_sub(MAX_TAIL_BYTES);
        let cut = state.stderr_tail.ceil_char_boundary(cut);
        state.stderr_tail.drain(..cut);
    }

    /// How many lines were dropped.
    pub(crate) fn dropped_lines(&self) -> u64 {
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

/// Sanitizes a guest's text, so that it can't forge a log line of the host or control a terminal.
fn sanitize_line(text: &str) -> String {
    sanitize(truncate(text, MAX_LOG_LINE_BYTES))
}

fn truncate_line(mut line: String) -> String {
    if line.len() > MAX_LOG_LINE_BYTES {
        line.truncate(line.floor_char_boundary(MAX_LOG_LINE_BYTES));
        line.push('…');
    }
    line
}

/// A guest's standard output or standard error.
pub(crate) struct GuestOutput {
    log: GuestLog,
    is_stderr: bool,
}

impl IsTerminal for GuestOutput {
    fn is_terminal(&self) -> bool {
        false // on a terminal, a guest would send colors
    }
}

impl StdoutStream for GuestOutput {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(LineStream { log: self.log.clone(), is_stderr: self.is_stderr, line: Vec::new() })
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink()) // for WASI 0.3, which isn't linked
    }
}

/// Splits a stream of bytes into lines, immediately and without a task of its own: a panic's message must be there when the
/// trap that follows it is reported. Bytes of a line beyond the limit of a log line are dropped.
struct LineStream {
    log: GuestLog,
    is_stderr: bool,
    line: Vec<u8>,
}

impl LineStream {
    fn finish_line(&mut self) {
        let text = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        self.line.clear();
        if text.is_empty() {
            return;
        }
        if self.is_stderr {
            self.log.append_stderr(&text);
        }
        let target = if self.is_stderr { "stderr" } else { "stdout" };
        self.log.write(logging::Level::Info, target, &text, &[]);
    }
}

impl OutputStream for LineStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        for byte in bytes {
            if byte == b'\n' {
                self.finish_line();
            } else if self.line.len() < MAX_LOG_LINE_BYTES {
                self.line.push(byte);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_LOG_LINE_BYTES)
    }
}

#[async_trait]
impl Pollable for LineStream {
    async fn ready(&mut self) {}
}

impl Drop for LineStream {
    fn drop(&mut self) {
        self.finish_line();
    }
}
