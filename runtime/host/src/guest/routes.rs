//! Routes out of calls: the cloud's table in one call, changes in one, or in more where the provider fails at one of them.

use async_trait::async_trait;
use futures::FutureExt as _;
use pileus_cloud::{Cluster, Error, ListedRoute, RouteAction, RouteChange, RouteProgress, Routes};
use pileus_gate::Urgency;
use tokio::time::Instant;

use super::parts::{Outcomes, Whole};
use super::{Guest, explain};
use crate::bindings::routes;
use crate::call::call;
use crate::fault::Fault;
use crate::wire;

const CHANGE: &str = "change-routes";
const LIST: &str = "list-routes";

/// The most routes of a table: as many as the largest cluster has Nodes, for both families, and as many again of others'.
const TABLE: usize = 20_000;

#[async_trait]
impl Routes for Guest {
    async fn list(&self, cluster: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        let started = Instant::now();
        let result = self.list_routes_or_fault(cluster).await;
        self.count(LIST, started, &result);
        result.unwrap_or_else(|fault| Err(self.failed(LIST, &fault)))
    }

    async fn change(&self, cluster: &Cluster, changes: &[RouteChange]) -> Outcomes<RouteProgress> {
        match self.counted_change(cluster, changes, 1).await {
            Ok(outcomes) => outcomes,
            Err(fault) if fault.is_providers() && changes.len() > 1 => {
                let hard = self.limits.change_hard;
                let whole = Whole { function: CHANGE, items: changes, name, hard };
                let ask = |changes, haste| self.counted_change(cluster, changes, haste).boxed();
                Ok(self.in_parts(whole, fault, ask).await)
            }
            Err(fault) => Err(self.failed(CHANGE, &fault)),
        }
    }
}

/// What a change is called in messages.
fn name(change: &RouteChange) -> String {
    match &change.action {
        RouteAction::Delete(route) => format!("route {} to {}", route.name, route.destination),
        RouteAction::Create(route) => format!("route of node {} to {}", route.node, route.destination),
    }
}

impl Guest {
    fn routes(&self) -> Result<routes::GuestIndices, Fault> {
        let lacks = || Fault::Contract("it exports no routes".to_owned());
        self.component.routes.clone().ok_or_else(lacks)
    }

    /// Lists as [`Routes::list`] does, and says what became of the call where it brought no answer.
    pub async fn list_routes_or_fault(
        &self,
        cluster: &Cluster,
    ) -> Result<Result<Vec<ListedRoute>, Error>, Fault> {
        let (routes, wire_cluster) = (self.routes()?, wire::cluster_to_wire(cluster));
        let times = [self.limits.lookup_soft, self.limits.lookup_hard];
        // A pass that changes something waits for it, and what is planned from it is compared with it: it reads nothing
        // from a cache.
        let terms = self.terms(LIST, Urgency::User, None, times);
        let denial = terms.denial.clone();
        let answered = call(&self.component, terms, move |store, instance| {
            Box::pin(
                async move { routes.load(&mut *store, &instance)?.call_list(store, &wire_cluster).await },
            )
        })
        .await?;
        let listed = match answered {
            Ok(listed) => listed,
            Err(error) => return Ok(Err(explain(wire::error_from_wire(error), &denial))),
        };
        if listed.len() > TABLE {
            return Err(Fault::Contract(format!("list told of {} routes, {TABLE} are taken", listed.len())));
        }
        Ok(listed.into_iter().map(wire::route_from_wire).collect())
    }

    /// Makes changes as [`Routes::change`] does, but in one call, and says what became of it where it brought no outcomes.
    pub async fn change_routes_or_fault(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Outcomes<RouteProgress>, Fault> {
        self.call_change(cluster, changes, 1).await
    }

    async fn counted_change(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
        haste: u32,
    ) -> Result<Outcomes<RouteProgress>, Fault> {
        let started = Instant::now();
        let result = self.call_change(cluster, changes, haste).await;
        self.count(CHANGE, started, &result);
        result
    }

    async fn call_change(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
        haste: u32,
    ) -> Result<Outcomes<RouteProgress>, Fault> {
        let (routes, wire_cluster) = (self.routes()?, wire::cluster_to_wire(cluster));
        let wire_changes: Vec<_> = changes.iter().map(wire::route_change_to_wire).collect();
        let times = [self.limits.change_soft / haste, self.limits.change_hard / haste];
        let terms = self.terms(CHANGE, Urgency::User, None, times);
        let denial = terms.denial.clone();
        let answered = call(&self.component, terms, move |store, instance| {
            Box::pin(async move {
                let routes = routes.load(&mut *store, &instance)?;
                routes.call_change(store, &wire_cluster, &wire_changes).await
            })
        })
        .await?;
        let outcomes = match answered {
            Ok(outcomes) => outcomes,
            Err(error) => return Ok(Err(explain(wire::error_from_wire(error), &denial))),
        };
        if outcomes.len() != changes.len() {
            let (sent, came) = (changes.len(), outcomes.len());
            return Err(Fault::Contract(format!("change answered {came} times about {sent} routes")));
        }
        let outcomes = outcomes.into_iter().map(wire::route_outcome_from_wire);
        Ok(Ok(outcomes.map(|outcome| outcome.map_err(|error| explain(error, &denial))).collect()))
    }
}
