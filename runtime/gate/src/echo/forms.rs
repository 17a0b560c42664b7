//! The forms in which a server may repeat a secret, and one search for all of them. Pure.
//!
//! Only ASCII letters and digits count, in lower case. So a change of case, line breaks, separators, padding, UTF-16 and the
//! difference between base64 and base64url change nothing. [`super::decoder`] undoes escapes before this search.

use std::fmt;
use std::sync::Arc;

use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::DFA;
use aho_corasick::{Anchored, StartKind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use zeroize::Zeroizing;

use super::decoder::Decoders;

pub(super) use aho_corasick::automaton::StateID;

/// How many letters and digits a secret has at least. A shorter one may be a word of any response.
const MIN_LENGTH: usize = 8;

/// How many of the last letters and digits of a form are searched for. The last ones, since tokens of one issuer begin alike.
const MAX_LENGTH: usize = 64;

/// The unit in which a response is passed on, in bytes, so that the sizes of its pieces say nothing.
pub(crate) const BLOCK: usize = 16 << 10;

/// How many bytes a server may take for each byte of a secret: `\u002b` has six, and some of them may be escaped again.
const MAX_EXPANSION: usize = 8;

/// A search for secrets. Clones share it. It has no readable `Debug`.
#[derive(Clone)]
pub(crate) struct Needles(Arc<Search>);

struct Search {
    automaton: DFA,
    start: StateID,
    held_back: usize,
}

impl fmt::Debug for Needles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Needles")
    }
}

impl Needles {
    /// A search for these secrets.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut patterns, mut longest) = (Vec::new(), 0);
        for secret in secrets {
            longest = longest.max(secret.len());
            patterns.extend(forms(secret.as_bytes()));
        }
        // Some thousand states at most: a credential has few secrets, and each of their forms is cut.
        let build = |patterns: &[Zeroizing<Vec<u8>>]| {
            let mut builder = DFA::builder();
            builder.start_kind(StartKind::Unanchored).prefilter(false);
            builder.build(patterns).ok()
        };
        let automaton =
            build(&patterns).or_else(|| build(&[])).expect("a few short patterns make an automaton");
        let start = automaton.start_state(Anchored::No).expect("the automaton searches from any position");
        let held_back = (longest * MAX_EXPANSION).next_multiple_of(BLOCK).max(BLOCK);
        Self(Arc::new(Search { automaton, start, held_back }))
    }

    /// How many bytes of a response are held back: more than any form of a secret takes. It doesn't depend on the response.
    pub(super) fn held_back(&self) -> usize {
        self.0.held_back
    }

    pub(super) fn start(&self) -> StateID {
        self.0.start
    }

    /// Reads a byte of a response. Returns whether a secret ends here.
    #[inline]
    pub(super) fn step(&self, state: &mut StateID, byte: u8) -> bool {
        let Some(letter) = folded(byte) else { return false };
        let automaton = &self.0.automaton;
        *state = automaton.next_state(Anchored::No, *state, letter);
        automaton.is_special(*state) && automaton.is_match(*state)
    }
}

/// A letter in lower case or a digit; `None` for all other bytes.
#[inline]
fn folded(byte: u8) -> Option<u8> {
    byte.is_ascii_alphanumeric().then(|| byte.to_ascii_lowercase())
}

fn fold(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(bytes.len()));
    text.extend(bytes.iter().filter_map(|byte| folded(*byte)));
    text
}

/// The forms of a secret, folded; none if it is too short.
fn forms(secret: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let plain = fold(secret);
    if plain.len() < MIN_LENGTH {
        return Vec::new();
    }
    let mut forms = vec![plain, decoded(secret), hexadecimal(secret)];
    forms.extend([0, 1, 2].map(|before| base64(secret, before)));
    forms.retain(|form| form.len() >= MIN_LENGTH);
    for form in &mut forms {
        let surplus = form.len().saturating_sub(MAX_LENGTH);
        form.drain(..surplus);
    }
    forms
}

/// A secret that itself looks like an escape is decoded too where a response is.
fn decoded(secret: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut decoder = Decoders::default();
    let mut decoded = Zeroizing::new(Vec::with_capacity(secret.len() + 4));
    for byte in secret {
        decoder.push(*byte, |byte| decoded.push(byte));
    }
    decoder.finish(|byte| decoded.push(byte));
    fold(&decoded)
}

fn hexadecimal(secret: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(2 * secret.len()));
    for byte in secret {
        let digits = [byte >> 4, byte & 15].map(usize::from);
        text.extend(digits.iter().filter_map(|digit| b"0123456789abcdef".get(*digit)));
    }
    text
}

/// The part of the base64 text that depends on the secret alone, if so many bytes, modulo 3, come before it.
fn base64(secret: &[u8], before: usize) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(vec![0; before]);
    bytes.extend_from_slice(secret);
    let text = Zeroizing::new(BASE64_STANDARD_NO_PAD.encode(&*bytes));
    let (first, end) = ((8 * before).div_ceil(6), 8 * bytes.len() / 6);
    fold(text.as_bytes().get(first..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "planted-hunter2/0123456789+abcdef=";

    fn finds(secret: &str, text: &[u8]) -> bool {
        let needles = Needles::new([secret]);
        let mut state = needles.start();
        text.iter().any(|byte| needles.step(&mut state, *byte))
    }

    #[test]
    fn the_base64_of_a_secret_is_found_wherever_in_the_encoded_text_it_stands() {
        use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
        // Letters that need the last bits of their neighbors, and long enough to be cut.
        for secret in [SECRET, "zzz~~~zzz???zz>>>", &"long".repeat(500)] {
            for (before, after) in
                [("", ""), ("a", "b"), ("ab", ""), ("Bearer ", "\r\n"), ("{\"k\":\"", "\"}")]
            {
                let text = [before, secret, after].concat();
                for encoded in [BASE64_STANDARD.encode(&text), BASE64_URL_SAFE_NO_PAD.encode(&text)] {
                    let in_lines = encoded.as_bytes().chunks(76).collect::<Vec<_>>().join(&b"\r\n"[..]);
                    assert!(
                        finds(secret, encoded.as_bytes()) && finds(secret, &in_lines),
                        "{before} {secret}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_short_secret_is_not_searched_for_and_one_of_eight_letters_is() {
        assert!(!finds("hunter2", b"hunter2") && !finds("??", b"??") && !finds("", b""));
        assert!(finds("hunter-22", b"the password is hunter-22.") && finds("hunter-22", b"HUNTER-22"));
        assert!(!finds("hunter-22", b"the password is hunter-2."));
    }

    #[test]
    fn the_length_that_is_held_back_depends_on_the_secrets_alone() {
        for (length, blocks) in [(0, 1), (64, 1), (2048, 1), (2049, 2), (64 << 10, 32)] {
            assert_eq!(Needles::new([&*"x".repeat(length)]).held_back(), blocks * BLOCK, "{length}");
        }
    }

    #[test]
    fn a_search_shows_no_secret() {
        assert_eq!(format!("{:?}", Needles::new([SECRET])), "Needles");
    }
}
