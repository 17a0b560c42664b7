//! What one answer of the cloud says about limits. The cloud's headers are untrusted: only what has one clear meaning
//! is read, and only a bounded part.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, StatusCode};

use crate::limits::buckets::LimitId;
use crate::limits::limit::ToldBy;
use crate::refusals::RefusalMeaning;

/// The shortest pause: half of the clouds say 0 or 1 for "soon".
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest pause. A probe costs nothing, while a typing error of a cloud would cost a day.
const LONGEST: Duration = Duration::from_hours(1);
/// The most header lines of remaining quota that are read; real answers have up to 8.
const MOST_LINES: usize = 16;
/// The most values of one line that are read; Azure has up to 4.
const MOST_VALUES: usize = 8;
/// The header of the IETF draft.
const STANDARD: &str = "ratelimit";
/// The longest value that can be a number after a name.
const LONGEST_VALUE: usize = 128;

/// What one answer says about limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Feedback {
    /// The refusal, if the request was refused for now.
    pub(crate) refused: Option<CloudRefusal>,
    /// How long the object of the request is closed to changes, if it is locked.
    pub(crate) locked: Option<Duration>,
    /// How many more requests the cloud takes. The least of several numbers, as the cloud's limits can't be matched
    /// with ours.
    pub(crate) remaining: Option<u32>,
    /// The limits for which answers have a number of their own, and how many more requests this answer says that each takes.
    pub(crate) told: Vec<(LimitId, Option<u32>)>,
}

/// Where answers tell how many more requests a limit takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldLimit {
    pub(crate) limit: LimitId,
    pub(crate) by: ToldBy,
}

/// The refusal of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CloudRefusal {
    /// How long the cloud asks to wait, if it says so.
    pub(crate) after: Option<Duration>,
    /// Whether the number of requests is the cause, as far as can be told: true for a 429. A 503 is about the cloud's
    /// health.
    pub(crate) throttled: bool,
}

impl Feedback {
    /// Reads the head of an answer with this meaning, if the provider declares one. A date is compared with `now` where the
    /// cloud does not send its own clock. A header by which one of the limits is told says nothing about others.
    pub(crate) fn read(
        (status, meaning): (StatusCode, Option<RefusalMeaning>),
        headers: &HeaderMap,
        limits: &[ToldLimit],
        now: SystemTime,
    ) -> Self {
        let after = retry_after(headers, now);
        let refused = match (meaning, status) {
            (Some(RefusalMeaning::Throttled), _) | (None, StatusCode::TOO_MANY_REQUESTS) => {
                Some(CloudRefusal { after, throttled: true })
            }
            // A 503 without a time is a failure like any other, and says nothing about the next request.
            (None, StatusCode::SERVICE_UNAVAILABLE) if after.is_some() => {
                Some(CloudRefusal { after, throttled: false })
            }
            _ => None,
        };
        let is_locked = meaning == Some(RefusalMeaning::Locked);
        let is_told = |name: &str| limits.iter().any(|limit| limit.by.header == name);
        let standard = if is_told(STANDARD) { None } else { standard(headers) };
        Self {
            refused,
            locked: is_locked.then(|| after.unwrap_or(SHORTEST)),
            remaining: remaining(headers, is_told).into_iter().chain(standard).min(),
            told: limits.iter().map(|told| (told.limit, told_by(headers, &told.by))).collect(),
        }
    }

    /// How many more requests the answer says that a limit takes.
    pub(crate) fn remaining_of(&self, limit: LimitId) -> Option<u32> {
        self.told.iter().find(|(told, _)| *told == limit).map_or(self.remaining, |(_, told)| *told)
    }

    /// Whether the answer names this limit as used up.
    pub(crate) fn is_used_up(&self, limit: LimitId) -> bool {
        self.told.contains(&(limit, Some(0)))
    }
}

/// The number that is told by a header: all of its value, or what follows a name and a semicolon.
fn told_by(headers: &HeaderMap, by: &ToldBy) -> Option<u32> {
    let lines = headers.get_all(&by.header).iter().take(MOST_LINES).filter_map(|line| line.to_str().ok());
    let values = lines.flat_map(|line| line.split(',').take(MOST_VALUES));
    let left = |value: &str| {
        if by.name.is_empty() {
            return number(value.trim());
        }
        let (name, left) = value.rsplit_once(';').filter(|_| value.len() <= LONGEST_VALUE)?;
        number(left.trim()).filter(|_| name.trim().eq_ignore_ascii_case(&by.name))
    };
    values.filter_map(left).min()
}

/// Reads `Retry-After`, in seconds or as a date. A date is compared with the cloud's own `Date`, as clocks may differ.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let date = |name| httpdate::parse_http_date(text(headers, name)?).ok();
    let stated = text(headers, RETRY_AFTER)?;
    let after = if stated.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number with too many digits is a very long time.
        Duration::from_secs(stated.parse().unwrap_or(u64::MAX))
    } else {
        let until = httpdate::parse_http_date(stated).ok()?;
        until.duration_since(date(DATE).unwrap_or(now)).unwrap_or_default()
    };
    Some(after.clamp(SHORTEST, LONGEST))
}

/// The value of a header that occurs just once.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let only = values.next().filter(|_| values.next().is_none())?;
    let text = only.to_str().ok()?.trim();
    (1..=LONGEST_VALUE).contains(&text.len()).then_some(text)
}

/// The least remaining quota, by the headers of Azure (`x-ms-ratelimit-remaining-*`, with several values, each after
/// the name of a policy and a semicolon) and of an early draft of the IETF as it is deployed (`ratelimit-remaining`,
/// often after `x-` and before a kind of request).
fn remaining(headers: &HeaderMap, is_told: impl Fn(&str) -> bool) -> Option<u32> {
    let is_quota = |name: &HeaderName| {
        let name = name.as_str();
        ["x-ms-ratelimit-remaining-", "ratelimit-remaining", "x-ratelimit-remaining"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
            && !is_told(name)
    };
    let lines = headers.iter().filter(|(name, _)| is_quota(name)).take(MOST_LINES);
    let texts = lines.filter_map(|(_, value)| value.to_str().ok());
    texts.flat_map(|line| line.split(',').take(MOST_VALUES)).filter_map(quota).min()
}

fn quota(value: &str) -> Option<u32> {
    if value.len() > LONGEST_VALUE {
        return None;
    }
    number(value.rsplit(';').next().unwrap_or(value).trim())
}

fn number(number: &str) -> Option<u32> {
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    // A larger number is as good as no limit.
    digits.then(|| number.parse().unwrap_or(u32::MAX))
}

/// The least remaining quota by the header of the IETF draft (draft-ietf-httpapi-ratelimit-headers), as in `RateLimit:
/// "hourly";r=50;t=30`. Leaves out policies that count anything but requests, according to `RateLimit-Policy`.
fn standard(headers: &HeaderMap) -> Option<u32> {
    let items = |name: &str| {
        let lines = headers.get_all(name).iter().take(MOST_LINES).filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| split(line, ',').into_iter().take(MOST_VALUES)).collect::<Vec<_>>()
    };
    let others: Vec<_> = items("ratelimit-policy")
        .into_iter()
        .filter_map(|item| Some((item, parameter(item, "qu")?)))
        .filter(|(_, unit)| unit.trim_matches('"') != "requests")
        .filter_map(|(item, _)| name(item))
        .collect();
    let left = |item| {
        number(parameter(item, "r").filter(|_| !name(item).is_some_and(|name| others.contains(&name)))?)
    };
    items(STANDARD).into_iter().filter(|item| item.len() <= LONGEST_VALUE).filter_map(left).min()
}

/// The quoted name of an item of a structured list.
fn name(item: &str) -> Option<&str> {
    let name = split(item, ';').first()?.trim();
    (name.len() > 2 && name.starts_with('"')).then_some(name)
}

/// The value of a parameter that an item has just once.
fn parameter<'a>(item: &'a str, key: &str) -> Option<&'a str> {
    let parameters = split(item, ';').into_iter().skip(1).filter_map(|part| part.trim().split_once('='));
    let mut values = parameters.filter(|(found, _)| *found == key).map(|(_, value)| value);
    values.next().filter(|_| values.next().is_none())
}

/// Splits a structured field at a separator outside of quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_end = |c: char| {
        let ends = c == separator && !is_quoted;
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && is_quoted && !is_escaped;
        ends
    };
    text.split(is_end).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    const DATE_LINE: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date_and_kept_in_bounds() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:00 GMT").unwrap();
        let rows = [
            (&[("retry-after", "17")][..], seconds(17)),
            (&[("retry-after", " 17 ")], seconds(17)),
            (&[("retry-after", "0")], seconds(1)),
            (&[("retry-after", "86400")], seconds(3600)),
            (&[("retry-after", "99999999999999999999999")], seconds(3600)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:30 GMT")], seconds(30)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT"), DATE_LINE], seconds(10)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], seconds(1)),
            (&[("retry-after", "Sat, 06 Nov 1999 08:49:37 GMT")], seconds(3600)),
            (&[], None),
            (&[("retry-after", "")], None),
            (&[("retry-after", "-5")], None),
            (&[("retry-after", "+5")], None),
            (&[("retry-after", "1.5")], None),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "5"), ("retry-after", "6")], None),
        ];
        for (lines, expected) in rows {
            assert_eq!(retry_after(&headers(lines), now), expected, "{lines:?}");
        }
    }

    #[test]
    fn only_a_429_and_a_503_that_names_a_time_are_refusals() {
        let read = |status, lines: &[(&str, &str)]| {
            let status = (StatusCode::from_u16(status).unwrap(), None);
            Feedback::read(status, &headers(lines), &[], SystemTime::UNIX_EPOCH).refused
        };
        let after = Some(Duration::from_secs(5));
        let timed = [("retry-after", "5")];
        assert_eq!(read(429, &timed), Some(CloudRefusal { after, throttled: true }));
        assert_eq!(read(429, &[]), Some(CloudRefusal { after: None, throttled: true }));
        assert_eq!(read(503, &timed), Some(CloudRefusal { after, throttled: false }));
        // A 202 uses the header to say when to ask for the state of the operation.
        for (status, lines) in [(503, &[][..]), (202, &timed), (200, &timed), (404, &timed), (500, &timed)] {
            assert_eq!(read(status, lines), None, "{status}");
        }
    }

    #[test]
    fn a_declared_meaning_counts_and_not_the_status() {
        let read = |status, meaning, lines: &[(&str, &str)]| {
            let status = (StatusCode::from_u16(status).unwrap(), Some(meaning));
            let Feedback { refused, locked, .. } =
                Feedback::read(status, &headers(lines), &[], SystemTime::UNIX_EPOCH);
            (refused, locked)
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for status in [400, 403, 404, 409, 429, 503] {
            for (lines, after) in [(&[][..], None), (&[("retry-after", "5")], seconds(5))] {
                let throttled = Some(CloudRefusal { after, throttled: true });
                for (meaning, expected) in [
                    (RefusalMeaning::Throttled, (throttled, None)),
                    (RefusalMeaning::Locked, (None, after.or(seconds(1)))),
                    (RefusalMeaning::Absent, (None, None)),
                    (RefusalMeaning::Later, (None, None)),
                    (RefusalMeaning::Other, (None, None)),
                ] {
                    assert_eq!(read(status, meaning, lines), expected, "{status} {meaning:?} {lines:?}");
                }
            }
        }
    }

    fn told(limit: LimitId, header: &'static str, name: &str) -> ToldLimit {
        let by = ToldBy { header: HeaderName::from_static(header), name: name.to_owned() };
        ToldLimit { limit, by }
    }

    #[test]
    fn a_header_that_tells_of_one_limit_says_nothing_about_others() {
        type Row<'a> = (Vec<ToldLimit>, Vec<(&'a str, &'a str)>, Option<u32>, Vec<Option<u32>>);
        const RESOURCE: &str = "x-ms-ratelimit-remaining-resource";
        let policies = [(RESOURCE, "Compute/HighCost;12,Compute/Other;3"), (RESOURCE, "Compute/Get ; 40")];
        let subscription = ("x-ms-ratelimit-remaining-subscription-reads", "249");
        let both = [&policies[..], &[subscription]].concat();
        let high = || vec![told(1, RESOURCE, "compute/highcost")];
        let rows: Vec<Row<'_>> = vec![
            (Vec::new(), both.clone(), Some(3), vec![]),
            (high(), both.clone(), Some(249), vec![Some(12)]),
            (high(), policies.to_vec(), None, vec![Some(12)]),
            (high(), vec![subscription], Some(249), vec![None]),
            (
                vec![told(0, RESOURCE, "Compute/Get"), told(1, RESOURCE, "Compute/No")],
                both.clone(),
                Some(249),
                vec![Some(40), None],
            ),
            (vec![told(1, "x-left", "")], vec![("x-left", " 7 "), subscription], Some(249), vec![Some(7)]),
            (vec![told(1, "x-left", "")], vec![("x-left", "many"), subscription], Some(249), vec![None]),
            (vec![told(1, "x-left", "a")], vec![("x-left", "7")], None, vec![None]),
            (vec![told(1, "x-left", "a")], vec![("x-left", "a;9,a;7")], None, vec![Some(7)]),
            (vec![told(1, STANDARD, "")], vec![(STANDARD, "\"a\";r=1")], None, vec![None]),
            (
                vec![told(1, "x-ratelimit-remaining", "")],
                vec![("x-ratelimit-remaining", "0")],
                None,
                vec![Some(0)],
            ),
        ];
        for (limits, lines, remaining, expected) in rows {
            let answer =
                Feedback::read((StatusCode::OK, None), &headers(&lines), &limits, SystemTime::UNIX_EPOCH);
            let found: Vec<_> = answer.told.iter().map(|(_, left)| *left).collect();
            assert_eq!((answer.remaining, found), (remaining, expected), "{limits:?} {lines:?}");
            let of: Vec<_> = limits.iter().map(|told| answer.remaining_of(told.limit)).collect();
            assert_eq!(of, answer.told.iter().map(|(_, left)| *left).collect::<Vec<_>>());
            assert_eq!(answer.remaining_of(99), remaining);
        }
    }

    #[test]
    fn the_least_of_the_remaining_quotas_counts() {
        let rows = [
            (&[("x-ms-ratelimit-remaining-subscription-reads", "249")][..], Some(249)),
            (
                &[
                    ("x-ms-ratelimit-remaining-subscription-global-reads", "3749"),
                    ("x-ms-ratelimit-remaining-resource", "Microsoft.Compute/HighCostGet;107"),
                    (
                        "x-ms-ratelimit-remaining-resource",
                        "Microsoft.Compute/Get3Min;42,Microsoft.Compute/Get;43",
                    ),
                ],
                Some(42),
            ),
            (&[("RateLimit-Remaining", "0")], Some(0)),
            (&[("x-ratelimit-remaining", "7")], Some(7)),
            (&[("x-ratelimit-remaining-writes", "7"), ("x-ratelimit-remaining-reads", "8")], Some(7)),
            (&[("ratelimit-remaining", "99999999999999999999")], Some(u32::MAX)),
            (&[("ratelimit-remaining", "-1")], None),
            (&[("ratelimit-remaining", "many")], None),
            (&[("ratelimit-remaining", "")], None),
            (&[("ratelimit-limit", "3"), ("x-ms-request-charge", "1")], None),
        ];
        for (lines, expected) in rows {
            assert_eq!(remaining(&headers(lines), |_| false), expected, "{lines:?}");
        }
        let long = ["9,".repeat(8), "1".to_owned()].concat();
        let remaining = |lines: &[(&str, &str)]| remaining(&headers(lines), |_| false);
        assert_eq!(remaining(&[("ratelimit-remaining", &long)]), Some(9), "the ninth isn't read");
        let lines = [vec![("ratelimit-remaining", "9"); 16], vec![("ratelimit-remaining", "1")]].concat();
        assert_eq!(remaining(&lines), Some(9), "the 17th line isn't read");
    }

    #[test]
    fn the_standard_header_says_what_is_left_of_requests() {
        let rows = [
            (&[("RateLimit", r#""default";r=50;t=30"#)][..], Some(50)),
            (&[("ratelimit", r#""default" ; r=50 ; t=30"#)], Some(50)),
            (&[("ratelimit", r#""default";t=30;r=0;pk=:cHsdsRa894==:"#)], Some(0)),
            (&[("ratelimit", r#""minute";r=7;t=30, "hour";r=900"#)], Some(7)),
            (&[("ratelimit", r#""hour";r=900"#), ("ratelimit", r#""minute";r=7"#)], Some(7)),
            (&[("ratelimit", r#""default";r=50"#), ("x-ratelimit-remaining", "3")], Some(3)),
            (&[("ratelimit", r#""default";r=3"#), ("x-ratelimit-remaining", "50")], Some(3)),
            (&[("ratelimit", r#""a,b;r=1";r=50"#)], Some(50)),
            (&[("ratelimit", r#""a\",;r=1";r=50"#)], Some(50)),
            (&[("ratelimit", "default;r=50")], Some(50)),
            (&[("ratelimit", r#""default";r=99999999999999999999"#)], Some(u32::MAX)),
            (
                &[
                    ("ratelimit-policy", r#""bytes";q=1000;qu="content-bytes", "requests";q=10;w=60"#),
                    ("ratelimit", r#""bytes";r=1, "requests";r=9"#),
                ],
                Some(9),
            ),
            (&[("ratelimit-policy", r#""all";q=10;qu="requests""#), ("ratelimit", r#""all";r=9"#)], Some(9)),
            (&[("ratelimit-policy", r#""default";q=100;w=60"#)], None),
            (&[("ratelimit", r#""default";t=30"#)], None),
            (&[("ratelimit", r#""default";r=-1"#)], None),
            (&[("ratelimit", r#""default";r=1.5"#)], None),
            (&[("ratelimit", r#""default";r=?1"#)], None),
            (&[("ratelimit", r#""default";r"#)], None),
            (&[("ratelimit", r#""default";r=1;r=2"#)], None),
            (&[("ratelimit", "")], None),
        ];
        for (lines, expected) in rows {
            let answer = Feedback::read((StatusCode::OK, None), &headers(lines), &[], SystemTime::UNIX_EPOCH);
            assert_eq!(answer.remaining, expected, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_values_are_read_or_not_but_never_panic(
            value in proptest::collection::vec(0x20_u8..0x7f, 0..200),
        ) {
            let value = HeaderValue::from_bytes(&value).unwrap();
            let mut headers = HeaderMap::new();
            for name in ["retry-after", "date", "ratelimit-remaining", "ratelimit", "ratelimit-policy"] {
                headers.insert(name, value.clone());
            }
            let status = (StatusCode::TOO_MANY_REQUESTS, None);
            let Feedback { refused, .. } =
                Feedback::read(status, &headers, &[told(0, "ratelimit", "a")], SystemTime::UNIX_EPOCH);
            let after = refused.and_then(|refused| refused.after).unwrap_or(SHORTEST);
            prop_assert!((SHORTEST..=LONGEST).contains(&after));
        }
    }
}
