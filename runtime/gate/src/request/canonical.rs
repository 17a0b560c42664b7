//! The canonical form of a path, and whether every server reads it alike. Pure.

/// Converts a path into canonical form.
///
/// # Errors
/// What is wrong, as a verb phrase.
pub(crate) fn canonical_path(path: &str) -> Result<String, &'static str> {
    if !path.starts_with('/') {
        return Err("must start with /; the absolute form and * aren't carried");
    }
    if path.starts_with("//") {
        return Err("must not start with //, which some servers read as another host");
    }
    let mut canonical = String::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => push_code(&mut canonical, bytes.next(), bytes.next())?,
            b'\\' | b'#' | b'?' => return Err("holds a \\, # or ? that must be percent-encoded"),
            _ if is_visible(byte) => canonical.push(char::from(byte)),
            _ => {
                return Err(
                    "holds a space, a control character or a letter outside ASCII; percent-encode it",
                );
            }
        }
    }
    if has_dot_segment(&canonical) {
        return Err("holds a . or .. segment; send the resolved path");
    }
    Ok(canonical)
}

fn push_code(canonical: &mut String, high: Option<u8>, low: Option<u8>) -> Result<(), &'static str> {
    let digits =
        high.zip(low).map(|(high, low)| [high, low].map(|digit| char::from(digit).to_ascii_uppercase()));
    let values = high.zip(low).map(|(high, low)| [high, low].map(hexadecimal));
    let (Some([first, second]), Some([Some(high), Some(low)])) = (digits, values) else {
        return Err("holds a % without two hexadecimal digits; write %25");
    };
    let code = high * 16 + low;
    match code {
        0..0x20 | 0x7f => return Err("holds an encoded control character"),
        b'-' | b'.' | b'_' | b'~' => canonical.push(char::from(code)),
        _ if code.is_ascii_alphanumeric() => canonical.push(char::from(code)),
        _ => canonical.extend(['%', first, second]),
    }
    Ok(())
}

/// Whether any server would resolve a `.` or `..` in the path. Servers differ in whether an encoded slash or a backslash is a
/// separator, and in whether they drop the text after a `;`, so all of these are assumed.
fn has_dot_segment(canonical: &str) -> bool {
    canonical
        .replace("%2F", "/")
        .replace("%5C", "/")
        .replace("%3B", ";")
        .split('/')
        .any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
}

/// Why a server might see another path than this canonical one, or than the prefix of one that a grant names, if it might.
/// Servers differ in how often they decode, in what they take for a separator, in what they drop, and in which letters
/// outside ASCII they turn into others.
///
/// # Errors
/// What the path holds, as a verb phrase.
pub(crate) fn check_single_reading(canonical: &str) -> Result<(), &'static str> {
    let is_dots =
        |segment: &str| segment.contains('.') && segment.replace("%20", "").trim_matches('.').is_empty();
    if canonical.split('/').any(is_dots) {
        return Err("holds a segment of dots and spaces");
    }
    let mut outside = Vec::new();
    let mut left = canonical.as_bytes();
    while let [first, rest @ ..] = left {
        left = rest;
        let byte = match (first, rest) {
            (b'%', [high, low, rest @ ..]) => {
                left = rest;
                hexadecimal(*high).zip(hexadecimal(*low)).map_or(b'%', |(high, low)| high * 16 + low)
            }
            (b';', _) => b';',
            _ => b'-',
        };
        match byte {
            0x80.. => outside.push(byte),
            b'%' => return Err("holds an encoded %"),
            b'/' | b'\\' => return Err("holds an encoded slash or backslash"),
            b';' => return Err("holds a ;, encoded or not"),
            b'?' | b'#' => return Err("holds an encoded ? or #"),
            _ => outside.push(b'-'),
        }
    }
    // Overlong forms aren't UTF-8. A mark such as a full-width slash becomes an ASCII one in some servers; a letter doesn't.
    match std::str::from_utf8(&outside) {
        Ok(text) if text.chars().all(|letter| letter.is_ascii() || letter.is_alphanumeric()) => Ok(()),
        _ => Err("holds codes that are no UTF-8 or no letter"),
    }
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// Whether a byte is a visible ASCII character.
pub(super) fn is_visible(byte: u8) -> bool {
    (0x21..=0x7e).contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_some_server_reads_as_another_has_no_single_reading() {
        for path in [
            "/%2561",
            "/%252e%252e/b",
            "/%25252e",
            "/a%2Fb",
            "/a%5cb",
            "/a;b=c",
            "/a%3bb",
            "/a%3Fb",
            "/a%23b",
            "/..%20/b",
            "/.%20./b",
            "/.../b",
            "/%c0%ae%c0%ae/b",
            "/%c0%af",
            "/%e0%80%af",
            "/%f0%80%80%ae",
            "/%c1%9c",
            "/%ff",
            "/%e4",
            "/%ef%bc%8e%ef%bc%8e/b",
            "/%ef%bc%8fb",
            "/%e2%88%95b",
            "/%ef%bc%85%32e",
            "/%e2%80%a5/b",
            "/%c2%a0",
        ] {
            let canonical = canonical_path(path).unwrap();
            assert!(check_single_reading(&canonical).is_err(), "{path}");
        }
        for path in [
            "/",
            "/a/b/",
            "/a//b",
            "/a%20b",
            "/a.b..c",
            "/a:act",
            "/a@b,c",
            "/%c3%a4",
            "/%e6%97%a5",
            "/a%2Bb",
            "/*",
        ] {
            let canonical = canonical_path(path).unwrap();
            assert_eq!(check_single_reading(&canonical), Ok(()), "{path}");
        }
    }
}
