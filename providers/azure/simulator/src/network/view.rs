//! Network resources as responses show them, with references back to their users at full size. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::interface::mac_address;
use super::security_group::default_rules;
use crate::catalog::{Kind, Part};
use crate::id::Key;
use crate::json::{default, items_mut, object, set, text};
use crate::state::{Resource, State};

/// A resource as responses show it.
pub(crate) fn view(state: &State, resource: &Resource) -> Value {
    let Resource { id, kind, body, etag, guid, provisioning, .. } = resource;
    let mut view = body.clone();
    set(&mut view, "name", id.name());
    set(&mut view, "id", id.as_str());
    set(&mut view, "etag", etag.clone());
    set(&mut view, "type", kind.full_name());
    let properties = object(&mut view, "properties");
    set(properties, "provisioningState", provisioning.name());
    set(properties, "resourceGuid", guid.clone());
    if *kind == Kind::SecurityGroup {
        set(properties, "defaultSecurityRules", default_rules(provisioning.name()));
        complete_parts(state, resource, properties, "defaultSecurityRules");
    }
    for Part { field, .. } in kind.parts() {
        complete_parts(state, resource, properties, field);
    }
    add_users(state, resource, properties);
    match kind {
        Kind::PrivateLinkService => {
            let location = resource.location();
            set(
                properties,
                "alias",
                format!("{}.{guid}.{location}.azure.privatelinkservice", id.name().to_lowercase()),
            );
            let group = id.as_str().split("/providers/").next().unwrap_or_default();
            let interface =
                format!("{group}/providers/Microsoft.Network/networkInterfaces/{}.nic.{guid}", id.name());
            set(properties, "networkInterfaces", json!([{"id": interface}]));
        }
        Kind::Interface => {
            set(properties, "macAddress", mac_address(guid));
            set(properties, "hostedWorkloads", json!([]));
            set(properties, "tapConfigurations", json!([]));
            default(properties, "primary", true);
            set(&mut view, "kind", "Regular");
        }
        // Before its first write has ended, an address has none.
        Kind::PublicAddress if provisioning.name() == "Updating" && resource.before.is_none() => {
            crate::json::fields(properties).remove("ipAddress");
        }
        _ => {}
    }
    view
}

/// Adds IDs, etags, types and users to the parts of a field.
fn complete_parts(state: &State, resource: &Resource, properties: &mut Value, field: &str) {
    let kind = format!("{}/{field}", resource.kind.full_name());
    for part in items_mut(properties, &format!("/{field}")) {
        let own = format!("{}/{field}/{}", resource.id, text(part, "/name"));
        set(part, "id", own.clone());
        set(part, "etag", resource.etag.clone());
        set(part, "type", kind.clone());
        let properties = object(part, "properties");
        set(properties, "provisioningState", resource.provisioning.name());
        if field == "backendAddressPools" {
            add_pool_members(state, &Key::of(&own), &own, properties);
        }
        add_part_users(state, &Key::of(&own), field, properties);
    }
}

/// The lists of users that a part shows.
fn add_part_users(state: &State, key: &Key, field: &str, properties: &mut Value) {
    let names: &[&str] = match field {
        "subnets" => &["ipConfigurations"],
        "frontendIPConfigurations" => &["loadBalancingRules", "inboundNatRules", "outboundRules"],
        "backendAddressPools" => &["loadBalancingRules", "outboundRules"],
        "probes" => &["loadBalancingRules"],
        _ => return,
    };
    let mut lists: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for user in state.store.users(key) {
        let Some(kind) = user.rsplit('/').nth(1) else { continue };
        let is_address = field == "subnets"
            && ["ipconfigurations", "frontendipconfigurations"].contains(&kind.to_lowercase().as_str());
        let name = names.iter().find(|name| is_address || name.eq_ignore_ascii_case(kind));
        if let Some(name) = name.filter(|_| !is_model(user)) {
            lists.entry(name).or_default().push(json!({"id": user}));
        }
    }
    for (name, list) in lists {
        set(properties, name, list);
    }
}

/// The members of a backend pool: interfaces that name it, and addresses that it names.
fn add_pool_members(state: &State, key: &Key, own: &str, properties: &mut Value) {
    let members: Vec<&str> = state.store.users(key).filter(|user| is_member(user)).collect();
    if members.is_empty() {
        default(properties, "loadBalancerBackendAddresses", json!([]));
    } else {
        let views: Vec<_> = members.iter().map(|user| json!({"id": user})).collect();
        set(properties, "backendIPConfigurations", views);
        let addresses = members.iter().map(|user| {
            json!({"name": address_name(user), "id": format!("{own}/loadBalancerBackendAddresses/{}", address_name(user)), "properties": {
                "networkInterfaceIPConfiguration": {"id": user}, "provisioningState": "Succeeded",
            }})
        });
        let addresses: Vec<_> = addresses.collect();
        set(properties, "loadBalancerBackendAddresses", addresses);
    }
}

fn address_name(user: &str) -> String {
    let segments: Vec<_> = user.split('/').collect();
    segments.iter().skip(4).step_by(2).copied().collect::<Vec<_>>().join("_")
}

/// Whether a user of a pool is a member: a configuration of an interface, but not one of a scale set's model.
pub(super) fn is_member(user: &str) -> bool {
    user.to_lowercase().contains("/networkinterfaces/") && !is_model(user)
}

/// Whether a user is the model of a scale set, which isn't shown as a user.
fn is_model(user: &str) -> bool {
    let user = user.to_lowercase();
    user.contains("/virtualmachinescalesets/") && !user.contains("/virtualmachines/")
}

/// Adds the users of a whole resource.
fn add_users(state: &State, resource: &Resource, properties: &mut Value) {
    let key = resource.id.key();
    let users = || state.store.users(&key).filter(|user| !is_model(user));
    let all = |part: &str| -> Vec<Value> {
        users().filter(|user| user.to_lowercase().contains(part)).map(|user| json!({"id": user})).collect()
    };
    let lists: &[(&str, &str)] = match resource.kind {
        Kind::PublicAddress => {
            if let Some(user) = users().next() {
                set(properties, "ipConfiguration", json!({"id": user}));
            }
            return;
        }
        Kind::Interface => {
            if let Some(user) = users().find(|user| user.to_lowercase().contains("/virtualmachines/")) {
                set(properties, "virtualMachine", json!({"id": user}));
            }
            return;
        }
        Kind::RouteTable => &[("subnets", "/subnets/")],
        Kind::SecurityGroup => &[("subnets", "/subnets/"), ("networkInterfaces", "/networkinterfaces/")],
        Kind::AddressPrefix => &[("publicIPAddresses", "/publicipaddresses/")],
        _ => return,
    };
    for (name, part) in lists {
        let list = all(part);
        if !list.is_empty() {
            set(properties, name, list);
        }
    }
}
