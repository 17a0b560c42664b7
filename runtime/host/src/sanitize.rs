//! Makes third-party text safe to show on one line of a log, an event or a terminal, which act on some characters instead
//! of showing them.

/// The longest message of a provider that is kept, in bytes: an event's note may have 1 KiB.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// The longest excerpt of a text that is too long to show, in bytes.
const MAX_EXCERPT_BYTES: usize = 80;

/// Replaces each control character of a text with a space.
pub fn sanitize(text: &str) -> String {
    text.chars().map(|c| if is_control(c) { ' ' } else { c }).collect()
}

/// Whether a terminal or an editor acts on a character instead of showing it: control characters, which also begin escape
/// sequences; line and paragraph separators; and bidirectional formatting, with which a line can be made to read as another.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A provider's message: sanitized, and at most [`MAX_MESSAGE_BYTES`] long.
pub(crate) fn sanitize_message(text: &str) -> String {
    sanitize(truncate(text, MAX_MESSAGE_BYTES))
}

/// The beginning of a provider's text, enough to recognize it in an error.
pub(crate) fn excerpt(text: &str) -> String {
    sanitize(truncate(text, MAX_EXCERPT_BYTES))
}

/// The first bytes of a text, cut at a character's boundary.
pub(crate) fn truncate(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_spaces_and_every_script_stays() {
        for control in ["\n", "\x1b", "\x7f", "\u{9b}", "\u{2028}", "\u{202e}", "\u{2067}", "\u{200f}"] {
            assert_eq!(sanitize(&format!("a{control}b")), "a b", "{control:?}");
        }
        for text in ["größer als ½ € – „gut“", "数据中心", "مركز", "a\u{301}", "👩\u{200d}🔬"]
        {
            assert_eq!(sanitize(text), text);
        }
    }
}
