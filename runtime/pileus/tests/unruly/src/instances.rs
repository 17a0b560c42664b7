//! An instance, as the simulated cloud lists it.

use pileus_guest::{Address, AddressKind, Instance, InstanceState};
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
    addresses: Vec<MachineAddress>,
}

#[derive(Deserialize)]
struct MachineAddress {
    kind: String,
    value: String,
}

impl Machine {
    pub(crate) fn into_instance(self, scheme: &str) -> Instance {
        let internal = |address: &MachineAddress| address.kind == "internal-ip";
        let address =
            |address: MachineAddress| Address { kind: AddressKind::InternalIp, value: address.value };
        Instance {
            provider_id: format!("{scheme}://{}", self.id),
            zone: Some(self.zone),
            addresses: self.addresses.into_iter().filter(internal).map(address).collect(),
            state: InstanceState::Running,
            ..Instance::default()
        }
    }
}
