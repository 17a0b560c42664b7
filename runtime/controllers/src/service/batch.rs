//! What a call brings to the provider.

use std::collections::{HashMap, HashSet};

use pileus_cloud::{
    LocalEndpoints, Service, ServiceAction, ServiceChange, ServiceRequirements, TargetSelection,
    TrafficPolicy,
};

use super::plan::Step;
use super::record::Record;
use super::scope::ServiceScope;
use super::targets::Targets;
use super::work::Key;
use crate::facts::service::ServiceFacts;

/// A call that is put together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'a> {
    /// What the provider asks to be told.
    pub(super) requirements: &'a ServiceRequirements,
    /// The targets of the call.
    pub(super) targets: &'a Targets,
}

impl Batch<'_> {
    /// The present step of a Service as a change.
    pub(super) fn change(&self, record: &Record) -> ServiceChange {
        let (action, targets) = match record.step {
            Step::Delete => (ServiceAction::Delete(deleted(record)), None),
            Step::UpdateTargets => {
                let targets = self.targets.selection(&record.facts).digest;
                (ServiceAction::UpdateTargets(self.service(&record.facts)), Some(targets))
            }
            _ => {
                let targets = self.targets.selection(&record.facts).digest;
                (ServiceAction::Ensure(self.service(&record.facts)), Some(targets))
            }
        };
        ServiceChange { action, resume: record.attempt.resume(targets) }
    }

    /// The Services that have a load balancer of ours and keep it, without those that the call changes. The provider makes
    /// shared objects from them. So a Service that another controller serves, or whose load balancer is to be deleted, isn't
    /// among them, nor one that the provider last got with invalid parts: its part of a shared object stays as it is.
    pub(super) fn known(
        &self,
        records: &HashMap<String, Record>,
        scope: &ServiceScope,
        changed: &[Key],
    ) -> Vec<Service> {
        let changed: HashSet<&Key> = changed.iter().collect();
        let is_known = |(uid, record): &(&String, &Record)| {
            let is_kept = record.is_wanted(scope) && record.cloud.may_exist();
            let is_valid = record.last_sent().problems.is_empty();
            is_kept && is_valid && !changed.contains(&Key::Service((*uid).clone()))
        };
        let mut known: Vec<_> = records.iter().filter(is_known).collect();
        known.sort_unstable_by_key(|(uid, _)| *uid);
        let known = known.into_iter().map(|(_, record)| {
            let mut service = self.service(record.last_sent());
            service.annotations = annotations(record);
            service
        });
        known.collect()
    }

    fn service(&self, facts: &ServiceFacts) -> Service {
        let mut service = facts.service.clone();
        service.targets.clone_from(&self.targets.selection(facts).rows);
        if self.requirements.wants_endpoints && matches!(service.policy, TrafficPolicy::Local(_)) {
            service.endpoints = self.targets.endpoints(facts);
        }
        service
    }
}

/// The endpoints that an action brings.
pub(super) fn endpoints(action: &ServiceAction) -> &[LocalEndpoints] {
    match action {
        ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => &service.endpoints,
        ServiceAction::Delete(_) | ServiceAction::RemoveOrphan(_) => &[],
    }
}

/// The annotations as the provider last got them, but those that it sets itself as they are now: by them it may find what it has
/// made.
fn annotations(record: &Record) -> Vec<(String, String)> {
    let (sent, now) = (record.last_sent(), &record.facts);
    let users =
        sent.service.annotations.iter().filter(|(key, _)| !sent.written_annotations.contains_key(key));
    let users = users.filter(|(key, _)| !now.written_annotations.contains_key(key));
    let own = now.service.annotations.iter().filter(|(key, _)| now.written_annotations.contains_key(key));
    let mut annotations: Vec<_> = users.chain(own).cloned().collect();
    annotations.sort_unstable();
    annotations
}

/// The Service as the provider last got it, since the load balancer was made from that.
fn deleted(record: &Record) -> Service {
    let mut service = record.last_sent().service.clone();
    service.status.clone_from(&record.facts.service.status);
    service.annotations = annotations(record);
    service.targets = TargetSelection::Rows(Vec::new());
    service
}
