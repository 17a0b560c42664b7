//! What reaches a terminal: colours where it wants them, and nothing of a stranger's that it would obey.

use owo_colors::{OwoColorize as _, Stream, Style};

/// Text in a style, where standard output is a terminal that wants colours.
pub(crate) fn styled(text: &str, style: Style) -> String {
    text.if_supports_color(Stream::Stdout, |text| text.style(style)).to_string()
}

/// A stranger's text on one line, without what a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
