use pileus_guest::testing::{Exchange, Host, get};
use pileus_guest::{AddressKind, ErrorKind, InstanceState};
use serde_json::{Value, json};

use super::*;
use crate::tests::with;

const BASE: &str = "https://management.azure.com";
const GROUP: &str = "/subscriptions/sub/resourceGroups/group/providers";
const COMPUTE: &str = "api-version=2025-04-01";
const VIEW: &str = "api-version=2025-04-01&%24expand=instanceView";
const NETWORK: &str = "api-version=2025-05-01";
const SET_NETWORK: &str = "api-version=2018-10-01";

fn cloud(more: &Value) -> Host {
    Host::new().configuration(with(more))
}

fn url(path: &str, query: &str) -> String {
    format!("{BASE}{GROUP}/{path}?{query}")
}

fn merge(mut whole: Value, change: &Value) -> Value {
    match (&mut whole, change) {
        (Value::Object(whole), Value::Object(change)) => {
            for (name, value) in change {
                let now = whole.remove(name).unwrap_or_default();
                whole.insert(name.clone(), merge(now, value));
            }
        }
        (whole, change) => *whole = change.clone(),
    }
    whole
}

fn running() -> Value {
    json!({"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/running"}], "platformFaultDomain": 1})
}

/// A machine of a uniform scale set, as the recordings have it; the resource group comes back in another case.
fn instance(set: &str, number: u64, change: &Value) -> Value {
    let machine = json!({
        "id": format!("/subscriptions/sub/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/{number}"),
        "name": format!("{set}_{number}"), "instanceId": number.to_string(), "location": "eastus", "zones": ["2"],
        "sku": {"name": "Standard_D2s_v3", "tier": "Standard"}, "etag": "\"1\"",
        "properties": {
            "provisioningState": "Succeeded", "osProfile": {"computerName": format!("{set}-VMSS{}", base36(number))},
            "networkProfile": {"networkInterfaces": [{"id": format!("{GROUP}/Microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/{number}/networkInterfaces/nic")}]},
            "instanceView": running(),
        },
    });
    merge(machine, change)
}

fn base36(number: u64) -> String {
    let digit =
        |place| char::from_digit(u32::try_from(number / 36_u64.pow(place) % 36).unwrap(), 36).unwrap();
    (0..6).rev().map(digit).collect()
}

fn set(name: &str) -> Value {
    let profile = json!({"osProfile": {"computerNamePrefix": format!("{name}-vmss")}});
    json!({"id": "x", "name": name, "location": "eastus", "properties": {"orchestrationMode": "Uniform", "virtualMachineProfile": profile}})
}

fn configuration(ip: &str, version: &str, is_primary: bool, public: Option<&str>) -> Value {
    let public = public.map(|id| json!({"id": id}));
    json!({"name": "c", "properties": {
        "primary": is_primary, "privateIPAddress": ip, "privateIPAddressVersion": version, "publicIPAddress": public,
    }})
}

fn set_interface(set: &str, number: u64, public: Option<&str>) -> Value {
    let id = format!(
        "{GROUP}/microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/{number}/networkInterfaces/nic"
    );
    let ip = format!("10.0.{}.{}", number / 250, number % 250 + 1);
    json!({"id": id, "properties": {"primary": true, "ipConfigurations": [configuration(&ip, "IPv4", true, public)]}})
}

/// A machine by itself.
fn machine(name: &str, change: &Value) -> Value {
    let machine = json!({
        "id": format!("/subscriptions/sub/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachines/{name}"),
        "name": name, "location": "eastus", "tags": {"platform_interconnect_group": "fast"},
        "properties": {
            "hardwareProfile": {"vmSize": "Standard_B2s"}, "provisioningState": "Succeeded",
            "osProfile": {"computerName": name}, "instanceView": running(),
            "networkProfile": {"networkInterfaces": [{"id": format!("{GROUP}/Microsoft.Network/networkInterfaces/{name}-nic")}]},
        },
    });
    merge(machine, change)
}

fn interface(name: &str, configurations: &[Value]) -> Value {
    let id = format!("{GROUP}/Microsoft.Network/networkInterfaces/{name}-nic");
    json!({"id": id, "properties": {"primary": true, "ipConfigurations": configurations}})
}

fn plain(ip: &str) -> Vec<Value> {
    vec![configuration(ip, "IPv4", true, None)]
}

fn items(path: &str, query: &str, items: &[Value]) -> Exchange {
    get(url(path, query)).json(json!({"value": items}))
}

fn one_machine(name: &str, change: &Value) -> Exchange {
    get(url(&format!("Microsoft.Compute/virtualMachines/{name}"), VIEW)).json(machine(name, change))
}

fn one_interface(name: &str, configurations: &[Value]) -> Exchange {
    get(url(&format!("Microsoft.Network/networkInterfaces/{name}-nic"), NETWORK))
        .json(interface(name, configurations))
}

fn below_set(set: &str, rest: &str) -> String {
    format!("Microsoft.Compute/virtualMachineScaleSets/{set}{rest}")
}

fn sets(sets: &[Value]) -> Exchange {
    items("Microsoft.Compute/virtualMachineScaleSets", COMPUTE, sets)
}

fn one_instance(set: &str, number: u64, change: &Value) -> [Exchange; 2] {
    let path = below_set(set, &format!("/virtualMachines/{number}"));
    let interfaces =
        items(&format!("{path}/networkInterfaces"), SET_NETWORK, &[set_interface(set, number, None)]);
    [get(url(&path, VIEW)).json(instance(set, number, change)), interfaces]
}

fn missing(code: &str) -> Value {
    json!({"error": {"code": code, "message": "no"}})
}

fn uniform_id(set: &str, number: &str) -> String {
    format!("azure://{GROUP}/Microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/{number}")
}

fn standalone_id(name: &str) -> String {
    format!("azure://{GROUP}/Microsoft.Compute/virtualMachines/{name}")
}

fn known(id: &str) -> NodeReference {
    NodeReference::new("node").with_provider_id(id)
}

fn labeled(node: NodeReference, key: &str, value: &str) -> NodeReference {
    NodeReference { labels: vec![(key.to_owned(), value.to_owned())], ..node }
}

fn look_up(host: &Host, node: &NodeReference) -> Result<Answer, ErrorKind> {
    let answers = host.lookup::<Azure>(Purpose::Confirm, std::slice::from_ref(node)).unwrap();
    answers.into_iter().next().unwrap().map_err(|error| error.kind)
}

fn with_all(host: Host, exchanges: impl IntoIterator<Item = Exchange>) -> Host {
    exchanges.into_iter().fold(host, Host::exchange)
}

fn found(answer: Result<Answer, ErrorKind>) -> Instance {
    let Ok(Answer::Found(instance)) = answer else { panic!("{answer:?}") };
    instance
}

fn address(kind: AddressKind, value: &str) -> Address {
    Address::new(kind, value)
}

use pileus_guest::Address;

/// Sections 2.4 and 2.7: two reads, and the facts that cloud-provider-azure reports.
#[test]
fn an_instance_of_a_uniform_scale_set_is_read_by_its_number() {
    let host = with_all(cloud(&json!({})), one_instance("pool", 10, &json!({})));
    let expected = Instance {
        provider_id: uniform_id("pool", "10"),
        instance_type: Some("Standard_D2s_v3".to_owned()),
        zone: Some("eastus-2".to_owned()),
        region: Some("eastus".to_owned()),
        addresses: vec![
            address(AddressKind::InternalIp, "10.0.0.11"),
            address(AddressKind::Hostname, "pool-vmss00000a"),
        ],
        state: InstanceState::Running,
        ..Instance::default()
    };
    let historic = uniform_id("pool", "pool_10").replace("/group/", "/GROUP/");
    assert_eq!(found(look_up(&host, &known(&historic))), expected);
}

/// Section 2.5, D5 and D6: power state, fault domain and IPv6 of a machine by itself; section 7.1: the label of its tag.
#[test]
fn a_standalone_machine_has_its_power_state_and_both_families() {
    let public = format!("{GROUP}/Microsoft.Network/publicIPAddresses/ip");
    let configurations = [
        configuration("10.0.0.9", "IPv4", false, None),
        configuration("10.0.0.4", "IPv4", true, Some(&public)),
        configuration("fd00::4", "IPv6", false, None),
    ];
    let stopped = json!({"properties": {"instanceView": {"statuses": [{"code": "PowerState/deallocated"}]}}});
    let host = cloud(&json!({}))
        .exchange(one_machine("vm", &stopped))
        .exchange(one_interface("vm", &configurations))
        .exchange(
            get(format!("{BASE}{public}?{NETWORK}"))
                .json(json!({"id": public, "properties": {"ipAddress": "203.0.113.4"}})),
        );
    let instance = found(look_up(&host, &known(&standalone_id("vm"))));
    let expected = [
        address(AddressKind::InternalIp, "10.0.0.4"),
        address(AddressKind::Hostname, "vm"),
        address(AddressKind::ExternalIp, "203.0.113.4"),
        address(AddressKind::InternalIp, "fd00::4"),
    ];
    assert_eq!((instance.addresses, instance.state), (expected.to_vec(), InstanceState::Stopped));
    assert_eq!(instance.instance_type.as_deref(), Some("Standard_B2s"));
    assert_eq!(instance.labels, [(INTERCONNECT.0.to_owned(), "fast".to_owned())]);
    assert_eq!(instance.zone.as_deref(), Some("1"), "the fault domain of the instance view");
}

/// Section 2.1 and 2.2, A5: Nodes that aren't Azure's are released without a request.
#[test]
fn unmanaged_nodes_cost_no_request() {
    for node in [
        labeled(NodeReference::new("a"), MANAGED, "false"),
        labeled(known(&standalone_id("vm")), MANAGED, "False"),
        known("azure://0B1C2D3E-0000-0000-0000-000000000000"),
        known("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.HybridCompute/machines/arc"),
    ] {
        assert_eq!(look_up(&cloud(&json!({})), &node), Ok(Answer::Unmanaged(Stance::Released)), "{node:?}");
    }
    let labeled = labeled(known(&standalone_id("vm")), MANAGED, "true");
    let host = cloud(&json!({}))
        .exchange(one_machine("vm", &json!({})))
        .exchange(one_interface("vm", &plain("10.0.0.4")));
    found(look_up(&host, &labeled));
}

/// Section 2.6, bugs 7, 8 and 9 (K8S#95288, K8S#91183, K8S#71595): gone is what the resource manager says is gone.
#[test]
fn a_machine_is_absent_if_the_resource_manager_says_so_or_deletes_it() {
    let path = below_set("pool", "/virtualMachines/1");
    let gone = |code: &str| get(url(&path, VIEW)).status(404).json(missing(code));
    let deleting = json!({"properties": {"provisioningState": "Deleting"}});
    let [being_deleted, _] = one_instance("pool", 1, &deleting);
    let uniform = known(&uniform_id("pool", "1"));
    let rows = [
        ("no such instance", uniform.clone(), vec![gone("ResourceNotFound")], Ok(Answer::Absent)),
        ("no such scale set", uniform.clone(), vec![gone("ParentResourceNotFound")], Ok(Answer::Absent)),
        ("being deleted", uniform.clone(), vec![being_deleted], Ok(Answer::Absent)),
        (
            "no such group",
            uniform.clone(),
            vec![gone("ResourceGroupNotFound")],
            Err(ErrorKind::Unavailable(None)),
        ),
        ("denied", uniform, vec![get(url(&path, VIEW)).status(403)], Err(ErrorKind::Denied)),
        ("an invalid number", known(&uniform_id("pool", "x")), vec![], Err(ErrorKind::Invalid)),
        (
            "a standalone machine that is being deleted",
            known(&standalone_id("vm")),
            vec![one_machine("vm", &deleting)],
            Ok(Answer::Absent),
        ),
    ];
    for (row, node, exchanges, expected) in rows {
        assert_eq!(look_up(&with_all(cloud(&json!({})), exchanges), &node), expected, "{row}");
    }
}

/// Section 2.6: a machine that is reimaged or moved is there, and hasn't stopped.
#[test]
fn a_machine_that_is_changed_is_there() {
    let view = json!({"statuses": [{"code": "PowerState/stopped"}]});
    let reimaged = json!({"properties": {"provisioningState": "Updating", "instanceView": view}});
    let host = with_all(cloud(&json!({})), one_instance("pool", 1, &reimaged));
    assert_eq!(found(look_up(&host, &known(&uniform_id("pool", "1")))).state, InstanceState::Unknown);
    // Its interface isn't there yet.
    let [read, _] = one_instance("pool", 1, &json!({}));
    let none = items(&below_set("pool", "/virtualMachines/1/networkInterfaces"), SET_NETWORK, &[]);
    let host = cloud(&json!({})).exchange(read).exchange(none);
    assert_eq!(look_up(&host, &known(&uniform_id("pool", "1"))), Ok(Answer::Pending(CREATING)));
}

/// Sections 2.3 and 2.4: by name, a scale set's prefix and the number of the name lead to one machine, in any case.
#[test]
fn a_node_without_an_id_is_found_by_the_number_in_its_name() {
    let host = cloud(&json!({})).exchange(sets(&[set("other"), set("POOL")]));
    let host = with_all(host, one_instance("POOL", 36, &json!({})));
    assert_eq!(
        found(look_up(&host, &NodeReference::new("pool-vmss000010"))).provider_id,
        uniform_id("POOL", "36")
    );
}

/// Section 2.5, bug 10 (CPA#10194, CPA#798): a machine by itself is found in a cluster of scale sets, also if its name isn't that of
/// its computer, as in flexible scale sets.
#[test]
fn a_node_without_an_id_is_found_among_machines_of_any_kind() {
    let none = || {
        get(url("Microsoft.Compute/virtualMachines/node-1", VIEW))
            .status(404)
            .json(missing("ResourceNotFound"))
    };
    let other = |name: &str, computer: &str| {
        machine(name, &json!({"properties": {"osProfile": {"computerName": computer}}}))
    };
    let list = |machines: &[Value]| items("Microsoft.Compute/virtualMachines", VIEW, machines);
    let named = NodeReference::new("node-1");
    let by_name = cloud(&json!({}))
        .exchange(one_machine("node-1", &json!({})))
        .exchange(one_interface("node-1", &plain("10.0.0.4")));
    assert_eq!(found(look_up(&by_name, &named)).provider_id, standalone_id("node-1"));
    let flexible = json!({"properties": {
        "virtualMachineScaleSet": {"id": "x"}, "osProfile": {"computerName": "NODE-1"}, "platformFaultDomain": 4,
        "instanceView": {"platformFaultDomain": null},
    }});
    let host = cloud(&json!({}))
        .exchange(none())
        .exchange(list(&[other("a", "b"), machine("flex_1a2b3c4d", &flexible)]))
        .exchange(one_interface("flex_1a2b3c4d", &plain("10.0.0.5")));
    let instance = found(look_up(&host, &named));
    assert_eq!((instance.provider_id, instance.zone.as_deref()), (standalone_id("flex_1a2b3c4d"), Some("4")));
    let host =
        cloud(&json!({})).exchange(none()).exchange(list(&[other("a", "node-1"), other("b", "node-1")]));
    assert_eq!(look_up(&host, &named), Err(ErrorKind::Invalid), "to choose one would be a guess");
    let host = cloud(&json!({})).exchange(none()).exchange(list(&[]));
    assert_eq!(look_up(&host, &named), Ok(Answer::Absent));
    let failed = get(url("Microsoft.Compute/virtualMachines", VIEW)).status(503);
    let host = cloud(&json!({})).exchange(none()).exchange(failed);
    assert_eq!(look_up(&host, &named), Err(ErrorKind::Unavailable(None)));
}

/// Section 1.3 (`vmType` standard): no scale set is asked for.
#[test]
fn a_cluster_of_standalone_machines_lists_no_scale_sets() {
    let host = cloud(&json!({"vmType": "standard"}))
        .exchange(one_machine("node000001", &json!({})))
        .exchange(one_interface("node000001", &plain("10.0.0.4")));
    found(look_up(&host, &NodeReference::new("node000001")));
}

/// Bug 5 (CPA#10604) and section 1.3 (`nodeInstanceNotFoundGracePeriodInSeconds`).
#[test]
fn a_young_node_is_pending_although_its_machine_is_not_visible_yet() {
    let gone = || {
        get(url("Microsoft.Compute/virtualMachines/vm", VIEW)).status(404).json(missing("ResourceNotFound"))
    };
    let young = NodeReference { created_at: SystemTime::now(), ..known(&standalone_id("vm")) };
    let grace = json!({"nodeInstanceNotFoundGracePeriodInSeconds": 600});
    let rows = [
        (&grace, &young, Answer::Pending(CREATING)),
        (&grace, &known(&standalone_id("vm")), Answer::Absent),
        (&json!({}), &young, Answer::Absent),
    ];
    for (more, node, expected) in rows {
        assert_eq!(look_up(&cloud(more).exchange(gone()), node), Ok(expected), "{more}");
    }
}

/// The whole group in lists: machines of all kinds and the interfaces of each.
fn group(sets_in_group: &[(&str, u64)], machines: &[Value], interfaces: &[Value]) -> Vec<Exchange> {
    let mut all = vec![sets(&sets_in_group.iter().map(|(name, _)| set(name)).collect::<Vec<_>>())];
    for (name, count) in sets_in_group {
        let instances: Vec<_> = (0..*count).map(|number| instance(name, number, &json!({}))).collect();
        let nics: Vec<_> = (0..*count).map(|number| set_interface(name, number, None)).collect();
        all.push(items(&below_set(name, "/virtualMachines"), VIEW, &instances));
        all.push(items(&below_set(name, "/networkInterfaces"), SET_NETWORK, &nics));
    }
    all.push(items("Microsoft.Compute/virtualMachines", VIEW, machines));
    if !machines.is_empty() {
        all.push(items("Microsoft.Network/networkInterfaces", NETWORK, interfaces));
    }
    all
}

/// Sections 2.3 to 2.6, bugs 6, 8 and 11 (CPA#2156, K8S#91183, CPA#247): Nodes of all kinds share the lists of their group; a machine
/// that was made again under its name is the new one; what the lists lack is absent, and is confirmed by the host.
#[test]
fn many_nodes_of_all_kinds_share_the_lists_of_their_group() {
    let deleted =
        json!({"properties": {"provisioningState": "Deleting", "osProfile": {"computerName": "again"}}});
    let again = json!({"properties": {"osProfile": {"computerName": "Again"}}});
    let machines = [machine("standalone", &json!({})), machine("old", &deleted), machine("new", &again)];
    let interfaces = ["standalone", "old", "new"].map(|name| interface(name, &plain("10.1.0.4")));
    let host = with_all(cloud(&json!({})), group(&[("pool", 3), ("edge", 1)], &machines, &interfaces));
    let nodes = [
        known(&uniform_id("pool", "pool_2").to_lowercase()),
        NodeReference::new("edge-vmss000000"),
        known(&standalone_id("standalone")),
        NodeReference::new("again"),
        known(&standalone_id("old")),
        known(&uniform_id("pool", "9")),
        labeled(NodeReference::new("arc"), MANAGED, "false"),
    ];
    let answers = host.lookup::<Azure>(Purpose::Refresh, &nodes).unwrap();
    let said = |answer: &Result<Answer, Error>| match answer {
        Ok(Answer::Found(instance)) => instance.provider_id.clone(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    };
    let expected = [
        uniform_id("pool", "2"),
        uniform_id("edge", "0"),
        standalone_id("standalone"),
        standalone_id("new"),
        "Absent".to_owned(),
        "Absent".to_owned(),
        "Unmanaged(Released)".to_owned(),
    ];
    assert_eq!(answers.iter().map(said).collect::<Vec<_>>(), expected);
}

/// Section 2.2 and 2.7: machines of another resource group, with an interface and a public address of a third one.
#[test]
fn nodes_of_other_resource_groups_are_looked_up_there() {
    let elsewhere = |text: String| text.replace("/group/", "/other/");
    let third = GROUP.replace("/group/", "/third/");
    let nic = format!("{third}/Microsoft.Network/networkInterfaces/nic");
    let public = format!("{third}/Microsoft.Network/publicIPAddresses/ip");
    let reference = json!({"id": "/subscriptions/sub/resourceGroups/other/providers/Microsoft.Compute/virtualMachines/vm",
        "properties": {"networkProfile": {"networkInterfaces": [{"id": nic}]}}});
    let configurations = [configuration("10.2.0.4", "IPv4", true, Some(&public))];
    let list =
        |path: &str, query: &str, all: &[Value]| get(elsewhere(url(path, query))).json(json!({"value": all}));
    let host = cloud(&json!({}))
        .exchange(list("Microsoft.Compute/virtualMachineScaleSets", COMPUTE, &[]))
        .exchange(list("Microsoft.Compute/virtualMachines", VIEW, &[machine("vm", &reference)]))
        .exchange(list("Microsoft.Network/networkInterfaces", NETWORK, &[]))
        .exchange(list("Microsoft.Network/publicIPAddresses", NETWORK, &[]))
        .exchange(
            get(format!("{BASE}{nic}?{NETWORK}"))
                .json(json!({"id": nic, "properties": {"ipConfigurations": configurations}})),
        )
        .exchange(
            get(format!("{BASE}{public}?{NETWORK}"))
                .json(json!({"id": public, "properties": {"ipAddress": "203.0.113.9"}})),
        );
    let host = with_all(host, group(&[("pool", 4)], &[], &[]));
    let mut nodes: Vec<_> = (0..4).map(|number| known(&uniform_id("pool", &number.to_string()))).collect();
    nodes.insert(2, labeled(NodeReference::new("vm"), RESOURCE_GROUP, "Other"));
    nodes.extend([1, 2, 3].map(|_| known(&elsewhere(standalone_id("vm")))));
    let answers = host.lookup::<Azure>(Purpose::Refresh, &nodes).unwrap();
    let instance = found(answers[2].clone().map_err(|error| error.kind));
    assert_eq!(instance.provider_id, elsewhere(standalone_id("vm")));
    assert_eq!(instance.addresses[2], address(AddressKind::ExternalIp, "203.0.113.9"));
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Found(_)))), "{answers:?}");
}

/// A list that fails makes no machine absent: Nodes that the other lists have are found, the rest get the error.
#[test]
fn a_list_that_fails_makes_nothing_absent() {
    let nodes = ["0", "1", "2", "9"].map(|number| known(&uniform_id("pool", number)));
    for (broken, found_first) in [
        (url("Microsoft.Compute/virtualMachines", VIEW), true),
        (url(&below_set("pool", "/networkInterfaces"), SET_NETWORK), false),
        (url(&below_set("pool", "/virtualMachines"), VIEW), false),
        (url("Microsoft.Compute/virtualMachineScaleSets", COMPUTE), false),
    ] {
        let mut exchanges = group(&[("pool", 3)], &[], &[]);
        let failed = format!("GET {broken}");
        for exchange in &mut exchanges {
            if exchange.to_string() == failed {
                *exchange = get(&*broken).status(503);
            }
        }
        let is_list_of_sets = broken.contains("virtualMachineScaleSets?");
        exchanges.retain(|it| !is_list_of_sets || !it.to_string().contains("virtualMachineScaleSets/"));
        let host = with_all(cloud(&json!({})), exchanges);
        let answers = host.lookup::<Azure>(Purpose::Refresh, &nodes).unwrap();
        assert_eq!(matches!(answers[0], Ok(Answer::Found(_))), found_first, "{broken}: {answers:?}");
        assert!(answers[3].is_err(), "{broken}: {answers:?}");
        assert!(!answers.contains(&Ok(Answer::Absent)), "{broken}: {answers:?}");
    }
}

/// Section 2.4, bug 7: a scale set that is deleted while the lists are read has no machines.
#[test]
fn a_scale_set_that_is_gone_has_no_machines() {
    let mut exchanges = group(&[("pool", 3), ("gone", 0)], &[], &[]);
    for exchange in &mut exchanges {
        if exchange.to_string().contains("virtualMachineScaleSets/gone/virtualMachines") {
            *exchange = exchange.clone().status(404).json(missing("ParentResourceNotFound"));
        }
    }
    let host = with_all(cloud(&json!({})), exchanges);
    let mut nodes = ["0", "1", "2"].map(|number| known(&uniform_id("pool", number))).to_vec();
    nodes.push(known(&uniform_id("gone", "0")));
    let answers = host.lookup::<Azure>(Purpose::Refresh, &nodes).unwrap();
    assert_eq!(answers[3], Ok(Answer::Absent));
}

/// Bug 11 (CPA#247) and bug 12 (AKS#1187): 5,000 Nodes in 10 scale sets cost lists alone, at pages of 100 and of 1,000.
#[test]
fn five_thousand_nodes_cost_lists_alone() {
    for (page, expected) in [(1_000, 1 + 10 * 2 + 1), (100, 1 + 10 * 2 * 5 + 1)] {
        let host = cloud(&json!({})).cloud(move |sent| {
            let (path, query) = sent.url.split_once('?').unwrap();
            let from: u64 = query.split("%24skiptoken=").nth(1).map_or(0, |from| from.parse().unwrap());
            let set_name =
                path.split("/virtualMachineScaleSets/").nth(1).map(|rest| rest.split('/').next().unwrap());
            let of_set = |make: &dyn Fn(&str, u64) -> Value| {
                let until = (from + page).min(500);
                let items: Vec<_> = (from..until).map(|number| make(set_name.unwrap(), number)).collect();
                let next = (until < 500).then(|| {
                    let first = sent.url.split("&%24skiptoken").next().unwrap();
                    format!("{first}&%24skiptoken={until}")
                });
                json!({"value": items, "nextLink": next})
            };
            let body = match path.rsplit('/').next().unwrap() {
                "virtualMachineScaleSets" => {
                    json!({"value": (0..10).map(|number| set(&format!("pool{number}"))).collect::<Vec<_>>()})
                }
                "virtualMachines" if set_name.is_some() => {
                    of_set(&|name, number| instance(name, number, &json!({})))
                }
                "networkInterfaces" => of_set(&|name, number| set_interface(name, number, None)),
                "virtualMachines" => json!({"value": []}),
                other => panic!("{other} is no list"),
            };
            get("").json(body)
        });
        let node =
            |number: u64| known(&uniform_id(&format!("pool{}", number / 500), &(number % 500).to_string()));
        let nodes: Vec<_> = (0..5_000).map(node).collect();
        let answers = host.lookup::<Azure>(Purpose::Refresh, &nodes).unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Found(_)))));
        assert_eq!(host.requests().len(), expected, "pages of {page}");
    }
}

/// Section 2.4: public addresses of a scale set are one list, and only if an interface has one.
#[test]
fn public_addresses_of_a_scale_set_are_one_list() {
    let id = |number: u64| {
        format!(
            "{GROUP}/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/{number}/networkInterfaces/nic/ipConfigurations/c/publicIPAddresses/ip"
        )
    };
    let mut exchanges = group(&[("pool", 4)], &[], &[]);
    for exchange in &mut exchanges {
        if exchange.to_string().contains("pool/networkInterfaces") {
            let nics: Vec<_> =
                (0..4).map(|number| set_interface("pool", number, Some(&id(number)))).collect();
            *exchange = exchange.clone().json(json!({"value": nics}));
        }
    }
    let addresses: Vec<_> = (0..4)
        .map(|number| json!({"id": id(number).to_uppercase(), "properties": {"ipAddress": format!("203.0.113.{number}")}}))
        .collect();
    exchanges.push(items(&below_set("pool", "/publicIPAddresses"), SET_NETWORK, &addresses));
    let nodes: Vec<_> = (0..4).map(|number| known(&uniform_id("pool", &number.to_string()))).collect();
    let answers = with_all(cloud(&json!({})), exchanges).lookup::<Azure>(Purpose::Refresh, &nodes).unwrap();
    let last = found(answers[3].clone().map_err(|error| error.kind));
    assert_eq!(last.addresses[2], address(AddressKind::ExternalIp, "203.0.113.3"));
}

/// Section 1.5 (`listVmssVirtualMachinesWithoutInstanceView`): the power state is unknown then, never a guess.
#[test]
fn without_the_instance_view_the_power_state_is_unknown() {
    let mut exchanges = group(&[("pool", 4)], &[], &[]);
    let plain: Vec<_> = (0..4)
        .map(|number| instance("pool", number, &json!({"properties": {"instanceView": null}})))
        .collect();
    exchanges[1] = items(&below_set("pool", "/virtualMachines"), COMPUTE, &plain);
    let host = with_all(cloud(&json!({"listVmssVirtualMachinesWithoutInstanceView": true})), exchanges);
    let nodes: Vec<_> = (0..4).map(|number| known(&uniform_id("pool", &number.to_string()))).collect();
    let answers = host.lookup::<Azure>(Purpose::Refresh, &nodes).unwrap();
    assert_eq!(found(answers[0].clone().map_err(|error| error.kind)).state, InstanceState::Unknown);
}

/// Older resource managers, as that of Azure Stack, refuse power states for a whole group.
#[test]
fn machines_are_listed_without_power_states_where_they_are_refused() {
    let names = ["a", "b", "c", "d"];
    let machines = names.map(|name| machine(name, &json!({"properties": {"instanceView": null}})));
    let interfaces = names.map(|name| interface(name, &plain("10.1.0.4")));
    let host = cloud(&json!({"vmType": "standard"}))
        .exchange(
            get(url("Microsoft.Compute/virtualMachines", VIEW)).status(400).json(missing("InvalidParameter")),
        )
        .exchange(items("Microsoft.Compute/virtualMachines", COMPUTE, &machines))
        .exchange(items("Microsoft.Network/networkInterfaces", NETWORK, &interfaces));
    let nodes = names.map(|name| known(&standalone_id(name)));
    let answers = host.lookup::<Azure>(Purpose::Refresh, &nodes).unwrap();
    assert_eq!(found(answers[0].clone().map_err(|error| error.kind)).state, InstanceState::Unknown);
}

/// A few Nodes that join cost one read each where the host has the lists, and none otherwise: the cached lists are complete.
#[test]
fn a_few_nodes_are_found_in_the_cached_lists() {
    let exchanges = group(&[("pool", 3)], &[], &[]).into_iter().map(Exchange::cached);
    let host = with_all(cloud(&json!({})), exchanges);
    let nodes = [NodeReference::new("pool-vmss000001"), known(&uniform_id("pool", "2"))];
    let answers = host.lookup::<Azure>(Purpose::Initialise, &nodes).unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Answer::Found(_)))), "{answers:?}");
}
