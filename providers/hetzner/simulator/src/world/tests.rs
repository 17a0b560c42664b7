//! The project as clients change it: what each request does, what is refused with which code, and that no sequence of requests
//! leaves it inconsistent.

mod fixture;
mod invariants;

use serde_json::{Value, json};

use self::fixture::{Fixture, code, seconds};
use super::*;

#[test]
fn a_new_load_balancer_has_its_parts_and_the_defaults_of_the_api() {
    let mut it = Fixture::new();
    let created = it.create(&json!({
        "name": "web", "load_balancer_type": "lb11", "network_zone": "eu-central", "network": it.network,
        "labels": {"a/b": "c"}, "services": [{"protocol": "https", "http": {"certificates": [it.certificate]}}],
        "targets": [{"type": "server", "server": {"id": it.servers[0]}, "use_private_ip": true}],
    }));
    let shown = &created.unwrap()["load_balancer"];
    assert_eq!(shown["location"]["name"], "fsn1");
    assert_eq!(shown["algorithm"], json!({"type": "round_robin"}));
    assert_eq!(shown["private_net"], json!([{"network": it.network, "ip": "10.0.0.6"}]));
    let service = json!({
        "protocol": "https", "listen_port": 443, "destination_port": 80, "proxyprotocol": false,
        "http": {
            "cookie_name": "HCLBSTICKY", "cookie_lifetime": 300, "certificates": [it.certificate],
            "redirect_http": false, "sticky_sessions": false, "timeout_idle": 50,
        },
        "health_check": {
            "protocol": "http", "port": 80, "interval": 15, "timeout": 10, "retries": 3, "http": null,
        },
    });
    assert_eq!(shown["services"], json!([service]));
    assert_eq!(shown["targets"][0]["health_status"], json!([{"listen_port": 443, "status": "healthy"}]));
    let certificate = it.get(Collection::Certificates, it.certificate);
    assert_eq!(certificate["used_by"], json!([{"id": shown["id"], "type": "load_balancer"}]));
    let server = it.get(Collection::Servers, it.servers[0]);
    assert_eq!(server["load_balancers"], json!([shown["id"]]));
    assert_eq!(it.get(Collection::Networks, it.network)["load_balancers"], json!([shown["id"]]));
}

#[test]
fn an_invalid_load_balancer_is_refused_with_its_code() {
    let service = json!({"protocol": "tcp", "listen_port": 80, "destination_port": 80});
    let unknown_server = json!([{"type": "server", "server": {"id": 9}}]);
    let table = [
        (json!({}), "done"),
        (json!({"name": ""}), "invalid_input name"),
        (json!({"name": " a"}), "invalid_input name"),
        (json!({"name": "x".repeat(129)}), "invalid_input name"),
        (json!({"name": "taken"}), "uniqueness_error"),
        (json!({"load_balancer_type": "lb99"}), "invalid_input load_balancer_type"),
        (json!({"load_balancer_type": 1}), "done"),
        (json!({"load_balancer_type": "2"}), "done"),
        (json!({"location": "moon"}), "invalid_input location"),
        (json!({"location": null}), "invalid_input location"),
        (json!({"network_zone": "eu-central"}), "invalid_input location"),
        (json!({"location": null, "network_zone": "moon"}), "invalid_input network_zone"),
        (json!({"labels": {"k": "a/b"}}), "invalid_input labels"),
        (json!({"algorithm": {"type": "random"}}), "invalid_input body"),
        (json!({"public_interface": false}), "load_balancer_not_attached_to_network"),
        (json!({"public_interface": false, "network": "N"}), "done"),
        (json!({"network": 9}), "not_found"),
        (json!({"location": "ash", "network": "N"}), "no_subnet_available"),
        (json!({"services": [service, service]}), "source_port_already_used"),
        (json!({"targets": unknown_server}), "not_found"),
        (json!({"color": "red"}), "invalid_input body"),
    ];
    for (patch, expected) in table {
        let mut it = Fixture::new();
        it.balancer("taken");
        let mut body = json!({"name": "web", "load_balancer_type": "lb11", "location": "fsn1"});
        for (field, value) in patch.as_object().unwrap() {
            body[field] = if *value == "N" { json!(it.network) } else { value.clone() };
        }
        assert_eq!(code(&it.create(&body)), expected, "{patch}");
    }
    let mut it = Fixture::new();
    it.world.set_project(Project { max_load_balancers: Some(1), ..Project::default() });
    it.balancer("a");
    let body = json!({"name": "b", "load_balancer_type": "lb11", "location": "fsn1"});
    assert_eq!(code(&it.create(&body)), "resource_limit_exceeded");
    assert_eq!(code(&it.create_text("{")), "json_error");
}

#[test]
fn services_are_added_updated_and_deleted_by_their_port() {
    let add = |port: u32, more: Value| {
        let mut body = json!({"protocol": "tcp", "listen_port": port, "destination_port": 30_000});
        for (field, value) in more.as_object().unwrap() {
            body[field] = value.clone();
        }
        ("add_service", body)
    };
    let check = |field: &str, value: u32| json!({"health_check": {"protocol": "tcp", field: value}});
    let redirect = json!({"protocol": "https", "http": {"redirect_http": true}});
    let table = [
        (add(81, json!({})), "done"),
        (add(80, json!({})), "source_port_already_used"),
        (add(443, redirect.clone()), "source_port_already_used"),
        (add(0, json!({})), "invalid_input listen_port"),
        (add(65_536, json!({})), "invalid_input body"),
        (add(81, json!({"protocol": "udp"})), "invalid_input body"),
        (add(81, json!({"destination_port": null})), "invalid_input destination_port"),
        (("add_service", json!({"listen_port": 81})), "invalid_input protocol"),
        (("add_service", json!({"protocol": "tcp", "destination_port": 1})), "invalid_input listen_port"),
        (add(81, json!({"http": {"sticky_sessions": true}})), "invalid_input http"),
        (
            add(81, json!({"protocol": "http", "http": {"redirect_http": true}})),
            "invalid_input http.redirect_http",
        ),
        (add(81, json!({"protocol": "https", "http": {"certificates": [9]}})), "not_found"),
        (
            add(81, json!({"protocol": "http", "http": {"cookie_lifetime": 29}})),
            "invalid_input http.cookie_lifetime",
        ),
        (add(81, check("interval", 2)), "invalid_input health_check.interval"),
        (add(81, check("interval", 3)), "done"),
        (add(81, check("interval", 61)), "invalid_input health_check.interval"),
        (add(81, check("timeout", 0)), "invalid_input health_check.timeout"),
        (add(81, check("retries", 6)), "invalid_input health_check.retries"),
        (add(81, check("color", 6)), "invalid_input body"),
        (add(81, json!({"health_check": 5})), "invalid_input body"),
        (add(81, json!({"health_check": null, "http": null})), "done"),
        (("add_service", json!([])), "invalid_input body"),
        (("update_service", json!({"listen_port": 80, "destination_port": 31_000})), "done"),
        (("update_service", json!({"listen_port": 81, "destination_port": 31_000})), "not_found"),
        (("update_service", json!({"destination_port": 31_000})), "invalid_input listen_port"),
        (("delete_service", json!({"listen_port": 80})), "done"),
        (("delete_service", json!({"listen_port": 81})), "not_found"),
        (("delete_service", json!({})), "invalid_input body"),
        (("reload_service", json!({})), "not_found"),
    ];
    for ((command, body), expected) in table {
        let mut it = Fixture::new();
        let id = it.balancer("web");
        it.act(id, "add_service", &json!({"protocol": "tcp", "listen_port": 80, "destination_port": 1}))
            .unwrap();
        assert_eq!(code(&it.act(id, command, &body)), expected, "{command} {body}");
    }
}

#[test]
fn an_update_of_a_service_keeps_fields_that_it_lacks() {
    let mut it = Fixture::new();
    let id = it.balancer("web");
    let health = json!({"protocol": "http", "interval": 5, "http": {"path": "/up", "domain": null}});
    let added = json!({"protocol": "http", "destination_port": 30_000, "health_check": health});
    it.act(id, "add_service", &added).unwrap();
    let updated =
        json!({"listen_port": 80, "http": {"sticky_sessions": true}, "health_check": {"retries": 5}});
    it.act(id, "update_service", &updated).unwrap();
    let service = &it.get(Collection::LoadBalancers, id)["services"][0];
    let [path, interval, retries, sticky, port] = [
        "/health_check/http/path",
        "/health_check/interval",
        "/health_check/retries",
        "/http/sticky_sessions",
        "/health_check/port",
    ]
    .map(|path| service.pointer(path).unwrap());
    assert_eq!(
        (path, interval, retries, sticky, port),
        (&json!("/up"), &json!(5), &json!(5), &json!(true), &json!(30_000))
    );
    it.act(id, "add_service", &json!({"protocol": "https"})).unwrap();
    let redirect = json!({"listen_port": 443, "http": {"redirect_http": true}});
    let refused = it.act(id, "update_service", &redirect).unwrap_err();
    assert_eq!((refused.code, refused.status), (Code::SourcePortAlreadyUsed, 422));
}

#[test]
fn targets_need_a_path_from_the_load_balancer() {
    let server =
        |id: u64, private: bool| json!({"type": "server", "server": {"id": id}, "use_private_ip": private});
    let ip = |ip: &str| json!({"type": "ip", "ip": {"ip": ip}});
    let selector =
        |selector: &str| json!({"type": "label_selector", "label_selector": {"selector": selector}});
    let it = Fixture::new();
    let (first, private_only) = (it.servers[0], it.private_only);
    // Whether the load balancer is attached to the network, and its public interface is enabled.
    let table = [
        (true, true, server(first, false), "done"),
        (true, true, server(first, true), "done"),
        (false, true, server(first, true), "load_balancer_not_attached_to_network"),
        (true, false, server(first, true), "done"),
        (true, false, server(first, false), "load_balancer_public_interface_disabled"),
        (true, true, server(it.public_only, true), "server_not_attached_to_network"),
        (true, true, server(private_only, true), "done"),
        (true, true, server(private_only, false), "missing_ipv4"),
        (true, true, server(9, false), "not_found"),
        (true, true, selector("role=node"), "done"),
        (true, true, selector("a=b/c"), "invalid_input label_selector"),
        (true, true, selector(""), "invalid_input label_selector"),
        (true, true, ip("192.0.2.7"), "done"),
        (true, true, ip("192.0.2.8"), "ip_not_owned"),
        (true, true, ip("198.18.0.1"), "cloud_resource_ip_not_allowed"),
        (true, true, ip("node"), "invalid_input body"),
        (true, true, json!({"type": "server"}), "invalid_input type"),
        (true, true, json!({"type": "ip", "server": {"id": first}}), "invalid_input type"),
        (
            true,
            true,
            json!({"type": "ip", "ip": {"ip": "192.0.2.7"}, "use_private_ip": true}),
            "invalid_input use_private_ip",
        ),
    ];
    for (is_attached, is_public, body, expected) in table {
        let mut it = Fixture::new();
        let dedicated_ips = BTreeSet::from(["192.0.2.7".parse().unwrap()]);
        it.world.set_project(Project { dedicated_ips, ..Project::default() });
        let id = it.balancer("web");
        if is_attached {
            it.act(id, "attach_to_network", &json!({"network": it.network})).unwrap();
        }
        if !is_public {
            it.act(id, "disable_public_interface", &json!({})).unwrap();
        }
        let added = it.act(id, "add_target", &body);
        assert_eq!(code(&added), expected, "{is_attached} {is_public} {body}");
        if added.is_ok() {
            assert_eq!(code(&it.act(id, "add_target", &body)), "target_already_defined", "{body}");
            assert_eq!(code(&it.act(id, "remove_target", &body)), "done", "{body}");
            assert_eq!(code(&it.act(id, "remove_target", &body)), "not_found", "{body}");
        }
    }
}

#[test]
fn a_label_selector_target_shows_the_servers_that_it_selects_now() {
    let mut it = Fixture::new();
    let id = it.balancer("web");
    it.act(id, "add_target", &json!({"type": "label_selector", "label_selector": {"selector": "role=node"}}))
        .unwrap();
    let selected = |it: &mut Fixture| {
        let targets = it.get(Collection::LoadBalancers, id)["targets"][0]["targets"].clone();
        targets
            .as_array()
            .unwrap()
            .iter()
            .map(|target| target["server"]["id"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(selected(&mut it), it.servers, "not the one without a public address");
    let changes = ServerChanges { labels: Some(Labels::new()), ..ServerChanges::default() };
    it.world.change_server(seconds(0), it.servers[1], changes).unwrap();
    it.world.delete_server(seconds(0), it.servers[2]).unwrap();
    assert_eq!(selected(&mut it), [it.servers[0]]);
}

#[test]
fn interfaces_networks_types_and_protection_change_as_documented() {
    let steps = [
        ("disable_public_interface", json!({}), "load_balancer_not_attached_to_network"),
        ("detach_from_network", json!({"network": "N"}), "load_balancer_not_attached_to_network"),
        ("attach_to_network", json!({"network": 9}), "not_found"),
        ("attach_to_network", json!({"network": "N", "ip": "10.0.0.2"}), "ip_not_available"),
        ("attach_to_network", json!({"network": "N", "ip": "10.0.0.1"}), "ip_not_available"),
        ("attach_to_network", json!({"network": "N", "ip": "10.9.0.1"}), "ip_not_available"),
        ("attach_to_network", json!({"network": "N", "ip_range": "10.9.0.0/16"}), "no_subnet_available"),
        ("attach_to_network", json!({"network": "N", "ip": "10.0.0.200", "ip_range": "10.0.0.0/16"}), "done"),
        ("attach_to_network", json!({"network": "N"}), "load_balancer_already_attached"),
        ("add_target", json!({"type": "server", "server": {"id": "S"}}), "done"),
        ("disable_public_interface", json!({}), "targets_without_use_private_ip"),
        ("remove_target", json!({"type": "server", "server": {"id": "S"}}), "done"),
        ("disable_public_interface", json!({}), "done"),
        ("enable_public_interface", json!({}), "done"),
        ("change_algorithm", json!({"type": "least_connections"}), "done"),
        ("change_type", json!({"load_balancer_type": "lb21"}), "done"),
        ("change_type", json!({"load_balancer_type": "lb99"}), "invalid_input load_balancer_type"),
        ("change_dns_ptr", json!({"ip": "198.51.100.1", "dns_ptr": "a.example"}), "invalid_input ip"),
        ("change_protection", json!({"delete": true}), "done"),
        ("detach_from_network", json!({"network": "N"}), "done"),
    ];
    let mut it = Fixture::new();
    let id = it.balancer("web");
    for (command, body, expected) in steps {
        let text = body.to_string().replace("\"N\"", &it.network.to_string());
        let text = text.replace("\"S\"", &it.servers[0].to_string());
        assert_eq!(code(&it.act_text(id, command, &text)), expected, "{command} {body}");
    }
    assert_eq!(code(&it.world.delete_load_balancer(it.now, id)), "protected");
    let shown = it.get(Collection::LoadBalancers, id);
    assert_eq!((&shown["load_balancer_type"]["name"], &shown["private_net"]), (&json!("lb21"), &json!([])));
}

#[test]
fn a_type_limits_services_and_targets_and_a_smaller_one_does_not_fit() {
    let mut it = Fixture::new();
    let more = NewServers { count: 26, prefix: "more-".to_owned(), ..NewServers::default() };
    let servers = it.world.create_servers(seconds(0), &more).unwrap();
    let id = it.balancer("web");
    let target = |id: u64| json!({"type": "server", "server": {"id": id}});
    for server in &servers[..25] {
        it.act(id, "add_target", &target(*server)).unwrap();
    }
    assert_eq!(code(&it.act(id, "add_target", &target(servers[25]))), "resource_limit_exceeded");
    it.act(id, "change_type", &json!({"load_balancer_type": "lb21"})).unwrap();
    it.act(id, "add_target", &target(servers[25])).unwrap();
    let smaller = it.act(id, "change_type", &json!({"load_balancer_type": "lb11"}));
    assert_eq!(code(&smaller), "invalid_load_balancer_type");
    it.act(id, "remove_target", &target(servers[0])).unwrap();
    it.act(id, "change_type", &json!({"load_balancer_type": "lb11"})).unwrap();
    for port in 1..=5 {
        it.act(id, "add_service", &json!({"protocol": "tcp", "listen_port": port, "destination_port": 1}))
            .unwrap();
    }
    let sixth =
        it.act(id, "add_service", &json!({"protocol": "tcp", "listen_port": 6, "destination_port": 1}));
    assert_eq!(code(&sixth), "resource_limit_exceeded");
}

#[test]
fn routes_have_private_destinations_that_overlap_with_nothing() {
    let table = [
        ("10.244.1.0/24", "10.0.0.2", "done"),
        ("192.168.0.0/24", "10.0.0.2", "done"),
        ("0.0.0.0/0", "10.0.0.2", "done"),
        ("10.244.0.0/24", "10.0.0.2", "invalid_input destination"),
        ("10.244.0.0/16", "10.0.0.2", "invalid_input destination"),
        ("10.244.0.128/25", "10.0.0.2", "invalid_input destination"),
        ("10.0.0.0/24", "10.0.0.2", "invalid_input destination"),
        ("10.0.0.0/8", "10.0.0.2", "invalid_input destination"),
        ("10.244.1.1/24", "10.0.0.2", "invalid_input destination"),
        ("203.0.113.0/24", "10.0.0.2", "invalid_input destination"),
        ("172.31.1.0/24", "10.0.0.2", "invalid_input destination"),
        ("fd00::/64", "10.0.0.2", "invalid_input destination"),
        ("10.244.1.0/24", "10.0.0.1", "invalid_input gateway"),
        ("10.244.1.0/24", "192.0.2.1", "invalid_input gateway"),
        ("10.244.1.0/24", "fd00::1", "invalid_input gateway"),
        ("10.244.1.0/24", "10.1.0.2", "invalid_input gateway"),
    ];
    for (destination, gateway, expected) in table {
        let mut it = Fixture::new();
        it.route("add_route", "10.244.0.0/24", "10.0.0.2").unwrap();
        assert_eq!(code(&it.route("add_route", destination, gateway)), expected, "{destination} {gateway}");
    }
}

#[test]
fn a_network_has_a_hundred_routes_at_most_and_a_route_is_deleted_as_a_whole() {
    let mut it = Fixture::new();
    for number in 0..100 {
        it.route("add_route", &format!("10.244.{number}.0/24"), "10.0.0.2").unwrap();
    }
    assert_eq!(code(&it.route("add_route", "10.245.0.0/24", "10.0.0.2")), "resource_limit_exceeded");
    assert_eq!(code(&it.route("delete_route", "10.244.0.0/24", "10.0.0.3")), "not_found");
    assert_eq!(code(&it.route("delete_route", "10.244.0.0/24", "10.0.0.2")), "done");
    assert_eq!(code(&it.route("add_route", "10.245.0.0/24", "10.0.0.2")), "done");
    assert_eq!(it.get(Collection::Networks, it.network)["routes"].as_array().unwrap().len(), 100);
}

#[test]
fn an_action_locks_its_resources_until_it_ends_and_changes_them_then() {
    let mut it = Fixture::new();
    let (id, other) = (it.balancer("web"), it.balancer("other"));
    let network = json!({"network": it.network});
    it.faults.takes = seconds(10);
    let begun = it.act(id, "attach_to_network", &network).unwrap();
    let action = &begun["action"];
    assert_eq!(
        (&action["status"], &action["progress"], &action["error"]),
        (&json!("running"), &json!(0), &Value::Null)
    );

    it.now = seconds(4);
    assert_eq!(code(&it.act(id, "enable_public_interface", &json!({}))), "locked");
    assert_eq!(code(&it.world.delete_load_balancer(it.now, id)), "locked");
    assert_eq!(code(&it.update(id, &json!({"name": "new"}))), "conflict");
    assert_eq!(code(&it.route("add_route", "10.244.0.0/24", "10.0.0.2")), "conflict");
    assert_eq!(code(&it.act(other, "attach_to_network", &network)), "conflict", "the network is locked");
    assert_eq!(it.get(Collection::LoadBalancers, id)["private_net"], json!([]), "not changed yet");
    let action_id = action["id"].as_u64().unwrap();
    assert_eq!(it.action(action_id)["progress"], 40);
    assert_eq!(code(&it.update(other, &json!({"name": "free"}))), "done");

    it.now = seconds(10);
    assert_eq!(it.action(action_id)["status"], "success");
    assert_eq!(it.get(Collection::LoadBalancers, id)["private_net"][0]["network"], it.network);
    assert_eq!(code(&it.act(other, "attach_to_network", &network)), "done");
}

#[test]
fn an_action_that_fails_changes_nothing_and_a_failed_creation_leaves_nothing() {
    let mut it = Fixture::new();
    let id = it.balancer("web");
    it.faults.fails = true;
    for takes in [0, 5] {
        it.faults.takes = seconds(takes);
        let begun = it.act(id, "change_algorithm", &json!({"type": "least_connections"})).unwrap();
        it.now += seconds(takes);
        let action = it.action(begun["action"]["id"].as_u64().unwrap());
        assert_eq!((&action["status"], &action["error"]["code"]), (&json!("error"), &json!("action_failed")));
        assert_eq!(it.get(Collection::LoadBalancers, id)["algorithm"]["type"], "round_robin");
    }
    let body = json!({"name": "b", "load_balancer_type": "lb11", "location": "fsn1", "network": it.network});
    let created = it.create(&body).unwrap()["load_balancer"]["id"].as_u64().unwrap();
    assert!(
        it.world.get(it.now, Collection::LoadBalancers, created).is_ok(),
        "it exists while it is created"
    );
    it.now += seconds(5);
    assert!(it.world.get(it.now, Collection::LoadBalancers, created).is_err());
    it.faults.fails = false;
    assert_eq!(code(&it.create(&body)), "done", "its name and its address are free");
}

#[test]
fn an_action_fails_where_what_it_needs_has_gone_meanwhile() {
    let mut it = Fixture::new();
    let id = it.balancer("web");
    it.faults.takes = seconds(5);
    let target = json!({"type": "server", "server": {"id": it.servers[0]}});
    let begun = it.act(id, "add_target", &target).unwrap();
    it.world.delete_server(it.now, it.servers[0]).unwrap();
    it.now = seconds(5);
    let action = it.action(begun["action"]["id"].as_u64().unwrap());
    assert_eq!((&action["status"], &action["error"]["code"]), (&json!("error"), &json!("not_found")));
    assert_eq!(it.get(Collection::LoadBalancers, id)["targets"], json!([]));
}

#[test]
fn a_write_that_another_client_preempts_is_a_conflict() {
    let mut it = Fixture::new();
    let id = it.balancer("web");
    it.faults.is_preempted = true;
    assert_eq!(code(&it.update(id, &json!({"name": "new"}))), "conflict");
    assert_eq!(code(&it.act(id, "enable_public_interface", &json!({}))), "conflict");
    assert_eq!(it.get(Collection::LoadBalancers, id)["name"], "web");
}

#[test]
fn actions_are_listed_by_resource_and_by_id() {
    let mut it = Fixture::new();
    let (one, other) = (it.balancer("one"), it.balancer("other"));
    it.act(one, "attach_to_network", &json!({"network": it.network})).unwrap();
    it.faults.takes = seconds(5);
    it.act(other, "enable_public_interface", &json!({})).unwrap();
    let balancer = Some(ResourceType::LoadBalancer);
    let mut commands = |kind, id, pairs: &[(&str, &str)]| {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let page = it.world.actions(it.now, kind, id, &pairs)?;
        let commands = page["actions"].as_array().unwrap().iter();
        Ok::<_, Refusal>(commands.map(|it| it["command"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(commands(balancer, Some(one), &[]).unwrap(), ["create_load_balancer", "attach_to_network"]);
    assert_eq!(commands(Some(ResourceType::Network), None, &[]).unwrap(), ["attach_to_network"]);
    assert_eq!(commands(balancer, None, &[("status", "running")]).unwrap(), ["enable_public_interface"]);
    let sorted = [("sort", "command:desc"), ("per_page", "1")];
    assert_eq!(commands(balancer, None, &sorted).unwrap(), ["enable_public_interface"]);
    assert_eq!(commands(None, None, &[]).unwrap_err().code, Code::DeprecatedApiEndpoint);
    assert_eq!(commands(balancer, Some(9), &[]).unwrap_err().code, Code::NotFound);
}

#[test]
fn an_operator_creates_changes_and_deletes_servers() {
    let mut it = Fixture::new();
    let names = |names: &[&str]| NewServers {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..NewServers::default()
    };
    assert_eq!(code(&it.world.create_servers(seconds(0), &names(&["a", "a"]))), "uniqueness_error");
    assert_eq!(code(&it.world.create_servers(seconds(0), &names(&["node-1"]))), "uniqueness_error");
    assert_eq!(code(&it.world.create_servers(seconds(0), &names(&["a_b"]))), "invalid_input name");
    assert_eq!(code(&it.world.create_servers(seconds(0), &names(&["a.example.com"]))), "done");
    let id = it.public_only;
    let changes = ServerChanges {
        name: Some("renamed".to_owned()),
        status: Some(ServerStatus::Off),
        network: Some(it.network),
        ..ServerChanges::default()
    };
    it.world.change_server(seconds(0), id, changes).unwrap();
    let server = it.get(Collection::Servers, id);
    assert_eq!((&server["name"], &server["status"]), (&json!("renamed"), &json!("off")));
    assert_eq!(server["private_net"][0]["ip"], "10.0.0.6");
    it.world.delete_server(seconds(0), id).unwrap();
    assert_eq!(code(&it.world.delete_server(seconds(0), id)), "not_found");
    it.world.delete_network(seconds(0), it.network).unwrap();
    assert_eq!(it.get(Collection::Servers, it.servers[0])["private_net"], json!([]));
}
