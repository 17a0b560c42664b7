//! Machines of the simulated cloud, and Nodes that are already initialized from them. A test of later changes thus needn't
//! wait until thousands of Nodes are initialized.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeAddress;
use serde::Deserialize;

use super::{Kubelet, node};

/// The prefix of the simulated cloud's provider IDs.
const SCHEME: &str = "simulated://";

/// A machine of the simulated cloud, read from its API.
#[derive(Clone, Debug, Deserialize)]
pub struct Machine {
    /// The ID, such as `m-000001`.
    pub id: String,
    /// The name, which is also the name of the Node.
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
    /// The type of address in a Node's status.
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

/// Builds a Node for which a cloud-controller-manager has nothing left to do: ready, without the taint, and with provider
/// ID, addresses and labels of its machine.
pub fn settled(machine: &Machine) -> Kubelet {
    let mut kubelet = node(&machine.name).provider_id(&format!("{SCHEME}{}", machine.id)).initialized();
    let address = |Address { kind, value }: &Address| NodeAddress {
        type_: kind.name().to_owned(),
        address: value.clone(),
    };
    kubelet.status().addresses = Some(machine.addresses.iter().map(address).collect());
    let Machine { instance_type, zone, region, labels, .. } = machine;
    // The current and the deprecated key of each label. Pileus writes both.
    let cloud = [
        ("node.kubernetes.io/instance-type", instance_type),
        ("beta.kubernetes.io/instance-type", instance_type),
        ("topology.kubernetes.io/zone", zone),
        ("failure-domain.beta.kubernetes.io/zone", zone),
        ("topology.kubernetes.io/region", region),
        ("failure-domain.beta.kubernetes.io/region", region),
    ];
    let labels = labels.iter().map(|(key, value)| (key.as_str(), value)).chain(cloud);
    labels.fold(kubelet, |kubelet, (key, value)| kubelet.label(key, value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::nodes::UNINITIALIZED;

    #[test]
    fn a_settled_node_has_the_data_of_its_machine() {
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
