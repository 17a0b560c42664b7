//! The machine behind a Node, as the simulated cloud shows it, and a Node that has everything of its machine already: so
//! that a test of what comes later needn't wait for thousands of Nodes to be initialised.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeAddress;
use serde::Deserialize;

use super::{Kubelet, node};

/// What provider IDs of the simulated cloud start with.
const SCHEME: &str = "simulated://";

/// A machine of the simulated cloud, read from its API.
#[derive(Clone, Debug, Deserialize)]
pub struct Machine {
    /// Its id, `m-000001`.
    pub id: String,
    /// Its name, which is that of its Node.
    pub name: String,
    #[serde(rename = "type")]
    instance_type: String,
    zone: String,
    region: String,
    addresses: Vec<Address>,
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Address {
    kind: Kind,
    value: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Hostname,
    InternalIp,
    ExternalIp,
    InternalDns,
    ExternalDns,
}

impl Kind {
    /// As Kubernetes writes it.
    fn name(self) -> &'static str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
        }
    }
}

/// Starts a Node that a cloud-controller-manager has nothing left to do for: with provider ID, addresses and labels of
/// its machine, ready, without the taint.
pub fn settled(machine: &Machine) -> Kubelet {
    let mut kubelet = node(&machine.name).provider_id(&format!("{SCHEME}{}", machine.id)).initialised();
    let address = |Address { kind, value }: &Address| NodeAddress {
        type_: kind.name().to_owned(),
        address: value.clone(),
    };
    kubelet.status().addresses = Some(machine.addresses.iter().map(address).collect());
    let Machine { instance_type, zone, region, labels, .. } = machine;
    // The current key of each label and the one from before 1.17, both of which Pileus writes.
    let told = [
        ("node.kubernetes.io/instance-type", instance_type),
        ("beta.kubernetes.io/instance-type", instance_type),
        ("topology.kubernetes.io/zone", zone),
        ("failure-domain.beta.kubernetes.io/zone", zone),
        ("topology.kubernetes.io/region", region),
        ("failure-domain.beta.kubernetes.io/region", region),
    ];
    let labels = labels.iter().map(|(key, value)| (key.as_str(), value)).chain(told);
    labels.fold(kubelet, |kubelet, (key, value)| kubelet.label(key, value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::nodes::UNINITIALIZED;

    #[test]
    fn a_settled_node_has_what_its_machine_has() {
        let machine = json!({
            "id": "m-000007", "name": "node-7", "type": "small-2", "zone": "sim-1a", "region": "sim-1",
            "addresses": [{"kind": "internal-ip", "value": "10.0.0.7"}, {"kind": "hostname", "value": "node-7"}],
            "state": "running", "labels": {"rack": "7"}, "createdAt": "2026-11-28T12:00:00Z",
        });
        let node = settled(&serde_json::from_value(machine).unwrap()).build();
        let spec = node.spec.unwrap();
        assert_eq!(spec.provider_id.as_deref(), Some("simulated://m-000007"));
        assert!(spec.taints.into_iter().flatten().all(|taint| taint.key != UNINITIALIZED));
        let labels = node.metadata.labels.unwrap();
        assert_eq!((&labels["topology.kubernetes.io/zone"][..], &labels["rack"][..]), ("sim-1a", "7"));
        let addresses = node.status.unwrap().addresses.unwrap();
        let addresses: Vec<_> = addresses.iter().map(|it| (&it.type_[..], &it.address[..])).collect();
        assert_eq!(addresses, [("InternalIP", "10.0.0.7"), ("Hostname", "node-7")]);
    }
}
