//! The way of a candidate: chosen, prepared, compared, tried on a share of lookups, activated or rejected. Pure.

use jiff::Timestamp;

use super::failure::{Difference, bounded};
use super::health::regression;
use super::lead::Facts;
use super::spec::OnDifference;
use super::status::{Candidate, Differences, Observation, Phase, Release, Status, Version};

/// How many differences the status shows in words.
const SHOWN: usize = 20;

/// How many rejected releases the status remembers: the object that it is a part of has a limit.
const REMEMBERED: usize = 50;

impl Facts<'_> {
    /// Makes the release that the spec asks for the candidate, in place of any other.
    pub(super) fn choose_candidate(&self, status: &mut Status) {
        let wanted = self
            .wanted(status)
            .filter(|wanted| Some(*wanted) != status.active_release() && status.rejection(*wanted).is_none());
        if status.candidate_release() == wanted {
            return;
        }
        // The order was about the candidate that was found after it, or about the one that is found now.
        let former = status.candidate.as_ref().map(|candidate| candidate.since);
        status.swap_now.take_if(|ordered| former.is_some_and(|since| since > *ordered));
        status.candidate = wanted.filter(|_| status.may_swap()).map(|release| Candidate {
            release,
            since: self.now,
            phase: Phase::Preparing,
            differences: None,
            accepted: false,
        });
    }

    /// Moves the candidate to its next phase, if that is due.
    pub(super) fn advance_candidate(&self, status: &mut Status) {
        let Some(candidate) = status.candidate.clone() else { return };
        let release = candidate.release;
        if let Some(why) = self.refusal(release) {
            return self.reject(status, release, why);
        }
        if self.replica.replaces_lost(status) && self.replica.is_ready(release) {
            return self.activate(status);
        }
        if let Phase::Canary { since, .. } = candidate.phase {
            return self.judge_canary(status, release, since);
        }
        if !status.may_swap() || !self.replica.is_ready(release) {
            return;
        }
        let phase = match candidate.phase {
            Phase::Preparing if status.active.is_none() => return self.activate(status),
            Phase::Preparing => Phase::DryRun,
            Phase::DryRun => return self.consider_dry_run(status),
            Phase::Held if !self.is_held(&candidate) => Phase::Waiting,
            Phase::Waiting if !self.is_open(status) => return,
            Phase::Waiting if status.swap_now.is_some() || !self.spec.policy.canary.is_wanted() => {
                return self.activate(status);
            }
            Phase::Waiting => Phase::Canary { since: self.now, share: self.spec.policy.canary.share },
            Phase::Held | Phase::Canary { .. } => return,
        };
        status.candidate = Some(Candidate { phase, ..candidate });
    }

    /// Why this leader can't prepare or dry-run a candidate at all.
    fn refusal(&self, release: Release) -> Option<String> {
        let prepared = self.replica.holding(release).map(|holding| &holding.job);
        let compared = self.leader.dry_run.as_ref().filter(|known| known.candidate == release);
        let jobs = [prepared, compared.map(|dry_run| &dry_run.job)];
        jobs.into_iter().flatten().find_map(|job| job.refusal()).map(str::to_owned)
    }

    fn consider_dry_run(&self, status: &mut Status) {
        let active = status.active_release();
        let Some(candidate) = &mut status.candidate else { return };
        let is_done = |release, other| release == candidate.release && Some(other) == active;
        let dry_run = self.leader.dry_run.as_ref().filter(|known| is_done(known.candidate, known.active));
        let Some(dry_run) = dry_run.filter(|dry_run| dry_run.job.is_done()) else { return };
        candidate.differences = Some(differences(&dry_run.found));
        if self.is_held(candidate) {
            candidate.phase = Phase::Held;
            // An order from before accepts nothing that it didn't see.
            status.swap_now = None;
        } else {
            candidate.phase = Phase::Waiting;
        }
    }

    /// Whether the policy stops a candidate because of its differences.
    fn is_held(&self, candidate: &Candidate) -> bool {
        let Some(found) = &candidate.differences else { return true };
        let policy = &self.spec.policy;
        let by_lookups = found.lookups > 0 && policy.lookups == OnDifference::Hold;
        let by_writes = found.writes > 0 && policy.writes == OnDifference::Hold;
        !candidate.accepted && (by_lookups || by_writes)
    }

    /// Whether a swap may begin now.
    fn is_open(&self, status: &Status) -> bool {
        let is_in_window =
            self.spec.policy.window.is_none_or(|window| window.next_open(self.now) == self.now);
        status.swap_now.is_some() || (is_in_window && status.observing.is_none())
    }

    fn judge_canary(&self, status: &mut Status, release: Release, since: Timestamp) {
        let Some(active) = status.active_release() else { return self.activate(status) };
        if self.replica.canary.is_none_or(|canary| canary.release != release) {
            return;
        }
        let is_over = self.now >= self.leader.canary_until(self.spec, since, self.now);
        let worse = regression(&self.leader.rates(active), &self.leader.rates(release), is_over);
        if let Some(why) = worse {
            self.reject(status, release, format!("rejected as canary: {why}"));
        } else if status.may_swap() && (is_over || status.swap_now.is_some()) {
            self.activate(status);
        }
    }

    /// Makes the candidate active. The previous release stays the last one that has proven itself.
    fn activate(&self, status: &mut Status) {
        let is_lost = self.replica.replaces_lost(status);
        let Some(candidate) = status.candidate.take() else { return };
        let release = candidate.release;
        let replaced = status.active.take();
        let proven = status.observing.take().map(|observation| observation.baseline);
        let baseline = match (&replaced, proven) {
            (_, Some(baseline)) => Some(baseline),
            (Some(replaced), None) => {
                let baseline = self.leader.rates(replaced.release);
                status.previous = Some(replaced.clone());
                Some(baseline)
            }
            (None, None) => None,
        };
        if status.previous_release() == Some(release) {
            status.previous = None;
        }
        if status.previous.is_some() {
            status.observing = baseline.map(|baseline| Observation { since: self.now, baseline });
        }
        let why = match candidate.accepted {
            _ if is_lost => "the operator ordered it in place of a release that can't be prepared",
            true => "the operator accepted its differences",
            false => "the spec asks for it",
        };
        status.active = Some(Version { release, since: self.now, why: why.to_owned() });
        status.swap_now = None;
        status.last_error = None;
    }

    /// Returns to the previous release and rejects the active one.
    pub(super) fn roll_back(&self, status: &mut Status, why: String) {
        let Some(previous) = status.previous.take() else { return };
        let bad = status.active.replace(Version { since: self.now, why: why.clone(), ..previous });
        status.observing = None;
        // What was compared with the release that is left has to be compared with this one.
        if let Some(candidate) = &mut status.candidate {
            candidate.phase = Phase::Preparing;
            candidate.differences = None;
            candidate.accepted = false;
        }
        if let Some(bad) = bad {
            self.reject(status, bad.release, why);
        }
    }

    /// Rejects a release until the spec changes.
    pub(super) fn reject(&self, status: &mut Status, release: Release, why: String) {
        if status.rejection(release).is_none() {
            status.rejected.push(Version { release, since: self.now, why });
            let oldest = status.rejected.len().saturating_sub(REMEMBERED);
            status.rejected.drain(..oldest);
        }
        status.candidate.take_if(|candidate| candidate.release == release);
        status.previous.take_if(|previous| previous.release == release);
        status.swap_now = None;
    }
}

fn differences(found: &[Difference]) -> Differences {
    let words = |difference: &Difference| {
        let (Difference::Lookup(words) | Difference::Write(words)) = difference;
        bounded(words.clone())
    };
    let writes = found.iter().filter(|difference| matches!(difference, Difference::Write(_))).count();
    let shown = found.iter().take(SHOWN).map(words).collect();
    Differences { lookups: found.len() - writes, writes, shown }
}
