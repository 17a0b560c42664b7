//! The project with all its resources, and what each request does to them: a pure state machine. Time is an argument, counted
//! from the start of the cloud.

mod action;
mod call;
mod catalog;
mod certificate;
mod change;
mod creation;
mod label;
mod listing;
mod load_balancer;
mod network;
mod read;
mod server;
mod service;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::Ipv6Net;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::action::{Action, Pending, Status};
pub use self::action::{Reference, ResourceType};
use self::certificate::Certificate;
pub use self::certificate::{CertificateType, NewCertificate};
pub use self::label::Labels;
use self::load_balancer::LoadBalancer;
use self::network::Network;
pub use self::network::{NewNetwork, Subnet, SubnetType};
pub use self::read::Collection;
use self::server::Server;
pub use self::server::{NewServers, ServerChanges, ServerStatus};
use crate::refusal::{Code, Refusal};

/// The number before the first ID.
const BEFORE_FIRST_ID: u64 = 1_000_000;

/// How many actions are kept.
const MAX_ACTIONS: usize = 10_000;

/// What the cloud allows the project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Project {
    /// The most load balancers. Unlimited where it is missing.
    pub max_load_balancers: Option<usize>,
    /// The addresses of dedicated servers of the project's owner, which may be targets.
    pub dedicated_ips: BTreeSet<IpAddr>,
}

/// The project.
#[derive(Clone, Debug)]
pub struct World {
    started_at: Timestamp,
    /// The latest time of any call: time never goes back.
    now: Duration,
    last_id: u64,
    /// How many public addresses were given to servers and load balancers. Addresses are never reused.
    addresses: u32,
    servers: BTreeMap<u64, Server>,
    networks: BTreeMap<u64, Network>,
    load_balancers: BTreeMap<u64, LoadBalancer>,
    certificates: BTreeMap<u64, Certificate>,
    actions: BTreeMap<u64, Action>,
    /// The running actions, in the order in which they end.
    running: BTreeSet<(Duration, u64)>,
    project: Project,
}

impl World {
    /// An empty project of a cloud that starts at `started_at`.
    pub fn new(started_at: Timestamp) -> Self {
        Self {
            started_at,
            now: Duration::ZERO,
            last_id: BEFORE_FIRST_ID,
            addresses: 0,
            servers: BTreeMap::new(),
            networks: BTreeMap::new(),
            load_balancers: BTreeMap::new(),
            certificates: BTreeMap::new(),
            actions: BTreeMap::new(),
            running: BTreeSet::new(),
            project: Project::default(),
        }
    }

    /// What the cloud allows the project.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// Changes what the cloud allows the project. Existing resources stay.
    pub fn set_project(&mut self, project: Project) {
        self.project = project;
    }

    /// A point in time as the API shows it.
    fn time(&self, at: Duration) -> String {
        (self.started_at + at).to_string()
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The next address of 198.18.0.0/15, which is reserved for such purposes.
    fn next_ipv4(&mut self) -> Ipv4Addr {
        self.addresses += 1;
        Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + self.addresses)
    }

    /// The next address of 2001:db8::/32, which is reserved for documentation.
    fn next_ipv6(&mut self) -> Ipv6Addr {
        self.addresses += 1;
        let net = u128::from(self.addresses) << 64;
        Ipv6Addr::from_bits(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).to_bits() + net)
    }

    fn next_ipv6_net(&mut self) -> Ipv6Net {
        let address = self.next_ipv6();
        Ipv6Net::new(address, 64).map_or_else(|_| Ipv6Net::from(address), |net| net.trunc())
    }

    fn network(&self, id: u64) -> Result<&Network, Refusal> {
        self.networks.get(&id).ok_or_else(|| Refusal::not_found("network", id))
    }

    fn network_mut(&mut self, id: u64) -> Result<&mut Network, Refusal> {
        self.networks.get_mut(&id).ok_or_else(|| Refusal::not_found("network", id))
    }

    /// Whether an address belongs to a server or load balancer of the project.
    fn is_own(&self, ip: IpAddr) -> bool {
        let is_of_server = self.servers.values().any(|server| match ip {
            IpAddr::V4(ip) => server.ipv4 == Some(ip) || server.private.iter().any(|it| it.ip == ip),
            IpAddr::V6(ip) => server.ipv6.is_some_and(|net| net.contains(&ip)),
        });
        let is_of_balancer = |it: &LoadBalancer| {
            IpAddr::from(it.ipv4) == ip
                || IpAddr::from(it.ipv6) == ip
                || it.private.is_some_and(|attachment| IpAddr::from(attachment.ip) == ip)
        };
        is_of_server || self.load_balancers.values().any(is_of_balancer)
    }

    /// The load balancers that name a server as a target.
    fn load_balancers_with(&self, server: u64) -> Vec<u64> {
        let has = |it: &&LoadBalancer| it.targets.iter().any(|target| target.is_server(server));
        self.load_balancers.values().filter(has).map(|it| it.id).collect()
    }

    /// Advances the time: actions end when they are due.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while let Some((due, id)) = self.running.first().copied().filter(|(due, _)| *due <= self.now) {
            self.running.remove(&(due, id));
            self.finish(id);
        }
        while self.actions.len() > MAX_ACTIONS
            && self.actions.first_key_value().is_some_and(|(_, action)| !action.is_running())
        {
            self.actions.pop_first();
        }
    }

    /// Refuses a change of a resource that an action is changing.
    fn check_unlocked(&self, resource: Reference, code: Code) -> Result<(), Refusal> {
        let is_locked =
            |(_, id): &(Duration, u64)| self.actions.get(id).is_some_and(|action| action.locks(resource));
        if self.running.iter().any(is_locked) {
            return Err(Refusal::new(code, "the resource is locked: another action is running"));
        }
        Ok(())
    }

    /// Ends an action: makes its change, or fails.
    fn finish(&mut self, id: u64) {
        let Some(action) = self.actions.get(&id).cloned() else { return };
        let Status::Running { pending, fails } = action.status else { return };
        let target = action.resources.first().map_or(0, |(_, target)| *target);
        let done = match pending {
            Pending::Create if fails => {
                self.remove_load_balancer(target);
                Ok(())
            }
            Pending::Create => Ok(()),
            _ if fails => Ok(()),
            Pending::Change(change) => self.change_load_balancer(target, &change),
            Pending::Route(change) => self.network_mut(target).and_then(|network| network.change(&change)),
        };
        let status = match done {
            Ok(()) if fails => {
                Status::Error { code: "action_failed".to_owned(), message: "Action failed".to_owned() }
            }
            Ok(()) => Status::Success,
            // What the change needs has gone away meanwhile.
            Err(refusal) => {
                let code = serde_json::to_value(refusal.code).unwrap_or_default();
                let code = code.as_str().unwrap_or("action_failed").to_owned();
                Status::Error { code, message: refusal.message }
            }
        };
        if let Some(action) = self.actions.get_mut(&id) {
            action.status = status;
        }
    }
}

#[cfg(test)]
mod tests;
