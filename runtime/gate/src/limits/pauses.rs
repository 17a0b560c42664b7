//! Pauses after a refusal of the cloud: how long nothing is sent, and the probe that tests whether the pause is over.
//! Limits have pauses, and so have single resources: another operation may hold a lock on one, or the cloud may have a
//! limit for each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A probe unanswered for this long no longer holds others back.
pub(crate) const PROBE: Duration = Duration::from_secs(5);
/// How long a pause lasts if the cloud does not say; doubled each time that the probe after it is refused...
const UNNAMED: Duration = Duration::from_secs(1);
/// ...up to this.
const LONGEST_UNNAMED: Duration = Duration::from_mins(1);
/// What a request reads or changes: a hash of its place and its path, whose last bit says which. Reads and changes differ,
/// since a locked resource can still be read.
pub(crate) type Resource = u64;

/// The resource at the place and path with this hash.
pub(crate) const fn resource_at(hash: u64, is_change: bool) -> Resource {
    if is_change { hash | 1 } else { hash & !1 }
}

/// The most paused resources, and the most locked ones. More are unlikely: two that are paused pause their limit, and the
/// largest cloud has some hundred objects behind one lock.
const MOST: usize = 10_000;
/// How long after its pause ended a resource is remembered.
const REMEMBERED: Duration = Duration::from_mins(1);

/// A time in which nothing is sent, and the one request after it that tests whether it is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pause {
    until: Instant,
    /// When the probe in flight was sent.
    probe: Option<Instant>,
    /// How many times in a row the cloud refused without naming a time.
    unnamed: u32,
}

impl Pause {
    /// Pauses from now on for as long as the cloud said, or twice as long as the last time.
    pub(crate) fn new(now: Instant, after: Option<Duration>, last: Option<Self>) -> Self {
        let unnamed = last.map_or(0, |pause| pause.unnamed);
        let doubled = UNNAMED.saturating_mul(2_u32.saturating_pow(unnamed)).min(LONGEST_UNNAMED);
        let until = now + after.unwrap_or(doubled);
        let unnamed = if after.is_some() { 0 } else { unnamed.saturating_add(1) };
        Self { until: last.map_or(until, |pause| pause.until.max(until)), probe: None, unnamed }
    }

    /// When the next request may be sent, be it a probe.
    pub(crate) fn opens_at(&self, now: Instant) -> Instant {
        let probed = self.probe.map_or(now, |sent| sent + PROBE);
        self.until.max(probed).max(now)
    }

    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// The same pause for a successor, which does not receive the probe's answer.
    pub(crate) fn handed_over(self) -> Self {
        Self { probe: None, ..self }
    }

    /// Extends the pause until this time.
    pub(crate) fn extend(&mut self, until: Instant) {
        self.until = self.until.max(until);
    }

    pub(crate) fn on_probe_sent(&mut self, sent: Instant) {
        self.probe = Some(sent);
    }

    /// Notes that the probe is answered, or never will be.
    pub(crate) fn on_probe_answered(&mut self, sent: Instant) {
        if self.probe == Some(sent) {
            self.probe = None;
        }
    }

    /// Whether a request sent at this time is a probe.
    pub(crate) fn is_probe(&self, sent: Instant) -> bool {
        sent >= self.until
    }
}

#[derive(Debug, Clone, Copy)]
struct PausedResource {
    /// None once a probe was accepted.
    pause: Option<Pause>,
    /// When the last refusal came that was not in flight together with an earlier one.
    refused: Instant,
    remembered_until: Instant,
}

/// The paused resources.
#[derive(Debug, Clone, Default)]
pub(crate) struct PausedResources {
    paused: HashMap<Resource, PausedResource>,
    /// Until when a resource is locked. What the cloud says about its limits plays no part, so no probe tests it.
    locked: HashMap<Resource, Instant>,
}

impl PausedResources {
    /// When a request for this resource may be sent.
    pub(crate) fn opens_at(&self, resource: Resource, now: Instant) -> Instant {
        let unlocked = self.locked.get(&resource).map_or(now, |until| (*until).max(now));
        self.pause(resource).map_or(now, |pause| pause.opens_at(now)).max(unlocked)
    }

    /// Until when nothing is sent for this resource.
    pub(crate) fn until(&self, resource: Resource) -> Option<Instant> {
        self.pause(resource).map(Pause::until).max(self.locked.get(&resource).copied())
    }

    fn pause(&self, resource: Resource) -> Option<&Pause> {
        self.paused.get(&resource)?.pause.as_ref()
    }

    /// Notes that a request for this resource is sent.
    pub(crate) fn on_sent(&mut self, resource: Resource, now: Instant) {
        if let Some(pause) = self.paused.get_mut(&resource).and_then(|closed| closed.pause.as_mut()) {
            pause.on_probe_sent(now);
        }
    }

    /// Notes that a request sent at this time is answered, or never will be.
    pub(crate) fn on_finished(&mut self, resource: Resource, sent: Instant) {
        if let Some(pause) = self.paused.get_mut(&resource).and_then(|closed| closed.pause.as_mut()) {
            pause.on_probe_answered(sent);
        }
    }

    /// Notes that the cloud accepted a request sent at this time.
    pub(crate) fn on_accepted(&mut self, resource: Resource, now: Instant, sent: Instant) {
        let Some(closed) = self.paused.get_mut(&resource) else { return };
        if closed.pause.as_ref().is_some_and(|pause| pause.is_probe(sent)) {
            closed.pause = None;
            closed.remembered_until = now + REMEMBERED;
        }
    }

    /// Pauses the resource after the refusal of a request sent at this time. Returns whether the resource had been open
    /// again. Then the cause is not a lock that continues, but too many requests.
    pub(crate) fn on_refused(
        &mut self,
        resource: Resource,
        now: Instant,
        sent: Instant,
        after: Option<Duration>,
    ) -> bool {
        if self.paused.len() >= MOST {
            self.paused.retain(|_, closed| closed.remembered_until > now);
        }
        let full = self.paused.len() >= MOST;
        match self.paused.get_mut(&resource) {
            Some(closed) => {
                let news = sent >= closed.refused;
                let reopened = news && closed.pause.is_none() && closed.remembered_until > now;
                if news {
                    let pause = Pause::new(now, after, closed.pause);
                    *closed = PausedResource::new(pause, now);
                }
                reopened
            }
            None if full => true,
            None => {
                self.paused.insert(resource, PausedResource::new(Pause::new(now, after, None), now));
                false
            }
        }
    }

    /// Closes a locked object to changes for this time. Reads still show it.
    pub(crate) fn on_locked(&mut self, resource: Resource, now: Instant, after: Duration) {
        let changes = resource_at(resource, true);
        if self.locked.len() >= MOST {
            self.locked.retain(|_, until| *until > now);
        }
        if self.locked.len() < MOST || self.locked.contains_key(&changes) {
            let until = self.locked.entry(changes).or_insert(now);
            *until = (*until).max(now + after);
        }
    }

    /// Takes over the pauses of resources that are not known here.
    pub(crate) fn take_over(&mut self, predecessor: &Self) {
        for (resource, closed) in &predecessor.paused {
            if self.paused.len() >= MOST {
                break;
            }
            let pause = closed.pause.map(Pause::handed_over);
            self.paused.entry(*resource).or_insert(PausedResource { pause, ..*closed });
        }
        for (resource, until) in &predecessor.locked {
            if self.locked.len() >= MOST {
                break;
            }
            self.locked.entry(*resource).or_insert(*until);
        }
    }

    /// The number of paused resources.
    pub(crate) fn count(&self, now: Instant) -> usize {
        let is_closed = |closed: &&PausedResource| closed.pause.is_some_and(|pause| pause.until() > now);
        let locked = self.locked.iter().filter(|(_, until)| **until > now);
        let not_paused = |(resource, _): &(&Resource, &Instant)| {
            !self.paused.get(*resource).is_some_and(|closed| is_closed(&closed))
        };
        self.paused.values().filter(is_closed).count() + locked.filter(not_paused).count()
    }
}

impl PausedResource {
    fn new(pause: Pause, now: Instant) -> Self {
        Self { pause: Some(pause), refused: now, remembered_until: pause.until() + REMEMBERED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paused_resources_are_bounded_and_forgotten_in_time() {
        let now = Instant::now();
        let mut pauses = PausedResources::default();
        let most = u64::try_from(MOST).unwrap();
        for resource in 0..most + 10 {
            let is_too_many = pauses.on_refused(resource, now, now, Some(Duration::from_secs(5)));
            assert_eq!(is_too_many, resource >= most, "too many can't be locks");
        }
        assert_eq!((pauses.paused.len(), pauses.count(now)), (MOST, MOST));
        let later = now + Duration::from_mins(2);
        assert_eq!(pauses.count(later), 0);
        pauses.on_refused(0, later, later, None);
        assert_eq!(pauses.paused.len(), 1);
        for resource in 0..2 * most + 10 {
            pauses.on_locked(resource, later, Duration::from_secs(5));
        }
        assert_eq!((pauses.locked.len(), pauses.count(later)), (MOST, MOST + 1));
        pauses.on_locked(1, later + Duration::from_mins(1), Duration::from_secs(5));
        assert_eq!(pauses.locked.len(), 1);
    }
}
