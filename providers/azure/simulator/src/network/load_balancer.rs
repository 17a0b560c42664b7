//! The rules of load balancers. Pure.

use serde_json::{Value, json};

use super::balancing_rule::{check_probes, check_rules};
use crate::catalog::Kind;
use crate::id::{Id, Key};
use crate::json::{at, default, items, items_mut, object, set, text};
use crate::refusal::Refusal;
use crate::state::{Resource, State};

pub(super) fn invalid(code: &str, message: String) -> Refusal {
    Refusal::network(400, code, message)
}

pub(super) fn normalize(
    state: &State,
    id: &Id,
    body: &mut Value,
    existing: Option<&Resource>,
) -> Result<(), Refusal> {
    let sku = object(body, "sku");
    default(sku, "name", "Basic");
    default(sku, "tier", "Regional");
    for frontend in items_mut(body, "/properties/frontendIPConfigurations") {
        default(object(frontend, "properties"), "privateIPAllocationMethod", "Dynamic");
    }
    for probe in items_mut(body, "/properties/probes") {
        let properties = object(probe, "properties");
        default(properties, "intervalInSeconds", 15);
        default(properties, "numberOfProbes", 1);
        default(properties, "probeThreshold", 1);
        default(properties, "noHealthyBackendsBehavior", "AllProbedDown");
    }
    for rule in items_mut(body, "/properties/loadBalancingRules") {
        let properties = object(rule, "properties");
        default(properties, "idleTimeoutInMinutes", 4);
        default(properties, "enableFloatingIP", false);
        default(properties, "enableTcpReset", false);
        default(properties, "disableOutboundSnat", false);
        default(properties, "loadDistribution", "Default");
    }
    check_caps(state, id, body, existing)?;
    if existing.is_some_and(|existing| text(&existing.body, "/sku/name") != text(body, "/sku/name")) {
        return Err(invalid(
            "LoadBalancerSkuUpdateNotAllowed",
            format!("The sku of load balancer {id} cannot be changed."),
        ));
    }
    check_frontends(state, id, body)?;
    check_probes(body)?;
    check_rules(id, body)?;
    check_pools(state, body)
}

fn check_caps(state: &State, id: &Id, body: &Value, existing: Option<&Resource>) -> Result<(), Refusal> {
    let caps = &state.behavior.caps;
    let is_counted =
        |it: &&Resource| it.kind == Kind::LoadBalancer && it.id.path().subscription == id.path().subscription;
    if existing.is_none() && state.store.all().filter(is_counted).count() >= caps.load_balancers {
        let message = format!(
            "Cannot create more than {} load balancers for this subscription in this region.",
            caps.load_balancers
        );
        return Err(invalid("LoadBalancerCountLimitReached", message));
    }
    for (field, most, code) in [
        ("loadBalancingRules", caps.rules_per_load_balancer, "LoadBalancingRuleCountLimitReached"),
        (
            "frontendIPConfigurations",
            caps.frontends_per_load_balancer,
            "FrontendIPConfigurationCountLimitReached",
        ),
    ] {
        let count = items(body, &format!("/properties/{field}")).len();
        if count > most {
            return Err(invalid(
                code,
                format!("Load balancer {id} has {count} {field}; the limit is {most}."),
            ));
        }
    }
    Ok(())
}

fn check_frontends(state: &State, id: &Id, body: &Value) -> Result<(), Refusal> {
    let mut versions = (false, false);
    let mut kinds = (false, false);
    for frontend in items(body, "/properties/frontendIPConfigurations") {
        let own = format!("{id}/frontendIPConfigurations/{}", text(frontend, "/name"));
        let public = text(frontend, "/properties/publicIPAddress/id");
        let prefix = text(frontend, "/properties/publicIPPrefix/id");
        let subnet = text(frontend, "/properties/subnet/id");
        if [public, prefix, subnet].iter().filter(|it| !it.is_empty()).count() != 1 {
            let message = format!(
                "Frontend IP configuration {own} must reference either a Subnet, PublicIPAddress, or PublicIPPrefix."
            );
            return Err(invalid(
                "LoadBalancerFrontendIPConfigurationMustReferenceSubnetOrPublicIPAddress",
                message,
            ));
        }
        let is_ipv6 = if public.is_empty() {
            text(frontend, "/properties/privateIPAddressVersion") == "IPv6"
        } else {
            check_public_address(state, id, &own, body, public)?
        };
        versions = (versions.0 || !is_ipv6, versions.1 || is_ipv6);
        kinds = (kinds.0 || subnet.is_empty(), kinds.1 || !subnet.is_empty());
    }
    if versions == (false, true) {
        let message = format!(
            "At least one IPv4 frontend ip configuration is required for an IPv6 frontend on load balancer {id}."
        );
        return Err(invalid("AtleastOneIpV4RequiredForIpV6LbFrontendIpConfiguration", message));
    }
    if kinds == (true, true) {
        let message = format!("Load balancer {id} cannot have both public and internal frontends.");
        return Err(invalid("LoadBalancerCannotHaveBothPublicAndInternalFrontendIPConfigurations", message));
    }
    Ok(())
}

/// Checks the public address of a frontend, and returns whether it is of IPv6. One that doesn't exist is found later.
fn check_public_address(
    state: &State,
    id: &Id,
    own: &str,
    body: &Value,
    public: &str,
) -> Result<bool, Refusal> {
    let key = Key::of(public);
    let Some(address) = state.store.get(&key) else { return Ok(false) };
    let (of_balancer, of_address) = (text(body, "/sku/name"), text(&address.body, "/sku/name"));
    if !of_balancer.eq_ignore_ascii_case(of_address) {
        let message = format!(
            "{of_balancer} sku load balancer {id} cannot reference {of_address} sku publicIP {public}."
        );
        return Err(invalid("PublicIPAndLBSkuDoNotMatch", message));
    }
    let other = state.store.users(&key).find(|user| !Key::of(user).is_within(&id.key()));
    if let Some(other) = other {
        let message = format!(
            "Resource {own} is referencing public IP address {public} that is already allocated to resource {other}."
        );
        return Err(invalid("PublicIPAddressInUse", message));
    }
    let same = items(body, "/properties/frontendIPConfigurations");
    let same = same.iter().filter(|it| Key::of(text(it, "/properties/publicIPAddress/id")) == key).count();
    if same > 1 {
        let message = format!(
            "Frontend IP configurations of load balancer {id} reference the same public IP address {public}."
        );
        return Err(invalid("FrontendIPConfigurationsReferenceSamePublicIPAddress", message));
    }
    Ok(text(&address.body, "/properties/publicIPAddressVersion") == "IPv6")
}

fn check_pools(state: &State, body: &Value) -> Result<(), Refusal> {
    let most = state.behavior.caps.members_per_pool;
    for pool in items(body, "/properties/backendAddressPools") {
        let name = text(pool, "/name");
        let members = items(pool, "/properties/loadBalancerBackendAddresses");
        if members.len() > most {
            let message =
                format!("Backend address pool {name} has {} members; the limit is {most}.", members.len());
            return Err(invalid("BackendAddressPoolMemberCountLimitReached", message));
        }
        let mut seen = std::collections::BTreeSet::new();
        for member in members {
            let address = text(member, "/properties/ipAddress");
            let is_placed = [pool, member].iter().any(|it| {
                !at(it, "/properties/virtualNetwork").is_null() || !at(it, "/properties/subnet").is_null()
            });
            if !address.is_empty() && !is_placed {
                let message = format!(
                    "Backend address {} of pool {name} has no virtual network.",
                    text(member, "/name")
                );
                return Err(invalid("BackendAddressMustReferenceVirtualNetwork", message));
            }
            if !seen.insert(text(member, "/name").to_lowercase()) {
                let message = format!(
                    "Pool {name} has two backend addresses with the same name ({}).",
                    text(member, "/name")
                );
                return Err(invalid("InvalidRequestFormat", "Cannot parse the request.".to_owned())
                    .with_detail("DuplicateResourceName", message));
            }
        }
    }
    Ok(())
}

/// Removes from written pools the members that Azure derives from interfaces, and what it fills in for the others.
pub(super) fn clean_pools(properties: &mut Value) {
    for pool in items_mut(properties, "/backendAddressPools") {
        let members = items(pool, "/properties/loadBalancerBackendAddresses").iter();
        let written =
            members.filter(|it| at(it, "/properties/networkInterfaceIPConfiguration").is_null()).cloned();
        let mut written: Vec<_> = written.collect();
        for member in &mut written {
            super::clean_part(member, &[]);
        }
        set(object(pool, "properties"), "loadBalancerBackendAddresses", written);
    }
}

/// Turns the members of pools by interface into members by address.
pub(super) fn migrate(state: &mut State, balancer: &Resource, body: &[u8]) -> Result<(), Refusal> {
    let body: Value = serde_json::from_slice(body).map_err(Refusal::content)?;
    let wanted: Vec<_> = items(&body, "/pools").iter().filter_map(Value::as_str).collect();
    let mut changed = balancer.clone();
    for pool in items_mut(&mut changed.body, "/properties/backendAddressPools") {
        let name = text(pool, "/name").to_owned();
        if !wanted.iter().any(|it| it.eq_ignore_ascii_case(&name)) {
            continue;
        }
        let key = Key::of(&format!("{}/backendAddressPools/{name}", balancer.id));
        let members = state.store.users(&key).filter(|user| super::view::is_member(user));
        let members = members.enumerate().filter_map(|(number, user)| {
            let configuration = at(state.store.part(user)?, "/properties");
            let network = text(configuration, "/subnet/id").split("/subnets/").next().unwrap_or_default();
            Some(json!({"name": format!("{name}-{number}"), "properties": {
                "ipAddress": text(configuration, "/privateIPAddress"), "virtualNetwork": {"id": network},
            }}))
        });
        let members: Vec<_> = members.collect();
        set(object(pool, "properties"), "loadBalancerBackendAddresses", members);
    }
    state.store.insert(changed);
    Ok(())
}
