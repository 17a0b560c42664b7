//! How operators and providers write paths, and the keys that are made from a path's segments. They are read as strictly as
//! the other patterns. A path is first converted into the canonical form of a request's path, so that `/%61` and `/a` are
//! the same here too.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::request::{canonical_path, check_single_reading};

/// A path and everything below it: `/subscriptions/1` matches itself and `/subscriptions/1/vms`, but not
/// `/subscriptions/12`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPrefix(String);

impl PathPrefix {
    /// Whether a canonical path is the prefix or lies below it, for every server. The prefix `/` covers every path.
    ///
    /// # Errors
    /// Why some servers might see another path, as a verb phrase.
    pub(crate) fn covers(&self, path: &str) -> Result<bool, &'static str> {
        match path.strip_prefix(self.0.as_str()) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                if !self.0.is_empty() {
                    check_single_reading(rest)?;
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The length of the prefix if it covers a canonical path as [`Self::covers`] says, without regard to case.
    ///
    /// # Errors
    /// As [`Self::covers`].
    pub(crate) fn covers_in_any_case(&self, path: &str) -> Result<Option<usize>, &'static str> {
        let length = self.0.len();
        let rest = path.split_at_checked(length).filter(|(start, _)| start.eq_ignore_ascii_case(&self.0));
        match rest {
            Some((_, rest)) if rest.is_empty() || rest.starts_with('/') => {
                if length > 0 {
                    check_single_reading(rest)?;
                }
                Ok(Some(length))
            }
            _ => Ok(None),
        }
    }
}

impl FromStr for PathPrefix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |cause| Error::Syntax {
            kind: "path prefix",
            text: text.to_owned(),
            cause,
            example: "/subscriptions/1, which matches itself and everything below it, or / for everything",
        };
        if text.contains('*') {
            return Err(wrong("has a *, which a prefix doesn't need"));
        }
        let path = canonical_path(text).map_err(wrong)?;
        Ok(Self(path.strip_suffix('/').unwrap_or(&path).to_owned()))
    }
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "/" } else { &self.0 })
    }
}

/// A path where `*` matches one segment that isn't empty, and `**` at the end matches any number of further segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    segments: Vec<Segment>,
    open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Any,
    Exact(String),
}

impl PathPattern {
    /// If the pattern matches this canonical path: the segments that a `*` matched, in order. With `fold_case` case is
    /// ignored, and the segments are in lower case.
    pub(crate) fn matches(&self, path: &str, fold_case: bool) -> Option<Vec<String>> {
        let mut left = path.strip_prefix('/')?.split('/');
        let mut found = Vec::new();
        for segment in &self.segments {
            let given = left.next()?;
            match segment {
                Segment::Any if given.is_empty() => return None,
                Segment::Any => found.push(given),
                Segment::Exact(exact) if fold_case && exact.eq_ignore_ascii_case(given) => {}
                Segment::Exact(exact) if exact == given => {}
                Segment::Exact(_) => return None,
            }
        }
        // Copied only where the whole path matches: a provider may have a thousand rules, and send long paths.
        let copy = |found: &str| if fold_case { found.to_ascii_lowercase() } else { found.to_owned() };
        (self.open || left.next().is_none()).then(|| found.into_iter().map(copy).collect())
    }

    /// Whether the pattern matches a path that the prefix matches, too.
    pub(crate) fn overlaps(&self, prefix: &PathPrefix, fold_case: bool) -> bool {
        let wanted: Vec<_> = prefix.0.split('/').skip(1).collect();
        let is_same = |segment: &Segment, wanted: &str| match segment {
            Segment::Any => true,
            Segment::Exact(exact) if fold_case => exact.eq_ignore_ascii_case(wanted),
            Segment::Exact(exact) => exact == wanted,
        };
        (self.open || self.segments.len() >= wanted.len())
            && self.segments.iter().zip(wanted).all(|(segment, wanted)| is_same(segment, wanted))
    }

    fn wildcards(&self) -> usize {
        self.segments.iter().filter(|segment| **segment == Segment::Any).count()
    }
}

impl FromStr for PathPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |cause| Error::Syntax {
            kind: "path pattern",
            text: text.to_owned(),
            cause,
            example: "/networks/*/subnets, or /networks/** for everything below",
        };
        let path = canonical_path(text).map_err(wrong)?;
        let (closed, open) = match path.strip_suffix("/**") {
            Some(rest) => (rest, true),
            None => (path.as_str(), false),
        };
        let mut segments = Vec::new();
        // The first piece is the empty text before the leading slash.
        for segment in closed.split('/').skip(1) {
            segments.push(match segment {
                "*" => Segment::Any,
                _ if segment.contains('*') => {
                    return Err(wrong("has a * that isn't a whole segment, or a ** that isn't the last"));
                }
                _ => Segment::Exact(segment.to_owned()),
            });
        }
        Ok(Self { segments, open })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Any => f.write_str("/*")?,
                Segment::Exact(exact) => write!(f, "/{exact}")?,
            }
        }
        f.write_str(if self.open { "/**" } else { "" })
    }
}

/// The longest key that is kept whole, in bytes: Azure's longest, of a subscription and a resource group, have 150.
const MAX_KEY: usize = 256;

/// The key of a limit or the name of a cache scope. `{1}` is replaced with the first segment of the path that a `*` matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// Counted from 0.
    Segment(usize),
}

impl KeyPattern {
    /// The key with the segments filled in. A key longer than any name of a cloud is replaced with its digest: thousands are
    /// kept, and a provider may send paths of 64 KiB. A segment that the path pattern doesn't have stays empty; rules with
    /// one are refused when they are loaded.
    pub(crate) fn fill(&self, segments: &[String]) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::Segment(index) => segments.get(*index).map_or("", String::as_str),
        });
        let key: String = pieces.collect();
        if key.len() <= MAX_KEY { key } else { BASE64_STANDARD.encode(Sha256::digest(key)) }
    }

    /// The key without its numbers. Keys that differ only in numbers are one limit: the segment that names the bucket may be
    /// the first of one path and the second of another.
    pub(crate) fn name(&self) -> String {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Segment(_) => "{}",
            })
            .collect()
    }

    /// Whether the key is the same for all paths.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Checks that the path has a `*` for each number of the key.
    ///
    /// # Errors
    /// [`Error::Syntax`].
    pub fn check(&self, path: &PathPattern) -> Result<(), Error> {
        let wildcards = path.wildcards();
        if self.0.iter().any(|piece| matches!(piece, Piece::Segment(index) if *index >= wildcards)) {
            return Err(wrong_key(&self.to_string(), "has a number for which the path of its rule has no *"));
        }
        Ok(())
    }
}

fn wrong_key(text: &str, cause: &'static str) -> Error {
    Error::Syntax { kind: "key", text: text.to_owned(), cause, example: "reads or writes/{1}" }
}

impl FromStr for KeyPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(wrong_key(text, "is empty"));
        }
        let mut pieces = Vec::new();
        let mut left = text;
        while let Some((before, rest)) = left.split_once('{') {
            let unclosed = || wrong_key(text, "has a { without a number from 1 and a }");
            let (number, after) = rest.split_once('}').ok_or_else(unclosed)?;
            let digits = number.bytes().all(|byte| byte.is_ascii_digit());
            let index =
                number.parse::<usize>().ok().filter(|_| digits).and_then(|number| number.checked_sub(1));
            push_text(&mut pieces, before, text)?;
            pieces.push(Piece::Segment(index.ok_or_else(unclosed)?));
            left = after;
        }
        push_text(&mut pieces, left, text)?;
        Ok(Self(pieces))
    }
}

fn push_text(pieces: &mut Vec<Piece>, piece: &str, whole: &str) -> Result<(), Error> {
    if piece.contains('}') {
        return Err(wrong_key(whole, "has a } without a {"));
    }
    if !piece.is_empty() {
        pieces.push(Piece::Text(piece.to_owned()));
    }
    Ok(())
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Segment(index) => write!(f, "{{{}}}", index + 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_a_segment_ends() {
        let rows = [
            ("/", "/", true),
            ("/", "/a", true),
            ("/a", "/a", true),
            ("/a", "/a/", true),
            ("/a/", "/a", true),
            ("/a", "/a/b", true),
            ("/a", "/ab", false),
            ("/a", "/a%2Fb", false),
            ("/a", "/A", false),
            ("/a%2fb", "/a%2Fb/c", true),
        ];
        for (prefix, path, expected) in rows {
            let covers = prefix.parse::<PathPrefix>().unwrap().covers(path);
            assert_eq!(covers, Ok(expected), "{prefix} for {path}");
            let prefix: PathPrefix = prefix.parse().unwrap();
            let in_any_case = prefix.covers_in_any_case(path).map(|length| length.is_some());
            assert_eq!(in_any_case, Ok(expected || path == "/A"), "{prefix} for {path}");
            assert_eq!(prefix.covers_in_any_case(&path.to_uppercase()), prefix.covers_in_any_case(path));
        }
        for path in ["/a/b%2Fc", "/a/%252e%252e/b", "/a/b;c", "/a/%C0%AE"] {
            let prefix: PathPrefix = "/a".parse().unwrap();
            assert!(prefix.covers(path).is_err() && prefix.covers_in_any_case(path).is_err(), "{path}");
            assert_eq!("/".parse::<PathPrefix>().unwrap().covers(path), Ok(true), "{path}");
            assert_eq!("/b".parse::<PathPrefix>().unwrap().covers(path), Ok(false), "{path}");
        }
    }

    #[test]
    fn a_path_pattern_returns_the_segments_of_its_stars() {
        let rows = [
            ("/", "/", false, Some(&[][..])),
            ("/a", "/a", false, Some(&[])),
            ("/a", "/a/", false, None),
            ("/a/*", "/a/B", false, Some(&["B"])),
            ("/a/*", "/a/", false, None),
            ("/a/*", "/a/b/c", false, None),
            ("/a/*/c/*", "/a/b/c/d", false, Some(&["b", "d"])),
            ("/a/*/c/*", "/A/B/C/D", false, None),
            ("/a/*/c/*", "/A/B/C/D", true, Some(&["b", "d"])),
            ("/a/**", "/a", false, Some(&[])),
            ("/a/**", "/a/b/c", false, Some(&[])),
            ("/a/**", "/ab", false, None),
            ("/a/*/**", "/a/b/c/d", false, Some(&["b"])),
            ("/**", "/", false, Some(&[])),
            ("/**", "/a/b", false, Some(&[])),
        ];
        for (pattern, path, fold_case, expected) in rows {
            let found = pattern.parse::<PathPattern>().unwrap().matches(path, fold_case);
            let expected =
                expected.map(|segments| segments.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
            assert_eq!(found, expected, "{pattern} for {path}");
        }
    }

    #[test]
    fn a_path_pattern_is_shown_as_it_is_written() {
        for text in ["/", "/a", "/a/", "/a/*", "/a/*/c/*", "/a/**", "/a/*/**", "/**"] {
            assert_eq!(text.parse::<PathPattern>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_key_is_filled_with_the_segments_of_its_path() {
        let segments = ["s1".to_owned(), "g2".to_owned()];
        for (key, expected) in [("reads", "reads"), ("{2}/{1}", "g2/s1"), ("writes/{1}/x", "writes/s1/x")] {
            assert_eq!(key.parse::<KeyPattern>().unwrap().fill(&segments), expected);
        }
        for (key, name, plain) in
            [("reads", "reads", true), ("{2}/{1}", "{}/{}", false), ("a/{3}", "a/{}", false)]
        {
            let key: KeyPattern = key.parse().unwrap();
            assert_eq!((key.name().as_str(), key.is_plain()), (name, plain));
        }
        let path: PathPattern = "/a/*".parse().unwrap();
        assert!("x/{1}".parse::<KeyPattern>().unwrap().check(&path).is_ok());
        assert!("x/{2}".parse::<KeyPattern>().unwrap().check(&path).is_err());
    }

    #[test]
    fn the_key_of_a_long_path_is_short_and_still_unique() {
        let key: KeyPattern = "writes/{1}".parse().unwrap();
        let filled = |length: usize, end: &str| key.fill(&["x".repeat(length) + end]);
        assert_eq!(filled(248, "a"), format!("writes/{}a", "x".repeat(248)));
        let (one, other) = (filled(60_000, "a"), filled(60_000, "b"));
        assert!(one.len() <= MAX_KEY && one != other && one == filled(60_000, "a"), "{one} {other}");
    }

    #[test]
    fn a_mistake_is_refused_with_a_valid_example() {
        fn message<P: FromStr<Err = Error> + fmt::Debug>(text: &str) -> String {
            text.parse::<P>().expect_err(text).to_string()
        }
        for text in ["", "a", "//a", "/a/*", "/a?b", "/a/../b"] {
            assert!(message::<PathPrefix>(text).contains("/subscriptions/1"), "{text}");
        }
        for text in ["", "a", "/a*", "/**/a", "/a/***", "/a?b"] {
            assert!(message::<PathPattern>(text).contains("/networks/**"), "{text}");
        }
        for text in ["", "{", "{}", "{0}", "{+1}", "{x}", "a}", "{1}}"] {
            assert!(message::<KeyPattern>(text).contains("writes/{1}"), "{text}");
        }
    }
}
