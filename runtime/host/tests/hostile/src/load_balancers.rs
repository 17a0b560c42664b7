//! The same misbehavior in the capability `load-balancers`.

use std::hint::black_box;

use pileus_guest::{
    Cluster, Error, Ingress, Instance, IpMode, LoadBalancers, Notice, OwnedLoadBalancer, ServiceAction,
    ServiceCall, ServiceChange, ServiceOutcome, ServiceProgress, ServiceReport,
};

use crate::behavior::{long, misbehave};
use crate::{Behavior, Hostile};

/// One more than the host accepts.
const MANY: usize = 20_001;

impl LoadBalancers for Hostile {
    async fn list_owned(&self, _: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        let owned = |name: String| OwnedLoadBalancer { name, ..OwnedLoadBalancer::default() };
        match self.behaviour {
            Behavior::HugeAnswer => Ok(vec![owned(long())]),
            Behavior::FailOpen | Behavior::FailAside => {
                misbehave(self.behaviour, &self.attempts, Instance::default()).await?;
                Ok(Vec::new())
            }
            Behavior::ManyOwned => Ok((0..MANY).map(|number| owned(number.to_string())).collect()),
            behaviour => {
                misbehave(behaviour, &self.attempts, Instance::default()).await?;
                Ok(vec![owned("lb-1".to_owned())])
            }
        }
    }

    async fn change_load_balancers(&self, call: &ServiceCall) -> Result<Vec<ServiceOutcome>, Error> {
        let mut outcomes = call.change_each(async |change| self.change(change).await).await;
        let is_victim = |action: &ServiceAction| match action {
            ServiceAction::Ensure(service)
            | ServiceAction::UpdateTargets(service)
            | ServiceAction::Delete(service) => self.is_triggered_by(&service.name),
            ServiceAction::RemoveOrphan(_) => false,
        };
        if self.behaviour == Behavior::Misaligned && call.changes.iter().any(|it| is_victim(&it.action)) {
            black_box(outcomes.pop());
        }
        Ok(outcomes)
    }
}

impl Hostile {
    async fn change(&self, change: &ServiceChange) -> ServiceOutcome {
        let (service, done) = match &change.action {
            ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => {
                (service, ServiceProgress::done([Ingress::ip("198.51.100.7")]))
            }
            ServiceAction::Delete(service) => (service, ServiceProgress::gone()),
            ServiceAction::RemoveOrphan(_) => return Ok(ServiceProgress::gone()),
        };
        match self.behaviour {
            _ if !self.is_triggered_by(&service.name) => Ok(done),
            Behavior::IpModes => {
                let label = service.labels.iter().find(|(key, _)| key == "ip-mode");
                let ip_mode =
                    label.map(|(_, mode)| if mode == "Proxy" { IpMode::Proxy } else { IpMode::Vip });
                Ok(ServiceProgress::done([Ingress { ip_mode, ..Ingress::ip("198.51.100.7") }]))
            }
            Behavior::NoAddress => Ok(ServiceProgress::done([Ingress::ip("lb.example")])),
            Behavior::HugeAnswer => Ok(ServiceProgress::Done(ServiceReport {
                notices: (0..12).map(|_| Notice::warning("Huge", "x".repeat(64 << 10))).collect(),
                ..ServiceReport::new([Ingress::ip("198.51.100.7")])
            })),
            behaviour => {
                let about = Instance { provider_id: service.name.clone(), ..Instance::default() };
                misbehave(behaviour, &self.attempts, about).await?;
                Ok(if behaviour == Behavior::FailAside { ServiceProgress::Elsewhere } else { done })
            }
        }
    }
}
