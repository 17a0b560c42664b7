//! Whether the parts of the process work, each with its reason where it doesn't: what `/readyz` shows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long trouble that may be over already is shown. Longer than a client waits between two tries (30 s) and for a
/// connection (30 s): as long as it lasts, it is reported again before that.
const TROUBLE: Duration = Duration::from_secs(70);

/// The conditions of the process. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    conditions: Arc<Mutex<BTreeMap<String, State>>>,
}

/// One part's own condition, which nobody else sets.
pub struct Condition {
    health: Health,
    name: String,
}

#[derive(Debug, Clone)]
enum State {
    /// With what isn't well nevertheless.
    Holds(Option<String>),
    Fails(String),
    /// Fails until then, unless it is said again.
    Troubled(String, Instant),
}

impl Health {
    /// Adds a condition, which fails with this reason until it is said to hold.
    pub fn condition(&self, name: impl Into<String>, reason: impl Into<String>) -> Condition {
        let condition = Condition { health: self.clone(), name: name.into() };
        condition.fails(reason);
        condition
    }

    /// All conditions by name: why those fail that do, and what isn't well about those that hold.
    pub fn report(&self, now: Instant) -> Vec<(String, Result<Option<String>, String>)> {
        let conditions = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        let judge = |state: &State| match state {
            State::Fails(reason) => Err(reason.clone()),
            State::Troubled(reason, until) if now < *until => Err(reason.clone()),
            State::Troubled(..) => Ok(None),
            State::Holds(remark) => Ok(remark.clone()),
        };
        conditions.iter().map(|(name, state)| (name.clone(), judge(state))).collect()
    }
}

impl Condition {
    /// The part works.
    pub fn holds(&self) {
        self.set(State::Holds(None));
    }

    /// The part works, but somebody should look after it before it doesn't.
    pub fn holds_but(&self, remark: impl Into<String>) {
        self.set(State::Holds(Some(remark.into())));
    }

    /// The part doesn't work, and why, until it is said to hold.
    pub fn fails(&self, reason: impl Into<String>) {
        self.set(State::Fails(reason.into()));
    }

    /// Something went wrong that nobody hears of when it is over, as a watch that is resumed says nothing until
    /// something changes. It is taken to be over when it hasn't been said again for longer than a retry takes.
    pub fn is_troubled(&self, reason: impl Into<String>, now: Instant) {
        self.set(State::Troubled(reason.into(), now + TROUBLE));
    }

    fn set(&self, state: State) {
        let mut conditions = self.health.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        conditions.insert(self.name.clone(), state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_fails_until_it_holds() {
        let (health, now) = (Health::default(), Instant::now());
        let watch = health.condition("node-watch", "the first list has not come yet");
        let _other = health.condition("provider", "not loaded");
        assert!(health.report(now).iter().all(|(_, state)| state.is_err()));
        watch.holds();
        assert_eq!(health.report(now)[0], ("node-watch".to_owned(), Ok(None)));
        watch.holds_but("a page was read again");
        assert_eq!(health.report(now)[0].1, Ok(Some("a page was read again".to_owned())));
        watch.fails("the list has failed");
        let later = now + Duration::from_hours(1);
        assert_eq!(health.report(later)[0].1, Err("the list has failed".to_owned()));
    }

    #[test]
    fn trouble_passes_unless_it_is_said_again() {
        let (health, now) = (Health::default(), Instant::now());
        let watch = health.condition("node-watch", "new");
        let fails = |seconds| health.report(now + Duration::from_secs(seconds))[0].1.is_err();
        watch.is_troubled("interrupted", now);
        assert!(fails(0) && fails(69) && !fails(70));
        watch.is_troubled("interrupted", now + Duration::from_mins(1));
        assert!(fails(129) && !fails(130));
        watch.holds();
        assert!(!fails(0));
    }
}
