//! New load balancers, which come with all their parts in one request. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use serde_json::Value;

use super::World;
use super::catalog::{self, LOCATIONS, Location};
use super::change::{Algorithm, AttachRequest, Change, Protection};
use super::label::{self, Labels};
use super::load_balancer::{LoadBalancer, check_name, load_balancer_type};
use super::target::TargetRequest;
use crate::refusal::Refusal;

/// The body of `POST /load_balancers`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLoadBalancer {
    pub(super) name: String,
    load_balancer_type: Value,
    #[serde(default)]
    algorithm: Algorithm,
    #[serde(default)]
    location: Option<Value>,
    #[serde(default)]
    network_zone: Option<String>,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    services: Vec<Value>,
    #[serde(default)]
    targets: Vec<TargetRequest>,
    #[serde(default)]
    network: Option<u64>,
    #[serde(default)]
    public_interface: Option<bool>,
}

impl NewLoadBalancer {
    /// The load balancer, with an ID and addresses that are given. `world` doesn't have it yet.
    pub(super) fn build(
        &self,
        world: &World,
        id: u64,
        ipv4: Ipv4Addr,
        ipv6: Ipv6Addr,
    ) -> Result<LoadBalancer, Refusal> {
        check_name(&self.name)?;
        label::check(&self.labels)?;
        let mut balancer = LoadBalancer {
            id,
            name: self.name.clone(),
            labels: self.labels.clone(),
            created: world.now,
            location: self.place()?,
            kind: load_balancer_type(&self.load_balancer_type)?,
            algorithm: self.algorithm.clone(),
            services: Vec::new(),
            targets: Vec::new(),
            is_public: true,
            ipv4,
            ipv6,
            pointers: [None, None],
            private: None,
            protection: Protection::default(),
        };
        if let Some(network) = self.network {
            let attach = AttachRequest { network, ip: None, ip_range: None };
            balancer.apply(world, &Change::AttachToNetwork(attach))?;
        }
        if self.public_interface == Some(false) {
            balancer.apply(world, &Change::DisablePublicInterface)?;
        }
        for service in &self.services {
            balancer.apply(world, &Change::AddService(service.clone()))?;
        }
        for target in &self.targets {
            balancer.apply(world, &Change::AddTarget(target.clone()))?;
        }
        Ok(balancer)
    }

    fn place(&self) -> Result<&'static Location, Refusal> {
        match (&self.location, &self.network_zone) {
            (Some(location), None) => catalog::named(&LOCATIONS, location)
                .ok_or_else(|| Refusal::invalid("location", "unknown location")),
            (None, Some(zone)) => LOCATIONS
                .iter()
                .find(|location| location.network_zone == zone)
                .ok_or_else(|| Refusal::invalid("network_zone", "unknown network zone")),
            _ => Err(Refusal::invalid("location", "needs exactly one of location and network_zone")),
        }
    }
}
