//! What a leader observes while it leads. A new leader observes it again. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pileus_loader::Digest;

use super::failure::{Difference, Failure};
use super::health::Rates;
use super::job::Job;
use super::spec::{Follow, Spec, after};
use super::status::{Phase, Release, Status};
use super::step::{Action, Event};

/// What a leader observes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leader {
    /// Comparisons begin again with each leader, because each counts only its own calls.
    pub(super) since: Timestamp,
    /// The write of the status.
    pub(super) write: Job,
    pub(super) resolution: Option<Resolution>,
    pub(super) dry_run: Option<DryRun>,
    pub(super) measured: BTreeMap<Release, Rates>,
}

/// The resolution of a tag or range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolution {
    pub(super) follow: Follow,
    pub(super) job: Job,
    /// When the attempt began that runs or ran last.
    asked: Timestamp,
    /// What was found, and when the attempt began that found it.
    pub(super) found: Option<(Digest, Timestamp)>,
}

/// The comparison of a candidate with the active release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DryRun {
    pub(super) candidate: Release,
    pub(super) active: Release,
    pub(super) job: Job,
    pub(super) found: Vec<Difference>,
}

impl Leader {
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since, write: Job::Done, resolution: None, dry_run: None, measured: BTreeMap::new() }
    }

    /// Records the result of one of its actions. Results of actions that are no longer of interest are ignored.
    pub(super) fn observe(&mut self, event: Event, spec: &Spec, now: Timestamp) {
        match event {
            Event::Resolved { follow, result } => {
                let Some(resolution) = self.resolution.as_mut().filter(|known| known.follow == follow) else {
                    return;
                };
                if !resolution.job.is_running() {
                    return;
                }
                match result {
                    Ok(component) => {
                        resolution.found = Some((component, resolution.asked));
                        resolution.job = Job::after(now, spec.policy.interval);
                    }
                    Err(mut failure) => {
                        // A tag that is missing now may be pushed later.
                        failure.is_permanent = false;
                        resolution.job.fail(failure, now);
                    }
                }
            }
            Event::Compared { candidate, active, result } => {
                let is_known = |known: &&mut DryRun| known.candidate == candidate && known.active == active;
                let Some(dry_run) = self.dry_run.as_mut().filter(is_known) else { return };
                if !dry_run.job.is_running() {
                    return;
                }
                match result {
                    Ok(found) => {
                        dry_run.found = found;
                        dry_run.job = Job::Done;
                    }
                    Err(failure) => dry_run.job.fail(failure, now),
                }
            }
            Event::Measured { release, rates } => {
                self.measured.insert(release, rates);
            }
            _ => {}
        }
    }

    /// The write of the status failed.
    pub(super) fn on_write_failure(&mut self, now: Timestamp) {
        if self.write.is_running() {
            let message = "the status can't be written".to_owned();
            self.write.fail(Failure { message, is_permanent: false }, now);
        }
    }

    /// A newer status was read.
    pub(super) fn on_new_status(&mut self, before: Option<&Status>, status: &Status) {
        self.write = Job::Done;
        let roles = |status: &Status| (status.active_release(), status.canary());
        if before.map(roles) != Some(roles(status)) {
            self.measured.clear();
        }
        let candidate = status.candidate_release();
        self.dry_run.take_if(|dry_run| Some(dry_run.candidate) != candidate);
    }

    pub(super) fn rates(&self, release: Release) -> Rates {
        self.measured.get(&release).copied().unwrap_or_default()
    }

    /// Resolves what the spec follows, each interval and after the order to swap now.
    pub(super) fn resolve(&mut self, spec: &Spec, status: &Status, now: Timestamp) -> Option<Action> {
        if matches!(spec.follow, Follow::Digest(_)) {
            self.resolution = None;
            return None;
        }
        if self.resolution.as_ref().is_none_or(|known| known.follow != spec.follow) {
            let follow = spec.follow.clone();
            self.resolution = Some(Resolution { follow, job: Job::at(now), asked: now, found: None });
        }
        let resolution = self.resolution.as_mut()?;
        if status.swap_now.is_some_and(|ordered| resolution.asked < ordered) && !resolution.job.is_running() {
            resolution.job = Job::at(now);
        }
        if !resolution.job.start(now) {
            return None;
        }
        resolution.asked = now;
        Some(Action::Resolve(spec.follow.clone()))
    }

    /// Whether what the spec follows was resolved since this time.
    pub(super) fn has_resolved_since(&self, spec: &Spec, time: Timestamp) -> bool {
        let found = self.resolution.as_ref().and_then(|resolution| resolution.found);
        matches!(spec.follow, Follow::Digest(_)) || found.is_some_and(|(_, asked)| asked >= time)
    }

    /// Compares the candidate with the active release, if it is due.
    pub(super) fn compare(&mut self, candidate: Release, active: Release, now: Timestamp) -> Option<Action> {
        let is_known = |known: &DryRun| known.candidate == candidate && known.active == active;
        if !self.dry_run.as_ref().is_some_and(is_known) {
            self.dry_run = Some(DryRun { candidate, active, job: Job::at(now), found: Vec::new() });
        }
        let is_due = self.dry_run.as_mut()?.job.start(now);
        is_due.then_some(Action::Compare { candidate, active })
    }

    /// When the leader may have something to do, apart from the write of the status. Times that are over were considered in the last step.
    pub(super) fn times(&self, spec: &Spec, status: &Status, now: Timestamp) -> Vec<Timestamp> {
        let jobs = [
            self.resolution.as_ref().and_then(|resolution| resolution.job.wake_at()),
            self.dry_run.as_ref().and_then(|dry_run| dry_run.job.wake_at()),
        ];
        let observed = status.observing.map(|observation| self.observed_until(spec, observation.since, now));
        let phase = match status.candidate.as_ref().map(|candidate| candidate.phase) {
            Some(Phase::Canary { since, .. }) => Some(self.canary_until(spec, since, now)),
            Some(Phase::Waiting) => spec.policy.window.map(|window| window.next_open(now)),
            _ => None,
        };
        jobs.into_iter().chain([observed, phase]).flatten().collect()
    }

    pub(super) fn observed_until(&self, spec: &Spec, since: Timestamp, now: Timestamp) -> Timestamp {
        after(self.compares_since(since, now), spec.policy.observe)
    }

    pub(super) fn canary_until(&self, spec: &Spec, since: Timestamp, now: Timestamp) -> Timestamp {
        after(self.compares_since(since, now), spec.policy.canary.duration)
    }

    /// Since when this leader has compared two releases. A time that is still to come was written before the clock was set back,
    /// or by a clock that is ahead.
    fn compares_since(&self, since: Timestamp, now: Timestamp) -> Timestamp {
        if since > now { self.since } else { since.max(self.since) }
    }
}
