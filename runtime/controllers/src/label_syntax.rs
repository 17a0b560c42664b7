//! Which keys and values a label can have. Pure.

/// The longest name and value of a label, in bytes.
pub(crate) const MAX_LENGTH: usize = 63;

/// The longest domain of a key, in bytes.
const MAX_DOMAIN: usize = 253;

/// Whether the API server accepts this key of a label: a name, or a domain and a name.
pub(crate) fn is_key(key: &str) -> bool {
    let is_domain = |text: &str| {
        let is_part = |part: &str| is_word(part) && !part.contains('_') && !part.contains(char::is_uppercase);
        text.len() <= MAX_DOMAIN && text.split('.').all(is_part)
    };
    match key.split_once('/') {
        Some((prefix, name)) => is_domain(prefix) && is_word(name),
        None => is_word(key),
    }
}

/// Whether the API server accepts this value of a label.
pub(crate) fn is_value(value: &str) -> bool {
    value.is_empty() || is_word(value)
}

fn is_word(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_LENGTH
        && is_end(text.chars().next())
        && is_end(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}
