//! Servers. Clients only read them; an operator creates and changes them over the admin API. Pure.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::World;
use super::catalog::{self, LOCATIONS, Location, SERVER_TYPES, ServerType};
use super::label::{self, Labels};
use super::listing::Listed;
use crate::refusal::{Code, Refusal};

/// The most servers of one request.
const MAX_BATCH: u32 = 10_000;

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the API documents its states")]
pub enum ServerStatus {
    Running,
    Initializing,
    Starting,
    Stopping,
    Off,
    Deleting,
    Migrating,
    Rebuilding,
    Unknown,
}

/// A place in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) network: u64,
    pub(super) ip: Ipv4Addr,
}

/// A server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) labels: Labels,
    created: Duration,
    pub(super) status: ServerStatus,
    pub(super) location: &'static Location,
    kind: &'static ServerType,
    pub(super) ipv4: Option<Ipv4Addr>,
    pub(super) ipv6: Option<Ipv6Net>,
    pub(super) private: Vec<Attachment>,
}

/// New servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewServers {
    /// How many; not used where there are names.
    pub count: u32,
    /// The beginning of their names, which end with the first free numbers.
    pub prefix: String,
    /// Their names.
    pub names: Vec<String>,
    /// The network that they are attached to.
    pub network: Option<u64>,
    /// Their labels.
    pub labels: Labels,
    /// Their location, by name or ID.
    pub location: Value,
    /// Their type, by name or ID.
    pub server_type: Value,
    /// Whether they have a public IPv4 address.
    pub public_ipv4: bool,
    /// Whether they have a public IPv6 network.
    pub public_ipv6: bool,
}

impl Default for NewServers {
    fn default() -> Self {
        Self {
            count: 1,
            prefix: "node-".to_owned(),
            names: Vec::new(),
            network: None,
            labels: Labels::new(),
            location: "fsn1".into(),
            server_type: "cx23".into(),
            public_ipv4: true,
            public_ipv6: true,
        }
    }
}

/// Changes of a server. A missing field keeps its value.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerChanges {
    /// Its name.
    pub name: Option<String>,
    /// Its labels, as a whole.
    pub labels: Option<Labels>,
    /// Its state: `off` stops it.
    pub status: Option<ServerStatus>,
    /// A network that it is attached to as well.
    pub network: Option<u64>,
}

impl Server {
    pub(super) fn ip_in(&self, network: u64) -> Option<Ipv4Addr> {
        self.private.iter().find(|it| it.network == network).map(|it| it.ip)
    }

    pub(super) fn view(&self, world: &World) -> Value {
        let Self { id, name, labels, created, status, location, kind, ipv4, ipv6, private } = self;
        let ipv4 = ipv4.map(
            |ip| json!({"id": id, "ip": ip, "blocked": false, "dns_ptr": super::load_balancer::pointer(ip)}),
        );
        let ipv6 = ipv6.map(|net| json!({"id": id, "ip": net, "blocked": false, "dns_ptr": []}));
        let private: Vec<_> = private
            .iter()
            .map(|Attachment { network, ip }| {
                let [_, b, c, d] = ip.octets();
                let mac = format!("86:00:00:{b:02x}:{c:02x}:{d:02x}");
                json!({"network": network, "ip": ip, "alias_ips": [], "mac_address": mac})
            })
            .collect();
        json!({
            "id": id, "name": name, "labels": labels, "created": world.time(*created), "status": status,
            "public_net": {"ipv4": ipv4, "ipv6": ipv6, "floating_ips": [], "firewalls": []},
            "private_net": private, "server_type": kind.view(), "location": location.view(),
            "datacenter": location.datacenter_view(), "load_balancers": world.load_balancers_with(*id),
            "image": null, "iso": null, "locked": false, "rescue_enabled": false, "volumes": [],
            "backup_window": null, "included_traffic": 0, "ingoing_traffic": 0, "outgoing_traffic": 0,
            "primary_disk_size": 40, "placement_group": null, "protection": {"delete": false, "rebuild": false},
        })
    }
}

impl World {
    /// Creates servers, all or none. Returns their IDs.
    pub fn create_servers(&mut self, now: Duration, new: &NewServers) -> Result<Vec<u64>, Refusal> {
        self.advance(now);
        let location = catalog::named(&LOCATIONS, &new.location)
            .ok_or_else(|| Refusal::invalid("location", "unknown location"))?;
        let kind = catalog::named(&SERVER_TYPES, &new.server_type)
            .ok_or_else(|| Refusal::invalid("server_type", "unknown server type"))?;
        label::check(&new.labels)?;
        let names = if new.names.is_empty() { self.free_names(new)? } else { new.names.clone() };
        for (index, name) in names.iter().enumerate() {
            self.check_server_name(name)?;
            if names.iter().take(index).any(|other| other == name) {
                return Err(Refusal::new(Code::UniquenessError, "server name is already used"));
            }
        }
        let ips = match new.network {
            Some(network) => {
                let ips = self.network(network)?.free_ips(location.network_zone, names.len())?;
                ips.into_iter().map(|ip| Some(Attachment { network, ip })).collect()
            }
            None => vec![None; names.len()],
        };
        let mut created = Vec::new();
        for (name, attachment) in names.into_iter().zip(ips) {
            let id = self.next_id();
            created.push(id);
            let server = Server {
                id,
                name,
                labels: new.labels.clone(),
                created: self.now,
                status: ServerStatus::Running,
                location,
                kind,
                ipv4: new.public_ipv4.then(|| self.next_ipv4()),
                ipv6: new.public_ipv6.then(|| self.next_ipv6_net()),
                private: attachment.into_iter().collect(),
            };
            if let Some(Attachment { network, ip }) = attachment {
                self.network_mut(network)?.used.insert(ip);
            }
            self.servers.insert(id, server);
        }
        Ok(created)
    }

    /// Changes a server as its owner or the cloud would.
    pub fn change_server(&mut self, now: Duration, id: u64, changes: ServerChanges) -> Result<(), Refusal> {
        self.advance(now);
        let ServerChanges { name, labels, status, network } = changes;
        let mut server = self.servers.get(&id).ok_or_else(|| Refusal::not_found("server", id))?.clone();
        if let Some(name) = name.filter(|name| *name != server.name) {
            self.check_server_name(&name)?;
            server.name = name;
        }
        if let Some(labels) = labels {
            label::check(&labels)?;
            server.labels = labels;
        }
        server.status = status.unwrap_or(server.status);
        if let Some(network) = network.filter(|network| server.ip_in(*network).is_none()) {
            let zone = server.location.network_zone;
            let ips = self.network(network)?.free_ips(zone, 1)?;
            for ip in ips {
                self.network_mut(network)?.used.insert(ip);
                server.private.push(Attachment { network, ip });
            }
        }
        self.servers.insert(id, server);
        Ok(())
    }

    /// Deletes a server. Load balancers lose it as a target, as in the cloud.
    pub fn delete_server(&mut self, now: Duration, id: u64) -> Result<(), Refusal> {
        self.advance(now);
        let server = self.servers.remove(&id).ok_or_else(|| Refusal::not_found("server", id))?;
        for Attachment { network, ip } in server.private {
            if let Some(network) = self.networks.get_mut(&network) {
                network.used.remove(&ip);
            }
        }
        for load_balancer in self.load_balancers.values_mut() {
            load_balancer.targets.retain(|target| !target.is_server(id));
        }
        Ok(())
    }

    fn free_names(&self, new: &NewServers) -> Result<Vec<String>, Refusal> {
        if !(1..=MAX_BATCH).contains(&new.count) {
            return Err(Refusal::invalid("count", format!("must be a number from 1 to {MAX_BATCH}")));
        }
        let taken: std::collections::BTreeSet<_> =
            self.servers.values().map(|server| server.name.as_str()).collect();
        let names = (1_u32..).map(|number| format!("{}{number}", new.prefix));
        let count = usize::try_from(new.count).unwrap_or(usize::MAX);
        Ok(names.filter(|name| !taken.contains(name.as_str())).take(count).collect())
    }

    /// Names of servers are host names, and unique in the project.
    fn check_server_name(&self, name: &str) -> Result<(), Refusal> {
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if name.len() > 253 || !name.split('.').all(is_label) {
            return Err(Refusal::invalid("name", format!("'{name}' is not a host name")));
        }
        if self.servers.values().any(|server| server.name == name) {
            return Err(Refusal::new(Code::UniquenessError, "server name is already used"));
        }
        Ok(())
    }
}

impl Listed for Server {
    const FILTERS: &'static [&'static str] = &["name", "label_selector", "status"];
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
    fn status(&self) -> &'static str {
        match self.status {
            ServerStatus::Running => "running",
            ServerStatus::Initializing => "initializing",
            ServerStatus::Starting => "starting",
            ServerStatus::Stopping => "stopping",
            ServerStatus::Off => "off",
            ServerStatus::Deleting => "deleting",
            ServerStatus::Migrating => "migrating",
            ServerStatus::Rebuilding => "rebuilding",
            ServerStatus::Unknown => "unknown",
        }
    }
}
