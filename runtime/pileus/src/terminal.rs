//! What reaches a terminal: colours where it wants them, and nothing of a stranger's that it would obey.

use owo_colors::{OwoColorize as _, Stream, Style};
use pileus_host::is_control;
use serde_json::Value;

/// Text in a style, where standard output is a terminal that wants colours.
pub(crate) fn styled(text: &str, style: Style) -> String {
    text.if_supports_color(Stream::Stdout, |text| text.style(style)).to_string()
}

/// An object for machines, which is most often seen on a terminal first. JSON allows most of what a terminal obeys as it
/// stands; it is escaped, so that who reads the object reads the very text.
pub(crate) fn json(object: &Value) -> String {
    let text = format!("{object:#}\n");
    // All of these are in the plane that one escape reaches.
    let escaped =
        |c: char| if is_control(c) && c != '\n' { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_json_is_obeyed_and_it_says_the_same() {
        let object = json!({"a\u{9b}31m": ["\x1b[31m\n", "\x7f", "\u{202e}x", "größer"]});
        let text = json(&object);
        assert!(!text.contains(|c| is_control(c) && c != '\n') && text.contains("größer"), "{text}");
        assert_eq!(text.lines().count(), 8, "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
    }
}
