//! The rules of route tables. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use crate::json::{default, items, object, text};
use crate::refusal::Refusal;
use crate::state::State;

/// Where a route can lead.
const NEXT_HOPS: [&str; 5] = ["VirtualNetworkGateway", "VnetLocal", "Internet", "VirtualAppliance", "None"];

pub(super) fn normalize(state: &State, body: &mut Value) -> Result<(), Refusal> {
    let properties = object(body, "properties");
    default(properties, "disableBgpRoutePropagation", false);
    let routes = items(properties, "/routes");
    let most = state.behavior.caps.routes_per_table;
    if routes.len() > most {
        let message = format!("The route table has {} routes; the limit is {most}.", routes.len());
        return Err(Refusal::network(400, "RouteTableRouteLimitReached", message));
    }
    let mut prefixes = BTreeMap::new();
    for route in routes {
        let name = text(route, "/name");
        check_route(name, route)?;
        let prefix = text(route, "/properties/addressPrefix").to_lowercase();
        if let Some(other) = prefixes.insert(prefix.clone(), name) {
            let message = format!("Route {name} and route {other} have the same address prefix {prefix}.");
            return Err(Refusal::network(400, "RouteConflict", message));
        }
    }
    Ok(())
}

fn check_route(name: &str, route: &Value) -> Result<(), Refusal> {
    let field = |name: &str| text(route, &format!("/properties/{name}"));
    let (prefix, kind, hop) = (field("addressPrefix"), field("nextHopType"), field("nextHopIpAddress"));
    let invalid = |code: &str, message: String| Err(Refusal::network(400, code, message));
    // A service tag has no slash.
    if prefix.is_empty() || (prefix.contains('/') && prefix.parse::<IpNet>().is_err()) {
        return invalid(
            "InvalidAddressPrefixFormat",
            format!("Address prefix '{prefix}' of route {name} is not formatted correctly."),
        );
    }
    if let Ok(net) = prefix.parse::<IpNet>()
        && net != net.trunc()
    {
        let message = format!(
            "Address prefix {prefix} of route {name} has invalid CIDR notation. For the given prefix length, the address prefix should be {}.",
            net.trunc()
        );
        return invalid("InvalidCIDRNotation", message);
    }
    let Some(kind) = NEXT_HOPS.iter().find(|known| known.eq_ignore_ascii_case(kind)) else {
        return invalid(
            "InvalidRouteNextHopType",
            format!("Next hop type '{kind}' of route {name} is invalid."),
        );
    };
    match (*kind, hop) {
        ("VirtualAppliance", "") => {
            invalid("NextHopIpAddressIsRequired", format!("Next hop IP address of route {name} is missing."))
        }
        ("VirtualAppliance", hop) if hop.parse::<IpAddr>().is_err() => invalid(
            "InvalidNextHopIpAddress",
            format!("Next hop IP address '{hop}' of route {name} is invalid."),
        ),
        ("VirtualAppliance", hop) => {
            let is_ipv6 = prefix.contains(':');
            if prefix.contains('/') && hop.contains(':') != is_ipv6 {
                let message =
                    format!("The next hop {hop} of route {name} is of another IP version than {prefix}.");
                return invalid("InvalidNextHopIpAddress", message);
            }
            Ok(())
        }
        (_, "") => Ok(()),
        (kind, _) => invalid(
            "NextHopIpAddressNotAllowed",
            format!("Next hop type {kind} of route {name} has no next hop IP address."),
        ),
    }
}
