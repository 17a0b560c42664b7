//! A simulated cloud with one load balancer a Service. Operations take time and fail late, reads show earlier states, a
//! write whose answer was lost takes effect late, and there are load balancers of other owners.

use std::collections::BTreeMap;
use std::time::Duration;

use pileus_cloud::{
    Error as CloudError, ErrorKind, Ingress, IngressPoint, IpMode, LocalEndpoints, OwnedLoadBalancer,
    Service, ServiceAction, ServiceProgress, Target,
};
use tokio::time::Instant;

use super::chance::Chance;

pub(super) const CLUSTER: &str = "our cluster";

/// How long a read may show an earlier state, and how long a write may take whose answer was lost.
const LAG: Duration = Duration::from_secs(25);
const LATE: Duration = Duration::from_secs(55);

/// The desired spec of a load balancer, without targets and what the provider sets itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DesiredSpec(Service);

impl DesiredSpec {
    pub(super) fn of(service: &Service) -> Self {
        Self(Service {
            status: Vec::new(),
            endpoints: Vec::new(),
            annotations: Vec::new(),
            ..service.clone()
        })
    }
}

pub(super) type Behind = (Vec<Target>, Vec<LocalEndpoints>);

type CallLimits = (Option<DesiredSpec>, Behind);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoadBalancer {
    pub(super) cluster: Option<String>,
    pub(super) service: Option<String>,
    pub(super) shape: CallLimits,
    pub(super) address: Vec<Ingress>,
    /// Its earlier shapes, and until when a read may show each.
    former: Vec<(CallLimits, Instant)>,
    operation: Option<Operation>,
    has_failed: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Operation {
    ends: Instant,
    /// The shape after that; none where it is being removed.
    then: Option<CallLimits>,
    fails: bool,
    /// Whether no read shows it. Another write waits for it nevertheless.
    is_hidden: bool,
    /// How long reads show the former shape.
    lag: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Cloud {
    pub(super) there: BTreeMap<String, LoadBalancer>,
    /// Removed load balancers, and until when a read may show each.
    ghosts: BTreeMap<String, (LoadBalancer, Instant)>,
    pub(super) writes: usize,
    made: u8,
}

impl Cloud {
    /// Adds a load balancer of another owner.
    pub(super) fn add(&mut self, name: &str, cluster: Option<&str>, service: Option<&str>) {
        let foreign = LoadBalancer {
            cluster: cluster.map(str::to_owned),
            service: service.map(str::to_owned),
            shape: CallLimits::default(),
            address: Vec::new(),
            former: Vec::new(),
            operation: None,
            has_failed: false,
        };
        self.there.insert(name.to_owned(), foreign);
    }

    /// Completes the operations that end by now.
    pub(super) fn advance(&mut self, now: Instant) {
        let ghosts = &mut self.ghosts;
        ghosts.retain(|_, (_, until)| *until > now);
        self.there.retain(|name, there| {
            let Some(operation) = there.operation.take_if(|operation| operation.ends <= now) else {
                return true;
            };
            let until = operation.ends + operation.lag;
            there.has_failed = operation.fails;
            match operation.then {
                _ if operation.fails => true,
                None => {
                    ghosts.insert(name.clone(), (there.clone(), until));
                    false
                }
                Some(shape) => {
                    there.former.retain(|(_, until)| *until > now);
                    there.former.push((std::mem::replace(&mut there.shape, shape), until));
                    true
                }
            }
        });
    }

    /// Lets all reads show the present state from now on.
    pub(super) fn catches_up(&mut self, now: Instant) {
        for operation in self.there.values_mut().filter_map(|there| there.operation.as_mut()) {
            operation.lag = Duration::ZERO;
            if operation.is_hidden {
                operation.ends = now;
            }
        }
        self.advance(now);
        self.ghosts.clear();
        self.there.values_mut().for_each(|there| there.former.clear());
    }

    pub(super) fn owned(&self) -> Vec<OwnedLoadBalancer> {
        let owned = |(name, there): (&String, &LoadBalancer)| OwnedLoadBalancer {
            cluster_uid: there.cluster.clone(),
            service_uid: there.service.clone(),
            service: None,
            name: name.clone(),
            extra: Vec::new(),
        };
        self.there.iter().map(owned).collect()
    }

    /// Makes a change, as a correct provider does that knows only what it reads.
    pub(super) fn change(
        &mut self,
        action: &ServiceAction,
        targets: &[Target],
        (chance, faults): (&mut Chance, bool),
        now: Instant,
    ) -> Result<ServiceProgress, CloudError> {
        self.advance(now);
        let done = |status| Ok(ServiceProgress::done(status));
        let (name, wanted) = match action {
            ServiceAction::Ensure(service) => {
                let name = name(&service.uid);
                let shape = (Some(DesiredSpec::of(service)), (targets.to_vec(), service.endpoints.clone()));
                match self.ghosts.get(&name) {
                    Some((ghost, _)) if ghost.shape == shape && chance.percent(50) => {
                        return done(ghost.address.clone());
                    }
                    _ => self.make(&name, service, chance),
                }
                (name, Some(shape))
            }
            ServiceAction::UpdateTargets(service) => {
                let name = name(&service.uid);
                let Some(there) = self.there.get(&name) else {
                    return Err(CloudError::new(ErrorKind::Conflict(None), "no such load balancer"));
                };
                // This provider changes nothing else.
                (name, Some((there.shape.0.clone(), (targets.to_vec(), service.endpoints.clone()))))
            }
            ServiceAction::Delete(service) => (name(&service.uid), None),
            ServiceAction::RemoveOrphan(owned) => (owned.name.clone(), None),
        };
        let Some(there) = self.there.get_mut(&name) else { return done(Vec::new()) };
        let then = match wanted {
            None => None,
            Some(wanted) => match there.shape_to_write(wanted, chance, now) {
                Some(then) => Some(then),
                None => return done(there.address.clone()),
            },
        };
        if let Some(operation) = &there.operation {
            let after = operation.ends.duration_since(now).min(Duration::from_secs(1));
            return Ok(there.goes_on(&name, after, Some("an operation".to_owned()), chance));
        }
        self.writes += 1;
        let is_hidden = faults && chance.percent(10);
        let takes = Duration::from_millis(match chance.below(10) {
            _ if is_hidden => chance.below(u64::try_from(LATE.as_millis()).unwrap()),
            0..4 => 0,
            _ => chance.below(9000),
        });
        let fails = faults && chance.percent(10);
        there.operation = Some(Operation { ends: now + takes, then, fails, is_hidden, lag: LAG });
        if is_hidden {
            return Err(CloudError::new(ErrorKind::Unavailable(None), "the answer is lost"));
        }
        if takes.is_zero() && !fails {
            let address = there.address.clone();
            self.advance(now);
            return done(if self.there.contains_key(&name) { address } else { Vec::new() });
        }
        Ok(there.goes_on(&name, takes.min(Duration::from_secs(1)), None, chance))
    }

    fn make(&mut self, name: &str, service: &Service, chance: &mut Chance) {
        if self.there.contains_key(name) {
            return;
        }
        self.add(name, Some(CLUSTER), Some(&service.uid));
        self.made = self.made.wrapping_add(1);
        let point = IngressPoint::Ip(format!("192.0.2.{}", self.made));
        let ip_mode = chance.percent(50).then_some(IpMode::Vip);
        let address = vec![Ingress { point, ip_mode, ports: Vec::new() }];
        self.there.get_mut(name).unwrap().address = address;
    }
}

impl LoadBalancer {
    /// A change that goes on, perhaps with the address that works already, and the annotation that tells its name.
    fn goes_on(
        &self,
        name: &str,
        after: Duration,
        resume: Option<String>,
        chance: &mut Chance,
    ) -> ServiceProgress {
        let id = ("model.example/id".to_owned(), Some(name.to_owned()));
        ServiceProgress::InProgress {
            after,
            resume,
            status: chance.percent(50).then(|| self.address.clone()),
            notices: Vec::new(),
            annotations: chance.percent(50).then_some(id).into_iter().collect(),
        }
    }

    /// The shape after a write of only those parts that a read shows to differ; none where no part differs.
    fn shape_to_write(&self, wanted: CallLimits, chance: &mut Chance, now: Instant) -> Option<CallLimits> {
        let is_seen = self.operation.as_ref().is_some_and(|operation| !operation.is_hidden);
        if is_seen || self.has_failed {
            return Some(wanted);
        }
        let shown = self.former.iter().filter(|(_, until)| *until > now).map(|(shape, _)| shape);
        let shown: Vec<_> = shown.collect();
        let former = if chance.percent(50) { chance.pick(&shown) } else { None };
        let (wish, behind) = former.unwrap_or(&self.shape);
        if (wish, behind) == (&wanted.0, &wanted.1) {
            return None;
        }
        let is_wish_kept = *wish == wanted.0;
        let is_behind_kept = *behind == wanted.1;
        Some((
            if is_wish_kept { self.shape.0.clone() } else { wanted.0 },
            if is_behind_kept { self.shape.1.clone() } else { wanted.1 },
        ))
    }
}

pub(super) fn name(uid: &str) -> String {
    format!("lb-{uid}")
}
