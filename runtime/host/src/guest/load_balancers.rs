//! Changes and lists of load balancers: one call about all changes. More calls follow where the provider fails at one of
//! them, and one more for deletions that the cloud's replies don't support.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use pileus_cloud::{
    Cluster, Error, ErrorKind, LoadBalancers, OwnedLoadBalancer, Service, ServiceAction, ServiceCall,
    ServiceChange, ServiceProgress,
};
use pileus_gate::Urgency;
use tokio::time::Instant;

use super::repeat::{FailedBatch, Outcomes};
use super::{Guest, Judged, ListWithReplies, MANY, change_view, explain, is_cut_short};
use crate::bindings::load_balancers;
use crate::call::{CallOptions, call};
use crate::change_deadline::ChangeEnd;
use crate::convert;
use crate::egress::Denials;
use crate::evidence::{self, ChangeSummary};
use crate::fault::Fault;
use crate::sandbox::Sandbox;

const CHANGE: &str = "change-load-balancers";
const LIST: &str = "list-owned";

/// The most load balancers of a list: several for each of several thousand Services.
const MAX_OWNED: usize = 20_000;

#[async_trait]
impl LoadBalancers for Guest {
    async fn change(&self, call: ServiceCall<'_>) -> Outcomes<ServiceProgress> {
        let outcomes = self.change_or_repeat(call).await?;
        Ok(self.judge_removals(call, outcomes).await)
    }

    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        let started = Instant::now();
        let result = self.call_list_owned(cluster).await;
        let result = result.map(|owned| owned.and_then(|owned| self.judge_list(LIST, owned)));
        self.count(LIST, started, &result, false);
        result.unwrap_or_else(|fault| Err(self.error(LIST, &fault)))
    }
}

/// Names a change in messages.
fn name(change: &ServiceChange) -> String {
    match &change.action {
        ServiceAction::Ensure(service)
        | ServiceAction::UpdateTargets(service)
        | ServiceAction::Delete(service) => {
            let Service { namespace, name, .. } = service;
            format!("service {namespace}/{name}")
        }
        ServiceAction::RemoveOrphan(owned) => format!("orphan {}", owned.name),
    }
}

/// Users wait for a new load balancer and a changed one. An audit and new targets come after them: a thousand Nodes that join may mean
/// as many writes.
fn urgency(changes: &[ServiceChange], is_audit: bool) -> Urgency {
    let is_update = |change: &ServiceChange| matches!(change.action, ServiceAction::UpdateTargets(_));
    if is_audit || changes.iter().all(is_update) { Urgency::Background } else { Urgency::User }
}

impl Guest {
    fn load_balancers(&self) -> Result<load_balancers::GuestIndices, Fault> {
        let missing = || Fault::Contract("it exports no load balancers".to_owned());
        self.component.load_balancers.clone().ok_or_else(missing)
    }

    async fn change_or_repeat(&self, call: ServiceCall<'_>) -> Outcomes<Judged<ServiceProgress>> {
        match self.counted_service_call(call, 1).await {
            Ok(outcomes) => outcomes,
            Err(fault) if fault.is_caused_by_provider() && call.changes.len() > 1 => {
                let hard = self.limits.load_balancers_hard;
                let batch = FailedBatch { function: CHANGE, items: call.changes, name, hard };
                // Changes of other parts don't become `known` Services: the provider may fail at its failing item there as
                // well, and then no part could be told from another.
                let call_part = |changes, deadline_divisor| {
                    self.counted_service_call(ServiceCall { changes, ..call }, deadline_divisor).boxed()
                };
                Ok(self.repeat_in_parts(batch, fault, call_part).await)
            }
            Err(fault) => Err(self.error(CHANGE, &fault)),
        }
    }

    /// Makes removals once more, by themselves, that are said to be done and that the replies of their call don't support:
    /// among others nothing tells whose requests failed. What isn't supported then is an error, so that the Service keeps
    /// its finalizer.
    async fn judge_removals(
        &self,
        call: ServiceCall<'_>,
        outcomes: Vec<Result<Judged<ServiceProgress>, Error>>,
    ) -> Vec<Result<ServiceProgress, Error>> {
        let (mut outcomes, total) = (outcomes, call.changes.len());
        let is_doubted = |(_, outcome): &(usize, &Result<Judged<_>, _>)| {
            outcome.as_ref().is_ok_and(|outcome: &Judged<_>| outcome.doubt.is_some())
        };
        let doubted: Vec<_> =
            outcomes.iter().enumerate().filter(is_doubted).map(|(place, _)| place).collect();
        if !doubted.is_empty() {
            self.metrics.count_doubted(&self.name, CHANGE, doubted.len());
        }
        if !doubted.is_empty() && doubted.len() < total {
            let changes: Vec<_> =
                doubted.iter().filter_map(|place| call.changes.get(*place).cloned()).collect();
            let again = match self.counted_service_call(ServiceCall { changes: &changes, ..call }, 1).await {
                Ok(Ok(again)) => again,
                Ok(Err(error)) => changes.iter().map(|_| Err(error.clone())).collect(),
                Err(fault) => changes.iter().map(|_| Err(self.error(CHANGE, &fault))).collect(),
            };
            for (place, outcome) in doubted.into_iter().zip(again) {
                if let Some(place) = outcomes.get_mut(place) {
                    *place = outcome;
                }
            }
        }
        let believed = |(outcome, change): (Result<Judged<ServiceProgress>, Error>, &ServiceChange)| {
            let Judged { outcome, doubt } = outcome?;
            let Some(doubt) = doubt else { return Ok(outcome) };
            let message =
                format!("{}: the provider says that nothing is left of it, but {doubt}", name(change));
            tracing::warn!(
                provider = &*self.name,
                change = name(change),
                replies = &*doubt,
                "removal not believed"
            );
            Err(Error::new(ErrorKind::Unavailable(None), message))
        };
        outcomes.into_iter().zip(call.changes).map(believed).collect()
    }

    /// Makes changes as [`LoadBalancers::change`] does, but in one call.
    ///
    /// # Errors
    /// The [`Fault`] where the call brings no outcomes.
    pub async fn change_load_balancers_once(
        &self,
        call: ServiceCall<'_>,
    ) -> Result<Outcomes<ServiceProgress>, Fault> {
        Ok(self.call_change_services(call, 1, &Denials::default()).await?.map(Judged::outcomes))
    }

    async fn counted_service_call(
        &self,
        service_call: ServiceCall<'_>,
        deadline_divisor: u32,
    ) -> Result<Outcomes<Judged<ServiceProgress>>, Fault> {
        let (started, denials) = (Instant::now(), Denials::default());
        let result = self.call_change_services(service_call, deadline_divisor, &denials).await;
        let is_open = |judged: &Result<Judged<ServiceProgress>, Error>| match judged {
            Ok(Judged { outcome, .. }) => matches!(outcome, ServiceProgress::InProgress { .. }),
            Err(_) => true,
        };
        let is_cut_short = is_cut_short(&result, &denials, is_open);
        if is_cut_short && let Some(reason) = denials.unanswered.explain() {
            tracing::warn!(provider = %self.name, function = CHANGE, %reason, "call ended before the cloud answered");
        }
        self.count(CHANGE, started, &result, is_cut_short);
        result
    }

    async fn call_change_services(
        &self,
        service_call: ServiceCall<'_>,
        deadline_divisor: u32,
        denials: &Denials,
    ) -> Result<Outcomes<Judged<ServiceProgress>>, Fault> {
        let ServiceCall { cluster, targets, known, changes, is_audit } = service_call;
        let (load_balancers, wit_cluster) = (self.load_balancers()?, convert::cluster_to_wit(cluster));
        let wit_targets: Vec<_> = targets.iter().map(convert::target_to_wit).collect();
        let wit_known: Vec<_> = known.iter().map(convert::service_to_wit).collect();
        let wit_changes: Vec<_> = changes.iter().map(convert::service_change_to_wit).collect();
        let deadlines = self.change_deadline.deadlines(&self.limits, deadline_divisor);
        let urgency = urgency(changes, is_audit);
        let view = change_view(changes.iter().any(|change| change.action.is_removal()));
        let options = CallOptions {
            denials: denials.clone(),
            ..self.change_options((CHANGE, changes.len()), urgency, view.as_ref(), deadlines)
        };
        let replies = options.replies.clone();
        let (answered, end) = call(&self.component, options, move |store, instance| {
            Box::pin(async move {
                let load_balancers = load_balancers.load(&mut *store, &instance)?;
                let answered = load_balancers
                    .call_change(&mut *store, &wit_cluster, &wit_targets, &wit_known, &wit_changes)
                    .await?;
                let Sandbox { context, egress, .. } = store.data();
                let is_late = Instant::now() >= context.soft_deadline;
                Ok((answered, ChangeEnd { is_late, has_written: egress.has_written() }))
            })
        })
        .await?;
        // A part of a call that failed has its own, shorter time.
        if deadline_divisor == 1 {
            self.change_deadline.on_end(end);
        }
        let outcomes = match answered {
            Ok(outcomes) => outcomes,
            Err(error) => return Ok(Err(explain(convert::error_from_wit(error), denials))),
        };
        if outcomes.len() != changes.len() {
            let (sent, received) = (changes.len(), outcomes.len());
            return Err(Fault::Contract(format!(
                "change returned {received} outcomes about {sent} services"
            )));
        }
        let read = |(change, outcome): (&ServiceChange, _)| {
            convert::service_outcome_from_wit(&name(change), outcome).map_err(|error| explain(error, denials))
        };
        let outcomes: Vec<_> = changes.iter().zip(outcomes).map(read).collect();
        let (replies, summary) = (replies.counts(), ChangeSummary::new(changes, &outcomes));
        let doubt: Option<Arc<str>> =
            (!evidence::supports_removal(&replies, summary)).then(|| evidence::describe(&replies).into());
        let judge = |(change, outcome): (&ServiceChange, Result<_, Error>)| {
            let outcome = outcome?;
            let doubt = doubt.clone().filter(|_| evidence::claims_removal(change, &outcome));
            Ok(Judged { outcome, doubt })
        };
        Ok(Ok(changes.iter().zip(outcomes).map(judge).collect()))
    }

    /// Lists load balancers as [`LoadBalancers::list_owned`] does, but believes every list.
    ///
    /// # Errors
    /// The [`Fault`] where the call brings no list.
    pub async fn list_owned_once(
        &self,
        cluster: &Cluster,
    ) -> Result<Result<Vec<OwnedLoadBalancer>, Error>, Fault> {
        Ok(self.call_list_owned(cluster).await?.map(|(owned, _)| owned))
    }

    async fn call_list_owned(&self, cluster: &Cluster) -> Result<ListWithReplies<OwnedLoadBalancer>, Fault> {
        let (load_balancers, wit_cluster) = (self.load_balancers()?, convert::cluster_to_wit(cluster));
        let deadlines = [self.limits.lookup_soft, self.limits.lookup_hard];
        // Reads nothing from the cache, because a listed load balancer may be removed. No user waits for it.
        let options = self.read_options((LIST, MANY), Urgency::Background, None, deadlines);
        let (denials, replies) = (options.denials.clone(), options.replies.clone());
        let answered = call(&self.component, options, move |store, instance| {
            Box::pin(async move {
                load_balancers.load(&mut *store, &instance)?.call_list_owned(store, &wit_cluster).await
            })
        })
        .await?;
        let owned = match answered {
            Ok(owned) => owned,
            Err(error) => return Ok(Err(explain(convert::error_from_wit(error), &denials))),
        };
        if owned.len() > MAX_OWNED {
            return Err(Fault::Contract(format!(
                "list-owned returned {} load balancers; the limit is {MAX_OWNED}",
                owned.len()
            )));
        }
        let owned = owned.into_iter().map(convert::owned_from_wit).collect();
        Ok(Ok((owned, replies.counts())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_for_which_a_user_waits_have_a_users_urgency() {
        let service = || Service::named("default", "web", "u");
        let (ensure, update, delete) = (
            || ServiceAction::Ensure(service()),
            || ServiceAction::UpdateTargets(service()),
            || ServiceAction::Delete(service()),
        );
        for (row, actions, is_audit, expected) in [
            ("a change", vec![ensure()], false, Urgency::User),
            ("a deletion", vec![delete()], false, Urgency::User),
            ("new targets", vec![update(), update()], false, Urgency::Background),
            ("new targets and a change", vec![update(), ensure()], false, Urgency::User),
            ("an audit", vec![ensure()], true, Urgency::Background),
        ] {
            let change = |action| ServiceChange { action, resume: None };
            let changes: Vec<_> = actions.into_iter().map(change).collect();
            assert_eq!(urgency(&changes, is_audit), expected, "{row}");
        }
    }
}
