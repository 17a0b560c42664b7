//! The network provider: what its writes have in common. Each type has a file with its own rules. Pure.

mod address;
mod balancing_rule;
mod deletion;
mod interface;
mod load_balancer;
mod private_link;
mod public_address;
mod route_table;
mod security_group;
mod view;
mod virtual_network;

use serde_json::{Value, json};

pub(crate) use self::deletion::{check_part_unused, check_unused};
pub(crate) use self::interface::{check_balancers, mac_address};
pub(crate) use self::view::view;
use crate::catalog::{Kind, Provider};
use crate::id::{Id, Key};
use crate::json::{at, fields, items, items_mut, object, set, text};
use crate::refusal::Refusal;
use crate::state::{Provisioning, Resource, State, named, references};

/// The fields of a body besides `properties` that are kept.
const KEPT: [&str; 6] = ["location", "tags", "sku", "zones", "extendedLocation", "identity"];

/// Turns a written body into what is stored, or refuses it. A write replaces the former body.
pub(crate) fn normalize(
    state: &mut State,
    id: &Id,
    kind: Kind,
    body: &Value,
    existing: Option<&Resource>,
) -> Result<Value, Refusal> {
    let mut kept = clean(id, kind, body)?;
    match kind {
        Kind::RouteTable => route_table::normalize(state, &mut kept)?,
        Kind::VirtualNetwork => virtual_network::normalize(state, id, &mut kept)?,
        Kind::SecurityGroup => security_group::normalize(state, id, &mut kept)?,
        Kind::PublicAddress => public_address::normalize(state, id, &mut kept, existing)?,
        Kind::AddressPrefix => public_address::normalize_prefix(state, &mut kept, existing)?,
        Kind::LoadBalancer => load_balancer::normalize(state, id, &mut kept, existing)?,
        Kind::PrivateLinkService => private_link::normalize(state, id, &mut kept, existing)?,
        Kind::Interface => interface::normalize(&mut kept),
        _ => {}
    }
    check_references(state, id, &kept)?;
    if let Some(existing) = existing {
        deletion::check_removed_parts(state, id, kind, &existing.body, &kept)?;
    }
    match kind {
        Kind::Interface => {
            check_balancers(state, id, &kept)?;
            interface::assign(state, &mut kept, "ipConfigurations", existing)?;
        }
        Kind::LoadBalancer => interface::assign(state, &mut kept, "frontendIPConfigurations", existing)?,
        Kind::PrivateLinkService => interface::assign(state, &mut kept, "ipConfigurations", existing)?,
        _ => {}
    }
    Ok(kept)
}

/// What clients write of a body, with the parts as lists and references reduced to IDs.
fn clean(id: &Id, kind: Kind, body: &Value) -> Result<Value, Refusal> {
    let mut kept = json!({});
    for name in KEPT {
        if let Some(value) = body.get(name).filter(|value| !value.is_null()) {
            set(&mut kept, name, value.clone());
        }
    }
    let mut properties = at(body, "/properties").clone();
    fields(&mut properties).retain(|name, value| {
        let is_read_only = matches!(name.as_str(), "provisioningState" | "resourceGuid");
        !is_read_only && !kind.read_only().contains(&name.as_str()) && !value.is_null()
    });
    if kind == Kind::LoadBalancer {
        load_balancer::clean_pools(&mut properties);
    }
    for part in kind.parts() {
        if !properties.get(part.field).is_some_and(Value::is_array) {
            set(&mut properties, part.field, json!([]));
        }
        for element in items_mut(&mut properties, &format!("/{}", part.field)) {
            clean_part(element, part.read_only);
        }
        check_names(id, part.field, items(&properties, &format!("/{}", part.field)))?;
    }
    for (name, value) in fields(&mut properties).iter_mut() {
        if !kind.parts().iter().any(|part| part.field == name) {
            reduce(value);
        }
    }
    set(&mut kept, "properties", properties);
    Ok(kept)
}

/// Removes what Azure fills in from a part, and reduces what it refers to to IDs.
pub(crate) fn clean_part(part: &mut Value, read_only: &[&str]) {
    let fields = fields(part);
    for name in ["id", "etag", "type"] {
        fields.remove(name);
    }
    let properties = object(part, "properties");
    let properties = crate::json::fields(properties);
    properties.retain(|name, value| {
        name != "provisioningState" && !read_only.contains(&name.as_str()) && !value.is_null()
    });
    for (name, value) in properties {
        // The parts of a part are cleaned on their own.
        if name != "ipConfigurations" || !value.pointer("/0/properties").is_some_and(Value::is_object) {
            reduce(value);
        }
    }
}

/// Reduces each object with an ID to the ID: clients send back copies of what they refer to.
fn reduce(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let id =
                fields.get("id").and_then(Value::as_str).filter(|id| id.starts_with('/')).map(str::to_owned);
            if let Some(id) = id {
                *value = json!({"id": id});
            } else {
                fields.values_mut().for_each(reduce);
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(reduce),
        _ => {}
    }
}

/// Refuses parts without names, and two of one name.
fn check_names(id: &Id, field: &str, parts: &[Value]) -> Result<(), Refusal> {
    let mut seen = std::collections::BTreeSet::new();
    for part in parts {
        let name = text(part, "/name");
        if name.is_empty() {
            let message = format!("Resource name is missing in {id}/{field}.");
            return Err(Refusal::network(400, "InvalidRequestFormat", "Cannot parse the request.")
                .with_detail("MissingJsonReferenceId", message));
        }
        if !seen.insert(name.to_lowercase()) {
            let message = format!("Resource {id} has two child resources with the same name ({name}).");
            return Err(Refusal::network(400, "InvalidRequestFormat", "Cannot parse the request.")
                .with_detail("DuplicateResourceName", message));
        }
    }
    Ok(())
}

/// Refuses references to what doesn't exist, and to what isn't provisioned.
pub(crate) fn check_references(state: &State, id: &Id, body: &Value) -> Result<(), Refusal> {
    let own = id.key();
    for reference in references(id, body) {
        let to = Key::of(&reference.to);
        if to.is_within(&own) {
            if !has_part(id, body, &reference.to) {
                return Err(dangling(&reference.from, &reference.to));
            }
            continue;
        }
        let Some(target) = Id::parse(&reference.to) else { continue };
        let namespace = target.path().namespace.as_deref().and_then(Provider::of);
        // What the simulator doesn't have, such as disks and images, can't be checked.
        let Some(provider) = namespace else { continue };
        if provider == Provider::Compute && !is_known_compute(&target) {
            continue;
        }
        if !state.store.exists(&reference.to) || !is_visible(state, &reference.to) {
            return Err(dangling(&reference.from, &reference.to));
        }
        check_provisioned(state, id, &reference.to)?;
    }
    Ok(())
}

fn is_known_compute(id: &Id) -> bool {
    let kind = id.path().types();
    ["virtualmachines", "virtualmachinescalesets", "availabilitysets"]
        .iter()
        .any(|known| kind.starts_with(known))
}

/// Whether eventual consistency shows what is referred to already.
fn is_visible(state: &State, id: &str) -> bool {
    state.store.owner(id).is_some_and(|owner| state.visible(&owner.id.key()).is_some())
}

/// Whether a body, which is not stored yet, has the part of an ID.
fn has_part(id: &Id, body: &Value, part: &str) -> bool {
    let rest = part.get(id.as_str().len()..).unwrap_or_default();
    let mut segments = rest.split('/').skip(1);
    match (segments.next(), segments.next()) {
        (Some(field), Some(name)) => named(at(body, "/properties"), field, name).is_some(),
        _ => true,
    }
}

fn dangling(from: &str, to: &str) -> Refusal {
    let message = format!(
        "Resource {to} referenced by resource {from} was not found. Please make sure that the referenced resource exists, and that \
         both resources are in the same region."
    );
    Refusal::network(400, "InvalidResourceReference", message)
}

/// Refuses a reference to a resource that is being written or whose last write failed: a lock, which looks like throttling.
fn check_provisioned(state: &State, id: &Id, to: &str) -> Result<(), Refusal> {
    let Some(owner) = state.store.owner(to) else { return Ok(()) };
    let is_ready = owner.kind.provider() == Provider::Compute
        || !matches!(
            owner.provisioning,
            Provisioning::Updating | Provisioning::Creating | Provisioning::Failed
        );
    if is_ready {
        return Ok(());
    }
    let message = format!(
        "Cannot proceed with operation because resource {} used by resource {id} is not in Succeeded state. Resource is in {} state \
         and the last operation that updated/is updating the resource is Put{}Operation.",
        owner.id,
        owner.provisioning.name(),
        owner.kind.operation()
    );
    Err(Refusal::network(429, "RetryableError", "A retryable error occurred.")
        .with_detail("ReferencedResourceNotProvisioned", message)
        .with_header("retry-after", "10"))
}

/// Changes the public addresses that a written resource refers to: dynamic ones get an address, and the write of a load
/// balancer gives all of them new etags, as in Azure.
pub(crate) fn touch_addresses(state: &mut State, id: &Id) {
    let Some(user) = state.store.get(&id.key()) else { return };
    let gets_etags = user.kind == Kind::LoadBalancer && state.behavior.touch_references;
    let keys: Vec<_> = references(id, &user.body)
        .into_iter()
        .map(|reference| Key::of(&reference.to))
        .filter(|key| state.store.get(key).is_some_and(|resource| resource.kind == Kind::PublicAddress))
        .collect();
    for key in keys {
        public_address::wake(state, &key);
        if !gets_etags {
            continue;
        }
        let etag = state.next_etag(Kind::PublicAddress, None);
        if let Some(address) = state.store.get_mut(&key) {
            address.etag = etag;
        }
    }
}

/// Carries out an action on a network resource.
pub(crate) fn act(state: &mut State, resource: &Resource, action: &str, body: &[u8]) -> Result<(), Refusal> {
    if resource.kind == Kind::LoadBalancer && action == "migratetoipbased" {
        return load_balancer::migrate(state, resource, body);
    }
    Err(Refusal::gateway(404, "InvalidResourceType", format!("The action '{action}' could not be found.")))
}
