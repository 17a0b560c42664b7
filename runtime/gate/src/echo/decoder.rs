//! Undoes the escapes in which servers repeat text: percent-encoding, JSON and its relatives, and HTML. Pure. It reads a
//! stream byte by byte. A decoded character is read once more, so that `%252F` is undone at any depth. Where escapes of one
//! kind make up another, as in `%26%2347%3B`, three decoders in a row undo as many kinds.

/// The longest escape that is undone, in bytes: `&#x0000002b;`. A longer one is passed on as it is.
const MAX_ESCAPE: usize = 12;

/// Stands for a character outside ASCII, which no search looks for.
const OTHER: u8 = 0x80;

/// Decodes a stream.
#[derive(Debug, Default)]
pub(super) struct Decoders([Decoder; 3]);

impl Decoders {
    /// Whether a byte begins an escape.
    pub(super) fn begins(byte: u8) -> bool {
        matches!(byte, b'%' | b'\\' | b'&')
    }

    /// Whether it is between two escapes.
    pub(super) fn is_idle(&self) -> bool {
        self.0.iter().all(|decoder| decoder.pending.is_empty())
    }

    /// Reads a byte and passes on what it completes.
    pub(super) fn push(&mut self, byte: u8, mut emit: impl FnMut(u8)) {
        push(&mut self.0, byte, &mut emit);
    }

    /// Ends the stream.
    pub(super) fn finish(&mut self, mut emit: impl FnMut(u8)) {
        for number in 0..self.0.len() {
            // No escape holds a NUL, so it ends one that may be complete.
            push(self.0.get_mut(number..).unwrap_or_default(), 0, &mut emit);
        }
    }
}

fn push(decoders: &mut [Decoder], byte: u8, emit: &mut dyn FnMut(u8)) {
    match decoders.split_first_mut() {
        Some((first, others)) => first.push(byte, |byte| push(others, byte, emit)),
        None => emit(byte),
    }
}

#[derive(Debug, Default)]
struct Decoder {
    /// The beginning of an escape.
    pending: Vec<u8>,
    /// What is read next, the last byte first.
    queue: Vec<u8>,
}

/// What the beginning of an escape says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// More has to be read.
    More,
    /// It is this character.
    Whole(u8),
    /// It is this character, and the last byte comes after it.
    Before(u8),
    /// It is no escape.
    Literal,
}

impl Decoder {
    /// Reads a byte and passes on what it completes.
    fn push(&mut self, byte: u8, mut emit: impl FnMut(u8)) {
        let Self { pending, queue } = self;
        queue.push(byte);
        while let Some(byte) = queue.pop() {
            if pending.is_empty() && !Decoders::begins(byte) {
                emit(byte);
                continue;
            }
            pending.push(byte);
            let step = read(pending);
            match step {
                Step::More if pending.len() < MAX_ESCAPE => continue,
                Step::Whole(character) => queue.push(character),
                Step::Before(character) => queue.extend([byte, character]),
                Step::More | Step::Literal => {
                    if let Some((first, others)) = pending.split_first() {
                        emit(*first);
                        queue.extend(others.iter().rev());
                    }
                }
            }
            pending.clear();
        }
    }
}

fn read(escape: &[u8]) -> Step {
    match escape {
        [_] => Step::More,
        [b'%', b'u' | b'U', digits @ ..] => digits_of(digits, 4, 16),
        [b'%', digits @ ..] | [b'\\', b'x', digits @ ..] => digits_of(digits, 2, 16),
        [b'\\', b'u', b'{', digits @ ..] => braced(digits),
        [b'\\', b'u', digits @ ..] => digits_of(digits, 4, 16),
        [b'\\', b'U', digits @ ..] => digits_of(digits, 8, 16),
        [b'\\', digits @ ..] if matches!(digits, [b'0'..=b'3', ..]) => match digits_of(digits, 3, 8) {
            Step::Literal => Step::Before(0),
            step => step,
        },
        [b'\\', b'n' | b'r' | b't' | b'b' | b'f' | b'v' | b'a'] => Step::Whole(b' '),
        [b'\\', character, ..] => Step::Whole(*character),
        [b'&', b'#', digits @ ..] => numeric(digits),
        [b'&', name @ ..] => named(name),
        _ => Step::Literal,
    }
}

/// So many digits of this base, all of which are the number of a character.
fn digits_of(digits: &[u8], count: usize, base: u32) -> Step {
    match number(digits, base) {
        None if !digits.is_empty() => Step::Literal,
        Some(code) if digits.len() >= count => Step::Whole(character(code)),
        Some(_) | None => Step::More,
    }
}

/// The digits of `\u{2b}`.
fn braced(digits: &[u8]) -> Step {
    let (inner, is_closed) = match digits {
        [inner @ .., b'}'] => (inner, true),
        _ => (digits, false),
    };
    match number(inner, 16) {
        Some(code) if is_closed => Step::Whole(character(code)),
        None if is_closed || !inner.is_empty() => Step::Literal,
        Some(_) | None => Step::More,
    }
}

/// The digits of `&#43;` and `&#x2b;`. Browsers read them without the semicolon too.
fn numeric(text: &[u8]) -> Step {
    let (digits, base) = match text {
        [] | [b'x' | b'X'] => return Step::More,
        [b'x' | b'X', digits @ ..] => (digits, 16),
        _ => (text, 10),
    };
    if number(digits, base).is_some() {
        return Step::More;
    }
    let (last, before) = digits.split_last().unwrap_or((&0, &[]));
    match (number(before, base), last) {
        (None, _) => Step::Literal,
        (Some(code), b';') => Step::Whole(character(code)),
        (Some(code), _) => Step::Before(character(code)),
    }
}

/// The name of `&amp;`. Of the others only those count that begin another escape: a name that isn't known here is a
/// punctuation mark or a letter outside ASCII.
fn named(name: &[u8]) -> Step {
    match name {
        b"amp;" => Step::Whole(b'&'),
        b"percnt;" => Step::Whole(b'%'),
        b"bsol;" => Step::Whole(b'\\'),
        b";" => Step::Literal,
        [name @ .., b';'] if name.iter().all(u8::is_ascii_alphanumeric) => Step::Whole(OTHER),
        _ if name.iter().all(u8::is_ascii_alphanumeric) => Step::More,
        _ => Step::Literal,
    }
}

/// The number that digits are, if there is at least one and all are digits.
fn number(digits: &[u8], base: u32) -> Option<u32> {
    let mut value = 0_u32;
    for digit in digits {
        value = value.saturating_mul(base).saturating_add(char::from(*digit).to_digit(base)?);
    }
    (!digits.is_empty()).then_some(value)
}

fn character(code: u32) -> u8 {
    u8::try_from(code).ok().filter(u8::is_ascii).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(text: &str) -> String {
        let mut decoder = Decoders::default();
        let mut decoded = Vec::new();
        for byte in text.bytes() {
            decoder.push(byte, |byte| decoded.push(byte));
        }
        decoder.finish(|byte| decoded.push(byte));
        String::from_utf8_lossy(&decoded).trim_end_matches('\0').to_owned()
    }

    #[test]
    fn every_escape_is_undone_at_any_depth() {
        let rows = [
            ("a%2Fb%2fc", "a/b/c"),
            ("%252525252F", "/"),
            ("%u002F", "/"),
            (r"a\/b\u002fc\x2Fd\u{2f}e\057f\U0000002f", "a/b/c/d/e/f/"),
            (r#"\"a\\"#, r#""a"#),
            (r"\\u002F", "/"),
            ("&#47;&#x2F;&#x002f;&#47x", "////x"),
            ("&amp;amp;#47;", "/"),
            ("&#x25;2F&percnt;2f", "//"),
            ("%26%2347%3b", "/"),
            (r"\u00252F", "/"),
        ];
        for (text, expected) in rows {
            let decoded = decode(text);
            // The last backslash begins an escape that never comes.
            assert_eq!(decoded.trim_end_matches('\\'), expected, "{text}");
        }
    }

    #[test]
    fn text_without_escapes_is_passed_on() {
        for text in
            ["", "plain", "100% of it", "a=1&b=2&c", "AT&T no", "&#; &#x; &#xg;", "&averyverylongname;"]
        {
            assert_eq!(decode(text), text, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_decoded_to_no_more_bytes(text in r"[%\\&#;ux0-9a-f{}]{0,64}") {
            prop_assert!(decode(&text).len() <= text.len());
        }
    }
}
