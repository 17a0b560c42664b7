//! Detects a response that shows the credential of its request. Debug pages and some refusals repeat the headers that they
//! got (AWS's refusal of a wrong signature holds a session token), and a provider would read the credential there. Such a
//! response ends with an error instead.
//!
//! Only the credential as it was sent is found, and only in a body that isn't compressed; so the gate asks for none when it
//! attaches a credential. A cloud that returns the credential in another form gives it away: never grant such a path.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use memchr::{memchr_iter, memmem};

/// A shorter credential may be a word of any response. Tokens and keys have 20 characters and more.
const MIN_LENGTH: usize = 16;

/// The schemes in front of a credential in a header.
const SCHEMES: [&[u8]; 2] = [b"Bearer ", b"Basic "];

/// Searches a response for the credentials of its request.
pub(crate) struct EchoDetector {
    credentials: Vec<HeaderValue>,
    /// The end of the data so far, from where a credential may begin.
    held: Bytes,
}

impl EchoDetector {
    /// A detector for the response to a request with these headers. The gate marks its credentials as sensitive.
    pub(crate) fn new(headers: &HeaderMap) -> Self {
        let is_searched = |value: &&HeaderValue| value.is_sensitive() && bare(value).len() >= MIN_LENGTH;
        let credentials = headers.values().filter(is_searched).cloned().collect();
        Self { credentials, held: Bytes::new() }
    }

    /// Whether a header of a response shows a credential.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        headers.values().any(|value| self.shows(value.as_bytes()))
    }

    fn shows(&self, bytes: &[u8]) -> bool {
        self.credentials.iter().any(|credential| memmem::find(bytes, bare(credential)).is_some())
    }

    /// Takes the next part of a body, and returns what is surely no part of a credential; `None` if the body shows one.
    pub(crate) fn scan(&mut self, next: Bytes) -> Option<Bytes> {
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

    /// What was still held when the body ended.
    pub(crate) fn remainder(&mut self) -> Bytes {
        std::mem::take(&mut self.held)
    }
}

/// The credential without its scheme, since a response may show it that way.
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
    use crate::secret::sensitive;

    fn echo(value: &str) -> EchoDetector {
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("application/json; of=a-provider"));
        headers.insert("x-key", sensitive(Zeroizing::new(value.to_owned())).unwrap());
        EchoDetector::new(&headers)
    }

    /// What of these parts is passed on, and whether all of them were.
    fn passed(echo: &mut EchoDetector, parts: &[&str]) -> (String, bool) {
        let mut passed = Vec::new();
        for part in parts {
            let Some(data) = echo.scan(Bytes::copy_from_slice(part.as_bytes())) else {
                return (String::from_utf8(passed).unwrap(), false);
            };
            passed.extend_from_slice(&data);
        }
        passed.extend_from_slice(&echo.remainder());
        (String::from_utf8(passed).unwrap(), true)
    }

    #[test]
    fn a_credential_and_nothing_else_is_found_with_and_without_its_scheme() {
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
    fn data_that_may_begin_a_credential_is_held_until_the_rest_decides() {
        let mut echo = echo("planted-0123456789");
        assert_eq!(echo.scan("a planted-".into()).unwrap(), "a ");
        assert_eq!(echo.scan("0123".into()).unwrap(), "");
        assert_eq!(echo.scan("4 b".into()).unwrap(), "planted-01234 b");
        assert_eq!(echo.scan("p".into()).unwrap(), "");
        assert_eq!(echo.remainder(), "p");
    }

    proptest! {
        #[test]
        fn a_credential_is_never_passed_on_and_everything_else_is_however_the_body_is_cut(
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
