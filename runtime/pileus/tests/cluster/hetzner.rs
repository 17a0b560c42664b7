//! The Hetzner provider with the simulator of the cloud's API and a real API server: Nodes, Services and routes get what they
//! need under faults, and a cluster of hcloud-cloud-controller-manager is taken over without a write to the cloud.

use std::process::Command;

use http::Method;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt as _;
use pileus_dev::nodes::{Kubelet, await_node, node};
use pileus_dev::{Process, artifact};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time;

use crate::SOON;
use crate::conformance;
use crate::node::is_uninitialised;
use crate::service::{change, create, create_whole, delete, get, ingress, is_served, until};
use crate::web::{Answer, Web};
use crate::world::{Run, World, document};

const TOKEN: &str = "secret";

/// Between two looks at the cloud.
const PAUSE: time::Duration = time::Duration::from_millis(50);

/// The simulator as a process: servers `node-1` and so on in a network.
struct Cloud {
    web: Web,
    port: u16,
    token: TempDir,
    _process: Process,
}

impl Cloud {
    async fn start(servers: usize) -> Self {
        let mut command = Command::new(artifact::program("hetzner-cloud").unwrap());
        command.args(["--servers", &servers.to_string(), "--network", "10.0.0.0/8", "--token", TOKEN]);
        let process = Process::start("hetzner-cloud", &command).unwrap();
        let line = process.await_line(|line| line.contains("http://"), SOON).await.unwrap();
        let base = line.rsplit(' ').next().unwrap().trim_end_matches("/v1");
        let token = TempDir::new().unwrap();
        std::fs::write(token.path().join("token"), TOKEN).unwrap();
        Self {
            web: Web::new(base),
            port: base.rsplit(':').next().unwrap().parse().unwrap(),
            token,
            _process: process,
        }
    }

    /// The document for the provider, with a credential and a grant for this cloud alone.
    fn document(&self) -> Value {
        let configuration = json!({
            "endpoint": format!("http://127.0.0.1:{}/v1", self.port), "network": "network",
            "loadBalancers": {"location": "fsn1", "usePrivateIp": true},
        });
        let grant = json!({
            "host": "127.0.0.1", "port": self.port, "tls": false, "addresses": ["127.0.0.1"],
            "methods": ["GET", "POST", "PUT", "DELETE"], "paths": ["/v1/"],
        });
        let mut document = document("hetzner-provider", &configuration, &json!([grant]));
        let token = json!({"file": self.token.path().join("token")});
        document["spec"]["credentials"] =
            json!([{"name": "project", "hosts": ["127.0.0.1"], "plain": true, "bearer": {"token": token}}]);
        document
    }

    /// What it shows to an operator: everything in the project. None where a fault has hit the question.
    async fn state(&self) -> Option<Value> {
        let answer = self.web.send_freely(Method::GET, "/admin/state", "").await?;
        (answer.status == 200).then(|| answer.json())
    }

    async fn all(&self, kind: &str) -> Vec<Value> {
        let state = self.state().await.unwrap();
        state[kind]["first"].as_array().unwrap().clone()
    }

    /// Waits until the project is so.
    async fn until(&self, wanted: impl Fn(&Value) -> bool) {
        let mut last = None;
        let search = async {
            loop {
                last = self.state().await;
                if last.as_ref().is_some_and(&wanted) {
                    return;
                }
                time::sleep(PAUSE).await;
            }
        };
        assert!(time::timeout(SOON, search).await.is_ok(), "the cloud stays at {last:#?}");
    }

    async fn set_faults(&self, faults: &Value) {
        let answer = self.web.send(Method::PUT, "/admin/faults", &faults.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// How many writes it was asked for, once no call is under way.
    async fn writes(&self) -> u64 {
        let is_idle = |answer: &Answer| answer.json()["concurrent"]["now"] == 0;
        let counters = self.web.until("/admin/counters", is_idle).await.json();
        let outcomes = ["create", "change", "delete"].into_iter().flat_map(|kind| {
            counters["calls"][kind]
                .as_object()
                .unwrap()
                .values()
                .map(|count| count.as_u64().unwrap())
                .collect::<Vec<_>>()
        });
        outcomes.sum()
    }
}

async fn world() -> World {
    let mut world = World::new().await;
    world.flags = vec!["--cluster-cidr=10.244.0.0/16", "--leader-elect=false"];
    world
}

async fn start(world: &World, cloud: &Cloud) -> Run {
    let run = world.start_with(&cloud.document()).await;
    run.ready().await;
    run
}

fn with_range(number: usize) -> Kubelet {
    node(&format!("node-{number}")).pod_cidrs(&[format!("10.244.{number}.0/24")])
}

fn routes(state: &Value) -> Vec<String> {
    let routes = state["networks"]["first"][0]["routes"].as_array().unwrap();
    let mut routes: Vec<_> =
        routes.iter().map(|route| route["destination"].as_str().unwrap().to_owned()).collect();
    routes.sort_unstable();
    routes
}

/// The kinds of its addresses.
fn addresses(node: &Node) -> Vec<String> {
    let status = node.status.as_ref().unwrap();
    let mut kinds: Vec<_> = status.addresses.iter().flatten().map(|address| address.type_.clone()).collect();
    kinds.sort_unstable();
    kinds
}

fn annotated(annotations: &[(&str, &str)]) -> Value {
    let key = |name: &str| format!("load-balancer.hetzner.cloud/{name}");
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(name, value)| (key(name), json!(value))).collect();
    json!({"metadata": {"annotations": annotations}})
}

fn points(service: &Service) -> Vec<String> {
    ingress(service).iter().filter_map(|way| way.ip.clone().or(way.hostname.clone())).collect()
}

#[tokio::test]
async fn nodes_services_and_routes_get_what_they_need_under_faults() {
    let (world, cloud) = tokio::join!(world(), Cloud::start(3));
    cloud
        .set_faults(&json!({
            "errors": {"share": 0.05}, "lost": {"share": 0.1}, "throttle": {"share": 0.02},
            "operations": {"takesMs": 200, "lateFailures": {"share": 0.05}},
        }))
        .await;
    let run = start(&world, &cloud).await;
    world.register((1..=3).map(|number| with_range(number).label("pool", ["a", "b"][number % 2]))).await;
    for number in 1..=3 {
        let name = format!("node-{number}");
        let found = await_node(&world.client, &name, |node| !is_uninitialised(node), SOON).await.unwrap();
        assert_eq!(found.labels()["topology.kubernetes.io/region"], "fsn1");
        assert_eq!(found.labels()["instance.hetzner.cloud/provided-by"], "cloud");
        assert!(found.spec.as_ref().unwrap().provider_id.as_ref().unwrap().starts_with("hcloud://"));
        assert_eq!(
            addresses(&found),
            ["ExternalIP", "Hostname", "InternalIP"].map(str::to_owned).to_vec(),
            "{name}"
        );
    }
    create(&world, "web", json!({})).await;
    let served = until(&world, "web", is_served).await;
    assert_eq!(points(&served).len(), 3, "{served:?}");
    let all = ["10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"].map(str::to_owned);
    cloud.until(|state| routes(state) == all).await;

    // Annotations change it, and a selector leaves Nodes out.
    let options = [
        ("name", "shop"),
        ("type", "lb21"),
        ("algorithm-type", "least_connections"),
        ("protocol", "http"),
        ("http-sticky-sessions", "true"),
        ("health-check-interval", "5s"),
        ("hostname", "web.example"),
        ("node-selector", "pool notin (a)"),
    ];
    change(&world, "web", annotated(&options)).await;
    until(&world, "web", |service| points(service) == ["web.example"]).await;
    cloud
        .until(|state| {
            let balancer = &state["load_balancers"]["first"][0];
            let service = &balancer["services"][0];
            balancer["name"] == "shop"
                && balancer["load_balancer_type"]["name"] == "lb21"
                && balancer["algorithm"]["type"] == "least_connections"
                && service["http"]["sticky_sessions"] == true
                && service["health_check"]["interval"] == 5
                && balancer["targets"].as_array().is_some_and(|targets| targets.len() == 2)
        })
        .await;

    delete(&world, "web").await;
    cloud.until(|state| state["load_balancers"]["total"] == 0).await;
    cloud.set_faults(&json!({})).await;
    let gone = async {
        while get(&world, "web").await.is_some() {
            time::sleep(PAUSE).await;
        }
    };
    time::timeout(SOON, gone).await.expect("the Service goes once its load balancer is gone");
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_cluster_of_the_former_controller_is_taken_over_without_a_write_to_the_cloud() {
    let (world, cloud) = tokio::join!(world(), Cloud::start(2));
    let run = start(&world, &cloud).await;
    world.register((1..=2).map(with_range)).await;
    let web = create_whole(&world, &json!({"metadata": {"name": "web"}})).await;
    // The Service is served before its Nodes have joined.
    let targets =
        |state: &Value| state["load_balancers"]["first"][0]["targets"].as_array().map_or(0, Vec::len);
    cloud.until(|state| routes(state).len() == 2 && targets(state) == 2).await;
    assert!(run.stop().await.success());

    // What is there now bears the former controller's marks alone.
    let [balancer] = cloud.all("load_balancers").await.try_into().unwrap();
    assert_eq!(balancer["labels"]["hcloud-ccm/service-uid"], web.uid().unwrap());
    let labels = json!({"labels": {"hcloud-ccm/service-uid": web.uid().unwrap()}});
    let request = http_request(&cloud, &format!("/v1/load_balancers/{}", balancer["id"]), &labels).await;
    assert_eq!(request, 200);
    let before = cloud.writes().await;
    let run = start(&world, &cloud).await;
    let changes = [r#"action="ensure""#, r#"result="done""#];
    run.counted("pileus_service_changes_total", &changes).await;
    run.counted("pileus_route_lists_total", &[r#"result="ok""#]).await;
    let [after] = cloud.all("load_balancers").await.try_into().unwrap();
    assert_eq!(cloud.writes().await, before, "the cloud is as it was: {after}");
    assert_eq!(after["labels"], labels["labels"]);
    // The first change that is needed anyway brings the label of the cluster.
    change(&world, "web", annotated(&[("algorithm-type", "least_connections")])).await;
    cloud.until(|state| state["load_balancers"]["first"][0]["labels"]["pileus-cluster"].is_string()).await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn the_provider_passes_every_check() {
    let cloud = Cloud::start(3).await;
    let file = cloud.token.path().join("provider.yaml");
    std::fs::write(&file, cloud.document().to_string()).unwrap();
    let nodes = ["--node", "node-1", "--node", "node-2", "--gone", "hcloud://999999"];
    let flags = ["--allow-changes", "--require-all", "--json"];
    let said =
        conformance::test(&[&["--provider", file.to_str().unwrap()], &nodes[..], &flags].concat()).await;
    assert_eq!((said.code, said.ids("failed"), said.ids("not-run")), (Some(0), vec![], vec![]), "{said:#?}");
}

/// The status of a `PUT` with the token.
async fn http_request(cloud: &Cloud, path: &str, body: &Value) -> u16 {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let body = body.to_string();
    let request = format!(
        "PUT {path} HTTP/1.1\r\nhost: cloud\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", cloud.port)).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}
