//! The rules of public addresses and prefixes. Pure.

use serde_json::{Value, json};

use crate::catalog::Kind;
use crate::id::{Id, Key};
use crate::json::{at, default, object, set, text};
use crate::refusal::Refusal;
use crate::state::{Resource, State};

pub(super) fn normalize(
    state: &mut State,
    id: &Id,
    body: &mut Value,
    existing: Option<&Resource>,
) -> Result<(), Refusal> {
    check_cap(state, id, body, existing)?;
    let invalid = |code: &str, message: String| Err(Refusal::network(400, code, message));
    let sku = object(body, "sku");
    default(sku, "name", "Basic");
    default(sku, "tier", "Regional");
    let is_standard = text(body, "/sku/name").eq_ignore_ascii_case("Standard");
    let properties = object(body, "properties");
    default(properties, "publicIPAddressVersion", "IPv4");
    default(properties, "publicIPAllocationMethod", "Dynamic");
    default(properties, "idleTimeoutInMinutes", 4);
    default(properties, "ipTags", json!([]));
    let is_static = text(properties, "/publicIPAllocationMethod").eq_ignore_ascii_case("Static");
    if is_standard && !is_static {
        return invalid(
            "StandardSkuPublicIPAddressMustBeStatic",
            format!("Standard sku publicIp {id} must be of static allocation."),
        );
    }
    if let Some(existing) = existing {
        for field in ["publicIPAddressVersion", "publicIPPrefix", "ipTags"] {
            let pointer = format!("/properties/{field}");
            if at(&existing.body, &pointer) != at(body, &pointer) {
                let message = format!("Property {field} of {id} cannot be changed.");
                return invalid("CannotChangePropertyOfPublicIPAddress", message);
            }
        }
        if text(&existing.body, "/sku/name") != text(body, "/sku/name") {
            return invalid(
                "PublicIPAddressSkuUpdateNotAllowed",
                format!("The sku of {id} cannot be changed."),
            );
        }
    }
    check_label(state, id, body)?;
    let is_ipv4 = text(body, "/properties/publicIPAddressVersion") == "IPv4";
    let known = existing.map_or("", |existing| text(&existing.body, "/properties/ipAddress")).to_owned();
    let is_used = state.store.users(&id.key()).next().is_some();
    let properties = object(body, "properties");
    if !known.is_empty() {
        set(properties, "ipAddress", known);
    } else if is_static || is_used {
        let address = state.next_public_address(is_ipv4);
        set(properties, "ipAddress", address);
    } else {
        // A dynamic address is given when it is used first.
        crate::json::fields(properties).remove("ipAddress");
    }
    Ok(())
}

fn check_cap(state: &State, id: &Id, body: &Value, existing: Option<&Resource>) -> Result<(), Refusal> {
    let most = state.behavior.caps.public_addresses;
    let subscription = &id.path().subscription;
    let is_counted = |it: &&Resource| {
        it.kind == Kind::PublicAddress
            && it.id.path().subscription.eq_ignore_ascii_case(subscription)
            && State::is_same_location(it.location(), text(body, "/location"))
    };
    if existing.is_none() && state.store.all().filter(is_counted).count() >= most {
        let message = format!(
            "Cannot create more than {most} public IP addresses for this subscription in this region."
        );
        return Err(Refusal::network(400, "PublicIPCountLimitReached", message));
    }
    Ok(())
}

/// Completes the DNS settings, whose label is unique in a region.
fn check_label(state: &State, id: &Id, body: &mut Value) -> Result<(), Refusal> {
    let label = text(body, "/properties/dnsSettings/domainNameLabel").to_lowercase();
    if label.is_empty() {
        return Ok(());
    }
    let location = text(body, "/location").to_lowercase();
    let has_label = |it: &&Resource| {
        it.kind == Kind::PublicAddress
            && it.id.key() != id.key()
            && State::is_same_location(it.location(), &location)
            && text(&it.body, "/properties/dnsSettings/domainNameLabel").eq_ignore_ascii_case(&label)
    };
    if state.store.all().any(|it| has_label(&it)) {
        let message =
            format!("DNS record {label}.{location}.cloudapp.azure.com is already used by another public IP.");
        return Err(Refusal::network(400, "DnsRecordInUse", message));
    }
    let name = format!("{label}.{location}.cloudapp.azure.com");
    set(object(object(body, "properties"), "dnsSettings"), "fqdn", name);
    Ok(())
}

pub(super) fn normalize_prefix(
    state: &mut State,
    body: &mut Value,
    existing: Option<&Resource>,
) -> Result<(), Refusal> {
    let sku = object(body, "sku");
    default(sku, "name", "Standard");
    default(sku, "tier", "Regional");
    let properties = object(body, "properties");
    default(properties, "publicIPAddressVersion", "IPv4");
    default(properties, "ipTags", json!([]));
    let length = at(properties, "/prefixLength").as_u64().unwrap_or_default();
    let is_ipv4 = text(properties, "/publicIPAddressVersion") == "IPv4";
    let range = if is_ipv4 { 21..=31 } else { 124..=127 };
    if !range.contains(&length) {
        let message = format!(
            "The prefix length {length} is invalid: it has to be from {} to {}.",
            range.start(),
            range.end()
        );
        return Err(Refusal::network(400, "InvalidPublicIPPrefixLength", message));
    }
    let known = existing.map(|it| at(&it.body, "/properties/ipPrefix").clone()).filter(Value::is_string);
    let prefix = match known {
        Some(known) => known,
        None => json!(format!("{}/{length}", state.next_public_address(is_ipv4))),
    };
    set(properties, "ipPrefix", prefix);
    Ok(())
}

/// Gives an address to dynamic public addresses that are used now.
pub(super) fn wake(state: &mut State, key: &Key) {
    let Some(resource) = state.store.get(key).cloned() else { return };
    if !text(&resource.body, "/properties/ipAddress").is_empty() {
        return;
    }
    let is_ipv4 = text(&resource.body, "/properties/publicIPAddressVersion") == "IPv4";
    let mut body = resource.body.clone();
    let address = state.next_public_address(is_ipv4);
    set(object(&mut body, "properties"), "ipAddress", address);
    state.store.insert(Resource { body, ..resource });
}
