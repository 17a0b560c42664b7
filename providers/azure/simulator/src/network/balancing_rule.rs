//! The rules and probes of load balancers. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::load_balancer::invalid;
use crate::id::Id;
use crate::json::{at, items, text};
use crate::refusal::Refusal;

pub(super) fn check_probes(body: &Value) -> Result<(), Refusal> {
    for probe in items(body, "/properties/probes") {
        let name = text(probe, "/name");
        let protocol = text(probe, "/properties/protocol").to_lowercase();
        let port = at(probe, "/properties/port").as_u64().unwrap_or_default();
        let interval = at(probe, "/properties/intervalInSeconds").as_u64().unwrap_or_default();
        let path = text(probe, "/properties/requestPath");
        if !["tcp", "http", "https"].contains(&protocol.as_str()) {
            return Err(invalid(
                "LoadBalancerProbeProtocolInvalid",
                format!("Probe {name} has the invalid protocol '{protocol}'."),
            ));
        }
        if !(1..=65_535).contains(&port) {
            return Err(invalid(
                "LoadBalancerProbePortInvalid",
                format!("Probe {name} has the invalid port {port}."),
            ));
        }
        if interval < 5 {
            let message =
                format!("Probe {name} has the invalid interval {interval}: at least 5 seconds are needed.");
            return Err(invalid("LoadBalancerProbeIntervalInvalid", message));
        }
        if (protocol == "tcp") != path.is_empty() {
            let message = format!(
                "Probe {name}: a request path is required for HTTP and HTTPS and not allowed for TCP."
            );
            return Err(invalid("LoadBalancerProbeRequestPathInvalid", message));
        }
    }
    Ok(())
}

pub(super) fn check_rules(id: &Id, body: &Value) -> Result<(), Refusal> {
    let (mut frontends, mut backends) = (BTreeMap::new(), BTreeMap::new());
    let is_internal = items(body, "/properties/frontendIPConfigurations")
        .iter()
        .any(|it| !at(it, "/properties/subnet").is_null());
    for rule in items(body, "/properties/loadBalancingRules") {
        let name = text(rule, "/name");
        let field = |name: &str| at(rule, &format!("/properties/{name}"));
        let protocol = field("protocol").as_str().unwrap_or_default().to_lowercase();
        let (front, back) = (field("frontendPort").as_u64(), field("backendPort").as_u64());
        check_rule(name, rule, &protocol, is_internal)?;
        let frontend = text(rule, "/properties/frontendIPConfiguration/id").to_lowercase();
        if frontend.is_empty() {
            return Err(invalid(
                "LoadBalancingRuleMustReferenceFrontend",
                format!("Rule {name} has no frontend."),
            ));
        }
        if let Some(other) = frontends.insert((frontend, protocol.clone(), front), name) {
            let message = format!(
                "Load balancing rules {id}/loadBalancingRules/{other} and {id}/loadBalancingRules/{name} belong to the same frontend and use the same protocol and frontend port."
            );
            return Err(invalid("RulesUseSameFrontendPortProtocolAndIPConfig", message));
        }
        let is_floating = field("enableFloatingIP").as_bool().unwrap_or_default();
        let pool = text(rule, "/properties/backendAddressPool/id").to_lowercase();
        if !is_floating
            && !pool.is_empty()
            && let Some(other) = backends.insert((pool.clone(), protocol, back), name)
        {
            let message = format!(
                "Load balancing rules {id}/loadBalancingRules/{other} and {id}/loadBalancingRules/{name} with floating IP disabled use \
                 the same protocol and backend port, and must not be used with the same backend address pool {pool}."
            );
            return Err(invalid("RulesUseSameBackendPortProtocolAndPool", message));
        }
    }
    Ok(())
}

/// Checks a rule by itself.
fn check_rule(name: &str, rule: &Value, protocol: &str, is_internal: bool) -> Result<(), Refusal> {
    let field = |name: &str| at(rule, &format!("/properties/{name}"));
    let (front, back) = (field("frontendPort").as_u64(), field("backendPort").as_u64());
    if !["tcp", "udp", "all"].contains(&protocol) {
        return Err(invalid(
            "LoadBalancingRuleProtocolInvalid",
            format!("Rule {name} has the invalid protocol '{protocol}'."),
        ));
    }
    let allowed = if protocol == "all" { 0..=0 } else { 1..=65_534 };
    if !front.is_some_and(|port| allowed.contains(&port)) || !back.is_some_and(|port| allowed.contains(&port))
    {
        let message = format!("Rule {name} has invalid ports {front:?} and {back:?}.");
        return Err(invalid("LoadBalancingRulePortInvalid", message));
    }
    if protocol == "all" && !is_internal {
        let message =
            format!("Rule {name} has protocol All, which only internal load balancers of sku Standard have.");
        return Err(invalid("LoadBalancingRuleProtocolAllNotSupported", message));
    }
    if !(4..=100).contains(&field("idleTimeoutInMinutes").as_u64().unwrap_or_default()) {
        return Err(invalid(
            "LoadBalancingRuleIdleTimeoutInvalid",
            format!("Rule {name}: the idle timeout has to be from 4 to 100 minutes."),
        ));
    }
    Ok(())
}
