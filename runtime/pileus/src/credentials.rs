//! What an operator sees of credentials: a line in `/readyz` for each as soon as it can't be renewed, and an event once
//! something has changed.
//!
//! A credential that fails makes the process unready only when nothing valid is left. Until then all works as it should,
//! and what is wrong stands beside its `ok`. From then on nothing works, so a rollout that brought it about stops there
//! while the replicas before it go on; nothing else hangs on readiness, as no traffic comes to this Pod by a Service. One
//! that stands by acquires credentials, too, and tells the same: a fault shows before a replica with it is needed.
//! Events come from the one that leads, since a process that doesn't writes nothing.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pileus_controllers::events::{Events, Reason};
use pileus_controllers::{Condition, Health};
use pileus_gate::{CredentialState, Failing, Gate};

/// How often is looked. Asking costs nothing, and people don't see faster.
const LOOK: Duration = Duration::from_secs(1);

/// The credentials of one provider, as `/readyz` shows them.
pub(crate) struct Shown {
    gate: Gate,
    conditions: Vec<Condition>,
}

/// How a credential is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// There is nothing valid yet, and nothing has failed.
    Awaited,
    /// It is valid and can be renewed.
    Well,
    /// It is valid, but can't be renewed.
    Failing,
    /// Nothing valid is left.
    Missing,
}

/// Something to tell of a credential.
#[derive(Debug, PartialEq)]
struct News {
    reason: Reason,
    note: String,
}

impl Shown {
    /// Those of a gate, each with a condition that fails until the credential is there.
    pub(crate) fn new(gate: Gate, health: &Health) -> Self {
        let condition = |state: &CredentialState| {
            health.condition(format!("credential-{}", state.name), "it is being acquired")
        };
        let conditions = gate.credentials().iter().map(condition).collect();
        Self { gate, conditions }
    }

    /// Shows how they are doing, for ever.
    pub(crate) async fn follow(&self) {
        loop {
            for (condition, state) in self.conditions.iter().zip(self.gate.credentials()) {
                match (standing(&state), &state.failing) {
                    (Standing::Missing, _) => condition.fails(account(&state)),
                    (Standing::Failing, _) => condition.holds_but(account(&state)),
                    (Standing::Well, _) => condition.holds(),
                    (Standing::Awaited, _) => condition.fails("it is being acquired"),
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Tells of each change of a provider's credentials by an event, for ever: of what fails already, too, as nobody has told it
/// if nobody led.
pub(crate) async fn tell(gate: &Gate, provider: &str, events: &Events) {
    let mut told = BTreeMap::new();
    loop {
        for News { reason, note } in news(&mut told, &gate.credentials()) {
            events.about_provider(provider, reason, note);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn standing(state: &CredentialState) -> Standing {
    match (state.is_ready, &state.failing) {
        (true, None) => Standing::Well,
        (true, Some(_)) => Standing::Failing,
        (false, Some(_)) => Standing::Missing,
        (false, None) => Standing::Awaited,
    }
}

/// What is wrong with a credential, since when, and what follows.
fn account(state: &CredentialState) -> String {
    let time = |time: SystemTime| {
        let rounded = Timestamp::try_from(time).and_then(|time| time.round(jiff::Unit::Second));
        rounded.map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string())
    };
    let CredentialState { name: _, kind, is_ready, until, failing } = state;
    let Some(Failing { since, cause }) = failing else { return String::new() };
    let follows = match (is_ready, until) {
        (true, Some(until)) => format!("the one that is held is valid until {}", time(*until)),
        (true, None) => "the one that is held stays in use".to_owned(),
        (false, _) => "requests to its hosts fail".to_owned(),
    };
    format!("{kind} can't be acquired since {}: {cause}; {follows}", time(*since))
}

/// What to tell, once for each change. `told` is how each was doing when it was told of, and changes with it.
fn news(told: &mut BTreeMap<String, Standing>, states: &[CredentialState]) -> Vec<News> {
    let mut news = Vec::new();
    for state in states {
        let (now, before) = (standing(state), told.get(&state.name).copied().unwrap_or(Standing::Well));
        let name = &state.name;
        let (reason, note) = match now {
            Standing::Awaited => continue,
            _ if now == before => continue,
            Standing::Well => {
                (Reason::CredentialRestored, format!("credential {name} can be acquired again"))
            }
            Standing::Failing | Standing::Missing => {
                (Reason::CredentialFailed, format!("credential {name}: {}", account(state)))
            }
        };
        news.push(News { reason, note });
        told.insert(name.clone(), now);
    }
    news
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
    fn each_change_is_told_once() {
        let well = || state(true, None, None);
        let fails = |cause| state(true, Some(3_600), Some(cause));
        let is_missing = |cause| state(false, None, Some(cause));
        let awaited = || state(false, None, None);
        let rows: [(&str, Vec<CredentialState>, Vec<Reason>); 6] = [
            ("all is well", vec![awaited(), well(), well()], vec![]),
            ("it fails and is tried again", vec![well(), fails("a"), fails("b")], vec![Failed]),
            ("it runs out", vec![fails("a"), is_missing("a"), is_missing("b")], vec![Failed, Failed]),
            ("it never was", vec![awaited(), is_missing("a"), awaited(), is_missing("a")], vec![Failed]),
            ("it comes back", vec![is_missing("a"), awaited(), well(), well()], vec![Failed, Restored]),
            ("it fails again", vec![fails("a"), well(), fails("a")], vec![Failed, Restored, Failed]),
        ];
        for (name, states, expected) in rows {
            let mut told = BTreeMap::new();
            let news: Vec<_> = states.into_iter().flat_map(|state| news(&mut told, &[state])).collect();
            assert_eq!(news.iter().map(|news| news.reason).collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_time_and_with_what_follows() {
        let account = |is_ready, until| account(&state(is_ready, until, Some("no such file")));
        assert_eq!(
            account(true, Some(3_600)),
            "bearer can't be acquired since 1970-01-01T00:01:00Z: no such file; the one that is held is valid until \
             1970-01-01T01:00:00Z"
        );
        assert!(account(true, None).ends_with("; the one that is held stays in use"));
        assert!(account(false, None).ends_with("; requests to its hosts fail"));
    }
}
