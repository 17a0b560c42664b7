//! The provider with the simulator of the cloud's API, over HTTP: its requests are those that the API has, a cluster of
//! hcloud-cloud-controller-manager is taken over without a write, and after any faults the cloud holds what Services and
//! Nodes ask for.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy lets tests panic, but not the functions that they share"
)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use clap::Parser as _;
use hetzner_cloud::arguments::Arguments;
use hetzner_cloud::server;
use hetzner_provider::Hetzner;
use pileus_guest::testing::{Exchange, Host, SentRequest};
use pileus_guest::{
    Answer, Cluster, Error, Ingress, InstanceState, NodeReference, Purpose, Route, RouteAction, RouteChange,
    RouteProgress, Service, ServiceAction, ServiceCall, ServiceChange, ServicePort, ServiceProgress, Target,
};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// How long the cloud may take for what it does within a second on a quiet machine.
const SOON: Duration = Duration::from_mins(1);

const WEB: &str = "6e3fa2cc-0001-4c4e-a3b5-0d3cf1b5c2d1";

struct Cloud {
    address: SocketAddr,
    _runtime: Runtime,
}

/// A response: its status, its headers in lower case, and its body.
type Response = (u16, Vec<(String, String)>, Vec<u8>);

/// Sends a request on a connection of its own. None if there is no whole response.
fn exchange(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Option<Response> {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer secret\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end + 4..].to_vec());
    let status = head.split(' ').nth(1)?.parse().unwrap();
    let header =
        |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: Vec<_> = head.lines().filter_map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let is_whole = length.is_none_or(|(_, length)| length.parse() == Ok(body.len()));
    is_whole.then_some((status, headers, body))
}

impl Cloud {
    fn start(arguments: &[&str]) -> Self {
        let fixed = ["hetzner-cloud", "--token", "secret", "--network", "10.0.0.0/8", "--quotas", "{}"];
        let arguments = Arguments::try_parse_from([&fixed, arguments].concat()).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(simulated_cloud::server::listen(arguments.listen)).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(server::serve(listener, arguments.settings(), std::future::pending()));
        Self { address, _runtime: runtime }
    }

    /// A host whose provider reaches the cloud, in the network of its servers.
    fn host(&self) -> Host {
        let address = self.address;
        let answer = move |sent: &SentRequest| {
            let path = sent.url.trim_start_matches(&format!("http://{address}"));
            let answer = Exchange::new(&sent.method, &sent.url);
            match exchange(address, &sent.method, path, &sent.body) {
                None => answer.failing(Error::unavailable("the response was lost")),
                Some((status, headers, body)) => {
                    let answer = answer.status(status).body(body);
                    headers.iter().fold(answer, |answer, (name, value)| answer.header(name, value))
                }
            }
        };
        let document = json!({
            "endpoint": format!("http://{address}/v1"), "network": "network",
            "loadBalancers": {"location": "fsn1", "usePrivateIp": true},
        });
        Host::new().configuration(document).cloud(answer)
    }

    /// What the cloud answers to a request of the test, or of another client.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, _, answer) = exchange(self.address, method, path, body.to_string().as_bytes()).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        serde_json::from_str(&answer).unwrap_or_default()
    }

    fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null)
    }

    fn set_faults(&self, faults: &Value) {
        self.ask("PUT", "/admin/faults", faults);
    }

    /// The numbers of the servers, fewer than a page holds.
    fn servers(&self) -> Vec<u64> {
        let servers = self.get("/v1/servers?per_page=50")["servers"].as_array().unwrap().clone();
        servers.iter().map(|server| server["id"].as_u64().unwrap()).collect()
    }

    fn balancers(&self) -> Vec<Value> {
        self.get("/v1/load_balancers")["load_balancers"].as_array().unwrap().clone()
    }

    fn network(&self) -> Value {
        self.get("/v1/networks")["networks"][0].clone()
    }

    fn begin(&self, balancer: &Value, action: &str, body: &Value) {
        self.ask("POST", &format!("/v1/load_balancers/{balancer}/actions/{action}"), body);
    }
}

fn cluster() -> Cluster {
    Cluster { uid: Some("c".to_owned()), ..Cluster::default() }
}

fn writes(host: &Host) -> usize {
    host.requests().iter().filter(|sent| sent.method != "GET").count()
}

/// A Service with these annotations and ports. The node port of a port is 30,000 more.
fn service(annotations: &[(&str, &str)], ports: &[u16]) -> Service {
    let annotation =
        |(name, value): &(&str, &str)| (format!("load-balancer.hetzner.cloud/{name}"), (*value).to_owned());
    let port =
        |port: &u16| ServicePort { port: *port, node_port: Some(30_000 + port), ..ServicePort::default() };
    Service {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        uid: WEB.to_owned(),
        annotations: annotations.iter().map(annotation).collect(),
        ports: ports.iter().map(port).collect(),
        ..Service::default()
    }
}

fn targets(servers: &[u64]) -> Vec<Target> {
    let target = |id: &u64| Target { provider_id: format!("hcloud://{id}"), ..Target::default() };
    servers.iter().map(target).collect()
}

/// Repeats a change with its notes until it is complete, as the host does.
fn complete(host: &Host, targets: &[Target], action: &ServiceAction) -> Vec<Ingress> {
    let (start, mut change) = (Instant::now(), ServiceChange::from(action.clone()));
    while start.elapsed() < SOON {
        let call = ServiceCall {
            cluster: cluster(),
            targets: targets.to_vec(),
            changes: vec![change.clone()],
            ..ServiceCall::default()
        };
        let outcomes = host.change_load_balancers::<Hetzner>(&call);
        change.resume = match outcomes.map(|mut outcomes| outcomes.remove(0)) {
            Ok(Ok(ServiceProgress::Done(report))) => return report.status,
            Ok(Ok(ServiceProgress::InProgress(progress, _))) => progress.resume,
            Ok(Ok(ServiceProgress::Elsewhere)) => unreachable!(),
            Ok(Err(_)) | Err(_) => None,
        };
    }
    unreachable!("{action:?} isn't complete: {:#?}", host.requests().last());
}

fn ensure(annotations: &[(&str, &str)], ports: &[u16]) -> ServiceAction {
    ServiceAction::Ensure(service(annotations, ports))
}

#[test]
fn nodes_are_found_on_all_pages_and_one_by_one() {
    let cloud = Cloud::start(&["--servers", "120"]);
    let nodes: Vec<_> = (1..=120).map(|number| NodeReference::new(format!("node-{number}"))).collect();
    let host = cloud.host();
    let answers = host.lookup::<Hetzner>(Purpose::Initialise, &nodes).unwrap();
    let id = |answer: &Result<Answer, Error>| match answer {
        Ok(Answer::Found(instance)) if instance.addresses.len() == 3 => instance.provider_id.clone(),
        other => unreachable!("{other:?}"),
    };
    let ids: Vec<_> = answers.iter().map(id).collect();
    let by_id: Vec<_> = nodes.iter().zip(&ids).map(|(node, id)| node.clone().with_provider_id(id)).collect();
    assert_eq!(host.lookup::<Hetzner>(Purpose::Refresh, &by_id).unwrap(), answers);
    assert_eq!(host.lookup::<Hetzner>(Purpose::Confirm, &by_id[..5]).unwrap(), answers[..5]);
    let servers = cloud.servers();
    cloud.ask("PATCH", &format!("/admin/servers/{}", servers[0]), &json!({"status": "off"}));
    cloud.ask("DELETE", &format!("/admin/servers/{}", servers[1]), &Value::Null);
    let answers = host.lookup::<Hetzner>(Purpose::Confirm, &by_id[..2]).unwrap();
    let Ok(Answer::Found(stopped)) = &answers[0] else { unreachable!("{answers:?}") };
    assert_eq!((stopped.state, &answers[1]), (InstanceState::Stopped, &Ok(Answer::Absent)));
}

#[test]
fn a_service_is_created_changed_and_deleted_and_nothing_is_written_twice() {
    let cloud = Cloud::start(&["--servers", "4"]);
    cloud.set_faults(&json!({"operations": {"takesMs": 20}}));
    let (host, servers) = (cloud.host(), cloud.servers());
    let settled = |action: &ServiceAction, targets: &[Target], expected: usize| {
        let status = complete(&host, targets, action);
        let before = writes(&host);
        assert_eq!(complete(&host, targets, action), status);
        assert_eq!((writes(&host) - before, status.len()), (0, expected));
    };
    settled(&ensure(&[], &[80, 443]), &targets(&servers[..2]), 3);
    assert_eq!(cloud.balancers()[0]["targets"].as_array().unwrap().len(), 2);
    let changed = [
        ("type", "lb21"),
        ("name", "shop"),
        ("algorithm-type", "least_connections"),
        ("protocol", "http"),
        ("http-cookie-lifetime", "10m"),
        ("health-check-http-path", "/up"),
        ("health-check-interval", "10s"),
        ("ipv4-rdns", "web.example"),
        ("ipv6-rdns", "web.example"),
        ("private-ipv4", "10.0.0.200"),
        ("disable-public-network", "true"),
    ];
    settled(&ensure(&changed, &[80, 8_080, 8_081]), &targets(&servers[1..]), 1);
    settled(
        &ensure(&[("use-private-ip", "false"), ("disable-public-network", "false")], &[80]),
        &targets(&servers),
        3,
    );
    let [balancer] = cloud.balancers().try_into().unwrap();
    let seen = ["name", "load_balancer_type", "public_net"].map(|field| balancer[field].clone());
    assert_eq!(
        (&seen[0], &seen[1]["name"], &seen[2]["enabled"]),
        (&json!("shop"), &json!("lb21"), &json!(true))
    );
    assert_eq!(host.list_owned::<Hetzner>(&cluster()).unwrap()[0].service_uid.as_deref(), Some(WEB));
    complete(&host, &[], &ServiceAction::Delete(service(&[], &[80])));
    assert_eq!(cloud.balancers(), [json!(null); 0]);
}

/// Makes a load balancer with the requests of hcloud-cloud-controller-manager.
fn make_as_the_former_controller(cloud: &Cloud, servers: &[u64]) {
    let new = json!({
        "name": "a6e3fa2cc00014c4ea3b50d3cf1b5c2d", "load_balancer_type": "lb11", "location": "fsn1",
        "labels": {"hcloud-ccm/service-uid": WEB},
    });
    let id = cloud.ask("POST", "/v1/load_balancers", &new)["load_balancer"]["id"].clone();
    cloud.begin(&id, "attach_to_network", &json!({"network": cloud.network()["id"]}));
    let service = json!({
        "protocol": "tcp", "listen_port": 80, "destination_port": 30_080,
        "health_check": {"protocol": "tcp", "port": 30_080},
    });
    cloud.begin(&id, "add_service", &service);
    for server in servers {
        let target = json!({"type": "server", "server": {"id": server}, "use_private_ip": true});
        cloud.begin(&id, "add_target", &target);
    }
}

#[test]
fn a_cluster_of_the_former_controller_is_taken_over_without_a_write() {
    let cloud = Cloud::start(&["--servers", "3"]);
    let servers = cloud.servers();
    make_as_the_former_controller(&cloud, &servers);
    let gateway = cloud.get(&format!("/v1/servers/{}", servers[0]))["server"]["private_net"][0]["ip"].clone();
    let route = json!({"destination": "172.16.1.0/24", "gateway": gateway});
    cloud.ask("POST", &format!("/v1/networks/{}/actions/add_route", cloud.network()["id"]), &route);
    let before = cloud.balancers();
    let host = cloud.host();
    assert_eq!(complete(&host, &targets(&servers), &ensure(&[], &[80])).len(), 3);
    complete_routes(&host, vec![create(servers[0], 1)]);
    let listed = host.list_routes::<Hetzner>(&cluster()).unwrap();
    assert_eq!((&*listed[0].destination, listed[0].node.as_deref()), ("172.16.1.0/24", Some("node-1")));
    let owned = host.list_owned::<Hetzner>(&cluster()).unwrap();
    assert_eq!((owned[0].service_uid.as_deref(), &owned[0].cluster_uid), (Some(WEB), &None));
    assert_eq!((writes(&host), cloud.balancers()), (0, before));
}

fn create(server: u64, range: u8) -> RouteChange {
    let route = Route {
        node: format!("node-{range}"),
        target: Some(format!("hcloud://{server}")),
        destination: format!("172.16.{range}.0/24"),
        ..Route::default()
    };
    RouteChange { action: RouteAction::Create(route), resume: None, extra: Vec::new() }
}

/// Repeats changes with their notes until all are complete, as the host does.
fn complete_routes(host: &Host, mut changes: Vec<RouteChange>) {
    let start = Instant::now();
    while !changes.is_empty() {
        assert!(start.elapsed() < SOON, "not complete: {changes:?}");
        let outcomes = host.change_routes::<Hetzner>(&cluster(), &changes).unwrap();
        let mut left = Vec::new();
        for (mut change, outcome) in changes.into_iter().zip(outcomes) {
            change.resume = match outcome {
                Ok(RouteProgress::Done) => continue,
                Ok(RouteProgress::InProgress(progress)) => progress.resume,
                Ok(RouteProgress::Elsewhere) => unreachable!(),
                Err(_) => None,
            };
            left.push(change);
        }
        changes = left;
    }
}

/// Responses get lost, the cloud throttles and fails, and actions take time and fail late.
fn faults(seed: u64) -> Value {
    json!({
        "throttle": {"share": 0.05}, "errors": {"share": 0.1}, "lost": {"share": 0.2},
        "operations": {"takesMs": seed % 3 * 10, "lateFailures": {"share": 0.1}}, "preconditions": {"share": 0.1},
    })
}

#[test]
fn after_any_faults_the_cloud_holds_what_a_service_asks_for() {
    let all = [
        ("type", "lb21"),
        ("protocol", "http"),
        ("http-sticky-sessions", "true"),
        ("hostname", "web.example"),
    ];
    for seed in 0..6 {
        let cloud = Cloud::start(&["--servers", "5", "--seed", &seed.to_string()]);
        let servers = cloud.servers();
        cloud.set_faults(&faults(seed));
        let host = cloud.host();
        complete(&host, &targets(&servers[..3]), &ensure(&[], &[80]));
        complete(&host, &targets(&servers[2..]), &ensure(&all, &[80, 443]));
        complete(&host, &targets(&servers[1..]), &ensure(&all[..2], &[443]));
        cloud.set_faults(&json!({}));
        let host = cloud.host();
        let (targets, action) = (targets(&servers[1..]), ensure(&all[..2], &[443]));
        complete(&host, &targets, &action);
        let [balancer] = cloud.balancers().try_into().unwrap();
        let ids = |list: &Value, path: &str| {
            let mut ids: Vec<_> =
                list.as_array().unwrap().iter().map(|it| it.pointer(path).unwrap().as_u64()).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!(ids(&balancer["services"], "/listen_port"), [Some(443)], "seed {seed}");
        let expected: Vec<_> = servers[1..].iter().copied().map(Some).collect();
        assert_eq!(ids(&balancer["targets"], "/server/id"), expected, "seed {seed}");
        assert_eq!(writes(&host), 0, "what was reported as complete is so: seed {seed}");
        cloud.set_faults(&faults(seed));
        complete(&host, &[], &ServiceAction::Delete(service(&all, &[443])));
        cloud.set_faults(&json!({}));
        assert_eq!(cloud.balancers(), [json!(null); 0], "seed {seed}");
    }
}

#[test]
fn after_any_faults_the_network_has_the_routes_of_all_nodes() {
    for seed in 0..6 {
        let cloud = Cloud::start(&["--servers", "6", "--seed", &seed.to_string()]);
        let servers = cloud.servers();
        cloud.set_faults(&json!({"operations": {"takesMs": 5}}));
        let host = cloud.host();
        cloud.set_faults(&faults(seed));
        complete_routes(&host, (1..).zip(&servers).map(|(range, server)| create(*server, range)).collect());
        cloud.set_faults(&json!({}));
        let listed = host.list_routes::<Hetzner>(&cluster()).unwrap();
        let mut nodes: Vec<_> =
            listed.iter().map(|route| (route.node.as_deref(), &*route.destination)).collect();
        nodes.sort_unstable();
        let expected: Vec<_> =
            (1..=6).map(|number| (format!("node-{number}"), format!("172.16.{number}.0/24"))).collect();
        let expected: Vec<_> = expected.iter().map(|(node, range)| (Some(&**node), &**range)).collect();
        assert_eq!(nodes, expected, "seed {seed}");
        let deletion =
            |route| RouteChange { action: RouteAction::Delete(route), resume: None, extra: Vec::new() };
        cloud.set_faults(&faults(seed));
        complete_routes(&host, listed.into_iter().map(deletion).collect());
        cloud.set_faults(&json!({}));
        assert_eq!(cloud.network()["routes"], json!([]), "seed {seed}");
    }
}
