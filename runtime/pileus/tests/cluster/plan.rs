//! `pileus plan`: the changes that it previews are those that `pileus run` then makes, and plan itself changes neither
//! the cloud nor the cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pileus_dev::kubernetes::{Options, User};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time;

use crate::SOON;
use crate::cloud::Object;
use crate::service::{
    Style, change, create, create_whole, delete, document, get, join, settles, tear_out, until,
};
use crate::world::{Said, World};

const CIDR: &str = "--cluster-cidr=10.244.0.0/16";

async fn world() -> World {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = vec!["--leader-elect=false", CIDR];
    world
}

/// Creates Nodes with these names and a Pod CIDR each, and their instances in the cloud.
async fn join_with_pod_cidrs(world: &World, names: &[&str]) {
    join(world, names).await;
    for (name, number) in names.iter().zip(1..) {
        let range = format!("10.244.{number}.0/24");
        let patch = Patch::Merge(json!({"spec": {"podCIDR": range, "podCIDRs": [range]}}));
        Api::<Node>::all(world.client.clone()).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Runs `pileus plan` under the shipped role.
async fn plan(world: &World, document: &Value, arguments: &[&str]) -> Said {
    plan_with(&world.kubernetes.kubeconfig(User::Pileus), document, arguments).await
}

async fn plan_with(kubeconfig: &std::path::Path, document: &Value, arguments: &[&str]) -> Said {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("provider.yaml");
    std::fs::write(&path, document.to_string()).unwrap();
    let compiled = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pileus"));
    command.arg("plan").arg("--provider").arg(path).arg("--kubeconfig").arg(kubeconfig);
    command.arg("--compiled-code").arg(compiled).args(arguments).env_remove("PILEUS_LOG");
    Said::by(command, SOON).await
}

/// The exit code and JSON object of a plan of routes and load balancers. Asserts that plan writes nothing.
async fn plan_json(world: &World, style: Style) -> (Option<i32>, Value) {
    let before = world.cloud.writes().await;
    let said = plan(world, &document(world, style), &[CIDR, "--json", "-v"]).await;
    assert_eq!(world.cloud.writes().await, before, "plan wrote something");
    // A Pileus that runs beside it may write. The audit log has plan's reads, with the user agent that its writes would
    // have.
    let is_own = |write: &Value| write["userAgent"].as_str().unwrap().ends_with("(plan)");
    assert_eq!(world.writes().into_iter().find(is_own), None, "plan wrote something");
    let log = std::fs::read_to_string(world.kubernetes.audit_log()).unwrap();
    assert!(log.contains(r#"(plan)","#), "the audit log doesn't have its user agent");
    let object = serde_json::from_str(&said.stdout);
    (said.code, object.unwrap_or_else(|error| panic!("{error}: {said:?}")))
}

/// Action, object and result of each change.
fn changes(plan: &Value) -> BTreeSet<String> {
    let of = |part: &str| {
        let text = |change: &Value, field: &str| change[field].as_str().unwrap().to_owned();
        let tell = |change: &Value| {
            let (action, object, result) =
                (text(change, "action"), text(change, "object"), text(change, "result"));
            format!("{action} {} {result}", object.split(' ').next().unwrap())
        };
        let changes = plan[part]["changes"].as_array().unwrap_or_else(|| panic!("{plan:#}"));
        changes.iter().map(tell).collect::<Vec<_>>()
    };
    [of("loadBalancers"), of("routes")].concat().into_iter().collect()
}

fn named(changes: &[&str]) -> BTreeSet<String> {
    changes.iter().map(|change| (*change).to_owned()).collect()
}

/// Method and path of all planned writes.
fn planned(plan: &Value) -> BTreeSet<String> {
    let request = |write: &Value| {
        let url = write["url"].as_str().unwrap().strip_prefix("http://").unwrap();
        format!("{} /{}", write["method"].as_str().unwrap(), url.split_once('/').unwrap().1)
    };
    let of = |part: &str| {
        let changes = plan[part]["changes"].as_array().unwrap();
        let own = changes.iter().flat_map(|change| change["writes"].as_array().unwrap());
        own.chain(plan[part]["sharedWrites"].as_array().unwrap()).map(request).collect::<BTreeSet<_>>()
    };
    &of("loadBalancers") | &of("routes")
}

/// The writes of Pileus among the cloud's last requests.
async fn recent_writes(world: &World) -> BTreeSet<String> {
    let requests = world.cloud.requests().await;
    let is_write = |request: &&Value| {
        let path = request["path"].as_str().unwrap();
        request["method"] != "GET" && !path.starts_with("/v1/machines")
    };
    let tell = |request: &Value| {
        format!("{} {}", request["method"].as_str().unwrap(), request["path"].as_str().unwrap())
    };
    requests.iter().filter(is_write).map(tell).collect()
}

/// Runs Pileus until load balancers and routes are settled, and returns its writes to the cloud.
async fn settle(world: &World, style: Style, routes: usize) -> BTreeSet<String> {
    let run = world.start_with(&document(world, style)).await;
    run.ready().await;
    let mut settled = std::pin::pin!(async {
        settles(world).await;
        until_there_are_routes(world, routes).await;
    });
    let mut written = BTreeSet::new();
    // The cloud keeps its last requests, which include this test's own polling.
    while time::timeout(time::Duration::from_millis(200), &mut settled).await.is_err() {
        written.extend(recent_writes(world).await);
    }
    assert!(run.stop().await.success());
    written.extend(recent_writes(world).await);
    written
}

async fn until_there_are_routes(world: &World, routes: usize) {
    let reached = async {
        while world.cloud.routes().await.len() != routes {
            time::sleep(time::Duration::from_millis(50)).await;
        }
    };
    time::timeout(SOON, reached).await.unwrap();
}

#[tokio::test]
async fn a_plan_previews_what_a_run_then_does_with_a_load_balancer_for_each_service() {
    plan_previews_what_a_run_does(Style::PerService).await;
}

#[tokio::test]
async fn a_plan_previews_what_a_run_then_does_with_a_shared_load_balancer() {
    plan_previews_what_a_run_does(Style::Shared).await;
}

async fn plan_previews_what_a_run_does(style: Style) {
    let world = world().await;
    join_with_pod_cidrs(&world, &["a", "b"]).await;
    for name in ["one", "two", "three"] {
        create(&world, name, json!({})).await;
    }
    create(&world, "foreign", json!({"loadBalancerClass": "example.com/theirs"})).await;
    create(&world, "plain", json!({"type": "ClusterIP"})).await;

    // Everything is new.
    let (code, plan) = plan_json(&world, style).await;
    let expected = named(&[
        "create default/one write",
        "create default/two write",
        "create default/three write",
        "create 10.244.1.0/24 write",
        "create 10.244.2.0/24 write",
    ]);
    assert_eq!((code, changes(&plan)), (Some(7), expected), "{plan:#}");
    let (wanted, earlier) = (planned(&plan), recent_writes(&world).await);
    assert_eq!((wanted.len(), earlier.len()), (5, 0), "{wanted:?}");
    let written = settle(&world, style, 2).await;
    match style {
        Style::PerService => assert_eq!(wanted, written),
        // The load balancer follows once the addresses exist.
        Style::Shared => {
            let later: Vec<_> = written.difference(&wanted).collect();
            assert!(
                wanted.is_subset(&written) && later.iter().all(|it| it.contains("shared-load-balancers"))
            );
        }
    }
    let (code, plan) = plan_json(&world, style).await;
    assert_eq!((code, changes(&plan)), (Some(0), BTreeSet::new()), "{plan:#}");
    assert_eq!(plan["loadBalancers"]["summary"]["settled"], 3);
    assert_eq!(plan["routes"]["summary"]["settled"], 2);

    // Change one Service, delete one, remove one and a Node without Pileus noticing.
    change(&world, "one", json!({"spec": {"ports": [{"port": 81}]}})).await;
    delete(&world, "two").await;
    tear_out(&world, "three").await;
    Api::<Node>::all(world.client.clone()).delete("b", &DeleteParams::default()).await.unwrap();
    let (code, plan) = plan_json(&world, style).await;
    let orphan = plan["loadBalancers"]["changes"].as_array().unwrap();
    let orphan =
        orphan.iter().find(|change| change["reason"] == "orphan of service default/three, which is gone");
    let orphan = orphan.unwrap_or_else(|| panic!("{plan:#}"))["object"].as_str().unwrap();
    let expected = named(&[
        "change default/one write",
        "delete default/two write",
        &format!("delete {orphan} write"),
        "delete 10.244.2.0/24 write",
    ]);
    assert_eq!((code, changes(&plan)), (Some(7), expected), "{plan:#}");
    let wanted = planned(&plan);
    if style == Style::Shared {
        assert_eq!(wanted.len(), 2, "the shared object is written once for all: {wanted:?}");
        assert_eq!(plan["loadBalancers"]["sharedWrites"][0]["for"].as_array().unwrap().len(), 3, "{plan:#}");
    }
    let written = settle(&world, style, 1).await;
    assert!(wanted.is_subset(&written), "{wanted:?} {written:?}");
    until_gone(&world, "two").await;
    assert_eq!(plan_json(&world, style).await.0, Some(0));
}

async fn until_gone(world: &World, name: &str) {
    let gone = async {
        while get(world, name).await.is_some() {
            time::sleep(time::Duration::from_millis(50)).await;
        }
    };
    time::timeout(SOON, gone).await.unwrap();
}

#[tokio::test]
async fn the_text_has_sentences_and_each_error_has_its_next_step() {
    let world = world().await;
    join_with_pod_cidrs(&world, &["a"]).await;
    create(&world, "one", json!({})).await;
    let maybe = json!({"simulated.pileus.dev/hostname": "maybe"});
    create_whole(&world, &json!({"metadata": {"name": "closed", "annotations": maybe}})).await;
    let good = document(&world, Style::PerService);
    let said = plan(&world, &good, &[CIDR]).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(7), ""), "{said:?}");
    for part in [
        "1 load balancer to create, 1 rejected; 1 route to create.",
        "load balancer default/one: type LoadBalancer without a load balancer",
        "load balancer default/closed: annotation simulated.pileus.dev/hostname has an invalid value \"maybe\": use true or false",
        "route 10.244.1.0/24: node a has no route for 10.244.1.0/24",
        "PUT http://127.0.0.1:",
        "Nothing was changed.",
    ] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    assert!(!said.stdout.contains("nodePort"), "no bodies unless asked for: {}", said.stdout);
    let said = plan(&world, &good, &["-v"]).await;
    assert!(said.stdout.contains("\"nodePort\":"), "{}", said.stdout);
    assert!(said.stdout.contains("routes: routes are managed only with --cluster-cidr"), "{}", said.stdout);

    let said = plan(&world, &good, &[CIDR, "--controllers=*,-service,-route"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let service = "load balancers: --controllers leaves out the service controller";
    for part in [service, "leaves out the route controller"] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }

    // Writes are not granted.
    let mut narrow = good.clone();
    narrow["spec"]["grants"][0]["methods"] = json!(["GET"]);
    let said = plan(&world, &narrow, &[CIDR]).await;
    assert_eq!(said.code, Some(7), "{said:?}");
    assert!(said.stdout.contains("  fails   load balancer default/one: "), "{}", said.stdout);
    assert!(said.stdout.contains("methods"), "it says what to grant: {}", said.stdout);
    // Nothing is granted.
    let mut none = good.clone();
    none["spec"]["grants"] = json!([]);
    let said = plan(&world, &none, &[CIDR]).await;
    assert_eq!(said.code, Some(6), "{said:?}");
    assert!(
        said.stderr.contains("not everything could be read") && said.stderr.contains("routes: "),
        "{said:?}"
    );
    // An invalid document, and an API server that doesn't exist.
    let mut wrong = good.clone();
    wrong["spec"]["grants"][0]["port"] = json!("none");
    assert_eq!(plan(&world, &wrong, &[CIDR]).await.code, Some(2));
    let folder = TempDir::new().unwrap();
    let direct = std::fs::read_to_string(world.kubernetes.kubeconfig(User::Pileus)).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&direct).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let said = plan_with(&path, &good, &[CIDR]).await;
    assert_eq!(said.code, Some(6), "{said:?}");
    assert!(said.stderr.contains("can't read namespace kube-system"), "{said:?}");
}

#[tokio::test]
async fn a_change_in_progress_is_shown_while_pileus_runs() {
    let world = world().await;
    join_with_pod_cidrs(&world, &["a"]).await;
    let run = world.start_with(&document(&world, Style::PerService)).await;
    run.ready().await;
    until_there_are_routes(&world, 1).await;
    world.cloud.set_faults(json!({"operations": {"takesMs": SOON.as_millis()}})).await;
    create(&world, "slow", json!({})).await;
    world.event("slow", "LoadBalancerPending").await;
    let (code, plan) = plan_json(&world, Style::PerService).await;
    assert_eq!((code, changes(&plan)), (Some(7), named(&["create default/slow in-progress"])), "{plan:#}");
    assert_eq!(world.cloud.all(Object::LoadBalancer).await.unwrap().len(), 1);
    until(&world, "slow", crate::service::has_finalizer).await;
    assert!(run.stop().await.success());
}
