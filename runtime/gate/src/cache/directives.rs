//! The request's own cache directives (`Cache-Control`). Those of answers play no part: the control planes of clouds
//! send `no-cache` or `no-store` with every answer. That is why a library with the semantics of an HTTP cache does not
//! fit, and why doubt is resolved differently here: a directive that can't be read counts as the strictest, and of two
//! the stricter holds.

use std::time::{Duration, Instant};

use http::HeaderMap;
use http::header::{
    CACHE_CONTROL, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, PRAGMA, RANGE,
};

/// The directive of a request that only the cache may answer.
const ONLY: &str = "only-if-cached";

/// The cache directives of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheDirectives {
    /// How long ago its answer may have been requested.
    pub(crate) max_age: Option<Duration>,
    /// Whether it may only be answered from the cache.
    pub(crate) only_if_cached: bool,
}

impl CacheDirectives {
    /// Reads the directives. None if the request bypasses the cache.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        // The cache has only whole, unconditional answers.
        let own = [RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE];
        if own.iter().any(|name| headers.contains_key(name)) {
            return None;
        }
        let mut directives = Self::default();
        for line in headers.get_all(CACHE_CONTROL) {
            // Text that is not ASCII can't be read, so it counts as the strictest directive.
            for directive in line.to_str().unwrap_or("no-store").split(',') {
                directives.add(directive.trim())?;
            }
        }
        // The older header, which some clients still send.
        if !headers.contains_key(CACHE_CONTROL) && headers.contains_key(PRAGMA) {
            directives.at_most(Duration::ZERO);
        }
        Some(directives)
    }

    fn add(&mut self, directive: &str) -> Option<()> {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "no-store" => return None,
            "no-cache" => self.at_most(Duration::ZERO),
            ONLY => self.only_if_cached = true,
            "max-age" => self.at_most(seconds(value)),
            // The others are about freshness, which an answer without directives does not have.
            _ => {}
        }
        Some(())
    }

    fn at_most(&mut self, age: Duration) {
        self.max_age = Some(self.max_age.map_or(age, |known| known.min(age)));
    }

    /// The earliest time at which the answer to this request, which came at `arrived`, may have been requested.
    pub(crate) fn floor(&self, arrived: Instant, now: Instant) -> Option<Instant> {
        floor(self.max_age?, arrived, now)
    }
}

/// Whether only the cache may answer a request with these headers, so that it is never sent to the cloud.
pub(crate) fn is_for_it_alone(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(CACHE_CONTROL).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|directive| directive.trim().eq_ignore_ascii_case(ONLY))
}

/// The earliest time at which an answer may have been requested that is at most this old now, or was requested after
/// its reader had arrived.
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

    fn read(lines: Lines<'_>) -> Option<CacheDirectives> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        CacheDirectives::read(&headers)
    }

    fn directives(max_age: Option<u64>, only_if_cached: bool) -> CacheDirectives {
        CacheDirectives { max_age: max_age.map(Duration::from_secs), only_if_cached }
    }

    #[test]
    fn unreadable_directives_are_strict_and_the_stricter_of_two_holds() {
        let control = "cache-control";
        let rows: [(Lines<'_>, Option<CacheDirectives>); 20] = [
            (&[], Some(directives(None, false))),
            (&[(control, "")], Some(directives(None, false))),
            (&[(control, "max-age=30")], Some(directives(Some(30), false))),
            (&[(control, "Max-Age = \"30\" , max-stale=5")], Some(directives(Some(30), false))),
            (&[(control, "max-age=30, max-age=20")], Some(directives(Some(20), false))),
            (&[(control, "max-age=30"), (control, "max-age=40")], Some(directives(Some(30), false))),
            (&[(control, "max-age=30, no-cache")], Some(directives(Some(0), false))),
            (&[(control, "max-age=-1")], Some(directives(Some(0), false))),
            (&[(control, "max-age")], Some(directives(Some(0), false))),
            (&[(control, "max-age=99999999999999999999")], Some(directives(Some(u64::MAX), false))),
            (&[(control, "only-if-cached, max-age=9")], Some(directives(Some(9), true))),
            (&[(control, "no-store")], None),
            (&[(control, "max-age=9, no-store")], None),
            (&[(control, "max-age=9, é")], None),
            (&[("pragma", "no-cache")], Some(directives(Some(0), false))),
            (&[("pragma", "no-cache"), (control, "max-age=9")], Some(directives(Some(9), false))),
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
    fn an_answer_requested_after_the_read_arrived_is_never_too_old() {
        let arrived = Instant::now() + Duration::from_hours(1);
        let after = |seconds| arrived + Duration::from_secs(seconds);
        let floor = |age, now| directives(age, false).floor(arrived, now);
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
