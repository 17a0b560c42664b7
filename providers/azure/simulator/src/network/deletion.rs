//! What can't be deleted because others use it. Pure.

use serde_json::Value;

use crate::catalog::{Kind, Part};
use crate::id::{Id, Key};
use crate::json::{at, items, text};
use crate::refusal::Refusal;
use crate::state::{State, named};

/// Refuses the deletion of a resource that others use.
pub(crate) fn check_unused(state: &State, id: &Id, kind: Kind) -> Result<(), Refusal> {
    if kind == Kind::PrivateLinkService {
        return check_connections(state, id);
    }
    let Some((part, user)) = user_outside(state, &id.key(), kind) else { return Ok(()) };
    let name = id.name();
    let (code, message) = match kind {
        Kind::PublicAddress => (
            "PublicIPAddressCannotBeDeleted",
            format!(
                "Public IP address {id} can not be deleted since it is still allocated to resource {user}. In order to delete the public \
                 IP, disassociate/detach the Public IP address from the resource. To learn how to do this, see aka.ms/deletepublicip."
            ),
        ),
        Kind::AddressPrefix => (
            "InUsePublicIpPrefixCannotBeDeleted",
            format!("Public IP prefix {id} is in use by {user} and cannot be deleted."),
        ),
        Kind::VirtualNetwork => (
            "InUseSubnetCannotBeDeleted",
            format!(
                "Subnet {} is in use by {user} and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.",
                last(&part)
            ),
        ),
        Kind::RouteTable => {
            ("InUseRouteTableCannotBeDeleted", format!("Route table {name} is in use and cannot be deleted."))
        }
        Kind::SecurityGroup => (
            "InUseNetworkSecurityGroupCannotBeDeleted",
            format!(
                "Network security group {id} cannot be deleted because it is in use by the following resources: {user}."
            ),
        ),
        Kind::ApplicationSecurityGroup => (
            "InUseApplicationSecurityGroupCannotBeDeleted",
            format!("Application security group {id} cannot be deleted because it is in use by {user}."),
        ),
        Kind::Interface => (
            "NicInUse",
            format!(
                "Network Interface {id} is used by existing resource {user}. In order to delete the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic."
            ),
        ),
        _ => balancer_in_use(id, &part, &user),
    };
    Err(Refusal::network(400, code, message))
}

fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

/// The user of a resource that hinders its deletion, and what it uses.
fn user_outside(state: &State, key: &Key, kind: Kind) -> Option<(String, String)> {
    let (part, user) = state.store.user_outside(key, key)?;
    let found = (part.to_string(), user.to_owned());
    if kind != Kind::LoadBalancer {
        return Some(found);
    }
    // A scale set's model hinders it even where a machine is found first.
    Some(scale_set_user(state, key).unwrap_or(found))
}

/// The scale set whose model uses a part of a load balancer.
fn scale_set_user(state: &State, key: &Key) -> Option<(String, String)> {
    let sets = state.store.all().filter(|resource| resource.kind == Kind::ScaleSet);
    sets.into_iter().find_map(|set| {
        let mut references = crate::state::references(&set.id, &set.body).into_iter();
        let used = references.find(|reference| Key::of(&reference.to).is_within(key))?;
        Some((used.to, set.id.to_string()))
    })
}

fn balancer_in_use(id: &Id, part: &str, user: &str) -> (&'static str, String) {
    let lower = user.to_lowercase();
    if let Some(at) = lower.find("/virtualmachinescalesets/") {
        let rest = user.get(at + "/virtualmachinescalesets/".len()..).unwrap_or_default();
        let name = rest.split('/').next().unwrap_or_default();
        let set =
            user.get(..at).map(|base| format!("{base}/virtualMachineScaleSets/{name}")).unwrap_or_default();
        let message = format!(
            "Cannot delete load balancer {id} since its child resources {} are in use by virtual machine scale set {set}.",
            last(part)
        );
        return ("LoadBalancerInUseByVirtualMachineScaleSet", message);
    }
    if lower.contains("/privatelinkservices/") {
        return (
            "LoadBalancerInUseByPrivateLinkService",
            format!(
                "Cannot delete load balancer {id} since {part} is in use by private link service {user}."
            ),
        );
    }
    (
        "LoadBalancerInUseByNetworkInterface",
        format!("Cannot delete load balancer {id} since {part} is in use by {user}."),
    )
}

fn check_connections(state: &State, id: &Id) -> Result<(), Refusal> {
    let connections = state
        .store
        .get(&id.key())
        .map_or(0, |it| items(&it.body, "/properties/privateEndpointConnections").len());
    if connections == 0 {
        return Ok(());
    }
    let message = format!(
        "Private link service {id} cannot be deleted since it has {connections} private endpoint connections."
    );
    Err(Refusal::network(400, "PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted", message))
}

/// Refuses the deletion of a part that others use.
pub(crate) fn check_part_unused(state: &State, whole: &Id, part: &str, kind: Part) -> Result<(), Refusal> {
    let Some((_, user)) = state.store.user_outside(&Key::of(part), &whole.key()) else { return Ok(()) };
    Err(part_in_use(kind.field, part, user))
}

/// Refuses a write that leaves out a part which other resources use.
pub(super) fn check_removed_parts(
    state: &State,
    id: &Id,
    kind: Kind,
    before: &Value,
    after: &Value,
) -> Result<(), Refusal> {
    for part in kind.parts() {
        for element in items(before, &format!("/properties/{}", part.field)) {
            let name = text(element, "/name");
            if named(at(after, "/properties"), part.field, name).is_some() {
                continue;
            }
            let removed = format!("{id}/{}/{name}", part.field);
            let user = state.store.user_outside(&Key::of(&removed), &id.key());
            if let Some((_, user)) = user {
                return Err(part_in_use(part.field, &removed, user));
            }
        }
    }
    Ok(())
}

fn part_in_use(field: &str, part: &str, user: &str) -> Refusal {
    let name = last(part);
    let (code, message) = match field {
        "subnets" => (
            "InUseSubnetCannotBeDeleted",
            format!(
                "Subnet {name} is in use by {user} and cannot be deleted. In order to delete the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet."
            ),
        ),
        "frontendIPConfigurations" => (
            "InUseFrontendIPConfigurationCannotBeDeleted",
            format!("Frontend IP configuration {part} is in use by {user} and cannot be deleted."),
        ),
        "backendAddressPools" if user.to_lowercase().contains("/virtualmachinescalesets/") => (
            "LoadBalancerInUseByVirtualMachineScaleSet",
            format!(
                "Cannot delete backend address pool {part} since it is in use by virtual machine scale set {user}."
            ),
        ),
        "backendAddressPools" => (
            "InUseBackendAddressPoolCannotBeDeleted",
            format!("Backend address pool {part} is in use by {user} and cannot be deleted."),
        ),
        _ => (
            "InUseResourceCannotBeDeleted",
            format!("Resource {part} is in use by {user} and cannot be deleted."),
        ),
    };
    Refusal::network(400, code, message)
}
