//! Output for a terminal: colors where it supports them, and no control characters of components or clouds.

use owo_colors::{OwoColorize as _, Stream, Style};
use pileus_host::is_control;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_has_no_control_characters_and_keeps_its_meaning() {
        let object = json!({"a\u{9b}31m": ["\x1b[31m\n", "\x7f", "\u{202e}x", "größer"]});
        let text = json(&object);
        assert!(!text.contains(|c| is_control(c) && c != '\n') && text.contains("größer"), "{text}");
        assert_eq!(text.lines().count(), 8, "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
    }
}
