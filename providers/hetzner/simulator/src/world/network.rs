//! Networks with subnets and routes. Pure.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::World;
use super::change::{RouteChange, RouteRequest};
use super::label::{self, Labels};
use super::listing::Listed;
use crate::refusal::{Code, Refusal};

/// The most routes of a network.
const MAX_ROUTES: usize = 100;

/// The gateway of the public interface of every server.
const PUBLIC_GATEWAY: Ipv4Addr = Ipv4Addr::new(172, 31, 1, 1);

/// The private ranges of RFC 1918.
const PRIVATE: [Ipv4Net; 3] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),
];

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Route {
    pub(super) destination: Ipv4Net,
    pub(super) gateway: Ipv4Addr,
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subnet {
    /// Its range, a part of the network's.
    pub ip_range: Ipv4Net,
    /// The network zone of its servers and load balancers.
    pub network_zone: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: SubnetType,
}

/// The type of a subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubnetType {
    /// For servers and load balancers.
    Cloud,
    /// For dedicated servers.
    Vswitch,
}

/// A new network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewNetwork {
    /// Its name.
    pub name: String,
    /// Its range.
    pub ip_range: Ipv4Net,
    /// Its subnets.
    #[serde(default)]
    pub subnets: Vec<Subnet>,
    /// Its labels.
    #[serde(default)]
    pub labels: Labels,
}

/// A network.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) id: u64,
    pub(super) name: String,
    labels: Labels,
    created: Duration,
    ip_range: Ipv4Net,
    subnets: Vec<Subnet>,
    pub(super) routes: Vec<Route>,
    /// The addresses of attached servers and load balancers.
    pub(super) used: BTreeSet<Ipv4Addr>,
}

impl Network {
    /// The first free addresses for servers or load balancers of a network zone.
    pub(super) fn free_ips(&self, zone: &str, count: usize) -> Result<Vec<Ipv4Addr>, Refusal> {
        let subnets =
            self.subnets.iter().filter(|it| it.kind == SubnetType::Cloud && it.network_zone == zone);
        let free: Vec<_> = subnets
            .flat_map(|subnet| subnet.ip_range.hosts())
            .filter(|ip| self.is_assignable(*ip))
            .take(count)
            .collect();
        if free.len() < count {
            return Err(Refusal::new(
                Code::NoSubnetAvailable,
                format!("no subnet or IP is available in network {} for network zone {zone}", self.id),
            ));
        }
        Ok(free)
    }

    /// The address for a load balancer that asks for one, or for a subnet.
    pub(super) fn pick_ip(
        &self,
        zone: &str,
        ip: Option<Ipv4Addr>,
        range: Option<Ipv4Net>,
    ) -> Result<Ipv4Addr, Refusal> {
        let unavailable = || Refusal::new(Code::IpNotAvailable, "the provided network IP is not available");
        let none = || Refusal::new(Code::NoSubnetAvailable, "no subnet is available in the network");
        if let Some(range) = range
            && !self.subnets.iter().any(|subnet| subnet.ip_range == range && subnet.network_zone == zone)
        {
            return Err(none());
        }
        if let Some(ip) = ip {
            let fits = self.subnets.iter().any(|subnet| {
                subnet.network_zone == zone
                    && subnet.ip_range.contains(&ip)
                    && range.is_none_or(|range| range == subnet.ip_range)
            });
            return if fits && self.is_assignable(ip) { Ok(ip) } else { Err(unavailable()) };
        }
        match range {
            Some(range) => range.hosts().find(|ip| self.is_assignable(*ip)).ok_or_else(none),
            None => self.free_ips(zone, 1)?.first().copied().ok_or_else(none),
        }
    }

    fn is_assignable(&self, ip: Ipv4Addr) -> bool {
        ip != self.gateway() && ip != PUBLIC_GATEWAY && !self.used.contains(&ip)
    }

    /// The first address of the range, which the cloud itself uses.
    fn gateway(&self) -> Ipv4Addr {
        self.ip_range.hosts().next().unwrap_or_else(|| self.ip_range.network())
    }

    /// Adds or deletes a route.
    pub(super) fn change(&mut self, change: &RouteChange) -> Result<(), Refusal> {
        match change {
            RouteChange::Add(request) => {
                let route = request.parse()?;
                self.check_route(route)?;
                self.routes.push(route);
            }
            RouteChange::Delete(request) => {
                let route = request.parse()?;
                let index = self.routes.iter().position(|known| *known == route);
                let index = index.ok_or_else(|| Refusal::new(Code::NotFound, "route not found"))?;
                self.routes.remove(index);
            }
        }
        Ok(())
    }

    fn check_route(&self, Route { destination, gateway }: Route) -> Result<(), Refusal> {
        let is_default = destination.prefix_len() == 0;
        let overlaps = |other: Ipv4Net| {
            !is_default
                && other.prefix_len() > 0
                && (other.contains(&destination) || destination.contains(&other))
        };
        let invalid = |message: String| Err(Refusal::invalid("destination", message));
        if !is_default && !PRIVATE.iter().any(|range| range.contains(&destination)) {
            return invalid("must be a private range of RFC 1918, or 0.0.0.0/0".to_owned());
        }
        if let Some(subnet) = self.subnets.iter().find(|subnet| overlaps(subnet.ip_range)) {
            return invalid(format!("overlaps with subnet {}", subnet.ip_range));
        }
        if let Some(route) =
            self.routes.iter().find(|it| it.destination == destination || overlaps(it.destination))
        {
            return invalid(format!("overlaps with route {}", route.destination));
        }
        if !is_default && destination.contains(&PUBLIC_GATEWAY) {
            return invalid(format!("overlaps with {PUBLIC_GATEWAY}"));
        }
        let is_vswitch = |it: &&Subnet| it.kind == SubnetType::Vswitch && it.ip_range.contains(&gateway);
        if !self.ip_range.contains(&gateway)
            || gateway == self.gateway()
            || gateway == PUBLIC_GATEWAY
            || self.subnets.iter().find(is_vswitch).is_some()
        {
            return Err(Refusal::invalid(
                "gateway",
                "must be an IP of the network, but neither its first nor one behind a vSwitch",
            ));
        }
        if self.routes.len() >= MAX_ROUTES {
            return Err(Refusal::new(
                Code::ResourceLimitExceeded,
                format!("a network has {MAX_ROUTES} routes at most"),
            ));
        }
        Ok(())
    }

    pub(super) fn view(&self, world: &World) -> Value {
        let Self { id, name, labels, created, ip_range, subnets, routes, used: _ } = self;
        let subnets: Vec<_> = subnets
            .iter()
            .map(|Subnet { ip_range, network_zone, kind }| {
                json!({
                    "type": kind, "ip_range": ip_range, "network_zone": network_zone, "gateway": self.gateway(),
                    "vswitch_id": null,
                })
            })
            .collect();
        let servers: Vec<_> =
            world.servers.values().filter(|it| it.ip_in(*id).is_some()).map(|it| it.id).collect();
        let is_attached = |it: &super::load_balancer::LoadBalancer| {
            it.private.is_some_and(|attachment| attachment.network == *id)
        };
        let load_balancers: Vec<_> =
            world.load_balancers.values().filter(|it| is_attached(it)).map(|it| it.id).collect();
        json!({
            "id": id, "name": name, "labels": labels, "created": world.time(*created), "ip_range": ip_range,
            "subnets": subnets, "routes": routes, "servers": servers, "load_balancers": load_balancers,
            "protection": {"delete": false}, "expose_routes_to_vswitch": false,
        })
    }
}

impl RouteRequest {
    pub(super) fn parse(&self) -> Result<Route, Refusal> {
        let Self { destination, gateway } = self;
        let destination: Ipv4Net = destination
            .parse()
            .ok()
            .filter(|net: &Ipv4Net| net.addr() == net.network())
            .ok_or_else(|| Refusal::invalid("destination", "must be an IPv4 CIDR without host bits"))?;
        let gateway = gateway.parse().map_err(|_| Refusal::invalid("gateway", "must be an IPv4 address"))?;
        Ok(Route { destination, gateway })
    }
}

impl World {
    /// Creates a network. Returns its ID.
    pub fn create_network(&mut self, now: Duration, new: NewNetwork) -> Result<u64, Refusal> {
        self.advance(now);
        let NewNetwork { name, ip_range, subnets, labels } = new;
        label::check(&labels)?;
        let is_outside = |subnet: &&Subnet| !ip_range.contains(&subnet.ip_range);
        if let Some(subnet) = subnets.iter().find(is_outside) {
            return Err(Refusal::invalid("subnets", format!("{} is not in {ip_range}", subnet.ip_range)));
        }
        if self.networks.values().any(|network| network.name == name) {
            return Err(Refusal::new(Code::UniquenessError, "network name is already used"));
        }
        let id = self.next_id();
        let created = self.now;
        let (routes, used) = (Vec::new(), BTreeSet::new());
        let network = Network { id, name, labels, created, ip_range, subnets, routes, used };
        self.networks.insert(id, network);
        Ok(id)
    }

    /// Deletes a network, and detaches what is attached to it.
    pub fn delete_network(&mut self, now: Duration, id: u64) -> Result<(), Refusal> {
        self.advance(now);
        self.networks.remove(&id).ok_or_else(|| Refusal::not_found("network", id))?;
        for server in self.servers.values_mut() {
            server.private.retain(|attachment| attachment.network != id);
        }
        for load_balancer in self.load_balancers.values_mut() {
            load_balancer.private = load_balancer.private.filter(|attachment| attachment.network != id);
        }
        Ok(())
    }
}

impl Listed for Network {
    const FILTERS: &'static [&'static str] = &["name", "label_selector"];
    const SORTS: &'static [&'static str] = &["id", "name", "created"];

    fn id(&self) -> u64 {
        self.id
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn labels(&self) -> Option<&Labels> {
        Some(&self.labels)
    }
}
