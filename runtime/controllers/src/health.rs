//! The health checks that `/readyz` shows. Each part of the process sets its own check, with a reason where it fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

/// How long a failure that may be over already is shown. It is longer than a client's longest pause between two tries (30 s) plus
/// its connection timeout (30 s), so a failure that lasts is reported again before this time is over.
const FOR_NOW: Duration = Duration::from_secs(70);

/// The health checks of the process. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    checks: Mutex<BTreeMap<String, CheckState>>,
    parts: Mutex<Vec<Weak<Shared>>>,
}

/// The check of one part of the process, which only that part sets.
pub struct HealthCheck {
    health: Health,
    name: String,
}

#[derive(Debug, Clone)]
enum CheckState {
    /// The check passes; the remark names what an operator should still look at.
    Passes(Option<String>),
    Fails(String),
    /// The check fails until this time, unless the failure is reported again.
    FailsUntil(String, Instant),
}

impl Health {
    /// Adds a check. It fails with this reason until its part sets it.
    pub fn check(&self, name: impl Into<String>, reason: impl Into<String>) -> HealthCheck {
        let check = HealthCheck { health: self.clone(), name: name.into() };
        check.fail(reason);
        check
    }

    /// A part of the process that may end before the process does: its checks are shown as long as a clone of it exists.
    #[must_use]
    pub fn part(&self) -> Self {
        let part = Self::default();
        let mut parts = self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|part| part.strong_count() > 0);
        parts.push(Arc::downgrade(&part.shared));
        part
    }

    /// The parts that exist.
    fn present_parts(&self) -> Vec<Self> {
        let parts = self.shared.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().filter_map(|part| Some(Self { shared: part.upgrade()? })).collect()
    }

    /// All checks by name, each with the reason of its failure or with its remark.
    pub fn report(&self, now: Instant) -> Vec<(String, Result<Option<String>, String>)> {
        let parts = self.present_parts();
        let checks = self.shared.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let result = |state: &CheckState| match state {
            CheckState::Fails(reason) => Err(reason.clone()),
            CheckState::FailsUntil(reason, until) if now < *until => Err(reason.clone()),
            CheckState::FailsUntil(..) => Ok(None),
            CheckState::Passes(remark) => Ok(remark.clone()),
        };
        let own = checks.iter().map(|(name, state)| (name.clone(), result(state)));
        let mut report: Vec<_> = own.chain(parts.iter().flat_map(|part| part.report(now))).collect();
        report.sort_by(|(name, _), (other, _)| name.cmp(other));
        report
    }
}

impl HealthCheck {
    /// The part works.
    pub fn pass(&self) {
        self.set(CheckState::Passes(None));
    }

    /// The part works, but will fail later unless an operator acts on this remark.
    pub fn pass_with_remark(&self, remark: impl Into<String>) {
        self.set(CheckState::Passes(Some(remark.into())));
    }

    /// The part doesn't work, for this reason.
    pub fn fail(&self, reason: impl Into<String>) {
        self.set(CheckState::Fails(reason.into()));
    }

    /// The part failed, and nothing reports its recovery: a watch that resumes is silent until an object changes. The check
    /// passes again when no further failure is reported for longer than a retry takes.
    pub fn fail_for_now(&self, reason: impl Into<String>, now: Instant) {
        self.set(CheckState::FailsUntil(reason.into(), now + FOR_NOW));
    }

    fn set(&self, state: CheckState) {
        let mut checks = self.health.shared.checks.lock().unwrap_or_else(PoisonError::into_inner);
        checks.insert(self.name.clone(), state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_until_it_is_set() {
        let (health, now) = (Health::default(), Instant::now());
        let watch = health.check("node-watch", "the first list has not come yet");
        let _other = health.check("provider", "not loaded");
        assert!(health.report(now).iter().all(|(_, state)| state.is_err()));
        watch.pass();
        assert_eq!(health.report(now)[0], ("node-watch".to_owned(), Ok(None)));
        watch.pass_with_remark("a page was read again");
        assert_eq!(health.report(now)[0].1, Ok(Some("a page was read again".to_owned())));
        watch.fail("the list has failed");
        let later = now + Duration::from_hours(1);
        assert_eq!(health.report(later)[0].1, Err("the list has failed".to_owned()));
    }

    #[test]
    fn the_checks_of_a_part_are_shown_as_long_as_it_exists() {
        let (health, now) = (Health::default(), Instant::now());
        let names = || health.report(now).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let _own = health.check("provider", "");
        let part = health.part();
        let clone = part.clone();
        let nested = part.part();
        let (check, _nested) = (clone.check("credential", ""), nested.check("service-watch", ""));
        drop((part, clone));
        assert_eq!(names(), ["credential", "provider", "service-watch"], "a check keeps its part");
        drop(check);
        assert_eq!(names(), ["provider"]);
    }

    #[test]
    fn a_failure_for_now_passes_unless_it_is_reported_again() {
        let (health, now) = (Health::default(), Instant::now());
        let watch = health.check("node-watch", "new");
        let fails = |seconds| health.report(now + Duration::from_secs(seconds))[0].1.is_err();
        watch.fail_for_now("interrupted", now);
        assert!(fails(0) && fails(69) && !fails(70));
        watch.fail_for_now("interrupted", now + Duration::from_mins(1));
        assert!(fails(129) && !fails(130));
        watch.pass();
        assert!(!fails(0));
    }
}
