//! A candidate before a world: what is due by the controllers' plans, and what the candidate makes of it.

use std::collections::HashSet;
use std::time::Duration;

use pileus_cloud::{
    Cluster, Error as CloudError, Owned, Progress, Provider, RouteAction, RouteChange, Service,
    ServiceAction, ServiceCall, ServiceChange, ServiceProgress,
};
use pileus_controllers::route::outlook::{Expected, Surroundings};
use pileus_controllers::{route, service};
use tokio::time::Instant;

use super::apart::{Apart, Outcome, Told};
use super::candidate::Candidate;
use super::outlook::{Change, End, Findings, Outlook, Part, Verb};
use super::world::World;

/// How long writes are told apart that were wanted by a call about several things: a thousand calls that read something
/// from a cloud at 20 ms, and a while for its limits. What is left then is told as it is.
const TELLING: Duration = Duration::from_mins(1);

/// The names that a note holds.
const NAMES: usize = 5;

/// What the operator wants of the controllers.
pub(crate) struct Wishes {
    pub(crate) cluster: Cluster,
    /// None where no routes are kept.
    pub(crate) routes: Option<route::Settings>,
    /// The load balancer classes that are ours besides no class.
    pub(crate) classes: Vec<String>,
}

impl Candidate {
    /// Lets it do all that is due, as far as that goes without a write.
    pub(crate) async fn rehearse(
        &self,
        world: &World,
        wishes: &Wishes,
        owned: Result<Vec<Owned>, String>,
    ) -> Outlook {
        let Cluster { name, uid } = wishes.cluster.clone();
        Outlook {
            provider: self.identity.clone(),
            cluster: (name, uid),
            load_balancers: self.load_balancers(world, wishes, owned).await,
            routes: self.routes(world, wishes).await,
        }
    }

    async fn load_balancers(
        &self,
        world: &World,
        wishes: &Wishes,
        owned: Result<Vec<Owned>, String>,
    ) -> Part {
        let Some(load_balancers) = &self.provider.load_balancers else {
            return Part::Nothing("the provider balances no load".to_owned());
        };
        let owned = match owned {
            Ok(owned) => owned,
            Err(problem) => return Part::Unseen(problem),
        };
        let surroundings = service::outlook::Surroundings {
            cluster: &wishes.cluster,
            classes: &wishes.classes,
            terms: &self.provider.service_terms,
            schemes: &self.provider.schemes,
            nodes: &world.nodes,
            services: &world.services,
            present: &world.present,
            owned: &owned,
        };
        let outlook = service::outlook::outlook(&surroundings, Instant::now());
        let mut findings = Findings { notes: notes_on_services(&outlook), ..Findings::default() };
        let (asked, changes): (Vec<_>, Vec<_>) = outlook.changes.iter().map(asked_of_service).unzip();
        let call = async |changes: Vec<ServiceChange>| {
            let known = known(&outlook, &changes, &self.provider);
            let call = ServiceCall {
                cluster: &wishes.cluster,
                targets: &outlook.targets,
                known: &known,
                changes: &changes,
                is_audit: true,
            };
            let outcomes = load_balancers.change(call).await?;
            Ok(outcomes.into_iter().map(service_outcome).collect())
        };
        let told = self.tell_apart(&changes, self.provider.service_terms.largest_change, call).await;
        findings.add(asked, told);
        let refused = outlook.refused.into_iter().map(|(object, problem)| Change {
            verb: Verb::Change,
            object,
            reason: "something is wrong with the Service".to_owned(),
            end: End::Refused(problem),
        });
        findings.changes.extend(refused);
        Part::Seen(findings)
    }

    async fn routes(&self, world: &World, wishes: &Wishes) -> Part {
        let Some(settings) = &wishes.routes else {
            return Part::Nothing("no routes are kept without --cluster-cidr".to_owned());
        };
        let Some(routes) = &self.provider.routes else {
            return Part::Nothing("the provider programs no routes".to_owned());
        };
        let listed = match self.read(routes.list(&wishes.cluster)).await {
            Ok(listed) => listed,
            Err(problem) => return Part::Unseen(format!("the cloud's routes can't be listed: {problem}")),
        };
        let cluster = Surroundings {
            nodes: &world.nodes,
            left_alone: &world.left_alone,
            schemes: &self.provider.schemes,
            cluster_ranges: &settings.cluster_ranges,
        };
        let outlook = route::outlook::outlook(cluster, listed);
        let mut findings =
            Findings { settled: outlook.settled, notes: notes(world, &outlook), ..Findings::default() };
        let (next, now): (Vec<_>, Vec<_>) = outlook.changes.into_iter().partition(|change| change.is_next);
        let is_delete = |expected: &Expected| matches!(expected.action, RouteAction::Delete(_));
        let (deletes, creates): (Vec<_>, Vec<_>) = now.into_iter().partition(is_delete);
        for expected in [deletes, creates] {
            let (asked, changes): (Vec<_>, Vec<_>) = expected.into_iter().map(asked).unzip();
            let call = async |changes: Vec<RouteChange>| {
                let outcomes = routes.change(&wishes.cluster, &changes).await?;
                Ok(outcomes.into_iter().map(outcome).collect())
            };
            let told = self.tell_apart(&changes, self.provider.largest_route_change, call).await;
            findings.add(asked, told);
        }
        let next = next.into_iter().map(|expected| Change { end: End::Next, ..asked(expected).0 });
        findings.changes.extend(next);
        Part::Seen(findings)
    }

    /// Asks for changes, in as few calls as it takes to know what is wanted for which.
    async fn tell_apart<C: Clone>(
        &self,
        changes: &[C],
        largest: usize,
        call: impl AsyncFn(Vec<C>) -> Result<Vec<Outcome>, CloudError>,
    ) -> Told {
        let until = Instant::now() + TELLING;
        let mut apart = Apart::new(changes.len(), largest);
        while let Some(part) = apart.next() {
            if part.is_new || Instant::now() < until {
                let asked = part.things.iter().filter_map(|thing| changes.get(*thing).cloned());
                self.rehearsal.take();
                let outcomes = call(asked.collect()).await;
                apart.came(&part, outcomes, self.rehearsal.take());
            }
        }
        apart.told()
    }
}

/// A change as people see it, and as the provider does.
fn asked(expected: Expected) -> (Change, RouteChange) {
    let Expected { action, reason, is_next: _ } = expected;
    let (verb, object) = match &action {
        RouteAction::Delete(route) => (Verb::Delete, format!("{} ({})", route.destination, route.name)),
        RouteAction::Create(route) => (Verb::Create, route.destination.to_string()),
    };
    let change = Change { verb, object, reason: reason.to_string(), end: End::Next };
    (change, RouteChange { action, resume: None })
}

fn outcome(outcome: Result<Progress, CloudError>) -> Outcome {
    match outcome {
        Ok(Progress::Done) => Outcome::Done,
        Ok(Progress::Under { .. }) => Outcome::Under,
        Err(error) => Outcome::Failed(error),
    }
}

/// The same for a Service.
fn asked_of_service(expected: &service::outlook::Expected) -> (Change, ServiceChange) {
    let service::outlook::Expected { change, object, reason, may_exist: _ } = expected;
    let verb = match (&change.action, reason) {
        (ServiceAction::Delete(_) | ServiceAction::RemoveOrphan(_), _) => Verb::Delete,
        (_, service::outlook::Reason::Missing) => Verb::Create,
        _ => Verb::Change,
    };
    let asked = Change { verb, object: object.clone(), reason: reason.to_string(), end: End::Next };
    (asked, change.clone())
}

/// The Services of which the cloud may have something, without those that a call changes, for a provider that reads them.
fn known(
    outlook: &service::outlook::Outlook,
    changes: &[ServiceChange],
    provider: &Provider,
) -> Vec<Service> {
    if !provider.service_terms.wants_known {
        return Vec::new();
    }
    let of = |change| service_of(change).map(|service| &*service.uid);
    let changed: HashSet<_> = changes.iter().filter_map(of).collect();
    let there = outlook.changes.iter().filter(|expected| expected.may_exist);
    let there = there.filter_map(|expected| service_of(&expected.change));
    there.filter(|service| !changed.contains(&*service.uid)).cloned().collect()
}

/// The Service that a change is about.
fn service_of(change: &ServiceChange) -> Option<&Service> {
    match &change.action {
        ServiceAction::Ensure(service)
        | ServiceAction::UpdateTargets(service)
        | ServiceAction::Delete(service) => Some(service),
        ServiceAction::RemoveOrphan(_) => None,
    }
}

fn service_outcome(outcome: Result<ServiceProgress, CloudError>) -> Outcome {
    match outcome {
        Ok(ServiceProgress::Done { .. }) => Outcome::Done,
        Ok(ServiceProgress::Under { .. }) => Outcome::Under,
        Ok(ServiceProgress::Elsewhere) => Outcome::Elsewhere,
        Err(error) => Outcome::Failed(error),
    }
}

fn notes_on_services(outlook: &service::outlook::Outlook) -> Vec<String> {
    let strangers = outlook.strangers.iter().map(|name| {
        format!("the cloud has {name} for a Service, but of which cluster or Service can't be told; it stays")
    });
    let lacks_targets = outlook.targets.is_empty() && !outlook.changes.is_empty();
    let lacks_targets = lacks_targets.then(|| "no Node takes traffic of load balancers now".to_owned());
    strangers.chain(lacks_targets).collect()
}

fn notes(world: &World, outlook: &route::outlook::Outlook) -> Vec<String> {
    let contested = outlook.contested.iter().map(|(range, node, owner)| {
        format!(
            "node {node} gets no route for {range}: node {owner} has that range already; each node needs its own"
        )
    });
    let waiting = &outlook.waiting;
    let waiting = (!waiting.is_empty()).then(|| {
        format!("{} nodes get their routes once they are initialised: {}", waiting.len(), names(waiting))
    });
    let unreadable = world.unreadable.iter().map(|problem| format!("{problem}; its routes stay as they are"));
    contested.chain(waiting).chain(unreadable).collect()
}

/// The first of some names, and how many there are beside.
pub(super) fn names(all: &[String]) -> String {
    let shown = all.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
