//! Routes: what the route controller's plan wants, and what a candidate makes of it.

use pileus_cloud::{Error as CloudError, RouteAction, RouteChange, RouteProgress};
use pileus_controllers::route::outlook::{Expected, Outlook, Surroundings, outlook};

use super::Wishes;
use super::apart::Outcome;
use super::candidate::Candidate;
use super::outlook::{Change, End, Findings, Part, Verb, names};
use super::world::World;

impl Candidate {
    /// Lets it do what is due for routes, as far as that goes without a write.
    pub(super) async fn routes(&self, world: &World, wishes: &Wishes) -> Part {
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
            nodes_wait: settings.nodes_wait,
        };
        let outlook = outlook(cluster, listed);
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
            let told = self.tell_apart(&changes, self.provider.largest_route_batch, call).await;
            findings.add(asked, told);
        }
        let next = next.into_iter().map(|expected| Change { end: End::Next, ..asked(expected).0 });
        findings.changes.extend(next);
        Part::Seen(findings)
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

fn outcome(outcome: Result<RouteProgress, CloudError>) -> Outcome {
    match outcome {
        Ok(RouteProgress::Done) => Outcome::Done,
        Ok(RouteProgress::InProgress { .. }) => Outcome::Under,
        Err(error) => Outcome::Failed(error),
    }
}

fn notes(world: &World, outlook: &Outlook) -> Vec<String> {
    let contested = outlook.contested.iter().map(|(range, node, owner)| {
        format!(
            "node {node} gets no route for {range}: node {owner} has that range already; each node needs its own"
        )
    });
    let waiting = &outlook.waiting;
    let waiting = (!waiting.is_empty()).then(|| {
        format!("{} nodes get no routes yet, as they are not initialised: {}", waiting.len(), names(waiting))
    });
    let unreadable = world.unreadable.iter().map(|problem| format!("{problem}; its routes stay as they are"));
    contested.chain(waiting).chain(unreadable).collect()
}
