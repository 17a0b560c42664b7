//! The rules of network interfaces. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::catalog::Kind;
use crate::id::{Id, Key};
use crate::json::{at, default, items, items_mut, object, set, text};
use crate::refusal::Refusal;
use crate::state::{Resource, State, named, references};

pub(super) fn normalize(body: &mut Value) {
    let properties = object(body, "properties");
    for (name, value) in [
        ("enableAcceleratedNetworking", json!(false)),
        ("enableIPForwarding", json!(false)),
        ("dnsSettings", json!({"dnsServers": [], "appliedDnsServers": []})),
        ("nicType", json!("Standard")),
    ] {
        default(properties, name, value);
    }
    for (index, configuration) in items_mut(properties, "/ipConfigurations").iter_mut().enumerate() {
        let properties = object(configuration, "properties");
        default(properties, "privateIPAddressVersion", "IPv4");
        default(properties, "privateIPAllocationMethod", "Dynamic");
        default(properties, "primary", index == 0);
    }
}

/// Gives each part in a field with a subnet its private address: the static one that it asks for, the one that it had, or the
/// next free one.
pub(super) fn assign(
    state: &mut State,
    body: &mut Value,
    field: &str,
    existing: Option<&Resource>,
) -> Result<(), Refusal> {
    for part in items_mut(body, &format!("/properties/{field}")) {
        let name = text(part, "/name").to_owned();
        assign_one(state, object(part, "properties"), field, &name, existing)?;
    }
    Ok(())
}

/// Refuses an interface in pools of several load balancers of the same type.
pub(crate) fn check_balancers(state: &State, id: &Id, body: &Value) -> Result<(), Refusal> {
    let mut known: BTreeMap<(String, bool), Key> = BTreeMap::new();
    for reference in references(id, body) {
        let Some(balancer) = state.store.owner(&reference.to).filter(|it| it.kind == Kind::LoadBalancer)
        else {
            continue;
        };
        let interface = reference.from.split("/ipConfigurations/").next().unwrap_or_default().to_lowercase();
        let frontends = items(&balancer.body, "/properties/frontendIPConfigurations");
        let is_internal = frontends.iter().any(|it| !at(it, "/properties/subnet").is_null());
        let key = balancer.id.key();
        let other = known.insert((interface, is_internal), key.clone());
        if let Some(other) = other.filter(|other| *other != key) {
            let kind = if is_internal { "Internal" } else { "Public" };
            let message = format!(
                "A network interface can be associated with at most one load balancer of type {kind}. {id} is associated with {} \
                 and {other}.",
                balancer.id
            );
            return Err(Refusal::network(
                400,
                "NetworkInterfaceUsesMultipleLoadBalancersOfSameType",
                message,
            ));
        }
    }
    Ok(())
}

/// Gives an address to the properties of a part with a subnet.
fn assign_one(
    state: &mut State,
    properties: &mut Value,
    field: &str,
    name: &str,
    existing: Option<&Resource>,
) -> Result<(), Refusal> {
    let subnet = text(properties, "/subnet/id").to_owned();
    if subnet.is_empty() {
        return Ok(());
    }
    let is_ipv4 = text(properties, "/privateIPAddressVersion") != "IPv6";
    let known = existing.and_then(|it| named(at(&it.body, "/properties"), field, name));
    let known = known.filter(|known| Key::of(text(known, "/properties/subnet/id")) == Key::of(&subnet));
    let known = known.map_or("", |known| text(known, "/properties/privateIPAddress"));
    let is_static = text(properties, "/privateIPAllocationMethod").eq_ignore_ascii_case("static");
    let wanted = text(properties, "/privateIPAddress").parse().ok().filter(|_| is_static);
    let address = match wanted {
        Some(wanted) => {
            state.claim(&subnet, wanted, existing)?;
            wanted.to_string()
        }
        None if is_static => {
            let message = format!("The static private IP address of {name} is missing or invalid.");
            return Err(Refusal::network(400, "PrivateIPAddressRequired", message));
        }
        None if !known.is_empty() => known.to_owned(),
        None => state.allocate(&subnet, is_ipv4)?.to_string(),
    };
    set(properties, "privateIPAddress", address);
    Ok(())
}

/// The hardware address that belongs to an ID.
pub(crate) fn mac_address(guid: &str) -> String {
    let digits: String =
        guid.chars().filter(char::is_ascii_hexdigit).take(6).collect::<String>().to_uppercase();
    let part = |from: usize| digits.get(from..from + 2).unwrap_or("00");
    format!("00-0D-3A-{}-{}-{}", part(0), part(2), part(4))
}
