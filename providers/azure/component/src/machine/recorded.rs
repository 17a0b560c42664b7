//! Lists and resources as Azure's resource manager really sends them.

use pileus_guest::http::Source;
use pileus_guest::testing::{Host, get};
use serde::de::DeserializeOwned;

use super::address::{NetworkInterface, PublicAddress, Published};
use super::provider_id::MachineId;
use super::sweep::ScaleSet;
use super::{Answer, CREATING, Machine};
use crate::arm::list;
use crate::recordings;

const URL: &str = "https://management.azure.com/list?api-version=1";

/// The items of a recorded list, read as any list is.
fn items<T: DeserializeOwned>(place: &str) -> Vec<T> {
    let host = Host::new().exchange(get(URL).json(recordings::read(place).body));
    let (items, end) = host.run(list(URL.to_owned(), Source::Cloud));
    assert_eq!(end, Ok(()), "{place}");
    items
}

/// A recorded resource.
fn one<T: DeserializeOwned>(place: &str) -> T {
    serde_json::from_value(recordings::read(place).body).unwrap()
}

const SETS: &str = "aks-cit-VirtualMachineScaleSet/providers/Microsoft.Compute/virtualMachineScaleSets";
const INSTANCES: &str = "aks-cit-VirtualMachineScaleSetVM/providers/Microsoft.Compute/virtualMachineScaleSets/testParentResource/virtualMachines";
const MACHINES: &str = "aks-cit-VirtualMachine/providers/Microsoft.Compute/virtualMachines";
const INTERFACES: &str = "aks-cit-Interface/providers/Microsoft.Network/networkInterfaces";
const ADDRESSES: &str = "aks-cit-PublicIPAddress/providers/Microsoft.Network/publicIPAddresses";

#[test]
fn recorded_scale_sets_are_read() {
    let [set] = items::<ScaleSet>(SETS).try_into().unwrap();
    assert_eq!((&*set.name, set.is_uniform(), set.prefix()), ("testResource", true, "vmss"));
}

#[test]
fn recorded_machines_are_read() {
    let interface = one::<NetworkInterface>(&format!("{INTERFACES}/testResource"));
    let rows = [
        (INSTANCES, "0", "vmss000000", "Standard_D2s_v3"),
        (MACHINES, "testResource", "sample-compute", "Standard_D2s_v3"),
    ];
    for (place, name, computer, size) in rows {
        let listed = items::<Machine>(place).into_iter().last().unwrap();
        for machine in [listed, one(&format!("{place}/{name}"))] {
            let id = MachineId::of(&machine.id).unwrap();
            assert_eq!((&*id.name, id.set.is_some()), (name, place == INSTANCES));
            assert_eq!(machine.computer_name().as_deref(), Some(computer));
            assert_eq!((machine.provisioning_state(), machine.interface_ids().len()), (Some("Succeeded"), 1));
            let answer = machine.answer(&id, Some(&interface), &Published::new());
            let Answer::Found(found) = answer else { panic!("{answer:?}") };
            assert_eq!(
                (found.instance_type.as_deref(), found.region.as_deref()),
                (Some(size), Some("eastus2"))
            );
            assert_eq!(machine.answer(&id, None, &Published::new()), Answer::Pending(CREATING));
        }
    }
}

#[test]
fn recorded_interfaces_and_public_addresses_are_read() {
    let listed = items::<NetworkInterface>(INTERFACES).remove(0);
    for interface in [listed, one(&format!("{INTERFACES}/testResource"))] {
        let addresses = interface.addresses("node", &Published::new()).unwrap();
        let values: Vec<_> = addresses.iter().map(|it| &*it.value).collect();
        // It is of no machine, and so not the primary one of any.
        assert_eq!((values, interface.is_primary()), (vec!["10.0.0.4", "node"], None));
    }
    // One of dynamic allocation has no address until it is used.
    let listed = items::<PublicAddress>(ADDRESSES).remove(0);
    for address in [listed, one(&format!("{ADDRESSES}/testResource"))] {
        assert!(address.id.ends_with("/publicIPAddresses/testResource"));
        assert_eq!(address.address(), None);
    }
}
