//! Which step a Service takes next, and why. Pure: what is known of it in, one step out.
//!
//! The rules are upstream's (ccm-behaviour 4.2 to 4.6). What is better here: a Service of a foreign class is left alone
//! whatever finalizer it bears, unless it was ours before our eyes (P-13); a finalizer that is stripped returns (P-12), and
//! so does a status (P-16, P-28); what may be in the cloud is deleted even if nobody can say whether it is; an update that
//! only brings what no provider sees asks the cloud for nothing.

use std::hash::Hash;

use pileus_cloud::Service;

use super::record::{Doubt, Record};
use super::work::Write;
use crate::facts::service::ServiceFacts;

/// What else a plan depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct World<'a> {
    /// The load balancer classes that are ours besides no class.
    pub(super) classes: &'a [String],
    /// What tells the present targets apart from others; none while they aren't known, and the cloud isn't asked then.
    pub(super) targets: Option<u64>,
    /// Whether a Service of the same name that is gone still has something in the cloud.
    pub(super) is_name_taken: bool,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// None for now: all is as it should be, or what has to come first is somebody else's.
    Rest,
    /// None for ever: it is nothing to us, or not any more.
    Forget,
    /// Say what is wrong with it, which hasn't been said yet.
    Refuse,
    /// Write to the Service.
    Write(Write),
    /// See to its load balancer; in an audit nobody waits for it.
    Ensure {
        /// Whether it is believed to be so already.
        is_audit: bool,
    },
    /// Only the Nodes behind it, or the endpoints on them, have changed since it was last confirmed.
    UpdateTargets,
    /// Remove what may be in the cloud.
    Delete,
}

impl Step {
    /// Whether the provider is called for it.
    pub(super) const fn is_call(&self) -> bool {
        matches!(self, Self::Ensure { .. } | Self::UpdateTargets | Self::Delete)
    }

    /// Whether there is something to wait for: a call or a write.
    pub(super) const fn is_work(&self) -> bool {
        self.is_call() || matches!(self, Self::Write(_))
    }
}

/// The next step.
pub(super) fn plan(record: &Record, world: World<'_>) -> Step {
    let step = if record.is_present && wants_ours(&record.facts, world.classes) {
        keep(record, world)
    } else {
        leave(record, world)
    };
    // A load balancer without targets would be made if Nodes weren't known yet.
    if step.is_call() && world.targets.is_none() { Step::Idle } else { step }
}

/// Whether a Service wants a load balancer of ours.
pub(super) fn wants_ours(facts: &ServiceFacts, classes: &[String]) -> bool {
    facts.is_load_balancer && !facts.is_deleting && !has_other_class(facts, classes)
}

/// Whether a Service wants a load balancer of somebody else.
pub(super) fn has_other_class(facts: &ServiceFacts, classes: &[String]) -> bool {
    let class = facts.service.class.as_ref();
    facts.is_load_balancer && class.is_some_and(|class| !classes.contains(class))
}

/// Whether these states of a Service are the same [`wish`].
pub(super) fn is_same_spec(a: &ServiceFacts, b: &ServiceFacts) -> bool {
    desired_spec(&a.service) == desired_spec(&b.service)
}

/// What a provider sees of a Service, its targets and endpoints set aside.
pub(super) fn desired_spec(service: &Service) -> impl PartialEq + Hash + '_ {
    let Service { labels, namespace_labels, annotations, class, ports, policy, affinity, .. } = service;
    let Service { source_ranges, requested_ip, families, .. } = service;
    let spec = (class, ports, policy, affinity, source_ranges, requested_ip, families);
    (labels, namespace_labels, annotations, spec)
}

/// The next step of one that wants a load balancer.
fn keep(record: &Record, world: World<'_>) -> Step {
    let facts = &record.facts;
    let is_valid = facts.problems.is_empty();
    // Before anything is made, so that it can't vanish unseen. One that gets nothing needs none.
    if !facts.has_finalizer() && (is_valid || record.may_exist) {
        return Step::Write(Write::AddFinalizer);
    }
    if !is_valid {
        return if record.is_refused { Step::Idle } else { Step::ReportInvalid };
    }
    if world.is_name_taken {
        return Step::Idle;
    }
    let is_audit = record.doubt == Doubt::Audit;
    let confirmed = match &record.confirmed {
        Some(confirmed) if record.doubt != Doubt::Real && is_same_spec(&confirmed.facts, facts) => confirmed,
        None => return Step::Ensure { is_audit },
        Some(_) => return Step::Ensure { is_audit: false },
    };
    match &confirmed.status {
        Some(status) if *status != facts.service.status => {
            return Step::Write(Write::SetStatus(status.clone()));
        }
        _ => {}
    }
    if confirmed.targets != world.targets || confirmed.facts.local_endpoints != facts.local_endpoints {
        return Step::UpdateTargets;
    }
    if is_audit { Step::Ensure { is_audit } } else { Step::Idle }
}

/// The next step of one that wants none, or none any more.
fn leave(record: &Record, world: World<'_>) -> Step {
    let Record { facts, is_present, may_exist, .. } = record;
    let has_other_class = record.foreign.is_some();
    // What bears a foreign class is its controller's to clean up, and what bears none any more once that has had its time
    // (see [`Record::not_before`]).
    let is_left = facts.has_finalizer()
        && if has_other_class {
            *is_present && !facts.is_load_balancer
        } else {
            facts.is_deleting || !facts.is_load_balancer
        };
    // It may turn again, and what is known of it counts then.
    let is_remembered = *is_present && (has_other_class || record.is_ours || !record.wishes.is_empty());
    let rests = if is_remembered { Step::Idle } else { Step::Forget };
    if !record.is_claimed(world.classes) && !is_left {
        return rests;
    }
    if *may_exist {
        return Step::Delete;
    }
    // By now the ways in may be those of whoever serves it.
    let is_address_ours = !has_other_class || record.address == facts.service.status;
    match (is_present, facts.has_finalizer(), is_address_ours) {
        (false, ..) => Step::Forget,
        (true, true, true) => Step::Write(Write::Finish),
        (true, true, false) => Step::Write(Write::Release),
        (true, false, true) if !facts.service.status.is_empty() => Step::Write(Write::Finish),
        (true, false, _) => rests,
    }
}
