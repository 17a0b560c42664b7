//! Targets of load balancers. Pure.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::World;
use super::label::Selector;
use super::load_balancer::LoadBalancer;
use super::server::{Server, ServerStatus};
use crate::refusal::{Code, Refusal};

/// A target of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) key: TargetKey,
    pub(super) use_private_ip: bool,
}

/// What tells targets of a load balancer apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetKey {
    Server(u64),
    LabelSelector(String),
    Ip(IpAddr),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetRequest {
    #[serde(rename = "type")]
    kind: TargetType,
    #[serde(default)]
    server: Option<ServerRequest>,
    #[serde(default)]
    label_selector: Option<SelectorRequest>,
    #[serde(default)]
    ip: Option<IpRequest>,
    #[serde(default)]
    use_private_ip: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TargetType {
    Server,
    LabelSelector,
    Ip,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerRequest {
    id: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SelectorRequest {
    selector: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IpRequest {
    ip: IpAddr,
}

impl TargetRequest {
    /// The server that it names.
    pub(super) fn server(&self) -> Option<u64> {
        self.server.as_ref().map(|server| server.id)
    }

    /// The target that it means. Exactly the part of its type must be there.
    pub(super) fn target(&self) -> Result<Target, Refusal> {
        let Self { kind, server, label_selector, ip, use_private_ip } = self;
        let key = match (kind, server, label_selector, ip) {
            (TargetType::Server, Some(server), None, None) => TargetKey::Server(server.id),
            (TargetType::LabelSelector, None, Some(SelectorRequest { selector }), None) => {
                if Selector::parse(selector, "label_selector")?.is_empty() {
                    return Err(Refusal::invalid("label_selector", "is empty"));
                }
                TargetKey::LabelSelector(selector.clone())
            }
            (TargetType::Ip, None, None, Some(IpRequest { ip })) => TargetKey::Ip(*ip),
            _ => return Err(Refusal::invalid("type", "needs exactly the field of its name")),
        };
        if *kind == TargetType::Ip && *use_private_ip == Some(true) {
            return Err(Refusal::invalid("use_private_ip", "not available for targets of type ip"));
        }
        Ok(Target { key, use_private_ip: use_private_ip.unwrap_or(false) })
    }
}

impl Target {
    pub(super) fn is_server(&self, id: u64) -> bool {
        self.key == TargetKey::Server(id)
    }

    /// Checks it against the load balancer that gets it, and against the project.
    pub(super) fn check(&self, balancer: &LoadBalancer, world: &World) -> Result<(), Refusal> {
        if balancer.targets.iter().any(|target| target.key == self.key) {
            return Err(Refusal::new(Code::TargetAlreadyDefined, "target is already defined"));
        }
        if balancer.targets.len() >= balancer.kind.max_targets {
            let (name, most) = (balancer.kind.name, balancer.kind.max_targets);
            return Err(Refusal::new(
                Code::ResourceLimitExceeded,
                format!("load balancer type {name} has {most} targets at most"),
            ));
        }
        if self.use_private_ip && balancer.private.is_none() {
            return Err(Refusal::new(
                Code::LoadBalancerNotAttachedToNetwork,
                "the load balancer is not attached to a network",
            ));
        }
        if !self.use_private_ip && !balancer.is_public {
            return Err(Refusal::new(
                Code::LoadBalancerPublicInterfaceDisabled,
                "the public interface of the load balancer is disabled",
            ));
        }
        match &self.key {
            TargetKey::Server(id) => {
                let server = world.servers.get(id).ok_or_else(|| Refusal::not_found("server", id))?;
                self.check_server(server, balancer)
            }
            TargetKey::Ip(ip) if world.is_own(*ip) => Err(Refusal::new(
                Code::CloudResourceIpNotAllowed,
                format!("{ip} belongs to a resource of the cloud"),
            )),
            TargetKey::Ip(ip) if !world.project.dedicated_ips.contains(ip) => {
                Err(Refusal::new(Code::IpNotOwned, format!("{ip} is not owned by the owner of the project")))
            }
            TargetKey::LabelSelector(_) | TargetKey::Ip(_) => Ok(()),
        }
    }

    fn check_server(&self, server: &Server, balancer: &LoadBalancer) -> Result<(), Refusal> {
        let is_in_network = balancer.private.is_some_and(|it| server.ip_in(it.network).is_some());
        if self.use_private_ip && !is_in_network {
            return Err(Refusal::new(
                Code::ServerNotAttachedToNetwork,
                format!("server {} is not attached to the network of the load balancer", server.id),
            ));
        }
        if !self.use_private_ip && server.ipv4.is_none() {
            return Err(Refusal::new(
                Code::MissingIpv4,
                format!("server {} has no public IPv4 address", server.id),
            ));
        }
        Ok(())
    }

    pub(super) fn view(&self, balancer: &LoadBalancer, world: &World) -> Value {
        let Self { key, use_private_ip } = self;
        match key {
            TargetKey::Server(id) => {
                let server = world.servers.get(id);
                server.map_or(Value::Null, |server| self.server_view(server, balancer))
            }
            TargetKey::LabelSelector(selector) => {
                let parsed = Selector::parse(selector, "label_selector");
                let selected = world.servers.values().filter(|server| {
                    parsed.as_ref().is_ok_and(|it| it.matches(&server.labels))
                        && self.check_server(server, balancer).is_ok()
                });
                let targets: Vec<_> = selected.map(|server| self.server_view(server, balancer)).collect();
                json!({
                    "type": "label_selector", "label_selector": {"selector": selector}, "targets": targets,
                    "use_private_ip": use_private_ip,
                })
            }
            TargetKey::Ip(ip) => {
                json!({"type": "ip", "ip": {"ip": ip}, "health_status": health(balancer, true)})
            }
        }
    }

    fn server_view(&self, server: &Server, balancer: &LoadBalancer) -> Value {
        let is_healthy =
            server.status == ServerStatus::Running && self.check_server(server, balancer).is_ok();
        json!({
            "type": "server", "server": {"id": server.id}, "use_private_ip": self.use_private_ip,
            "health_status": health(balancer, is_healthy),
        })
    }
}

fn health(balancer: &LoadBalancer, is_healthy: bool) -> Vec<Value> {
    let status = if is_healthy { "healthy" } else { "unhealthy" };
    let services = balancer.services.iter();
    services.map(|service| json!({"listen_port": service.listen_port, "status": status})).collect()
}
