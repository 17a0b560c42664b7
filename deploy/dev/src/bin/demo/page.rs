//! The demo's output: headlines, sentences and tables of at most 100 columns. Colors are for terminals, unless `NO_COLOR`
//! is set. Layout works on plain text; colors are added last and change no width.

use std::io::Write as _;
use std::time::Duration;

use owo_colors::{OwoColorize as _, Stream, Style};

/// The maximum width of a line, in characters: two such windows fit side by side on a usual screen.
pub(crate) const WIDTH: usize = 100;
/// The indentation of all text below a headline.
pub(crate) const INDENT: usize = 3;
/// The number of spaces between two columns.
const GAP: usize = 2;

/// The meaning of a piece of text, which decides how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Ordinary text.
    Plain,
    /// Labels, and what is less important.
    Quiet,
    /// A success.
    Good,
    /// A headline, or a command to type.
    Strong,
}

/// A piece of text in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Tone {
    /// A cell in this tone.
    pub(crate) fn cell(self, text: impl Into<String>) -> Cell {
        Cell { text: text.into(), tone: self }
    }

    fn look(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Quiet => Style::new().dimmed(),
            Self::Good => Style::new().green(),
            Self::Strong => Style::new().bold(),
        }
    }
}

/// A row of a label and a text.
pub(crate) fn row(label: &str, tone: Tone, text: impl Into<String>) -> Vec<Cell> {
    vec![Tone::Quiet.cell(label), tone.cell(text)]
}

/// Prints a headline that begins no scene.
pub(crate) fn heading(text: &str) {
    print(&[]);
    print(&[Tone::Strong.cell(text)]);
}

/// Prints a table.
pub(crate) fn table(rows: &[Vec<Cell>]) {
    for line in layout(rows) {
        print(&line);
    }
}

/// A duration for people, in milliseconds below a second.
pub(crate) fn format_duration(time: Duration) -> String {
    if time < Duration::from_millis(1) {
        "less than 1 ms".to_owned()
    } else if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// Lays out a table. A column is as wide as its widest cell. The last cell of a row takes the rest of the line, and is
/// wrapped if it is longer.
fn layout(rows: &[Vec<Cell>]) -> Vec<Vec<Cell>> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        // The last cell of a row needs no padding.
        let cells = rows.iter().filter(|row| row.len() > column + 1).filter_map(|row| row.get(column));
        cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    rows.iter().flat_map(|row| lines(row, &widths)).collect()
}

fn lines(row: &[Cell], widths: &[usize]) -> Vec<Vec<Cell>> {
    let Some((last, firsts)) = row.split_last() else { return vec![Vec::new()] };
    let mut head = vec![Tone::Plain.cell(" ".repeat(INDENT))];
    for (cell, width) in firsts.iter().zip(widths) {
        head.push(cell.tone.cell(format!("{:<1$}", cell.text, width + GAP)));
    }
    let used: usize = head.iter().map(|cell| cell.text.chars().count()).sum();
    let texts = wrapped(&last.text, WIDTH.saturating_sub(used));
    let mut lines = Vec::new();
    for text in texts {
        let start = if lines.is_empty() { head.clone() } else { vec![Tone::Plain.cell(" ".repeat(used))] };
        lines.push([start, vec![last.tone.cell(text)]].concat());
    }
    lines
}

/// Breaks a text into lines of at most `width` characters: at spaces, and within words that are longer than a line.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(String::new());
        } else if used > 0 {
            lines.iter_mut().next_back().into_iter().for_each(|line| line.push(' '));
        }
        for letter in word.chars() {
            if lines.last().is_some_and(|line| line.chars().count() >= width) {
                lines.push(String::new());
            }
            lines.iter_mut().next_back().into_iter().for_each(|line| line.push(letter));
        }
    }
    lines
}

/// Prints a line. A closed output (`make demo | head`) is not an error.
pub(crate) fn print(cells: &[Cell]) {
    let mut line = String::new();
    for Cell { text, tone } in cells {
        let shown = text.if_supports_color(Stream::Stdout, |text| text.style(tone.look()));
        line.push_str(&if *tone == Tone::Plain { text.clone() } else { shown.to_string() });
    }
    let mut out = std::io::stdout().lock();
    let _closed = writeln!(out, "{}", line.trim_end()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(rows: &[Vec<Cell>]) -> Vec<String> {
        let line = |cells: Vec<Cell>| cells.into_iter().map(|cell| cell.text).collect::<String>();
        layout(rows).into_iter().map(line).collect()
    }

    #[test]
    fn a_column_is_as_wide_as_its_widest_cell_that_does_not_end_a_row() {
        let rows = [
            row("a", Tone::Good, "one"),
            row("long name", Tone::Strong, "two"),
            vec![Tone::Plain.cell("one cell alone, however long")],
        ];
        assert_eq!(
            text(&rows),
            ["   a          one", "   long name  two", "   one cell alone, however long"]
        );
    }

    #[test]
    fn a_long_text_is_wrapped_within_its_column() {
        let rows = [row("name", Tone::Plain, format!("{} {} end", "x".repeat(90), "y".repeat(100)))];
        let lines = text(&rows);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:?}");
        assert_eq!(lines[0], format!("   name  {}", "x".repeat(90)));
        assert_eq!(lines[1], format!("         {}", "y".repeat(91)));
        assert_eq!(lines[2], format!("         {} end", "y".repeat(9)));
    }

    #[test]
    fn durations_are_shown_in_milliseconds_or_seconds() {
        let table =
            [(0, "less than 1 ms"), (1, "1 ms"), (999, "999 ms"), (1_000, "1.0 s"), (12_345, "12.3 s")];
        for (milliseconds, expected) in table {
            assert_eq!(format_duration(Duration::from_millis(milliseconds)), expected);
        }
    }
}
