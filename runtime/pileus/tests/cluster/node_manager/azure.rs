//! Node managers with the Azure provider and the simulator of Azure's metadata service and resource manager: each completes its Node
//! as the central process would, sends the resource manager nothing unless asked to, and believes no answer about another machine.

use std::path::Path;

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use pileus_dev::azure::{AzureSimulator, SUBSCRIPTION, host_and_port};
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::{await_absence, await_node, node};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use super::{
    CENTRAL, MANIFEST, MARK, PAUSE, USER, end_with_the_object, kubeconfig, managed, told, writes, written,
};
use crate::SOON;
use crate::node::{Outcome, addresses, initialised, is_uninitialised, outcome, set_ready, taints};
use crate::web::Web;
use crate::world::{Run, World, document};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The simulator as a process. Its metadata service is at an address of its own, as that of a machine is.
struct Azure {
    web: Web,
    simulator: AzureSimulator,
}

impl Azure {
    async fn start() -> Self {
        let simulator = AzureSimulator::start(&["--metadata", "127.0.0.2:0"], SOON).await.unwrap();
        Self { web: Web::new(&simulator.manager), simulator }
    }

    async fn order(&self, method: Method, path: &str, body: &Value) -> Value {
        let answer = self.web.send(method, path, &body.to_string()).await;
        assert!([200, 201].contains(&answer.status), "{path}: {answer:?}");
        answer.json()
    }

    /// Creates machines, and says the names of their Nodes.
    async fn create(&self, machines: Value) -> Vec<String> {
        let created = self.order(Method::POST, "/admin/nodes", &machines).await;
        created["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    async fn act(&self, machine: &str, action: &str) {
        let command = json!({"machines": [machine], "action": action});
        self.order(Method::POST, "/admin/machines", &command).await;
    }

    /// Sets which machine the metadata service describes, and how well.
    async fn set_metadata(&self, metadata: &Value) {
        self.order(Method::PUT, "/admin/metadata", metadata).await;
    }

    /// Sets the body of all answers that describe the machine; none for those of a working service.
    async fn set_body(&self, body: Option<&str>) {
        let script =
            |body| json!({"path": "/metadata/instance", "times": 1_000_000, "status": 200, "body": body});
        let scripts: Vec<_> = body.map(script).into_iter().collect();
        self.order(Method::PUT, "/admin/scripts", &json!(scripts)).await;
    }

    /// The UUID of a machine's firmware.
    async fn uuid(&self, name: &str) -> String {
        let state = self.web.get("/admin/state").await.json();
        let all =
            state["kinds"].as_object().unwrap().values().flat_map(|kind| kind["first"].as_array().unwrap());
        let machine = all.into_iter().find(|resource| resource["computer"] == name).unwrap();
        let path = format!("{}?api-version=2024-07-01", machine["id"].as_str().unwrap());
        self.web.get(&path).await.json()["properties"]["vmId"].as_str().unwrap().to_owned()
    }

    /// The paths that were requested since the request of this number, and the number of the last one.
    async fn requests(&self, after: u64) -> (Vec<String>, u64) {
        let journal = self.web.get(&format!("/admin/journal?after={after}")).await.json();
        let entries = journal["requests"].as_array().unwrap();
        let last = entries.last().map_or(after, |entry| entry["number"].as_u64().unwrap());
        (entries.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect(), last)
    }

    /// The paths that are requested until the metadata service has described its machine three times more.
    async fn requests_of_three_refreshes(&self) -> Vec<String> {
        let ((_, before), start) = (self.requests(0).await, Instant::now());
        loop {
            let (paths, _) = self.requests(before).await;
            if paths.iter().filter(|path| *path == "/metadata/instance").count() >= 3 {
                return paths;
            }
            assert!(start.elapsed() < SOON, "no refreshes: {paths:?}");
            time::sleep(PAUSE).await;
        }
    }
}

/// What a Node became, with its addresses in one order: that controller manager puts the host name first where the metadata
/// service describes the machine, and second where the resource manager does.
fn unordered(node: &Node) -> Outcome {
    let mut outcome = outcome(node);
    outcome.addresses.sort();
    outcome
}

fn is_for_the_resource_manager(path: &str) -> bool {
    !path.starts_with("/metadata/")
}

/// A cluster with the manifest of the node managers, and a simulator.
struct Machines {
    world: World,
    azure: Azure,
}

impl Machines {
    async fn new() -> Self {
        let (world, azure) = tokio::join!(World::with(Options { audit: true }), Azure::start());
        world.kubernetes.apply(MANIFEST).await.unwrap();
        Self { world, azure }
    }

    /// As [`Machines::new`], with a machine that the metadata service describes, and its Node.
    async fn with_one() -> (Self, String) {
        let machines = Self::new().await;
        let names = machines.azure.create(json!({"count": 1, "publicAddresses": true})).await;
        machines.azure.set_metadata(&json!({"machine": names[0]})).await;
        machines.register(&names[0]).await;
        (machines, names[0].clone())
    }

    /// Registers the Node of a machine as its kubelet does.
    async fn register(&self, name: &str) {
        let mut node = node(name).pod_cidrs(&["10.244.0.0/24".to_owned()]).build();
        let uuid = self.azure.uuid(name).await;
        node.status.as_mut().unwrap().node_info.as_mut().unwrap().system_uuid = uuid;
        let nodes = Api::<Node>::all(self.world.client.clone());
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }

    async fn remove(&self, name: &str) {
        let nodes = Api::<Node>::all(self.world.client.clone());
        nodes.delete(name, &DeleteParams::default()).await.unwrap();
        await_absence(&self.world.client, name, SOON).await.unwrap();
    }

    /// The document of both processes, with short deadlines.
    fn document(&self) -> Value {
        let simulator = &self.azure.simulator;
        let configuration = json!({
            "subscriptionId": SUBSCRIPTION, "resourceGroup": "nodes", "location": "eastus", "routeTableName": "routes",
            "resourceManagerEndpoint": simulator.manager,
        });
        let (host, port) = host_and_port(&simulator.manager);
        let grants = json!([{
            "host": host, "port": port, "tls": false, "methods": ["GET", "PUT"], "paths": ["/subscriptions/"],
            "addresses": [host],
        }]);
        let mut document = document("azure-provider", &configuration, &grants);
        simulator.add_metadata_service(&mut document);
        document["spec"]["deadlines"] = json!({"lookup": {"soft": "1s", "hard": "2s"}});
        document
    }

    /// Starts the node manager of a Node, which refreshes it each second.
    async fn start(&self, name: &str, kubeconfig: &Path, flags: &[&str]) -> Run {
        let flags = [flags, &["--node-status-update-frequency", "1s"]].concat();
        self.world.start_node_manager(name, &self.document(), kubeconfig, &flags).await
    }
}

/// What a Node is, apart from the mark of its node manager.
fn without_mark(mut node: Node) -> Outcome {
    node.annotations_mut().remove(MARK);
    unordered(&node)
}

#[tokio::test]
async fn a_node_is_the_same_by_its_metadata_service_as_by_the_resource_manager() {
    let mut machines = Machines::new().await;
    machines.world.flags = vec!["--leader-elect=false"];
    let Machines { world, azure } = &machines;
    let mut names = Vec::new();
    for (prefix, changes) in [
        ("a", json!({"arrangement": "uniform", "publicAddresses": true, "dualStack": true})),
        ("b", json!({"arrangement": "flexible", "publicAddresses": true})),
        ("c", json!({"arrangement": "standalone", "dualStack": true})),
        ("d", json!({"arrangement": "availability-sets", "zones": false})),
    ] {
        let mut request = json!({"count": 1, "prefix": prefix});
        request.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        names.extend(azure.create(request).await);
    }
    assert_eq!(names.len(), 4);
    let central = world.start_with(&machines.document()).await;
    let mut expected = Vec::new();
    for name in &names {
        machines.register(name).await;
        expected.push(unordered(&initialised(world, name).await));
    }
    assert!(central.stop().await.success());
    for (name, expected) in names.iter().zip(expected) {
        machines.remove(name).await;
        azure.set_metadata(&json!({"machine": name})).await;
        machines.register(name).await;
        let ((_, before), kubeconfig) = (azure.requests(0).await, kubeconfig(world, name).await);
        let manager = machines.start(name, &kubeconfig, &[]).await;
        let found = without_mark(managed(world, name).await);
        assert!(found.provider_id.as_ref().is_some_and(|id| id.starts_with("azure:///subscriptions/")));
        assert!(found.labels.contains_key("topology.kubernetes.io/zone"), "{found:?}");
        assert_eq!(found, expected, "{name}");
        let (paths, _) = azure.requests(before).await;
        assert!(
            !paths.is_empty() && !paths.iter().any(|path| is_for_the_resource_manager(path)),
            "{paths:?}"
        );
        assert!(manager.stop().await.success());
    }
}

#[tokio::test]
async fn the_central_process_does_what_is_left_and_neither_costs_the_cloud_anything_in_steady_state() {
    let (mut machines, name) = Machines::with_one().await;
    machines.world.flags = vec![
        "--controllers=*,-cloud-node",
        "--node-monitor-period=1s",
        "--cluster-cidr=10.244.0.0/16",
        "--leader-elect=false",
    ];
    let Machines { world, azure } = &machines;
    let central = world.start_with(&machines.document()).await;
    central.ready().await;
    let kubeconfig = kubeconfig(world, &name).await;
    let manager = machines.start(&name, &kubeconfig, &["--wait-routes"]).await;
    managed(world, &name).await;
    let (object, status) = (format!("patch {name} "), format!("patch {name} status"));
    let both = || (writes(world, USER), writes(world, CENTRAL));
    // Addresses, facts, taint.
    let own = [status.clone(), object.clone(), object];
    written(world, USER, |writes| writes == own).await;
    let before = both();
    // The condition NetworkUnavailable: True until the route is made.
    assert!((1..=2).contains(&before.1.len()) && before.1.iter().all(|write| *write == status), "{before:?}");
    let paths = azure.requests_of_three_refreshes().await;
    assert!(paths.iter().all(|path| path == "/metadata/instance"), "{paths:?}");
    assert_eq!(both(), before);
    assert!(manager.is_well().await && manager.stop().await.success());

    // A machine that is off runs no node manager.
    let has_stopped = |node: &Node| taints(node).iter().any(|key| key == SHUTDOWN);
    azure.act(&name, "deallocate").await;
    set_ready(&world.client, &name, "Unknown").await;
    await_node(&world.client, &name, has_stopped, SOON).await.unwrap();
    azure.act(&name, "start").await;
    set_ready(&world.client, &name, "True").await;
    await_node(&world.client, &name, |node| !has_stopped(node), SOON).await.unwrap();
    azure.act(&name, "delete").await;
    set_ready(&world.client, &name, "Unknown").await;
    await_absence(&world.client, &name, SOON).await.unwrap();
    let deletion = format!("delete {name} ");
    written(world, CENTRAL, |writes| writes.last() == Some(&deletion)).await;
    assert_eq!(writes(world, USER), before.0);
    assert!(central.is_well().await);
}

/// The writes of the node manager after it has completed its Node, each time with two.
async fn writes_of_completion(world: &World) -> Vec<String> {
    written(world, USER, |writes| end_with_the_object(writes) && writes.len().is_multiple_of(2)).await
}

#[tokio::test]
async fn an_answer_that_is_silent_wrong_or_of_another_machine_gives_a_node_nothing_until_it_is_right() {
    let (machines, name) = Machines::with_one().await;
    let Machines { world, azure } = &machines;
    let other = azure.create(json!({"count": 1, "prefix": "other"})).await.remove(0);
    let right = json!({"machine": name});
    let with = |field: &str, value: Value| json!({"machine": name, "instance": {"compute": {field: value}}});
    let foreign = format!(
        "/subscriptions/{}/resourceGroups/nodes/providers/Microsoft.Compute/virtualMachines/x",
        "9".repeat(8)
    );
    let manager = machines.start(&name, &kubeconfig(world, &name).await, &[]).await;
    for (metadata, body, part) in [
        (json!({"machine": name, "delayMs": 600_000}), None, "no answer"),
        (json!({"machine": name, "status": 500}), None, "500"),
        (right.clone(), Some("<html>"), "sent an unexpected body"),
        (json!({"machine": other}), None, "describes machine other"),
        (with("vmId", json!("00000000-0000")), None, "(00000000-0000), which isn't that of node"),
        (with("resourceId", json!(foreign)), None, "describes a machine of subscription 99999999"),
    ] {
        managed(world, &name).await;
        let before = writes_of_completion(world).await;
        machines.remove(&name).await;
        azure.set_metadata(&metadata).await;
        azure.set_body(body).await;
        machines.register(&name).await;
        told(world, &name, "CloudInitializationFailed", part).await;
        let waiting = world.nodes().await.remove(0);
        assert!(is_uninitialised(&waiting) && waiting.spec.unwrap().provider_id.is_none(), "{part}");
        assert_eq!(writes(world, USER), before, "{part}");
        azure.set_metadata(&right).await;
        azure.set_body(None).await;
    }
    let found = managed(world, &name).await;

    // What a Node has stays, too.
    let before = writes_of_completion(world).await;
    azure.set_metadata(&json!({"machine": other})).await;
    told(world, &name, "CloudRefreshFailed", "describes machine other").await;
    assert_eq!(writes(world, USER), before, "the Node keeps what it has");
    let tags = json!([{"name": "Platform_Interconnect_Group", "value": "fast"}]);
    let address = json!([{"ipv4": {"ipAddress": [{"privateIpAddress": "10.224.9.9", "publicIpAddress": "198.18.9.9"}]}}]);
    let changed = json!({"compute": {"tagsList": tags}, "network": {"interface": address}});
    azure.set_metadata(&json!({"machine": name, "delayMs": 300, "instance": changed})).await;
    let is_fresh = |node: &Node| {
        let group = node.labels().get("topology.kubernetes.azure.com/interconnect-group");
        let ips: Vec<_> = addresses(node).into_iter().map(|(_, ip)| ip).collect();
        group.is_some_and(|group| group == "fast") && ips[1..] == ["10.224.9.9", "198.18.9.9"]
    };
    let fresh = await_node(&world.client, &name, is_fresh, SOON).await.unwrap();
    assert_eq!(outcome(&fresh).provider_id, outcome(&found).provider_id);
    let (paths, _) = azure.requests(0).await;
    assert!(!paths.iter().any(|path| path.contains("identity")), "{paths:?}");
    assert!(manager.is_well().await && manager.stop().await.success());
}

#[tokio::test]
async fn the_resource_manager_stands_in_for_a_failing_metadata_service_only_by_flag() {
    let (machines, name) = Machines::with_one().await;
    let Machines { world, azure } = &machines;
    let (kubeconfig, (_, before)) = (kubeconfig(world, &name).await, azure.requests(0).await);
    azure.set_metadata(&json!({"machine": name, "status": 503})).await;
    let manager = machines.start(&name, &kubeconfig, &[]).await;
    told(world, &name, "CloudInitializationFailed", "503").await;
    assert!(manager.stop().await.success());
    let (paths, before) = azure.requests(before).await;
    assert!(!paths.is_empty() && !paths.iter().any(|path| is_for_the_resource_manager(path)), "{paths:?}");

    let manager = machines.start(&name, &kubeconfig, &["--fallback-instances"]).await;
    let by_manager = managed(world, &name).await;
    manager.logged(&["the metadata service gives no answer, so the cloud is asked"]).await;
    let (paths, _) = azure.requests(before).await;
    assert!(paths.iter().any(|path| is_for_the_resource_manager(path)), "{paths:?}");
    azure.set_metadata(&json!({"machine": name})).await;
    // The first of them may have been sent before.
    azure.requests_of_three_refreshes().await;
    let paths = azure.requests_of_three_refreshes().await;
    assert!(!paths.iter().any(|path| is_for_the_resource_manager(path)), "{paths:?}");
    let now = Api::<Node>::all(world.client.clone()).get(&name).await.unwrap();
    assert_eq!(unordered(&now), unordered(&by_manager), "both say the same");
    assert!(manager.is_well().await && manager.stop().await.success());
}
