//! What goes wrong, as somebody set it, and the decision what happens to one request. The dice are an argument: the
//! same seed and the same requests meet the same faults.

mod hidden;
mod operation;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::hidden::{Hidden, Selection};
pub use self::operation::{Chance, Operations};
use crate::call::Kind;
use crate::refusal::Refusal;
use crate::world::MAX_LAG;

/// All faults; by default none. In JSON what is left out is at its default, and what is unknown is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Faults {
    /// Every answer takes time.
    pub latency: Latency,
    /// Some requests are too many: 429 with `Retry-After`.
    pub throttle: Throttle,
    /// Some requests fail with a status of the 5xx.
    pub errors: Errors,
    /// Some answers are lost: what was asked for happens, but the connection is closed without an answer.
    pub lost: Lost,
    /// Lists show the past.
    pub lag: Lag,
    /// New machines take time to come up.
    pub creation: Creation,
    /// Things that are there are denied.
    pub hidden: Hidden,
    /// Writes of load balancers take time, and fail late.
    pub operations: Operations,
    /// Writes that say rightly which state they are made for are told that it isn't any more.
    pub preconditions: Chance,
}

/// How long requests take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latency {
    /// Each request takes at least this long.
    #[serde(rename = "fixedMs", with = "milliseconds")]
    pub fixed: Duration,
    /// And up to this much longer, evenly spread.
    #[serde(rename = "jitterMs", with = "milliseconds")]
    pub jitter: Duration,
    /// The kinds of call that it is about.
    pub kinds: BTreeSet<Kind>,
}

/// Which requests are too many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Throttle {
    /// How many of them, from 0 to 1.
    pub share: f64,
    /// `Retry-After`, in seconds as HTTP has it.
    pub retry_after_seconds: u32,
    /// The kinds of call that it is about.
    pub kinds: BTreeSet<Kind>,
}

/// Which requests fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Errors {
    /// How many of them, from 0 to 1.
    pub share: f64,
    /// The status, from 500 to 599.
    pub status: u16,
    /// The kinds of call that it is about.
    pub kinds: BTreeSet<Kind>,
}

/// Which answers are lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lost {
    /// How many of them, from 0 to 1.
    pub share: f64,
    /// So many of the next ones, whatever the share. Counts down.
    pub next: u32,
    /// The kinds of call that it is about; by default the writes, where a lost answer leaves a doubt behind.
    pub kinds: BTreeSet<Kind>,
}

/// How far lists are behind. A read of one machine never is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lag {
    /// Lists show what was so long ago, at most [`MAX_LAG`].
    #[serde(rename = "listsMs", with = "milliseconds")]
    pub lists: Duration,
}

/// How long machines take to come up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Creation {
    /// Machines that are created from now on stay in the state `creating` for so long.
    #[serde(rename = "takesMs", with = "milliseconds")]
    pub takes: Duration,
}

impl Default for Latency {
    fn default() -> Self {
        Self { fixed: Duration::ZERO, jitter: Duration::ZERO, kinds: Kind::ALL.into() }
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self { share: 0.0, retry_after_seconds: 1, kinds: Kind::ALL.into() }
    }
}

impl Default for Errors {
    fn default() -> Self {
        Self { share: 0.0, status: 503, kinds: Kind::ALL.into() }
    }
}

impl Default for Lost {
    fn default() -> Self {
        Self { share: 0.0, next: 0, kinds: Kind::WRITES.into() }
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// It waits so long first.
    pub delay: Duration,
    /// And then this.
    pub fate: Fate,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out and answered.
    Answer,
    /// It is carried out, and the connection closed without an answer.
    Lose,
    /// It is not carried out: one too many.
    Throttle {
        /// `Retry-After`, in seconds.
        retry_after_seconds: u32,
    },
    /// It is not carried out: it came without a token that is good. No fault makes that; it is decided before them.
    TurnAway,
    /// It is not carried out: it fails with this status.
    Fail {
        /// The status of the answer.
        status: u16,
    },
}

impl Faults {
    /// Reads the JSON form. A field that doesn't exist is refused with the names of those that do, and a value that
    /// makes no sense with the ones that would.
    pub fn parse(json: &[u8]) -> Result<Self, Refusal> {
        let faults: Self = serde_json::from_slice(json)
            .map_err(|error| Refusal::Invalid(format!("these faults can't be set: {error}")))?;
        let Self { latency: _, throttle, errors, lost, lag, creation: _, hidden, operations, preconditions } =
            &faults;
        for (name, share) in [
            ("throttle", throttle.share),
            ("errors", errors.share),
            ("lost", lost.share),
            ("hidden.lists", hidden.lists.share),
            ("hidden.gets", hidden.gets.share),
            ("operations.lateFailures", operations.late_failures.share),
            ("preconditions", preconditions.share),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Refusal::Invalid(format!("{name}.share is {share}, it goes from 0 to 1")));
            }
        }
        if !(500..=599).contains(&errors.status) {
            let status = errors.status;
            return Err(Refusal::Invalid(format!("errors.status is {status}, it goes from 500 to 599")));
        }
        if lag.lists > MAX_LAG {
            let (lag, most) = (lag.lists.as_millis(), MAX_LAG.as_millis());
            return Err(Refusal::Invalid(format!("lag.listsMs is {lag}, it goes up to {most}")));
        }
        Ok(faults)
    }

    /// Decides what happens to the next request of this kind, and counts it off where faults were set for the next so
    /// many. One that is `over_quota` is refused for so many seconds. Rolls the same number of dice whatever is set, so
    /// that changing one fault doesn't shift the others.
    pub fn decide(&mut self, kind: Kind, over_quota: Option<u32>, random: &mut Random) -> Decision {
        let [late, busy, broken, forgotten] = std::array::from_fn(|_| random.share());
        let Self { latency, throttle, errors, lost, .. } = self;
        let delay = if latency.kinds.contains(&kind) {
            latency.fixed.saturating_add(latency.jitter.mul_f64(late))
        } else {
            Duration::ZERO
        };
        let fate = if let Some(retry_after_seconds) = over_quota {
            Fate::Throttle { retry_after_seconds }
        } else if throttle.kinds.contains(&kind) && busy < throttle.share {
            Fate::Throttle { retry_after_seconds: throttle.retry_after_seconds }
        } else if errors.kinds.contains(&kind) && broken < errors.share {
            Fate::Fail { status: errors.status }
        } else if lost.kinds.contains(&kind) && lost.next > 0 {
            lost.next -= 1;
            Fate::Lose
        } else if lost.kinds.contains(&kind) && forgotten < lost.share {
            Fate::Lose
        } else {
            Fate::Answer
        };
        Decision { delay, fate }
    }
}

/// Dice: SplitMix64, which is even enough for shares and needs eight lines.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The dice that roll what this seed says.
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, evenly spread over all.
    pub fn number(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let [a, b, c, d, ..] = bits.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// The next number, evenly spread from 0 up to but not including 1.
    pub fn share(&mut self) -> f64 {
        // 32 bits fit a double exactly and are finer than any share that somebody sets.
        f64::from(self.number()) / 4_294_967_296.0
    }
}

/// Durations as whole milliseconds, at most 49 days.
mod milliseconds {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(u32::try_from(duration.as_millis()).unwrap_or(u32::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_millis(u32::deserialize(deserializer)?.into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn faults(json: &str) -> Faults {
        Faults::parse(json.as_bytes()).unwrap()
    }

    fn refused(json: &str) -> String {
        Faults::parse(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn nothing_goes_wrong_by_default() {
        let mut random = Random::seeded(1);
        for kind in Kind::ALL {
            let decision = faults("{}").decide(kind, None, &mut random);
            assert_eq!(decision, Decision { delay: Duration::ZERO, fate: Fate::Answer });
        }
    }

    #[test]
    fn a_certain_fault_meets_its_kinds_and_no_others() {
        let throttled = Fate::Throttle { retry_after_seconds: 7 };
        let table = [
            (r#"{"throttle":{"share":1,"retryAfterSeconds":7,"kinds":["list"]}}"#, Kind::List, throttled),
            (r#"{"throttle":{"share":1,"retryAfterSeconds":7,"kinds":["list"]}}"#, Kind::Get, Fate::Answer),
            (r#"{"errors":{"share":1,"status":502}}"#, Kind::Get, Fate::Fail { status: 502 }),
            (r#"{"errors":{"share":1,"kinds":["delete"]}}"#, Kind::Delete, Fate::Fail { status: 503 }),
            (r#"{"errors":{"share":1,"kinds":["delete"]}}"#, Kind::Create, Fate::Answer),
            (r#"{"lost":{"share":1}}"#, Kind::Create, Fate::Lose),
            (r#"{"lost":{"share":1}}"#, Kind::List, Fate::Answer),
            (r#"{"lost":{"share":1,"kinds":["list"]}}"#, Kind::List, Fate::Lose),
            (r#"{"lost":{"share":1},"errors":{"share":1}}"#, Kind::Create, Fate::Fail { status: 503 }),
        ];
        for (json, kind, fate) in table {
            assert_eq!(faults(json).decide(kind, None, &mut Random::seeded(3)).fate, fate, "{json} {kind:?}");
        }
    }

    #[test]
    fn the_next_writes_are_lost_and_counted_off_and_reads_are_not() {
        let mut faults = faults(r#"{"lost":{"next":2}}"#);
        let mut random = Random::seeded(1);
        let mut fate = |kind| faults.decide(kind, None, &mut random).fate;
        assert_eq!(fate(Kind::Get), Fate::Answer);
        assert_eq!(fate(Kind::Create), Fate::Lose);
        assert_eq!(fate(Kind::List), Fate::Answer);
        assert_eq!(fate(Kind::Delete), Fate::Lose);
        assert_eq!(fate(Kind::Create), Fate::Answer);
        assert_eq!(faults.lost.next, 0);
    }

    #[test]
    fn a_request_that_is_refused_does_not_use_up_a_lost_answer() {
        let mut faults = faults(r#"{"lost":{"next":1},"throttle":{"share":1}}"#);
        faults.decide(Kind::Create, None, &mut Random::seeded(1));
        assert_eq!(faults.lost.next, 1);
    }

    #[test]
    fn what_is_unknown_is_refused_with_the_names_that_are_known() {
        let table = [
            (
                r#"{"latncy":{}}"#,
                "`latency`, `throttle`, `errors`, `lost`, `lag`, `creation`, `hidden`, `operations`, `preconditions`",
            ),
            (r#"{"throttle":{"retryAfter":1}}"#, "`share`, `retryAfterSeconds`, `kinds`"),
            (r#"{"latency":{"ms":1}}"#, "`fixedMs`, `jitterMs`, `kinds`"),
            (r#"{"lag":{"ms":1}}"#, "`listsMs`"),
            (r#"{"errors":{"kinds":["read"]}}"#, "`list`, `get`, `create`, `change`, `delete`, `token`"),
        ];
        for (json, known) in table {
            assert!(refused(json).contains(known), "{json}: {}", refused(json));
        }
    }

    #[test]
    fn values_without_sense_are_refused_with_the_range_that_has_some() {
        let table = [
            (r#"{"throttle":{"share":1.5}}"#, "throttle.share is 1.5, it goes from 0 to 1"),
            (r#"{"lost":{"share":-1}}"#, "lost.share is -1, it goes from 0 to 1"),
            (r#"{"errors":{"status":404}}"#, "errors.status is 404, it goes from 500 to 599"),
            (r#"{"hidden":{"lists":{"share":2}}}"#, "hidden.lists.share is 2, it goes from 0 to 1"),
            (r#"{"lag":{"listsMs":300001}}"#, "lag.listsMs is 300001, it goes up to 300000"),
        ];
        for (json, message) in table {
            assert_eq!(refused(json), message);
        }
    }

    #[test]
    fn who_is_over_the_quota_meets_no_other_fault() {
        let mut faults = faults(r#"{"errors":{"share":1},"lost":{"next":1}}"#);
        let decision = faults.decide(Kind::Create, Some(7), &mut Random::seeded(1));
        assert_eq!(decision.fate, Fate::Throttle { retry_after_seconds: 7 });
        assert_eq!(faults.lost.next, 1);
    }

    proptest! {
        #[test]
        fn a_share_is_met_in_the_long_run(seed: u64, share in 0.0..=1.0_f64) {
            let mut faults = Faults::default();
            faults.throttle.share = share;
            let mut random = Random::seeded(seed);
            let thrown = (0..2_000).filter(|_| faults.decide(Kind::Get, None, &mut random).fate != Fate::Answer).count();
            let met = f64::from(u32::try_from(thrown).unwrap()) / 2_000.0;
            // Six standard deviations of 2,000 throws, at most 0.067: nothing that chance brings about.
            prop_assert!((met - share).abs() < 0.067, "{met} of {share}");
        }

        #[test]
        fn the_same_seed_meets_the_same_fate_whatever_the_latency(seed: u64, jitter in 0_u64..1_000) {
            let mut calm = faults(r#"{"throttle":{"share":0.3},"errors":{"share":0.3},"lost":{"share":0.3}}"#);
            let mut slow = calm.clone();
            slow.latency.jitter = Duration::from_millis(jitter);
            let (mut one, mut other) = (Random::seeded(seed), Random::seeded(seed));
            for kind in Kind::ALL.into_iter().cycle().take(50) {
                let (calm, slow) = (calm.decide(kind, None, &mut one), slow.decide(kind, None, &mut other));
                prop_assert_eq!(calm.fate, slow.fate);
                prop_assert!(slow.delay <= Duration::from_millis(jitter));
            }
        }

        #[test]
        fn faults_survive_a_round_trip_through_json(percent in 0_u32..=100, next: u32, lag in 0_u64..=300_000) {
            let mut faults = Faults::default();
            faults.errors.share = f64::from(percent) / 100.0;
            faults.lost.next = next;
            faults.lag.lists = Duration::from_millis(lag);
            prop_assert_eq!(Faults::parse(&serde_json::to_vec(&faults).unwrap()).unwrap(), faults);
        }
    }
}
