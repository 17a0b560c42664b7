//! What is closed since the cloud refused: for how long, and how it is found out that it is over. Beside limits these are
//! single resources, with a lock that another operation holds, or a limit that the cloud keeps for each of them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// A probe that isn't answered by then holds the others back no longer.
pub(crate) const PROBE: Duration = Duration::from_secs(5);
/// How long a closure lasts where the cloud doesn't say; doubled each time that the probe after it is refused...
const UNSAID: Duration = Duration::from_secs(1);
/// ...up to this.
const MOST_UNSAID: Duration = Duration::from_mins(1);
/// What a request reads or changes: a hash of its place and its path, for reads and for changes apart, since a resource
/// that is locked can still be read.
pub(crate) type Resource = u64;

/// How many are remembered; more can hardly be closed, since two of one limit close the limit.
const MOST: usize = 10_000;
/// How long after it was opened it is remembered that a resource was closed.
const REMEMBERED: Duration = Duration::from_mins(1);

/// A time in which nothing may be sent, and the one request that is sent after it to see whether it is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Closure {
    until: Instant,
    /// When the probe was sent that isn't answered yet.
    probe: Option<Instant>,
    /// How many times in a row the cloud refused without saying for how long.
    unsaid: u32,
}

impl Closure {
    /// Closes from now on for as long as the cloud said, or for twice as long as the last time.
    pub(crate) fn new(now: Instant, after: Option<Duration>, last: Option<Self>) -> Self {
        let unsaid = last.map_or(0, |closure| closure.unsaid);
        let doubled = UNSAID.saturating_mul(2_u32.saturating_pow(unsaid)).min(MOST_UNSAID);
        let until = now + after.unwrap_or(doubled);
        let unsaid = if after.is_some() { 0 } else { unsaid.saturating_add(1) };
        Self { until: last.map_or(until, |closure| closure.until.max(until)), probe: None, unsaid }
    }

    /// When the next request may be sent, or be tried.
    pub(crate) fn opens(&self, now: Instant) -> Instant {
        let probed = self.probe.map_or(now, |sent| sent + PROBE);
        self.until.max(probed).max(now)
    }

    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// The same for a successor, which doesn't hear of the probe's answer.
    pub(crate) fn handed_over(self) -> Self {
        Self { probe: None, ..self }
    }

    /// It lasts until then, if that is later.
    pub(crate) fn extend(&mut self, until: Instant) {
        self.until = self.until.max(until);
    }

    pub(crate) fn probe(&mut self, sent: Instant) {
        self.probe = Some(sent);
    }

    /// The probe is answered, or won't be.
    pub(crate) fn free(&mut self, sent: Instant) {
        if self.probe == Some(sent) {
            self.probe = None;
        }
    }

    /// Whether a request that was sent then is one that tried whether the closure is over.
    pub(crate) fn was_tried(&self, sent: Instant) -> bool {
        sent >= self.until
    }
}

#[derive(Debug, Clone, Copy)]
struct Closed {
    /// None once a probe went through.
    closure: Option<Closure>,
    /// When the last refusal came that wasn't on its way together with another.
    refused: Instant,
    forgotten: Instant,
}

/// The closed resources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closures(HashMap<Resource, Closed>);

impl Closures {
    /// When a request of this resource may be sent.
    pub(crate) fn opens(&self, resource: Resource, now: Instant) -> Instant {
        self.closure(resource).map_or(now, |closure| closure.opens(now))
    }

    /// Until when nothing of this resource may be sent.
    pub(crate) fn until(&self, resource: Resource) -> Option<Instant> {
        self.closure(resource).map(Closure::until)
    }

    fn closure(&self, resource: Resource) -> Option<&Closure> {
        self.0.get(&resource)?.closure.as_ref()
    }

    /// A request of this resource is being sent.
    pub(crate) fn sent(&mut self, resource: Resource, now: Instant) {
        if let Some(closure) = self.0.get_mut(&resource).and_then(|closed| closed.closure.as_mut()) {
            closure.probe(now);
        }
    }

    /// A request that was sent then is answered, or won't be.
    pub(crate) fn finished(&mut self, resource: Resource, sent: Instant) {
        if let Some(closure) = self.0.get_mut(&resource).and_then(|closed| closed.closure.as_mut()) {
            closure.free(sent);
        }
    }

    /// The cloud took a request that was sent then.
    pub(crate) fn accepted(&mut self, resource: Resource, now: Instant, sent: Instant) {
        let Some(closed) = self.0.get_mut(&resource) else { return };
        if closed.closure.as_ref().is_some_and(|closure| closure.was_tried(sent)) {
            closed.closure = None;
            closed.forgotten = now + REMEMBERED;
        }
    }

    /// The cloud refused a request that was sent then. Says whether the resource had been open again: then it isn't a
    /// lock that goes on, but too much of something.
    pub(crate) fn refused(
        &mut self,
        resource: Resource,
        now: Instant,
        sent: Instant,
        after: Option<Duration>,
    ) -> bool {
        if self.0.len() >= MOST {
            self.0.retain(|_, closed| closed.forgotten > now);
        }
        let full = self.0.len() >= MOST;
        match self.0.get_mut(&resource) {
            Some(closed) => {
                let news = sent >= closed.refused;
                let reopened = news && closed.closure.is_none() && closed.forgotten > now;
                if news {
                    let closure = Closure::new(now, after, closed.closure);
                    *closed = Closed::new(closure, now);
                }
                reopened
            }
            None if full => true,
            None => {
                self.0.insert(resource, Closed::new(Closure::new(now, after, None), now));
                false
            }
        }
    }

    /// Goes on with what a predecessor knows of resources that aren't known here.
    pub(crate) fn take_over(&mut self, predecessor: &Self) {
        for (resource, closed) in &predecessor.0 {
            if self.0.len() >= MOST {
                return;
            }
            let closure = closed.closure.map(Closure::handed_over);
            self.0.entry(*resource).or_insert(Closed { closure, ..*closed });
        }
    }

    /// How many are closed.
    pub(crate) fn count(&self, now: Instant) -> usize {
        let is_closed = |closed: &&Closed| closed.closure.is_some_and(|closure| closure.until() > now);
        self.0.values().filter(is_closed).count()
    }
}

impl Closed {
    fn new(closure: Closure, now: Instant) -> Self {
        Self { closure: Some(closure), refused: now, forgotten: closure.until() + REMEMBERED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closed_resources_are_bounded_and_forgotten_in_time() {
        let now = Instant::now();
        let mut closures = Closures::default();
        let most = u64::try_from(MOST).unwrap();
        for resource in 0..most + 10 {
            let is_too_many = closures.refused(resource, now, now, Some(Duration::from_secs(5)));
            assert_eq!(is_too_many, resource >= most, "too many can't be locks");
        }
        assert_eq!((closures.0.len(), closures.count(now)), (MOST, MOST));
        let later = now + Duration::from_mins(2);
        assert_eq!(closures.count(later), 0);
        closures.refused(0, later, later, None);
        assert_eq!(closures.0.len(), 1);
    }
}
