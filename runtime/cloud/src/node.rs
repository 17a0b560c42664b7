//! A Node, as a provider sees it.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::{Address, ProviderId};

/// The facts by which a provider finds the instance of a Node. The Node object, its other labels and its annotations stay
/// with the controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReference {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.providerID`, if the Node has one.
    pub provider_id: Option<ProviderId>,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// `status.addresses`, in the Node's order.
    pub addresses: Vec<Address>,
    /// The addresses that the kubelet's `--node-ip` asks for: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    /// The Node labels whose keys the provider named.
    pub labels: Vec<(String, String)>,
    /// `status.nodeInfo.systemUUID`, as the kubelet wrote it.
    pub system_uuid: Option<String>,
}
