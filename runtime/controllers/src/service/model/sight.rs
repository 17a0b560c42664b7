//! What a process has seen of Services, and so what it may clean up of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::facts::service::ServiceFacts;
use crate::service::ownership::{Demand, has_other_class};

/// How long whoever serves a foreign class has the first word.
const YIELDING: Duration = Duration::from_mins(30);

#[derive(Debug)]
struct Sight {
    facts: Arc<ServiceFacts>,
    is_present: bool,
    /// Whether it was ever wanted, and whether it was since it was last let go.
    was_wanted: bool,
    is_ours: bool,
    /// Since when a list has told of it, or its deletion has begun.
    leftover: Option<Instant>,
    /// Where it was of a foreign class when it last was a LoadBalancer, until when.
    foreign: Option<Instant>,
}

/// By UID.
#[derive(Debug, Default)]
pub(super) struct Sights {
    services: BTreeMap<String, Sight>,
}

impl Sights {
    pub(super) fn see(&mut self, facts: &Arc<ServiceFacts>, classes: &[String], now: Instant) {
        let uid = &facts.service.uid;
        self.gone(&facts.key(), uid);
        let sight = self.services.entry(uid.clone()).or_insert_with(|| Sight {
            facts: Arc::clone(facts),
            is_present: true,
            was_wanted: false,
            is_ours: false,
            leftover: None,
            foreign: None,
        });
        if facts.is_older_than(&sight.facts) {
            return;
        }
        if facts.is_load_balancer {
            sight.foreign = has_other_class(facts, classes).then_some(now);
        } else if sight.facts.is_load_balancer {
            sight.foreign = sight.foreign.map(|_| now);
        }
        sight.was_wanted |= Demand::of(facts, classes) == Demand::Ours;
        sight.is_ours |= Demand::of(facts, classes) == Demand::Ours;
        (sight.facts, sight.is_present) = (Arc::clone(facts), true);
    }

    /// Those of this name but one are gone.
    pub(super) fn gone(&mut self, name: &str, kept: &str) {
        let gone = self.services.iter_mut().filter(|(uid, sight)| sight.facts.key() == name && *uid != kept);
        gone.for_each(|(_, sight)| sight.is_present = false);
    }

    pub(super) fn is_left(&mut self, uid: &str, now: Instant) {
        if let Some(sight) = self.services.get_mut(uid) {
            sight.leftover.get_or_insert(now);
        }
    }

    pub(super) fn is_let_go(&mut self, uid: &str, classes: &[String]) {
        if let Some(sight) = self.services.get_mut(uid) {
            (sight.is_ours, sight.leftover) =
                (sight.is_present && Demand::of(&sight.facts, classes) == Demand::Ours, None);
        }
    }

    pub(super) fn was_wanted(&self, uid: &str) -> bool {
        self.services.get(uid).is_some_and(|sight| sight.was_wanted)
    }

    /// Whether what the cloud has of it, and the finalizer, may be removed at this time: no list is reason enough where it is a live one
    /// of a foreign class, and no finalizer where somebody else may be at it.
    pub(super) fn may_clean_up(&self, uid: &str, classes: &[String], now: Instant) -> bool {
        let Some(sight) = self.services.get(uid) else { return false };
        let Sight { facts, is_present, leftover, foreign, .. } = sight;
        let is_aloof = *is_present && !facts.is_deleting && has_other_class(facts, classes);
        let is_nobodys = match foreign {
            None => true,
            Some(since) => *is_present && !facts.is_load_balancer && now >= *since + YIELDING,
        };
        sight.is_ours || (!is_aloof && (leftover.is_some_and(|since| since <= now) || is_nobodys))
    }
}
