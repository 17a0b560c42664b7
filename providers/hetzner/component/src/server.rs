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

#[cfg(test)]
mod tests {
    use pileus_guest::ErrorKind;
    use pileus_guest::testing::{Exchange, Host, get};
    use serde_json::{Value, json};

    use super::*;

    const SERVERS: &str = "http://cloud.test/v1/servers";

    fn cloud(more: &Value) -> Host {
        let mut document = json!({"endpoint": "http://cloud.test/v1", "network": 7});
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Host::new().configuration(document)
    }

    fn server(id: u64, change: &Value) -> Value {
        let mut server = json!({
            "id": id, "name": format!("node-{id}"), "status": "running", "server_type": {"id": 1, "name": "cx23"},
            "location": {"id": 1, "name": "fsn1", "network_zone": "eu-central"},
            "public_net": {"ipv4": {"ip": "203.0.113.1"}, "ipv6": {"ip": "2001:db8:0:1::/64"}},
            "private_net": [{"network": 8, "ip": "10.1.0.2"}, {"network": 7, "ip": "10.0.0.2"}],
        });
        server.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        server
    }

    fn by_id(id: u64, change: &Value) -> Exchange {
        get(format!("{SERVERS}/{id}")).json(json!({"server": server(id, change)}))
    }

    fn page(query: &str, servers: &[Value], next: Option<u64>) -> Exchange {
        let meta = json!({"pagination": {"page": 1, "next_page": next}});
        get(format!("{SERVERS}?per_page=50{query}")).json(json!({"servers": servers, "meta": meta}))
    }

    fn known(id: &str) -> NodeReference {
        NodeReference::new("node").with_provider_id(id)
    }

    fn look_up(host: &Host, node: &NodeReference) -> Result<Answer, ErrorKind> {
        let answers = host.lookup::<Hetzner>(Purpose::Confirm, std::slice::from_ref(node)).unwrap();
        answers.into_iter().next().unwrap().map_err(|error| error.kind)
    }

    fn found(answer: Result<Answer, ErrorKind>) -> Instance {
        let Ok(Answer::Found(instance)) = answer else { panic!("{answer:?}") };
        instance
    }

    #[test]
    fn a_server_is_the_instance_that_the_former_controller_described() {
        let instance =
            found(look_up(&cloud(&json!({})).exchange(by_id(1, &json!({}))), &known("hcloud://1")));
        let expected = Instance {
            provider_id: "hcloud://1".to_owned(),
            instance_type: Some("cx23".to_owned()),
            zone: Some("fsn1-dc14".to_owned()),
            region: Some("fsn1".to_owned()),
            addresses: vec![
                Address::new(AddressKind::Hostname, "node-1"),
                Address::new(AddressKind::ExternalIp, "203.0.113.1"),
                Address::new(AddressKind::InternalIp, "10.0.0.2"),
            ],
            labels: vec![("instance.hetzner.cloud/provided-by".to_owned(), "cloud".to_owned())],
            state: InstanceState::Running,
            ..Instance::default()
        };
        assert_eq!(instance, expected);
    }

    #[test]
    fn addresses_follow_the_configuration_and_the_server() {
        let private = json!({"public_net": {"ipv4": null, "ipv6": null}});
        let rows = [
            (json!({"addressFamily": "ipv6"}), json!({}), vec!["2001:db8:0:1::1", "10.0.0.2"]),
            (
                json!({"addressFamily": "dualstack"}),
                json!({}),
                vec!["203.0.113.1", "2001:db8:0:1::1", "10.0.0.2"],
            ),
            (json!({"addressFamily": "dualstack"}), private, vec!["10.0.0.2"]),
            (json!({"network": 9}), json!({}), vec!["203.0.113.1"]),
            (json!({"network": null}), json!({}), vec!["203.0.113.1"]),
        ];
        for (configuration, change, expected) in rows {
            let host = cloud(&configuration).exchange(by_id(1, &change));
            let addresses = found(look_up(&host, &known("hcloud://1"))).addresses;
            let values: Vec<_> = addresses[1..].iter().map(|address| &*address.value).collect();
            assert_eq!(values, expected, "{configuration} {change}");
        }
        let zone = |configuration: &Value, location: &str| {
            let change = json!({"location": {"name": location}});
            found(look_up(&cloud(configuration).exchange(by_id(1, &change)), &known("hcloud://1"))).zone
        };
        assert_eq!(zone(&json!({}), "ash").as_deref(), Some("ash-dc1"));
        assert_eq!(zone(&json!({}), "muc1").as_deref(), Some("muc1"));
        assert_eq!(zone(&json!({"zoneLabel": false}), "ash"), None);
    }

    #[test]
    fn a_failed_lookup_is_never_absent() {
        let gone = get(format!("{SERVERS}/1")).status(404).json(json!({"error": {"code": "not_found"}}));
        let failed = |status: u16| Some(get(format!("{SERVERS}/1")).status(status));
        let node = NodeReference::new("node-1");
        let rows = [
            (known("hcloud://1"), Some(gone), Ok(Answer::Absent)),
            (known("hcloud://1"), failed(401), Err(ErrorKind::Denied)),
            (known("hcloud://1"), failed(503), Err(ErrorKind::Unavailable(None))),
            (known("hcloud://one"), None, Err(ErrorKind::Invalid)),
            (node.clone(), Some(page("&name=node-1", &[], None)), Ok(Answer::Absent)),
            (node, Some(page("&name=node-1", &[], None).status(404)), Err(ErrorKind::Broken)),
            (known("hrobot://5"), None, Ok(Answer::Unmanaged(Stance::Released))),
            (known("hcloud://bm-5"), None, Ok(Answer::Unmanaged(Stance::Released))),
        ];
        for (node, exchange, expected) in rows {
            let host = exchange.into_iter().fold(cloud(&json!({})), Host::exchange);
            assert_eq!(look_up(&host, &node), expected, "{node:?}");
        }
    }

    #[test]
    fn states_are_those_of_the_cloud() {
        let rows = [
            ("off", InstanceState::Stopped),
            ("starting", InstanceState::Running),
            ("rebuilding", InstanceState::Unknown),
            ("new in tomorrow's API", InstanceState::Unknown),
        ];
        for (status, expected) in rows {
            let host = cloud(&json!({})).exchange(by_id(1, &json!({"status": status})));
            assert_eq!(found(look_up(&host, &known("hcloud://1"))).state, expected, "{status}");
        }
    }

    #[test]
    fn many_nodes_are_found_in_a_list_of_all_pages_and_dedicated_ones_are_not_missed() {
        let nodes = [
            known("hcloud://1"),
            known("hcloud://2"),
            known("hrobot://2"),
            known("hcloud://4"),
            NodeReference::new("node-2"),
        ];
        let host = cloud(&json!({"network": "nodes"}))
            .exchange(
                get("http://cloud.test/v1/networks?per_page=50&name=nodes")
                    .json(json!({"networks": [{"id": 7}]})),
            )
            .exchange(page("", &[server(1, &json!({}))], Some(2)))
            .exchange(page("&page=2", &[server(2, &json!({}))], None));
        let answers = host.lookup::<Hetzner>(Purpose::Refresh, &nodes).unwrap();
        let id = |answer: &Result<Answer, Error>| match answer {
            Ok(Answer::Found(instance)) => instance.provider_id.clone(),
            other => format!("{other:?}"),
        };
        let ids: Vec<_> = answers.iter().map(id).collect();
        assert_eq!(ids, ["hcloud://1", "hcloud://2", "Ok(Unmanaged(Released))", "Ok(Absent)", "hcloud://2"]);
    }

    #[test]
    fn an_unknown_network_is_an_error_of_all_nodes() {
        let none = get("http://cloud.test/v1/networks?per_page=50&name=nodes").json(json!({"networks": []}));
        let host = cloud(&json!({"network": "nodes"})).exchange(none.times(2));
        let nodes = ["a", "b", "c", "d"].map(NodeReference::new);
        let answers = host.lookup::<Hetzner>(Purpose::Refresh, &nodes).unwrap();
        assert!(
            answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Invalid)),
            "{answers:?}"
        );
        assert_eq!(look_up(&host, &known("hcloud://1")), Err(ErrorKind::Invalid));
    }
}
