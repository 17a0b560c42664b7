//! A simulated API server: Services, a watch that lags, and users who change anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pileus_cloud::{Ingress, IngressPoint, IpMode, TrafficPolicy};

use super::chance::Chance;
use crate::error::Error;
use crate::facts::service::ServiceFacts;
use crate::model::{PROVIDER, uid};
use crate::service::ownership::Demand;
use crate::service::scope::ServiceScope;
use crate::service::work::Write;
use crate::well_known::FINALIZER_LOAD_BALANCER;

pub(super) const CLASSES: [&str; 1] = ["ours.example/class"];

#[derive(Debug, Clone)]
pub(super) enum News {
    Present(Arc<ServiceFacts>),
    Gone(String),
}

impl News {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Present(facts) => facts.key(),
            Self::Gone(name) => name.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Api {
    /// What is served now.
    pub(super) scope: ServiceScope,
    pub(super) services: BTreeMap<String, ServiceFacts>,
    /// The news that the watch hasn't delivered yet.
    pub(super) news: Vec<News>,
    /// All news since the start.
    log: Vec<News>,
    version: u64,
    /// The UIDs that were ever wanted, that were ever not, and that ever had a finalizer which counts as ours.
    pub(super) wanted: BTreeSet<String>,
    pub(super) unwanted: BTreeSet<String>,
    pub(super) left: BTreeSet<String>,
    pub(super) writes: usize,
}

impl Api {
    /// Sets what is served from now on.
    pub(super) fn serves(&mut self, scope: &ServiceScope) {
        self.scope = scope.clone();
        for facts in self.services.values().cloned().collect::<Vec<_>>() {
            self.note(&facts);
        }
    }

    /// A list of all Services as they were this many changes ago. The watch delivers the changes since.
    pub(super) fn list(&mut self, ago: u64) -> Vec<Arc<ServiceFacts>> {
        let mut old = self.log.clone();
        let new = old.split_off(old.len().saturating_sub(usize::try_from(ago).unwrap()));
        self.news.clone_from(&new);
        let mut listed = BTreeMap::new();
        for news in &old {
            match news {
                News::Present(facts) => drop(listed.insert(facts.key(), Arc::clone(facts))),
                News::Gone(name) => drop(listed.remove(name)),
            }
        }
        let listed: Vec<_> = listed.into_values().collect();
        // By the present scope.
        for facts in &listed {
            self.note(facts);
        }
        for news in new {
            if let News::Present(facts) = news {
                self.note(&facts);
            }
        }
        listed
    }

    fn note(&mut self, facts: &ServiceFacts) {
        let uid = &facts.service.uid;
        let of = if Demand::of(facts, &self.scope) == Demand::Ours {
            &mut self.wanted
        } else {
            &mut self.unwanted
        };
        of.insert(uid.clone());
        if facts.has_finalizer() && !self.scope.is_marked_by_other(facts) && !self.scope.is_of_other(facts) {
            self.left.insert(uid.clone());
        }
    }

    /// Stores an object, or removes it with its last finalizer.
    fn store(&mut self, mut facts: ServiceFacts) -> Arc<ServiceFacts> {
        self.version += 1;
        facts.resource_version = self.version.to_string();
        let (name, uid) = (facts.key(), facts.service.uid.clone());
        self.note(&facts);
        let stored = Arc::new(facts);
        let news = if stored.is_deleting && stored.finalizers.is_empty() {
            self.services.remove(&name);
            self.unwanted.insert(uid);
            News::Gone(name)
        } else {
            self.services.insert(name, (*stored).clone());
            News::Present(Arc::clone(&stored))
        };
        self.news.push(news.clone());
        self.log.push(news);
        stored
    }

    /// Performs a write.
    pub(super) fn write(&mut self, facts: &ServiceFacts, write: &Write) -> Result<Arc<ServiceFacts>, Error> {
        let Some(there) = self.services.get(&facts.key()) else { return Err(Error::Gone) };
        if there.service.uid != facts.service.uid {
            return Err(Error::Gone);
        }
        let mut changed = there.clone();
        match write {
            Write::AddFinalizer(_) if there.is_deleting && !there.has_finalizer() => {
                return Err(Error::Refused("no new finalizers can be added".to_owned()));
            }
            Write::AddFinalizer(mark) => {
                changed.mark = mark.clone().or(changed.mark);
                if !there.has_finalizer() {
                    changed.finalizers.push(FINALIZER_LOAD_BALANCER.to_owned());
                }
            }
            Write::SetStatus(status) => {
                changed.service.status.clone_from(status);
                for ingress in &mut changed.service.status {
                    ingress.ip_mode = ingress.ip_mode.or(Some(IpMode::Vip));
                }
            }
            Write::SetAnnotations(annotations) => {
                for (key, value) in annotations {
                    let facts = &mut changed;
                    facts.written_annotations.remove(key);
                    facts.written_annotations.extend(value.clone().map(|value| (key.clone(), value)));
                }
                changed.service.annotations = changed.written_annotations.clone().into_iter().collect();
            }
            Write::Finish | Write::Release => {
                changed.finalizers.retain(|finalizer| finalizer != FINALIZER_LOAD_BALANCER);
                changed.mark = None;
                if *write == Write::Finish {
                    changed.service.status.clear();
                }
            }
        }
        if changed == *there {
            return Ok(Arc::new(changed));
        }
        self.writes += 1;
        Ok(self.store(changed))
    }

    /// Lets a user change something.
    pub(super) fn user(&mut self, number: u64, chance: &mut Chance) {
        let name = format!("default/s{number}");
        let Some(there) = self.services.get(&name) else { return self.create(&name, chance) };
        let mut facts = there.clone();
        match chance.below(14) {
            // An operator moves it, to another provider or to this one.
            11 if facts.mark.is_some() => {
                facts.mark = chance.pick(&["other", PROVIDER]).map(str::to_owned);
            }
            10 if facts.service.policy == TrafficPolicy::Cluster => {
                facts.service.policy = TrafficPolicy::Local(32000);
            }
            10 => facts.service.policy = TrafficPolicy::Cluster,
            0 => facts.service.ports[0].port = u16::try_from(80 + chance.below(3)).unwrap(),
            1 => facts.service.labels = vec![("color".to_owned(), chance.below(3).to_string())],
            2 | 3 => flip(&mut facts, chance),
            4 => facts.finalizers.retain(|finalizer| finalizer != FINALIZER_LOAD_BALANCER),
            5 => facts.service.status.clear(),
            6 => {
                let point = IngressPoint::Ip("203.0.113.9".to_owned());
                facts.service.status = vec![Ingress { point, ip_mode: Some(IpMode::Vip), ports: Vec::new() }];
            }
            7 if facts.problems.is_empty() => facts.problems = vec!["an invalid CIDR".to_owned()],
            7 | 8 => facts.problems.clear(),
            9 => facts.local_endpoints = [(format!("n{}", chance.below(4)), 1)].into(),
            _ => {
                facts.is_deleting = true;
                if chance.percent(20) {
                    facts.finalizers.retain(|finalizer| finalizer != FINALIZER_LOAD_BALANCER);
                }
                if chance.percent(50) {
                    facts.finalizers.retain(|finalizer| finalizer == FINALIZER_LOAD_BALANCER);
                }
            }
        }
        if facts != *there {
            self.store(facts);
        }
    }

    fn create(&mut self, name: &str, chance: &mut Chance) {
        let uid = uid(&self.version.to_string());
        let mut facts = ServiceFacts::balanced(name.strip_prefix("default/").unwrap());
        facts.service.uid = uid;
        for _ in 0..chance.below(3) {
            flip(&mut facts, chance);
        }
        if chance.percent(20) {
            facts.finalizers.push("other.example/finalizer".to_owned());
        }
        // Another controller may use the same finalizer.
        if self.scope.is_of_other(&facts) && chance.percent(50) {
            facts.finalizers.push(FINALIZER_LOAD_BALANCER.to_owned());
        }
        // Another provider has made its load balancer, or the manifest is a copy.
        if chance.percent(10) {
            facts.mark = Some("other".to_owned());
        }
        self.store(facts);
    }
}

/// Changes the type, or the class by way of another type, which a watch may skip.
fn flip(facts: &mut ServiceFacts, chance: &mut Chance) {
    facts.is_load_balancer = chance.percent(60);
    facts.service.class = match chance.below(4) {
        _ if !facts.is_load_balancer => None,
        0 => Some("foreign.example/class".to_owned()),
        1 => Some(CLASSES[0].to_owned()),
        _ => None,
    };
}
