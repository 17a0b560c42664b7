//! The scenario of load balancers, and their removal.

use std::time::Duration;

use pileus_cloud::{
    IpFamily, OwnedLoadBalancer, Protocol, Service, ServiceAction, ServiceCall, ServiceChange, ServicePort,
    ServiceProgress, Target, TargetSelection, is_uid_of,
};

use super::super::changes::{
    CallFailure, CallRecord, ChangeOutcome, Changes, FaultRecord, Listing, Scenario, Step,
};
use super::super::cloud::CloudMode;
use super::super::describe;
use super::settle::{Outcomes, list, once, settle, write_report};
use super::{Caller, faults_but_silence, finished};
use crate::error::Error;

/// The namespace of the fictitious Services.
const NAMESPACE: &str = "pileus-conformance";

/// The port of the first Service, and the port that it changes to.
const FIRST_PORT: u16 = 80;
const OTHER_PORT: u16 = 81;

/// Makes a change of a Service.
type MakeAction = fn(Service) -> ServiceAction;

impl Caller {
    /// All observations but those of a cloud that never answers.
    pub(super) async fn services_changed(
        &self,
        nodes: &[Target],
        progress: &mut dyn FnMut(&str),
    ) -> Result<Changes<OwnedLoadBalancer>, Error> {
        let scenario = match self.permit(nodes, "two load balancers") {
            Err(needs) => Err(needs),
            Ok(stop) => {
                progress("creating two load balancers in the cloud, which may take minutes");
                let services = self.services();
                let keys = services.clone().map(|service| service.uid);
                let mut scenario = Scenario::of(self.cluster.uid.clone(), keys);
                let run = Box::pin(self.run_services(nodes, &mut scenario));
                let stopped = stop.run_until_cancelled(run).await.is_none();
                progress("removing what was created");
                let is_listed = scenario.list(Step::Make, "").is_ok_and(|listed| {
                    services.iter().all(|service| listed.iter().any(|owned| self.is_ours(owned, service)))
                });
                scenario.left = self.remove_services(is_listed).await;
                finished(stopped, &scenario.left)?;
                Ok(scenario)
            }
        };
        let mut faults = Vec::new();
        for mode in faults_but_silence() {
            progress(&format!("changing load balancers with {}", mode.as_str()));
            faults.push(self.services_fault(mode).await);
        }
        Ok(Changes { scenario, faults, deadlines: (Duration::ZERO, Duration::ZERO) })
    }

    /// Runs the scenario with two fictitious Services.
    pub(super) async fn run_services(&self, targets: &[Target], scenario: &mut Scenario<OwnedLoadBalancer>) {
        let (mut services, unknown) = (self.services(), self.service("unknown", 80));
        let before = vec![change(ServiceAction::Delete(unknown.clone()))];
        scenario.calls.push((Step::Before, self.settle_services(before, &[], targets).await));
        let ensure = |services: &[Service]| changes(services, ServiceAction::Ensure);
        let made = self.settle_services(ensure(&services), &[], targets).await;
        let is_made = made.done().is_some();
        for (service, outcomes) in services.iter_mut().zip(&made.history) {
            outcomes
                .iter()
                .filter_map(ChangeOutcome::report)
                .for_each(|report| write_report(service, report));
        }
        scenario.calls.push((Step::Make, made));
        if !is_made {
            return;
        }
        let again = self.settle_services(ensure(&services), &[], targets).await;
        scenario.calls.push((Step::Again, again));
        let listed = self.list_owned(CloudMode::Real).await;
        let second = listed.items.iter().flatten().find(|owned| self.is_ours(owned, &services[1])).cloned();
        scenario.lists.push((Step::Make, listed));
        let mut mixed = ensure(&services);
        mixed.reverse();
        // Not the same forwards and backwards, or a provider that calls lists around would pass.
        mixed.insert(0, change(ServiceAction::Delete(unknown)));
        scenario.calls.push((Step::Mixed, self.settle_services(mixed, &[], targets).await));
        self.run_separately(&services, targets, scenario).await;
        self.run_moved(&services, targets, scenario).await;
        let [first, known @ ..] = &services;
        let first = || vec![change(ServiceAction::Delete(first.clone()))];
        scenario.calls.push((Step::Delete, self.settle_services(first(), known, targets).await));
        scenario.lists.push((Step::Delete, self.list_owned(CloudMode::Real).await));
        scenario.calls.push((Step::DeleteAgain, self.settle_services(first(), known, targets).await));
        if let Some(owned) = second {
            let remove = || vec![change(ServiceAction::RemoveOrphan(owned.clone()))];
            scenario.calls.push((Step::Orphan, self.settle_services(remove(), &[], targets).await));
            scenario.lists.push((Step::Orphan, self.list_owned(CloudMode::Real).await));
            scenario.calls.push((Step::OrphanAgain, self.settle_services(remove(), &[], targets).await));
        }
    }

    /// Changes the first alone, and then ensures the second: once as an unknown Service, as the host does with Services
    /// at which the provider failed, and once as a known one.
    async fn run_separately(
        &self,
        [first, second]: &[Service; 2],
        targets: &[Target],
        scenario: &mut Scenario<OwnedLoadBalancer>,
    ) {
        let ensure = |service: &Service| vec![change(ServiceAction::Ensure(service.clone()))];
        for (port, known, step, after) in [
            (OTHER_PORT, &[][..], Step::Unknown, Step::AfterUnknown),
            (FIRST_PORT, std::slice::from_ref(second), Step::Known, Step::AfterKnown),
        ] {
            let mut first = first.clone();
            first.ports = vec![self::port(port)];
            scenario.calls.push((step, self.settle_services(ensure(&first), known, targets).await));
            scenario.lists.push((step, self.list_owned(CloudMode::Real).await));
            let second = self.settle_services(ensure(second), &[first], targets).await;
            scenario.calls.push((after, second));
        }
    }

    /// Takes a target from both, if there are several.
    async fn run_moved(
        &self,
        services: &[Service],
        targets: &[Target],
        scenario: &mut Scenario<OwnedLoadBalancer>,
    ) {
        let Some((_, fewer)) = targets.split_last().filter(|(_, fewer)| !fewer.is_empty()) else { return };
        let update = changes(services, ServiceAction::UpdateTargets);
        scenario.calls.push((Step::Move, self.settle_services(update, &[], fewer).await));
        let ensure = changes(services, ServiceAction::Ensure);
        scenario.calls.push((Step::MoveAgain, self.settle_services(ensure, &[], fewer).await));
        if self.selects_nodes {
            let rows: Vec<_> = (0..).take(fewer.len()).collect();
            let select = |service: &Service| Service {
                targets: TargetSelection::Rows(rows.clone()),
                ..service.clone()
            };
            let selecting: Vec<_> = services.iter().map(select).collect();
            let ensure = changes(&selecting, ServiceAction::Ensure);
            scenario.calls.push((Step::Select, self.settle_services(ensure, &[], targets).await));
        }
    }

    /// Removes everything that the test may have created, and returns what it could not remove. Failed deletions count
    /// only if the list doesn't reliably show what exists.
    pub(super) async fn remove_services(&self, is_listed: bool) -> Vec<String> {
        let mut left = Vec::new();
        for service in self.services() {
            let call = self.settle_services(vec![change(ServiceAction::Delete(service))], &[], &[]).await;
            if call.done().is_none() && !is_listed {
                left.push(format!("{}: {}", call.sent, describe::change_outcomes(&call.outcomes)));
            }
        }
        for owned in self.list_test_services().await.into_iter().flatten() {
            self.settle_services(vec![change(ServiceAction::RemoveOrphan(owned))], &[], &[]).await;
        }
        match self.list_test_services().await {
            Ok(ours) => left.extend(ours.into_iter().map(|owned| owned.name)),
            Err(failure) => {
                left.push(format!("unknown, because list-owned fails: {}", describe::call_failure(&failure)));
            }
        }
        left
    }

    async fn list_test_services(&self) -> Result<Vec<OwnedLoadBalancer>, CallFailure> {
        let listed = self.list_owned(CloudMode::Real).await.items?;
        Ok(listed.into_iter().filter(|owned| self.is_of_cluster(owned)).collect())
    }

    /// A change and a list with a cloud that fails. Nothing exists, and no request reaches the cloud.
    pub(super) async fn services_fault(&self, mode: CloudMode) -> FaultRecord<OwnedLoadBalancer> {
        let [first, second] = self.services();
        let changes = if matches!(mode, CloudMode::Silence) {
            vec![change(ServiceAction::Ensure(first))]
        } else {
            vec![change(ServiceAction::Ensure(first)), change(ServiceAction::Delete(second))]
        };
        let call =
            once(&self.cloud, mode, sent(&changes, &[]), self.change_services(&changes, &[], &[])).await;
        let list = match mode {
            CloudMode::Silence | CloudMode::NotFound => None,
            mode => Some(self.list_owned(mode).await),
        };
        FaultRecord { mode, call, list }
    }

    /// Makes changes until they have ended; `others` are the other known Services.
    async fn settle_services(
        &self,
        changes: Vec<ServiceChange>,
        others: &[Service],
        targets: &[Target],
    ) -> CallRecord {
        let known = if self.wants_known { others } else { &[] };
        let sent = sent(&changes, known);
        settle(&self.cloud, sent, changes, async |due: &[ServiceChange]| {
            self.change_services(due, known, targets).await
        })
        .await
    }

    async fn change_services(
        &self,
        changes: &[ServiceChange],
        known: &[Service],
        targets: &[Target],
    ) -> Outcomes<ServiceProgress> {
        let call = ServiceCall { cluster: &self.cluster, targets, known, changes, is_audit: false };
        self.guest.change_load_balancers_once(call).await
    }

    async fn list_owned(&self, mode: CloudMode) -> Listing<OwnedLoadBalancer> {
        list(&self.cloud, mode, async || self.guest.list_owned_once(&self.cluster).await).await
    }

    fn is_ours(&self, owned: &OwnedLoadBalancer, service: &Service) -> bool {
        let mark = owned.service_uid.as_deref();
        self.is_of_cluster(owned) && mark.is_some_and(|mark| is_uid_of(mark, &service.uid))
    }

    fn is_of_cluster(&self, owned: &OwnedLoadBalancer) -> bool {
        let mark = owned.cluster_uid.as_deref().zip(self.cluster.uid.as_deref());
        mark.is_some_and(|(mark, uid)| is_uid_of(mark, uid))
    }

    pub(super) fn services(&self) -> [Service; 2] {
        [self.service("first", FIRST_PORT), self.service("second", 443)]
    }

    fn service(&self, name: &str, port: u16) -> Service {
        Service {
            ports: vec![self::port(port)],
            families: vec![IpFamily::Ipv4],
            ..Service::named(NAMESPACE, name, super::uid(&self.unknown_node, name))
        }
    }
}

fn port(port: u16) -> ServicePort {
    ServicePort {
        name: String::new(),
        protocol: Protocol::Tcp,
        port,
        node_port: Some(30_000 + port), // in the API server's default range
        app_protocol: None,
    }
}

const fn change(action: ServiceAction) -> ServiceChange {
    ServiceChange { action, resume: None }
}

fn changes(services: &[Service], make: MakeAction) -> Vec<ServiceChange> {
    services.iter().cloned().map(|service| change(make(service))).collect()
}

fn sent(changes: &[ServiceChange], known: &[Service]) -> String {
    let action = |change: &ServiceChange| match &change.action {
        ServiceAction::Ensure(Service { name, .. }) => format!("ensure {NAMESPACE}/{name}"),
        ServiceAction::UpdateTargets(Service { name, .. }) => format!("update-targets {NAMESPACE}/{name}"),
        ServiceAction::Delete(Service { name, .. }) => format!("delete {NAMESPACE}/{name}"),
        ServiceAction::RemoveOrphan(OwnedLoadBalancer { name, .. }) => format!("remove-orphan {name}"),
    };
    let changes: Vec<_> = changes.iter().map(action).collect();
    let known: Vec<_> = known.iter().map(|Service { name, .. }| format!("{NAMESPACE}/{name}")).collect();
    let known = if known.is_empty() { String::new() } else { format!(", known: [{}]", known.join(", ")) };
    format!("change([{}]{known})", changes.join(", "))
}
