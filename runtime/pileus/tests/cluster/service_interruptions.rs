//! SIGKILL at each request, other writers, and users who change their minds interrupt changes of load balancers. Each
//! test ends with a cloud that has exactly what the cluster needs.

use std::time::Duration;

use kube::ResourceExt as _;
use pileus_dev::kubernetes::{Options, User};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{self, Instant};

use crate::leader::QUICK;
use crate::proxy::{Network, Proxy};
use crate::relay::{Answers, Counted, Relay};
use crate::service::{
    FINALIZER, Style, change, create, delete, document, get, has_finalizer, ingress, is_served, join,
    settles, stays, tear_out, until,
};
use crate::world::{Run, World};

/// How long each operation of the cloud takes, so that there is something to come in between.
const SLOW: u64 = 300;

/// How long the API server is away.
const AWAY: Duration = Duration::from_mins(1);

async fn world() -> World {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = vec!["--leader-elect=false"];
    world
}

/// A world in which every request to API server and cloud goes through a relay.
struct Relayed {
    world: World,
    answers: Answers,
    api_server: Relay,
    cloud: Relay,
    style: Style,
}

impl Relayed {
    async fn new(style: Style) -> Self {
        let world = world().await;
        let answers = Answers::default();
        let client = world.kubernetes.client(User::Pileus).await.unwrap();
        let api_server = Relay::to_api_server(client, &answers).await;
        let cloud = Relay::to_cloud(world.cloud.port, &answers).await;
        Self { world, answers, api_server, cloud, style }
    }

    async fn start(&self) -> Run {
        let mut document = document(&self.world, self.style);
        document["spec"]["configuration"]["endpoint"] =
            json!(format!("http://127.0.0.1:{}", self.cloud.port));
        document["spec"]["grants"][0]["port"] = json!(self.cloud.port);
        let run = self.world.start_at(&document, &format!("http://127.0.0.1:{}", self.api_server.port)).await;
        run.ready().await;
        run
    }

    /// Lets something happen and waits until all is settled, unless the `nth` of these requests has been carried out
    /// before: then Pileus is killed without its answer, and another one goes on. Tells which request that was.
    async fn killed_at(
        &self,
        (nth, of): (usize, Counted),
        run: &mut Run,
        happens: impl Future<Output = ()>,
    ) -> Option<String> {
        // Before it happens, so that no request is missed.
        let mut withheld = self.answers.withhold(nth, of);
        happens.await;
        let cut = tokio::select! {
            cut = &mut withheld => cut.ok(),
            () = settles(&self.world) => {
                // What settled it may be that very request, seen before its answer is withheld.
                self.answers.give();
                withheld.await.ok()
            }
        };
        self.answers.give();
        if cut.is_some() {
            run.signal(Signal::KILL);
            let killed = std::mem::replace(run, self.start().await);
            assert!(!killed.ended().await.success());
        }
        settles(&self.world).await;
        cut
    }
}

#[tokio::test]
async fn after_a_kill_at_each_request_a_load_balancer_per_service_is_right() {
    killed_at_each_request(Style::PerService).await;
}

#[tokio::test]
async fn after_a_kill_at_each_request_a_shared_load_balancer_is_right() {
    killed_at_each_request(Style::Shared).await;
}

async fn killed_at_each_request(style: Style) {
    let relayed = Relayed::new(style).await;
    let world = &relayed.world;
    join(world, &["a", "b"]).await;
    world.cloud.set_faults(json!({"operations": {"takesMs": SLOW}})).await;
    let mut run = relayed.start().await;
    create(world, "neighbour", json!({})).await;
    settles(world).await;
    let before = get(world, "neighbour").await.unwrap();
    // Counted apart: how often the cloud is asked whether it is done is a matter of time, what is written is not. Where an
    // object is shared, the next process does the same whether its predecessor died at a read or at the write before.
    let counted: &[_] = match style {
        Style::PerService => &[Counted::Reads, Counted::Writes],
        Style::Shared => &[Counted::Writes],
    };
    let mut cuts = Vec::new();
    for of in counted {
        for nth in 1.. {
            let made = async { drop(create(world, "x", json!({})).await) };
            let made = relayed.killed_at((nth, *of), &mut run, made).await;
            let removed = relayed.killed_at((nth, *of), &mut run, delete(world, "x")).await;
            if made.is_none() && removed.is_none() {
                break;
            }
            cuts.extend(made.into_iter().chain(removed));
        }
    }
    println!("{style:?}: killed at {cuts:#?}");
    let at = |start: &str| cuts.iter().filter(|cut| cut.starts_with(start)).count();
    // The finalizer, the status, and both gone.
    assert!(at("PATCH /api/v1/namespaces/default/services/x/status") >= 3, "{cuts:#?}");
    match style {
        Style::PerService => {
            assert!(at("PUT /v1/load-balancers/") > 0 && at("DELETE /v1/load-balancers/") > 0, "{cuts:#?}");
            assert!(at("GET /v1/load-balancers") > 0, "{cuts:#?}");
        }
        Style::Shared => assert!(
            at("PUT /v1/addresses/") > 0
                && at("DELETE /v1/addresses/") > 0
                && at("PUT /v1/shared-load-balancers/") > 1,
            "{cuts:#?}"
        ),
    }
    stays(world, style).await;
    assert_eq!(get(world, "neighbour").await.unwrap(), before, "the neighbour was written to");
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn lost_answers_and_outages_of_the_api_server_lose_no_load_balancer() {
    let relayed = Relayed::new(Style::PerService).await;
    let world = &relayed.world;
    join(world, &["a"]).await;
    let run = relayed.start().await;
    // Of the finalizer, of the status, and of their removal.
    for count in 1..=2 {
        let name = format!("lost-{count}");
        relayed.answers.lose(&name, count);
        create(world, &name, json!({})).await;
        settles(world).await;
        relayed.answers.all_lost().await;
        relayed.answers.lose(&name, count);
        delete(world, &name).await;
        settles(world).await;
        // The first process has finished; the second repeats the call because it can't know.
        relayed.answers.all_lost().await;
    }
    create(world, "removed", json!({})).await;
    settles(world).await;
    assert!(run.stop().await.success());

    // It goes away in the middle of operations of the cloud, and comes back when these have long ended. They are so long
    // that they aren't over before it goes.
    let network = Proxy::to(world.api_server_port()).await;
    let server = format!("https://127.0.0.1:{}", network.port);
    let run = world.start_at(&document(world, Style::PerService), &server).await;
    run.ready().await;
    world.cloud.set_faults(json!({"operations": {"takesMs": AWAY.as_millis() / 2}})).await;
    create(world, "made", json!({})).await;
    delete(world, "removed").await;
    for name in ["made", "removed"] {
        world.event(name, "LoadBalancerPending").await;
    }
    network.becomes(Network::Broken);
    let gone = Instant::now();
    world.cloud.set_faults(json!({"operations": {"takesMs": SLOW}})).await;
    run.unready("the watch of services is interrupted").await;
    let writes = [r#"result="unavailable""#];
    run.reaches_of("pileus_service_writes_total", &writes, 4).await;
    delete(world, "made").await;
    create(world, "new", json!({})).await;
    time::sleep_until(gone + AWAY).await;
    assert!(run.is_alive().await);
    network.becomes(Network::Whole);
    settles(world).await;
    world.cloud.set_faults(json!({})).await;
    stays(world, Style::PerService).await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn users_may_change_their_minds_with_a_load_balancer_per_service() {
    second_thoughts(Style::PerService).await;
}

#[tokio::test]
async fn users_may_change_their_minds_with_a_shared_load_balancer() {
    second_thoughts(Style::Shared).await;
}

async fn second_thoughts(style: Style) {
    let world = world().await;
    join(&world, &["a", "b"]).await;
    world.cloud.set_faults(json!({"operations": {"takesMs": SLOW * 3}})).await;
    let run = start(&world, style).await;
    let kept = create(&world, "kept", json!({})).await;
    settles(&world).await;

    // Deleted, changed and of another type while its load balancer is being made.
    for name in ["deleted", "changed", "flipped", "torn"] {
        create(&world, name, json!({})).await;
        world.event(name, "LoadBalancerPending").await;
    }
    delete(&world, "deleted").await;
    change(&world, "changed", json!({"spec": {"ports": [{"port": 443}]}})).await;
    change(&world, "flipped", json!({"spec": {"type": "ClusterIP"}})).await;
    // Gone past its finalizer, and another one of its name at once.
    tear_out(&world, "torn").await;
    let anew = create(&world, "torn", json!({"ports": [{"port": 8080}]})).await;
    settles(&world).await;
    assert_eq!(get(&world, "torn").await.unwrap().uid(), anew.uid());

    // And back again while it is being removed.
    change(&world, "changed", json!({"spec": {"type": "ClusterIP"}})).await;
    world.event("changed", "DeletingLoadBalancer").await;
    change(&world, "changed", json!({"spec": {"type": "LoadBalancer"}})).await;
    settles(&world).await;

    // Others take the finalizer or the address away.
    let finalizers = json!({"metadata": {"finalizers": ["example.com/other"]}});
    change(&world, "kept", finalizers).await;
    let marked = until(&world, "kept", has_finalizer).await;
    assert_eq!(marked.finalizers(), ["example.com/other", FINALIZER], "what others keep in it stays");
    wipe_status(&world, "kept").await;
    let again = until(&world, "kept", is_served).await;
    assert_eq!(again.uid(), kept.uid());
    settles(&world).await;
    // With the last finalizer of a Service that is being deleted goes the Service.
    change(&world, "kept", json!({"metadata": {"finalizers": null}})).await;
    until(&world, "kept", has_finalizer).await;
    tear_out(&world, "kept").await;
    settles(&world).await;
    world.cloud.set_faults(json!({})).await;
    stays(&world, style).await;
    assert!(run.stop().await.success());
}

/// What a tool does that applies a status which it has kept somewhere.
async fn wipe_status(world: &World, name: &str) {
    let patch = kube::api::Patch::Merge(json!({"status": {"loadBalancer": null}}));
    let api = crate::service::api(world);
    let wiped = api.patch_status(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
    assert!(ingress(&wiped).is_empty(), "{wiped:?}");
}

#[tokio::test]
async fn the_next_leader_completes_what_a_dead_or_stopped_one_began() {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = QUICK.to_vec();
    join(&world, &["a"]).await;
    world.cloud.set_faults(json!({"operations": {"takesMs": SLOW}})).await;
    let mut leads = start(&world, Style::Shared).await;
    leads.leads().await;
    for signal in [Signal::KILL, Signal::TERM] {
        let next = start(&world, Style::Shared).await;
        let names: Vec<_> = (0..6).map(|number| format!("{}-{number}", signal.as_raw())).collect();
        for name in &names {
            create(&world, name, json!({})).await;
        }
        until(&world, &names[0], is_served).await;
        // Some are made, and some are not yet; all of them go or change.
        for name in &names[..3] {
            delete(&world, name).await;
        }
        for name in &names[3..] {
            change(&world, name, json!({"spec": {"ports": [{"port": 81}]}})).await;
        }
        leads.signal(signal);
        leads.ended().await;
        next.leads().await;
        settles(&world).await;
        leads = next;
    }
    world.wrote_one_at_a_time();
    world.cloud.set_faults(json!({})).await;
    stays(&world, Style::Shared).await;
    assert!(leads.stop().await.success());
}

async fn start(world: &World, style: Style) -> Run {
    let run = world.start_with(&document(world, style)).await;
    run.ready().await;
    run
}
