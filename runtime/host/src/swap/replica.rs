//! What one replica holds and serves, and the actions that bring it to what the status says. The same on leader and
//! standbys. Pure.
//!
//! A release keeps serving until the one that replaces it is ready here, regardless of what fails.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::failure::Failure;
use super::job::Job;
use super::spec::after;
use super::status::{Release, Status};
use super::step::{Action, Ended, Stage};

/// The share of the lookups that a candidate answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CanaryShare {
    /// The candidate.
    pub release: Release,
    /// The percentage of nodes.
    pub share: u8,
}

/// What one replica holds and serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Replica {
    holdings: BTreeMap<Release, Holding>,
    /// What calls get.
    pub(super) serving: Option<Release>,
    /// What a share of the lookups gets instead.
    pub(super) canary: Option<CanaryShare>,
    /// Releases whose last calls may still run, and until when.
    draining: BTreeMap<Release, Timestamp>,
}

/// How far the preparation of a release got on this replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) stage: Stage,
    pub(super) job: Job,
}

impl Holding {
    /// Whether this stage is behind it.
    pub(super) fn has_passed(&self, stage: Stage) -> bool {
        self.stage > stage || (self.stage == stage && self.job == Job::Done)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.has_passed(Stage::Check)
    }
}

impl Replica {
    pub(super) fn holding(&self, release: Release) -> Option<&Holding> {
        self.holdings.get(&release)
    }

    pub(super) fn is_ready(&self, release: Release) -> bool {
        self.holding(release).is_some_and(Holding::is_ready)
    }

    /// Records how a stage of a preparation ended. Without `may_refuse`, it is tried again after each failure.
    pub(super) fn finish(&mut self, ended: Ended, may_refuse: bool, now: Timestamp) {
        let Ended { release, stage, result } = ended;
        let is_compiled = self.is_compiled(release);
        let Some(holding) = self.holdings.get_mut(&release) else { return };
        if holding.stage != stage || !holding.job.is_running() {
            return;
        }
        let next = stage.next().filter(|next| *next != Stage::Compile || !is_compiled);
        let next = if stage == Stage::Verify { next.or(Some(Stage::Check)) } else { next };
        match (result, next) {
            (Err(mut failure), _) => {
                failure.is_permanent &= may_refuse;
                holding.job.fail(failure, now);
            }
            (Ok(()), Some(next)) => *holding = Holding { stage: next, job: Job::at(now) },
            (Ok(()), None) => holding.job = Job::Done,
        }
    }

    /// Records that no call of a release runs any more.
    pub(super) fn drained(&mut self, release: Release) {
        self.draining.remove(&release);
    }

    /// The actions toward what the status says. `drain` is how long calls of a replaced release may take.
    pub(super) fn follow(&mut self, status: &Status, drain: SignedDuration, now: Timestamp) -> Vec<Action> {
        let wanted: BTreeSet<_> = status.releases().collect();
        let mut actions = self.prepare(status, &wanted, now);
        self.switch(status, after(now, drain), &mut actions);
        self.abort_overdue(now, &mut actions);
        self.unload(&wanted, &mut actions);
        actions
    }

    /// When something may have to be done, if no event comes before. Times that are over were considered in the last step.
    pub(super) fn times<'a>(&'a self, status: &'a Status) -> impl Iterator<Item = Timestamp> {
        let jobs = status.releases().filter_map(|release| self.holding(release)?.job.wake_at());
        jobs.chain(self.draining.values().copied())
    }

    /// Whether the operator ordered the candidate in place of an active release that can't be prepared, after the status had shown
    /// that. Without such an order it waits: what is away now may come back, and a candidate that was compared with nothing is
    /// a risk.
    pub(super) fn replaces_lost(&self, status: &Status) -> bool {
        let active = status.active_release().and_then(|active| self.holding(active));
        let is_lost = self.serving.is_none() && active.is_some_and(|holding| holding.job.error().is_some());
        is_lost && status.swap_now.is_some_and(|ordered| status.was_not_ready(ordered))
    }

    fn prepare(&mut self, status: &Status, wanted: &BTreeSet<Release>, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        let candidate = status.candidate_release();
        // A candidate is checked beside the active release: whether it can take over from it.
        let has_active = status.active_release().is_none_or(|active| self.is_ready(active));
        let may_check = has_active || self.replaces_lost(status);
        for &release in wanted {
            let first = self.first_stage(release);
            let new = || Holding { stage: first, job: Job::at(now) };
            let holding = self.holdings.entry(release).or_insert_with(new);
            // Only a candidate may be refused. What the status calls active ran elsewhere, so it is tried again.
            if let (Job::Refused(error), true) = (&holding.job, candidate != Some(release)) {
                let failure = Failure { message: error.clone(), is_permanent: false };
                holding.job.fail(failure, now);
            }
            let waits = holding.stage == Stage::Check && candidate == Some(release) && !may_check;
            if !waits && holding.job.start(now) {
                actions.push(Action::Prepare { stage: holding.stage, release });
            }
        }
        actions
    }

    /// A component that is compiled here is verified under new settings, but neither fetched nor compiled again.
    fn first_stage(&self, release: Release) -> Stage {
        if self.is_compiled(release) { Stage::Verify } else { Stage::Fetch }
    }

    fn is_compiled(&self, release: Release) -> bool {
        let has_code = |(held, holding): (&Release, &Holding)| {
            held.component == release.component && holding.has_passed(Stage::Compile)
        };
        self.holdings.iter().any(has_code)
    }

    fn switch(&mut self, status: &Status, deadline: Timestamp, actions: &mut Vec<Action>) {
        let before = [self.serving, self.canary.map(|canary| canary.release)];
        let active = status.active_release().filter(|active| self.is_ready(*active));
        if active.is_some() && active != self.serving {
            self.serving = active;
            actions.extend(active.map(Action::Switch));
        }
        // Answers of a candidate are compared with those of the active release, so there is no canary beside another one.
        let is_current = self.serving.is_some() && self.serving == status.active_release();
        let canary = status.canary().filter(|canary| is_current && self.is_ready(canary.release));
        if canary != self.canary {
            self.canary = canary;
            actions.push(Action::Canary(canary));
        }
        let replaced = before.into_iter().flatten().filter(|release| !self.is_serving(*release));
        for release in replaced.collect::<Vec<_>>() {
            self.draining.insert(release, deadline);
            actions.push(Action::Drain { release, deadline });
        }
        let (serving, canary) = (self.serving, self.canary.map(|canary| canary.release));
        self.draining.retain(|release, _| Some(*release) != serving && Some(*release) != canary);
    }

    /// Whether new calls get this release.
    fn is_serving(&self, release: Release) -> bool {
        self.serving == Some(release) || self.canary.is_some_and(|canary| canary.release == release)
    }

    fn abort_overdue(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        self.draining.retain(|release, deadline| {
            let is_overdue = *deadline <= now;
            if is_overdue {
                actions.push(Action::Abort(*release));
            }
            !is_overdue
        });
    }

    /// Drops what the status names no more, once neither a call nor a job uses it.
    fn unload(&mut self, wanted: &BTreeSet<Release>, actions: &mut Vec<Action>) {
        let is_used = |release: &Release, holding: &Holding| {
            wanted.contains(release)
                || self.is_serving(*release)
                || self.draining.contains_key(release)
                || holding.job.is_running()
        };
        let unused: Vec<_> =
            self.holdings.iter().filter(|(release, holding)| !is_used(release, holding)).collect();
        let unused: Vec<_> = unused.into_iter().map(|(release, _)| *release).collect();
        for release in unused {
            self.holdings.remove(&release);
            actions.push(Action::Unload(release));
        }
    }
}
