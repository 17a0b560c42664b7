//! The functions behind [`export_provider!`]: one for each function of the contract. A call starts without state, so each
//! function reads the configuration, makes the provider, and calls the author's trait.
//!
//! [`export_provider!`]: crate::export_provider

use crate::bindings::exports::pileus::provider::info;
use crate::bindings::instances::exports::pileus::provider::instances;
use crate::bindings::load_balancers::exports::pileus::provider::load_balancers;
use crate::bindings::local_instance::exports::pileus::provider::local_instance as wit_local;
use crate::bindings::pileus::provider::types;
use crate::bindings::routes::exports::pileus::provider::routes;
use crate::error::AFTER_DEADLINE;
use crate::http::codes;
use crate::{
    Answer, Capability, Cluster, Error, InProgress, Instances, ListedRoute, LoadBalancers, LocalAnswer,
    LocalInstance, NodeReference, OwnedLoadBalancer, Provider, Purpose, RouteChange, RouteOutcome, Routes,
    ServiceCall, ServiceOutcome, configuration, host, local_instance, log, wire,
};

/// `info.describe`.
pub fn describe<P: Provider>(capabilities: &[Capability]) -> info::Description {
    log::install();
    wire::description(P::describe(), configuration::schema::<P>(), capabilities)
}

/// `info.configure`.
pub fn configure<P: Provider>(document: &str) -> Result<info::Settings, Vec<info::Problem>> {
    log::install();
    match configuration::read::<P>(document) {
        Ok(provider) => Ok(wire::settings(provider.settings())),
        Err(problems) => Err(problems.into_iter().map(wire::problem).collect()),
    }
}

/// `instances.lookup`.
pub fn lookup<P: Instances>(
    purpose: instances::Purpose,
    nodes: Vec<types::NodeReference>,
) -> Result<Vec<instances::Answer>, types::Error> {
    log::install();
    let nodes: Vec<NodeReference> = nodes.into_iter().map(wire::node_reference).collect();
    match host::block_on(look_up::<P>(wire::purpose(purpose), &nodes)) {
        Ok(answers) => Ok(answers.into_iter().map(wire::answer).collect()),
        Err(error) => Err(wire::error(error)),
    }
}

/// A lookup with the SDK's types. What the soft deadline cut short is pending.
pub(crate) async fn look_up<P: Instances>(
    purpose: Purpose,
    nodes: &[NodeReference],
) -> Result<Vec<Result<Answer, Error>>, Error> {
    let provider: P = configured()?;
    let pending = || Ok(Answer::Pending(AFTER_DEADLINE));
    match provider.lookup_many(purpose, nodes).await {
        Ok(answers) => Ok(answers
            .into_iter()
            .map(|answer| match answer {
                Err(error) if error.is_past_deadline() => pending(),
                answer => answer,
            })
            .collect()),
        Err(error) if error.is_past_deadline() => Ok(nodes.iter().map(|_| pending()).collect()),
        Err(error) => Err(error),
    }
}

/// `local-instance.describe`.
pub fn describe_local_instance<P: LocalInstance>(
    node: types::NodeReference,
) -> Result<wit_local::LocalAnswer, types::Error> {
    log::install();
    match host::block_on(described_local_instance::<P>(&wire::node_reference(node))) {
        Ok(answer) => Ok(wire::local_answer(answer)),
        Err(error) => Err(wire::error(error)),
    }
}

/// A description of the local instance with the SDK's types. A service that is silent until the soft deadline is unavailable: it
/// doesn't say that it knows nothing yet.
pub(crate) async fn described_local_instance<P: LocalInstance>(
    node: &NodeReference,
) -> Result<LocalAnswer, Error> {
    match configured::<P>()?.describe_local_instance(node).await {
        Ok(answer) => local_instance::check::<P>(node, answer),
        Err(error) if error.is_past_deadline() => Err(Error::unavailable(error.message)),
        Err(error) => Err(error),
    }
}

/// `routes.list`.
pub fn list_routes<P: Routes>(cluster: types::Cluster) -> Result<Vec<routes::Listed>, types::Error> {
    log::install();
    match host::block_on(listed_routes::<P>(&wire::cluster(cluster))) {
        Ok(listed) => Ok(listed.into_iter().map(wire::listed).collect()),
        Err(error) => Err(wire::error(error)),
    }
}

/// `routes.change`.
pub fn change_routes<P: Routes>(
    cluster: types::Cluster,
    changes: Vec<routes::RouteChange>,
) -> Result<Vec<routes::Outcome>, types::Error> {
    log::install();
    let changes: Vec<RouteChange> = changes.into_iter().map(wire::route_change).collect();
    match host::block_on(changed_routes::<P>(&wire::cluster(cluster), &changes)) {
        Ok(outcomes) => Ok(outcomes.into_iter().map(wire::route_outcome).collect()),
        Err(error) => Err(wire::error(error)),
    }
}

/// `load-balancers.change`.
pub fn change_load_balancers<P: LoadBalancers>(
    cluster: types::Cluster,
    targets: Vec<load_balancers::Target>,
    known: Vec<load_balancers::Service>,
    changes: Vec<load_balancers::ServiceChange>,
) -> Result<Vec<load_balancers::Outcome>, types::Error> {
    log::install();
    let call = ServiceCall {
        cluster: wire::cluster(cluster),
        targets: targets.into_iter().map(wire::target).collect(),
        known: known.into_iter().map(wire::service).collect(),
        changes: changes.into_iter().map(wire::service_change).collect(),
    };
    match host::block_on(changed_load_balancers::<P>(&call)) {
        Ok(outcomes) => Ok(outcomes.into_iter().map(wire::service_outcome).collect()),
        Err(error) => Err(wire::error(error)),
    }
}

/// `load-balancers.list-owned`.
pub fn list_owned<P: LoadBalancers>(
    cluster: types::Cluster,
) -> Result<Vec<load_balancers::Owned>, types::Error> {
    log::install();
    match host::block_on(owned_load_balancers::<P>(&wire::cluster(cluster))) {
        Ok(owned) => Ok(owned.into_iter().map(wire::owned_to_wit).collect()),
        Err(error) => Err(wire::error(error)),
    }
}

/// Makes the provider of this call.
fn configured<P: Provider>() -> Result<P, Error> {
    codes::install(|| {
        configuration::read::<P>(&host::configuration()).map_or_else(|_| Vec::new(), |it| it.settings().codes)
    });
    configuration::read(&host::configuration()).map_err(|problems| configuration::rejected(&problems))
}

/// A list of routes with the SDK's types.
pub(crate) async fn listed_routes<P: Routes>(cluster: &Cluster) -> Result<Vec<ListedRoute>, Error> {
    configured::<P>()?.list_routes(cluster).await
}

/// Changes of routes with the SDK's types. What the soft deadline cut short is in progress.
pub(crate) async fn changed_routes<P: Routes>(
    cluster: &Cluster,
    changes: &[RouteChange],
) -> Result<Vec<RouteOutcome>, Error> {
    let outcomes = configured::<P>()?.change_routes(cluster, changes).await;
    defer_unbegun(outcomes, changes, |change| &change.resume)
}

/// A list of owned load balancers with the SDK's types.
pub(crate) async fn owned_load_balancers<P: LoadBalancers>(
    cluster: &Cluster,
) -> Result<Vec<OwnedLoadBalancer>, Error> {
    configured::<P>()?.list_owned(cluster).await
}

/// Changes of load balancers with the SDK's types. What the soft deadline cut short is in progress.
pub(crate) async fn changed_load_balancers<P: LoadBalancers>(
    call: &ServiceCall,
) -> Result<Vec<ServiceOutcome>, Error> {
    let outcomes = configured::<P>()?.change_load_balancers(call).await;
    defer_unbegun(outcomes, &call.changes, |change| &change.resume)
}

/// Turns the errors of changes that could not begin before the soft deadline into progress, each with the note that it
/// came with. That includes requests that the gate held back because of the deadline: asked again soon, they are in the
/// gate's queue before its limit has let the last of the others through.
fn defer_unbegun<C, P: From<InProgress>>(
    outcomes: Result<Vec<Result<P, Error>>, Error>,
    changes: &[C],
    note: impl Fn(&C) -> &Option<String>,
) -> Result<Vec<Result<P, Error>>, Error> {
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(error) if error.has_not_begun() => changes.iter().map(|_| Err(error.clone())).collect(),
        Err(error) => return Err(error),
    };
    // Surplus outcomes stay, so that the host sees that the provider has miscounted.
    let mut changes = changes.iter();
    let deferred = outcomes.into_iter().map(|outcome| match (outcome, changes.next()) {
        (Err(error), Some(change)) if error.has_not_begun() => {
            Ok(InProgress { after: AFTER_DEADLINE, resume: note(change).clone() }.into())
        }
        (outcome, _) => outcome,
    });
    Ok(deferred.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RouteProgress;

    #[test]
    fn a_wrong_number_of_outcomes_reaches_the_host_unchanged() {
        let notes = [None, Some("b".to_owned())];
        let late = || Err(Error::deadline("it"));
        let later = |note: &Option<String>| {
            Ok(RouteProgress::InProgress(InProgress { after: AFTER_DEADLINE, resume: note.clone() }))
        };
        let done = || Ok(RouteProgress::Done);
        for (outcomes, expected) in [
            (vec![done(), late()], vec![done(), later(&notes[1])]),
            (vec![done()], vec![done()]),
            (vec![done(), late(), done()], vec![done(), later(&notes[1]), done()]),
        ] {
            assert_eq!(defer_unbegun(Ok(outcomes), &notes, |note| note), Ok(expected));
        }
        let whole = defer_unbegun(Err(Error::deadline("it")), &notes, |note| note);
        assert_eq!(whole, Ok(notes.iter().map(later).collect()));
    }
}
