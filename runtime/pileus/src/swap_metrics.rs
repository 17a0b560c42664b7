//! Metrics of the releases of providers. Each replica shows what the shared status says. Only the leader counts how swaps end, so
//! that a sum over replicas is right.

use pileus_host::swap::{ConditionKind, Phase, Status};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metric families. Clones share their values.
#[derive(Clone)]
pub(crate) struct SwapMetrics {
    states: Family<StateLabels, Gauge>,
    degraded: Family<ProviderLabels, Gauge>,
    swaps: Family<SwapLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    provider: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabels {
    provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SwapLabels {
    provider: String,
    result: &'static str,
}

impl SwapMetrics {
    /// Creates and registers the families.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics =
            Self { states: Family::default(), degraded: Family::default(), swaps: Family::default() };
        let prefix = registry.sub_registry_with_prefix("pileus_release");
        let help = "1 for the state that the releases of a provider are in: preparing, dry-run, held, waiting, canary, observing, \
                    rejected or settled";
        prefix.register("state", help, metrics.states.clone());
        let help = "1 if what the document asks for is not what runs, or something about it fails";
        prefix.register("degraded", help, metrics.degraded.clone());
        let help = "Swaps that ended while this replica led, by result: active, rejected or rolled-back";
        prefix.register("swaps", help, metrics.swaps.clone());
        metrics
    }

    /// Shows a status in place of those before.
    pub(crate) fn show(&self, provider: &str, status: &Status) {
        let now = state(status);
        for state in STATES.into_iter().filter(|state| *state != now) {
            self.states.remove(&StateLabels { provider: provider.to_owned(), state });
        }
        self.states.get_or_create(&StateLabels { provider: provider.to_owned(), state: now }).set(1);
        let mut conditions = status.conditions.iter();
        let is_degraded =
            conditions.any(|condition| condition.kind == ConditionKind::Degraded && condition.holds);
        self.degraded
            .get_or_create(&ProviderLabels { provider: provider.to_owned() })
            .set(is_degraded.into());
    }

    /// Counts a swap that ended between two statuses. What was so when this process started is not counted again.
    pub(crate) fn count(&self, provider: &str, before: &Status, now: &Status) {
        if let Some(result) = result(before, now) {
            self.swaps.get_or_create(&SwapLabels { provider: provider.to_owned(), result }).inc();
        }
    }

    /// Removes what a provider shows that has no document any more.
    pub(crate) fn forget(&self, provider: &str, last: &Status) {
        self.states.remove(&StateLabels { provider: provider.to_owned(), state: state(last) });
        self.degraded.remove(&ProviderLabels { provider: provider.to_owned() });
    }
}

const STATES: [&str; 8] =
    ["preparing", "dry-run", "held", "waiting", "canary", "observing", "rejected", "settled"];

/// The state that a status is in.
fn state(status: &Status) -> &'static str {
    match status.candidate.as_ref().map(|candidate| candidate.phase) {
        Some(Phase::Preparing) => "preparing",
        Some(Phase::DryRun) => "dry-run",
        Some(Phase::Held) => "held",
        Some(Phase::Waiting) => "waiting",
        Some(Phase::Canary { .. }) => "canary",
        None if status.observing.is_some() => "observing",
        None if is_last_rejected(status) => "rejected",
        None if status.active.is_none() => "preparing",
        None => "settled",
    }
}

/// Whether the last swap ended with a rejection or a rollback. What was rejected earlier says nothing about the active release.
fn is_last_rejected(status: &Status) -> bool {
    let active = status.active.as_ref().map(|version| version.since);
    status.rejected.iter().any(|version| Some(version.since) >= active)
}

fn result(before: &Status, now: &Status) -> Option<&'static str> {
    let active = |status: &Status| status.active.as_ref().map(|version| version.release);
    let is_first = *before == Status::default();
    let is_rejected = now.rejected.len() > before.rejected.len();
    match (is_first, active(before) != active(now), is_rejected) {
        (true, ..) | (false, false, false) => None,
        (false, true, true) => Some("rolled-back"),
        (false, true, false) => Some("active"),
        (false, false, true) => Some("rejected"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pileus_host::swap::{Candidate, Release, Version};
    use pileus_loader::Digest;

    use super::*;

    fn version(text: &str) -> Version {
        let release = Release { component: Digest::of(text.as_bytes()), settings: Digest::of(b"s") };
        Version { release, since: Timestamp::UNIX_EPOCH, why: String::new() }
    }

    #[test]
    fn each_end_of_a_swap_is_counted_once_and_each_state_has_a_name() {
        let candidate = |phase| {
            let Version { release, since, .. } = version("2");
            Some(Candidate { release, since, phase, differences: None, accepted: false })
        };
        let empty = Status::default();
        let one = Status { active: Some(version("1")), observed_generation: 1, ..Status::default() };
        let asked =
            Status { candidate: candidate(Phase::Preparing), observed_generation: 1, ..Status::default() };
        let held = Status { candidate: candidate(Phase::Held), ..one.clone() };
        let two = Status { active: Some(version("2")), ..one.clone() };
        let bad = Status { rejected: vec![version("2")], ..one.clone() };
        let newer = Version { since: Timestamp::from_second(1).unwrap(), ..version("3") };
        let later = Status { active: Some(newer), ..bad.clone() };
        for (before, now, expected, name) in [
            (&empty, &one, None, "settled"),
            (&empty, &bad, None, "rejected"),
            (&asked, &one, Some("active"), "settled"),
            (&one, &held, None, "held"),
            (&held, &two, Some("active"), "settled"),
            (&held, &bad, Some("rejected"), "rejected"),
            (&two, &bad, Some("rolled-back"), "rejected"),
            (&bad, &one, None, "settled"),
            (&bad, &later, Some("active"), "settled"),
        ] {
            assert_eq!((result(before, now), state(now)), (expected, name));
        }
    }

    #[test]
    fn one_state_is_shown_at_a_time_and_none_of_a_provider_that_is_gone() {
        let mut registry = Registry::default();
        let metrics = SwapMetrics::register(&mut registry);
        let shown = |registry: &Registry| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("pileus_release_state{"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let settled = Status { active: Some(version("1")), ..Status::default() };
        metrics.show("a", &Status::default());
        metrics.show("a", &settled);
        assert_eq!(shown(&registry), [r#"pileus_release_state{provider="a",state="settled"} 1"#]);
        metrics.forget("a", &settled);
        assert_eq!(shown(&registry), [""; 0]);
    }
}
