//! A machine as the simulated cloud's API speaks of it, and what Pileus calls its parts. Fields that nobody needs are
//! left out; states and kinds of addresses that this version doesn't know are errors rather than guesses.

use std::collections::BTreeMap;

use pileus_guest::{Address, AddressKind, Instance};
use serde::Deserialize;

/// One page of a list of machines.
#[derive(Deserialize)]
pub(crate) struct Page {
    pub(crate) machines: Vec<Machine>,
    /// Where the next page starts; none on the last one.
    pub(crate) next: Option<String>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) state: State,
    r#type: Option<String>,
    zone: Option<String>,
    region: Option<String>,
    #[serde(default)]
    addresses: Vec<MachineAddress>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    Creating,
    Running,
    Stopped,
}

#[derive(Clone, Deserialize)]
struct MachineAddress {
    kind: Kind,
    value: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Hostname,
    InternalIp,
    ExternalIp,
    InternalDns,
    ExternalDns,
}

impl Machine {
    /// The machine in Pileus' words.
    pub(crate) fn into_instance(self, scheme: &str, state: pileus_guest::State) -> Instance {
        Instance {
            provider_id: format!("{scheme}://{}", self.id),
            instance_type: self.r#type,
            zone: self.zone,
            region: self.region,
            addresses: self.addresses.into_iter().map(Address::from).collect(),
            labels: self.labels.into_iter().collect(),
            state,
            ..Instance::default()
        }
    }
}

impl From<MachineAddress> for Address {
    fn from(MachineAddress { kind, value }: MachineAddress) -> Self {
        let kind = match kind {
            Kind::Hostname => AddressKind::Hostname,
            Kind::InternalIp => AddressKind::InternalIp,
            Kind::ExternalIp => AddressKind::ExternalIp,
            Kind::InternalDns => AddressKind::InternalDns,
            Kind::ExternalDns => AddressKind::ExternalDns,
        };
        Self { kind, value }
    }
}
