//! The metadata service of a machine: what the machine is, its load balancers, and tokens of its identities. Pure.

use axum::http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::State;
use super::identity::denied;
use super::store::Resource;
use crate::catalog::{Kind, Type};
use crate::compute;
use crate::id::Key;
use crate::json::{at, items, text};
use crate::request::{Request, Response};

/// The API versions.
const VERSIONS: &[&str] = &[
    "2017-04-02",
    "2017-08-01",
    "2017-12-01",
    "2018-02-01",
    "2018-10-01",
    "2019-02-01",
    "2019-03-11",
    "2019-06-01",
    "2019-08-01",
    "2019-08-15",
    "2020-06-01",
    "2020-09-01",
    "2020-10-01",
    "2021-01-01",
    "2021-02-01",
    "2021-10-01",
    "2021-12-13",
    "2023-07-01",
    "2025-04-07",
];

/// Which machine the service describes, and how well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Metadata {
    /// The computer name or the ID of the machine; the first machine where it is missing.
    pub machine: Option<String>,
    /// How long each response waits, in milliseconds.
    pub delay_ms: u64,
    /// The status of all responses; that of a working service where it is missing.
    pub status: Option<u16>,
    /// Fields that replace those of the instance document, merged as RFC 7386 says.
    pub instance: Value,
    /// Whether interfaces are in reverse order, which Azure doesn't promise.
    pub reverse_interfaces: bool,
}

impl State {
    /// How the metadata service behaves.
    pub fn metadata_settings(&self) -> &Metadata {
        &self.metadata
    }

    /// Answers a request to the metadata service.
    pub(super) fn metadata(&mut self, request: &Request, path: &str) -> Response {
        let is_token = path.starts_with("/metadata/identity/");
        if let Some(refusal) = self.refuse_metadata(request, is_token) {
            return refusal;
        }
        if path.trim_end_matches('/') == "/metadata/versions" {
            return Response::json(200, json!({"apiVersions": VERSIONS}));
        }
        if !request.parameter("api-version").is_some_and(|version| VERSIONS.contains(&version)) {
            return failed(400, "Bad request. api-version is missing or invalid");
        }
        if is_token {
            return self.identity_token(request);
        }
        let document = self.metadata_machine().and_then(|machine| match path.split('/').nth(2) {
            Some("instance") => Some(self.instance_document(machine)),
            Some("loadbalancer") => self.balancer_document(machine),
            Some("scheduledevents") => Some(json!({"DocumentIncarnation": 1, "Events": []})),
            _ => None,
        });
        let rest = request.path.trim_end_matches('/').splitn(4, '/').nth(3);
        let pointer = rest.map_or(String::new(), |rest| format!("/{rest}"));
        match document.as_ref().and_then(|document| document.pointer(&pointer)) {
            Some(found) => Response::json(200, found.clone()),
            None => failed(404, "Not found"),
        }
    }

    /// Refuses what no request may do, and more requests than a machine may make.
    fn refuse_metadata(&mut self, request: &Request, is_token: bool) -> Option<Response> {
        if !request.header("metadata").eq_ignore_ascii_case("true") {
            return Some(if is_token {
                denied("invalid_request", "Required metadata header not specified")
            } else {
                failed(400, "Bad request. Required metadata header not specified")
            });
        }
        if request.headers.contains_key("x-forwarded-for") {
            return Some(failed(400, "Bad request. The X-Forwarded-For header is not allowed"));
        }
        if request.method != Method::GET {
            return Some(failed(405, "Method not allowed"));
        }
        if let Some(status) = self.metadata.status {
            return Some(failed(status, "The service is unavailable"));
        }
        let (name, per_second) = if is_token { ("identity", 20.0) } else { ("instance", 5.0) };
        let is_admitted = self.throttle.take_metadata(self.now, name, per_second);
        (!is_admitted).then(|| failed(429, "Too many requests").with("retry-after", "1"))
    }

    /// The machine whose service this is.
    fn metadata_machine(&self) -> Option<&Resource> {
        match &self.metadata.machine {
            Some(name) => self.machine(name),
            None => self.store.all().find(|resource| resource.machine.is_some()),
        }
    }

    /// A machine by its computer name, its resource name or its ID.
    pub(crate) fn machine(&self, name: &str) -> Option<&Resource> {
        if name.starts_with('/') {
            return self.store.get(&Key::of(name)).filter(|resource| resource.machine.is_some());
        }
        let is_meant = |resource: &&Resource| {
            let computer = text(&resource.body, "/properties/osProfile/computerName");
            resource.machine.is_some()
                && (computer.eq_ignore_ascii_case(name)
                    || (resource.kind == Kind::VirtualMachine
                        && resource.id.name().eq_ignore_ascii_case(name)))
        };
        self.store.all().find(is_meant)
    }

    fn instance_document(&self, machine: &Resource) -> Value {
        let view = self.view(machine, true);
        let facts = |pointer: &str| match at(&view, pointer) {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let set_id = if machine.kind == Kind::ScaleSetMachine {
            String::new()
        } else {
            facts("/properties/virtualMachineScaleSet/id")
        };
        let set_name = match machine.kind {
            Kind::ScaleSetMachine => machine.id.path().segments.get(1).cloned().unwrap_or_default(),
            _ => set_id.rsplit('/').next().unwrap_or_default().to_owned(),
        };
        let tags = at(&view, "/tags").as_object().cloned().unwrap_or_default();
        let list: Vec<_> = tags.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let flat: Vec<_> = tags
            .iter()
            .map(|(name, value)| format!("{name}:{}", value.as_str().unwrap_or_default()))
            .collect();
        let mut document = json!({
            "compute": {
                "azEnvironment": "AzurePublicCloud", "location": machine.location(), "name": facts("/name"),
                "osType": "Linux", "platformFaultDomain": facts("/properties/instanceView/platformFaultDomain"),
                "platformUpdateDomain": facts("/properties/instanceView/platformUpdateDomain"), "platformSubFaultDomain": "",
                "provider": "Microsoft.Compute", "resourceGroupName": machine.id.group(), "resourceId": machine.id.as_str(),
                "subscriptionId": machine.id.path().subscription, "tags": flat.join(";"), "tagsList": list,
                "virtualMachineScaleSet": {"id": set_id}, "vmId": facts("/properties/vmId"), "vmScaleSetName": set_name,
                "vmSize": facts("/properties/hardwareProfile/vmSize"), "zone": facts("/zones/0"),
                "osProfile": {"computerName": facts("/properties/osProfile/computerName"), "adminUsername": "azureuser"},
            },
            "network": {"interface": self.interface_documents(machine)},
        });
        if self.metadata.instance.is_object() {
            super::write::merge(&mut document, &self.metadata.instance);
        }
        document
    }

    /// The views of the interfaces of a machine.
    fn interfaces_of(&self, machine: &Resource) -> Vec<Value> {
        if machine.kind == Kind::ScaleSetMachine {
            let mut path = machine.id.path().clone();
            path.segments.push("networkInterfaces".to_owned());
            let found = compute::interface::read(self, &path, Type::ScaleSetInterfaces).unwrap_or_default();
            return found.into_iter().map(|(_, view)| view).collect();
        }
        let interfaces = items(&machine.body, "/properties/networkProfile/networkInterfaces").iter();
        let found = interfaces.filter_map(|it| self.store.get(&Key::of(text(it, "/id"))));
        found.map(|interface| self.view(interface, false)).collect()
    }

    fn interface_documents(&self, machine: &Resource) -> Vec<Value> {
        let mut documents: Vec<_> = self
            .interfaces_of(machine)
            .iter()
            .map(|interface| {
                let of = |version: &str| {
                    let all = items(interface, "/properties/ipConfigurations").iter();
                    let meant: Vec<_> = all.filter(|it| text(it, "/properties/privateIPAddressVersion") == version).collect();
                    let addresses: Vec<_> = meant.iter().map(|it| {
                        let public = self.public_address(machine, text(it, "/properties/publicIPAddress/id"));
                        json!({"privateIpAddress": text(it, "/properties/privateIPAddress"), "publicIpAddress": public})
                    }).collect();
                    let ranges = meant.iter().flat_map(|it| self.subnet_ranges(text(it, "/properties/subnet/id")));
                    let ranges = ranges.filter(|range| matches!(range, ipnet::IpNet::V4(_)) == (version == "IPv4"));
                    let mut subnets: Vec<_> = ranges.map(|it| json!({"address": it.network().to_string(), "prefix": it.prefix_len().to_string()})).collect();
                    subnets.dedup();
                    if version == "IPv4" { json!({"ipAddress": addresses, "subnet": subnets}) } else { json!({"ipAddress": addresses}) }
                };
                let mac = text(interface, "/properties/macAddress").replace('-', "");
                json!({"ipv4": of("IPv4"), "ipv6": of("IPv6"), "macAddress": mac})
            })
            .collect();
        if self.metadata.reverse_interfaces {
            documents.reverse();
        }
        documents
    }

    /// The address of a public address by its ID, also of one of a scale set.
    fn public_address(&self, machine: &Resource, id: &str) -> String {
        if let Some(resource) = self.store.get(&Key::of(id)) {
            return text(&resource.body, "/properties/ipAddress").to_owned();
        }
        let name = id.rsplit('/').next().unwrap_or_default();
        let interfaces =
            items(&machine.body, "/properties/networkProfileConfiguration/networkInterfaceConfigurations")
                .iter();
        let configurations = interfaces.flat_map(|it| items(it, "/properties/ipConfigurations"));
        let public = configurations.filter_map(|it| it.pointer("/properties/publicIPAddressConfiguration"));
        let mut found = public.filter(|it| !id.is_empty() && text(it, "/name") == name);
        found.next().map_or_else(String::new, |it| text(it, "/properties/ipAddress").to_owned())
    }

    /// The public addresses of the load balancers whose pools have the machine.
    fn balancer_document(&self, machine: &Resource) -> Option<Value> {
        let mut addresses = Vec::new();
        for interface in self.interfaces_of(machine) {
            for configuration in items(&interface, "/properties/ipConfigurations") {
                let private = text(configuration, "/properties/privateIPAddress");
                for pool in items(configuration, "/properties/loadBalancerBackendAddressPools") {
                    let Some(balancer) = self.store.owner(text(pool, "/id")) else { continue };
                    let frontends = items(&balancer.body, "/properties/frontendIPConfigurations").iter();
                    let public = frontends.filter_map(|it| {
                        self.store.get(&Key::of(text(it, "/properties/publicIPAddress/id")))
                    });
                    for public in public {
                        let address = text(&public.body, "/properties/ipAddress");
                        // The service writes addresses of IPv6 in square brackets.
                        let address =
                            if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
                        addresses.push(json!({"frontendIpAddress": address, "privateIpAddress": private}));
                    }
                }
            }
        }
        let document = json!({"loadbalancer": {"publicIpAddresses": addresses, "inboundRules": [], "outboundRules": []}});
        (!addresses.is_empty()).then_some(document)
    }
}

fn failed(status: u16, error: &str) -> Response {
    let newest: Vec<_> = VERSIONS.iter().rev().take(3).collect();
    Response::json(status, json!({"error": error, "newest-versions": newest}))
}
