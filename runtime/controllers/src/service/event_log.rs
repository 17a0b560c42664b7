//! What users are told of their Services, in upstream's words where upstream has them (ccm-behaviour 4.9).
//!
//! EventLog is what begins, what ends and what fails. What is better here: a cloud that takes its time isn't a failure (P-15),
//! and an audit that finds all as it was says nothing.

use std::sync::Arc;

use pileus_cloud::{Error as CloudError, ErrorKind, ServiceProgress};

use super::plan::Step;
use super::record::Record;
use super::targets::Targets;
use super::work::{PendingEvent, Write};
use crate::events::Reason;
use crate::well_known::FINALIZER_LOAD_BALANCER;

/// What waits to be told.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    waiting: Vec<PendingEvent>,
}

impl EventLog {
    /// All of it.
    pub(super) fn take(&mut self) -> Vec<PendingEvent> {
        std::mem::take(&mut self.waiting)
    }

    fn tell(&mut self, record: &Record, reason: Reason, note: impl Into<String>) {
        self.waiting.push(PendingEvent { facts: Arc::clone(&record.facts), reason, note: note.into() });
    }

    /// What is wrong with a Service.
    pub(super) fn refuses(&mut self, record: &Record) {
        let problems = record.facts.problems.join("; ");
        self.tell(record, Reason::SyncLoadBalancerFailed, format!("Error syncing load balancer: {problems}"));
    }

    /// Its deletion waits for a finalizer to go that nobody here may remove.
    pub(super) fn is_held(&mut self, record: &Record) {
        let class = record.facts.service.class.as_deref().unwrap_or_default();
        let note = format!(
            "Error syncing load balancer: the class {class} is not ours, and the cloud has nothing of ours for it, so that \
             whoever serves the class has to remove the finalizer {FINALIZER_LOAD_BALANCER}; where it was ours, name it in \
             loadBalancerClasses"
        );
        self.tell(record, Reason::SyncLoadBalancerFailed, note);
    }

    /// A call for a Service begins: told once a task, and not of looks that nobody waits for.
    pub(super) fn begins(&mut self, record: &mut Record, targets: &Targets) {
        let is_audit = record.step == Step::Ensure { is_audit: true };
        if is_audit || std::mem::replace(&mut record.turn.is_announced, true) {
            return;
        }
        match record.step {
            Step::Ensure { .. } => self.tell(record, Reason::EnsuringLoadBalancer, "Ensuring load balancer"),
            Step::Delete => self.tell(record, Reason::DeletingLoadBalancer, "Deleting load balancer"),
            _ => {}
        }
        if record.step != Step::Delete && targets.table().is_empty() {
            let note = "There are no available nodes for the load balancer";
            self.tell(record, Reason::UnAvailableLoadBalancer, note);
        }
    }

    /// What became of a call, unless it failed.
    pub(super) fn came(&mut self, record: &mut Record, outcome: &Result<ServiceProgress, CloudError>) {
        let is_audit = record.step == Step::Ensure { is_audit: true };
        match outcome {
            Ok(ServiceProgress::Done { status, warnings }) => {
                if !is_audit || record.is_news(status) {
                    self.done(record);
                }
                // Neither with each audit nor with each Node that comes or goes.
                if matches!(record.step, Step::Ensure { is_audit: false }) || record.warnings != *warnings {
                    for warning in warnings {
                        self.tell(record, Reason::LoadBalancerWarning, warning);
                    }
                }
                record.warnings.clone_from(warnings);
            }
            // Nobody waits for targets to follow.
            Ok(ServiceProgress::InProgress { .. }) if record.step != Step::UpdateTargets => {
                self.waits(record, "The cloud is working on the load balancer");
            }
            Err(error) if !is_audit && matches!(error.kind, ErrorKind::Throttled(Some(_))) => {
                self.waits(record, format!("The cloud wants us to wait: {error}"));
            }
            _ => {}
        }
    }

    fn done(&mut self, record: &Record) {
        match record.step {
            Step::Delete => self.tell(record, Reason::DeletedLoadBalancer, "Deleted load balancer"),
            Step::UpdateTargets => {
                self.tell(record, Reason::UpdatedLoadBalancer, "Updated load balancer with new hosts");
            }
            _ => self.tell(record, Reason::EnsuredLoadBalancer, "Ensured load balancer"),
        }
    }

    fn waits(&mut self, record: &mut Record, note: impl Into<String>) {
        if !std::mem::replace(&mut record.turn.is_pending_told, true) {
            self.tell(record, Reason::LoadBalancerPending, note);
        }
    }

    /// A step failed in a way that is worth telling. Of what passes by itself nobody is told who doesn't wait.
    pub(super) fn failed(&mut self, record: &Record, error: &CloudError) {
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
            Step::Write(Write::AddFinalizer) => (
                SyncLoadBalancerFailed,
                "Error syncing load balancer: failed to add load balancer cleanup finalizer",
            ),
            Step::Write(Write::SetStatus(_)) => {
                (SyncLoadBalancerFailed, "Error syncing load balancer: failed to update load balancer status")
            }
            Step::Write(Write::Finish | Write::Release) => (
                SyncLoadBalancerFailed,
                "Error syncing load balancer: failed to remove load balancer cleanup finalizer",
            ),
            _ => (SyncLoadBalancerFailed, "Error syncing load balancer: failed to ensure load balancer"),
        };
        self.tell(record, reason, format!("{what}: {error}"));
    }

    /// A Service waits for what the former one of its name has in the cloud, which can't be deleted.
    pub(super) fn waits_for_former(&mut self, record: &Record, error: &CloudError) {
        let note = "Error syncing load balancer: the one of the former service of this name can't be deleted";
        self.tell(record, Reason::SyncLoadBalancerFailed, format!("{note}: {error}"));
    }
}
