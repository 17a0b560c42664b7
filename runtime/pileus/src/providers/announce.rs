//! Tells operators what happens to the releases of a provider: in the log, by events of the leader, and in `/readyz`.

use pileus_controllers::HealthCheck;
use pileus_controllers::events::{Events, Reason};
use pileus_host::swap::{ConditionKind, Phase, Release, Status, Version};
use tokio::sync::watch;

use crate::error::Error;
use crate::leading::Leading;
use crate::releases::Shown;
use crate::swap_metrics::SwapMetrics;

/// How many differences of a dry run an event shows.
const SHOWN: usize = 3;

/// Announces what happens to providers. Clones share the events.
#[derive(Clone)]
pub(crate) struct Announcer {
    pub(crate) events: Events,
    pub(crate) leading: watch::Receiver<Option<Leading>>,
    pub(crate) metrics: SwapMetrics,
}

/// What happened.
#[derive(Debug, PartialEq)]
struct Announcement {
    reason: Reason,
    note: String,
}

impl Announcer {
    /// Announces what happens to one provider until it ends, by its name and the UID of its resource. `check` shows whether it serves calls.
    pub(super) async fn follow(
        self,
        (name, uid): (String, Option<String>),
        mut shown: watch::Receiver<Shown>,
        check: HealthCheck,
    ) -> Result<(), Error> {
        let (mut before, mut refused) = (Status::default(), None);
        loop {
            let Shown { status, gate, refusal } = shown.borrow_and_update().clone();
            match (gate.is_some(), degraded(&status)) {
                (true, None) => check.pass(),
                (true, Some(why)) => check.pass_with_remark(why),
                (false, why) => check.fail(why.unwrap_or("it is being loaded")),
            }
            // A replica that stands by writes nothing to the cluster, and counts nothing that the leader counts.
            let leads = self.leading.borrow().is_some();
            self.metrics.show(&name, &status);
            if leads {
                self.metrics.count(&name, &before, &status);
            }
            let news = refusal.as_deref().filter(|_| refusal != refused).map(refused_by_claims);
            for Announcement { reason, note } in announcements(&before, &status).into_iter().chain(news) {
                tracing::info!(provider = %name, "{note}");
                if leads {
                    self.events.record_for_provider(&name, uid.clone(), reason, note);
                }
            }
            (before, refused) = (status, refusal);
            if shown.changed().await.is_err() {
                self.metrics.forget(&name, &before);
                return Ok(());
            }
        }
    }
}

/// Why a provider isn't as its document wants it.
fn degraded(status: &Status) -> Option<&str> {
    let mut conditions = status.conditions.iter();
    let degraded = conditions.find(|condition| condition.kind == ConditionKind::Degraded && condition.holds);
    degraded.map(|condition| condition.message.as_str())
}

fn refused_by_claims(why: &str) -> Announcement {
    Announcement { reason: Reason::ProviderRefused, note: format!("{why}; its controllers don't run") }
}

/// What happened between two states. A restart announces what is so again.
fn announcements(before: &Status, now: &Status) -> Vec<Announcement> {
    let mut all = Vec::new();
    let mut announce = |reason, note| all.push(Announcement { reason, note });
    let release = |version: &Option<Version>| version.as_ref().map(|version| version.release);
    for Version { release: rejected, why, .. } in &now.rejected {
        if !before.rejected.iter().any(|version| version.release == *rejected) {
            let what = if release(&before.active) == Some(*rejected) {
                Reason::ProviderRolledBack
            } else {
                Reason::ProviderRejected
            };
            announce(what, format!("{} does not run until the spec changes: {why}", name(*rejected)));
        }
    }
    if let Some(Version { release: active, why, .. }) = &now.active
        && release(&before.active) != Some(*active)
    {
        announce(Reason::ProviderSwapped, format!("{} is active: {why}", name(*active)));
    }
    let phase =
        |status: &Status| status.candidate.as_ref().map(|candidate| (candidate.release, candidate.phase));
    if let Some(candidate) = now.candidate.as_ref().filter(|candidate| candidate.phase == Phase::Held)
        && phase(before) != phase(now)
    {
        let found = candidate.differences.clone().unwrap_or_default();
        let shown = found.shown.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
        let note = format!(
            "{} is held: in the dry run it answered {} lookups differently and wanted {} writes ({shown}); accept it \
             with `pileus swap`, or name another version",
            name(candidate.release),
            found.lookups,
            found.writes
        );
        announce(Reason::ProviderHeld, note);
    }
    all
}

fn name(release: Release) -> String {
    format!("release {} with settings {}", release.component.short(), release.settings.short())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pileus_host::swap::{Candidate, Differences};
    use pileus_loader::Digest;

    use super::*;

    fn release(text: &str) -> Release {
        Release { component: Digest::of(text.as_bytes()), settings: Digest::of(b"s") }
    }

    fn version(text: &str, why: &str) -> Version {
        Version { release: release(text), since: Timestamp::UNIX_EPOCH, why: why.to_owned() }
    }

    fn reasons(before: &Status, now: &Status) -> Vec<Reason> {
        announcements(before, now).into_iter().map(|announcement| announcement.reason).collect()
    }

    #[test]
    fn each_turn_of_a_swap_is_announced_once() {
        let empty = Status::default();
        let one = Status { active: Some(version("1", "the spec asks for it")), ..Status::default() };
        let two = Status {
            active: Some(version("2", "the spec asks for it")),
            previous: Some(version("1", "")),
            ..Status::default()
        };
        let back = Status {
            active: Some(version("1", "")),
            rejected: vec![version("2", "traps")],
            ..Status::default()
        };
        let candidate = |phase| Candidate {
            release: release("2"),
            since: Timestamp::UNIX_EPOCH,
            phase,
            differences: Some(Differences { lookups: 1, writes: 2, shown: vec!["delete x".to_owned(); 9] }),
            accepted: false,
        };
        let held = Status { candidate: Some(candidate(Phase::Held)), ..one.clone() };
        let waits = Status { candidate: Some(candidate(Phase::Waiting)), ..one.clone() };
        let rejected = Status { rejected: vec![version("2", "traps")], ..one.clone() };
        for (before, now, expected) in [
            (&empty, &one, &[Reason::ProviderSwapped][..]),
            (&one, &one, &[]),
            (&one, &two, &[Reason::ProviderSwapped]),
            (&two, &back, &[Reason::ProviderRolledBack, Reason::ProviderSwapped]),
            (&one, &held, &[Reason::ProviderHeld]),
            (&held, &held, &[]),
            (&held, &waits, &[]),
            (&one, &rejected, &[Reason::ProviderRejected]),
        ] {
            assert_eq!(reasons(before, now), expected);
        }
        let note = &announcements(&one, &held)[0].note;
        assert!(
            note.contains("1 lookups differently and wanted 2 writes (delete x; delete x; delete x)"),
            "{note}"
        );
    }
}
