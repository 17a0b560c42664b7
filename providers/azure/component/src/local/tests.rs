use pileus_guest::ErrorKind;
use pileus_guest::testing::{Exchange, Host, get};
use serde_json::{Value, json};

use super::*;

const INSTANCE: &str = "http://169.254.169.254/metadata/instance?format=json&api-version=2021-10-01";
const BALANCER: &str = "http://169.254.169.254/metadata/loadbalancer?format=json&api-version=2020-10-01";
const ID: &str = "azure:///subscriptions/sub/resourceGroups/kube/providers/Microsoft.Compute/virtualMachineScaleSets/Kube-pool/virtualMachines/3";

fn host() -> Host {
    Host::new().configuration(json!({"useInstanceMetadata": true}))
}

fn interface(ip: &str, public: &str, ipv6: Option<&str>) -> Value {
    let ipv6: Vec<_> =
        ipv6.into_iter().map(|ip| json!({"privateIpAddress": ip, "publicIpAddress": ""})).collect();
    json!({
        "ipv4": {"ipAddress": [{"privateIpAddress": ip, "publicIpAddress": public}], "subnet": []},
        "ipv6": {"ipAddress": ipv6}, "macAddress": "000D3A",
    })
}

fn instance(change: &Value, interfaces: &[Value]) -> Exchange {
    let mut compute = json!({
        "azEnvironment": "AzurePublicCloud", "location": "EastUS", "name": "Kube-pool_3", "osProfile": {"computerName": "node"},
        "platformFaultDomain": "2", "platformSubFaultDomain": "", "subscriptionId": "sub", "resourceGroupName": "Kube",
        "resourceId": "/subscriptions/sub/resourceGroups/Kube/providers/Microsoft.Compute/virtualMachineScaleSets/Kube-pool/virtualMachines/3",
        "tagsList": [], "vmId": "02aab8a4-74ef-476e-8182-f6d2ba4166a6", "vmScaleSetName": "Kube-pool", "vmSize": "Standard_D2s_v3", "zone": "1",
    });
    compute.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    get(INSTANCE).json(json!({"compute": compute, "network": {"interface": interfaces}}))
}

fn none() -> Exchange {
    get(BALANCER).status(404)
}

fn found(host: &Host, node: &NodeReference) -> Instance {
    match host.describe_local_instance::<Azure>(node) {
        Ok(LocalAnswer::Found(instance)) => instance,
        other => panic!("{other:?}"),
    }
}

fn values(instance: &Instance) -> Vec<&str> {
    instance.addresses.iter().map(|address| &*address.value).collect()
}

/// Section 7.3 and D7: the same provider ID as by the resource manager, also where a name contains that of the resource group.
#[test]
fn the_metadata_service_describes_the_machine() {
    let host =
        host().exchange(instance(&json!({}), &[interface("10.0.0.4", "203.0.113.4", Some("fd00::4"))]));
    let expected = Instance {
        provider_id: ID.to_owned(),
        instance_type: Some("Standard_D2s_v3".to_owned()),
        zone: Some("eastus-1".to_owned()),
        region: Some("eastus".to_owned()),
        addresses: vec![
            Address::new(AddressKind::Hostname, "node"),
            Address::new(AddressKind::InternalIp, "10.0.0.4"),
            Address::new(AddressKind::ExternalIp, "203.0.113.4"),
            Address::new(AddressKind::InternalIp, "fd00::4"),
        ],
        state: InstanceState::Running,
        ..Instance::default()
    };
    assert_eq!(
        found(&host, &NodeReference::new("node").with_provider_id(ID.replace("/kube/", "/KUBE/"))),
        expected
    );
}

/// Section 7.1 to 7.3: zones, fault domains and labels.
#[test]
fn zones_and_labels_are_those_of_the_machine() {
    let nic = [interface("10.0.0.4", "203.0.113.4", None)];
    let describe =
        |change: &Value| found(&host().exchange(instance(change, &nic)), &NodeReference::new("node"));
    assert_eq!(describe(&json!({"zone": ""})).zone.as_deref(), Some("2"));
    assert_eq!(describe(&json!({"zone": "", "platformFaultDomain": ""})).zone, None);
    let tags = json!([{"name": "platform_interconnect_group", "value": "fast"}]);
    let labels = describe(&json!({"platformSubFaultDomain": "15", "tagsList": tags})).labels;
    let expected = [(SUB_FAULT_DOMAIN, "15"), (INTERCONNECT.0, "fast")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(labels, expected);
}

/// D8: interfaces come in no order, so the one with the kubelet's address is the Node's.
#[test]
fn the_interface_is_that_of_the_kubelets_address() {
    let nics =
        [interface("10.9.0.9", "203.0.113.9", None), interface("10.0.0.4", "203.0.113.4", Some("fd00::4"))];
    let mut by_flag = NodeReference::new("node");
    by_flag.node_ips = vec!["fd00::4".to_owned()];
    let mut by_status = NodeReference::new("node");
    by_status.addresses = vec![Address::new(AddressKind::InternalIp, "10.0.0.4")];
    for (node, expected) in
        [(by_flag, "10.0.0.4"), (by_status, "10.0.0.4"), (NodeReference::new("node"), "10.9.0.9")]
    {
        let host = host().exchange(instance(&json!({}), &nics));
        assert_eq!(values(&found(&host, &node))[1], expected, "{node:?}");
    }
}

/// Section 7.3: without a public address of its own, that of the load balancer before it; IPv6 in brackets; its failure is ignored.
#[test]
fn the_load_balancers_address_is_the_machines() {
    let nic = || instance(&json!({}), &[interface("10.0.0.4", "", Some("fd00::4"))]);
    let frontends = json!({"loadbalancer": {"publicIpAddresses": [
        {"frontendIpAddress": "203.0.113.7", "privateIpAddress": "10.0.0.4"},
        {"frontendIpAddress": "[2001:db8::7]", "privateIpAddress": "[fd00::4]"},
        {"frontendIpAddress": "203.0.113.8", "privateIpAddress": "10.0.0.5"},
    ]}});
    let host_with = |balancer| host().exchange(nic()).exchange(balancer);
    let node = NodeReference::new("node");
    let all = found(&host_with(get(BALANCER).json(frontends)), &node);
    assert_eq!(values(&all), ["node", "10.0.0.4", "203.0.113.7", "fd00::4", "2001:db8::7"]);
    for balancer in [none(), get(BALANCER).status(500), get(BALANCER).json(json!([]))] {
        assert_eq!(values(&found(&host_with(balancer), &node)), ["node", "10.0.0.4", "fd00::4"]);
    }
}

/// Bug 14 (CPA#1155) and section 5.6: what the service doesn't know yet is pending, never an empty provider ID or a Node without addresses.
#[test]
fn what_the_service_does_not_know_yet_is_pending() {
    let nic = [interface("10.0.0.4", "203.0.113.4", None)];
    let pending = Ok(LocalAnswer::Pending(AGAIN));
    let rows = [
        (vec![get(INSTANCE).status(404)], pending.clone()),
        (vec![get(INSTANCE).status(410)], pending.clone()),
        (vec![instance(&json!({"resourceId": ""}), &nic)], pending.clone()),
        (vec![instance(&json!({}), &[])], pending.clone()),
        (vec![instance(&json!({}), &[interface("", "", None)]), none()], pending),
        (vec![get(INSTANCE).status(429)], Err(ErrorKind::Throttled(None))),
        (vec![get(INSTANCE).status(500)], Err(ErrorKind::Unavailable(None))),
        (vec![get(INSTANCE).json(json!({"compute": "x"}))], Err(ErrorKind::Broken)),
    ];
    for (exchanges, expected) in rows {
        let host = exchanges.into_iter().fold(host(), Host::exchange);
        let answer = host.describe_local_instance::<Azure>(&NodeReference::new("node"));
        assert_eq!(answer.map_err(|error| error.kind), expected);
    }
    let without = Host::new().configuration(crate::tests::minimal());
    let error = without.describe_local_instance::<Azure>(&NodeReference::new("node")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
}

/// An answer about another machine is refused: by the provider ID, the firmware's UUID in both byte orders, or the computer's name.
#[test]
fn an_answer_about_another_machine_is_broken() {
    let nic = [interface("10.0.0.4", "203.0.113.4", None)];
    let uuid =
        |uuid: &str| NodeReference { system_uuid: Some(uuid.to_owned()), ..NodeReference::new("other") };
    let rows = [
        ("the ID", NodeReference::new("node").with_provider_id(ID.replace("/3", "/4")), false),
        ("the UUID", uuid("02AAB8A4-74EF-476E-8182-F6D2BA4166A6"), true),
        ("with swapped bytes", uuid("A4B8AA02-EF74-6E47-8182-F6D2BA4166A6"), true),
        ("another UUID", uuid("12AAB8A4-74EF-476E-8182-F6D2BA4166A6"), false),
        ("no UUID at all", uuid("x"), false),
        ("the name", NodeReference::new("other"), false),
    ];
    for (row, node, is_it) in rows {
        let host = host().exchange(instance(&json!({}), &nic));
        let answer = host.describe_local_instance::<Azure>(&node).map(drop).map_err(|error| error.kind);
        assert_eq!(answer, if is_it { Ok(()) } else { Err(ErrorKind::Broken) }, "{row}");
    }
}

/// A provider ID can't be changed, so a Node without one gets none of another subscription. Azure compares subscriptions without case.
#[test]
fn a_machine_of_another_subscription_is_refused_where_the_configuration_has_one() {
    let nic = [interface("10.0.0.4", "203.0.113.4", None)];
    let with = |subscription: &str| json!({"useInstanceMetadata": true, "subscriptionId": subscription, "resourceGroup": "kube"});
    let (new, known) = (NodeReference::new("node"), NodeReference::new("node").with_provider_id(ID));
    for (configuration, node, is_it) in [
        (with("SUB"), &new, true),
        (with("other"), &new, false),
        (with("other"), &known, true),
        (json!({"useInstanceMetadata": true}), &new, true),
    ] {
        let host = Host::new().configuration(configuration.clone()).exchange(instance(&json!({}), &nic));
        let answer = host.describe_local_instance::<Azure>(node).map(drop).map_err(|error| error.kind);
        assert_eq!(answer, if is_it { Ok(()) } else { Err(ErrorKind::Broken) }, "{configuration} {node:?}");
    }
}
