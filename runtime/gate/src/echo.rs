//! Answers that show the credential which their request carried. Pages for debugging and some refusals repeat the headers
//! that they got (AWS's of a wrong signature has a session's token in it), and a provider would read it there; such an
//! answer ends with an error instead.
//!
//! What is found is the credential as it was sent, in a body that isn't compressed, which is why nobody asks for one with
//! a credential. A cloud that shows it in another form shows it: a path that tells such things mustn't be granted.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use memchr::{memchr_iter, memmem};

/// A shorter credential may be a word that stands in any answer. Tokens and keys have 20 characters and more.
const LEAST: usize = 16;

/// How a header says which kind of credential follows.
const SCHEMES: [&[u8]; 2] = [b"Bearer ", b"Basic "];

/// What an answer is searched for.
pub(crate) struct Echo {
    credentials: Vec<HeaderValue>,
    /// The end of what came, as far as a credential may begin in it.
    held: Bytes,
}

impl Echo {
    /// For the answer to a request with these headers: the gate's own credentials are marked as sensitive.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let is_searched = |value: &&HeaderValue| value.is_sensitive() && bare(value).len() >= LEAST;
        let credentials = headers.values().filter(is_searched).cloned().collect();
        Self { credentials, held: Bytes::new() }
    }

    /// Whether one of the headers of an answer shows a credential.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        headers.values().any(|value| self.shows(value.as_bytes()))
    }

    fn shows(&self, bytes: &[u8]) -> bool {
        self.credentials.iter().any(|credential| memmem::find(bytes, bare(credential)).is_some())
    }

    /// Takes the next part of a body, and gives what surely is no part of a credential. `None` if one is shown.
    pub(crate) fn pass(&mut self, next: Bytes) -> Option<Bytes> {
        if self.credentials.is_empty() {
            return Some(next);
        }
        let mut data = if self.held.is_empty() { next } else { [&*self.held, &*next].concat().into() };
        if self.shows(&data) {
            return None;
        }
        let begun = self.credentials.iter().map(|credential| begun(&data, bare(credential))).max();
        self.held = data.split_off(data.len() - begun.unwrap_or(0));
        Some(data)
    }

    /// What was held back to the last.
    pub(crate) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.held)
    }
}

/// The credential without its scheme, as others show it too.
fn bare(value: &HeaderValue) -> &[u8] {
    let bytes = value.as_bytes();
    SCHEMES.iter().find_map(|scheme| bytes.strip_prefix(*scheme)).unwrap_or(bytes)
}

/// How many bytes at the end of the data are the beginning of a credential.
fn begun(data: &[u8], credential: &[u8]) -> usize {
    let Some(first) = credential.first() else { return 0 };
    let tail = data.get(data.len().saturating_sub(credential.len() - 1)..).unwrap_or_default();
    let mut ends = memchr_iter(*first, tail).filter_map(|start| tail.get(start..));
    ends.find(|end| credential.starts_with(end)).map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;
    use crate::credentials::sensitive;

    fn echo(value: &str) -> Echo {
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("application/json; of=a-provider"));
        headers.insert("x-key", sensitive(Zeroizing::new(value.to_owned())).unwrap());
        Echo::of(&headers)
    }

    /// What of these parts is passed on, and whether it is all of them.
    fn passed(echo: &mut Echo, parts: &[&str]) -> (String, bool) {
        let mut passed = Vec::new();
        for part in parts {
            let Some(data) = echo.pass(Bytes::copy_from_slice(part.as_bytes())) else {
                return (String::from_utf8(passed).unwrap(), false);
            };
            passed.extend_from_slice(&data);
        }
        passed.extend_from_slice(&echo.rest());
        (String::from_utf8(passed).unwrap(), true)
    }

    #[test]
    fn a_credential_is_found_with_and_without_its_scheme_and_nothing_else_is() {
        let rows = [
            ("Bearer planted-0123456789", "authorization: Bearer planted-0123456789", true),
            ("Bearer planted-0123456789", "{\"token\": \"planted-0123456789\"}", true),
            ("Basic dXNlcjpwbGFudGVk", "dXNlcjpwbGFudGVk", true),
            ("planted-0123456789", "Bearer planted-0123456789", true),
            ("Bearer planted-0123456789", "Bearer planted-012345678", false),
            ("Bearer planted-0123456789", "application/json; of=a-provider", false),
            ("Bearer word", "word", false),
        ];
        for (value, answer, expected) in rows {
            let headers = HeaderMap::from_iter([("x-got".parse().unwrap(), answer.parse().unwrap())]);
            let mut echo = echo(value);
            assert_eq!(echo.is_in(&headers), expected, "{value} in {answer}");
            assert_eq!(passed(&mut echo, &[answer]).1, !expected, "{value} in {answer}");
        }
    }

    #[test]
    fn two_parts_of_a_credential_are_held_until_it_is_known_whether_they_are_one() {
        let mut echo = echo("planted-0123456789");
        assert_eq!(echo.pass("a planted-".into()).unwrap(), "a ");
        assert_eq!(echo.pass("0123".into()).unwrap(), "");
        assert_eq!(echo.pass("4 b".into()).unwrap(), "planted-01234 b");
        assert_eq!(echo.pass("p".into()).unwrap(), "");
        assert_eq!(echo.rest(), "p");
    }

    proptest! {
        #[test]
        fn however_it_is_cut_a_credential_is_never_passed_on_and_all_else_is(
            text in "[ab]{0,60}", cuts in proptest::collection::vec(0_usize..60, 0..6),
        ) {
            let secret = "abaabababaababaa";
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<_> = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
            for text in [text.clone(), format!("{text}{secret}")] {
                let parts: Vec<_> = parts.iter().copied().chain([&text[parts.concat().len()..]]).collect();
                let (passed, is_whole) = passed(&mut echo(secret), &parts);
                match text.find(secret) {
                    None => prop_assert_eq!((passed.as_str(), is_whole), (text.as_str(), true)),
                    Some(start) => prop_assert!(!is_whole && text.starts_with(&passed) && passed.len() <= start),
                }
            }
        }
    }
}
