//! Prints tables of at most 100 columns.

use std::fmt::Display;
use std::time::Duration;

/// Starts a table: what it is about, and what its columns are.
pub(crate) fn heading(title: &str, columns: &[&str]) {
    print!("\n{title:<44}");
    cells(columns);
}

/// A line of a table.
pub(crate) fn row(label: &str, values: &[String]) {
    print!("  {label:<42}");
    cells(values);
}

fn cells(texts: &[impl Display]) {
    for text in texts {
        print!("{text:>14}");
    }
    println!();
}

/// Starts a table of figures: measured, the target, and what upstream took.
pub(crate) fn figures(title: &str) {
    heading(title, &["measured", "target", "upstream"]);
}

/// A figure with its target and upstream's figure; empty if there is no such figure.
pub(crate) fn figure(label: &str, measured: &str, target: &str, upstream: &str) {
    row(label, &[measured, target, upstream].map(str::to_owned));
}

/// A sentence under a table.
pub(crate) fn note(text: &str) {
    println!("  {text}");
}

/// A time in the unit that it is best read in.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..0.001 => format!("{:.1} µs", seconds * 1e6),
        ..1.0 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// Seconds, for columns in which they are compared.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// A size that was given in bytes.
#[expect(clippy::cast_precision_loss, reason = "sizes are below 2^52 bytes")]
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        ..1_048_576 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// Times of the same thing, measured again and again; sorted.
#[derive(Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Extend<Duration> for Samples {
    fn extend<T: IntoIterator<Item = Duration>>(&mut self, times: T) {
        self.0.extend(times);
        self.0.sort_unstable();
    }
}

impl Samples {
    pub(crate) fn push(&mut self, time: Duration) {
        self.extend([time]);
    }

    /// The time that this many percent of them don't exceed. Nothing where there are none.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * percent / 100).copied().unwrap_or_default()
    }

    pub(crate) fn median(&self) -> Duration {
        self.percentile(50)
    }

    /// Smallest, median and largest.
    pub(crate) fn spread(&self) -> [String; 3] {
        [0, 50, 100].map(|percent| time(self.percentile(percent)))
    }
}
