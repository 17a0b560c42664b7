//! Cloud servers, which are the instances of Nodes. Dedicated servers have no part in this API: their Nodes are released, so
//! that they work in the same cluster without a controller of their own.

use std::net::Ipv6Addr;

use pileus_guest::http::{Collection, NumericId, Source};
use pileus_guest::{
    Address, AddressKind, Answer, Error, Instance, InstanceList, InstanceState, Instances, NodeReference,
    Purpose, Stance,
};
use serde::Deserialize;

use crate::Hetzner;

/// The Node label that says where a server comes from.
const PROVIDED_BY: &str = "instance.hetzner.cloud/provided-by";

/// A cloud server.
#[derive(Deserialize)]
pub(crate) struct Server {
    pub(crate) id: NumericId,
    pub(crate) name: String,
    status: ServerStatus,
    #[serde(rename = "server_type")]
    kind: Named,
    location: Named,
    public_net: PublicNet,
    private_net: Vec<PrivateNet>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServerStatus {
    Initializing,
    Starting,
    Running,
    Off,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct PublicNet {
    ipv4: Option<Ip>,
    /// A network of 64 bits, as in `2001:db8::/64`.
    ipv6: Option<Ip>,
}

#[derive(Deserialize)]
struct Ip {
    ip: String,
}

/// A place in a private network.
#[derive(Deserialize)]
pub(crate) struct PrivateNet {
    pub(crate) network: NumericId,
    pub(crate) ip: String,
}

impl Instances for Hetzner {
    async fn lookup(&self, _: Purpose, node: &NodeReference) -> Result<Answer, Error> {
        let network = self.network_id(Source::Cloud).await?;
        if let Some(id) = &node.provider_id {
            let server = self.servers().read(server_id(id)?).await?;
            return Ok(server.map_or(Answer::Absent, |server| self.answer(server, network)));
        }
        let named = self.servers().list_query("name", &node.name).list_from(Source::Cloud).await;
        self.instance_list(named, network).find_by_name(&node.name)
    }

    async fn list(&self, source: Source) -> Option<InstanceList> {
        Some(match self.network_id(source).await {
            Ok(network) => self.instance_list(self.servers().list_from(source).await, network),
            Err(error) => self.instance_list((Vec::new(), Err(error)), None),
        })
    }

    fn unmanaged(&self, node: &NodeReference) -> Option<Stance> {
        node.provider_id.as_deref().filter(|id| is_dedicated(id)).map(|_| Stance::Released)
    }
}

impl Hetzner {
    pub(crate) fn servers(&self) -> Collection<Server> {
        self.collection("server")
    }

    fn instance_list(
        &self,
        list: (Vec<Server>, Result<(), Error>),
        network: Option<NumericId>,
    ) -> InstanceList {
        InstanceList::new(list, |server| {
            (provider_id(server.id), server.name.clone(), self.answer(server, network))
        })
    }

    fn answer(&self, server: Server, network: Option<NumericId>) -> Answer {
        let state = match server.status {
            ServerStatus::Initializing | ServerStatus::Starting | ServerStatus::Running => {
                InstanceState::Running
            }
            ServerStatus::Off => InstanceState::Stopped,
            ServerStatus::Other => InstanceState::Unknown,
        };
        let addresses = self.addresses(&server, network);
        let location = server.location.name;
        Answer::Found(Instance {
            provider_id: provider_id(server.id),
            instance_type: Some(server.kind.name),
            zone: self.zone_label.then(|| data_center(&location).to_owned()),
            region: Some(location),
            addresses,
            labels: vec![(PROVIDED_BY.to_owned(), "cloud".to_owned())],
            state,
            ..Instance::default()
        })
    }

    fn addresses(&self, server: &Server, network: Option<NumericId>) -> Vec<Address> {
        let PublicNet { ipv4, ipv6 } = &server.public_net;
        let ipv4 = ipv4.as_ref().filter(|_| self.address_family.has_ipv4()).map(|ipv4| ipv4.ip.clone());
        let ipv6 =
            ipv6.as_ref().filter(|_| self.address_family.has_ipv6()).and_then(|net| first_address(&net.ip));
        let private = network.and_then(|network| server.ip_in(network)).map(str::to_owned);
        let hostname = Address::new(AddressKind::Hostname, &server.name);
        let external = [ipv4, ipv6].into_iter().flatten().map(|ip| Address::new(AddressKind::ExternalIp, ip));
        let internal = private.map(|ip| Address::new(AddressKind::InternalIp, ip));
        [hostname].into_iter().chain(external).chain(internal).collect()
    }
}

impl Server {
    /// Its address in a private network.
    pub(crate) fn ip_in(&self, network: NumericId) -> Option<&str> {
        self.private_net.iter().find(|net| net.network == network).map(|net| &*net.ip)
    }
}

/// The first address of a network: the server's own.
fn first_address(network: &str) -> Option<String> {
    let address: Ipv6Addr = network.split('/').next()?.parse().ok()?;
    Some(Ipv6Addr::from_bits(address.to_bits() | 1).to_string())
}

/// The data center that Hetzner used to name for a location.
fn data_center(location: &str) -> &str {
    match location {
        "nbg1" => "nbg1-dc3",
        "hel1" => "hel1-dc2",
        "fsn1" => "fsn1-dc14",
        "ash" => "ash-dc1",
        "hil" => "hil-dc1",
        "sin" => "sin-dc1",
        other => other,
    }
}

/// The provider ID of a server.
pub(crate) fn provider_id(server: NumericId) -> String {
    format!("hcloud://{server}")
}

/// The number of the server in a provider ID.
pub(crate) fn server_id(provider_id: &str) -> Result<NumericId, Error> {
    let id = provider_id.strip_prefix("hcloud://").and_then(|id| id.parse().ok());
    id.ok_or_else(|| Error::invalid_provider_id(provider_id, "hcloud://42"))
}

/// Whether a provider ID is of a dedicated server, in its form of today or in that of an older controller.
pub(crate) fn is_dedicated(provider_id: &str) -> bool {
    provider_id.starts_with("hrobot://") || provider_id.starts_with("hcloud://bm-")
}
