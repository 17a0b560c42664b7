//! Routes out of calls: the cloud's table in one call, changes in one, or in more where the provider fails at one of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use pileus_cloud::{Cluster, Error, ListedRoute, Progress, RouteAction, RouteChange, Routes};
use pileus_gate::Urgency;
use tokio::time::Instant;

use super::parts::{Outcomes, Whole};
use super::{Guest, explain};
use crate::bindings::routes;
use crate::call::{Terms, call};
use crate::egress::Denial;
use crate::fault::Fault;
use crate::wire;

/// Repeats of failed changes begin within so many times what changes may take, as with lookups.
const REPEATING: u32 = 3;

/// The most routes of a table: as many as the largest cluster has Nodes, for both families, and as many again of others'.
const TABLE: usize = 20_000;

#[async_trait]
impl Routes for Guest {
    async fn list(&self, cluster: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        let (started, function) = (std::time::Instant::now(), "list-routes");
        let result = self.call_list(function, cluster).await;
        self.count(function, started, &result);
        result.unwrap_or_else(|fault| Err(self.failed(function, &fault)))
    }

    async fn change(&self, cluster: &Cluster, changes: &[RouteChange]) -> Outcomes<Progress> {
        match self.counted_change(cluster, changes, 1).await {
            Ok(outcomes) => outcomes,
            Err(fault) if fault.is_providers() && changes.len() > 1 => {
                let until = Instant::now() + self.limits.change_hard * REPEATING;
                let whole = Whole { function: "change-routes", items: changes, name, until };
                let ask = |changes, haste| self.counted_change(cluster, changes, haste).boxed();
                Ok(self.in_parts(whole, fault, ask).await)
            }
            Err(fault) => Err(self.failed("change-routes", &fault)),
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
    fn route_terms(&self, function: &'static str, urgency: Urgency, times: [Duration; 2]) -> Terms {
        let [soft, hard] = times;
        Terms {
            provider: Arc::clone(&self.name),
            function,
            configuration: Arc::clone(&self.configuration),
            // What is planned from a list is compared with it, so it reads nothing from a cache.
            gate: Some(self.gate.clone().with_urgency(urgency)),
            denial: Denial::default(),
            limits: self.limits.clone(),
            urgency,
            patience: hard,
            soft,
            hard,
            metrics: self.metrics.clone(),
        }
    }

    fn routes(&self) -> Result<routes::GuestIndices, Fault> {
        let lacks = || Fault::Contract("it exports no routes".to_owned());
        self.component.routes.clone().ok_or_else(lacks)
    }

    async fn call_list(
        &self,
        function: &'static str,
        cluster: &Cluster,
    ) -> Result<Result<Vec<ListedRoute>, Error>, Fault> {
        let (routes, wire_cluster) = (self.routes()?, wire::cluster_to_wire(cluster));
        let times = [self.limits.lookup_soft, self.limits.lookup_hard];
        // A pass that changes something waits for it.
        let terms = self.route_terms(function, Urgency::User, times);
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

    async fn counted_change(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
        haste: u32,
    ) -> Result<Outcomes<Progress>, Fault> {
        let started = std::time::Instant::now();
        let result = self.call_change(cluster, changes, haste).await;
        self.count("change-routes", started, &result);
        result
    }

    async fn call_change(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
        haste: u32,
    ) -> Result<Outcomes<Progress>, Fault> {
        let (routes, wire_cluster) = (self.routes()?, wire::cluster_to_wire(cluster));
        let wire_changes: Vec<_> = changes.iter().map(wire::route_change_to_wire).collect();
        let times = [self.limits.change_soft / haste, self.limits.change_hard / haste];
        let terms = self.route_terms("change-routes", Urgency::User, times);
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

    /// Counts a call by what became of it.
    fn count<T>(
        &self,
        function: &'static str,
        started: std::time::Instant,
        result: &Result<Result<T, Error>, Fault>,
    ) {
        let label = match result {
            Ok(Ok(_)) => "ok",
            Ok(Err(error)) => error.kind.as_str(),
            Err(fault) => fault.label(),
        };
        self.metrics.call_ended(&self.name, function, label, started.elapsed());
    }
}
