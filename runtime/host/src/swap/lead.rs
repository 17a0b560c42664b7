//! What the leader does: it decides the next status from the one that it read and from what it has observed. Pure.

use jiff::Timestamp;

use super::conditions;
use super::health::regression;
use super::job::Job;
use super::leader::Leader;
use super::replica::Replica;
use super::spec::{Follow, Spec};
use super::status::{LastError, Phase, Release, Resolved, Status};
use super::step::{Action, Order, OrderKind, State};

/// What the decision rests on, besides the status.
pub(super) struct Facts<'a> {
    pub(super) spec: &'a Spec,
    pub(super) invalid_spec: Option<&'a str>,
    pub(super) order: Option<Order>,
    pub(super) refusal: Option<&'a str>,
    pub(super) replica: &'a Replica,
    pub(super) leader: &'a Leader,
    pub(super) now: Timestamp,
}

/// The actions of a leader; none for other replicas.
pub(super) fn lead(state: &mut State, now: Timestamp) -> Vec<Action> {
    let State {
        spec,
        order,
        status: Some(status),
        revision,
        invalid_spec,
        refusal,
        replica,
        leader: Some(leader),
    } = state
    else {
        return Vec::new();
    };
    let invalid_spec = invalid_spec.as_deref();
    let Some(spec) = spec else {
        // What runs stays, although no spec could be read since the start.
        let next = invalid_spec.map(|why| conditions::with_invalid_spec(status, why, now));
        return next.and_then(|next| write(leader, (*revision, status), next, now)).into_iter().collect();
    };
    // This replica's view of the spec is older than that of the leader before.
    if spec.generation < status.observed_generation {
        return Vec::new();
    }
    // The clock may have been set back.
    leader.since = leader.since.min(now);
    let mut actions: Vec<_> = leader.resolve(spec, status, now).into_iter().collect();
    if let (Some(candidate), Some(active)) = (&status.candidate, status.active_release()) {
        let is_ready = replica.is_ready(candidate.release) && replica.is_ready(active);
        if candidate.phase == Phase::DryRun && is_ready {
            actions.extend(leader.compare(candidate.release, active, now));
        }
    }
    if !leader.write.is_running() {
        let refusal = refusal.as_deref();
        let facts = Facts { spec, invalid_spec, order: *order, refusal, replica, leader, now };
        let next = facts.next_status(status);
        actions.extend(write(leader, (*revision, status), next, now));
    }
    actions
}

/// The write of the next status, if it differs from the present one and no write is under way.
fn write(
    leader: &mut Leader,
    (replaces, status): (u64, &Status),
    next: Status,
    now: Timestamp,
) -> Option<Action> {
    if leader.write.is_running() {
        return None;
    }
    if next == *status {
        leader.write = Job::Done;
        return None;
    }
    if leader.write == Job::Done {
        leader.write = Job::at(now);
    }
    let status = Box::new(next);
    leader.write.start(now).then_some(Action::WriteStatus { replaces, status })
}

impl Facts<'_> {
    /// The status that follows from what is known. Where nothing is to be done, it is the same.
    fn next_status(&self, status: &Status) -> Status {
        let mut next = status.clone();
        // Each pass enables the next one at most a few times: from nothing to active there are three.
        for _ in 0..8 {
            let before = next.clone();
            self.advance(&mut next);
            if next == before {
                break;
            }
        }
        let problem = conditions::problem(self, &next);
        // A problem that lasts doesn't hide what has gone wrong since.
        if let Some(message) = problem.clone()
            && conditions::degraded(status) != Some(&message)
            && next.last_error.as_ref().is_none_or(|error| error.message != message)
        {
            next.last_error = Some(LastError { message, since: self.now });
        }
        next.conditions = conditions::conditions(self, &next, problem);
        next
    }

    fn advance(&self, status: &mut Status) {
        self.consider_spec(status);
        self.judge_active(status);
        if self.carry_out_order(status) {
            self.choose_candidate(status);
            self.advance_candidate(status);
        }
        // What was ordered is done, or can't be done.
        if let Some(ordered) = status.swap_now
            && status.candidate.is_none()
            && self.leader.has_resolved_since(self.spec, ordered)
        {
            status.swap_now = None;
        }
    }

    fn consider_spec(&self, status: &mut Status) {
        if status.observed_generation < self.spec.generation {
            status.observed_generation = self.spec.generation;
            status.rejected.clear();
            status.last_error = None;
        }
        let Some(resolution) = &self.leader.resolution else { return };
        if let Some((component, _)) = resolution.found {
            status.resolved = Some(Resolved { follow: resolution.follow.clone(), component });
        }
    }

    /// The release that the spec asks for, as far as that is known.
    pub(super) fn wanted(&self, status: &Status) -> Option<Release> {
        let component = match &self.spec.follow {
            Follow::Digest(component) => *component,
            follow => status.resolved.as_ref().filter(|resolved| resolved.follow == *follow)?.component,
        };
        Some(Release { component, settings: self.spec.settings })
    }

    /// Ends the observation of the active release, or returns to the previous one.
    fn judge_active(&self, status: &mut Status) {
        let (Some(observation), Some(active)) = (status.observing, status.active_release()) else { return };
        // What doesn't serve here, or not yet, can't be judged here.
        if self.replica.serving != Some(active) {
            return;
        }
        let is_over = self.now >= self.leader.observed_until(self.spec, observation.since, self.now);
        let worse = regression(&observation.baseline, &self.leader.rates(active), is_over);
        match worse {
            Some(why) if self.can_roll_back(status) => {
                self.roll_back(status, format!("rolled back: {why}"));
            }
            // An observation without an end would stop all swaps, also the one that brings the mend.
            Some(why) if is_over => {
                let message =
                    format!("the active release does worse, and there is no release to return to: {why}");
                status.last_error = Some(LastError { message, since: self.now });
                status.observing = None;
            }
            None if is_over => status.observing = None,
            Some(_) | None => {}
        }
    }

    /// Whether the previous release can serve on this replica.
    pub(super) fn can_roll_back(&self, status: &Status) -> bool {
        status.previous_release().is_some_and(|previous| self.replica.is_ready(previous))
    }

    /// The operator's order, unless it was carried out before.
    pub(super) fn open_order(&self, status: &Status) -> Option<Order> {
        self.order.filter(|order| Some(order.number) > status.last_order)
    }

    /// Returns false if an order has to wait, so that nothing else begins.
    fn carry_out_order(&self, status: &mut Status) -> bool {
        let Some(order) = self.open_order(status) else { return true };
        match order.kind {
            OrderKind::Pause => {
                status.paused = true;
                status.swap_now = None;
            }
            OrderKind::Resume => status.paused = false,
            OrderKind::SwapNow => {
                status.swap_now = Some(self.now);
                if let Some(candidate) = &mut status.candidate {
                    let was_seen = order.seen == Some(candidate.release.component);
                    candidate.accepted |= candidate.phase == Phase::Held && was_seen;
                }
            }
            OrderKind::Rollback => {
                let why = "rolled back by the operator".to_owned();
                if let Some(canary) = status.canary() {
                    self.reject(status, canary.release, why);
                } else if status.previous.is_none() {
                    let message = "can't roll back: there is no previous release".to_owned();
                    status.last_error = Some(LastError { message, since: self.now });
                } else if self.can_roll_back(status) {
                    self.roll_back(status, why);
                } else {
                    return false;
                }
            }
        }
        status.last_order = Some(order.number);
        true
    }
}
