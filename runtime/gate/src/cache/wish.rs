//! What a request itself says about being answered from a cache. Only its side of the matter: what an answer says plays
//! no part, since the control planes of clouds say `no-cache` or `no-store` on everything. That is why the semantics of
//! an HTTP cache as a library has them don't fit, and why doubt falls on the other side than there: a directive that
//! can't be read is the strictest, and of two the stricter holds.

use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::{
    CACHE_CONTROL, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, PRAGMA, RANGE,
};

/// What a request says that is for the cache alone.
const ONLY: &str = "only-if-cached";

/// What a request wishes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// How long ago its answer may have been asked for.
    pub(crate) max_age: Option<Duration>,
    /// Whether it may be answered from the cache only.
    pub(crate) only_if_cached: bool,
}

impl Wish {
    /// What a request with these headers wishes; `None` if the cache isn't to know of it.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        // The cache knows whole answers without conditions.
        let own = [RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE];
        if own.iter().any(|name| headers.contains_key(name)) {
            return None;
        }
        let mut wish = Self::default();
        for line in headers.get_all(CACHE_CONTROL) {
            // Text that isn't ASCII can't be read, so it says anything.
            for directive in line.to_str().unwrap_or("no-store").split(',') {
                wish.add(directive.trim())?;
            }
        }
        // What clients said before there was the other, and some still do.
        if !headers.contains_key(CACHE_CONTROL) && headers.contains_key(PRAGMA) {
            wish.at_most(Duration::ZERO);
        }
        Some(wish)
    }

    fn add(&mut self, directive: &str) -> Option<()> {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "no-store" => return None,
            "no-cache" => self.at_most(Duration::ZERO),
            ONLY => self.only_if_cached = true,
            "max-age" => self.at_most(seconds(value)),
            // The others are about freshness, which an answer that says nothing of it hasn't got.
            _ => {}
        }
        Some(())
    }

    fn at_most(&mut self, age: Duration) {
        self.max_age = Some(self.max_age.map_or(age, |known| known.min(age)));
    }

    /// Before when nothing may have been asked for that answers this request now, if it came at `arrived`.
    pub(crate) fn floor(&self, arrived: Instant, now: Instant) -> Option<Instant> {
        floor(self.max_age?, arrived, now)
    }
}

/// Whether a request with these headers is for the cache alone, and the cloud is never to see it.
pub(crate) fn is_for_it_alone(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CACHE_CONTROL).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|directive| directive.trim().eq_ignore_ascii_case(ONLY))
}

/// Before when nothing may have been asked for that is at most this old now, or that was asked for after whoever wants
/// it had come.
pub(crate) fn floor(age: Duration, arrived: Instant, now: Instant) -> Option<Instant> {
    now.checked_sub(age).map(|floor| floor.min(arrived))
}

fn seconds(value: &str) -> Duration {
    let value = value.trim().trim_matches('"');
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    // A number too large for its type is as good as no bound.
    if is_number { Duration::from_secs(value.parse().unwrap_or(u64::MAX)) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    type Lines<'a> = &'a [(&'a str, &'a str)];

    fn read(lines: Lines<'_>) -> Option<Wish> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        Wish::read(&headers)
    }

    fn wish(max_age: Option<u64>, only_if_cached: bool) -> Wish {
        Wish { max_age: max_age.map(Duration::from_secs), only_if_cached }
    }

    #[test]
    fn doubt_is_strict_and_the_stricter_of_two_holds() {
        let control = "cache-control";
        let rows: [(Lines<'_>, Option<Wish>); 20] = [
            (&[], Some(wish(None, false))),
            (&[(control, "")], Some(wish(None, false))),
            (&[(control, "max-age=30")], Some(wish(Some(30), false))),
            (&[(control, "Max-Age = \"30\" , max-stale=5")], Some(wish(Some(30), false))),
            (&[(control, "max-age=30, max-age=20")], Some(wish(Some(20), false))),
            (&[(control, "max-age=30"), (control, "max-age=40")], Some(wish(Some(30), false))),
            (&[(control, "max-age=30, no-cache")], Some(wish(Some(0), false))),
            (&[(control, "max-age=-1")], Some(wish(Some(0), false))),
            (&[(control, "max-age")], Some(wish(Some(0), false))),
            (&[(control, "max-age=99999999999999999999")], Some(wish(Some(u64::MAX), false))),
            (&[(control, "only-if-cached, max-age=9")], Some(wish(Some(9), true))),
            (&[(control, "no-store")], None),
            (&[(control, "max-age=9, no-store")], None),
            (&[(control, "max-age=9, é")], None),
            (&[("pragma", "no-cache")], Some(wish(Some(0), false))),
            (&[("pragma", "no-cache"), (control, "max-age=9")], Some(wish(Some(9), false))),
            (&[("range", "bytes=0-9")], None),
            (&[("if-none-match", "\"1\"")], None),
            (&[("if-modified-since", "x")], None),
            (&[("if-match", "*")], None),
        ];
        for (lines, expected) in rows {
            assert_eq!(read(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn what_is_asked_for_after_the_request_came_is_never_too_old_for_it() {
        let arrived = Instant::now() + Duration::from_hours(1);
        let after = |seconds| arrived + Duration::from_secs(seconds);
        let floor = |age, now| wish(age, false).floor(arrived, now);
        assert_eq!(floor(None, after(5)), None);
        assert_eq!(floor(Some(0), after(0)), Some(arrived));
        assert_eq!(floor(Some(0), after(5)), Some(arrived));
        assert_eq!(floor(Some(3), after(5)), Some(arrived));
        assert_eq!(floor(Some(9), after(5)), Some(after(5).checked_sub(Duration::from_secs(9)).unwrap()));
        assert_eq!(floor(Some(u64::MAX), after(5)), None);
    }

    proptest! {
        #[test]
        fn arbitrary_directives_are_read_without_panic(value in "[ -~]{0,40}") {
            let _ = read(&[("cache-control", &value)]);
        }
    }
}
