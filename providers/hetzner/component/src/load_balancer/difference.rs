//! What has to change so that a load balancer is as its Service asks for: pure. The cloud makes each change by itself.

use serde_json::{Value, json};

use super::LoadBalancer;
use super::UID;
use super::spec::{Spec, Target};

/// A change of a load balancer.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    /// Its name and labels.
    Update(Value),
    /// An action, and its body.
    Action(&'static str, Value),
}

impl LoadBalancer {
    /// The changes, in their order. Labels of ours alone are no reason for a change: what hcloud-cloud-controller-manager has
    /// made is served as it is, and gets them with the first change that is needed anyway.
    pub(super) fn changes(&self, spec: &Spec<'_>) -> Vec<Change> {
        let mut changes = self.changes_of_network(spec);
        if changes.is_empty() {
            changes = self.changes_of_traffic(spec);
        }
        let renamed = spec.options.text("name").filter(|name| *name != self.name);
        let is_labeled = spec.labels.iter().all(|(key, value)| self.labels.get(key) == Some(value));
        let is_found = self.labels.get(UID) == spec.labels.get(UID);
        if renamed.is_some() || !is_found || !changes.is_empty() && !is_labeled {
            let mut labels = self.labels.clone();
            labels.extend(spec.labels.clone());
            let name = renamed.as_ref().unwrap_or(&self.name);
            changes.insert(0, Change::Update(json!({"name": name, "labels": labels})));
        }
        changes
    }

    /// The cloud removes private targets together with the network, so what else differs is computed after these.
    fn changes_of_network(&self, spec: &Spec<'_>) -> Vec<Change> {
        let ip = spec.options.text("private-ipv4");
        let (stay, leave): (Vec<_>, Vec<_>) = self
            .private_net
            .iter()
            .partition(|net| Some(net.network) == spec.network && ip.as_ref().is_none_or(|ip| *ip == net.ip));
        let detach = |network| Change::Action("detach_from_network", json!({"network": network}));
        let mut changes: Vec<_> = leave.into_iter().map(|net| detach(net.network)).collect();
        if let (Some(network), true) = (spec.network, stay.is_empty()) {
            let mut body = json!({"network": network});
            for (field, value) in [("ip", ip), ("ip_range", spec.options.text("private-subnet-ip-range"))] {
                body.as_object_mut()
                    .zip(value)
                    .map(|(fields, value)| fields.insert(field.to_owned(), json!(value)));
            }
            changes.push(Change::Action("attach_to_network", body));
        }
        changes
    }

    fn changes_of_traffic(&self, spec: &Spec<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, address) in [("ipv4-rdns", &self.public_net.ipv4), ("ipv6-rdns", &self.public_net.ipv6)] {
            if let Some(pointer) =
                spec.options.text(name).filter(|name| address.dns_ptr.as_ref() != Some(name))
            {
                changes.push(Change::Action("change_dns_ptr", json!({"ip": address.ip, "dns_ptr": pointer})));
            }
        }
        if let Some(algorithm) =
            spec.options.keyword("algorithm-type").filter(|it| *it != self.algorithm.r#type)
        {
            changes.push(Change::Action("change_algorithm", json!({"type": algorithm})));
        }
        if let Some(kind) = spec.options.text("type").filter(|it| *it != self.kind.name) {
            changes.push(Change::Action("change_type", json!({"load_balancer_type": kind})));
        }
        let is_disabled = spec.options.flag("disable-public-network");
        if is_disabled == Some(false) && !self.public_net.enabled {
            changes.push(Change::Action("enable_public_interface", json!({})));
        }
        self.add_changes_of_services(spec, &mut changes);
        self.add_changes_of_targets(spec, &mut changes);
        // The last, because it needs targets with private addresses.
        if is_disabled == Some(true) && self.public_net.enabled {
            changes.push(Change::Action("disable_public_interface", json!({})));
        }
        changes
    }

    /// Removals come first, because a type of load balancer allows so many services.
    fn add_changes_of_services(&self, spec: &Spec<'_>, changes: &mut Vec<Change>) {
        for service in &self.services {
            let port = &service["listen_port"];
            if !spec.listeners.iter().any(|listener| *port == listener.port) {
                changes.push(Change::Action("delete_service", json!({"listen_port": port})));
            }
        }
        for listener in &spec.listeners {
            match self.services.iter().find(|service| service["listen_port"] == listener.port) {
                None => changes.push(Change::Action("add_service", listener.body.clone())),
                Some(service)
                    if is_part(&listener.body, service) || is_part(&listener.inherited, service) => {}
                Some(_) => changes.push(Change::Action("update_service", listener.body.clone())),
            }
        }
    }

    /// Removals come first, because a type of load balancer allows so many targets. What has no room is left out.
    fn add_changes_of_targets(&self, spec: &Spec<'_>, changes: &mut Vec<Change>) {
        let is_unwanted = |target: &&Target| **target != Target::Other && !spec.targets.contains(target);
        let mut count = self.targets.len();
        let mut missing: Vec<_> =
            spec.targets.iter().filter(|target| !self.targets.contains(target)).collect();
        for target in self.targets.iter().filter(is_unwanted) {
            changes.push(Change::Action("remove_target", target.removal()));
            match target.twin().and_then(|twin| missing.iter().position(|it| **it == twin)) {
                Some(twin) => changes.push(Change::Action("add_target", json!(missing.remove(twin)))),
                None => count -= 1,
            }
        }
        let room = self.kind.max_targets.saturating_sub(count);
        changes
            .extend(missing.into_iter().take(room).map(|target| Change::Action("add_target", json!(target))));
    }
}

/// Whether the cloud's value has all that is wanted. It may have more.
fn is_part(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            wanted.iter().all(|(name, value)| found.get(name).is_some_and(|found| is_part(value, found)))
        }
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len() && wanted.iter().all(|value| found.contains(value))
        }
        (wanted, found) => wanted == found,
    }
}
