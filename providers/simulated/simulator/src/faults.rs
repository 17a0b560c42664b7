//! The configured faults, and the decision which fault a request meets. The random numbers are an argument: the same seed and
//! the same requests lead to the same faults.

mod hidden;
mod operation;
mod random;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::hidden::{Hidden, Selection};
pub use self::operation::{Chance, Operations};
pub use self::random::Random;
use crate::call::Kind;
use crate::refusal::Refusal;
use crate::world::MAX_LAG;

/// All faults; none by default. In JSON, a missing field has its default, and an unknown field is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Faults {
    /// Responses take time.
    pub latency: Latency,
    /// Some requests are throttled: 429 with `Retry-After`.
    pub throttle: Throttle,
    /// Some requests fail with a status of the 5xx.
    pub errors: Errors,
    /// Some responses are lost: the request is carried out, but the connection is closed without a response.
    pub lost: Lost,
    /// Some responses end in the middle of their body.
    pub cut: Cut,
    /// Lists show a past state.
    pub lag: Lag,
    /// New machines take time to start.
    pub creation: Creation,
    /// Existing resources are hidden.
    pub hidden: Hidden,
    /// Operations of load balancers and addresses take time, and fail late.
    pub operations: Operations,
    /// Writes whose precondition holds are refused as if another client had just written.
    pub preconditions: Chance,
    /// Metadata services speak of another machine.
    pub metadata: Metadata,
}

/// What metadata services say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Metadata {
    /// All of them speak of the machine of this name, and answer 404 if it doesn't exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speaks_of: Option<String>,
}

/// How long requests take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latency {
    /// Each request takes at least this long.
    #[serde(rename = "fixedMs", with = "milliseconds")]
    pub fixed: Duration,
    /// And up to this much longer, uniformly distributed.
    #[serde(rename = "jitterMs", with = "milliseconds")]
    pub jitter: Duration,
    /// The kinds of call that it affects.
    pub kinds: BTreeSet<Kind>,
}

/// Which requests are throttled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Throttle {
    /// Their share, from 0 to 1.
    pub share: f64,
    /// This many of the next ones, regardless of the share. Counts down.
    pub next: u32,
    /// `Retry-After`, in seconds.
    pub retry_after_seconds: u32,
    /// The kinds of call that it affects.
    pub kinds: BTreeSet<Kind>,
}

/// Which requests fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Errors {
    /// Their share, from 0 to 1.
    pub share: f64,
    /// This many of the next ones, regardless of the share. Counts down.
    pub next: u32,
    /// The status, from 500 to 599.
    pub status: u16,
    /// The kinds of call that it affects.
    pub kinds: BTreeSet<Kind>,
}

/// Which responses are lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lost {
    /// Their share, from 0 to 1.
    pub share: f64,
    /// This many of the next ones, regardless of the share. Counts down.
    pub next: u32,
    /// The kinds of call that it affects; by default writes, for which a lost response leaves the result unknown.
    pub kinds: BTreeSet<Kind>,
}

/// Which responses are cut: the request is carried out, and the connection ends after half of the body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cut {
    /// The number of the next ones. Counts down.
    pub next: u32,
    /// The kinds of call that it affects.
    pub kinds: BTreeSet<Kind>,
}

/// How far lists lag behind. A read of one resource never does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lag {
    /// Lists show the state of this long ago, at most [`MAX_LAG`].
    #[serde(rename = "listsMs", with = "milliseconds")]
    pub lists: Duration,
}

/// How long machines take to start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Creation {
    /// Machines that are created from now on are `creating` for this long.
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
        Self { share: 0.0, next: 0, retry_after_seconds: 1, kinds: Kind::ALL.into() }
    }
}

impl Default for Errors {
    fn default() -> Self {
        Self { share: 0.0, next: 0, status: 503, kinds: Kind::ALL.into() }
    }
}

impl Default for Cut {
    fn default() -> Self {
        Self { next: 0, kinds: Kind::ALL.into() }
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
    /// How long the request waits first.
    pub delay: Duration,
    /// What happens then.
    pub action: Action,
}

/// What happens to a request after its delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is carried out and answered.
    Answer,
    /// It is carried out, and the connection is closed without a response.
    DropResponse,
    /// It is carried out, and the connection is closed in the middle of the response's body.
    CutResponse,
    /// It is refused because of too many requests.
    Throttle {
        /// `Retry-After`, in seconds.
        retry_after_seconds: u32,
    },
    /// It is refused without a valid token. That isn't a fault, and it is decided before faults.
    Unauthorized,
    /// It fails with this status.
    Fail {
        /// The status of the response.
        status: u16,
    },
}

impl Faults {
    /// Parses the JSON form. The error about an unknown field names the known fields, and the error about an invalid value
    /// names the valid range.
    pub fn parse(json: &[u8]) -> Result<Self, Refusal> {
        let faults: Self = serde_json::from_slice(json)
            .map_err(|error| Refusal::Invalid(format!("invalid faults: {error}")))?;
        let Self {
            latency: _,
            throttle,
            errors,
            lost,
            cut: _,
            lag,
            creation: _,
            hidden,
            operations,
            preconditions,
            metadata: _,
        } = &faults;
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
                return Err(Refusal::Invalid(format!("{name}.share is {share}; it must be from 0 to 1")));
            }
        }
        if !(500..=599).contains(&errors.status) {
            let status = errors.status;
            return Err(Refusal::Invalid(format!("errors.status is {status}; it must be from 500 to 599")));
        }
        if lag.lists > MAX_LAG {
            let (lag, most) = (lag.lists.as_millis(), MAX_LAG.as_millis());
            return Err(Refusal::Invalid(format!("lag.listsMs is {lag}; it must be at most {most}")));
        }
        Ok(faults)
    }

    /// Decides what happens to the next request of this kind, and counts down faults that are set for the next requests. A
    /// request that is `over_quota` is throttled for that many seconds. Takes the same number of random numbers regardless
    /// of what is set, so that changing one fault doesn't shift the others.
    pub fn decide(&mut self, kind: Kind, over_quota: Option<u32>, random: &mut Random) -> Decision {
        let [late, busy, broken, forgotten] = std::array::from_fn(|_| random.share());
        let Self { latency, throttle, errors, lost, cut, .. } = self;
        let delay = if latency.kinds.contains(&kind) {
            latency.fixed.saturating_add(latency.jitter.mul_f64(late))
        } else {
            Duration::ZERO
        };
        let action = if let Some(retry_after_seconds) = over_quota {
            Action::Throttle { retry_after_seconds }
        } else if throttle.kinds.contains(&kind) && meets(&mut throttle.next, throttle.share, busy) {
            Action::Throttle { retry_after_seconds: throttle.retry_after_seconds }
        } else if errors.kinds.contains(&kind) && meets(&mut errors.next, errors.share, broken) {
            Action::Fail { status: errors.status }
        } else if lost.kinds.contains(&kind) && meets(&mut lost.next, lost.share, forgotten) {
            Action::DropResponse
        } else if cut.kinds.contains(&kind) && meets(&mut cut.next, 0.0, 0.0) {
            Action::CutResponse
        } else {
            Action::Answer
        };
        Decision { delay, action }
    }
}

/// Whether a request meets a fault that is set for the next ones, which counts down, or for a share.
fn meets(next: &mut u32, share: f64, random: f64) -> bool {
    if *next > 0 {
        *next -= 1;
        return true;
    }
    random < share
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
    fn there_are_no_faults_by_default() {
        let mut random = Random::seeded(1);
        for kind in Kind::ALL {
            let decision = faults("{}").decide(kind, None, &mut random);
            assert_eq!(decision, Decision { delay: Duration::ZERO, action: Action::Answer });
        }
    }

    #[test]
    fn a_fault_affects_only_its_kinds() {
        let throttled = Action::Throttle { retry_after_seconds: 7 };
        let table = [
            (r#"{"throttle":{"share":1,"retryAfterSeconds":7,"kinds":["list"]}}"#, Kind::List, throttled),
            (r#"{"throttle":{"share":1,"retryAfterSeconds":7,"kinds":["list"]}}"#, Kind::Get, Action::Answer),
            (r#"{"errors":{"share":1,"status":502}}"#, Kind::Get, Action::Fail { status: 502 }),
            (r#"{"errors":{"share":1,"kinds":["delete"]}}"#, Kind::Delete, Action::Fail { status: 503 }),
            (r#"{"errors":{"share":1,"kinds":["delete"]}}"#, Kind::Create, Action::Answer),
            (r#"{"lost":{"share":1}}"#, Kind::Create, Action::DropResponse),
            (r#"{"lost":{"share":1}}"#, Kind::List, Action::Answer),
            (r#"{"lost":{"share":1,"kinds":["list"]}}"#, Kind::List, Action::DropResponse),
            (r#"{"lost":{"share":1},"errors":{"share":1}}"#, Kind::Create, Action::Fail { status: 503 }),
        ];
        for (json, kind, action) in table {
            assert_eq!(
                faults(json).decide(kind, None, &mut Random::seeded(3)).action,
                action,
                "{json} {kind:?}"
            );
        }
    }

    #[test]
    fn the_next_writes_are_lost_and_counted_down_and_reads_are_not() {
        let mut faults = faults(r#"{"lost":{"next":2}}"#);
        let mut random = Random::seeded(1);
        let mut action = |kind| faults.decide(kind, None, &mut random).action;
        assert_eq!(action(Kind::Get), Action::Answer);
        assert_eq!(action(Kind::Create), Action::DropResponse);
        assert_eq!(action(Kind::List), Action::Answer);
        assert_eq!(action(Kind::Delete), Action::DropResponse);
        assert_eq!(action(Kind::Create), Action::Answer);
        assert_eq!(faults.lost.next, 0);
    }

    #[test]
    fn bursts_of_errors_and_throttling_and_cut_bodies_count_down() {
        let table = [
            (r#"{"errors":{"next":2,"status":500}}"#, Action::Fail { status: 500 }),
            (r#"{"throttle":{"next":2,"retryAfterSeconds":3}}"#, Action::Throttle { retry_after_seconds: 3 }),
            (r#"{"cut":{"next":2}}"#, Action::CutResponse),
        ];
        for (json, action) in table {
            let mut faults = faults(json);
            let mut random = Random::seeded(1);
            let met: Vec<_> = (0..3).map(|_| faults.decide(Kind::Get, None, &mut random).action).collect();
            assert_eq!(met, [action, action, Action::Answer], "{json}");
        }
    }

    #[test]
    fn a_refused_request_does_not_use_up_a_lost_response() {
        let mut faults = faults(r#"{"lost":{"next":1},"throttle":{"share":1}}"#);
        faults.decide(Kind::Create, None, &mut Random::seeded(1));
        assert_eq!(faults.lost.next, 1);
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_known_names() {
        let table = [
            (
                r#"{"latncy":{}}"#,
                "`latency`, `throttle`, `errors`, `lost`, `cut`, `lag`, `creation`, `hidden`, `operations`, `preconditions`",
            ),
            (r#"{"throttle":{"retryAfter":1}}"#, "`share`, `next`, `retryAfterSeconds`, `kinds`"),
            (r#"{"latency":{"ms":1}}"#, "`fixedMs`, `jitterMs`, `kinds`"),
            (r#"{"lag":{"ms":1}}"#, "`listsMs`"),
            (r#"{"errors":{"kinds":["read"]}}"#, "`list`, `get`, `create`, `change`, `delete`, `token`"),
        ];
        for (json, known) in table {
            assert!(refused(json).contains(known), "{json}: {}", refused(json));
        }
    }

    #[test]
    fn an_invalid_value_is_refused_with_the_valid_range() {
        let table = [
            (r#"{"throttle":{"share":1.5}}"#, "throttle.share is 1.5; it must be from 0 to 1"),
            (r#"{"lost":{"share":-1}}"#, "lost.share is -1; it must be from 0 to 1"),
            (r#"{"errors":{"status":404}}"#, "errors.status is 404; it must be from 500 to 599"),
            (r#"{"hidden":{"lists":{"share":2}}}"#, "hidden.lists.share is 2; it must be from 0 to 1"),
            (r#"{"lag":{"listsMs":300001}}"#, "lag.listsMs is 300001; it must be at most 300000"),
        ];
        for (json, message) in table {
            assert_eq!(refused(json), message);
        }
    }

    #[test]
    fn a_request_over_the_quota_meets_no_other_fault() {
        let mut faults = faults(r#"{"errors":{"share":1},"lost":{"next":1}}"#);
        let decision = faults.decide(Kind::Create, Some(7), &mut Random::seeded(1));
        assert_eq!(decision.action, Action::Throttle { retry_after_seconds: 7 });
        assert_eq!(faults.lost.next, 1);
    }

    proptest! {
        #[test]
        fn a_share_is_reached_in_the_long_run(seed: u64, share in 0.0..=1.0_f64) {
            let mut faults = Faults::default();
            faults.throttle.share = share;
            let mut random = Random::seeded(seed);
            let thrown = (0..2_000).filter(|_| faults.decide(Kind::Get, None, &mut random).action != Action::Answer).count();
            let met = f64::from(u32::try_from(thrown).unwrap()) / 2_000.0;
            // Six standard deviations of 2,000 requests are at most 0.067, so this doesn't fail by chance.
            prop_assert!((met - share).abs() < 0.067, "{met} of {share}");
        }

        #[test]
        fn the_same_seed_leads_to_the_same_actions_regardless_of_the_latency(seed: u64, jitter in 0_u64..1_000) {
            let mut calm = faults(r#"{"throttle":{"share":0.3},"errors":{"share":0.3},"lost":{"share":0.3}}"#);
            let mut slow = calm.clone();
            slow.latency.jitter = Duration::from_millis(jitter);
            let (mut one, mut other) = (Random::seeded(seed), Random::seeded(seed));
            for kind in Kind::ALL.into_iter().cycle().take(50) {
                let (calm, slow) = (calm.decide(kind, None, &mut one), slow.decide(kind, None, &mut other));
                prop_assert_eq!(calm.action, slow.action);
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
