//! The machine that a node manager runs on, by its metadata service. All values there are texts; a missing one is empty.

use std::time::Duration;

use pileus_guest::http::{self, BaseUrl, Response, StatusCode};
use pileus_guest::{
    Address, AddressKind, Error, Instance, InstanceState, LocalAnswer, LocalInstance, NodeReference,
};
use serde::Deserialize;

use crate::Azure;
use crate::machine::provider_id::MachineId;
use crate::machine::{INTERCONNECT, zone};

/// The Node label with the part of a fault domain.
pub(crate) const SUB_FAULT_DOMAIN: &str = "topology.kubernetes.azure.com/sub-fault-domain";

/// When to ask again while the service doesn't know the machine. It allows five requests a second.
const AGAIN: Duration = Duration::from_secs(5);

/// What the service says about the machine.
#[derive(Deserialize)]
struct Metadata {
    compute: Compute,
    #[serde(default)]
    network: Network,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Compute {
    location: String,
    name: String,
    os_profile: OsProfile,
    platform_fault_domain: String,
    platform_sub_fault_domain: String,
    resource_id: String,
    tags_list: Vec<Tag>,
    vm_id: String,
    vm_size: String,
    zone: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OsProfile {
    computer_name: String,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
    value: String,
}

#[derive(Default, Deserialize)]
struct Network {
    #[serde(default)]
    interface: Vec<Interface>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Interface {
    ipv4: Family,
    ipv6: Family,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Family {
    ip_address: Vec<IpAddress>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct IpAddress {
    private_ip_address: String,
    public_ip_address: String,
}

/// What the service says about the load balancer that the machine is behind.
#[derive(Deserialize)]
struct LoadBalancer {
    loadbalancer: Frontends,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frontends {
    #[serde(default)]
    public_ip_addresses: Vec<Frontend>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Frontend {
    frontend_ip_address: String,
    private_ip_address: String,
}

impl LocalInstance for Azure {
    async fn describe_local_instance(&self, node: &NodeReference) -> Result<LocalAnswer, Error> {
        let missing = "a node manager needs useInstanceMetadata in the configuration";
        let service = self.metadata.as_ref().ok_or_else(|| Error::invalid(missing))?;
        let response = read(service, "instance", "2021-10-01").await?;
        if matches!(response.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(LocalAnswer::Pending(AGAIN));
        }
        let Metadata { compute, network } = response.json()?;
        let Some(id) = MachineId::of(&compute.resource_id) else { return Ok(LocalAnswer::Pending(AGAIN)) };
        compute.check(node)?;
        self.check_subscription(&id, node)?;
        let Some(interface) = choose(&network.interface, node) else {
            return Ok(LocalAnswer::Pending(AGAIN));
        };
        let families = [&interface.ipv4, &interface.ipv6].map(|family| family.ip_address.first());
        let is_private = families.iter().flatten().all(|ip| ip.public_ip_address.is_empty());
        let frontends = if is_private { frontends(service).await } else { Vec::new() };
        let addresses = addresses(&node.name, families, &frontends);
        if addresses.len() < 2 {
            return Ok(LocalAnswer::Pending(AGAIN));
        }
        Ok(LocalAnswer::Found(Instance {
            provider_id: id.provider_id(),
            instance_type: text(&compute.vm_size),
            zone: zone::zone(
                &compute.location,
                std::slice::from_ref(&compute.zone),
                compute.platform_fault_domain.parse().ok(),
            ),
            region: text(&zone::region(&compute.location)),
            addresses,
            labels: compute.labels(),
            state: InstanceState::Running,
            ..Instance::default()
        }))
    }
}

impl Azure {
    /// Refuses a machine of another subscription than the cluster's for a Node without a provider ID, which would get that machine's
    /// for good. Without `subscriptionId` any is right.
    fn check_subscription(&self, id: &MachineId, node: &NodeReference) -> Result<(), Error> {
        let found = &id.group.subscription;
        if node.provider_id.is_some()
            || self.subscription.is_empty()
            || self.subscription.eq_ignore_ascii_case(found)
        {
            return Ok(());
        }
        Err(Error::broken(format!(
            "the metadata service describes a machine of subscription {found}, but the machines are in {}; correct subscriptionId",
            self.subscription
        )))
    }
}

impl Compute {
    /// Refuses an answer about another machine than the Node's. The SDK compares the provider ID, once the Node has one.
    fn check(&self, node: &NodeReference) -> Result<(), Error> {
        let is_other = match &node.system_uuid {
            Some(uuid) if !self.vm_id.is_empty() => !is_same_uuid(uuid, &self.vm_id),
            _ => {
                let name = &self.os_profile.computer_name;
                !name.is_empty() && !name.eq_ignore_ascii_case(&node.name)
            }
        };
        if is_other {
            let Self { name, vm_id, .. } = self;
            return Err(Error::broken(format!(
                "the metadata service describes machine {name} ({vm_id}), which isn't that of node {}",
                node.name
            )));
        }
        Ok(())
    }

    fn labels(&self) -> Vec<(String, String)> {
        let (label, tag) = INTERCONNECT;
        let domain =
            text(&self.platform_sub_fault_domain).map(|domain| (SUB_FAULT_DOMAIN.to_owned(), domain));
        let joined = self.tags_list.iter().find(|it| it.name.eq_ignore_ascii_case(tag));
        let joined = joined.map(|tag| (label.to_owned(), tag.value.clone()));
        domain.into_iter().chain(joined).collect()
    }
}

/// Reads from the service. The host attaches the header that it wants.
async fn read(service: &BaseUrl, what: &str, version: &str) -> Result<Response, Error> {
    let request = http::get(service.join(["metadata", what]));
    request.query("format", "json").query("api-version", version).send().await
}

/// The public addresses of load balancers before the machine. None if it is behind none, or if the service doesn't say.
async fn frontends(service: &BaseUrl) -> Vec<Frontend> {
    let answer = read(service, "loadbalancer", "2020-10-01").await;
    let answer = answer.and_then(Response::json::<LoadBalancer>);
    answer.map(|answer| answer.loadbalancer.public_ip_addresses).unwrap_or_default()
}

/// The interface of the Node: the one that has an address that the kubelet names, because their order means nothing.
fn choose<'a>(interfaces: &'a [Interface], node: &NodeReference) -> Option<&'a Interface> {
    let internal = node.addresses.iter().filter(|it| it.kind == AddressKind::InternalIp).map(|it| &it.value);
    let named: Vec<_> = node.node_ips.iter().chain(internal).collect();
    let has = |interface: &&Interface| {
        let all = interface.ipv4.ip_address.iter().chain(&interface.ipv6.ip_address);
        let mut ips = all.map(|ip| &ip.private_ip_address);
        ips.any(|ip| named.iter().any(|named| named.eq_ignore_ascii_case(ip)))
    };
    interfaces.iter().find(has).or(interfaces.first())
}

/// In the order of cloud-node-manager: the host name, then IPv4, then IPv6.
fn addresses(name: &str, families: [Option<&IpAddress>; 2], frontends: &[Frontend]) -> Vec<Address> {
    let mut all = vec![Address::new(AddressKind::Hostname, name)];
    for IpAddress { private_ip_address: private, public_ip_address: public } in families.into_iter().flatten()
    {
        let before = frontends.iter().find(|frontend| bare(&frontend.private_ip_address) == private);
        let public = text(public).or_else(|| text(bare(&before?.frontend_ip_address)));
        all.extend(text(private).map(|ip| Address::new(AddressKind::InternalIp, ip)));
        all.extend(public.map(|ip| Address::new(AddressKind::ExternalIp, ip)));
    }
    all
}

/// The service has IPv6 addresses of load balancers in brackets.
fn bare(address: &str) -> &str {
    address.trim_start_matches('[').trim_end_matches(']')
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether two UUIDs are the same, also if the firmware's has the bytes of its first three groups swapped.
fn is_same_uuid(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
    one == other || swapped(&one).is_some_and(|one| one == other)
}

fn swapped(uuid: &str) -> Option<String> {
    let mut groups: Vec<String> = uuid.split('-').map(str::to_owned).collect();
    for group in groups.get_mut(..3)? {
        let bytes: Option<Vec<_>> = (0..group.len()).step_by(2).map(|at| group.get(at..at + 2)).collect();
        *group = bytes?.into_iter().rev().collect();
    }
    Some(groups.join("-"))
}

#[cfg(test)]
mod tests;
