//! Services get load balancers, which follow the Services and the Nodes. Each test ends with a cloud that has exactly
//! what the cluster needs, and without further writes.

use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pileus_dev::kubernetes::Options;
use serde_json::{Value, json};

use crate::cloud::Object;
use crate::service::{
    INVALID, OURS, Style, all, api, change, cluster_uid, create, create_whole, delete, document, get,
    has_finalizer, ingress, is_served, join, settles, stays, tear_out, until, written,
};
use crate::world::{Run, World};

async fn world() -> World {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = vec!["--leader-elect=false"];
    world
}

async fn start(world: &World, style: Style) -> Run {
    let run = world.start_with(&document(world, style)).await;
    run.ready().await;
    run
}

/// That the API server refuses a change, and says so.
async fn is_refused(world: &World, name: &str, patch: Value) {
    let refused = api(world).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("not refused: {refused:?}") };
    assert_eq!(status.code, 422, "{status:?}");
}

#[tokio::test]
async fn i01_i02_i03_i04_i05_classes_protocols_and_ip_modes_are_as_upstream() {
    let world = world().await;
    ip_modes(&world).await;
    join(&world, &["a"]).await;
    let run = start(&world, Style::PerService).await;
    let class = |class: &str| json!({"spec": {"loadBalancerClass": class}});
    // I01, I02: another controller's from the start, and its class can't change.
    create(&world, "foreign", json!({"loadBalancerClass": "example.com/theirs"})).await;
    is_refused(&world, "foreign", class(OURS)).await;
    is_refused(&world, "foreign", json!({"spec": {"loadBalancerClass": null}})).await;
    // I03: of no class, and so ours; that can't be changed either.
    create(&world, "plain", json!({})).await;
    is_refused(&world, "plain", class("example.com/theirs")).await;
    // I04.
    let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "port": 53, "protocol": protocol});
    create(&world, "mixed", json!({"ports": [port("TCP"), port("UDP")]})).await;
    stays(&world, Style::PerService).await;
    let foreign = get(&world, "foreign").await.unwrap();
    assert!(!has_finalizer(&foreign) && ingress(&foreign).is_empty(), "{foreign:?}");
    assert_eq!(world.events("foreign").await, Vec::new(), "not even a word about it");
    assert!(run.stop().await.success());
}

/// I05, with a provider that tells any mode, and none.
async fn ip_modes(world: &World) {
    let configuration = json!({"behaviour": "ip-modes"});
    let run = world.start_with(&crate::world::document("hostile-provider", &configuration, &json!([]))).await;
    run.ready().await;
    let modes = |service: &Service| {
        let modes = ingress(service).iter().map(|way| way.ip_mode.clone().unwrap_or_default());
        modes.collect::<Vec<_>>()
    };
    let all = [
        ("none", json!({}), "VIP"),
        ("vip", json!({"ip-mode": "VIP"}), "VIP"),
        ("proxy", json!({"ip-mode": "Proxy"}), "Proxy"),
    ];
    for (name, labels, _) in &all {
        create_whole(world, &json!({"metadata": {"name": name, "labels": labels}})).await;
    }
    for (name, _, expected) in &all {
        let served = until(world, name, is_served).await;
        assert_eq!(modes(&served), [*expected], "{name}");
        change(world, name, json!({"spec": {"ports": [{"port": 81}]}})).await;
    }
    let changes = [r#"action="ensure""#, r#"result="done""#];
    run.reaches_of("pileus_service_changes_total", &changes, 6).await;
    let before = written(world).await.0;
    for (name, _, expected) in &all {
        let served = get(world, name).await.unwrap();
        assert_eq!(modes(&served), [*expected], "{name} after its port has changed");
        delete(world, name).await;
        // This provider asks no cloud, so its word doesn't end a load balancer.
        change(world, name, json!({"metadata": {"finalizers": []}})).await;
    }
    assert_eq!(before, 6, "a finalizer and a status each, although the provider told no mode");
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_load_balancer_per_service_follows_its_service_and_the_nodes() {
    load_balancers_follow_services_and_nodes(Style::PerService).await;
}

#[tokio::test]
async fn a_shared_load_balancer_follows_all_services_and_the_nodes() {
    load_balancers_follow_services_and_nodes(Style::Shared).await;
}

async fn load_balancers_follow_services_and_nodes(style: Style) {
    let world = world().await;
    let nodes = Api::<Node>::all(world.client.clone());
    let run = start(&world, style).await;
    create(&world, "early", json!({})).await;
    world.event("early", "UnAvailableLoadBalancer").await;
    join(&world, &["a", "b", "c"]).await;
    create(&world, "ours", json!({"loadBalancerClass": OURS})).await;
    let ranges = json!(["10.0.0.0/8", "192.168.0.0/16"]);
    create(&world, "closed", json!({"loadBalancerSourceRanges": ranges, "externalTrafficPolicy": "Local"}))
        .await;
    create(&world, "other", json!({"type": "ClusterIP"})).await;
    settles(&world).await;
    for reason in ["EnsuringLoadBalancer", "EnsuredLoadBalancer"] {
        let event = world.event("early", reason).await;
        assert_eq!(
            (event.type_.as_deref(), event.reporting_component.as_deref()),
            (Some("Normal"), Some("service-controller"))
        );
    }

    // Services change.
    let sticky = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}});
    change(&world, "early", json!({"spec": sticky})).await;
    change(
        &world,
        "ours",
        json!({"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 443}]}}),
    )
    .await;
    change(
        &world,
        "closed",
        json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Cluster"}}),
    )
    .await;
    settles(&world).await;

    // Types flip.
    change(&world, "early", json!({"spec": {"type": "ClusterIP"}})).await;
    change(&world, "other", json!({"spec": {"type": "LoadBalancer"}})).await;
    settles(&world).await;
    change(&world, "early", json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": OURS}})).await;
    // Another controller gets it before our load balancer is gone.
    change(&world, "other", json!({"spec": {"type": "ClusterIP"}})).await;
    let theirs = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/theirs"});
    change(&world, "other", json!({"spec": theirs})).await;
    until(&world, "other", |service| !has_finalizer(service)).await;
    settles(&world).await;
    change(&world, "other", json!({"spec": {"type": "NodePort", "loadBalancerClass": null}})).await;
    settles(&world).await;

    // Nodes come, go, and are taken out.
    join(&world, &["d"]).await;
    settles(&world).await;
    let excluded = |value: &str| {
        Patch::Merge(
            json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": value}}}),
        )
    };
    nodes.delete("c", &DeleteParams::default()).await.unwrap();
    nodes.patch("a", &PatchParams::default(), &excluded("")).await.unwrap();
    nodes.patch("b", &PatchParams::default(), &excluded("false")).await.unwrap();
    let taint = Patch::Merge(
        json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}),
    );
    nodes.patch("d", &PatchParams::default(), &taint).await.unwrap();
    settles(&world).await;
    world.event("ours", "UpdatedLoadBalancer").await;

    // The next start finds all as it should be.
    assert!(run.stop().await.success());
    let before = written(&world).await;
    let run = start(&world, style).await;
    run.counted("pileus_service_lists_total", &[r#"result="ok""#]).await;
    run.counted("pileus_service_load_balancers", &[r#"state="settled""#]).await;
    run.reaches_zero_of("pileus_service_load_balancers", &[r#"state="waiting""#]).await;
    assert_eq!(written(&world).await, before, "written although all was well");
    stays(&world, style).await;
    for name in ["early", "ours", "closed"] {
        delete(&world, name).await;
    }
    settles(&world).await;
    assert_eq!(
        all(&world).await.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
        ["kubernetes", "other"]
    );
    for reason in ["DeletingLoadBalancer", "DeletedLoadBalancer"] {
        world.event("ours", reason).await;
    }
    stays(&world, style).await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn orphans_are_removed_and_load_balancers_of_others_are_left_alone() {
    for style in [Style::PerService, Style::Shared] {
        orphans(style).await;
    }
}

async fn orphans(style: Style) {
    let mut world = world().await;
    let machine = join(&world, &["a"]).await.remove(0);
    let run = start(&world, style).await;
    for name in ["lost", "flipped", "kept"] {
        create(&world, name, json!({})).await;
    }
    settles(&world).await;
    assert!(run.stop().await.success());

    // While Pileus is down: a Service is removed without its finalizer, and another loses finalizer and type.
    tear_out(&world, "lost").await;
    let flip = json!({"metadata": {"finalizers": null}, "spec": {"type": "ClusterIP"}});
    change(&world, "flipped", flip).await;
    let uid = "0d0c4c0e-0000-4000-8000-000000000000";
    let labels = |cluster: Value| {
        let mut labels =
            json!({"pileus-service": uid, "pileus-service-namespace": "default", "pileus-service-name": "x"});
        if cluster.is_string() {
            labels["pileus-cluster"] = cluster;
        }
        labels
    };
    let foreign = [
        ("of-another-cluster", json!("7e0c4c0e-0000-4000-8000-000000000000")),
        ("of-no-cluster", Value::Null),
    ];
    for (name, cluster) in foreign {
        put_foreign(&world, style, name, &machine, &labels(cluster)).await;
    }
    // One of ours whose Service is not known, as after an answer that was lost before the first finalizer was.
    put_foreign(&world, style, uid, &machine, &labels(json!(cluster_uid(&world).await))).await;
    world.flags.push("--load-balancer-audit-period=5s");
    let run = start(&world, style).await;
    settles(&world).await;
    let kind = if style == Style::Shared { Object::Address } else { Object::LoadBalancer };
    let left = world.cloud.all(kind).await.unwrap();
    for name in ["of-another-cluster", "of-no-cluster"] {
        assert!(left.iter().any(|object| object["name"] == name), "{name} is gone: {left:#?}");
    }
    assert!(!left.iter().any(|object| object["name"] == uid), "{left:#?}");
    run.logged(&["WARN", "of-no-cluster"]).await;
    stays(&world, style).await;
    assert!(run.stop().await.success());
}

async fn put_foreign(world: &World, style: Style, name: &str, machine: &str, labels: &Value) {
    if style == Style::Shared {
        world.cloud.put(Object::Address, name, &json!({"family": "ipv4", "labels": labels})).await;
    } else {
        let object = json!({"ports": [{"protocol": "tcp", "port": 80, "nodePort": 30_080}], "machines": [machine], "labels": labels});
        world.cloud.put(Object::LoadBalancer, name, &object).await;
    }
}

#[tokio::test]
async fn an_invalid_service_gets_an_event_and_costs_others_nothing() {
    let world = world().await;
    join(&world, &["a"]).await;
    for style in [Style::PerService, Style::Shared] {
        invalid(&world, style).await;
    }
}

async fn invalid(world: &World, style: Style) {
    let run = start(world, style).await;
    create(world, "good", json!({})).await;
    // The API server sees to source ranges by itself.
    let range = json!({"metadata": {"name": "range"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerSourceRanges": ["10.0.0.0/33"]}});
    let refused = api(world).create(&PostParams::default(), &serde_json::from_value(range).unwrap()).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 422));
    let invalid = |name: &str, more: Value| {
        let mut service = json!({"metadata": {"name": name, "labels": {INVALID: ""}}});
        for (key, value) in more.as_object().unwrap() {
            match key.as_str() {
                "annotations" => service["metadata"]["annotations"] = value.clone(),
                _ => service["spec"][key] = value.clone(),
            }
        }
        service
    };
    let mixed =
        json!([{"name": "a", "port": 80, "protocol": "TCP"}, {"name": "b", "port": 80, "protocol": "SCTP"}]);
    let wrong = [
        ("mixed", json!({"ports": mixed}), ["sctp", "of their own"]),
        (
            "annotated",
            json!({"annotations": {"simulated.pileus.dev/hostname": "maybe"}}),
            ["\"maybe\"", "true or false"],
        ),
        ("elsewhere", json!({"loadBalancerIP": "192.0.2.1"}), ["192.0.2.1", "198.51.100.0/24"]),
    ];
    for (name, more, said) in &wrong {
        create_whole(world, &invalid(name, more.clone())).await;
        let event = world.event(name, "SyncLoadBalancerFailed").await;
        let note = event.message.unwrap();
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert!(said.iter().all(|part| note.to_lowercase().contains(part)), "{name}: {note}");
    }
    create(world, "neighbour", json!({})).await;
    change(world, "good", json!({"spec": {"ports": [{"port": 81}]}})).await;
    settles(world).await;

    // One that was right keeps what it has, until it is right again.
    let annotation =
        |value: Value| json!({"metadata": {"annotations": {"simulated.pileus.dev/hostname": value}}});
    let before = change(world, "good", annotation(json!("maybe"))).await;
    world.event("good", "SyncLoadBalancerFailed").await;
    assert_eq!(ingress(&get(world, "good").await.unwrap()), ingress(&before));
    change(world, "good", annotation(Value::Null)).await;
    settles(world).await;
    // The same mistake again is counted in the event of the first one.
    change(world, "good", annotation(json!("maybe"))).await;
    let event = world.repeated_event("good", "SyncLoadBalancerFailed").await;
    assert_eq!(event.series.and_then(|series| series.count), Some(2));
    assert!(event.message.unwrap().contains("\"maybe\""));
    change(world, "good", annotation(Value::Null)).await;
    settles(world).await;
    stays(world, style).await;
    // What is wrong can be put right, or go.
    change(
        world,
        "mixed",
        json!({"metadata": {"labels": {INVALID: null}}, "spec": {"ports": [{"port": 80}]}}),
    )
    .await;
    until(world, "mixed", is_served).await;
    for name in ["mixed", "annotated", "elsewhere", "good", "neighbour"] {
        delete(world, name).await;
    }
    settles(world).await;
    assert!(run.stop().await.success());
    // So that they are not mistaken for events of the next Services of these names.
    let events = Api::<Event>::default_namespaced(world.client.clone());
    events.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
}

/// The machines behind a load balancer.
async fn machines_behind(world: &World, style: Style) -> Vec<Vec<String>> {
    let kind = if style == Style::Shared { Object::SharedLoadBalancer } else { Object::LoadBalancer };
    let text = |machine: &Value| machine.as_str().unwrap_or_default().to_owned();
    let machines = |object: &Value| object["machines"].as_array().into_iter().flatten().map(text).collect();
    world.cloud.all(kind).await.unwrap_or_default().iter().map(machines).collect()
}

async fn have(world: &World, style: Style, balancers: usize, machines: &[String]) {
    let expected = vec![machines.to_vec(); balancers];
    let reached = async {
        while machines_behind(world, style).await != expected {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    if tokio::time::timeout(crate::SOON, reached).await.is_err() {
        assert_eq!(machines_behind(world, style).await, expected, "{style:?}");
    }
}

/// A Node whose provider ID names a machine that never was, ready or tainted, from the start or later.
#[tokio::test]
async fn a_node_without_a_machine_spoils_no_load_balancer() {
    for style in [Style::PerService, Style::Shared] {
        let world = world().await;
        let mut machines = join(&world, &["a", "b"]).await;
        let wrong =
            |name: &str, id: &str| pileus_dev::nodes::node(name).provider_id(&format!("simulated://{id}"));
        world
            .register([wrong("ready-before", "m-777777").initialized(), wrong("tainted-before", "m-777778")])
            .await;
        crate::node::set_ready(&world.client, "ready-before", "True").await;
        let run = start(&world, style).await;
        create(&world, "web", json!({})).await;
        until(&world, "web", is_served).await;
        have(&world, style, 1, &machines).await;
        world
            .register([wrong("ready-later", "m-777779").initialized(), wrong("tainted-later", "m-777780")])
            .await;
        machines.extend(join(&world, &["c"]).await);
        create(&world, "db", json!({})).await;
        until(&world, "db", is_served).await;
        let balancers = if style == Style::Shared { 1 } else { 2 };
        have(&world, style, balancers, &machines).await;
        assert!(run.stop().await.success());
    }
}
