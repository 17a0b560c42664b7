//! Load balancers, and what each action does to them. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::World;
use super::catalog::{self, LOAD_BALANCER_TYPES, LoadBalancerType, Location};
use super::change::{Algorithm, AttachRequest, Change, PointerRequest, Protection};
use super::label::Labels;
use super::listing::Listed;
use super::server::Attachment;
use super::service::Service;
use super::target::Target;
use crate::refusal::{Code, Refusal};

/// A load balancer.
#[derive(Clone, Debug)]
pub(super) struct LoadBalancer {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) created: Duration,
    pub(super) location: &'static Location,
    pub(super) kind: &'static LoadBalancerType,
    pub(super) algorithm: Algorithm,
    pub(super) services: Vec<Service>,
    pub(super) targets: Vec<Target>,
    pub(super) is_public: bool,
    pub(super) ipv4: Ipv4Addr,
    pub(super) ipv6: Ipv6Addr,
    /// The reverse DNS names of both addresses, where they differ from the default.
    pub(super) pointers: [Option<String>; 2],
    pub(super) private: Option<Attachment>,
    pub(super) protection: Protection,
}

/// The body of `PUT /load_balancers/{id}`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LoadBalancerUpdate {
    pub(super) name: Option<String>,
    pub(super) labels: Option<Labels>,
}

/// The reverse DNS name that an address has by default.
pub(super) fn pointer(ip: Ipv4Addr) -> String {
    let [a, b, c, d] = ip.octets();
    format!("static.{d}.{c}.{b}.{a}.clients.your-server.de")
}

/// Checks the syntax of a name.
pub(super) fn check_name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.chars().count() > 128 || name.trim() != name {
        return Err(Refusal::invalid("name", "must have 1 to 128 characters, without space at its ends"));
    }
    Ok(())
}

/// The type of this ID or name.
pub(super) fn load_balancer_type(id_or_name: &Value) -> Result<&'static LoadBalancerType, Refusal> {
    catalog::named(&LOAD_BALANCER_TYPES, id_or_name)
        .ok_or_else(|| Refusal::invalid("load_balancer_type", "unknown load balancer type"))
}

impl LoadBalancer {
    /// Makes a change, or refuses it and leaves the load balancer in a state that must be dropped.
    pub(super) fn apply(&mut self, world: &World, change: &Change) -> Result<(), Refusal> {
        match change {
            Change::AddService(request) => self.add_service(world, request),
            Change::UpdateService(request) => self.update_service(world, request),
            Change::DeleteService(port) => {
                let index = self.service_at(port.listen_port)?;
                self.services.remove(index);
                Ok(())
            }
            Change::AddTarget(request) => {
                let target = request.target()?;
                target.check(self, world)?;
                self.targets.push(target);
                Ok(())
            }
            Change::RemoveTarget(request) => {
                let key = request.target()?.key;
                let index = self.targets.iter().position(|target| target.key == key);
                let index = index.ok_or_else(|| Refusal::new(Code::NotFound, "target not found"))?;
                self.targets.remove(index);
                Ok(())
            }
            Change::Algorithm(algorithm) => {
                self.algorithm = algorithm.clone();
                Ok(())
            }
            Change::Type(request) => {
                self.kind = load_balancer_type(&request.load_balancer_type)?;
                self.check_limits(Code::InvalidLoadBalancerType)
            }
            Change::AttachToNetwork(request) => self.attach(world, request),
            Change::DetachFromNetwork(request) => match self.private {
                Some(attachment) if attachment.network == request.network => {
                    self.private = None;
                    Ok(())
                }
                _ => Err(not_attached()),
            },
            Change::EnablePublicInterface => {
                self.is_public = true;
                Ok(())
            }
            Change::DisablePublicInterface => self.disable_public_interface(),
            Change::DnsPointer(request) => self.point(request),
            Change::Protection(protection) => {
                self.protection = *protection;
                Ok(())
            }
        }
    }

    fn add_service(&mut self, world: &World, request: &Value) -> Result<(), Refusal> {
        let service = Service::added(request)?;
        self.check_ports(&service, None)?;
        self.services.push(service);
        self.check_certificates(world)?;
        self.check_limits(Code::ResourceLimitExceeded)
    }

    fn update_service(&mut self, world: &World, request: &Value) -> Result<(), Refusal> {
        let index = self.service_at(Service::port_of(request)?)?;
        let Some(service) = self.services.get(index).cloned() else { return Ok(()) };
        let service = service.updated(request)?;
        // The API has another status for this code when a service is updated.
        self.check_ports(&service, Some(index)).map_err(|refusal| Refusal { status: 422, ..refusal })?;
        if let Some(place) = self.services.get_mut(index) {
            *place = service;
        }
        self.check_certificates(world)?;
        self.check_limits(Code::ResourceLimitExceeded)
    }

    fn service_at(&self, port: u16) -> Result<usize, Refusal> {
        let index = self.services.iter().position(|service| service.listen_port == port);
        index.ok_or_else(|| Refusal::new(Code::NotFound, format!("no service with listen_port {port}")))
    }

    fn check_ports(&self, service: &Service, own: Option<usize>) -> Result<(), Refusal> {
        let others = self.services.iter().enumerate().filter(|(index, _)| Some(*index) != own);
        let taken: BTreeSet<_> = others.flat_map(|(_, other)| other.source_ports()).collect();
        match service.source_ports().find(|port| taken.contains(port)) {
            Some(port) => Err(Refusal::new(
                Code::SourcePortAlreadyUsed,
                format!("source port {port} is already in use"),
            )),
            None => Ok(()),
        }
    }

    fn check_certificates(&self, world: &World) -> Result<(), Refusal> {
        match self.certificates().iter().find(|id| !world.certificates.contains_key(id)) {
            Some(id) => Err(Refusal::not_found("certificate", id)),
            None => Ok(()),
        }
    }

    fn check_limits(&self, code: Code) -> Result<(), Refusal> {
        let kind = self.kind;
        for (what, count, most) in [
            ("services", self.services.len(), kind.max_services),
            ("targets", self.targets.len(), kind.max_targets),
            ("certificates", self.certificates().len(), kind.max_assigned_certificates),
        ] {
            if count > most {
                let message = format!("load balancer type {} has {most} {what} at most", kind.name);
                return Err(Refusal::new(code, message));
            }
        }
        Ok(())
    }

    fn attach(&mut self, world: &World, request: &AttachRequest) -> Result<(), Refusal> {
        let AttachRequest { network, ip, ip_range } = request;
        let free = world.network(*network)?;
        if self.private.is_some() {
            return Err(Refusal::new(
                Code::LoadBalancerAlreadyAttached,
                "the load balancer is already attached to a network",
            ));
        }
        let ip = free.pick_ip(self.location.network_zone, *ip, *ip_range)?;
        self.private = Some(Attachment { network: *network, ip });
        Ok(())
    }

    fn disable_public_interface(&mut self) -> Result<(), Refusal> {
        if self.private.is_none() {
            return Err(not_attached());
        }
        if self.targets.iter().any(|target| !target.use_private_ip) {
            return Err(Refusal::new(
                Code::TargetsWithoutUsePrivateIp,
                "the load balancer has targets that use the public IP",
            ));
        }
        self.is_public = false;
        Ok(())
    }

    fn point(&mut self, PointerRequest { ip, dns_ptr }: &PointerRequest) -> Result<(), Refusal> {
        let [ipv4, ipv6] = &mut self.pointers;
        let pointer = match ip {
            IpAddr::V4(ip) if *ip == self.ipv4 => ipv4,
            IpAddr::V6(ip) if *ip == self.ipv6 => ipv6,
            _ => return Err(Refusal::invalid("ip", "is not an IP of the load balancer")),
        };
        pointer.clone_from(dns_ptr);
        Ok(())
    }

    /// The certificates of all services.
    pub(super) fn certificates(&self) -> BTreeSet<u64> {
        let http = self.services.iter().filter_map(|service| service.http.as_ref());
        http.flat_map(|http| http.certificates.iter().copied()).collect()
    }

    pub(super) fn view(&self, world: &World) -> Value {
        let [ipv4, ipv6] = &self.pointers;
        let private: Vec<_> =
            self.private.iter().map(|it| json!({"network": it.network, "ip": it.ip})).collect();
        let targets: Vec<_> = self.targets.iter().map(|target| target.view(self, world)).collect();
        json!({
            "id": self.id, "name": self.name, "labels": self.labels, "created": world.time(self.created),
            "public_net": {
                "enabled": self.is_public,
                "ipv4": {"ip": self.ipv4, "dns_ptr": ipv4.clone().unwrap_or_else(|| pointer(self.ipv4))},
                "ipv6": {"ip": self.ipv6, "dns_ptr": ipv6},
            },
            "private_net": private, "location": self.location.view(), "load_balancer_type": self.kind.view(),
            "algorithm": self.algorithm, "services": self.services, "targets": targets,
            "protection": self.protection, "included_traffic": 0, "ingoing_traffic": 0, "outgoing_traffic": 0,
        })
    }
}

fn not_attached() -> Refusal {
    Refusal::new(Code::LoadBalancerNotAttachedToNetwork, "the load balancer is not attached to the network")
}

impl Listed for LoadBalancer {
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
