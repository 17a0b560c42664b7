//! What a process has observed of Services, and so may clean up: an independent statement of the rules of `ownership.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::facts::service::ServiceFacts;
use crate::service::ownership::Demand;
use crate::service::scope::ServiceScope;

/// How long the controller of another class has to clean up.
const GRACE_PERIOD: Duration = Duration::from_mins(30);

#[derive(Debug)]
struct Observation {
    facts: Arc<ServiceFacts>,
    is_present: bool,
    /// Whether it ever wanted a load balancer of ours, and whether it did since it was last released.
    was_wanted: bool,
    is_ours: bool,
    /// Since when a list has named it, or its deletion has begun.
    leftover: Option<Instant>,
    /// Where it had another class when it last was a LoadBalancer, until when.
    other_class: Option<Instant>,
}

/// By UID.
#[derive(Debug, Default)]
pub(super) struct Observations {
    services: BTreeMap<String, Observation>,
}

impl Observations {
    pub(super) fn see(&mut self, facts: &Arc<ServiceFacts>, scope: &ServiceScope, now: Instant) {
        let uid = &facts.service.uid;
        self.gone(&facts.key(), uid);
        let seen = self.services.entry(uid.clone()).or_insert_with(|| Observation {
            facts: Arc::clone(facts),
            is_present: true,
            was_wanted: false,
            is_ours: false,
            leftover: None,
            other_class: None,
        });
        if facts.is_older_than(&seen.facts) {
            return;
        }
        if facts.is_load_balancer {
            seen.other_class = scope.is_of_other(facts).then_some(now);
        } else if seen.facts.is_load_balancer {
            seen.other_class = seen.other_class.map(|_| now);
        }
        seen.was_wanted |= Demand::of(facts, scope) == Demand::Ours;
        seen.is_ours |= Demand::of(facts, scope) == Demand::Ours;
        (seen.facts, seen.is_present) = (Arc::clone(facts), true);
    }

    /// The Services of this name are gone, but for the one with this UID.
    pub(super) fn gone(&mut self, name: &str, kept: &str) {
        let gone = self.services.iter_mut().filter(|(uid, seen)| seen.facts.key() == name && *uid != kept);
        gone.for_each(|(_, seen)| seen.is_present = false);
    }

    pub(super) fn on_leftover(&mut self, uid: &str, now: Instant) {
        if let Some(seen) = self.services.get_mut(uid) {
            seen.leftover.get_or_insert(now);
        }
    }

    pub(super) fn on_released(&mut self, uid: &str, scope: &ServiceScope) {
        if let Some(seen) = self.services.get_mut(uid) {
            (seen.is_ours, seen.leftover) =
                (seen.is_present && Demand::of(&seen.facts, scope) == Demand::Ours, None);
        }
    }

    pub(super) fn was_wanted(&self, uid: &str) -> bool {
        self.services.get(uid).is_some_and(|seen| seen.was_wanted)
    }

    /// Whether its load balancer and its finalizer may be removed at this time. For a live Service of another class a list
    /// is no reason; nor is a finalizer, while another controller may be working on it.
    pub(super) fn may_clean_up(&self, uid: &str, scope: &ServiceScope, now: Instant) -> bool {
        let Some(seen) = self.services.get(uid) else { return false };
        let Observation { facts, is_present, leftover, other_class, .. } = seen;
        let is_of_other_class = *is_present && !facts.is_deleting && scope.is_of_other(facts);
        let has_no_owner = match other_class {
            None => true,
            Some(since) => *is_present && !facts.is_load_balancer && now >= *since + GRACE_PERIOD,
        };
        seen.is_ours || (!is_of_other_class && (leftover.is_some_and(|since| since <= now) || has_no_owner))
    }
}
