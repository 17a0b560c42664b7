//! Machines of all kinds, and what happens to them.

use serde_json::{Value, json};

use super::super::*;
use super::fixture::{Fixture, code, id, seconds};
use crate::seed::{Arrangement, NewNodes};

fn nodes(arrangement: Arrangement, count: u32) -> NewNodes {
    NewNodes { arrangement, count, dual_stack: true, public_addresses: true, ..NewNodes::default() }
}

fn command(it: &mut Fixture, value: Value) {
    let command: MachineCommand = serde_json::from_value(value).unwrap();
    it.state.command(it.now, &command).unwrap();
}

#[test]
fn a_uniform_scale_set_has_machines_with_interfaces_and_addresses_as_lists() {
    let (mut it, names) = Fixture::nodes(nodes(Arrangement::Uniform, 40));
    assert_eq!((names[0].as_str(), names[37].as_str()), ("aks-nodes0-vmss000000", "aks-nodes0-vmss000011"));
    let base = "virtualMachineScaleSets/aks-nodes0-vmss";
    let (machines, _) = it.list(&format!("{base}/virtualMachines?$expand=instanceView"));
    assert_eq!(machines.len(), 40);
    let machine = it.get(&format!("{base}/virtualMachines/4?$expand=instanceView")).body.unwrap();
    assert_eq!(
        (machine["name"].as_str(), machine["instanceId"].as_str()),
        (Some("aks-nodes0-vmss_4"), Some("4"))
    );
    assert_eq!(
        (machine["zones"][0].as_str(), machine["sku"]["name"].as_str()),
        (Some("2"), Some("Standard_D4s_v5"))
    );
    let properties = &machine["properties"];
    assert_eq!(properties["osProfile"]["computerName"], "aks-nodes0-vmss000004");
    assert_eq!(properties["instanceView"]["statuses"][1]["code"], "PowerState/running");
    let interface = format!("{}/virtualMachines/4/networkInterfaces/aks-nodes0-vmss", id(base));
    assert_eq!(properties["networkProfile"]["networkInterfaces"][0]["id"], interface);
    let configuration = &properties["networkProfileConfiguration"]["networkInterfaceConfigurations"][0]["properties"]
        ["ipConfigurations"][0];
    assert!(
        configuration["properties"].get("privateIPAddress").is_none(),
        "the machine itself has no addresses: {configuration}"
    );

    let (interfaces, _) = it.list(&format!("{base}/networkInterfaces?api-version=2018-10-01"));
    assert_eq!((interfaces.len(), interfaces[4]["id"].as_str()), (40, Some(interface.as_str())));
    let configurations = interfaces[4]["properties"]["ipConfigurations"].as_array().unwrap();
    let addresses: Vec<_> =
        configurations.iter().map(|it| it["properties"]["privateIPAddress"].as_str().unwrap()).collect();
    assert_eq!(addresses, ["10.224.0.8", "fd12:3456:789a::8"]);
    assert_eq!(
        interfaces[4]["properties"]["virtualMachine"]["id"],
        format!("{}/virtualMachines/4", id(base))
    );
    let public = configurations[0]["properties"]["publicIPAddress"]["id"].as_str().unwrap();
    let (all, _) = it.list(&format!("{base}/publicIPAddresses?api-version=2018-10-01"));
    assert_eq!((all.len(), all[4]["id"].as_str()), (40, Some(public)));
    let one = it.get(&format!("{public}?api-version=2018-10-01")).body.unwrap();
    assert_eq!(one, all[4]);
    let one = it.get(&format!("{interface}?api-version=2018-10-01")).body.unwrap();
    assert_eq!(one, interfaces[4]);
}

#[test]
fn a_flexible_scale_set_has_ordinary_machines_that_a_filter_finds() {
    let (mut it, names) = Fixture::nodes(NewNodes { sets: 2, ..nodes(Arrangement::Flexible, 5) });
    assert_eq!(names[0], "aks-nodes0-flex000000");
    let set = id("virtualMachineScaleSets/aks-nodes0-flex");
    let filter = format!("virtualMachines?$filter='virtualMachineScaleSet/id' eq '{}'", set.to_uppercase());
    let (machines, _) = it.list(&format!("{filter}&$expand=instanceView"));
    assert_eq!(machines.len(), 3);
    assert_eq!(
        (machines[0]["name"].as_str(), &machines[0]["properties"]["virtualMachineScaleSet"]),
        (Some("aks-nodes0-flex_00000000"), &json!({"id": set}))
    );
    assert_eq!(it.list("virtualMachines").0.len(), 5);
    assert!(it.list(&filter).0[0]["properties"].get("instanceView").is_none());
    for rest in ["virtualMachines", "networkInterfaces?api-version=2018-10-01"] {
        assert_eq!(
            code(&it.get(&format!("virtualMachineScaleSets/aks-nodes0-flex/{rest}"))),
            "400 OperationNotAllowed"
        );
    }
    assert_eq!(code(&it.get("virtualMachines?$filter=name eq 'x'")), "400 InvalidParameter");
    let interface =
        machines[0]["properties"]["networkProfile"]["networkInterfaces"][0]["id"].as_str().unwrap();
    let interface = it.get(&format!("{interface}?api-version=2025-05-01")).body.unwrap();
    assert_eq!(interface["properties"]["virtualMachine"]["id"], machines[0]["id"]);
    assert_eq!(
        interface["properties"]["ipConfigurations"][1]["properties"]["privateIPAddressVersion"],
        "IPv6"
    );
    let public = interface["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"]["id"]
        .as_str()
        .unwrap();
    let public = it.get(&format!("{public}?api-version=2025-05-01")).body.unwrap();
    assert_eq!(
        public["properties"]["ipConfiguration"]["id"],
        interface["properties"]["ipConfigurations"][0]["id"]
    );
}

#[test]
fn machines_of_availability_sets_have_fault_domains_and_their_set_names_them() {
    let (mut it, _) = Fixture::nodes(nodes(Arrangement::AvailabilitySets, 3));
    let set = it.get("availabilitySets/aks-nodes0-as").body.unwrap();
    assert_eq!(set["properties"]["virtualMachines"].as_array().unwrap().len(), 3);
    assert!(set.get("etag").is_none() && set["properties"].get("provisioningState").is_none(), "{set}");
    let view = it.get("virtualMachines/aks-nodes0-as000001/instanceView").body.unwrap();
    assert_eq!(view["platformFaultDomain"], 1);
    let machine = it.get("virtualMachines/aks-nodes0-as000001").body.unwrap();
    assert!(
        machine.get("zones").is_none() && machine["properties"].get("instanceView").is_none(),
        "{machine}"
    );
    assert_eq!(code(&it.delete("availabilitySets/aks-nodes0-as")), "409 OperationNotAllowed");
}

#[test]
fn an_operator_stops_hides_moves_and_fails_machines_of_both_kinds() {
    let standalone = (Arrangement::Standalone, "virtualMachines/aks-nodes-vm0000001".to_owned());
    let uniform =
        (Arrangement::Uniform, "virtualMachineScaleSets/aks-nodes0-vmss/virtualMachines/1".to_owned());
    for (arrangement, path) in [standalone, uniform] {
        let (mut it, names) = Fixture::nodes(nodes(arrangement, 2));
        let rows = [
            ("stop", "Succeeded", json!(["ProvisioningState/succeeded", "PowerState/stopped"])),
            ("deallocate", "Succeeded", json!(["ProvisioningState/succeeded", "PowerState/deallocated"])),
            ("hide", "Succeeded", json!(["ProvisioningState/succeeded"])),
            ("fail", "Failed", json!(["ProvisioningState/failed"])),
            ("start", "Succeeded", json!(["ProvisioningState/succeeded", "PowerState/running"])),
            ("reimage", "Updating", json!(["ProvisioningState/updating"])),
            ("start", "Succeeded", json!(["ProvisioningState/succeeded", "PowerState/running"])),
            ("deleting", "Deleting", json!([])),
        ];
        for (action, state, statuses) in rows {
            command(&mut it, json!({"machines": [names[1]], "action": action}));
            let shown = it.get(&format!("{path}?$expand=instanceView")).body.unwrap();
            assert_eq!(shown["properties"]["provisioningState"], state, "{action}");
            let codes: Vec<_> = shown["properties"]["instanceView"]["statuses"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["code"].clone())
                .collect();
            assert_eq!(json!(codes), statuses, "{action}");
        }
        command(&mut it, json!({"machines": [names[1]], "action": "move", "zone": "3", "faultDomain": 4}));
        let moved = it.get(&format!("{path}?$expand=instanceView")).body.unwrap();
        assert_eq!(
            (moved["zones"].clone(), moved["properties"]["instanceView"]["platformFaultDomain"].clone()),
            (json!(["3"]), json!(4))
        );
        command(&mut it, json!({"machines": [names[1]], "action": "delete"}));
        assert_eq!(it.get(&path).status, 404);
        let gone: MachineCommand =
            serde_json::from_value(json!({"machines": [names[1]], "action": "stop"})).unwrap();
        assert_eq!(it.state.command(it.now, &gone).unwrap_err().status, 404);
    }
}

#[test]
fn a_reimaging_ends_after_its_time() {
    let (mut it, names) = Fixture::nodes(nodes(Arrangement::Uniform, 1));
    command(&mut it, json!({"machines": [names[0]], "action": "reimage", "takesMs": 5_000}));
    let view = "virtualMachineScaleSets/aks-nodes0-vmss/virtualMachines/0/instanceView";
    assert_eq!(it.get(view).body.unwrap()["statuses"].as_array().unwrap().len(), 1);
    it.now = seconds(5);
    assert_eq!(it.get(view).body.unwrap()["statuses"][1]["code"], "PowerState/running");
}

#[test]
fn a_machine_that_is_created_again_has_its_name_and_another_identity() {
    for arrangement in [Arrangement::Uniform, Arrangement::Standalone] {
        let (mut it, names) = Fixture::nodes(nodes(arrangement, 2));
        let find = |it: &Fixture| {
            it.state.machine(&names[1]).map(|it| (it.id.clone(), it.machine.clone().unwrap().id)).unwrap()
        };
        let before = find(&it);
        command(&mut it, json!({"machines": [names[1]], "action": "recreate"}));
        let after = find(&it);
        assert_ne!(before.1, after.1, "{arrangement:?}");
        assert_eq!(
            before.0 == after.0,
            arrangement == Arrangement::Standalone,
            "only the scale set gives another ID"
        );
    }
}

#[test]
fn the_capacity_of_a_scale_set_creates_and_deletes_machines() {
    let (mut it, _) = Fixture::nodes(nodes(Arrangement::Uniform, 2));
    let path = "virtualMachineScaleSets/aks-nodes0-vmss";
    let count = |it: &mut Fixture| it.list(&format!("{path}/virtualMachines")).0.len();
    it.faults.takes = seconds(10);
    assert_eq!(
        it.put(path, &json!({"location": "eastus", "sku": {"name": "Standard_D4s_v5", "capacity": 4}}))
            .status,
        200
    );
    assert_eq!(count(&mut it), 2);
    it.now = seconds(10);
    assert_eq!(count(&mut it), 4);
    it.put(path, &json!({"location": "eastus", "sku": {"name": "Standard_D4s_v5", "capacity": 1}}));
    it.now = seconds(20);
    assert_eq!(count(&mut it), 1);
    assert_eq!(
        code(&it.put(
            path,
            &json!({"location": "eastus", "sku": {"name": "Standard_D4s_v5", "capacity": 1_001}})
        )),
        "400 InvalidParameter"
    );
    assert_eq!(
        code(&it.put(path, &json!({"location": "eastus", "properties": {"orchestrationMode": "Flexible"}}))),
        "400 PropertyChangeNotAllowed"
    );
    it.delete(path);
    it.now = seconds(30);
    assert_eq!(code(&it.get(&format!("{path}/virtualMachines"))), "404 ParentResourceNotFound");
}

#[test]
fn a_deletion_removes_what_is_below_and_not_what_begins_with_the_same_name() {
    let named = |prefix: &str| NewNodes { prefix: prefix.to_owned(), ..nodes(Arrangement::Uniform, 2) };
    let (mut it, _) = Fixture::nodes(named("x"));
    let seed = crate::seed::Seed { nodes: vec![named("x0-vmss-")], ..crate::seed::Seed::default() };
    it.state.sow(&seed).unwrap();
    assert_eq!(it.delete("virtualMachineScaleSets/x0-vmss").status, 202);
    let left: Vec<_> =
        it.state.store.all().filter(|it| it.machine.is_some()).map(|it| it.id.to_string()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().all(|id| id.contains("/x0-vmss-0-vmss/")), "{left:?}");
}

#[test]
fn a_write_of_a_machine_in_a_scale_set_keeps_what_it_leaves_out_and_the_addresses() {
    let (mut it, _) = Fixture::nodes(nodes(Arrangement::Uniform, 1));
    let path = "virtualMachineScaleSets/aks-nodes0-vmss/virtualMachines/0";
    let interfaces =
        "virtualMachineScaleSets/aks-nodes0-vmss/virtualMachines/0/networkInterfaces?api-version=2018-10-01";
    let before = it.list(interfaces).0;
    let read = it.get(path).body.unwrap();
    let written = it.put(path, &read);
    assert_eq!((written.status, written.header("etag")), (200, Some("\"2\"")));
    assert_eq!(it.list(interfaces).0, before);
    it.put(path, &json!({"tags": {"a": "b"}}));
    let shown = it.get(path).body.unwrap();
    assert_eq!(
        (&shown["tags"], &shown["properties"]["osProfile"]),
        (&json!({"a": "b"}), &read["properties"]["osProfile"])
    );
    assert_eq!(
        code(&it.put("virtualMachineScaleSets/aks-nodes0-vmss/virtualMachines/7", &json!({}))),
        "404 InvalidInstanceId"
    );
}

#[test]
fn an_interface_belongs_to_one_machine() {
    let (mut it, _) = Fixture::nodes(nodes(Arrangement::Standalone, 1));
    let body = |interface: &str| {
        json!({"location": "eastus", "properties": {
            "hardwareProfile": {"vmSize": "Standard_B1s"}, "networkProfile": {"networkInterfaces": [{"id": id(interface)}]},
        }})
    };
    assert_eq!(
        code(&it.put("virtualMachines/new", &body("networkInterfaces/aks-nodes-vm0000000-nic"))),
        "400 NetworkInterfaceInUse"
    );
    assert_eq!(
        code(&it.put("virtualMachines/new", &body("networkInterfaces/none"))),
        "400 InvalidResourceReference"
    );
    assert_eq!(code(&it.put("virtualMachines/new", &json!({"location": "eastus"}))), "400 InvalidParameter");
    assert_eq!(code(&it.delete("networkInterfaces/aks-nodes-vm0000000-nic")), "400 NicInUse");
}

#[test]
fn actions_change_the_power_of_machines() {
    let (mut it, _) = Fixture::nodes(nodes(Arrangement::Uniform, 1));
    let path = "virtualMachineScaleSets/aks-nodes0-vmss/virtualMachines/0";
    for (action, power) in
        [("deallocate", "deallocated"), ("start", "running"), ("powerOff", "stopped"), ("reimage", "running")]
    {
        assert_eq!(it.call(Method::POST, &format!("{path}/{action}"), &[], &Value::Null).status, 202);
        let view = it.get(&format!("{path}/instanceView")).body.unwrap();
        assert_eq!(view["statuses"][1]["code"], format!("PowerState/{power}"), "{action}");
    }
}

#[test]
fn five_thousand_machines_are_there_and_their_lists_are_quick() {
    let (mut it, names) = Fixture::nodes(NewNodes { count: 5_000, sets: 10, ..NewNodes::default() });
    assert_eq!(names.len(), 5_000);
    it.state.set_behavior(Behavior { page_size: 1_000, ..Behavior::default() }).unwrap();
    let (sets, _) = it.list("virtualMachineScaleSets");
    let mut addresses = BTreeSet::new();
    for set in &sets {
        let base = set["id"].as_str().unwrap();
        assert_eq!(
            it.list(&format!("{base}/virtualMachines?api-version=2025-04-01&$expand=instanceView")).0.len(),
            500
        );
        for interface in it.list(&format!("{base}/networkInterfaces?api-version=2018-10-01")).0 {
            addresses.insert(
                interface["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    assert_eq!((sets.len(), addresses.len()), (10, 5_000));
}
