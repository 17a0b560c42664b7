//! A cloud with one load balancer a Service: operations take time and fail late, and what others made is there as well.

use std::collections::BTreeMap;
use std::time::Duration;

use pileus_cloud::{
    Error as CloudError, ErrorKind, Ingress, IngressPoint, IpMode, LocalEndpoints, Owned, Service,
    ServiceAction, ServiceProgress, Target,
};
use tokio::time::Instant;

use super::chance::Chance;

pub(super) const CLUSTER: &str = "our cluster";

/// What is wanted of a load balancer, apart from its targets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wish(Service);

impl Wish {
    pub(super) fn of(service: &Service) -> Self {
        Self(Service { status: Vec::new(), endpoints: Vec::new(), ..service.clone() })
    }
}

pub(super) type Behind = (Vec<Target>, Vec<LocalEndpoints>);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoadBalancer {
    pub(super) cluster: Option<String>,
    pub(super) service: Option<String>,
    pub(super) wish: Option<Wish>,
    pub(super) behind: Behind,
    pub(super) address: Vec<Ingress>,
    operation: Option<Operation>,
    has_failed: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Operation {
    ends: Instant,
    /// What is there then; none where it is being removed.
    then: Option<(Option<Wish>, Behind)>,
    fails: bool,
}

#[derive(Debug, Default)]
pub(super) struct Cloud {
    pub(super) there: BTreeMap<String, LoadBalancer>,
    pub(super) writes: usize,
    made: u8,
}

impl Cloud {
    /// Something that nobody here has made.
    pub(super) fn add(&mut self, name: &str, cluster: Option<&str>, service: Option<&str>) {
        let stranger = LoadBalancer {
            cluster: cluster.map(str::to_owned),
            service: service.map(str::to_owned),
            wish: None,
            behind: Behind::default(),
            address: Vec::new(),
            operation: None,
            has_failed: false,
        };
        self.there.insert(name.to_owned(), stranger);
    }

    /// What has come to its end by now.
    pub(super) fn passes(&mut self, now: Instant) {
        self.there.retain(|_, there| {
            let Some(operation) = there.operation.take_if(|operation| operation.ends <= now) else {
                return true;
            };
            there.has_failed = operation.fails;
            match operation.then {
                _ if operation.fails => true,
                None => false,
                Some((wish, behind)) => {
                    (there.wish, there.behind) = (wish, behind);
                    true
                }
            }
        });
    }

    pub(super) fn owned(&self) -> Vec<Owned> {
        let owned = |(name, there): (&String, &LoadBalancer)| Owned {
            cluster_uid: there.cluster.clone(),
            service_uid: there.service.clone(),
            service: None,
            name: name.clone(),
            extra: Vec::new(),
        };
        self.there.iter().map(owned).collect()
    }

    /// Does what is asked, as a good provider would.
    pub(super) fn change(
        &mut self,
        action: &ServiceAction,
        targets: &[Target],
        (chance, faults): (&mut Chance, bool),
        now: Instant,
    ) -> Result<ServiceProgress, CloudError> {
        self.passes(now);
        let (name, wanted) = match action {
            ServiceAction::Ensure(service) => {
                let name = name(&service.uid);
                if !self.there.contains_key(&name) {
                    self.add(&name, Some(CLUSTER), Some(&service.uid));
                    self.made = self.made.wrapping_add(1);
                    let ip = IngressPoint::Ip(format!("192.0.2.{}", self.made));
                    let ip_mode = chance.percent(50).then_some(IpMode::Vip);
                    self.there.get_mut(&name).unwrap().address =
                        vec![Ingress { point: ip, ip_mode, ports: Vec::new() }];
                }
                let behind = (targets.to_vec(), service.endpoints.clone());
                (name, Some((Some(Wish::of(service)), behind)))
            }
            ServiceAction::UpdateTargets(service) => {
                let name = name(&service.uid);
                let Some(there) = self.there.get(&name) else {
                    return Err(CloudError::new(ErrorKind::Conflict, "there is none"));
                };
                // This one does no more than it is told.
                (name, Some((there.wish.clone(), (targets.to_vec(), service.endpoints.clone()))))
            }
            ServiceAction::Delete(service) => (name(&service.uid), None),
            ServiceAction::RemoveOrphan(owned) => (owned.name.clone(), None),
        };
        let Some(there) = self.there.get_mut(&name) else {
            return Ok(ServiceProgress::Done { status: Vec::new(), warnings: Vec::new() });
        };
        if let Some(operation) = &there.operation {
            let after = operation.ends.duration_since(now).min(Duration::from_secs(1));
            return Ok(ServiceProgress::Under { after, resume: Some("an operation".to_owned()) });
        }
        if let Some((wish, behind)) = &wanted
            && !there.has_failed
            && (wish, behind) == (&there.wish, &there.behind)
        {
            return Ok(ServiceProgress::Done { status: there.address.clone(), warnings: Vec::new() });
        }
        self.writes += 1;
        let takes = Duration::from_millis(if chance.percent(40) { 0 } else { chance.below(9000) });
        let fails = faults && chance.percent(10);
        there.operation = Some(Operation { ends: now + takes, then: wanted, fails });
        if takes.is_zero() && !fails {
            let address = there.address.clone();
            self.passes(now);
            let status = if self.there.contains_key(&name) { address } else { Vec::new() };
            return Ok(ServiceProgress::Done { status, warnings: Vec::new() });
        }
        Ok(ServiceProgress::Under { after: takes.min(Duration::from_secs(1)), resume: None })
    }
}

pub(super) fn name(uid: &str) -> String {
    format!("lb-{uid}")
}
