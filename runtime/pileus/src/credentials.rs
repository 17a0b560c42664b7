//! Reports the status of credentials: a readiness condition for each, and an event for each change.
//!
//! A credential whose renewal fails makes the process unready only once no valid credential is left. Until then
//! everything works, and `/readyz` shows the failure beside `ok`. After that no request works, and an unready Pod stops
//! the rollout that may have caused this, while the old replicas continue. Readiness affects nothing else, as no
//! Service sends traffic to this Pod. Replicas that stand by acquire credentials too, so a failure shows before such a
//! replica has to lead. Only the leader records events, because a process that doesn't lead writes nothing.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pileus_controllers::events::{Events, Reason};
use pileus_controllers::{Health, HealthCheck};
use pileus_gate::{CredentialState, Failing, Gate};
use tokio::sync::watch;

/// How often the state of credentials is checked. A check only reads memory.
const PERIOD: Duration = Duration::from_secs(1);

/// The readiness conditions for the credentials of one provider.
pub(crate) struct CredentialConditions {
    /// The present gate is the last one.
    gates: watch::Receiver<Gate>,
    health: Health,
}

/// The status of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CredentialStatus {
    /// It is being acquired for the first time.
    Pending,
    /// It is valid and can be renewed.
    Healthy,
    /// It is valid, but its renewal fails.
    Failing,
    /// No valid credential is left.
    Missing,
}

/// An event to record about a credential.
#[derive(Debug, PartialEq)]
struct CredentialEvent {
    reason: Reason,
    note: String,
}

impl CredentialConditions {
    /// Those of a gate, which may be replaced by others later.
    pub(crate) fn new(gates: watch::Receiver<Gate>, health: &Health) -> Self {
        Self { gates, health: health.clone() }
    }

    /// Adds a condition for each credential, which fails until the credential is acquired, and updates it. Returns when no
    /// gate can follow any more.
    pub(crate) async fn update(mut self) {
        loop {
            let gate = self.gates.borrow_and_update().clone();
            // The checks of a former gate end with this part.
            let health = self.health.part();
            let condition = |state: &CredentialState| {
                health.check(format!("credential-{}", state.name), "it is being acquired")
            };
            let conditions: Vec<_> = gate.credentials().iter().map(condition).collect();
            tokio::select! {
                changed = self.gates.changed() => if changed.is_err() { return },
                () = Self::update_all(&gate, &conditions) => {}
            }
        }
    }

    async fn update_all(gate: &Gate, conditions: &[HealthCheck]) {
        loop {
            for (condition, state) in conditions.iter().zip(gate.credentials()) {
                match (status(&state), &state.failing) {
                    (CredentialStatus::Missing, _) => condition.fail(describe(&state)),
                    (CredentialStatus::Failing, _) => condition.pass_with_remark(describe(&state)),
                    (CredentialStatus::Healthy, _) => condition.pass(),
                    (CredentialStatus::Pending, _) => condition.fail("it is being acquired"),
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
}

/// Records an event for each change of a provider's credentials, and never returns. Failures that began before this process
/// led are recorded too, because no leader may have recorded them.
pub(crate) async fn record_events(gates: &watch::Receiver<Gate>, provider: &str, events: &Events) {
    let mut reported = BTreeMap::new();
    loop {
        for CredentialEvent { reason, note } in changes(&mut reported, &gates.borrow().credentials()) {
            events.record_for_provider(provider, None, reason, note);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn status(state: &CredentialState) -> CredentialStatus {
    match (state.is_ready, &state.failing) {
        (true, None) => CredentialStatus::Healthy,
        (true, Some(_)) => CredentialStatus::Failing,
        (false, Some(_)) => CredentialStatus::Missing,
        (false, None) => CredentialStatus::Pending,
    }
}

/// What is wrong with a credential, since when, and the consequence.
fn describe(state: &CredentialState) -> String {
    let time = |time: SystemTime| {
        let rounded = Timestamp::try_from(time).and_then(|time| time.round(jiff::Unit::Second));
        rounded.map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string())
    };
    let CredentialState { name: _, kind, is_ready, until, failing } = state;
    let Some(Failing { since, cause }) = failing else { return String::new() };
    let consequence = match (is_ready, until) {
        (true, Some(until)) => format!("the current one is valid until {}", time(*until)),
        (true, None) => "the current one stays in use".to_owned(),
        (false, _) => "requests to its hosts fail".to_owned(),
    };
    format!("{kind} can't be acquired since {}: {cause}; {consequence}", time(*since))
}

/// The events for changes since the last call. `reported` is the status of each credential as of its last event.
fn changes(
    reported: &mut BTreeMap<String, CredentialStatus>,
    states: &[CredentialState],
) -> Vec<CredentialEvent> {
    let mut events = Vec::new();
    for state in states {
        let (now, before) =
            (status(state), reported.get(&state.name).copied().unwrap_or(CredentialStatus::Healthy));
        let name = &state.name;
        let (reason, note) = match now {
            CredentialStatus::Pending => continue,
            _ if now == before => continue,
            CredentialStatus::Healthy => {
                (Reason::CredentialRestored, format!("credential {name} can be acquired again"))
            }
            CredentialStatus::Failing | CredentialStatus::Missing => {
                (Reason::CredentialFailed, format!("credential {name}: {}", describe(state)))
            }
        };
        events.push(CredentialEvent { reason, note });
        reported.insert(name.clone(), now);
    }
    events
}

#[cfg(test)]
mod tests {
    use Reason::{CredentialFailed as Failed, CredentialRestored as Restored};

    use super::*;

    fn state(is_ready: bool, until: Option<u64>, cause: Option<&str>) -> CredentialState {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let failing = cause.map(|cause| Failing { since: at(60), cause: cause.to_owned() });
        CredentialState { name: "main".to_owned(), kind: "bearer", is_ready, until: until.map(at), failing }
    }

    #[test]
    fn each_change_is_one_event() {
        let healthy = || state(true, None, None);
        let fails = |cause| state(true, Some(3_600), Some(cause));
        let missing = |cause| state(false, None, Some(cause));
        let pending = || state(false, None, None);
        let rows: [(&str, Vec<CredentialState>, Vec<Reason>); 6] = [
            ("healthy", vec![pending(), healthy(), healthy()], vec![]),
            ("fails repeatedly", vec![healthy(), fails("a"), fails("b")], vec![Failed]),
            ("expires", vec![fails("a"), missing("a"), missing("b")], vec![Failed, Failed]),
            ("never acquired", vec![pending(), missing("a"), pending(), missing("a")], vec![Failed]),
            ("restored", vec![missing("a"), pending(), healthy(), healthy()], vec![Failed, Restored]),
            ("fails again", vec![fails("a"), healthy(), fails("a")], vec![Failed, Restored, Failed]),
        ];
        for (name, states, expected) in rows {
            let mut reported = BTreeMap::new();
            let events: Vec<_> =
                states.into_iter().flat_map(|state| changes(&mut reported, &[state])).collect();
            assert_eq!(
                events.iter().map(|event| event.reason.clone()).collect::<Vec<_>>(),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_failure_has_its_time_cause_and_consequence() {
        let describe = |is_ready, until| describe(&state(is_ready, until, Some("no such file")));
        assert_eq!(
            describe(true, Some(3_600)),
            "bearer can't be acquired since 1970-01-01T00:01:00Z: no such file; the current one is valid until \
             1970-01-01T01:00:00Z"
        );
        assert!(describe(true, None).ends_with("; the current one stays in use"));
        assert!(describe(false, None).ends_with("; requests to its hosts fail"));
    }
}
