//! What is done with load balancers, in which order, and how all of it is removed again.

use pileus_cloud::{
    IpFamily, OwnedLoadBalancer, Protocol, Service, ServiceAction, ServiceCall, ServiceChange, ServicePort,
    ServiceProgress, Target,
};

use super::super::changes::{Changes, Listing, NoAnswer, Played, Step, Trouble, Turn};
use super::super::cloud::Scene;
use super::super::words;
use super::play::{Outcomes, once, settle};
use super::{Caller, SHORT, finished, troubles_but_silence};
use crate::error::Error;

/// The namespace of the Services that are made up.
const NAMESPACE: &str = "pileus-conformance";

/// The port of the first, and the one that it changes to.
const FIRST_PORT: u16 = 80;
const OTHER_PORT: u16 = 81;

/// What is sent of one Service.
type Act = fn(Service) -> ServiceAction;

impl Caller {
    /// All that is seen of it but in front of a cloud that never answers.
    pub(super) async fn services_changed(
        &self,
        nodes: &[Target],
        progress: &mut dyn FnMut(&str),
    ) -> Result<Changes<OwnedLoadBalancer>, Error> {
        let played = match self.permit(nodes, "two load balancers") {
            Err(needs) => Err(needs),
            Ok(stop) => {
                progress("making two load balancers in the cloud, which may take minutes");
                let mut played = Played::of(self.cluster.uid.clone(), self.services().map(|it| it.uid));
                let play = Box::pin(self.play_services(nodes, &mut played));
                let stopped = stop.run_until_cancelled(play).await.is_none();
                progress("removing what was made");
                let [first, second] = &played.keys;
                let is_listed = played.list(Step::Make, "").is_ok_and(|listed| {
                    [first, second]
                        .iter()
                        .all(|uid| listed.iter().any(|it| it.service_uid.as_ref() == Some(uid)))
                });
                played.left = self.remove_services(is_listed).await;
                finished(stopped, &played.left)?;
                Ok(played)
            }
        };
        let mut troubles = Vec::new();
        for scene in troubles_but_silence() {
            progress(&format!("changing load balancers of {}", scene.as_str()));
            troubles.push(self.trouble_services(scene).await);
        }
        Ok(Changes { played, troubles, patience: (SHORT, SHORT) })
    }

    /// Makes load balancers for two Services that nobody has, and takes them through their lives.
    pub(super) async fn play_services(&self, targets: &[Target], played: &mut Played<OwnedLoadBalancer>) {
        let (mut services, nobody) = (self.services(), self.service("nobody", 80));
        let before = vec![change(ServiceAction::Delete(nobody.clone()))];
        played.turns.push((Step::Before, self.settle_services(before, &[], targets).await));
        let ensure = |services: &[Service]| changes(services, ServiceAction::Ensure);
        let made = self.settle_services(ensure(&services), &[], targets).await;
        let ways: Option<Vec<_>> = made.done().map(|ways| ways.into_iter().map(<[_]>::to_vec).collect());
        played.turns.push((Step::Make, made));
        let Some(ways) = ways else { return };
        for (service, status) in services.iter_mut().zip(ways) {
            service.status = status;
        }
        let again = self.settle_services(ensure(&services), &[], targets).await;
        played.turns.push((Step::Again, again));
        let listed = self.list_owned(Scene::Real).await;
        let second = listed.came.iter().flatten().find(|owned| self.is_ours(owned, &services[1])).cloned();
        played.lists.push((Step::Make, listed));
        let mut mixed = ensure(&services);
        mixed.reverse();
        // Not the same forwards and backwards, or a provider that turns lists around would pass.
        mixed.insert(0, change(ServiceAction::Delete(nobody)));
        played.turns.push((Step::Mixed, self.settle_services(mixed, &[], targets).await));
        self.play_apart(&services, targets, played).await;
        if let [fewer @ .., _] = targets
            && !fewer.is_empty()
        {
            let update = changes(&services, ServiceAction::UpdateTargets);
            played.turns.push((Step::Move, self.settle_services(update, &[], fewer).await));
            let again = self.settle_services(ensure(&services), &[], fewer).await;
            played.turns.push((Step::MoveAgain, again));
        }
        let [first, known @ ..] = &services;
        let first = || vec![change(ServiceAction::Delete(first.clone()))];
        played.turns.push((Step::Delete, self.settle_services(first(), known, targets).await));
        played.lists.push((Step::Delete, self.list_owned(Scene::Real).await));
        played.turns.push((Step::DeleteAgain, self.settle_services(first(), known, targets).await));
        if let Some(owned) = second {
            let remove = || vec![change(ServiceAction::RemoveOrphan(owned.clone()))];
            played.turns.push((Step::Orphan, self.settle_services(remove(), &[], targets).await));
            played.lists.push((Step::Orphan, self.list_owned(Scene::Real).await));
            played.turns.push((Step::OrphanAgain, self.settle_services(remove(), &[], targets).await));
        }
    }

    /// Changes the first alone and looks what the second has after it: when the host leaves the second out, as it does with
    /// one at which the provider has failed, and when it doesn't.
    async fn play_apart(
        &self,
        [first, second]: &[Service; 2],
        targets: &[Target],
        played: &mut Played<OwnedLoadBalancer>,
    ) {
        let ensure = |service: &Service| vec![change(ServiceAction::Ensure(service.clone()))];
        for (port, known, step, after) in [
            (OTHER_PORT, &[][..], Step::Unknown, Step::AfterUnknown),
            (FIRST_PORT, std::slice::from_ref(second), Step::Known, Step::AfterKnown),
        ] {
            let mut first = first.clone();
            first.ports = vec![self::port(port)];
            played.turns.push((step, self.settle_services(ensure(&first), known, targets).await));
            played.lists.push((step, self.list_owned(Scene::Real).await));
            let second = self.settle_services(ensure(second), &[first], targets).await;
            played.turns.push((after, second));
        }
    }

    /// Removes all that may have been made, and says what it couldn't. What a deletion says counts where the list has not
    /// been seen to tell of what is there.
    pub(super) async fn remove_services(&self, is_listed: bool) -> Vec<String> {
        let mut left = Vec::new();
        for service in self.services() {
            let turn = self.settle_services(vec![change(ServiceAction::Delete(service))], &[], &[]).await;
            if turn.done().is_none() && !is_listed {
                left.push(format!("{}: {}", turn.sent, words::came_of_changes(&turn.came)));
            }
        }
        for owned in self.list_test_services().await.into_iter().flatten() {
            self.settle_services(vec![change(ServiceAction::RemoveOrphan(owned))], &[], &[]).await;
        }
        match self.list_test_services().await {
            Ok(ours) => left.extend(ours.into_iter().map(|owned| owned.name)),
            Err(none) => left.push(format!("what list-owned can't tell of: {}", words::no_answer(&none))),
        }
        left
    }

    async fn list_test_services(&self) -> Result<Vec<OwnedLoadBalancer>, NoAnswer> {
        let listed = self.list_owned(Scene::Real).await.came?;
        Ok(listed.into_iter().filter(|owned| owned.cluster_uid == self.cluster.uid).collect())
    }

    /// A change and a list, in front of a cloud in trouble. Nothing is there, and nothing reaches the cloud.
    pub(super) async fn trouble_services(&self, scene: Scene) -> Trouble<OwnedLoadBalancer> {
        let [first, second] = self.services();
        let changes = if matches!(scene, Scene::Silence) {
            vec![change(ServiceAction::Ensure(first))]
        } else {
            vec![change(ServiceAction::Ensure(first)), change(ServiceAction::Delete(second))]
        };
        let turn =
            once(&self.cloud, scene, sent(&changes, &[]), self.change_services(&changes, &[], &[])).await;
        let list = match scene {
            Scene::Silence | Scene::NotFound => None,
            scene => Some(self.list_owned(scene).await),
        };
        Trouble { scene, turn, list }
    }

    /// Makes changes; `others` are the Services that the host would tell of beside them.
    async fn settle_services(
        &self,
        changes: Vec<ServiceChange>,
        others: &[Service],
        targets: &[Target],
    ) -> Turn {
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

    async fn list_owned(&self, scene: Scene) -> Listing<OwnedLoadBalancer> {
        self.cloud.begin(scene, &[]);
        let came = match self.guest.list_owned_once(&self.cluster).await {
            Ok(listed) => listed.map_err(NoAnswer::Error),
            Err(fault) => Err(NoAnswer::Fault(fault)),
        };
        Listing { came, requests: self.cloud.seen() }
    }

    fn is_ours(&self, owned: &OwnedLoadBalancer, service: &Service) -> bool {
        owned.cluster_uid == self.cluster.uid && owned.service_uid.as_ref() == Some(&service.uid)
    }

    pub(super) fn services(&self) -> [Service; 2] {
        [self.service("first", FIRST_PORT), self.service("second", 443)]
    }

    fn service(&self, name: &str, port: u16) -> Service {
        Service {
            ports: vec![self::port(port)],
            families: vec![IpFamily::Ipv4],
            ..Service::named(NAMESPACE, name, super::uid(&self.nobody, name))
        }
    }
}

fn port(port: u16) -> ServicePort {
    ServicePort {
        name: String::new(),
        protocol: Protocol::Tcp,
        port,
        node_port: Some(30_000 + port), // of the range that the API server gives out
        app_protocol: None,
    }
}

const fn change(action: ServiceAction) -> ServiceChange {
    ServiceChange { action, resume: None }
}

fn changes(services: &[Service], act: Act) -> Vec<ServiceChange> {
    services.iter().cloned().map(|service| change(act(service))).collect()
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
