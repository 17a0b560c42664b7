//! No sequence of requests leaves the project inconsistent: names and addresses are unique, nothing refers to what doesn't
//! exist, a refused request changes nothing, and every lock ends.

use proptest::prelude::*;

use super::super::*;
use super::fixture::{Fixture, seconds};

/// A client's or an operator's request. Numbers choose among few names and resources, so that requests meet.
#[derive(Clone, Debug)]
enum Request {
    Create { name: u8, is_attached: bool, target: usize },
    Rename { balancer: usize, name: u8 },
    Delete { balancer: usize },
    Act { balancer: usize, command: &'static str, port: u16, target: usize, flag: bool },
    Route { is_added: bool, number: u8, prefix: u8 },
    NewServer { is_attached: bool },
    NoServer { number: usize },
    NoNetwork,
}

#[derive(Clone, Debug)]
struct Event {
    after: u64,
    takes: u64,
    fails: bool,
    request: Request,
}

const COMMANDS: [&str; 13] = [
    "add_service",
    "update_service",
    "delete_service",
    "add_target",
    "add_target",
    "remove_target",
    "change_algorithm",
    "change_type",
    "attach_to_network",
    "detach_from_network",
    "enable_public_interface",
    "disable_public_interface",
    "change_protection",
];

fn requests() -> impl Strategy<Value = Request> {
    let act = (0_usize..3, prop::sample::select(&COMMANDS[..]), 79_u16..82, 0_usize..6, any::<bool>());
    prop_oneof![
        3 => (0_u8..3, any::<bool>(), 0_usize..6)
            .prop_map(|(name, is_attached, target)| Request::Create { name, is_attached, target }),
        1 => (0_usize..3, 0_u8..3).prop_map(|(balancer, name)| Request::Rename { balancer, name }),
        1 => (0_usize..3).prop_map(|balancer| Request::Delete { balancer }),
        9 => act.prop_map(|(balancer, command, port, target, flag)| {
            Request::Act { balancer, command, port, target, flag }
        }),
        3 => (any::<bool>(), 0_u8..4, 22_u8..25)
            .prop_map(|(is_added, number, prefix)| Request::Route { is_added, number, prefix }),
        1 => any::<bool>().prop_map(|is_attached| Request::NewServer { is_attached }),
        1 => (0_usize..6).prop_map(|number| Request::NoServer { number }),
        1 => Just(Request::NoNetwork),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    // Half of the actions end at once, so that later requests find something to change.
    let event = (0_u64..4, prop_oneof![Just(0_u64), 0_u64..6], prop::bool::weighted(0.1), requests());
    let event = event.prop_map(|(after, takes, fails, request)| Event { after, takes, fails, request });
    prop::collection::vec(event, 1..60)
}

/// The body of an action, in which the flag decides about private addresses.
fn body(it: &Fixture, command: &str, port: u16, target: usize, flag: bool) -> serde_json::Value {
    use serde_json::json;
    match command {
        "add_service" => {
            json!({"protocol": "http", "listen_port": port, "http": {}, "destination_port": 30_000})
        }
        "update_service" if flag => {
            json!({"listen_port": port, "protocol": "https", "http": {"redirect_http": true}})
        }
        "update_service" => json!({"listen_port": port, "proxyprotocol": true}),
        "delete_service" => json!({"listen_port": port}),
        "add_target" | "remove_target" => {
            let server = server(it, target);
            json!({"type": "server", "server": {"id": server}, "use_private_ip": flag && command == "add_target"})
        }
        "change_algorithm" => json!({"type": "least_connections"}),
        "change_type" => json!({"load_balancer_type": if flag { "lb11" } else { "lb21" }}),
        "attach_to_network" | "detach_from_network" => json!({"network": it.network}),
        "change_protection" => json!({"delete": flag && port == 79}),
        _ => json!({}),
    }
}

fn server(it: &Fixture, number: usize) -> u64 {
    it.world.servers.keys().nth(number).copied().unwrap_or(9)
}

fn balancer(it: &Fixture, number: usize) -> u64 {
    it.world.load_balancers.keys().nth(number).copied().unwrap_or(9)
}

fn make(it: &mut Fixture, request: &Request) -> Result<(), Refusal> {
    match *request {
        Request::Create { name, is_attached, target } => {
            let body = serde_json::json!({
                "name": format!("lb-{name}"), "load_balancer_type": "lb11", "location": "fsn1",
                "network": is_attached.then_some(it.network),
                "targets": [{"type": "server", "server": {"id": server(it, target)}, "use_private_ip": is_attached}],
            });
            it.create(&body).map(drop)
        }
        Request::Rename { balancer: number, name } => {
            let id = balancer(it, number);
            it.update(id, &serde_json::json!({"name": format!("lb-{name}")})).map(drop)
        }
        Request::Delete { balancer: number } => {
            let id = balancer(it, number);
            it.world.delete_load_balancer(it.now, id)
        }
        Request::Act { balancer: number, command, port, target, flag } => {
            let (id, body) = (balancer(it, number), body(it, command, port, target, flag));
            it.act(id, command, &body).map(drop)
        }
        Request::Route { is_added, number, prefix } => {
            let command = if is_added { "add_route" } else { "delete_route" };
            it.route(command, &format!("10.244.{}.0/{prefix}", number * 4), "10.0.0.2").map(drop)
        }
        Request::NewServer { is_attached } => {
            let network = is_attached.then_some(it.network);
            it.world.create_servers(it.now, &NewServers { network, ..NewServers::default() }).map(drop)
        }
        Request::NoServer { number } => {
            let id = server(it, number);
            it.world.delete_server(it.now, id)
        }
        Request::NoNetwork => it.world.delete_network(it.now, it.network),
    }
}

/// What clients can see, apart from actions and tables.
fn seen(mut world: World, now: Duration) -> Vec<serde_json::Value> {
    let all = [("per_page".to_owned(), "50".to_owned())];
    let kinds = [Collection::Servers, Collection::Networks, Collection::LoadBalancers];
    kinds.map(|kind| world.list(now, kind, &all).unwrap()).into()
}

fn check(world: &World) {
    let distinct = |names: Vec<&str>| {
        let count = names.len();
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>().len(), count, "a name is used twice");
    };
    distinct(world.load_balancers.values().map(|it| it.name.as_str()).collect());
    distinct(world.servers.values().map(|it| it.name.as_str()).collect());
    let mut private = Vec::new();
    private.extend(world.servers.values().flat_map(|it| it.private.iter().copied()));
    private.extend(world.load_balancers.values().filter_map(|it| it.private));
    for network in world.networks.values() {
        let attached = private.iter().filter(|it| it.network == network.id);
        let ips: Vec<_> = attached.map(|it| it.ip).collect();
        assert_eq!(ips.iter().copied().collect::<BTreeSet<_>>(), network.used, "addresses in use");
        assert_eq!(ips.len(), network.used.len(), "an address is used twice");
        for (index, route) in network.routes.iter().enumerate() {
            let mut others = network.routes.iter().skip(index + 1).map(|other| other.destination);
            assert!(
                !others.any(|other| other.contains(&route.destination) || route.destination.contains(&other)),
                "routes overlap"
            );
        }
    }
    assert!(private.iter().all(|it| world.networks.contains_key(&it.network)), "an unknown network");
    for balancer in world.load_balancers.values() {
        let mut ports: Vec<_> = balancer.services.iter().flat_map(service::Service::source_ports).collect();
        let count = ports.len();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), count, "a port is used twice");
        let targets = balancer.targets.iter().filter(|target| match target.key {
            target::TargetKey::Server(id) => world.servers.contains_key(&id),
            _ => true,
        });
        assert_eq!(targets.count(), balancer.targets.len(), "an unknown target");
        assert!(balancer.targets.len() <= balancer.kind.max_targets);
        assert!(balancer.services.len() <= balancer.kind.max_services);
    }
    let mut locks = BTreeSet::new();
    for action in world.actions.values().filter(|action| action.is_running()) {
        assert!(world.running.contains(&(action.due, action.id)) && action.due > world.now);
        for (kind, id) in &action.resources {
            let is_lock = action.locks((*kind, *id));
            assert!(!is_lock || locks.insert((*kind == ResourceType::Network, *id)), "two actions lock {id}");
        }
    }
    assert_eq!(world.running.len(), world.actions.values().filter(|it| it.is_running()).count());
}

proptest! {
    #[test]
    fn no_sequence_of_requests_leaves_the_project_inconsistent(events in events()) {
        let mut it = Fixture::new();
        for Event { after, takes, fails, request } in events {
            it.now += seconds(after);
            (it.faults.takes, it.faults.fails) = (seconds(takes), fails);
            let before = it.world.clone();
            if make(&mut it, &request).is_err() {
                let (before, after) = (seen(before, it.now), seen(it.world.clone(), it.now));
                prop_assert_eq!(before, after, "a refused request changed something: {:?}", request);
            }
            check(&it.world);
        }
        it.now += seconds(6);
        it.world.advance(it.now);
        prop_assert!(it.world.running.is_empty(), "a lock doesn't end");
    }
}
