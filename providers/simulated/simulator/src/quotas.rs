//! The rate limits of the cloud: a token bucket for reads and one for writes, like those of Azure's resource manager. The clock
//! is an argument. A request takes a token when it arrives; a refused request takes none.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::Kind;
use crate::refusal::Refusal;

/// The name of [`Quotas::azure`] on the command line.
const AZURE: &str = "azure";

/// The valid rates, in tokens per second: from one in a quarter of an hour to one in a microsecond.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Quota {
    /// The tokens of a full bucket: this many requests may come at once.
    pub burst: u32,
    /// The tokens that are added each second.
    pub per_second: f64,
}

/// The quotas. A missing bucket means no limit, and an unknown field is refused. A call takes from one bucket only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quotas {
    /// For lists and reads of one object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Quota>,
    /// For writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Quota>,
    /// For reads and writes alike, in place of `read` and `write`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Quota>,
    /// Whether responses don't tell the remaining tokens, as with most clouds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
}

impl Quotas {
    /// The quotas of Azure's resource manager for each principal in a subscription and region.
    pub fn azure() -> Self {
        let quota = |burst, per_second| Some(Quota { burst, per_second });
        Self { read: quota(250, 25.0), write: quota(200, 10.0), ..Self::default() }
    }
}

impl FromStr for Quotas {
    type Err = Refusal;

    /// Parses the JSON form, or the word `azure`.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        if text.trim() == AZURE {
            return Ok(Self::azure());
        }
        let quotas: Self = serde_json::from_str(text).map_err(|error| {
            Refusal::Invalid(format!("invalid quotas: expected {AZURE} or JSON: {error}"))
        })?;
        for (name, quota) in [("read", quotas.read), ("write", quotas.write), ("all", quotas.all)] {
            let Some(Quota { burst, per_second }) = quota else { continue };
            if burst == 0 {
                return Err(Refusal::Invalid(format!("{name}.burst is 0; it must be at least 1")));
            }
            if !RATES.contains(&per_second) {
                let (least, most) = (RATES.start(), RATES.end());
                return Err(Refusal::Invalid(format!(
                    "{name}.perSecond is {per_second}; it must be from {least} to {most}"
                )));
            }
        }
        Ok(quotas)
    }
}

/// The state of a quota after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The remaining tokens.
    pub remaining: u32,
    /// How long until there is a token again, in whole seconds, rounded up. `None` where the request had a token.
    pub retry_after_seconds: Option<u32>,
    /// The tokens of a full bucket.
    pub burst: u32,
    /// How long until the bucket is full if no other request comes.
    pub full_in: Duration,
}

/// The buckets, which start full.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    read: Option<Bucket>,
    write: Option<Bucket>,
    all: Option<Bucket>,
    quotas: Quotas,
}

impl Buckets {
    /// Full buckets for these quotas.
    pub fn new(quotas: Quotas) -> Self {
        let bucket = |quota: Option<Quota>| quota.map(Bucket::new);
        Self { read: bucket(quotas.read), write: bucket(quotas.write), all: bucket(quotas.all), quotas }
    }

    /// Their quotas.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Takes a token for a request, or refuses it. `None` where such requests are unlimited. Requests for tokens and
    /// metadata always are, because these services don't have these quotas. `now` must not decrease.
    pub fn take(&mut self, kind: Kind, now: Duration) -> Option<QuotaStatus> {
        let bucket = match kind {
            Kind::Token | Kind::Metadata => return None,
            _ if self.all.is_some() => &mut self.all,
            Kind::List | Kind::Get => &mut self.read,
            Kind::Create | Kind::Change | Kind::Delete => &mut self.write,
        };
        bucket.as_mut().map(|bucket| bucket.take(now))
    }
}

/// One bucket, measured in time: a token is worth the time in which the next one is added.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    token: Duration,
    burst: u32,
    /// When it is full again. That determines how many tokens it has at any moment, without accumulated rounding.
    full_at: Duration,
}

impl Bucket {
    fn new(Quota { burst, per_second }: Quota) -> Self {
        Self { token: Duration::from_secs_f64(1.0 / per_second), burst, full_at: Duration::ZERO }
    }

    fn take(&mut self, now: Duration) -> QuotaStatus {
        let capacity = self.token * self.burst;
        let missing = self.full_at.saturating_sub(now) + self.token;
        let Some(left) = capacity.checked_sub(missing) else {
            let wait = missing.saturating_sub(capacity);
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            return QuotaStatus { retry_after_seconds: Some(seconds), ..self.status(now, 0) };
        };
        self.full_at = now + missing;
        let remaining = u32::try_from(left.as_nanos() / self.token.as_nanos()).unwrap_or(u32::MAX);
        self.status(now, remaining)
    }

    fn status(&self, now: Duration, remaining: u32) -> QuotaStatus {
        let full_in = self.full_at.saturating_sub(now);
        QuotaStatus { remaining, retry_after_seconds: None, burst: self.burst, full_in }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quotas(text: &str) -> Quotas {
        text.parse().unwrap()
    }

    fn milliseconds(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn passes(status: Option<QuotaStatus>) -> bool {
        status.is_none_or(|status| status.retry_after_seconds.is_none())
    }

    #[test]
    fn a_bucket_counts_down_refuses_and_reports_the_second_of_the_next_token() {
        let mut buckets = Buckets::new(quotas(r#"{"read": {"burst": 2, "perSecond": 0.4}}"#));
        let rows = [
            (0, 1, None),
            (0, 0, None),
            (0, 0, Some(3)), // the next token comes after 2.5 s
            (499, 0, Some(3)),
            (500, 0, Some(2)),
            (2_499, 0, Some(1)),
            (2_500, 0, None),
            (2_500, 0, Some(3)),
            (60_000, 1, None), // not more than full
        ];
        for (at, remaining, retry_after_seconds) in rows {
            let status = buckets.take(Kind::List, milliseconds(at)).unwrap();
            let told = (status.remaining, status.retry_after_seconds, status.burst);
            assert_eq!(told, (remaining, retry_after_seconds, 2), "at {at} ms");
        }
    }

    #[test]
    fn reads_and_writes_have_their_own_buckets_and_a_missing_one_is_unlimited() {
        let mut buckets = Buckets::new(quotas(r#"{"write": {"burst": 1, "perSecond": 1}}"#));
        assert!(passes(buckets.take(Kind::Create, Duration::ZERO)));
        assert!(!passes(buckets.take(Kind::Delete, Duration::ZERO)), "all writes share one bucket");
        assert_eq!(buckets.take(Kind::Get, Duration::ZERO), None);
        assert_eq!(Buckets::new(Quotas::azure()).take(Kind::Token, Duration::ZERO), None);
        let mut azure = Buckets::new(quotas("azure"));
        let first = |kind, buckets: &mut Buckets| buckets.take(kind, Duration::ZERO).unwrap().remaining;
        assert_eq!((first(Kind::Get, &mut azure), first(Kind::Change, &mut azure)), (249, 199));
    }

    #[test]
    fn one_bucket_for_all_calls_takes_the_place_of_the_others_and_tells_when_it_is_full() {
        let mut buckets = Buckets::new(quotas(
            r#"{"all": {"burst": 3, "perSecond": 0.5}, "read": {"burst": 1, "perSecond": 1}}"#,
        ));
        for (kind, full_in) in [(Kind::Get, 2), (Kind::Create, 4), (Kind::List, 6)] {
            let status = buckets.take(kind, Duration::ZERO).unwrap();
            assert_eq!((status.retry_after_seconds, status.full_in), (None, Duration::from_secs(full_in)));
        }
        let refused = buckets.take(Kind::Delete, Duration::from_secs(1)).unwrap();
        assert_eq!((refused.retry_after_seconds, refused.full_in), (Some(1), Duration::from_secs(5)));
        assert_eq!(buckets.take(Kind::Token, Duration::ZERO), None);
    }

    #[test]
    fn invalid_quotas_are_refused_with_the_valid_form() {
        let rows = [
            ("gcp", "expected azure or JSON"),
            (r#"{"reads":{}}"#, "expected one of `read`, `write`, `all`, `silent`"),
            (r#"{"read":{"burst":1}}"#, "missing field `perSecond`"),
            (r#"{"read":{"burst":0,"perSecond":1}}"#, "read.burst is 0"),
            (
                r#"{"write":{"burst":1,"perSecond":0}}"#,
                "write.perSecond is 0; it must be from 0.001 to 1000000",
            ),
        ];
        for (text, message) in rows {
            let refused = text.parse::<Quotas>().unwrap_err().to_string();
            assert!(refused.contains(message), "{text}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn in_any_window_at_most_the_burst_and_the_rate_pass_and_a_client_that_waits_passes(
            burst in 1_u32..20,
            per_second in prop::sample::select(vec![0.3, 1.0, 7.0, 25.0, 1_000.0]),
            gaps in prop::collection::vec(0_u64..300, 1..200),
        ) {
            let quota = Quota { burst, per_second };
            let mut buckets = Buckets::new(Quotas { read: Some(quota), ..Quotas::default() });
            let mut now = Duration::ZERO;
            let mut passed = Vec::new();
            for gap in gaps {
                now += milliseconds(gap);
                let status = buckets.take(Kind::Get, now).unwrap();
                match status.retry_after_seconds {
                    None => passed.push(now),
                    Some(seconds) => {
                        let wait = Duration::from_secs(seconds.into());
                        prop_assert!(passes(buckets.clone().take(Kind::Get, now + wait)));
                        let less = now + wait.saturating_sub(Duration::from_secs(1));
                        prop_assert!(!passes(buckets.clone().take(Kind::Get, less)), "a second less is too early");
                    }
                }
            }
            for (first, from) in passed.iter().enumerate() {
                for (last, to) in passed.iter().enumerate().skip(first) {
                    let window = to.checked_sub(*from).unwrap();
                    let most = f64::from(burst) + per_second * window.as_secs_f64();
                    let count = f64::from(u32::try_from(last - first + 1).unwrap());
                    // Rounding a token to nanoseconds adds up to far less than a token during a test.
                    prop_assert!(count <= most + 0.001, "{count} in {window:?}");
                }
            }
        }
    }
}
