//! The numbered scenes of the demo, and the summary of what they have shown, which is also printed after Ctrl-C.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::page::{self, Cell, INDENT, Tone, WIDTH, format_duration, row};

/// The progress of the demo: one scene at a time.
pub(crate) struct Steps {
    begun: Instant,
    /// The number of the current scene.
    number: usize,
    scene_begun: Instant,
    /// The rows of the summary.
    summary: Vec<Vec<Cell>>,
    has_printed_summary: bool,
}

impl Steps {
    /// Prints the title of the demo.
    pub(crate) fn new(title: &str) -> Self {
        page::print(&[Tone::Strong.cell(title)]);
        let now = Instant::now();
        Self { begun: now, number: 0, scene_begun: now, summary: Vec::new(), has_printed_summary: false }
    }

    /// Begins a scene: a headline, and a caption that says what the scene shows.
    pub(crate) fn begin(&mut self, headline: &str, caption: &str) {
        self.number += 1;
        self.scene_begun = Instant::now();
        let number = format!("\n{:<INDENT$}", self.number);
        page::print(&[Tone::Good.cell(number), Tone::Strong.cell(headline)]);
        for line in page::wrapped(caption, WIDTH - INDENT) {
            page::print(&[Tone::Plain.cell(" ".repeat(INDENT)), Tone::Plain.cell(line)]);
        }
        page::print(&[]);
    }

    /// Ends a scene and prints how long it took.
    pub(crate) fn end(&self) {
        let took = format_duration(self.scene_begun.elapsed());
        page::print(&[Tone::Quiet.cell(format!("{:INDENT$}took {took}", ""))]);
    }

    /// Adds a row to the summary.
    pub(crate) fn add_to_summary(&mut self, name: &str, text: impl Into<String>) {
        self.summary.push(row(name, Tone::Good, text));
    }

    /// Prints the summary of all scenes that have ended.
    pub(crate) fn print_summary(&mut self, title: &str) {
        self.has_printed_summary = true;
        if !self.summary.is_empty() {
            page::heading(&format!("{title} in {}", format_duration(self.begun.elapsed())));
            page::table(&self.summary);
        }
    }

    /// Whether the summary has been printed.
    pub(crate) fn has_printed_summary(&self) -> bool {
        self.has_printed_summary
    }
}

/// Waits, and shows for how long: as a countdown on a terminal, otherwise with a line each ten seconds.
pub(crate) async fn wait_until(end: Instant, what_for: &str) {
    let left = || end.saturating_duration_since(Instant::now());
    let line = || format!("{:INDENT$}{what_for}: {} s (Ctrl-C ends the demo)", "", left().as_secs() + 1);
    if !std::io::stdout().is_terminal() {
        while !left().is_zero() {
            page::print(&[Tone::Quiet.cell(line())]);
            sleep(left().min(Duration::from_secs(10))).await;
        }
        return;
    }
    while !left().is_zero() {
        print_inline(&format!("\r{}", line()));
        sleep(left().min(Duration::from_secs(1))).await;
        // Empty the line.
        print_inline("\r\u{1b}[K");
    }
}

/// Prints without a line end.
fn print_inline(text: &str) {
    let mut out = std::io::stdout().lock();
    let _closed = write!(out, "{text}").and_then(|()| out.flush());
}
