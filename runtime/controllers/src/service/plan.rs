//! Which step a Service takes next, and why. Pure: what is known about the Service in, one step out.
//!
//! The order for a Service that wants a load balancer of ours:
//!
//! 1. Add the finalizer, before anything is made: from then on the Service can't vanish before its load balancer is deleted,
//!    and where several providers may run it bears the name of the one that made it.
//! 2. Report what is wrong with it, and stop there; or wait for a deleted Service of the same name.
//! 3. Write what the provider has reported of late: annotations, and the ingress that works while the change goes on.
//! 4. Ensure the load balancer, unless the cloud has confirmed just this.
//! 5. Write the status that the cloud reported.
//! 6. Update the targets, where only those differ.
//! 7. Audit, where that is due.
//!
//! For any other Service: delete what is ours in the cloud, then remove the finalizer and the status in one write.
//!
//! The rules are upstream's. Better: a Service of another class is left alone regardless of its finalizer, unless this
//! process saw it as ours (U-13); a stripped finalizer returns (U-12), and so does a status (U-16, U-28); what may exist in
//! the cloud is deleted even without proof that it does; a change that no provider sees causes no call.

use std::hash::Hash;

use pileus_cloud::Service;

use super::cloud_state::{Belief, Doubt};
use super::record::Record;
use super::scope::ServiceScope;
use super::work::Write;
use crate::facts::service::ServiceFacts;

/// What else a plan depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanContext<'a> {
    /// Which Services are ours.
    pub(super) scope: &'a ServiceScope,
    /// The digest of the present targets; none while they aren't known, and then no call is made.
    pub(super) targets: Option<u64>,
    /// Whether a deleted Service of the same name isn't cleaned up yet.
    pub(super) is_name_taken: bool,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// None now: all is as it should be, or something else has to happen first.
    Idle,
    /// None ever: the Service has nothing to do with us any more.
    Forget,
    /// Report what is wrong with it, once.
    ReportInvalid,
    /// Write to the Service.
    Write(Write),
    /// Make the load balancer as the Service wants it.
    Ensure {
        /// Whether it is believed to be so already, and users don't wait for the call.
        is_audit: bool,
    },
    /// Change only the Nodes behind the load balancer, or the endpoints on them.
    UpdateTargets,
    /// Delete what the cloud may have.
    Delete,
}

impl Step {
    /// Whether it is a call of the provider.
    pub(super) const fn is_call(&self) -> bool {
        matches!(self, Self::Ensure { .. } | Self::UpdateTargets | Self::Delete)
    }

    /// Whether it is a call or a write, and so has a result.
    pub(super) const fn is_work(&self) -> bool {
        self.is_call() || matches!(self, Self::Write(_))
    }
}

/// The next step.
pub(super) fn plan(record: &Record, context: PlanContext<'_>) -> Step {
    let step = if record.is_wanted(context.scope) {
        plan_wanted(record, context)
    } else {
        plan_unwanted(record, context)
    };
    // With Nodes still unknown, load balancers would lose their targets.
    if step.is_call() && context.targets.is_none() { Step::Idle } else { step }
}

/// Whether two states of a Service have the same [`desired_spec`].
pub(super) fn is_same_spec(a: &ServiceFacts, b: &ServiceFacts) -> bool {
    desired_spec(a) == desired_spec(b)
}

/// What a provider sees of a Service, without targets, endpoints, and the annotations that the provider sets itself.
pub(super) fn desired_spec(facts: &ServiceFacts) -> impl PartialEq + Hash + '_ {
    let Service { labels, namespace_labels, annotations, class, finalizers, ports, .. } = &facts.service;
    let Service { policy, affinity, source_ranges, requested_ip, families, .. } = &facts.service;
    let annotations = annotations.iter().filter(|(key, _)| !facts.written_annotations.contains_key(key));
    let spec = (class, finalizers, ports, policy, affinity, source_ranges, requested_ip, families);
    (labels, namespace_labels, annotations.collect::<Vec<_>>(), spec)
}

/// The next step of a Service that wants a load balancer of ours.
fn plan_wanted(record: &Record, context: PlanContext<'_>) -> Step {
    let facts = &record.facts;
    let is_valid = facts.problems.is_empty();
    // An invalid Service gets no load balancer, and so needs no finalizer, unless it has one from before.
    let lacks_finalizer = !facts.has_finalizer() || context.scope.lacks_mark(facts);
    if lacks_finalizer && (is_valid || record.cloud.may_exist()) {
        return Step::Write(Write::AddFinalizer(context.scope.mark_for(facts)));
    }
    if !is_valid {
        return if record.reported.is_invalid { Step::Idle } else { Step::ReportInvalid };
    }
    if context.is_name_taken {
        return Step::Idle;
    }
    if let Some(write) = record.due_writes.first() {
        return Step::Write(write.clone());
    }
    let (confirmed, doubt) = match record.cloud.belief() {
        Belief::Nothing => return Step::Ensure { is_audit: false },
        Belief::Unconfirmed { is_settled } => return Step::Ensure { is_audit: *is_settled },
        Belief::Confirmed(confirmed, doubt) => (confirmed, *doubt),
    };
    if doubt == Doubt::Real || !is_same_spec(&confirmed.facts, facts) {
        return Step::Ensure { is_audit: false };
    }
    match &confirmed.status {
        Some(status) if *status != facts.service.status => {
            return Step::Write(Write::SetStatus(status.clone()));
        }
        _ => {}
    }
    if confirmed.targets != context.targets || confirmed.facts.local_endpoints != facts.local_endpoints {
        return Step::UpdateTargets;
    }
    if doubt == Doubt::Audit { Step::Ensure { is_audit: true } } else { Step::Idle }
}

/// The next step of a Service that doesn't want a load balancer of ours, or not any more.
fn plan_unwanted(record: &Record, context: PlanContext<'_>) -> Step {
    let Record { facts, is_present, .. } = record;
    let was_of_other = record.other_since.is_some();
    let is_marked_by_other = context.scope.is_marked_by_other(facts);
    // The finalizer of a Service with another class is for that class's controller to remove. After a change of type it
    // counts as ours, once that controller had its time: see [`Record::not_before`]. With another provider's mark it never
    // does.
    let is_left_behind = facts.has_finalizer()
        && !is_marked_by_other
        && if was_of_other {
            *is_present && !facts.is_load_balancer
        } else {
            facts.is_deleting || !facts.is_load_balancer
        };
    // The Service may change back, and then what is known about it counts.
    let is_remembered =
        *is_present && (was_of_other || record.ownership.is_ours() || record.cloud.has_recent_intents());
    let idle = if is_remembered { Step::Idle } else { Step::Forget };
    if !record.may_delete(context.scope) && !is_left_behind {
        return idle;
    }
    if record.cloud.may_exist() {
        return Step::Delete;
    }
    // The controller of another class may have written the status by now.
    let is_status_ours = !was_of_other || record.cloud.is_last_status(&facts.service.status);
    match (is_present, facts.has_finalizer(), is_status_ours) {
        (false, ..) => Step::Forget,
        _ if is_marked_by_other => idle,
        (true, true, true) => Step::Write(Write::Finish),
        (true, true, false) => Step::Write(Write::Release),
        (true, false, true) if !facts.service.status.is_empty() => Step::Write(Write::Finish),
        (true, false, _) => idle,
    }
}
