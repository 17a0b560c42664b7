//! The rules of security groups. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::id::Id;
use crate::json::{at, default, items, items_mut, object, text};
use crate::refusal::Refusal;
use crate::state::State;

pub(super) fn normalize(state: &State, id: &Id, body: &mut Value) -> Result<(), Refusal> {
    let caps = &state.behavior.caps;
    for rule in items_mut(body, "/properties/securityRules") {
        let properties = object(rule, "properties");
        for name in [
            "sourceAddressPrefixes",
            "destinationAddressPrefixes",
            "sourcePortRanges",
            "destinationPortRanges",
        ] {
            default(properties, name, json!([]));
        }
    }
    let rules = items(body, "/properties/securityRules");
    if rules.len() > caps.rules_per_security_group {
        let message = format!(
            "Network security group {id} has {} rules; the limit is {}.",
            rules.len(),
            caps.rules_per_security_group
        );
        return Err(Refusal::network(400, "SecurityRuleCountLimitReached", message));
    }
    for side in ["source", "destination"] {
        let count: usize =
            rules.iter().map(|rule| items(rule, &format!("/properties/{side}AddressPrefixes")).len()).sum();
        if count > caps.prefixes_per_security_group {
            let message = format!(
                "Network security group {id} has {count} {side} prefixes; the limit is {}.",
                caps.prefixes_per_security_group
            );
            return Err(Refusal::network(400, "NetworkSecurityGroupAddressPrefixLimitReached", message));
        }
    }
    let mut priorities = BTreeMap::new();
    for rule in rules {
        let name = text(rule, "/name");
        check_rule(name, rule)?;
        let priority = at(rule, "/properties/priority").as_u64().unwrap_or_default();
        let direction = text(rule, "/properties/direction").to_lowercase();
        if let Some(other) = priorities.insert((direction, priority), name) {
            let message = format!(
                "Security rule {other} conflicts with rule {name}. Rules cannot have the same Priority and Direction. To learn more, \
                 see aka.ms/nsgrules."
            );
            return Err(Refusal::network(400, "SecurityRuleConflict", message));
        }
    }
    Ok(())
}

fn check_rule(name: &str, rule: &Value) -> Result<(), Refusal> {
    let field = |name: &str| at(rule, &format!("/properties/{name}"));
    let invalid = |code: &str, message: String| Err(Refusal::network(400, code, message));
    let priority = field("priority").as_u64().unwrap_or_default();
    if !(100..=4_096).contains(&priority) {
        let message = format!(
            "Security rule {name} has invalid Priority {priority}. Value should be between 100 and 4096."
        );
        return invalid("SecurityRuleInvalidPriority", message);
    }
    let known: [(&str, &[&str]); 3] = [
        ("direction", &["Inbound", "Outbound"]),
        ("access", &["Allow", "Deny"]),
        ("protocol", &["Tcp", "Udp", "Icmp", "Esp", "Ah", "*"]),
    ];
    for (parameter, values) in known {
        let value = field(parameter).as_str().unwrap_or_default();
        if !values.iter().any(|known| known.eq_ignore_ascii_case(value)) {
            let message = format!("Security rule {name} has the invalid value '{value}' of {parameter}.");
            return invalid("SecurityRuleParameterContainsUnsupportedValue", message);
        }
    }
    for side in ["source", "destination"] {
        let one = field(&format!("{side}AddressPrefix")).as_str().unwrap_or_default();
        let many = items(rule, &format!("/properties/{side}AddressPrefixes")).len();
        let groups = items(rule, &format!("/properties/{side}ApplicationSecurityGroups")).len();
        let given = [!one.is_empty(), many > 0, groups > 0].iter().filter(|is_given| **is_given).count();
        if given != 1 {
            let message = format!(
                "Security rule {name} needs exactly one of {side}AddressPrefix, {side}AddressPrefixes and \
                 {side}ApplicationSecurityGroups."
            );
            return invalid("SecurityRuleInvalidAddressPrefix", message);
        }
        let one = field(&format!("{side}PortRange")).as_str().unwrap_or_default();
        let many = items(rule, &format!("/properties/{side}PortRanges"));
        let all = many.iter().filter_map(Value::as_str).chain(Some(one).filter(|one| !one.is_empty()));
        let all: Vec<_> = all.collect();
        if let Some(range) = all.iter().find(|range| !is_port_range(range)) {
            let message = format!(
                "Security rule {name} has invalid Port range. Value provided: {range}. Value should be an integer OR integer range with '-' delimiter. Valid range 0-65535."
            );
            return invalid("SecurityRuleInvalidPortRange", message);
        }
        if all.is_empty() || (!one.is_empty() && !many.is_empty()) {
            let message =
                format!("Security rule {name} needs exactly one of {side}PortRange and {side}PortRanges.");
            return invalid("SecurityRuleInvalidPortRange", message);
        }
    }
    Ok(())
}

fn is_port_range(text: &str) -> bool {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let ports = from.parse::<u16>().ok().zip(to.parse::<u16>().ok());
    text == "*" || ports.is_some_and(|(from, to)| from <= to)
}

/// The rules that each group has, in the state of the group.
pub(super) fn default_rules(state: &str) -> Vec<Value> {
    let rules = [
        (
            "AllowVnetInBound",
            "Inbound",
            65_000,
            "Allow",
            "VirtualNetwork",
            "VirtualNetwork",
            "inbound traffic from all VMs in VNET",
        ),
        (
            "AllowAzureLoadBalancerInBound",
            "Inbound",
            65_001,
            "Allow",
            "AzureLoadBalancer",
            "*",
            "inbound traffic from azure load balancer",
        ),
        ("DenyAllInBound", "Inbound", 65_500, "Deny", "*", "*", "all inbound traffic"),
        (
            "AllowVnetOutBound",
            "Outbound",
            65_000,
            "Allow",
            "VirtualNetwork",
            "VirtualNetwork",
            "outbound traffic from all VMs to all VMs in VNET",
        ),
        (
            "AllowInternetOutBound",
            "Outbound",
            65_001,
            "Allow",
            "*",
            "Internet",
            "outbound traffic from all VMs to Internet",
        ),
        ("DenyAllOutBound", "Outbound", 65_500, "Deny", "*", "*", "all outbound traffic"),
    ];
    let view = |(name, direction, priority, access, from, to, what): (
        &str,
        &str,
        u32,
        &str,
        &str,
        &str,
        &str,
    )| {
        json!({"name": name, "properties": {
            "provisioningState": state, "description": format!("{access} {what}"), "protocol": "*", "sourcePortRange": "*",
            "destinationPortRange": "*", "sourceAddressPrefix": from, "destinationAddressPrefix": to, "access": access,
            "priority": priority, "direction": direction, "sourcePortRanges": [], "destinationPortRanges": [],
            "sourceAddressPrefixes": [], "destinationAddressPrefixes": [],
        }})
    };
    rules.into_iter().map(view).collect()
}
