//! The network provider: what it refuses with which code.

use serde_json::{Value, json};

use super::super::*;
use super::fixture::{Fixture, code, id};
use crate::seed::NewNodes;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn routes_are_checked() {
    let route = |prefix: &str, kind: &str, hop: &str| {
        let mut properties = json!({"addressPrefix": prefix, "nextHopType": kind});
        if !hop.is_empty() {
            properties["nextHopIpAddress"] = json!(hop);
        }
        properties
    };
    let rows = [
        (route("10.244.0.0/24", "VirtualAppliance", "10.0.0.4"), "201"),
        (route("fd00:1::/64", "VirtualAppliance", "fd00::4"), "201"),
        (route("AzureCloud", "Internet", ""), "201"),
        (route("10.244.0.0/24", "VirtualAppliance", "fd00::4"), "400 InvalidNextHopIpAddress"),
        (route("10.244.0.0/24", "VirtualAppliance", ""), "400 NextHopIpAddressIsRequired"),
        (route("10.244.0.0/24", "Internet", "10.0.0.4"), "400 NextHopIpAddressNotAllowed"),
        (route("10.244.0.0/24", "Moon", ""), "400 InvalidRouteNextHopType"),
        (route("10.244.0.1/24", "VirtualAppliance", "10.0.0.4"), "400 InvalidCIDRNotation"),
        (route("10.244.0.0/33", "VirtualAppliance", "10.0.0.4"), "400 InvalidAddressPrefixFormat"),
    ];
    for (properties, expected) in rows {
        let body = json!({"location": "eastus", "properties": {"routes": [{"name": "r", "properties": properties}]}});
        assert_eq!(code(&Fixture::new().put("routeTables/t", &body)), expected, "{properties}");
    }
}

fn table(routes: &Value) -> Value {
    json!({"location": "eastus", "properties": {"routes": routes}})
}

fn route(name: &str, prefix: &str) -> Value {
    json!({"name": name, "properties": {"addressPrefix": prefix, "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.0.0.4"}})
}

#[test]
fn a_route_table_has_each_name_and_prefix_once_and_at_most_400_routes() {
    let rows = [
        (
            json!([route("a", "10.244.0.0/24"), route("A", "10.244.1.0/24")]),
            "400 InvalidRequestFormat (DuplicateResourceName)",
        ),
        (json!([route("a", "10.244.0.0/24"), route("b", "10.244.0.0/24")]), "400 RouteConflict"),
    ];
    for (routes, expected) in rows {
        assert_eq!(code(&Fixture::new().put("routeTables/t", &table(&routes))), expected);
    }
    let many = |count: u32| {
        (0..count)
            .map(|n| route(&n.to_string(), &format!("10.{}.{}.0/24", n / 256, n % 256)))
            .collect::<Vec<_>>()
    };
    let mut it = Fixture::new();
    assert_eq!(code(&it.put("routeTables/t", &table(&json!(many(401))))), "400 RouteTableRouteLimitReached");
    assert_eq!(code(&it.put("routeTables/t", &table(&json!(many(400))))), "201");
    let shown = it.get("routeTables/t").body.unwrap();
    assert_eq!(shown["properties"]["routes"].as_array().unwrap().len(), 400);
    // What a client reads it may write back.
    assert_eq!(code(&it.put("routeTables/t", &shown)), "200");
}

#[test]
fn routes_are_written_and_deleted_one_by_one() {
    let mut it = Fixture::new();
    it.put("routeTables/t", &table(&json!([])));
    let before = it.get("routeTables/t").body.unwrap()["etag"].clone();
    let created = it.put("routeTables/t/routes/a", &route("", "10.244.0.0/24"));
    assert_eq!(
        (created.status, created.body.as_ref().unwrap()["id"].as_str()),
        (201, Some(id("routeTables/t/routes/a").as_str()))
    );
    assert_eq!(it.put("routeTables/t/routes/a", &route("", "10.244.1.0/24")).status, 200);
    assert_eq!(
        it.get("routeTables/t/routes/A").body.unwrap()["properties"]["addressPrefix"],
        "10.244.1.0/24"
    );
    assert_ne!(it.get("routeTables/t").body.unwrap()["etag"], before, "a write of a part changes the whole");
    assert_eq!(code(&it.put("routeTables/t/routes/b", &route("", "10.244.1.0/24"))), "400 RouteConflict");
    assert_eq!(it.delete("routeTables/t/routes/a").status, 202);
    assert_eq!(it.delete("routeTables/t/routes/a").status, 204);
    assert_eq!(code(&it.get("routeTables/t/routes/a")), "404 NotFound");
    assert_eq!(
        code(&it.put("routeTables/none/routes/a", &route("", "10.244.0.0/24"))),
        "404 ParentResourceNotFound"
    );
}

#[test]
fn subnets_are_parts_of_their_network_and_stay_while_they_are_used() {
    let vnet = |subnets: Value| json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, "subnets": subnets}});
    let subnet = |name: &str, prefix: &str| json!({"name": name, "properties": {"addressPrefix": prefix}});
    let rows = [
        (vnet(json!([subnet("a", "10.0.0.0/24"), subnet("b", "10.0.1.0/24")])), "201"),
        (vnet(json!([subnet("a", "10.1.0.0/24")])), "400 NetcfgInvalidSubnet"),
        (
            vnet(json!([subnet("a", "10.0.0.0/24"), subnet("b", "10.0.0.128/25")])),
            "400 NetcfgSubnetRangesOverlap",
        ),
        (vnet(json!([subnet("a", "10.0.0.1/24")])), "400 InvalidCIDRNotation"),
        (vnet(json!([subnet("a", "ten")])), "400 InvalidAddressPrefixFormat"),
        (json!({"location": "eastus"}), "400 InvalidAddressSpace"),
    ];
    for (body, expected) in rows {
        assert_eq!(code(&Fixture::new().put("virtualNetworks/v", &body)), expected, "{body}");
    }
    let mut it = Fixture::new();
    let used = it.network();
    assert_eq!(
        it.put("virtualNetworks/v/subnets/b", &json!({"properties": {"addressPrefix": "10.0.1.0/24"}}))
            .status,
        201
    );
    it.put("routeTables/t", &table(&json!([])));
    let with_table =
        json!({"properties": {"addressPrefix": "10.0.1.0/24", "routeTable": {"id": id("routeTables/t")}}});
    assert_eq!(it.put("virtualNetworks/v/subnets/b", &with_table).status, 200);
    assert_eq!(
        it.get("routeTables/t").body.unwrap()["properties"]["subnets"],
        json!([{"id": id("virtualNetworks/v/subnets/b")}])
    );
    assert_eq!(code(&it.delete("routeTables/t")), "400 InUseRouteTableCannotBeDeleted");
    it.put("networkInterfaces/n", &interface(&used, &json!({})));
    assert_eq!(code(&it.delete("virtualNetworks/v/subnets/a")), "400 InUseSubnetCannotBeDeleted");
    assert_eq!(code(&it.delete("virtualNetworks/v")), "400 InUseSubnetCannotBeDeleted");
    assert_eq!(code(&it.put("virtualNetworks/v", &vnet(json!([])))), "400 InUseSubnetCannotBeDeleted");
    let shrunk = json!({"properties": {"addressPrefix": "10.0.0.128/25"}});
    assert_eq!(code(&it.put("virtualNetworks/v/subnets/a", &shrunk)), "400 InUsePrefixCannotBeDeleted");
    let shown = it.get("virtualNetworks/v/subnets/a").body.unwrap();
    assert_eq!(
        shown["properties"]["ipConfigurations"],
        json!([{"id": id("networkInterfaces/n/ipConfigurations/one")}])
    );
    it.delete("networkInterfaces/n");
    assert_eq!(it.delete("virtualNetworks/v/subnets/a").status, 202);
}

fn interface(subnet: &str, more: &Value) -> Value {
    let mut properties = json!({"subnet": {"id": subnet}});
    for (name, value) in more.as_object().unwrap() {
        properties[name] = value.clone();
    }
    json!({"location": "eastus", "properties": {"ipConfigurations": [{"name": "one", "properties": properties}]}})
}

#[test]
fn an_interface_gets_a_free_address_or_the_one_that_it_asks_for() {
    let mut it = Fixture::new();
    let subnet = it.network();
    let asked = |address: &str| json!({"privateIPAllocationMethod": "Static", "privateIPAddress": address});
    let rows = [
        ("a", json!({}), "201", "10.0.0.4"),
        ("b", json!({}), "201", "10.0.0.5"),
        ("c", json!({"privateIPAddressVersion": "IPv6"}), "201", "fd00::4"),
        ("d", asked("10.0.0.9"), "201", "10.0.0.9"),
        ("e", asked("10.0.0.9"), "400 PrivateIPAddressIsAllocated", ""),
        ("e", asked("10.0.0.1"), "400 PrivateIPAddressInReservedRange", ""),
        ("e", asked("10.0.7.9"), "400 PrivateIPAddressNotInSubnet", ""),
        ("d", asked("10.0.0.9"), "200", "10.0.0.9"),
        ("b", json!({}), "200", "10.0.0.5"),
        ("f", json!({}), "201", "10.0.0.10"),
    ];
    for (name, more, expected, address) in rows {
        let response = it.put(&format!("networkInterfaces/{name}"), &interface(&subnet, &more));
        assert_eq!(code(&response), expected, "{name} {more}");
        if !address.is_empty() {
            assert_eq!(
                response.body.unwrap()["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"],
                address,
                "{name}"
            );
        }
    }
    assert_eq!(
        code(&it.put("networkInterfaces/x", &interface(&id("virtualNetworks/v/subnets/none"), &json!({})))),
        "400 InvalidResourceReference"
    );
    let created = it.put("networkInterfaces/g", &interface(&subnet, &json!({})));
    assert_eq!(created.header("azure-asyncoperation"), None, "an interface is there at once");
    let deleted = it.delete("networkInterfaces/g");
    assert_eq!((deleted.status, deleted.header("azure-asyncoperation").is_some()), (200, true));
}

fn address(it: &mut Fixture, name: &str, sku: &str) -> String {
    let body = json!({"location": "eastus", "sku": {"name": sku}, "properties": {"publicIPAllocationMethod": "Static"}});
    assert_eq!(it.put(&format!("publicIPAddresses/{name}"), &body).status, 201);
    id(&format!("publicIPAddresses/{name}"))
}

#[test]
fn public_addresses_are_checked() {
    let body = |more: Value| {
        let mut body = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}});
        for (name, value) in more.as_object().unwrap() {
            body["properties"][name] = value.clone();
        }
        body
    };
    let rows = [
        (body(json!({})), "200"),
        (body(json!({"publicIPAllocationMethod": "Dynamic"})), "400 StandardSkuPublicIPAddressMustBeStatic"),
        (body(json!({"publicIPAddressVersion": "IPv6"})), "400 CannotChangePropertyOfPublicIPAddress"),
        (
            body(json!({"ipTags": [{"ipTagType": "RoutingPreference", "tag": "Internet"}]})),
            "400 CannotChangePropertyOfPublicIPAddress",
        ),
        (body(json!({"dnsSettings": {"domainNameLabel": "Taken"}})), "400 DnsRecordInUse"),
        (body(json!({"dnsSettings": {"domainNameLabel": "free"}})), "200"),
        (
            json!({"location": "eastus", "sku": {"name": "Basic"}, "properties": {"publicIPAllocationMethod": "Static"}}),
            "400 PublicIPAddressSkuUpdateNotAllowed",
        ),
    ];
    for (body_of, expected) in rows {
        let mut it = Fixture::new();
        address(&mut it, "known", "Standard");
        it.put("publicIPAddresses/other", &body(json!({"dnsSettings": {"domainNameLabel": "taken"}})));
        assert_eq!(code(&it.put("publicIPAddresses/known", &body_of)), expected, "{body_of}");
    }
    let mut it = Fixture::new();
    let caps = Caps { public_addresses: 1, ..Caps::default() };
    it.state.set_behavior(Behavior { caps, ..Behavior::default() }).unwrap();
    address(&mut it, "first", "Standard");
    assert_eq!(code(&it.put("publicIPAddresses/second", &body(json!({})))), "400 PublicIPCountLimitReached");
    it.faults.takes = seconds(10);
    it.delete("publicIPAddresses/first");
    it.now = seconds(10);
    let created = it.put("publicIPAddresses/second", &body(json!({})));
    assert!(
        created.body.unwrap()["properties"].get("ipAddress").is_none(),
        "the address comes with the end of the operation"
    );
    it.now = seconds(20);
    assert!(it.get("publicIPAddresses/second").body.unwrap()["properties"]["ipAddress"].is_string());
}

/// A load balancer with one frontend, pool, probe and rule; a path of the patch replaces a value.
fn balancer(public: &str, patch: &[(&str, Value)]) -> Value {
    let own = |rest: &str| json!({"id": id(&format!("loadBalancers/b/{rest}"))});
    let mut body = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": "f", "properties": {"publicIPAddress": {"id": public}}}],
        "backendAddressPools": [{"name": "p", "properties": {}}],
        "probes": [{"name": "h", "properties": {"protocol": "Tcp", "port": 30_080, "intervalInSeconds": 5}}],
        "loadBalancingRules": [{"name": "r", "properties": {
            "frontendIPConfiguration": own("frontendIPConfigurations/f"), "backendAddressPool": own("backendAddressPools/p"),
            "probe": own("probes/h"), "protocol": "Tcp", "frontendPort": 80, "backendPort": 80,
        }}],
    }});
    for (path, value) in patch {
        let (parent, name) = path.rsplit_once('/').unwrap();
        let place = body.pointer_mut(parent).unwrap();
        match place.as_array_mut() {
            Some(elements) => elements.push(value.clone()),
            None => place[name] = value.clone(),
        }
    }
    body
}

#[test]
fn load_balancers_are_checked() {
    const RULE: &str = "/properties/loadBalancingRules/0/properties";
    let own = |rest: &str| json!({"id": id(&format!("loadBalancers/b/{rest}"))});
    let second = |front: u16, back: u16, floating: bool| {
        json!({"name": "s", "properties": {
            "frontendIPConfiguration": own("frontendIPConfigurations/f"), "backendAddressPool": own("backendAddressPools/p"), "protocol": "Tcp",
            "frontendPort": front, "backendPort": back, "enableFloatingIP": floating,
        }})
    };
    let frontends = "/properties/frontendIPConfigurations";
    let probe = "/properties/probes/0/properties";
    let rows: Vec<(Vec<(String, Value)>, &str)> = vec![
        (vec![], "201"),
        (vec![("/sku/name".into(), json!("Basic"))], "400 PublicIPAndLBSkuDoNotMatch"),
        (
            vec![(
                format!("{frontends}/0/properties/publicIPAddress"),
                json!({"id": id("publicIPAddresses/none")}),
            )],
            "400 InvalidResourceReference",
        ),
        (
            vec![(
                format!("{frontends}/0/properties/publicIPAddress"),
                json!({"id": id("publicIPAddresses/used")}),
            )],
            "400 PublicIPAddressInUse",
        ),
        (
            vec![(
                format!("{frontends}/0/properties/publicIPAddress"),
                json!({"id": id("publicIPAddresses/six")}),
            )],
            "400 AtleastOneIpV4RequiredForIpV6LbFrontendIpConfiguration",
        ),
        (
            vec![(format!("{frontends}/0/properties"), json!({}))],
            "400 LoadBalancerFrontendIPConfigurationMustReferenceSubnetOrPublicIPAddress",
        ),
        (
            vec![(
                format!("{frontends}/-"),
                json!({"name": "i", "properties": {"subnet": {"id": id("virtualNetworks/v/subnets/a")}}}),
            )],
            "400 LoadBalancerCannotHaveBothPublicAndInternalFrontendIPConfigurations",
        ),
        (
            vec![(
                format!("{frontends}/-"),
                json!({"name": "F", "properties": {"publicIPAddress": {"id": id("publicIPAddresses/other")}}}),
            )],
            "400 InvalidRequestFormat (DuplicateResourceName)",
        ),
        (vec![(format!("{RULE}/probe"), own("probes/none"))], "400 InvalidResourceReference"),
        (
            vec![(format!("{RULE}/backendAddressPool"), own("backendAddressPools/none"))],
            "400 InvalidResourceReference",
        ),
        (vec![(format!("{RULE}/protocol"), json!("Sctp"))], "400 LoadBalancingRuleProtocolInvalid"),
        (vec![(format!("{RULE}/frontendPort"), json!(0))], "400 LoadBalancingRulePortInvalid"),
        (vec![(format!("{RULE}/idleTimeoutInMinutes"), json!(3))], "400 LoadBalancingRuleIdleTimeoutInvalid"),
        (
            vec![("/properties/loadBalancingRules/-".into(), second(80, 81, false))],
            "400 RulesUseSameFrontendPortProtocolAndIPConfig",
        ),
        (
            vec![("/properties/loadBalancingRules/-".into(), second(81, 80, false))],
            "400 RulesUseSameBackendPortProtocolAndPool",
        ),
        (vec![("/properties/loadBalancingRules/-".into(), second(81, 80, true))], "201"),
        (vec![(format!("{probe}/intervalInSeconds"), json!(4))], "400 LoadBalancerProbeIntervalInvalid"),
        (vec![(format!("{probe}/protocol"), json!("Http"))], "400 LoadBalancerProbeRequestPathInvalid"),
        (vec![(format!("{probe}/port"), json!(0))], "400 LoadBalancerProbePortInvalid"),
        (
            vec![(
                "/properties/backendAddressPools/0/properties".into(),
                json!({"loadBalancerBackendAddresses": [{"name": "n", "properties": {"ipAddress": "10.0.0.4"}}]}),
            )],
            "400 BackendAddressMustReferenceVirtualNetwork",
        ),
    ];
    for (patch, expected) in rows {
        let mut it = Fixture::new();
        it.network();
        let public = address(&mut it, "own", "Standard");
        let used = address(&mut it, "used", "Standard");
        address(&mut it, "other", "Standard");
        let six = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv6"}});
        it.put("publicIPAddresses/six", &six);
        it.put(
            "networkInterfaces/n",
            &interface(&id("virtualNetworks/v/subnets/a"), &json!({"publicIPAddress": {"id": used}})),
        );
        let patch: Vec<_> = patch.iter().map(|(path, value)| (path.as_str(), value.clone())).collect();
        assert_eq!(code(&it.put("loadBalancers/b", &balancer(&public, &patch))), expected, "{patch:?}");
    }
}

#[test]
fn a_load_balancer_shows_what_refers_to_its_parts_and_can_be_written_back() {
    let (mut it, _) = Fixture::nodes(NewNodes { count: 3, ..NewNodes::default() });
    let public = address(&mut it, "own", "Standard");
    assert_eq!(code(&it.put("loadBalancers/b", &balancer(&public, &[]))), "201");
    let pool = id("loadBalancers/b/backendAddressPools/p");
    let set = "virtualMachineScaleSets/aks-nodes0-vmss";
    let mut model = it.get(set).body.unwrap();
    let pools = json!([{"id": pool, "name": "p", "properties": {"a": "copy"}}]);
    model["properties"]["virtualMachineProfile"]["networkProfile"]["networkInterfaceConfigurations"][0]["properties"]
        ["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] = pools.clone();
    assert_eq!(code(&it.put(set, &model)), "200");
    let members = |it: &mut Fixture| {
        it.get("loadBalancers/b").body.unwrap()["properties"]["backendAddressPools"][0]["properties"]["backendIPConfigurations"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(members(&mut it), 0, "the model is no member");
    assert_eq!(
        it.get(&format!("{set}/virtualMachines/0")).body.unwrap()["properties"]["latestModelApplied"],
        false
    );
    let upgrade = format!("{set}/manualupgrade");
    assert_eq!(it.call(Method::POST, &upgrade, &[], &json!({"instanceIds": ["0", "1"]})).status, 202);
    assert_eq!(members(&mut it), 2);
    let latest = |it: &mut Fixture, machine: u8| {
        it.get(&format!("{set}/virtualMachines/{machine}")).body.unwrap()["properties"]["latestModelApplied"]
            .clone()
    };
    assert_eq!((latest(&mut it, 0), latest(&mut it, 2)), (json!(true), json!(false)));
    let mut machine = it.get(&format!("{set}/virtualMachines/2")).body.unwrap();
    machine["properties"]["networkProfileConfiguration"]["networkInterfaceConfigurations"][0]["properties"]
        ["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] = pools;
    it.put(&format!("{set}/virtualMachines/2"), &machine);
    assert_eq!(members(&mut it), 3);
    let shown = it.get("loadBalancers/b").body.unwrap();
    let frontend = &shown["properties"]["frontendIPConfigurations"][0]["properties"];
    assert_eq!(frontend["loadBalancingRules"], json!([{"id": id("loadBalancers/b/loadBalancingRules/r")}]));
    assert_eq!(code(&it.put("loadBalancers/b", &shown)), "200", "what is read can be written back");
    assert_eq!(members(&mut it), 3);
    let refused = it.delete("loadBalancers/b");
    assert_eq!(code(&refused), "400 LoadBalancerInUseByVirtualMachineScaleSet");
    assert!(refused.body.unwrap()["error"]["message"].as_str().unwrap().contains(&id(set)));
    assert_eq!(code(&it.delete("publicIPAddresses/own")), "400 PublicIPAddressCannotBeDeleted");
    let fewer = balancer(
        &public,
        &[("/properties/backendAddressPools", json!([])), ("/properties/loadBalancingRules", json!([]))],
    );
    assert_eq!(code(&it.put("loadBalancers/b", &fewer)), "400 LoadBalancerInUseByVirtualMachineScaleSet");
}

#[test]
fn a_write_of_a_load_balancer_changes_the_etags_of_its_addresses() {
    for touch_references in [true, false] {
        let mut it = Fixture::new();
        it.state.set_behavior(Behavior { touch_references, ..Behavior::default() }).unwrap();
        let public = address(&mut it, "own", "Standard");
        let before = it.get("publicIPAddresses/own").body.unwrap()["etag"].clone();
        it.put("loadBalancers/b", &balancer(&public, &[]));
        assert_eq!(it.get("publicIPAddresses/own").body.unwrap()["etag"] != before, touch_references);
    }
}

#[test]
fn a_reference_to_what_is_being_written_is_a_lock_that_looks_like_throttling() {
    let mut it = Fixture::new();
    it.faults.takes = seconds(10);
    let public = address(&mut it, "own", "Standard");
    let refused = it.put("loadBalancers/b", &balancer(&public, &[]));
    assert_eq!(code(&refused), "429 RetryableError (ReferencedResourceNotProvisioned)");
    it.now = seconds(10);
    assert_eq!(code(&it.put("loadBalancers/b", &balancer(&public, &[]))), "201");
}

#[test]
fn an_interface_is_in_pools_of_one_load_balancer_of_a_type() {
    let mut it = Fixture::new();
    let subnet = it.network();
    let internal = json!({"name": "f", "properties": {"subnet": {"id": subnet}}});
    let public = |id: &str| json!({"name": "f", "properties": {"publicIPAddress": {"id": id}}});
    let (one, other) = (address(&mut it, "one", "Standard"), address(&mut it, "other", "Standard"));
    for (name, frontend) in [("a", public(&one)), ("b", public(&other)), ("c", internal)] {
        let body = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {
            "frontendIPConfigurations": [frontend], "backendAddressPools": [{"name": "p"}, {"name": "q"}],
        }});
        assert_eq!(code(&it.put(&format!("loadBalancers/{name}"), &body)), "201", "{name}");
    }
    let rows = [
        (["a/backendAddressPools/p", "a/backendAddressPools/q"], "201"),
        (["a/backendAddressPools/p", "c/backendAddressPools/p"], "200"),
        (
            ["a/backendAddressPools/p", "b/backendAddressPools/p"],
            "400 NetworkInterfaceUsesMultipleLoadBalancersOfSameType",
        ),
    ];
    for (pools, expected) in rows {
        let pools: Vec<_> =
            pools.iter().map(|pool| json!({"id": id(&format!("loadBalancers/{pool}"))})).collect();
        let body = interface(&subnet, &json!({"loadBalancerBackendAddressPools": pools}));
        assert_eq!(code(&it.put("networkInterfaces/n", &body)), expected, "{pools:?}");
    }
    let document = it.call(
        Method::GET,
        "/metadata/loadbalancer?api-version=2020-10-01",
        &[("metadata", "true")],
        &Value::Null,
    );
    assert_eq!(document.status, 404, "there is no machine");
}

#[test]
fn pools_are_written_one_by_one_and_migrated() {
    let mut it = Fixture::new();
    it.network();
    let public = address(&mut it, "own", "Standard");
    it.put("loadBalancers/b", &balancer(&public, &[]));
    let member = json!({"name": "n", "properties": {"ipAddress": "10.0.0.4"}});
    let body = json!({"properties": {"virtualNetwork": {"id": id("virtualNetworks/v")}, "loadBalancerBackendAddresses": [member]}});
    let written = it.put("loadBalancers/b/backendAddressPools/p", &body);
    assert_eq!(written.status, 200);
    assert_eq!(
        written.body.unwrap()["properties"]["loadBalancerBackendAddresses"][0]["properties"]["ipAddress"],
        "10.0.0.4"
    );
    assert_eq!(it.put("loadBalancers/b/backendAddressPools/q", &json!({"properties": {}})).status, 201);
    let twice = json!({"properties": {"virtualNetwork": {"id": id("virtualNetworks/v")}, "loadBalancerBackendAddresses": [member, member]}});
    assert_eq!(
        code(&it.put("loadBalancers/b/backendAddressPools/q", &twice)),
        "400 InvalidRequestFormat (DuplicateResourceName)"
    );
    assert_eq!(it.delete("loadBalancers/b/backendAddressPools/q").status, 202);
    let pool =
        json!({"loadBalancerBackendAddressPools": [{"id": id("loadBalancers/b/backendAddressPools/p")}]});
    it.put("networkInterfaces/n", &interface(&id("virtualNetworks/v/subnets/a"), &pool));
    assert_eq!(
        it.call(Method::POST, "loadBalancers/b/migrateToIpBased", &[], &json!({"pools": ["p"]})).status,
        202
    );
}

fn rule(name: &str, priority: u16, patch: &[(&str, Value)]) -> Value {
    let mut properties = json!({
        "priority": priority, "direction": "Inbound", "access": "Allow", "protocol": "Tcp", "sourceAddressPrefix": "Internet",
        "sourcePortRange": "*", "destinationAddressPrefix": "198.18.0.1", "destinationPortRanges": ["80"],
    });
    for (name, value) in patch {
        properties[*name] = value.clone();
    }
    json!({"name": name, "properties": properties})
}

#[test]
fn security_groups_are_checked() {
    let rows = [
        (json!([rule("a", 500, &[]), rule("b", 501, &[])]), "201"),
        (json!([rule("a", 500, &[]), rule("b", 500, &[])]), "400 SecurityRuleConflict"),
        (json!([rule("a", 500, &[]), rule("b", 500, &[("direction", json!("Outbound"))])]), "201"),
        (json!([rule("a", 99, &[])]), "400 SecurityRuleInvalidPriority"),
        (
            json!([rule("a", 500, &[("protocol", json!("Sctp"))])]),
            "400 SecurityRuleParameterContainsUnsupportedValue",
        ),
        (
            json!([rule("a", 500, &[("sourceAddressPrefixes", json!(["10.0.0.0/8"]))])]),
            "400 SecurityRuleInvalidAddressPrefix",
        ),
        (
            json!([rule("a", 500, &[("sourceAddressPrefix", Value::Null)])]),
            "400 SecurityRuleInvalidAddressPrefix",
        ),
        (
            json!([rule("a", 500, &[("destinationPortRanges", json!(["80-70"]))])]),
            "400 SecurityRuleInvalidPortRange",
        ),
        (
            json!([rule("a", 500, &[("destinationPortRanges", json!([]))])]),
            "400 SecurityRuleInvalidPortRange",
        ),
    ];
    for (rules, expected) in rows {
        let body = json!({"location": "eastus", "properties": {"securityRules": rules}});
        assert_eq!(code(&Fixture::new().put("networkSecurityGroups/g", &body)), expected, "{rules}");
    }
    let mut it = Fixture::new();
    let caps = Caps { rules_per_security_group: 1, prefixes_per_security_group: 1, ..Caps::default() };
    it.state.set_behavior(Behavior { caps, ..Behavior::default() }).unwrap();
    let body = |rules: Value| json!({"location": "eastus", "properties": {"securityRules": rules}});
    assert_eq!(
        code(&it.put("networkSecurityGroups/g", &body(json!([rule("a", 500, &[]), rule("b", 501, &[])])))),
        "400 SecurityRuleCountLimitReached"
    );
    let wide = rule(
        "a",
        500,
        &[
            ("destinationAddressPrefix", Value::Null),
            ("destinationAddressPrefixes", json!(["1.1.1.1", "1.1.1.2"])),
        ],
    );
    assert_eq!(
        code(&it.put("networkSecurityGroups/g", &body(json!([wide])))),
        "400 NetworkSecurityGroupAddressPrefixLimitReached"
    );
    it.put("networkSecurityGroups/g", &body(json!([])));
    let shown = it.get("networkSecurityGroups/g").body.unwrap();
    assert_eq!(shown["properties"]["defaultSecurityRules"].as_array().unwrap().len(), 6);
    assert_eq!(code(&it.put("networkSecurityGroups/g", &shown)), "200");
}

#[test]
fn private_link_services_are_checked() {
    let mut it = Fixture::new();
    let subnet = it.network();
    let frontend = json!({"name": "f", "properties": {"subnet": {"id": subnet}}});
    it.put("loadBalancers/b", &json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {"frontendIPConfigurations": [frontend]}}));
    it.put(
        "loadBalancers/basic",
        &json!({"location": "eastus", "properties": {"frontendIPConfigurations": [frontend]}}),
    );
    let service = |balancer: &str, count: usize| {
        let configurations: Vec<_> = (0..count)
            .map(|n| json!({"name": format!("c{n}"), "properties": {"subnet": {"id": subnet}}}))
            .collect();
        json!({"location": "eastus", "properties": {
            "ipConfigurations": configurations,
            "loadBalancerFrontendIpConfigurations": [{"id": id(&format!("loadBalancers/{balancer}/frontendIPConfigurations/f"))}],
        }})
    };
    let closed = "400 PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled";
    assert_eq!(code(&it.put("privateLinkServices/s", &service("b", 1))), closed);
    let open = json!({"properties": {"addressPrefixes": ["10.0.0.0/24", "fd00::/64"], "privateLinkServiceNetworkPolicies": "Disabled"}});
    assert_eq!(code(&it.put("virtualNetworks/v/subnets/a", &open)), "200");
    let rows = [
        ("s", service("basic", 1), "400 PrivateLinkServiceRequiresStandardLoadBalancer"),
        ("s", service("b", 9), "400 PrivateLinkServiceIPConfigurationCountInvalid"),
        ("s", service("none", 1), "400 InvalidResourceReference"),
        ("s", service("b", 2), "201"),
        ("t", service("b", 1), "400 LoadBalancerFrontendIPConfigurationInUseByPrivateLinkService"),
    ];
    for (name, body, expected) in rows {
        assert_eq!(code(&it.put(&format!("privateLinkServices/{name}"), &body)), expected, "{name} {body}");
    }
    assert_eq!(code(&it.delete("loadBalancers/b")), "400 LoadBalancerInUseByPrivateLinkService");
    assert!(
        it.get("privateLinkServices/s").body.unwrap()["properties"]["alias"]
            .as_str()
            .unwrap()
            .ends_with(".eastus.azure.privatelinkservice")
    );
    assert_eq!(it.delete("privateLinkServices/s").status, 202);
    assert_eq!(it.delete("loadBalancers/b").status, 202);
}
