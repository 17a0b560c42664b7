//! Detects a response that shows the credential of its request. Debug pages and some refusals repeat the headers that they
//! got (AWS's refusal of a wrong signature holds a session token), and a provider would read the credential there. Such a
//! response ends with an error instead.
//!
//! `forms` has the forms in which a secret is found, `decoder` undoes escapes. What a provider observes must not depend on
//! how much of a secret a response shows, or a provider could guess it byte by byte. So the end of a response is held back
//! by a constant length, and passed on in pieces whose sizes depend on the length of the response alone.
//!
//! A cloud that returns the credential compressed, encrypted or in parts gives it away: never grant such a path. `README.md`
//! lists what is not promised.

mod decoder;
mod forms;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use memchr::memchr3;

use decoder::Decoders;
use forms::StateID;
pub(crate) use forms::{BLOCK, Needles};

/// Searches the response to one request for the credential of that request.
pub(crate) struct EchoDetector(Option<Box<Searched>>);

/// The searches for the credentials of one request: for its own, and for those that are sent along.
#[derive(Debug, Clone)]
pub(crate) struct NeedleSet {
    pub(crate) main: Needles,
    pub(crate) auxiliary: Vec<Needles>,
}

/// A response to a request with a credential.
struct Searched {
    scan: Scan,
    /// The same for the credentials that are sent along.
    others: Vec<Scan>,
    held_back: usize,
    /// The end of what has come so far.
    held: BytesMut,
    has_ended: bool,
}

impl EchoDetector {
    /// For the response to a request that carries no credential, or one that these needles find.
    pub(crate) fn new(needles: Option<NeedleSet>) -> Self {
        let searched = |NeedleSet { main, auxiliary }: NeedleSet| {
            let longest = auxiliary.iter().map(Needles::held_back).max();
            let held_back = main.held_back().max(longest.unwrap_or_default());
            let (scan, others) = (Scan::new(main), auxiliary.into_iter().map(Scan::new).collect());
            Searched { scan, others, held_back, held: BytesMut::new(), has_ended: false }
        };
        Self(needles.map(searched).map(Box::new))
    }

    /// Whether the request carries a credential.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a header of a response shows a credential.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let Some(searched) = &self.0 else { return false };
        headers.iter().any(|(name, value)| {
            [name.as_str().as_bytes(), value.as_bytes()].into_iter().any(|text| {
                searched.scans().any(|scan| {
                    let mut scan = Scan::new(scan.needles.clone());
                    scan.is_in(text) || scan.ends()
                })
            })
        })
    }

    /// Takes the next part of a body, or its end. Returns whether the body shows a credential; nothing of it must be passed on
    /// then.
    #[must_use]
    pub(crate) fn shows(&mut self, next: Option<&[u8]>) -> bool {
        let Some(Searched { scan, others, held, has_ended, .. }) = self.0.as_deref_mut() else {
            return false;
        };
        if let Some(data) = next {
            held.extend_from_slice(data);
        } else {
            *has_ended = true;
        }
        let mut is_found = false;
        for scan in std::iter::once(scan).chain(others) {
            is_found |= match next {
                Some(data) => scan.is_in(data),
                None => scan.ends(),
            };
        }
        is_found
    }

    /// The next piece of the body that may be passed on: a block as soon as enough came after it, and all that is left in
    /// blocks after the end.
    pub(crate) fn next_piece(&mut self) -> Option<Bytes> {
        let Searched { held_back, held, has_ended, .. } = self.0.as_deref_mut()?;
        let held_back = if *has_ended { 0 } else { *held_back };
        let length = held.len().saturating_sub(held_back).min(BLOCK);
        let is_due = if *has_ended { length > 0 } else { length == BLOCK };
        is_due.then(|| held.split_to(length).freeze())
    }
}

impl Searched {
    fn scans(&self) -> impl Iterator<Item = &Scan> {
        std::iter::once(&self.scan).chain(&self.others)
    }
}

/// Searches a text as it is and without its escapes.
struct Scan {
    needles: Needles,
    raw: StateID,
    decoded: StateID,
    decoder: Decoders,
}

impl Scan {
    fn new(needles: Needles) -> Self {
        let start = needles.start();
        Self { needles, raw: start, decoded: start, decoder: Decoders::default() }
    }

    /// Whether a secret ends in the next part of the text.
    fn is_in(&mut self, mut data: &[u8]) -> bool {
        let mut is_found = false;
        while !data.is_empty() {
            // While both readings agree, one search is enough.
            if self.raw == self.decoded && self.decoder.is_idle() {
                let plain = memchr3(b'%', b'\\', b'&', data).unwrap_or(data.len());
                let (plain, rest) = data.split_at(plain);
                for byte in plain {
                    is_found |= self.needles.step(&mut self.raw, *byte);
                }
                self.decoded = self.raw;
                data = rest;
            }
            if let Some((byte, rest)) = data.split_first() {
                let Self { needles, raw, decoded, decoder } = self;
                is_found |= needles.step(raw, *byte);
                decoder.push(*byte, |byte| is_found |= needles.step(decoded, byte));
                data = rest;
            }
        }
        is_found
    }

    /// Whether the end of the text completes a secret.
    fn ends(&mut self) -> bool {
        let Self { needles, decoded, decoder, .. } = self;
        let mut is_found = false;
        decoder.finish(|byte| is_found |= needles.step(decoded, byte));
        is_found
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::sync::LazyLock;

    use base64::Engine;
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "planted-hunter2/0123456789+abcdef=";

    fn echo() -> EchoDetector {
        static NEEDLES: LazyLock<Needles> = LazyLock::new(|| Needles::new([SECRET]));
        EchoDetector::new(Some(NeedleSet { main: NEEDLES.clone(), auxiliary: Vec::new() }))
    }

    /// The pieces that are passed on of a body that comes in these parts, and whether all were.
    fn passed(parts: &[&[u8]]) -> (Vec<Bytes>, bool) {
        let (mut echo, mut passed) = (echo(), Vec::new());
        for part in parts.iter().copied().map(Some).chain([None]) {
            if echo.shows(part) {
                return (passed, false);
            }
            passed.extend(std::iter::from_fn(|| echo.next_piece()));
        }
        (passed, true)
    }

    fn each(text: &str, write: impl Fn(&mut String, char)) -> String {
        text.chars().fold(String::new(), |mut written, letter| {
            write(&mut written, letter);
            written
        })
    }

    /// The secret in the forms in which servers write it.
    fn forms() -> Vec<String> {
        let percent =
            |text: &str| each(text, |all, letter| write!(all, "%{:02X}", u32::from(letter)).unwrap());
        let some = |from: &str, to: &str| SECRET.replace(from, to);
        vec![
            SECRET.to_owned(),
            format!("Authorization: Bearer {SECRET}"),
            format!("Token {SECRET}"),
            SECRET.to_uppercase(),
            some("hunter", "Hunter"),
            percent(SECRET),
            percent(SECRET).to_lowercase(),
            percent(&percent(SECRET)),
            some("/", "%2f").replace('+', "%2B"),
            some("/", "%252f"),
            some("/", r"\/"),
            some("/", r"\\/"),
            each(SECRET, |all, letter| write!(all, "\\u{:04x}", u32::from(letter)).unwrap()),
            each(SECRET, |all, letter| write!(all, "\\u{:04X}", u32::from(letter)).unwrap()),
            each(SECRET, |all, letter| write!(all, "\\x{:02x}", u32::from(letter)).unwrap()),
            each(SECRET, |all, letter| write!(all, "&#{};", u32::from(letter)).unwrap()),
            each(SECRET, |all, letter| write!(all, "&#x{:X};", u32::from(letter)).unwrap()),
            some("/", "&sol;").replace('+', "&plus;").replace('=', "&equals;"),
            some("a", "&#97").replace('=', "&amp;#61;"),
            some("a", "&#x25;61"),
            percent(&some("a", "&#97;")),
            some("a", r"%5Cu0061"),
            BASE64_STANDARD.encode(SECRET),
            BASE64_STANDARD.encode(format!("user:{SECRET}")),
            BASE64_URL_SAFE_NO_PAD.encode(format!("{{\"authorization\":\"Bearer {SECRET}\"}}")),
            percent(&BASE64_STANDARD.encode(format!("Bearer {SECRET}"))),
            each(SECRET, |all, letter| write!(all, "{:02x}", u32::from(letter)).unwrap()),
            each(SECRET, |all, letter| write!(all, "{:02X} ", u32::from(letter)).unwrap()),
            each(SECRET, |all, letter| all.extend([letter, '\0'])),
            each(SECRET, |all, letter| all.extend([letter, '\n'])),
        ]
    }

    #[test]
    fn a_credential_is_found_in_every_form_and_no_byte_of_it_is_passed_on() {
        let long = "x".repeat(2 * BLOCK + 100);
        for form in forms() {
            // Half of it is in another block.
            let before = &long[..2 * BLOCK - form.len() / 2];
            for text in [form.clone(), format!("{before}{form}{long}"), format!("{form}{long}")] {
                for length in [1, 4_096, text.len()] {
                    let (passed, is_whole) = passed(&text.as_bytes().chunks(length).collect::<Vec<_>>());
                    let passed = passed.concat();
                    let start = text.len().min(text.find(&form).unwrap());
                    assert!(
                        !is_whole && passed.len() <= start && text.as_bytes().starts_with(&passed),
                        "{form}"
                    );
                }
            }
            let headers = HeaderMap::from_iter([(
                "x-got".parse().unwrap(),
                form.replace(['\0', '\n'], " ").parse().unwrap(),
            )]);
            assert!(echo().is_in(&headers), "{form}");
        }
        let name = HeaderMap::from_iter([(
            "x-planted-hunter2-0123456789-abcdef".parse().unwrap(),
            "1".parse().unwrap(),
        )]);
        assert!(echo().is_in(&name));
    }

    /// A provider that guesses sees the same for every wrong guess.
    #[test]
    fn the_pieces_of_a_response_depend_on_its_length_alone() {
        let page = |guess: &str, length: usize| {
            let mut page = format!("<p>{guess}</p>").repeat(3);
            page.push_str(&"y".repeat(length - page.len()));
            page + guess
        };
        for length in [500, 3 * BLOCK - 1] {
            for part in [1_000, 1 << 20] {
                let mut seen = Vec::new();
                // With all but the last letter; a punctuation mark after it doesn't count.
                for shared in 0..SECRET.len() - 1 {
                    let guess = format!("{:?<1$}", &SECRET[..shared], SECRET.len());
                    for form in [guess.clone(), BASE64_STANDARD.encode(&guess)] {
                        let page = page(&form, length);
                        let (mut echo, mut sizes) = (echo(), Vec::new());
                        for part in page.as_bytes().chunks(part).map(Some).chain([None]) {
                            assert!(!echo.shows(part), "{guess}");
                            let pieces = std::iter::from_fn(|| echo.next_piece());
                            sizes.push(pieces.map(|piece| piece.len()).collect::<Vec<_>>());
                        }
                        assert_eq!(sizes.concat().iter().sum::<usize>(), page.len());
                        seen.push((form.len(), sizes));
                    }
                }
                seen.sort();
                seen.dedup();
                assert_eq!(seen.len(), 2, "one for each length: {seen:?}");
            }
        }
    }

    #[test]
    fn a_response_to_a_request_without_a_credential_is_not_searched() {
        let mut echo = EchoDetector::new(None);
        assert!(!echo.is_on() && !echo.shows(Some(SECRET.as_bytes())) && echo.next_piece().is_none());
    }

    #[test]
    fn each_of_several_credentials_is_found_and_the_longest_holds_back() {
        let long = "another-".repeat(1_000);
        let set = || {
            let auxiliary = vec![Needles::new(["second-planted"]), Needles::new([long.as_str()])];
            NeedleSet { main: Needles::new([SECRET]), auxiliary }
        };
        let headers = |text: &str| HeaderMap::from_iter([("x-got".parse().unwrap(), text.parse().unwrap())]);
        for secret in [SECRET, "second-planted", &long] {
            let mut echo = EchoDetector::new(Some(set()));
            assert!(echo.is_in(&headers(secret)), "{secret}");
            let (start, end) = secret.split_at(5);
            assert!(!echo.shows(Some(start.as_bytes())) && echo.shows(Some(end.as_bytes())), "{secret}");
        }
        let mut echo = EchoDetector::new(Some(set()));
        assert!(!echo.is_in(&headers("none")) && !echo.shows(Some(&vec![b'x'; 4 * BLOCK])));
        let passed = std::iter::from_fn(|| echo.next_piece()).map(|piece| piece.len()).sum::<usize>();
        assert_eq!(passed, 4 * BLOCK - Needles::new([long.as_str()]).held_back());
    }

    #[test]
    fn a_long_response_is_held_back_by_a_bounded_length() {
        let (mut echo, part) = (echo(), vec![b'%'; 64 << 10]);
        for _ in 0..16 {
            assert!(!echo.shows(Some(&part)));
            while echo.next_piece().is_some() {}
            let held = echo.0.as_ref().unwrap().held.len();
            assert!(held < 3 * BLOCK, "{held}");
        }
    }

    proptest! {
        #[test]
        fn what_shows_no_credential_is_passed_on_unchanged(
            text in r"[plantedhu2%\\&#;x\-/0-9]{0,300}", cuts in proptest::collection::vec(0_usize..300, 0..6),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<_> = cuts.windows(2).map(|ends| &text.as_bytes()[ends[0]..ends[1]]).collect();
            let (whole, is_whole) = passed(&parts);
            prop_assert!(is_whole);
            prop_assert_eq!(whole.concat(), text.as_bytes());
            let shown = [&parts[..], &[SECRET.as_bytes()]].concat();
            prop_assert!(!passed(&shown).1);
        }
    }
}
