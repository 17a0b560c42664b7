//! The requests that begin actions, as the API has them. Unknown fields are refused: an ignored field makes a test
//! meaningless. Pure.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::{Reference, ResourceType};
use super::target::TargetRequest;
use crate::refusal::Refusal;

/// A change of a load balancer.
#[derive(Clone, Debug)]
pub(super) enum Change {
    AddService(Value),
    UpdateService(Value),
    DeleteService(ListenPort),
    AddTarget(TargetRequest),
    RemoveTarget(TargetRequest),
    Algorithm(Algorithm),
    Type(TypeRequest),
    AttachToNetwork(AttachRequest),
    DetachFromNetwork(DetachRequest),
    EnablePublicInterface,
    DisablePublicInterface,
    DnsPointer(PointerRequest),
    Protection(Protection),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListenPort {
    pub(super) listen_port: u16,
}

/// How a load balancer chooses a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Algorithm {
    #[serde(rename = "type")]
    pub(super) kind: AlgorithmType,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AlgorithmType {
    #[default]
    RoundRobin,
    LeastConnections,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TypeRequest {
    pub(super) load_balancer_type: Value,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttachRequest {
    pub(super) network: u64,
    #[serde(default)]
    pub(super) ip: Option<Ipv4Addr>,
    #[serde(default)]
    pub(super) ip_range: Option<Ipv4Net>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DetachRequest {
    pub(super) network: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PointerRequest {
    pub(super) ip: IpAddr,
    #[serde(default)]
    pub(super) dns_ptr: Option<String>,
}

/// The protection of a load balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Protection {
    pub(super) delete: bool,
}

impl Change {
    /// Parses the body of `POST /load_balancers/{id}/actions/{command}`.
    pub(super) fn parse(command: &str, body: &[u8]) -> Result<Self, Refusal> {
        Ok(match command {
            "add_service" => Self::AddService(object(body)?),
            "update_service" => Self::UpdateService(object(body)?),
            "delete_service" => Self::DeleteService(serde_json::from_slice(body)?),
            "add_target" => Self::AddTarget(serde_json::from_slice(body)?),
            "remove_target" => Self::RemoveTarget(serde_json::from_slice(body)?),
            "change_algorithm" => Self::Algorithm(serde_json::from_slice(body)?),
            "change_type" => Self::Type(serde_json::from_slice(body)?),
            "attach_to_network" => Self::AttachToNetwork(serde_json::from_slice(body)?),
            "detach_from_network" => Self::DetachFromNetwork(serde_json::from_slice(body)?),
            "enable_public_interface" => Self::EnablePublicInterface,
            "disable_public_interface" => Self::DisablePublicInterface,
            "change_dns_ptr" => Self::DnsPointer(serde_json::from_slice(body)?),
            "change_protection" => Self::Protection(serde_json::from_slice(body)?),
            _ => return Err(unknown(command)),
        })
    }

    /// What it concerns besides the load balancer.
    pub(super) fn also_concerns(&self) -> Option<Reference> {
        match self {
            Self::AddTarget(request) | Self::RemoveTarget(request) => {
                request.server().map(|id| (ResourceType::Server, id))
            }
            Self::AttachToNetwork(AttachRequest { network, .. })
            | Self::DetachFromNetwork(DetachRequest { network }) => Some((ResourceType::Network, *network)),
            _ => None,
        }
    }
}

/// A change of the routes of a network.
#[derive(Clone, Debug)]
pub(super) enum RouteChange {
    Add(RouteRequest),
    Delete(RouteRequest),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteRequest {
    pub(super) destination: String,
    pub(super) gateway: String,
}

impl RouteChange {
    /// Parses the body of `POST /networks/{id}/actions/{command}`.
    pub(super) fn parse(command: &str, body: &[u8]) -> Result<Self, Refusal> {
        Ok(match command {
            "add_route" => Self::Add(serde_json::from_slice(body)?),
            "delete_route" => Self::Delete(serde_json::from_slice(body)?),
            _ => return Err(unknown(command)),
        })
    }
}

/// A body whose fields are read later.
fn object(body: &[u8]) -> Result<Value, Refusal> {
    let value: Value = serde_json::from_slice(body)?;
    if value.is_object() { Ok(value) } else { Err(Refusal::invalid("body", "is not an object")) }
}

fn unknown(command: &str) -> Refusal {
    Refusal::not_found("action", command)
}
