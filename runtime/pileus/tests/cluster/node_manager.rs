//! Node managers: each keeps its own Node up to date from its machine's metadata service, with the token that the kubelet would get
//! for its Pod, beside the central process.

mod azure;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use pileus_dev::kubernetes::{Options, User};
use pileus_dev::nodes::{UNINITIALIZED, await_node, node};
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use crate::SOON;
use crate::node::{addresses, initialised, is_half_written, is_uninitialised, set_ready};
use crate::world::{Run, World};

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/node-manager.yaml");
const ACCOUNT: &str = "pileus-node-manager";
const USER: &str = "system:serviceaccount:kube-system:pileus-node-manager";
const MARK: &str = "pileus.dev/node-manager";

/// Between two looks at a cloud.
const PAUSE: Duration = Duration::from_millis(50);

/// A cluster with the manifest of the node managers, and a machine and a Node for each of these names.
struct Machines {
    world: World,
    /// The IDs of the machines.
    ids: Vec<String>,
}

impl Machines {
    async fn new(names: &[&str]) -> Self {
        let world = World::with(Options { audit: true }).await;
        world.kubernetes.apply(MANIFEST).await.unwrap();
        let mut ids = Vec::new();
        for name in names {
            ids.push(world.cloud.create(json!({"name": name, "labels": {"rack": "7"}})).await);
        }
        world.register(names.iter().map(|name| node(name))).await;
        Self { world, ids }
    }

    /// The document of the simulated provider with the metadata service of a machine, and short deadlines.
    async fn document(&self, machine: &str) -> Value {
        let port = self.world.cloud.metadata_service(machine).await;
        let mut document = self.world.simulated(self.world.cloud.port);
        let spec = &mut document["spec"];
        spec["configuration"]["metadata"] = json!(format!("http://127.0.0.2:{port}"));
        spec["grants"].as_array_mut().unwrap().push(json!({
            "host": "127.0.0.2", "port": port, "tls": false, "methods": ["GET"],
            "paths": ["/metadata"], "addresses": ["127.0.0.2/32"],
        }));
        spec["credentials"] =
            json!([{"name": "metadata", "hosts": ["127.0.0.2"], "metadata": {"flavor": "azure"}}]);
        spec["deadlines"] = json!({"lookup": {"soft": "1s", "hard": "2s"}});
        document
    }

    async fn start(&self, node: &str, flags: &[&str]) -> Run {
        let (document, kubeconfig) = (self.document(node).await, kubeconfig(&self.world, node).await);
        self.world.start_node_manager(node, &document, &kubeconfig, flags).await
    }

    /// Waits until the metadata services were asked so often.
    async fn are_asked(&self, times: u64) {
        let start = Instant::now();
        loop {
            let asked = self.world.cloud.calls("metadata").await;
            if asked >= times {
                return;
            }
            assert!(start.elapsed() < SOON, "the metadata services were asked {asked} times, not {times}");
            time::sleep(PAUSE).await;
        }
    }

    async fn has_label(&self, name: &str, key: &str, value: &str) {
        let has_it = |node: &Node| node.labels().get(key).is_some_and(|found| found == value);
        await_node(&self.world.client, name, has_it, SOON).await.unwrap();
    }
}

/// A kubeconfig with a token for a Pod of the DaemonSet on this Node, as its kubelet mounts it.
async fn kubeconfig(world: &World, node: &str) -> PathBuf {
    let client = world.client.clone();
    let name = format!("node-manager-{node}");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "serviceAccountName": ACCOUNT, "containers": [{"name": "a", "image": "a"}]},
    }))
    .unwrap();
    let pod =
        Api::namespaced(client.clone(), "kube-system").create(&PostParams::default(), &pod).await.unwrap();
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(name),
        uid: pod.metadata.uid,
    };
    let spec = TokenRequestSpec { bound_object_ref: Some(bound), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts = Api::<ServiceAccount>::namespaced(client, "kube-system");
    let issued = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await.unwrap();
    let text = std::fs::read_to_string(world.kubernetes.kubeconfig(User::Pileus)).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"] = json!({"token": issued.status.unwrap().token});
    world.file(&format!("{node}.kubeconfig"), &kubeconfig.to_string())
}

async fn managed(world: &World, name: &str) -> Node {
    let is_managed = |node: &Node| !is_uninitialised(node) && node.annotations().contains_key(MARK);
    await_node(&world.client, name, is_managed, SOON).await.unwrap()
}

/// The writes to Nodes by a user, as verb, name and subresource, that the API server accepted.
fn writes(world: &World, user: &str) -> Vec<String> {
    let log = std::fs::read_to_string(world.kubernetes.audit_log()).unwrap();
    let log = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_write = |entry: &Value| {
        entry["user"]["username"] == user
            && entry["objectRef"]["resource"] == "nodes"
            && !["get", "list", "watch"].contains(&&*text(&entry["verb"]))
            && entry["responseStatus"]["code"] == 200
    };
    let shown = |entry: Value| {
        let of = &entry["objectRef"];
        format!("{} {} {}", text(&entry["verb"]), text(&of["name"]), text(&of["subresource"]))
    };
    entries.filter(is_write).map(shown).collect()
}

/// Waits until the writes to Nodes by a user are as wanted, and returns them. A watch shows a write before the audit log
/// does.
async fn written(world: &World, user: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
    let start = Instant::now();
    loop {
        let writes = writes(world, user);
        if wanted(&writes) {
            return writes;
        }
        assert!(start.elapsed() < SOON, "{user} has written {writes:?}");
        time::sleep(PAUSE).await;
    }
}

/// Whether the write is there that initializes a Node: the last one, which takes the taint away.
fn end_with_the_object(writes: &[String]) -> bool {
    writes.last().is_some_and(|write| !write.ends_with("status"))
}

/// Waits for an event about a Node that says this.
async fn told(world: &World, name: &str, reason: &str, part: &str) -> Event {
    let start = Instant::now();
    loop {
        let events = world.events(name).await;
        let says_it = |event: &&Event| {
            event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|message| message.contains(part))
        };
        if let Some(event) = events.iter().find(says_it) {
            return event.clone();
        }
        assert!(start.elapsed() < SOON, "no event {reason} with {part:?}: {events:#?}");
        time::sleep(Duration::from_millis(100)).await;
    }
}

/// What a node manager may keep in memory, in kB. The pages of the program's file come on top: most of a debug build.
const MEMORY_KB: u64 = 15 << 10;

/// The memory of a process in kB, by the names of `/proc/PID/status`.
fn memory(process: u32) -> BTreeMap<String, u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let fields = status.lines().filter_map(|line| line.strip_suffix(" kB")?.split_once(':'));
    fields
        .filter(|(name, _)| ["VmRSS", "RssAnon", "RssFile", "VmHWM"].contains(name))
        .map(|(name, kilobytes)| (name.to_owned(), kilobytes.trim().parse().unwrap()))
        .collect()
}

const CENTRAL: &str = "system:serviceaccount:kube-system:pileus";

#[tokio::test]
async fn a_node_manager_completes_its_own_node_alone_and_asks_the_cloud_nothing() {
    let machines = Machines::new(&["a", "b"]).await;
    let Machines { world, ids } = &machines;
    let run = machines.start("a", &["--node-status-update-frequency", "1s"]).await;
    let completed = managed(&machines.world, "a").await;
    assert_eq!(completed.spec.as_ref().unwrap().provider_id, Some(format!("simulated://{}", ids[0])));
    let kinds: Vec<_> = addresses(&completed).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["InternalIP", "ExternalIP", "Hostname"]);
    for (key, value) in [
        ("rack", "7"),
        ("node.kubernetes.io/instance-type", "small-2"),
        ("topology.kubernetes.io/region", "sim-1"),
    ] {
        assert_eq!(completed.labels().get(key).map(String::as_str), Some(value), "{key}");
    }
    told(&machines.world, "a", "Synced", "synced").await;

    world.cloud.change(&ids[0], json!({"labels": {"rack": "8"}})).await;
    machines.has_label("a", "rack", "8").await;
    let before = world.cloud.calls("metadata").await;
    machines.are_asked(before + 3).await;
    let expected = ["patch a status", "patch a ", "patch a "];
    written(&machines.world, USER, |writes| writes.len() >= expected.len()).await;
    assert_eq!(writes(&machines.world, USER), expected, "nothing in steady state");
    let calls =
        [world.cloud.calls("list").await, world.cloud.calls("get").await, world.cloud.calls("token").await];
    assert_eq!(calls, [0, 0, 0], "nothing but the metadata service");
    let other = world.nodes().await.into_iter().find(|node| node.name_any() == "b").unwrap();
    assert!(is_uninitialised(&other), "another machine's Node");
    let memory = memory(run.id());
    println!("memory of a node manager in kB: {memory:?}");
    assert!(memory["RssAnon"] < MEMORY_KB, "{memory:?}");
    assert!(run.is_well().await && run.stop().await.success());
}

/// What a program with the token of a node manager may do.
#[tokio::test]
async fn the_token_of_a_node_manager_changes_its_own_node_alone_and_only_what_it_writes() {
    let machines = Machines::new(&["a", "b"]).await;
    let kubeconfig = Kubeconfig::read_from(kubeconfig(&machines.world, "a").await).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let nodes = Api::<Node>::all(Client::try_from(config).unwrap());
    let params = PatchParams::default();
    let stored = Api::<Node>::all(machines.world.client.clone()).get("a").await.unwrap();
    let taints = serde_json::to_value(stored.spec.unwrap().taints).unwrap();
    let (mut more, mut fewer) = (taints.as_array().unwrap().clone(), taints.as_array().unwrap().clone());
    more.push(json!({"key": "other", "effect": "NoExecute"}));
    fewer.retain(|taint| taint["key"] != UNINITIALIZED);
    let refusal = async |name: &str, patch: Value, is_status: bool| {
        let patch = Patch::Merge(patch);
        let patched = if is_status {
            nodes.patch_status(name, &params, &patch).await
        } else {
            nodes.patch(name, &params, &patch).await
        };
        patched.err().map(|error| error.to_string()).unwrap_or_default()
    };
    // The API server takes a moment to read new roles, and a new policy.
    let start = Instant::now();
    while !refusal("b", json!({"metadata": {"labels": {"x": "y"}}}), false).await.contains("only the node") {
        assert!(start.elapsed() < SOON, "the policy has no effect");
        time::sleep(Duration::from_millis(100)).await;
    }
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
    let ready = json!([{"type": "Ready", "status": "False"}]);
    for (name, patch, is_status, expected) in [
        ("a", json!({"metadata": {"labels": {"rack": "7"}}}), false, ""),
        ("a", addresses.clone(), true, ""),
        ("b", addresses, true, "may change only the node of its Pod, which is \"a\""),
        ("b", json!({"spec": {"taints": []}}), false, "may change only the node of its Pod"),
        (
            "a",
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
            false,
            "must not change labels",
        ),
        (
            "a",
            json!({"metadata": {"labels": {"x.node-restriction.kubernetes.io/a": ""}}}),
            false,
            "must not change labels",
        ),
        ("a", json!({"spec": {"taints": more}}), false, "must not change taints other than"),
        ("a", json!({"spec": {"unschedulable": true}}), false, "must not cordon"),
        ("a", json!({"status": {"conditions": ready}}), true, "must not change conditions"),
        ("a", json!({"spec": {"taints": fewer}}), false, ""),
    ] {
        let said = refusal(name, patch.clone(), is_status).await;
        assert!(
            said.contains(expected) && said.is_empty() == expected.is_empty(),
            "{name} {patch}: {said:?}"
        );
    }
    let forbidden = nodes.delete("a", &kube::api::DeleteParams::default()).await.unwrap_err().to_string();
    assert!(forbidden.contains("forbidden"), "{forbidden}");
}

#[tokio::test]
async fn beside_a_central_process_that_leaves_nodes_out_each_does_its_own_part() {
    let mut machines = Machines::new(&["a"]).await;
    machines.world.flags = vec!["--controllers=*,-cloud-node", "--node-monitor-period", "1s"];
    let central = machines.world.start().await;
    central.leads().await;
    let manager = machines.start("a", &[]).await;
    managed(&machines.world, "a").await;
    assert_eq!(writes(&machines.world, CENTRAL), Vec::<String>::new());
    written(&machines.world, USER, |writes| writes == ["patch a status", "patch a "]).await;

    machines.world.cloud.delete(&machines.ids[0]).await;
    set_ready(&machines.world.client, "a", "Unknown").await;
    pileus_dev::nodes::await_absence(&machines.world.client, "a", SOON).await.unwrap();
    written(&machines.world, CENTRAL, |writes| writes.contains(&"delete a ".to_owned())).await;
    assert!(manager.is_well().await && central.is_well().await);
}

#[tokio::test]
async fn beside_a_central_process_that_does_the_same_the_node_manager_wins_and_both_say_so() {
    let mut machines = Machines::new(&["a"]).await;
    machines.world.flags = vec!["--node-status-update-frequency", "1s"];
    let central = machines.world.start().await;
    initialised(&machines.world, "a").await;
    let manager = machines.start("a", &["--node-status-update-frequency", "1s"]).await;
    managed(&machines.world, "a").await;
    central.logged(&["WARN", "node managers keep nodes up to date", "-cloud-node"]).await;

    let before = written(&machines.world, CENTRAL, end_with_the_object).await;
    let reads = machines.world.cloud.ended("ok").await;
    machines.world.cloud.change(&machines.ids[0], json!({"labels": {"rack": "8"}})).await;
    machines.has_label("a", "rack", "8").await;
    let changes = machines.world.cloud.calls("metadata").await;
    machines.are_asked(changes + 3).await;
    assert_eq!(writes(&machines.world, CENTRAL), before, "it left the Node alone");
    // The test's own change, and a lookup that may have been under way.
    assert!(machines.world.cloud.ended("ok").await <= reads + 2);

    // The operator takes node managers out again.
    assert!(manager.stop().await.success());
    let unmarked = Patch::Merge(json!({"metadata": {"annotations": {MARK: null}}}));
    let nodes = Api::<Node>::all(machines.world.client.clone());
    nodes.patch("a", &PatchParams::default(), &unmarked).await.unwrap();
    machines.world.cloud.change(&machines.ids[0], json!({"labels": {"rack": "9"}})).await;
    machines.has_label("a", "rack", "9").await;
    written(&machines.world, CENTRAL, |writes| writes.len() > before.len()).await;
}

#[tokio::test]
async fn a_metadata_service_that_fails_delays_its_node_and_a_user_is_told_why() {
    let machines = Machines::new(&["a", "b"]).await;
    let Machines { world, ids } = &machines;
    let (document, kubeconfig) = (machines.document("a").await, kubeconfig(&machines.world, "a").await);
    let flags = ["--node-status-update-frequency", "1s"];
    let start = async || world.start_node_manager("a", &document, &kubeconfig, &flags).await;
    let kinds = json!(["metadata"]);
    for (fault, part) in [
        (json!({"latency": {"fixedMs": 600_000, "kinds": kinds}}), "no answer"),
        (json!({"metadata": {"speaksOf": "none"}}), "the metadata service knows no machine"),
        (json!({"metadata": {"speaksOf": "b"}}), "the metadata service describes machine b, not node a"),
        (json!({"errors": {"share": 1, "kinds": kinds}}), "503"),
    ] {
        world.cloud.set_faults(fault).await;
        // Each begins to count failures, of which not all are told.
        let manager = start().await;
        told(&machines.world, "a", "CloudInitializationFailed", part).await;
        assert!(manager.is_well().await && manager.stop().await.success());
    }
    assert_eq!(writes(&machines.world, USER), Vec::<String>::new());
    world.cloud.set_faults(json!({"latency": {"fixedMs": 500, "kinds": kinds}})).await;
    let manager = start().await;
    let slow = managed(&machines.world, "a").await;
    assert_eq!(slow.spec.unwrap().provider_id, Some(format!("simulated://{}", ids[0])));

    let before = written(&machines.world, USER, end_with_the_object).await;
    world.cloud.set_faults(json!({"metadata": {"speaksOf": "b"}})).await;
    told(&machines.world, "a", "CloudRefreshFailed", "but it runs on").await;
    assert_eq!(writes(&machines.world, USER), before, "the Node keeps what it has");
    assert!(manager.is_well().await && manager.stop().await.success());
}

#[tokio::test]
async fn the_cloud_is_asked_only_by_flag_and_never_about_another_machine() {
    let machines = Machines::new(&["a", "b"]).await;
    let world = &machines.world;
    let (document, kubeconfig) = (machines.document("a").await, kubeconfig(&machines.world, "a").await);
    let start =
        async || world.start_node_manager("a", &document, &kubeconfig, &["--fallback-instances"]).await;
    world.cloud.set_faults(json!({"metadata": {"speaksOf": "b"}})).await;
    let manager = start().await;
    told(&machines.world, "a", "CloudInitializationFailed", "describes machine b").await;
    assert_eq!(world.cloud.calls("list").await, 0, "a wrong answer isn't silence");
    assert!(manager.stop().await.success());
    world.cloud.set_faults(json!({"metadata": {"speaksOf": "none"}})).await;
    let manager = start().await;
    managed(&machines.world, "a").await;
    assert!(world.cloud.calls("list").await > 0);
    manager.logged(&["the metadata service gives no answer, so the cloud is asked"]).await;
}

#[tokio::test]
async fn a_node_manager_that_is_killed_goes_on_where_it_was() {
    let machines = Machines::new(&["a"]).await;
    let world = &machines.world;
    let (document, kubeconfig) = (machines.document("a").await, kubeconfig(&machines.world, "a").await);
    let start = async || world.start_node_manager("a", &document, &kubeconfig, &[]).await;
    world.cloud.set_faults(json!({"latency": {"fixedMs": 600_000, "kinds": ["metadata"]}})).await;
    let first = start().await;
    world.cloud.await_request().await;
    first.kill();
    world.cloud.set_faults(json!({})).await;
    // As one that was killed between its two writes leaves the Node.
    let patch = json!({"status": {"addresses": [{"type": "ExternalIP", "address": "203.0.113.1"}]}});
    let nodes = Api::<Node>::all(world.client.clone());
    nodes.patch_status("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    await_node(&world.client, "a", is_half_written, SOON).await.unwrap();
    let second = start().await;
    managed(&machines.world, "a").await;
    second.kill();
    let before = written(&machines.world, USER, end_with_the_object).await;
    let asked = world.cloud.calls("metadata").await;
    let third = start().await;
    third.logged(&["managing this machine's node"]).await;
    third.ready().await;
    machines.are_asked(asked + 1).await;
    assert!(third.stop().await.success());
    assert_eq!(writes(&machines.world, USER), before, "a restart writes nothing");
}

#[tokio::test]
async fn a_document_that_changes_takes_effect_without_a_restart_unless_it_is_unusable() {
    let machines = Machines::new(&["a", "b"]).await;
    let world = &machines.world;
    let (wrong, right) = (machines.document("b").await, machines.document("a").await);
    let kubeconfig = kubeconfig(world, "a").await;
    let manager = world.start_node_manager("a", &wrong, &kubeconfig, &[]).await;
    let of_b = "the metadata service describes machine b, not node a";
    told(world, "a", "CloudInitializationFailed", of_b).await;
    let replace = |document: &Value| world.file("node-manager-a.yaml", &document.to_string());
    let mut without_component = right.clone();
    without_component["spec"]["source"]["file"] = json!("none.wasm");
    replace(&without_component);
    manager.logged(&["WARN", "its provider can't be used; the former one stays in use", "none.wasm"]).await;
    assert!(manager.is_well().await);
    replace(&right);
    manager.logged(&["the document has changed and takes effect"]).await;
    managed(world, "a").await;
    written(world, USER, |writes| writes == ["patch a status", "patch a "]).await;
    assert!(manager.is_well().await && manager.stop().await.success());
}
