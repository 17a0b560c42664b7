//! Load balancers: what the service controller's roster wants, and what a candidate makes of it.

use std::collections::HashSet;

use pileus_cloud::{
    Error as CloudError, OwnedLoadBalancer, Service, ServiceAction, ServiceCall, ServiceChange,
    ServiceProgress, ServiceRequirements,
};
use pileus_controllers::service::preview::{Inputs, PlannedChange, Preview, Reason, preview};
use tokio::time::Instant;

use super::Wishes;
use super::apart::Outcome;
use super::candidate::Candidate;
use super::outlook::{Change, End, Findings, Part, Verb};
use super::world::World;

impl Candidate {
    /// Lets it do what is due for load balancers, as far as that goes without a write. `owned` is what the cloud has.
    pub(super) async fn load_balancers(
        &self,
        world: &World,
        wishes: &Wishes,
        owned: Result<Vec<OwnedLoadBalancer>, String>,
    ) -> Part {
        let Some(load_balancers) = &self.provider.load_balancers else {
            return Part::Nothing("the provider balances no load".to_owned());
        };
        let owned = match owned {
            Ok(owned) => owned,
            Err(problem) => return Part::Unseen(problem),
        };
        let surroundings = Inputs {
            cluster: &wishes.cluster,
            classes: &wishes.classes,
            requirements: &self.provider.service_requirements,
            schemes: &self.provider.schemes,
            node_labels: &self.provider.node_labels,
            nodes: &world.nodes,
            services: &world.services,
            present: &world.present,
            owned: &owned,
        };
        let preview = preview(&surroundings, Instant::now());
        let mut findings = Findings { notes: notes(&preview), ..Findings::default() };
        let (asked, changes): (Vec<_>, Vec<_>) = preview.changes.iter().map(asked).unzip();
        let call = async |changes: Vec<ServiceChange>| {
            let known = known(&preview, &changes, &self.provider.service_requirements);
            let call = ServiceCall {
                cluster: &wishes.cluster,
                targets: &preview.targets,
                known: &known,
                changes: &changes,
                is_audit: true,
            };
            let outcomes = load_balancers.change(call).await?;
            Ok(outcomes.into_iter().map(outcome).collect())
        };
        let told = self.tell_apart(&changes, self.provider.service_requirements.largest_batch, call).await;
        findings.add(asked, told);
        let refused = preview.refused.into_iter().map(|(object, problem)| Change {
            verb: Verb::Change,
            object,
            reason: "something is wrong with the Service".to_owned(),
            end: End::Refused(problem),
        });
        findings.changes.extend(refused);
        Part::Seen(findings)
    }
}

/// A change as people see it, and as the provider does.
fn asked(expected: &PlannedChange) -> (Change, ServiceChange) {
    let PlannedChange { change, object, reason, may_exist: _ } = expected;
    let verb = match (&change.action, reason) {
        (ServiceAction::Delete(_) | ServiceAction::RemoveOrphan(_), _) => Verb::Delete,
        (_, Reason::Missing) => Verb::Create,
        _ => Verb::Change,
    };
    let asked = Change { verb, object: object.clone(), reason: reason.to_string(), end: End::Next };
    (asked, change.clone())
}

/// The Services that may have a load balancer and are to keep it, without those that a call changes, for a provider that
/// reads them.
fn known(preview: &Preview, changes: &[ServiceChange], terms: &ServiceRequirements) -> Vec<Service> {
    if !terms.wants_known {
        return Vec::new();
    }
    let changed: HashSet<_> = changes.iter().filter_map(kept).map(|service| &*service.uid).collect();
    let there = preview.changes.iter().filter(|expected| expected.may_exist);
    let there = there.filter_map(|expected| kept(&expected.change));
    there.filter(|service| !changed.contains(&*service.uid)).cloned().collect()
}

/// The Service that has a load balancer after a change.
fn kept(change: &ServiceChange) -> Option<&Service> {
    match &change.action {
        ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => Some(service),
        ServiceAction::Delete(_) | ServiceAction::RemoveOrphan(_) => None,
    }
}

fn outcome(outcome: Result<ServiceProgress, CloudError>) -> Outcome {
    match outcome {
        Ok(ServiceProgress::Done { .. }) => Outcome::Done,
        Ok(ServiceProgress::InProgress { .. }) => Outcome::Under,
        Ok(ServiceProgress::Elsewhere) => Outcome::Elsewhere,
        Err(error) => Outcome::Failed(error),
    }
}

fn notes(preview: &Preview) -> Vec<String> {
    let strangers = preview.unattributed.iter().map(|name| {
        format!("the cloud has {name} for a Service, but of which cluster or Service can't be told; it stays")
    });
    let disputed = preview.class_conflicts.iter().map(|(name, class)| {
        format!(
            "the cloud has a load balancer of this cluster for Service {name}, but its class {class} is not ours; it stays: \
             name the class in loadBalancerClasses, or delete the Service"
        )
    });
    let lacks_targets = preview.targets.is_empty() && !preview.changes.is_empty();
    let lacks_targets = lacks_targets.then(|| "no Node takes traffic of load balancers now".to_owned());
    strangers.chain(disputed).chain(lacks_targets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(uid: &str) -> Service {
        Service::named("default", uid, uid)
    }

    #[test]
    fn known_are_the_others_that_keep_what_they_have() {
        let expected = |action, may_exist| PlannedChange {
            change: ServiceChange { action, resume: None },
            object: String::new(),
            reason: Reason::Differs,
            may_exist,
        };
        let changes = vec![
            expected(ServiceAction::Ensure(service("changed")), true),
            expected(ServiceAction::Ensure(service("other")), true),
            expected(ServiceAction::UpdateTargets(service("follows")), true),
            expected(ServiceAction::Ensure(service("new")), false),
            expected(ServiceAction::Delete(service("goes")), true),
        ];
        let preview = Preview { changes, ..Preview::default() };
        let known = |wants_known| {
            let terms = ServiceRequirements { wants_known, ..ServiceRequirements::default() };
            let known = known(&preview, &[preview.changes[0].change.clone()], &terms);
            known.into_iter().map(|service| service.uid).collect::<Vec<_>>()
        };
        assert_eq!(known(true), ["other", "follows"]);
        assert!(known(false).is_empty());
    }
}
