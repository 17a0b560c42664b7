//! Changes and lists of routes: the cloud's table in one call, and one call about all changes. More calls follow where the
//! provider fails at one of them.

use async_trait::async_trait;
use futures::FutureExt as _;
use pileus_cloud::{Cluster, Error, ListedRoute, RouteAction, RouteChange, RouteProgress, Routes};
use pileus_gate::Urgency;
use tokio::time::Instant;

use super::repeat::{FailedBatch, Outcomes};
use super::{Guest, ListWithReplies, MANY, change_view, explain, is_cut_short};
use crate::bindings::routes;
use crate::call::{CallOptions, call};
use crate::convert;
use crate::egress::Denials;
use crate::fault::Fault;

const CHANGE: &str = "change-routes";
const LIST: &str = "list-routes";

/// The most routes of a table: one for each Node of the largest cluster and each address family, and as many others.
const MAX_ROUTES: usize = 20_000;

#[async_trait]
impl Routes for Guest {
    async fn list(&self, cluster: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        let started = Instant::now();
        let result = self.call_list(cluster).await;
        let result = result.map(|routes| routes.and_then(|routes| self.judge_list(LIST, routes)));
        self.count(LIST, started, &result, false);
        result.unwrap_or_else(|fault| Err(self.error(LIST, &fault)))
    }

    async fn change(&self, cluster: &Cluster, changes: &[RouteChange]) -> Outcomes<RouteProgress> {
        match self.counted_change(cluster, changes, 1).await {
            Ok(outcomes) => outcomes,
            Err(fault) if fault.is_caused_by_provider() && changes.len() > 1 => {
                let hard = self.limits.change_hard;
                let batch = FailedBatch { function: CHANGE, items: changes, name, hard };
                let call_part = |changes, deadline_divisor| {
                    self.counted_change(cluster, changes, deadline_divisor).boxed()
                };
                Ok(self.repeat_in_parts(batch, fault, call_part).await)
            }
            Err(fault) => Err(self.error(CHANGE, &fault)),
        }
    }
}

/// Names a change in messages.
fn name(change: &RouteChange) -> String {
    match &change.action {
        RouteAction::Delete(route) => format!("route {} to {}", route.name, route.destination),
        RouteAction::Create(route) => format!("route of node {} to {}", route.node, route.destination),
    }
}

impl Guest {
    fn routes(&self) -> Result<routes::GuestIndices, Fault> {
        let missing = || Fault::Contract("it exports no routes".to_owned());
        self.component.routes.clone().ok_or_else(missing)
    }

    /// Lists routes as [`Routes::list`] does, but believes every list.
    ///
    /// # Errors
    /// The [`Fault`] where the call brings no list.
    pub async fn list_routes_once(
        &self,
        cluster: &Cluster,
    ) -> Result<Result<Vec<ListedRoute>, Error>, Fault> {
        Ok(self.call_list(cluster).await?.map(|(routes, _)| routes))
    }

    async fn call_list(&self, cluster: &Cluster) -> Result<ListWithReplies<ListedRoute>, Fault> {
        let (routes, wit_cluster) = (self.routes()?, convert::cluster_to_wit(cluster));
        let deadlines = [self.limits.lookup_soft, self.limits.lookup_hard];
        // Reads nothing from the cache, because changes are planned from the list. They wait for it, so it is urgent.
        let options = self.read_options((LIST, MANY), Urgency::User, None, deadlines);
        let (denials, replies) = (options.denials.clone(), options.replies.clone());
        let answered = call(&self.component, options, move |store, instance| {
            Box::pin(async move { routes.load(&mut *store, &instance)?.call_list(store, &wit_cluster).await })
        })
        .await?;
        let listed = match answered {
            Ok(listed) => listed,
            Err(error) => return Ok(Err(explain(convert::error_from_wit(error), &denials))),
        };
        if listed.len() > MAX_ROUTES {
            return Err(Fault::Contract(format!(
                "list returned {} routes; the limit is {MAX_ROUTES}",
                listed.len()
            )));
        }
        let routes: Result<_, _> = listed.into_iter().map(convert::route_from_wit).collect();
        Ok(routes.map(|routes| (routes, replies.counts())))
    }

    /// Makes changes as [`Routes::change`] does, but in one call.
    ///
    /// # Errors
    /// The [`Fault`] where the call brings no outcomes.
    pub async fn change_routes_once(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Outcomes<RouteProgress>, Fault> {
        self.call_change(cluster, changes, 1, &Denials::default()).await
    }

    async fn counted_change(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
        deadline_divisor: u32,
    ) -> Result<Outcomes<RouteProgress>, Fault> {
        let (started, denials) = (Instant::now(), Denials::default());
        let result = self.call_change(cluster, changes, deadline_divisor, &denials).await;
        let is_open =
            |outcome: &Result<_, _>| matches!(outcome, Err(_) | Ok(RouteProgress::InProgress { .. }));
        let is_cut_short = is_cut_short(&result, &denials, is_open);
        if is_cut_short && let Some(reason) = denials.unanswered.explain() {
            tracing::warn!(provider = %self.name, function = CHANGE, %reason, "call ended before the cloud answered");
        }
        self.count(CHANGE, started, &result, is_cut_short);
        result
    }

    async fn call_change(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
        deadline_divisor: u32,
        denials: &Denials,
    ) -> Result<Outcomes<RouteProgress>, Fault> {
        let (routes, wit_cluster) = (self.routes()?, convert::cluster_to_wit(cluster));
        let wit_changes: Vec<_> = changes.iter().map(convert::route_change_to_wit).collect();
        let deadlines =
            [self.limits.change_soft / deadline_divisor, self.limits.change_hard / deadline_divisor];
        let view = change_view(changes.iter().any(|change| matches!(change.action, RouteAction::Delete(_))));
        let options = CallOptions {
            denials: denials.clone(),
            ..self.change_options((CHANGE, changes.len()), Urgency::User, view.as_ref(), deadlines)
        };
        let answered = call(&self.component, options, move |store, instance| {
            Box::pin(async move {
                let routes = routes.load(&mut *store, &instance)?;
                routes.call_change(store, &wit_cluster, &wit_changes).await
            })
        })
        .await?;
        let outcomes = match answered {
            Ok(outcomes) => outcomes,
            Err(error) => return Ok(Err(explain(convert::error_from_wit(error), denials))),
        };
        if outcomes.len() != changes.len() {
            let (sent, received) = (changes.len(), outcomes.len());
            return Err(Fault::Contract(format!("change returned {received} outcomes about {sent} routes")));
        }
        let outcomes = outcomes.into_iter().map(convert::route_outcome_from_wit);
        Ok(Ok(outcomes.map(|outcome| outcome.map_err(|error| explain(error, denials))).collect()))
    }
}
