//! Output for a terminal: colors where it supports them, progress, and no control characters of components or clouds.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};

use owo_colors::{OwoColorize as _, Stream, Style};
use pileus_host::is_control;
use pileus_loader::Progress;
use serde_json::Value;

/// Text in a style, if standard output is a terminal that supports colors.
pub(crate) fn styled(text: &str, style: Style) -> String {
    text.if_supports_color(Stream::Stdout, |text| text.style(style)).to_string()
}

/// A JSON object that is safe to show on a terminal. JSON allows many control characters unescaped; they are escaped
/// here, so that a parser reads the same text.
pub(crate) fn json(object: &Value) -> String {
    let text = format!("{object:#}\n");
    // All of them are in the Basic Multilingual Plane, so one escape is enough.
    let escaped =
        |c: char| if is_control(c) && c != '\n' { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    text.chars().map(escaped).collect()
}

/// Shows what is being done, on a line of standard error that is overwritten, if that is a terminal.
pub(crate) fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what} …");
    }
}

/// Removes the line of [`progress`].
pub(crate) fn clear_progress() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

/// Shows how far a transfer is, if standard error is a terminal.
pub(crate) fn transfer(what: &'static str) -> Option<Progress> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let shown = AtomicU64::new(u64::MAX);
    Some(Progress::new(move |done, total| {
        let percent = percentage(done, total);
        // Most parts of a transfer change nothing that is visible.
        if shown.swap(percent, Ordering::Relaxed) != percent {
            progress(&format!("{what}: {percent}% of {} kB", total.div_ceil(1000)));
        }
    }))
}

fn percentage(done: u64, total: u64) -> u64 {
    done.saturating_mul(100).checked_div(total).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_percentage_is_rounded_down() {
        for (done, total, expected) in
            [(0, 3, 0), (1, 3, 33), (2, 3, 66), (3, 3, 100), (0, 0, 100), (u64::MAX, u64::MAX, 1)]
        {
            assert_eq!(percentage(done, total), expected, "{done} of {total}");
        }
    }

    #[test]
    fn json_has_no_control_characters_and_keeps_its_meaning() {
        let object = json!({"a\u{9b}31m": ["\x1b[31m\n", "\x7f", "\u{202e}x", "größer"]});
        let text = json(&object);
        assert!(!text.contains(|c| is_control(c) && c != '\n') && text.contains("größer"), "{text}");
        assert_eq!(text.lines().count(), 8, "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
    }
}
