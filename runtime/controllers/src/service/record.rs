//! What is known about one Service: the object, whose its load balancer is, the cloud's side, and the work on it.

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Error as CloudError, Ingress, LocalEndpoints, ServiceProgress};
use tokio::time::Instant;

use super::attempt::Attempt;
use super::cloud_state::{CloudState, as_stored};
use super::event_log::{Reported, TaskReports};
use super::ownership::{Demand, Ownership, OwnershipEvent};
use super::plan::{Step, is_same_spec};
use super::scope::ServiceScope;
use super::targets::Targets;
use super::work::Write;
use super::write_backoff::{InterimWrites, WriteBackoff};
use crate::facts::service::ServiceFacts;

/// One Service, by its UID.
#[derive(Debug)]
pub(super) struct Record {
    /// The object as it was last observed.
    pub(super) facts: Arc<ServiceFacts>,
    /// Whether it still exists.
    pub(super) is_present: bool,
    /// Whose its load balancer is.
    pub(super) ownership: Ownership,
    /// Where its last class as a LoadBalancer was another controller's: when it was last seen with that class, or seen to
    /// change its type.
    pub(super) other_since: Option<Instant>,
    /// What the cloud is believed to have.
    pub(super) cloud: CloudState,
    /// The step that is due or in flight.
    pub(super) step: Step,
    /// The attempt to take it, where it is a call. A write in between, such as that of a status while the change goes on, leaves
    /// it as it is.
    pub(super) attempt: Attempt,
    /// The attempt to take it, where it is a write.
    pub(super) write_attempt: Attempt,
    /// The writes that the provider has asked for, beside those of what the cloud has confirmed.
    pub(super) due_writes: Vec<Write>,
    /// What users have been told.
    pub(super) reported: Reported,
    writes: WriteBackoff,
    interim_writes: InterimWrites,
}

/// How long the controller of another class has to clean up after a Service has changed its type, and to remove a finalizer
/// that looks like ours. Clouds take minutes to delete a load balancer, and that controller may be down until a person fixes
/// it. After that upstream's rule applies, as it does after a restart: the finalizer counts as ours.
const GRACE_PERIOD: Duration = Duration::from_mins(30);

impl Record {
    /// That of a Service which this process observes for the first time. `is_listed` says that the cloud's list has named
    /// it.
    pub(super) fn new(
        facts: &Arc<ServiceFacts>,
        scope: &ServiceScope,
        is_listed: bool,
        now: Instant,
    ) -> Self {
        let mut record = Self {
            facts: Arc::clone(facts),
            is_present: true,
            ownership: Ownership::Unclaimed,
            other_since: None,
            cloud: CloudState::new(facts, is_listed, now),
            step: Step::Idle,
            attempt: Attempt::new(now),
            write_attempt: Attempt::new(now),
            due_writes: Vec::new(),
            reported: Reported::default(),
            writes: WriteBackoff::default(),
            interim_writes: InterimWrites::default(),
        };
        record.note_class(scope, now);
        record.apply(OwnershipEvent::Observed(record.demand(scope)));
        if is_listed {
            record.apply(OwnershipEvent::Listed(record.demand(scope)));
        }
        record
    }

    /// From which controller it asks for a load balancer now.
    pub(super) fn demand(&self, scope: &ServiceScope) -> Demand {
        if self.is_present { Demand::of(&self.facts, scope) } else { Demand::Nothing }
    }

    /// Whether it wants a load balancer of ours.
    pub(super) fn is_wanted(&self, scope: &ServiceScope) -> bool {
        self.demand(scope) == Demand::Ours
    }

    /// Whether what the cloud has for it is ours to delete now.
    pub(super) fn may_delete(&self, scope: &ServiceScope) -> bool {
        self.ownership.may_delete(self.demand(scope))
    }

    /// Whether the cloud's list names it as ours although it is a live Service of another class. Its load balancer stays.
    pub(super) fn has_class_conflict(&self) -> bool {
        match self.ownership {
            Ownership::Listed => true,
            Ownership::OursAndListed => !self.cloud.may_exist(),
            Ownership::Unclaimed | Ownership::Leftover | Ownership::Ours => false,
        }
    }

    /// Whether its deletion waits for another controller to remove a finalizer that looks like ours: its class is another
    /// one, and the cloud has nothing of ours for it.
    pub(super) fn is_deletion_blocked(&self, scope: &ServiceScope) -> bool {
        let facts = &self.facts;
        let is_of_other = self.is_present && scope.is_of_other(facts);
        is_of_other && facts.is_deleting && facts.has_finalizer() && !self.may_delete(scope)
    }

    /// Whether work on it is in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.attempt.is_in_flight() || self.write_attempt.is_in_flight()
    }

    /// Whether a provider's status isn't the one that the Service has.
    pub(super) fn is_new_status(&self, status: &[Ingress]) -> bool {
        as_stored(status) != self.facts.service.status
    }

    /// The Service as the provider last got it, or as it is now.
    pub(super) fn last_sent(&self) -> &Arc<ServiceFacts> {
        self.cloud.last_sent().unwrap_or(&self.facts)
    }

    /// When the present step may be taken at the earliest, apart from the attempt's own delay.
    pub(super) fn not_before(&self, scope: &ServiceScope) -> Option<Instant> {
        let grace_period_ends = match &self.step {
            Step::Delete | Step::Write(Write::Finish | Write::Release) if !self.may_delete(scope) => {
                self.other_since.map(|since| since + GRACE_PERIOD)
            }
            _ => None,
        };
        let step_not_before = match &self.step {
            Step::Write(write) => self.writes.not_before(write),
            Step::Ensure { is_audit: true } => Some(self.cloud.audit_not_before),
            _ => None,
        };
        grace_period_ends.max(step_not_before)
    }

    /// It was observed to be so.
    pub(super) fn observe(&mut self, facts: &Arc<ServiceFacts>, scope: &ServiceScope, now: Instant) {
        let was_wanted = self.is_wanted(scope);
        let before = std::mem::replace(&mut self.facts, Arc::clone(facts));
        self.is_present = true;
        let is_wanted = self.is_wanted(scope);
        let has_new_spec = !is_same_spec(&before, facts);
        let has_other_problems = before.problems != facts.problems;
        // The leader before this process may have added our finalizer after this process had read the Service, and then
        // have made the load balancer.
        if self.ownership.is_ours() && facts.has_finalizer() && !before.has_finalizer() {
            self.cloud.mark_existing();
        }
        if is_wanted && has_other_problems {
            self.reported.is_invalid = false;
        }
        if has_new_spec {
            self.cloud.on_spec_changed();
        }
        if was_wanted != is_wanted || (is_wanted && (has_new_spec || has_other_problems)) {
            self.restart_task(now);
        }
        if before.is_load_balancer {
            self.other_since = self.other_since.map(|_| now);
        }
        self.due_writes.retain(|write| !write.shows(facts));
        self.note_class(scope, now);
        self.apply(OwnershipEvent::Observed(self.demand(scope)));
    }

    /// It was observed to be gone.
    pub(super) fn observe_gone(&mut self, scope: &ServiceScope, now: Instant) {
        let was_wanted = self.is_wanted(scope);
        self.is_present = false;
        if was_wanted {
            self.restart_task(now);
        }
        self.apply(OwnershipEvent::Observed(Demand::Nothing));
    }

    /// The cloud's list names it, with our cluster's UID. Returns whether no earlier list did.
    pub(super) fn on_listed(&mut self, scope: &ServiceScope) -> bool {
        let is_news = !self.ownership.is_listed();
        self.apply(OwnershipEvent::Listed(self.demand(scope)));
        is_news
    }

    /// The audit period has passed.
    pub(super) fn on_audit_due(&mut self, now: Instant) {
        self.cloud.on_audit_due(now);
        self.reported.is_invalid = false;
    }

    /// A call begins that takes the present step, with these targets and endpoints.
    pub(super) fn on_call_started(&mut self, targets: &Targets, endpoints: &[LocalEndpoints], now: Instant) {
        self.attempt.start();
        self.cloud.on_call_started(&self.step, &self.facts, targets, endpoints, now);
        if self.step == Step::Delete {
            self.apply(OwnershipEvent::DeleteStarted);
        }
    }

    /// The outcome of the call that took the present step, with these targets, as far as the cloud's side is concerned.
    pub(super) fn on_outcome(
        &mut self,
        outcome: &Result<ServiceProgress, CloudError>,
        targets: u64,
        now: Instant,
    ) {
        self.cloud.on_outcome(&self.step, outcome, &self.facts, targets, now);
        if self.step != Step::Delete && !self.attempt.is_superseded() {
            self.collect_due_writes(outcome, now);
        }
        let is_done = matches!(outcome, Ok(ServiceProgress::Done { .. } | ServiceProgress::Elsewhere));
        if is_done && self.step == Step::Delete {
            self.apply(OwnershipEvent::DeleteConfirmed);
        }
    }

    /// Collects the writes that an outcome asks for. What the cloud has confirmed isn't among them.
    fn collect_due_writes(&mut self, outcome: &Result<ServiceProgress, CloudError>, now: Instant) {
        let (annotations, status, is_interim) = match outcome {
            Ok(ServiceProgress::Done { annotations, .. }) => (annotations, None, false),
            Ok(ServiceProgress::InProgress { annotations, status, .. }) => {
                (annotations, status.as_deref().map(as_stored), true)
            }
            Ok(ServiceProgress::Elsewhere) | Err(_) => return,
        };
        self.due_writes.clear();
        let annotations = (!annotations.is_empty()).then(|| Write::SetAnnotations(annotations.clone()));
        for write in annotations.into_iter().chain(status.map(Write::SetStatus)) {
            let is_shown = write.shows(&self.facts);
            let is_delayed = self.writes.not_before(&write).is_some_and(|at| at > now)
                || is_interim && !is_shown && !self.interim_writes.may_begin(&write, now);
            if let Write::SetStatus(status) = &write
                && (is_shown || !is_delayed)
            {
                self.cloud.on_status_reported(status);
            }
            if !is_shown && !is_delayed {
                self.due_writes.push(write);
            }
        }
    }

    /// The API server refuses a write that the provider has asked for: work goes on without it.
    pub(super) fn give_up_write(&mut self, write: &Write, now: Instant) {
        if self.due_writes.contains(write) {
            self.due_writes.retain(|due| due != write);
            self.write_attempt.restart(now);
        }
    }

    /// This was written. Without our finalizer the Service isn't ours any more, unless it is wanted again by now.
    pub(super) fn on_written(&mut self, write: Write, scope: &ServiceScope, now: Instant) {
        if matches!(write, Write::Finish | Write::Release) {
            self.apply(OwnershipEvent::Released(self.demand(scope)));
        }
        self.due_writes.retain(|due| *due != write);
        self.writes.on_written(write, now);
    }

    /// The call of the task has ended, and nothing is left to ask the cloud for.
    pub(super) fn complete_task(&mut self, now: Instant) {
        (self.attempt, self.reported.task) = (Attempt::new(now), TaskReports::default());
        self.interim_writes = InterimWrites::default();
    }

    /// The task is another one from now on.
    fn restart_task(&mut self, now: Instant) {
        self.attempt.restart(now);
        self.write_attempt.restart(now);
        (self.due_writes, self.interim_writes) = (Vec::new(), InterimWrites::default());
        self.reported.restart_task();
    }

    fn note_class(&mut self, scope: &ServiceScope, now: Instant) {
        if self.facts.is_load_balancer {
            self.other_since = scope.is_of_other(&self.facts).then_some(now);
        }
    }

    fn apply(&mut self, event: OwnershipEvent) {
        if self.ownership.counts_list(event) {
            self.cloud.mark_existing();
        }
        self.ownership = self.ownership.next(event);
    }
}
