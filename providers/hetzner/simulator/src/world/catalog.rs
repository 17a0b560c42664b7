//! The tables that are the same for every project: locations and types. Prices are left out. Pure.

use serde_json::{Value, json};

use super::listing::Listed;

/// A location.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) id: u64,
    pub(super) name: &'static str,
    pub(super) network_zone: &'static str,
    country: &'static str,
    city: &'static str,
    datacenter: &'static str,
}

/// A type of server.
#[derive(Debug)]
pub(super) struct ServerType {
    pub(super) id: u64,
    pub(super) name: &'static str,
    cores: u32,
    memory: u32,
    disk: u32,
    architecture: &'static str,
}

/// A type of load balancer with its limits.
#[derive(Debug)]
pub(super) struct LoadBalancerType {
    pub(super) id: u64,
    pub(super) name: &'static str,
    max_connections: u32,
    pub(super) max_services: usize,
    pub(super) max_targets: usize,
    pub(super) max_assigned_certificates: usize,
}

/// All locations.
pub(super) static LOCATIONS: [Location; 6] = [
    location(1, "fsn1", "eu-central", "DE", "Falkenstein", "fsn1-dc14"),
    location(2, "nbg1", "eu-central", "DE", "Nuremberg", "nbg1-dc3"),
    location(3, "hel1", "eu-central", "FI", "Helsinki", "hel1-dc2"),
    location(4, "ash", "us-east", "US", "Ashburn, VA", "ash-dc1"),
    location(5, "hil", "us-west", "US", "Hillsboro, OR", "hil-dc1"),
    location(6, "sin", "ap-southeast", "SG", "Singapore", "sin-dc1"),
];

/// All types of server.
pub(super) static SERVER_TYPES: [ServerType; 4] = [
    server_type(114, "cx23", 2, 4, 40, "x86"),
    server_type(115, "cx33", 4, 8, 80, "x86"),
    server_type(45, "cax11", 2, 4, 40, "arm"),
    server_type(96, "ccx13", 2, 8, 80, "x86"),
];

/// All types of load balancer.
pub(super) static LOAD_BALANCER_TYPES: [LoadBalancerType; 3] = [
    load_balancer_type(1, "lb11", 10_000, [5, 25, 10]),
    load_balancer_type(2, "lb21", 20_000, [15, 75, 25]),
    load_balancer_type(3, "lb31", 40_000, [30, 150, 50]),
];

const fn location(
    id: u64,
    name: &'static str,
    network_zone: &'static str,
    country: &'static str,
    city: &'static str,
    datacenter: &'static str,
) -> Location {
    Location { id, name, network_zone, country, city, datacenter }
}

const fn server_type(
    id: u64,
    name: &'static str,
    cores: u32,
    memory: u32,
    disk: u32,
    architecture: &'static str,
) -> ServerType {
    ServerType { id, name, cores, memory, disk, architecture }
}

const fn load_balancer_type(
    id: u64,
    name: &'static str,
    max_connections: u32,
    [max_services, max_targets, max_assigned_certificates]: [usize; 3],
) -> LoadBalancerType {
    LoadBalancerType { id, name, max_connections, max_services, max_targets, max_assigned_certificates }
}

/// The entry of a table with this ID or name.
pub(super) fn named<T: Listed>(table: &'static [T], id_or_name: &Value) -> Option<&'static T> {
    table.iter().find(|row| {
        id_or_name.as_u64() == Some(row.id())
            || id_or_name.as_str().is_some_and(|text| text == row.name() || text == row.id().to_string())
    })
}

impl Location {
    pub(super) fn view(&self) -> Value {
        let Self { id, name, network_zone, country, city, datacenter: _ } = self;
        json!({
            "id": id, "name": name, "description": city, "country": country, "city": city, "latitude": 0.0,
            "longitude": 0.0, "network_zone": network_zone,
        })
    }

    /// The data center of its servers. The API has deprecated data centers, but clients still read them.
    pub(super) fn datacenter_view(&self) -> Value {
        json!({
            "id": self.id, "name": self.datacenter, "description": self.datacenter, "location": self.view(),
        })
    }
}

impl ServerType {
    pub(super) fn view(&self) -> Value {
        let Self { id, name, cores, memory, disk, architecture } = self;
        json!({
            "id": id, "name": name, "description": name.to_uppercase(), "category": "simulated", "cores": cores,
            "memory": memory, "disk": disk, "storage_type": "local", "cpu_type": "shared",
            "architecture": architecture, "deprecated": false, "deprecation": null, "prices": [], "locations": [],
        })
    }
}

impl LoadBalancerType {
    pub(super) fn view(&self) -> Value {
        let Self { id, name, max_connections, max_services, max_targets, max_assigned_certificates } = self;
        json!({
            "id": id, "name": name, "description": name.to_uppercase(), "max_connections": max_connections,
            "max_services": max_services, "max_targets": max_targets,
            "max_assigned_certificates": max_assigned_certificates, "deprecated": null, "deprecation": null,
            "prices": [],
        })
    }
}

macro_rules! listed {
    ($($kind:ty),*) => {$(
        impl Listed for $kind {
            const FILTERS: &'static [&'static str] = &["name"];
            const SORTS: &'static [&'static str] = &["id", "name"];

            fn id(&self) -> u64 {
                self.id
            }
            fn name(&self) -> &str {
                self.name
            }
        }
    )*};
}

listed!(Location, ServerType, LoadBalancerType);
