//! A stranger's words, made fit for a line of a log, of an event and of a terminal, which all obey some characters
//! instead of showing them.

/// The text with a space for each character that would be obeyed.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { ' ' } else { c }).collect()
}

/// Whether a terminal or an editor does something else with a character than to show it: controls, which also begin
/// escape sequences, further ends of lines, and what turns the direction of writing around, so that a line reads as if it
/// said something else.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_obeyed_becomes_a_space_and_every_script_stays() {
        for obeyed in ["\n", "\x1b", "\x7f", "\u{9b}", "\u{2028}", "\u{202e}", "\u{2067}", "\u{200f}"] {
            assert_eq!(one_line(&format!("a{obeyed}b")), "a b", "{obeyed:?}");
        }
        for text in ["größer als ½ € – „gut“", "数据中心", "مركز", "a\u{301}", "👩\u{200d}🔬"]
        {
            assert_eq!(one_line(text), text);
        }
    }
}
