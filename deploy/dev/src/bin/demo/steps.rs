//! The steps that the reader is taken through, and what they have shown so far: that stays true wherever it is stopped.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::page::{self, Cell, INDENT, Tone, WIDTH, row, seconds};

/// The steps, of which each ends before the next begins.
pub(crate) struct Steps {
    begun: Instant,
    /// How many have begun.
    number: usize,
    step_begun: Instant,
    /// What they have shown.
    claims: Vec<Vec<Cell>>,
    is_over: bool,
}

impl Steps {
    /// None yet, below what this is.
    pub(crate) fn new(title: &str) -> Self {
        page::print(&[Tone::Strong.cell(title)]);
        let now = Instant::now();
        Self { begun: now, number: 0, step_begun: now, claims: Vec::new(), is_over: false }
    }

    /// Begins a step: what happens, and why anybody should care.
    pub(crate) fn begin(&mut self, headline: &str, why: &str) {
        self.number += 1;
        self.step_begun = Instant::now();
        let number = format!("\n{:<INDENT$}", self.number);
        page::print(&[Tone::Good.cell(number), Tone::Strong.cell(headline)]);
        for line in page::wrapped(why, WIDTH - INDENT) {
            page::print(&[Tone::Plain.cell(" ".repeat(INDENT)), Tone::Plain.cell(line)]);
        }
        page::print(&[]);
    }

    /// Ends a step with the time that it took.
    pub(crate) fn end(&self) {
        let took = seconds(self.step_begun.elapsed());
        page::print(&[Tone::Quiet.cell(format!("{:INDENT$}took {took}", ""))]);
    }

    /// Notes for the summary what has been shown.
    pub(crate) fn shown(&mut self, name: &str, text: impl Into<String>) {
        self.claims.push(row(name, Tone::Good, text));
    }

    /// Sums up everything that was shown until now.
    pub(crate) fn sum_up(&mut self, shown: &str) {
        self.is_over = true;
        if !self.claims.is_empty() {
            page::heading(&format!("{shown} in {}", seconds(self.begun.elapsed())));
            page::table(&self.claims);
        }
    }

    /// Whether it has been summed up.
    pub(crate) fn are_over(&self) -> bool {
        self.is_over
    }
}

/// Waits, and says for how long: on a line that counts down where a terminal shows it, else once.
pub(crate) async fn wait_until(end: Instant, what_for: &str) {
    let left = || end.saturating_duration_since(Instant::now());
    let line = || format!("{:INDENT$}{what_for}: {} s, or Ctrl-C to end here", "", left().as_secs() + 1);
    if !std::io::stdout().is_terminal() {
        page::print(&[Tone::Quiet.cell(line())]);
        return sleep(left()).await;
    }
    while !left().is_zero() {
        show(&format!("\r{}", line()));
        sleep(left().min(Duration::from_secs(1))).await;
        // Back to an empty line.
        show("\r\u{1b}[K");
    }
}

/// Shows what no line end follows.
fn show(text: &str) {
    let mut out = std::io::stdout().lock();
    let _gone = write!(out, "{text}").and_then(|()| out.flush());
}
