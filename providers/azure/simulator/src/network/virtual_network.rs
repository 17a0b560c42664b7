//! The rules of virtual networks and subnets. Pure.

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::id::{Id, Key};
use crate::json::{default, items, items_mut, object, text};
use crate::refusal::Refusal;
use crate::state::State;

pub(super) fn normalize(state: &State, id: &Id, body: &mut Value) -> Result<(), Refusal> {
    let properties = object(body, "properties");
    default(properties, "enableDdosProtection", false);
    default(properties, "privateEndpointVNetPolicies", "Disabled");
    for subnet in items_mut(properties, "/subnets") {
        let properties = object(subnet, "properties");
        default(properties, "delegations", json!([]));
        default(properties, "privateEndpointNetworkPolicies", "Disabled");
        default(properties, "privateLinkServiceNetworkPolicies", "Enabled");
    }
    let space = items(properties, "/addressSpace/addressPrefixes").iter().filter_map(Value::as_str);
    let space = space.map(parse_range).collect::<Result<Vec<_>, _>>()?;
    if space.is_empty() {
        let message = format!("Virtual network {} has no address space.", id.name());
        return Err(Refusal::network(400, "InvalidAddressSpace", message));
    }
    let mut all: Vec<(&str, IpNet)> = Vec::new();
    for subnet in items(properties, "/subnets") {
        let name = text(subnet, "/name");
        let ranges = ranges(subnet)?;
        let is_inside = |range: &IpNet| space.iter().any(|space| space.contains(range));
        if ranges.is_empty() || !ranges.iter().all(is_inside) {
            let message = format!("Subnet '{name}' is not valid in virtual network '{}'.", id.name());
            return Err(Refusal::network(400, "NetcfgInvalidSubnet", message));
        }
        if let Some((other, _)) =
            all.iter().find(|(_, known)| ranges.iter().any(|range| overlaps(*known, *range)))
        {
            let message =
                format!("Subnet '{name}' overlaps with subnet '{other}' in virtual network '{}'.", id.name());
            return Err(Refusal::network(400, "NetcfgSubnetRangesOverlap", message));
        }
        all.extend(ranges.iter().map(|range| (name, *range)));
        check_shrunk(state, id, name, &ranges)?;
    }
    Ok(())
}

/// Refuses new ranges of a subnet that leave out an address in use.
fn check_shrunk(state: &State, id: &Id, name: &str, ranges: &[IpNet]) -> Result<(), Refusal> {
    let key = Key::of(&format!("{id}/subnets/{name}"));
    if let Some(address) =
        state.store.taken(&key).find(|address| !ranges.iter().any(|range| range.contains(*address)))
    {
        let message = format!("Subnet {name} is in use by the address {address} and cannot be updated.");
        return Err(Refusal::network(400, "InUsePrefixCannotBeDeleted", message));
    }
    Ok(())
}

fn overlaps(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

fn ranges(subnet: &Value) -> Result<Vec<IpNet>, Refusal> {
    let one = Some(text(subnet, "/properties/addressPrefix")).filter(|text| !text.is_empty());
    let more = items(subnet, "/properties/addressPrefixes").iter().filter_map(Value::as_str);
    let mut all = one.into_iter().chain(more).map(parse_range).collect::<Result<Vec<_>, _>>()?;
    all.sort();
    all.dedup();
    Ok(all)
}

fn parse_range(range: &str) -> Result<IpNet, Refusal> {
    let Ok(net) = range.parse::<IpNet>() else {
        let message = format!(
            "Address prefix '{range}' is not formatted correctly. It should follow CIDR notation, for example 10.0.0.0/24."
        );
        return Err(Refusal::network(400, "InvalidAddressPrefixFormat", message));
    };
    if net == net.trunc() {
        return Ok(net);
    }
    let message = format!(
        "The address prefix {range} has an invalid CIDR notation. For the given prefix length, the address prefix should be {}.",
        net.trunc()
    );
    Err(Refusal::network(400, "InvalidCIDRNotation", message))
}
