//! Load balancers: what the service controller wants to change, and which writes the provider wants for that.

use std::collections::HashSet;

use pileus_cloud::{
    Error as CloudError, OwnedLoadBalancer, Service, ServiceAction, ServiceCall, ServiceChange,
    ServiceProgress, ServiceRequirements, TargetSelection,
};
use pileus_controllers::service::preview::{Inputs, PlannedChange, Preview, Reason, preview};
use tokio::time::Instant;

use super::PlanSettings;
use super::attribution::ItemOutcome;
use super::dry_run::DryRunProvider;
use super::preview::{Action, ChangeResult, Findings, PreviewedChange, Section};
use super::snapshot::ClusterSnapshot;

impl DryRunProvider {
    /// Dry-runs all changes of load balancers. `owned` is what the cloud has.
    pub(super) async fn load_balancers(
        &self,
        snapshot: &ClusterSnapshot,
        settings: &PlanSettings,
        owned: Result<Vec<OwnedLoadBalancer>, String>,
    ) -> Section {
        let Some(load_balancers) = &self.provider.load_balancers else {
            return Section::NotApplicable(self.no_load_balancers.to_owned());
        };
        let owned = match owned {
            Ok(owned) => owned,
            Err(problem) => return Section::Unknown(problem),
        };
        let inputs = Inputs {
            cluster: &settings.cluster,
            classes: &settings.classes,
            is_default: settings.is_default,
            requirements: &self.provider.service_requirements,
            provider: &self.provider.name,
            node_labels: &self.provider.node_labels,
            nodes: &snapshot.nodes.readable,
            services: &snapshot.services,
            present: &snapshot.present,
            owned: &owned,
        };
        let preview = preview(&inputs, Instant::now());
        let mut findings = Findings { notes: notes(&preview), ..Findings::default() };
        let (previewed, changes): (Vec<_>, Vec<_>) = preview.changes.iter().map(previewed).unzip();
        let call = async |changes: Vec<ServiceChange>| {
            let known = known(&preview, &changes, &self.provider.service_requirements);
            let call = ServiceCall {
                cluster: &settings.cluster,
                targets: &preview.targets,
                known: &known,
                changes: &changes,
                is_audit: true,
            };
            let outcomes = load_balancers.change(call).await?;
            Ok(outcomes.into_iter().map(outcome).collect())
        };
        let attributed =
            self.attribute(&changes, self.provider.service_requirements.largest_batch, call).await;
        findings.add(previewed, attributed);
        let refused = preview.refused.into_iter().map(|(object, problem)| PreviewedChange {
            action: Action::Change,
            object,
            reason: "the Service is invalid".to_owned(),
            result: ChangeResult::Rejected(problem),
        });
        findings.changes.extend(refused);
        Section::Planned(findings)
    }
}

/// A change as the preview shows it, and as the provider gets it.
fn previewed(expected: &PlannedChange) -> (PreviewedChange, ServiceChange) {
    let PlannedChange { change, object, reason, may_exist: _ } = expected;
    let action = match (&change.action, reason) {
        (ServiceAction::Delete(_) | ServiceAction::RemoveOrphan(_), _) => Action::Delete,
        (_, Reason::Missing) => Action::Create,
        _ => Action::Change,
    };
    let (object, reason) = (object.clone(), reason.to_string());
    (PreviewedChange { action, object, reason, result: ChangeResult::Follows }, change.clone())
}

/// The Services that may have a load balancer and keep it, without those that a call changes. Empty for a provider that
/// doesn't read them.
fn known(preview: &Preview, changes: &[ServiceChange], terms: &ServiceRequirements) -> Vec<Service> {
    if !terms.wants_known {
        return Vec::new();
    }
    let changed: HashSet<_> = changes.iter().filter_map(kept).map(|service| &*service.uid).collect();
    let existing = preview.changes.iter().filter(|expected| expected.may_exist);
    let existing = existing.filter_map(|expected| kept(&expected.change));
    existing.filter(|service| !changed.contains(&*service.uid)).cloned().collect()
}

/// The Service that has a load balancer after a change.
fn kept(change: &ServiceChange) -> Option<&Service> {
    match &change.action {
        ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => Some(service),
        ServiceAction::Delete(_) | ServiceAction::RemoveOrphan(_) => None,
    }
}

fn outcome(outcome: Result<ServiceProgress, CloudError>) -> ItemOutcome {
    match outcome {
        Ok(ServiceProgress::Done { .. }) => ItemOutcome::Done,
        Ok(ServiceProgress::InProgress { .. }) => ItemOutcome::InProgress,
        Ok(ServiceProgress::Elsewhere) => ItemOutcome::Elsewhere,
        Err(error) => ItemOutcome::Failed(error),
    }
}

fn notes(preview: &Preview) -> Vec<String> {
    let unattributed = preview.unattributed.iter().map(|name| {
        format!("the cloud has load balancer {name} without the UID of a cluster or Service; it stays")
    });
    let class_conflicts = preview.class_conflicts.iter().map(|(name, owner)| {
        format!(
            "the cloud has a load balancer for Service {name}, but this provider doesn't serve it ({owner}); it stays: name its \
             class in loadBalancerClasses, or delete the Service"
        )
    });
    let lacks_targets = preview.targets.is_empty() && !preview.changes.is_empty();
    let lacks_targets = lacks_targets.then(|| "no Node accepts load balancer traffic now".to_owned());
    let kept = preview.changes.iter().filter_map(|change| Some((change, kept(&change.change)?)));
    let choose_nothing = kept.filter(|(_, service)| {
        !preview.targets.is_empty() && service.targets == TargetSelection::Rows(Vec::new())
    });
    let choose_nothing = choose_nothing.map(|(change, _)| {
        format!(
            "the node selector of Service {} matches no Node that accepts load balancer traffic",
            change.object
        )
    });
    unattributed.chain(class_conflicts).chain(lacks_targets).chain(choose_nothing).collect()
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{ProviderId, Target};

    use super::*;

    fn service(uid: &str) -> Service {
        Service::named("default", uid, uid)
    }

    #[test]
    fn a_service_whose_selector_matches_no_node_is_noted() {
        let target = Target {
            node: "n".to_owned(),
            uid: "n".to_owned(),
            provider_id: ProviderId::parse("sim://n").unwrap(),
            addresses: Vec::new(),
            zone: None,
            labels: Vec::new(),
        };
        let change = |name: &str, targets| PlannedChange {
            change: ServiceChange {
                action: ServiceAction::Ensure(Service { targets, ..service(name) }),
                resume: None,
            },
            object: format!("default/{name}"),
            reason: Reason::Missing,
            may_exist: false,
        };
        let rows = TargetSelection::Rows;
        let changes = vec![
            change("all", TargetSelection::All),
            change("some", rows(vec![0])),
            change("none", rows(vec![])),
        ];
        let mut preview = Preview { targets: vec![target], changes, ..Preview::default() };
        let expected =
            "the node selector of Service default/none matches no Node that accepts load balancer traffic";
        assert_eq!(notes(&preview), [expected]);
        preview.targets.clear();
        assert_eq!(notes(&preview), ["no Node accepts load balancer traffic now"]);
    }

    #[test]
    fn known_services_are_those_that_keep_their_load_balancer_and_are_not_changed() {
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
            expected(ServiceAction::Delete(service("deleted")), true),
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
