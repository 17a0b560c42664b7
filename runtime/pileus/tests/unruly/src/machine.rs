//! A machine as the simulated cloud tells it, as far as it matters here.

use pileus_guest::{Address, AddressKind, Instance, State};
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Page {
    pub(crate) machines: Vec<Machine>,
    pub(crate) next: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) name: String,
    zone: String,
    addresses: Vec<Told>,
}

#[derive(Deserialize)]
struct Told {
    kind: String,
    value: String,
}

impl Machine {
    pub(crate) fn into_instance(self, scheme: &str) -> Instance {
        let internal = |told: &Told| told.kind == "internal-ip";
        let address = |told: Told| Address { kind: AddressKind::InternalIp, value: told.value };
        Instance {
            provider_id: format!("{scheme}://{}", self.id),
            zone: Some(self.zone),
            addresses: self.addresses.into_iter().filter(internal).map(address).collect(),
            state: State::Running,
            ..Instance::default()
        }
    }
}
