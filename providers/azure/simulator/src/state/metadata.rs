//! The metadata service of a machine: what the machine is, its load balancers, and tokens of its identities. Pure.

use axum::http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::State;
use super::store::Resource;
use crate::catalog::{Kind, Type};
use crate::compute;
use crate::id::Key;
use crate::json::{at, items, text};
use crate::refusal::Refusal;
use crate::request::{Request, Response};
use crate::token::Identity;

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
    pub(super) fn metadata(&mut self, request: &Request, path: &str) -> Result<Response, Refusal> {
        let failed = |status, error: &str| {
            Ok(Response::json(
                status,
                json!({"error": error, "newest-versions": VERSIONS.iter().rev().take(3).collect::<Vec<_>>()}),
            ))
        };
        let is_token = path.starts_with("/metadata/identity/");
        if !request.header("metadata").eq_ignore_ascii_case("true") {
            return if is_token {
                Ok(denied("invalid_request", "Required metadata header not specified"))
            } else {
                failed(400, "Bad request. Required metadata header not specified")
            };
        }
        if request.headers.contains_key("x-forwarded-for") {
            return failed(400, "Bad request. The X-Forwarded-For header is not allowed");
        }
        if request.method != Method::GET {
            return failed(405, "Method not allowed");
        }
        if let Some(status) = self.metadata.status {
            return failed(status, "The service is unavailable");
        }
        let (name, per_second) = if is_token { ("identity", 20.0) } else { ("instance", 5.0) };
        if !self.throttle.take_metadata(self.now, name, per_second) {
            return failed(429, "Too many requests").map(|response| response.with("retry-after", "1"));
        }
        if path.trim_end_matches('/') == "/metadata/versions" {
            return Ok(Response::json(200, json!({"apiVersions": VERSIONS})));
        }
        if !request.parameter("api-version").is_some_and(|version| VERSIONS.contains(&version)) {
            return failed(400, "Bad request. api-version is missing or invalid");
        }
        if is_token {
            return Ok(self.identity_token(request));
        }
        let Some(machine) = self.metadata_machine() else { return failed(404, "Not found") };
        let document = match path.split('/').nth(2) {
            Some("instance") => self.instance_document(machine),
            Some("loadbalancer") => match self.balancer_document(machine) {
                Some(document) => document,
                None => {
                    return failed(
                        404,
                        "No load balancer metadata is found. Please check if your VM is using any non-basic SKU load balancer",
                    );
                }
            },
            Some("scheduledevents") => json!({"DocumentIncarnation": 1, "Events": []}),
            _ => return failed(404, "Not found"),
        };
        let pointer = request
            .path
            .trim_end_matches('/')
            .splitn(4, '/')
            .nth(3)
            .map_or(String::new(), |rest| format!("/{rest}"));
        match document.pointer(&pointer) {
            Some(found) => Ok(Response::json(200, found.clone())),
            None => failed(404, "Not found"),
        }
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
        super::write::merge(&mut document, &self.metadata.instance);
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

    fn identity_token(&mut self, request: &Request) -> Response {
        let Some(resource) = request.parameter("resource").filter(|it| !it.is_empty()) else {
            return denied("invalid_request", "Required query variable 'resource' is missing");
        };
        let identities = self.directory.as_ref().map(|directory| directory.identities.clone());
        let found = match identities {
            None => Ok(Identity {
                client_id: "any".to_owned(),
                object_id: "any".to_owned(),
                resource_id: String::new(),
            }),
            Some(identities) => choose(request, &identities),
        };
        let identity = match found {
            Ok(identity) => identity,
            Err(message) => return denied("invalid_request", message),
        };
        let tenant = self.tenant.clone();
        let issued = self.issue(&tenant, &identity.client_id, &identity.object_id, resource);
        Response::json(
            200,
            json!({
                "access_token": issued.token, "client_id": identity.client_id, "expires_in": issued.expires_in.to_string(),
                "expires_on": issued.expires_on.to_string(), "ext_expires_in": issued.expires_in.to_string(),
                "not_before": issued.not_before.to_string(), "resource": resource, "token_type": "Bearer",
            }),
        )
    }
}

/// The identity that a request asks for.
fn choose(request: &Request, identities: &[Identity]) -> Result<Identity, &'static str> {
    let wanted = ["client_id", "object_id", "msi_res_id", "mi_res_id"]
        .into_iter()
        .filter_map(|name| Some((name, request.parameter(name)?)));
    let wanted: Vec<_> = wanted.collect();
    let found = match wanted.as_slice() {
        [] => {
            // Without a name, the machine's own identity; else the only one.
            let own = identities.iter().find(|it| it.resource_id.is_empty());
            match (own, identities) {
                (Some(own), _) | (None, [own]) => Some(own),
                (None, [_, _, ..]) => {
                    return Err(
                        "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity in the token request",
                    );
                }
                (None, []) => None,
            }
        }
        [(name, value)] => identities.iter().find(|it| {
            let own = match *name {
                "client_id" => &it.client_id,
                "object_id" => &it.object_id,
                _ => &it.resource_id,
            };
            !own.is_empty() && own.eq_ignore_ascii_case(value)
        }),
        _ => return Err("Only one of client_id, object_id and msi_res_id may be given"),
    };
    found.cloned().ok_or("Identity not found")
}

fn denied(error: &str, description: &str) -> Response {
    Response::json(400, json!({"error": error, "error_description": description}))
}
