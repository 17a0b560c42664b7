//! The events that users see on their Services, in upstream's words where upstream has them: what begins, what ends and what
//! fails.
//!
//! Better than upstream: an operation in progress isn't reported as a failure (U-15), and an audit that finds no difference
//! reports nothing.

use std::sync::Arc;

use pileus_cloud::{Error as CloudError, ErrorKind, Notice, ServiceProgress};

use super::plan::Step;
use super::record::Record;
use super::refusals::Member;
use super::scope::ServiceScope;
use super::targets::Targets;
use super::work::{PendingEvent, Write};
use crate::events::Reason;
use crate::well_known::FINALIZER_LOAD_BALANCER;

/// The most notices of a provider that are remembered as told, and so the most that are told until the change is done.
const MAX_TOLD: usize = 32;

/// The most events about refused targets at a time.
const MAX_REFUSED: usize = 5;

/// What users have been told about one Service, so that nothing is repeated needlessly.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// About the task of now.
    pub(super) task: TaskReports,
    /// Whether its problems have been reported.
    pub(super) is_invalid: bool,
    /// Whether its deletion was blocked by another controller's finalizer at the last list, see
    /// [`Record::is_deletion_blocked`].
    is_blocked: bool,
    /// The provider's notices that were told and still apply.
    notices: Vec<Notice>,
    /// The warnings about the Service itself that were reported and still apply.
    own_warnings: Vec<String>,
}

impl Reported {
    /// The task is another one from now on: what the provider says about it is told, also where it is the same.
    pub(super) fn restart_task(&mut self) {
        (self.task, self.notices) = (TaskReports::default(), Vec::new());
    }
}

/// What users have been told about one task.
#[derive(Debug, Default)]
pub(super) struct TaskReports {
    /// That it has begun.
    is_started: bool,
    /// That the cloud takes its time.
    is_pending: bool,
}

/// Events that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    pending: Vec<PendingEvent>,
}

impl EventLog {
    /// Returns all events since the last time.
    pub(super) fn take(&mut self) -> Vec<PendingEvent> {
        std::mem::take(&mut self.pending)
    }

    /// A Service is invalid.
    pub(super) fn record_invalid(&mut self, record: &mut Record) {
        record.reported.is_invalid = true;
        let problems = record.facts.problems.join("; ");
        self.push(record, Reason::SyncLoadBalancerFailed, format!("Error syncing load balancer: {problems}"));
    }

    /// A list has ended. A deletion that another controller's finalizer blocks is reported from the second list on: until
    /// then that controller may be working on it.
    pub(super) fn record_blocked_deletion(&mut self, record: &mut Record, scope: &ServiceScope) {
        // One of several providers reports it.
        let is_blocked = scope.is_default && record.is_deletion_blocked(scope);
        let was_blocked = std::mem::replace(&mut record.reported.is_blocked, is_blocked);
        if !is_blocked || !was_blocked {
            return;
        }
        let (class, provider) = (record.facts.service.class.as_deref(), record.facts.marked_by());
        let (owner, advice) = match provider {
            Some(provider) => (
                format!("provider {provider}"),
                "if that provider does not run any more, delete its load balancer in its cloud by hand, and remove the finalizer",
            ),
            None => (
                format!("the controller of class {}", class.unwrap_or_default()),
                "if that class is served here, add it to loadBalancerClasses",
            ),
        };
        let note = format!(
            "Error syncing load balancer: the deletion waits for the finalizer {FINALIZER_LOAD_BALANCER}, which \
             {owner} has to remove; {advice}"
        );
        self.push(record, Reason::SyncLoadBalancerFailed, note);
    }

    /// A call for a Service begins: reported once a task, and not for audits.
    pub(super) fn record_started(&mut self, record: &mut Record, targets: &Targets) {
        let is_audit = record.step == Step::Ensure { is_audit: true };
        if is_audit || std::mem::replace(&mut record.reported.task.is_started, true) {
            return;
        }
        match record.step {
            Step::Ensure { .. } => self.push(record, Reason::EnsuringLoadBalancer, "Ensuring load balancer"),
            Step::Delete => self.push(record, Reason::DeletingLoadBalancer, "Deleting load balancer"),
            _ => {}
        }
        if record.step != Step::Delete && targets.selection(&record.facts).is_empty {
            let is_choice = !targets.table().is_empty();
            let why = if is_choice { ": its node selector matches none of them" } else { "" };
            let note = format!("There are no available nodes for the load balancer{why}");
            self.push(record, Reason::UnAvailableLoadBalancer, note);
        }
    }

    /// The outcome of a call, unless it is a failure: see [`EventLog::record_failure`].
    pub(super) fn record_outcome(
        &mut self,
        record: &mut Record,
        outcome: &Result<ServiceProgress, CloudError>,
    ) {
        let is_audit = record.step == Step::Ensure { is_audit: true };
        let is_current = !record.attempt.is_superseded();
        match outcome {
            Ok(ServiceProgress::Done { status, notices, .. }) => {
                if !is_audit || record.is_new_status(status) {
                    self.record_done(record);
                }
                self.record_notices(record, notices);
                record.reported.notices.retain(|told| notices.contains(told));
            }
            Ok(ServiceProgress::InProgress { notices, .. }) => {
                // Users don't wait for targets.
                if is_current && record.step != Step::UpdateTargets {
                    self.record_pending(record, "The cloud is working on the load balancer");
                }
                self.record_notices(record, notices);
            }
            Err(error) if is_current && !is_audit && matches!(error.kind, ErrorKind::Throttled(Some(_))) => {
                self.record_pending(record, format!("The cloud asks to wait: {error}"));
            }
            _ => {}
        }
    }

    fn record_done(&mut self, record: &Record) {
        match record.step {
            Step::Delete => self.push(record, Reason::DeletedLoadBalancer, "Deleted load balancer"),
            Step::UpdateTargets => {
                self.push(record, Reason::UpdatedLoadBalancer, "Updated load balancer with new hosts");
            }
            _ => self.push(record, Reason::EnsuredLoadBalancer, "Ensured load balancer"),
        }
    }

    /// Tells a provider's notices. One that stays is repeated neither with each poll or audit nor with each Node that joins or
    /// leaves.
    fn record_notices(&mut self, record: &mut Record, notices: &[Notice]) {
        // What is said about a former task says nothing about that of now, whose call follows.
        let notices = notices.iter().filter(|_| !record.attempt.is_superseded());
        for notice in notices.cloned().collect::<Vec<_>>() {
            let told = &mut record.reported.notices;
            if told.contains(&notice) || told.len() >= MAX_TOLD {
                continue;
            }
            told.push(notice.clone());
            self.push(record, Reason::of_notice(&notice), notice.message);
        }
    }

    fn record_pending(&mut self, record: &mut Record, note: impl Into<String>) {
        if !std::mem::replace(&mut record.reported.task.is_pending, true) {
            self.push(record, Reason::LoadBalancerPending, note);
        }
    }

    /// A step has failed, and it is time to report that. Transient failures of audits are not reported: users don't wait for
    /// an audit.
    pub(super) fn record_failure(&mut self, record: &Record, error: &CloudError) {
        use Reason::{DeleteLoadBalancerFailed, SyncLoadBalancerFailed, UpdateLoadBalancerFailed};
        let is_audit = record.step == Step::Ensure { is_audit: true };
        if is_audit && !matches!(error.kind, ErrorKind::Invalid | ErrorKind::Denied | ErrorKind::Broken) {
            return;
        }
        let (reason, what) = match &record.step {
            Step::Delete if !record.is_present => (DeleteLoadBalancerFailed, "Error deleting load balancer"),
            Step::Delete => {
                (SyncLoadBalancerFailed, "Error syncing load balancer: failed to delete load balancer")
            }
            Step::UpdateTargets => (UpdateLoadBalancerFailed, "Error updating load balancer with new hosts"),
            Step::Write(Write::AddFinalizer(_)) => (
                SyncLoadBalancerFailed,
                "Error syncing load balancer: failed to add load balancer cleanup finalizer",
            ),
            Step::Write(Write::SetStatus(_)) => {
                (SyncLoadBalancerFailed, "Error syncing load balancer: failed to update load balancer status")
            }
            Step::Write(Write::SetAnnotations(_)) => {
                (SyncLoadBalancerFailed, "Error syncing load balancer: failed to update annotations")
            }
            Step::Write(Write::Finish | Write::Release) => (
                SyncLoadBalancerFailed,
                "Error syncing load balancer: failed to remove load balancer cleanup finalizer",
            ),
            _ => (SyncLoadBalancerFailed, "Error syncing load balancer: failed to ensure load balancer"),
        };
        self.push(record, reason, format!("{what}: {error}"));
    }

    /// A Service waits, since the load balancer of a deleted Service of the same name can't be deleted.
    pub(super) fn record_name_taken(&mut self, record: &Record, error: &CloudError) {
        let note = format!(
            "Error syncing load balancer: waiting, since the load balancer of a deleted Service of the same name can't be \
             deleted: {error}"
        );
        self.push(record, Reason::SyncLoadBalancerFailed, note);
    }

    /// A Service was observed. Each of the warnings about it is reported once while it applies.
    pub(super) fn record_own_warnings(&mut self, record: &mut Record, warnings: Vec<String>) {
        for warning in warnings.iter().filter(|warning| !record.reported.own_warnings.contains(warning)) {
            self.push(record, Reason::LoadBalancerWarning, warning);
        }
        record.reported.own_warnings = warnings;
    }

    /// These targets are left out of the load balancer, each with what the cloud has said.
    pub(super) fn record_refused_targets(&mut self, record: &Record, targets: &[(Member, String)]) {
        for (Member { node, provider_id, .. }, why) in targets.iter().take(MAX_REFUSED) {
            let note = format!(
                "Node {node} is left out of the load balancer, since the cloud refuses its instance {provider_id}: {why}"
            );
            self.push(record, Reason::LoadBalancerTargetRefused, note);
        }
    }

    fn push(&mut self, record: &Record, reason: Reason, note: impl Into<String>) {
        self.pending.push(PendingEvent { facts: Arc::clone(&record.facts), reason, note: note.into() });
    }
}
