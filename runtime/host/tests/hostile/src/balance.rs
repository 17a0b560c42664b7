//! The same misdeeds where load balancers are wanted.

use std::hint::black_box;

use pileus_guest::{
    Cluster, Error, Ingress, Instance, IpMode, LoadBalancers, Owned, ServiceAction, ServiceCall,
    ServiceChange, ServiceProgress,
};

use crate::behaviour::{long, misbehave};
use crate::{Behaviour, Hostile};

/// One more than the host takes.
const MANY: usize = 20_001;

impl LoadBalancers for Hostile {
    async fn list_owned(&self, _: &Cluster) -> Result<Vec<Owned>, Error> {
        let owned = |name: String| Owned { name, ..Owned::default() };
        match self.behaviour {
            Behaviour::HugeAnswer => Ok(vec![owned(long())]),
            Behaviour::ManyOwned => Ok((0..MANY).map(|number| owned(number.to_string())).collect()),
            behaviour => {
                misbehave(behaviour, &self.attempts, Instance::default()).await?;
                Ok(vec![owned("lb-1".to_owned())])
            }
        }
    }

    async fn change_load_balancers(
        &self,
        call: &ServiceCall,
    ) -> Result<Vec<Result<ServiceProgress, Error>>, Error> {
        let mut outcomes = call.one_by_one(async |change| self.change(change).await).await;
        let is_victim = |action: &ServiceAction| match action {
            ServiceAction::Ensure(service)
            | ServiceAction::UpdateTargets(service)
            | ServiceAction::Delete(service) => self.is_called(&service.name),
            ServiceAction::RemoveOrphan(_) => false,
        };
        if self.behaviour == Behaviour::Misaligned && call.changes.iter().any(|it| is_victim(&it.action)) {
            black_box(outcomes.pop());
        }
        Ok(outcomes)
    }
}

impl Hostile {
    async fn change(&self, change: &ServiceChange) -> Result<ServiceProgress, Error> {
        let (service, done) = match &change.action {
            ServiceAction::Ensure(service) | ServiceAction::UpdateTargets(service) => {
                (service, ServiceProgress::done([Ingress::ip("198.51.100.7")]))
            }
            ServiceAction::Delete(service) => (service, ServiceProgress::gone()),
            ServiceAction::RemoveOrphan(_) => return Ok(ServiceProgress::gone()),
        };
        match self.behaviour {
            _ if !self.is_called(&service.name) => Ok(done),
            Behaviour::IpModes => {
                let label = service.labels.iter().find(|(key, _)| key == "ip-mode");
                let ip_mode =
                    label.map(|(_, mode)| if mode == "Proxy" { IpMode::Proxy } else { IpMode::Vip });
                Ok(ServiceProgress::done([Ingress { ip_mode, ..Ingress::ip("198.51.100.7") }]))
            }
            Behaviour::NoAddress => Ok(ServiceProgress::done([Ingress::ip("lb.example")])),
            Behaviour::HugeAnswer => Ok(ServiceProgress::Done {
                status: vec![Ingress::ip("198.51.100.7")],
                warnings: (0..12).map(|_| long()).collect(),
            }),
            behaviour => misbehave(behaviour, &self.attempts, Instance::default()).await.map(|_| done),
        }
    }
}
