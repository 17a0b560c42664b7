//! The rules of private link services. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::id::{Id, Key};
use crate::json::{at, default, items, items_mut, object, text};
use crate::refusal::Refusal;
use crate::state::{Resource, State, named};

/// The most addresses of a service.
const MAX_ADDRESSES: usize = 8;

pub(super) fn normalize(
    state: &State,
    id: &Id,
    body: &mut Value,
    existing: Option<&Resource>,
) -> Result<(), Refusal> {
    let invalid = |code: &str, message: String| Err(Refusal::network(400, code, message));
    let properties = object(body, "properties");
    default(properties, "enableProxyProtocol", false);
    default(properties, "fqdns", json!([]));
    for (index, configuration) in items_mut(properties, "/ipConfigurations").iter_mut().enumerate() {
        let properties = object(configuration, "properties");
        default(properties, "privateIPAddressVersion", "IPv4");
        default(properties, "privateIPAllocationMethod", "Dynamic");
        default(properties, "primary", index == 0);
    }
    let configurations = items(properties, "/ipConfigurations");
    if !(1..=MAX_ADDRESSES).contains(&configurations.len()) {
        let message = format!("Private link service {id} needs 1 to {MAX_ADDRESSES} IP configurations.");
        return invalid("PrivateLinkServiceIPConfigurationCountInvalid", message);
    }
    for configuration in configurations {
        let subnet = text(configuration, "/properties/subnet/id");
        let network = state.store.owner(subnet);
        let name = subnet.rsplit('/').next().unwrap_or_default();
        let found = network.and_then(|it| named(at(&it.body, "/properties"), "subnets", name));
        let is_open =
            found.is_none_or(|it| text(it, "/properties/privateLinkServiceNetworkPolicies") == "Disabled");
        if !is_open {
            let message = format!(
                "Private link service {id} cannot be created in a subnet {subnet} since it has private link service network policies \
                 enabled."
            );
            return invalid(
                "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled",
                message,
            );
        }
    }
    check_frontends(state, id, items(properties, "/loadBalancerFrontendIpConfigurations"))?;
    check_connections(id, properties, existing)
}

fn check_frontends(state: &State, id: &Id, frontends: &[Value]) -> Result<(), Refusal> {
    let invalid = |code: &str, message: String| Err(Refusal::network(400, code, message));
    if frontends.is_empty() {
        let message = format!("Private link service {id} has no load balancer frontend.");
        return invalid("PrivateLinkServiceMustReferenceLoadBalancerFrontend", message);
    }
    for frontend in frontends {
        let frontend = text(frontend, "/id");
        let Some(balancer) = state.store.owner(frontend) else { continue };
        if !text(&balancer.body, "/sku/name").eq_ignore_ascii_case("Standard") {
            let message = format!(
                "Private link service {id} references {}, which is not of sku Standard.",
                balancer.id
            );
            return invalid("PrivateLinkServiceRequiresStandardLoadBalancer", message);
        }
        let is_other =
            |user: &&str| user.to_lowercase().contains("/privatelinkservices/") && Key::of(user) != id.key();
        if let Some(other) = state.store.users(&Key::of(frontend)).find(is_other) {
            let message = format!("Frontend {frontend} is used by private link service {other} already.");
            return invalid("LoadBalancerFrontendIPConfigurationInUseByPrivateLinkService", message);
        }
    }
    Ok(())
}

/// Connections come from private endpoints: a write can change or remove them, not add them.
fn check_connections(id: &Id, properties: &Value, existing: Option<&Resource>) -> Result<(), Refusal> {
    let names = |properties: &Value| -> BTreeSet<String> {
        items(properties, "/privateEndpointConnections")
            .iter()
            .map(|it| text(it, "/name").to_lowercase())
            .collect()
    };
    let known = existing.map(|existing| names(at(&existing.body, "/properties"))).unwrap_or_default();
    if names(properties).is_subset(&known) {
        return Ok(());
    }
    let message = format!("Private endpoint connections of {id} can't be created by a write of the service.");
    Err(Refusal::network(400, "PrivateEndpointConnectionCannotBeCreated", message))
}
