//! Load balancers out of calls: changes in one, or in more where the provider fails at one of them, and what the cloud has
//! for Services in another.

use async_trait::async_trait;
use futures::FutureExt as _;
use pileus_cloud::{
    Cluster, Error, LoadBalancers, OwnedLoadBalancer, Service, ServiceAction, ServiceCall, ServiceChange,
    ServiceProgress,
};
use pileus_gate::Urgency;
use tokio::time::Instant;

use super::parts::{Outcomes, Whole};
use super::{Guest, explain};
use crate::bindings::load_balancers;
use crate::call::call;
use crate::fault::Fault;
use crate::wire;

const CHANGE: &str = "change-load-balancers";
const LIST: &str = "list-owned";

/// The most things that a cloud has for the Services of a cluster: some for each of several thousands.
const OWNED: usize = 20_000;

#[async_trait]
impl LoadBalancers for Guest {
    async fn change(&self, call: ServiceCall<'_>) -> Outcomes<ServiceProgress> {
        match self.counted_service_call(call, 1).await {
            Ok(outcomes) => outcomes,
            Err(fault) if fault.is_providers() && call.changes.len() > 1 => {
                let hard = self.limits.change_hard;
                let whole = Whole { function: CHANGE, items: call.changes, name, hard };
                // The other changes don't become `known` ones: the provider may fail at its culprit there as well, and
                // none could be told from it.
                let ask = |changes, haste| {
                    self.counted_service_call(ServiceCall { changes, ..call }, haste).boxed()
                };
                Ok(self.in_parts(whole, fault, ask).await)
            }
            Err(fault) => Err(self.failed(CHANGE, &fault)),
        }
    }

    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        let started = Instant::now();
        let result = self.list_owned_or_fault(cluster).await;
        self.count(LIST, started, &result);
        result.unwrap_or_else(|fault| Err(self.failed(LIST, &fault)))
    }
}

/// What a change is called in messages.
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

impl Guest {
    fn load_balancers(&self) -> Result<load_balancers::GuestIndices, Fault> {
        let lacks = || Fault::Contract("it exports no load balancers".to_owned());
        self.component.load_balancers.clone().ok_or_else(lacks)
    }

    /// Makes changes as [`LoadBalancers::change`] does, but in one call, and says what became of it where it brought no
    /// outcomes.
    pub async fn change_load_balancers_or_fault(
        &self,
        call: ServiceCall<'_>,
    ) -> Result<Outcomes<ServiceProgress>, Fault> {
        self.call_change_services(call, 1).await
    }

    async fn counted_service_call(
        &self,
        service_call: ServiceCall<'_>,
        haste: u32,
    ) -> Result<Outcomes<ServiceProgress>, Fault> {
        let started = Instant::now();
        let result = self.call_change_services(service_call, haste).await;
        self.count(CHANGE, started, &result);
        result
    }

    async fn call_change_services(
        &self,
        service_call: ServiceCall<'_>,
        haste: u32,
    ) -> Result<Outcomes<ServiceProgress>, Fault> {
        let ServiceCall { cluster, targets, known, changes, is_audit } = service_call;
        let (load_balancers, wire_cluster) = (self.load_balancers()?, wire::cluster_to_wire(cluster));
        let wire_targets: Vec<_> = targets.iter().map(wire::target_to_wire).collect();
        let wire_known: Vec<_> = known.iter().map(wire::service_to_wire).collect();
        let wire_changes: Vec<_> = changes.iter().map(wire::service_change_to_wire).collect();
        let times = [self.limits.balance_soft / haste, self.limits.change_hard / haste];
        let urgency = if is_audit { Urgency::Background } else { Urgency::User };
        // What is edited must be what is there: it reads nothing from a cache.
        let terms = self.terms(CHANGE, urgency, None, times);
        let denial = terms.denial.clone();
        let answered = call(&self.component, terms, move |store, instance| {
            Box::pin(async move {
                let load_balancers = load_balancers.load(&mut *store, &instance)?;
                load_balancers
                    .call_change(store, &wire_cluster, &wire_targets, &wire_known, &wire_changes)
                    .await
            })
        })
        .await?;
        let outcomes = match answered {
            Ok(outcomes) => outcomes,
            Err(error) => return Ok(Err(explain(wire::error_from_wire(error), &denial))),
        };
        if outcomes.len() != changes.len() {
            let (sent, came) = (changes.len(), outcomes.len());
            return Err(Fault::Contract(format!("change answered {came} times about {sent} services")));
        }
        let read = |(change, outcome): (&ServiceChange, _)| {
            wire::service_outcome_from_wire(&name(change), outcome).map_err(|error| explain(error, &denial))
        };
        Ok(Ok(changes.iter().zip(outcomes).map(read).collect()))
    }

    /// Lists as [`LoadBalancers::list_owned`] does, and says what became of the call where it brought no answer.
    pub async fn list_owned_or_fault(
        &self,
        cluster: &Cluster,
    ) -> Result<Result<Vec<OwnedLoadBalancer>, Error>, Fault> {
        let (load_balancers, wire_cluster) = (self.load_balancers()?, wire::cluster_to_wire(cluster));
        let times = [self.limits.lookup_soft, self.limits.lookup_hard];
        // What it lists may be removed: it reads nothing from a cache. Nobody waits for it.
        let terms = self.terms(LIST, Urgency::Background, None, times);
        let denial = terms.denial.clone();
        let answered = call(&self.component, terms, move |store, instance| {
            Box::pin(async move {
                load_balancers.load(&mut *store, &instance)?.call_list_owned(store, &wire_cluster).await
            })
        })
        .await?;
        let owned = match answered {
            Ok(owned) => owned,
            Err(error) => return Ok(Err(explain(wire::error_from_wire(error), &denial))),
        };
        if owned.len() > OWNED {
            return Err(Fault::Contract(format!(
                "list-owned told of {} things, {OWNED} are taken",
                owned.len()
            )));
        }
        Ok(owned.into_iter().map(wire::owned_from_wire).collect())
    }
}
