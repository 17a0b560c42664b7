//! Of several replicas one leads. If it stops, dies, sleeps or loses its connection, another takes over, and two never
//! write at the same time. The API server's audit log, which has the replicas' identities, proves that.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::node;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{self, Instant};

use crate::SOON;
use crate::history::History;
use crate::node::is_half_written;
use crate::proxy::{Network, Proxy};
use crate::world::{Run, World};

/// More than are written at the same time.
const MANY: usize = 60;

/// Enough Nodes that the leader has to write for a while.
const FEW: usize = 5;

/// Between two Nodes that join: a few are being written at any moment.
const PACE: Duration = Duration::from_millis(20);

/// For tests that wait for a Lease to expire: short, and long enough that a leader isn't lost to a busy machine, where a
/// renewal may take seconds.
pub(crate) const QUICK: [&str; 3] = [
    "--leader-elect-lease-duration=12s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=500ms",
];
/// The first two of [`QUICK`].
const LEASE: Duration = Duration::from_secs(12);
const RENEWAL: Duration = Duration::from_secs(10);

async fn world(flags: &[&'static str]) -> World {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = flags.to_vec();
    world
}

/// Starts a replica that leads, because it is the only one.
async fn leader(world: &World) -> (Run, String) {
    let run = world.start().await;
    run.leads().await;
    let identity = run.identity().await;
    (run, identity)
}

/// Starts one that stands by.
async fn standby(world: &World, leader: &str) -> (Run, String) {
    let run = world.start().await;
    run.stands_by(leader).await;
    let identity = run.identity().await;
    (run, identity)
}

/// Lets Nodes join, one after the other, while something happens, and some after it, for the replica that leads then;
/// and waits until all are initialised.
async fn while_nodes_join<T>(world: &World, history: &mut History, happens: impl Future<Output = T>) -> T {
    let names = world.cloud.create_many(MANY).await;
    let join = async {
        for name in &names {
            world.register([node(name)]).await;
            time::sleep(PACE).await;
        }
    };
    let (outcome, ()) = tokio::join!(happens, join);
    let late = world.cloud.create_many(FEW).await;
    world.register(late.iter().map(|name| node(name))).await;
    history.initialised(&[names, late].concat()).await;
    outcome
}

/// That the replicas wrote to Nodes one after the other, in this order, and none after another had begun.
fn wrote_in_turn(world: &World, expected: &[&str]) {
    let names: BTreeMap<&str, usize> =
        expected.iter().enumerate().map(|(turn, name)| (*name, turn)).collect();
    let mut turns = Vec::new();
    let writes = world.writes();
    for write in &writes {
        let agent = write["userAgent"].as_str().unwrap();
        let turn = names.iter().find(|(name, _)| agent.contains(**name));
        turns.push(*turn.unwrap_or_else(|| panic!("{agent} wrote")).1);
    }
    assert!(turns.is_sorted(), "two wrote at the same time: {turns:?} in {writes:#?}");
    turns.dedup();
    assert_eq!(
        turns,
        (0..expected.len()).collect::<Vec<_>>(),
        "each replica has written, one after the other"
    );
}

async fn lease(world: &World) -> Lease {
    leases(world).get("cloud-controller-manager").await.unwrap()
}

/// Waits until it is so.
async fn lease_until(world: &World, is_so: impl Fn(&Lease) -> bool) -> Lease {
    let search = async {
        loop {
            match leases(world).get_opt("cloud-controller-manager").await.unwrap() {
                Some(lease) if is_so(&lease) => return lease,
                _ => time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    time::timeout(SOON, search).await.unwrap()
}

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.client.clone(), "kube-system")
}

#[tokio::test]
async fn after_sigterm_a_leader_hands_over_within_three_seconds() {
    let world = world(&[]).await;
    let mut history = world.history().await;
    let (first, a) = leader(&world).await;
    let spec = lease(&world).await.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(a.as_str()));
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(0)));
    let ((second, b), (third, c)) = tokio::join!(standby(&world, &a), standby(&world, &a));

    let took = while_nodes_join(&world, &mut history, async {
        somebody_works(&world).await;
        let asked = Instant::now();
        first.signal(Signal::TERM);
        tokio::select! {
            () = second.leads() => {}
            () = third.leads() => {}
        }
        let took = asked.elapsed();
        first.logged(&["lease released"]).await;
        assert_eq!(first.ended().await.code(), Some(0));
        took
    });
    let took = took.await;
    let spec = lease(&world).await.spec.unwrap();
    let next = spec.holder_identity.unwrap();
    assert!((next == b || next == c) && spec.lease_transitions == Some(1), "{next}");
    wrote_in_turn(&world, &[&a, &next]);

    let notes =
        [format!("{a} became leader"), format!("{a} stopped leading"), format!("{next} became leader")];
    for note in &notes {
        world.lease_event(note).await;
    }
    let (standing_by, leading) = if next == b { (third, second) } else { (second, third) };
    standing_by.stands_by(&next).await;
    assert_eq!(standing_by.metric("leader_election_master_status", &["cloud-controller-manager"]).await, 0);
    assert_eq!(leading.metric("leader_election_master_status", &["cloud-controller-manager"]).await, 1);
    assert!(standing_by.stop().await.success());
    assert!(leading.is_well().await, "one that stood by leaves nothing behind");
    handed_over_within_three_seconds(&world, took, leading, &next).await;
}

/// That of some hand-overs, of which the first took so long, the quickest took less than 3 s: a busy machine may hold up
/// any of them.
async fn handed_over_within_three_seconds(world: &World, first: Duration, leading: Run, name: &str) {
    let (mut took, mut leading, mut name) = (vec![first], leading, name.to_owned());
    while took.iter().all(|took| *took >= Duration::from_secs(3)) {
        assert!(took.len() < 5, "{took:?}");
        let (next, identity) = standby(world, &name).await;
        let asked = Instant::now();
        leading.signal(Signal::TERM);
        next.leads().await;
        took.push(asked.elapsed());
        assert_eq!(leading.ended().await.code(), Some(0));
        (leading, name) = (next, identity);
    }
    println!("handed over in {took:?}");
    assert!(leading.stop().await.success());
}

/// Waits until a replica leads.
async fn somebody_works(world: &World) {
    world.history().await.until(|states| states.iter().any(is_half_written)).await;
}

#[tokio::test]
async fn another_replica_leads_after_the_lease_of_a_dead_leader_expires() {
    let world = world(&QUICK).await;
    let mut history = world.history().await;
    let (first, a) = leader(&world).await;
    let (second, b) = standby(&world, &a).await;
    let took = while_nodes_join(&world, &mut history, async {
        somebody_works(&world).await;
        first.kill();
        let renewed = lease(&world).await.spec.unwrap().renew_time.unwrap().0;
        second.leads().await;
        lease(&world).await.spec.unwrap().acquire_time.unwrap().0.duration_since(renewed)
    });
    let took = Duration::try_from(took.await).unwrap();
    println!("replaced {took:?} after the last renewal");
    assert!(took > LEASE && took < 2 * LEASE, "{took:?}");
    wrote_in_turn(&world, &[&a, &b]);
    assert!(second.stop().await.success());
}

#[tokio::test]
async fn a_leader_that_was_paused_past_its_lease_writes_nothing_afterwards() {
    let world = world(&QUICK).await;
    let mut history = world.history().await;
    let (first, a) = leader(&world).await;
    let (second, b) = standby(&world, &a).await;
    let early = world.cloud.create_many(5).await;
    world.register(early.iter().map(|name| node(name))).await;
    history.initialised(&early).await;
    // It is stopped while the cloud thinks, and not in the middle of a write, which would be its own also later. When it
    // goes on, the answer is there, and many writes follow from it.
    let names = world.cloud.create_many(MANY).await;
    world.cloud.set_faults(json!({"latency": {"fixedMs": 5_000, "kinds": ["list"]}})).await;
    world.register(names.iter().map(|name| node(name))).await;
    world.cloud.await_request().await;
    first.signal(Signal::STOP);
    world.cloud.set_faults(json!({})).await;
    second.leads().await;
    history.initialised(&names).await;
    // More work for a replica that wakes up and still believes to lead.
    let new = world.cloud.create_many(MANY).await;
    world.register(new.iter().map(|name| node(name))).await;
    first.signal(Signal::CONT);
    first.logged(&["ERROR", "lease lost; exiting"]).await;
    assert_eq!(first.ended().await.code(), Some(1));
    history.initialised(&new).await;
    wrote_in_turn(&world, &[&a, &b]);
    assert!(second.stop().await.success());
}

#[tokio::test]
async fn a_leader_without_connection_stops_before_another_begins() {
    let world = world(&QUICK).await;
    let mut history = world.history().await;
    let (proxy, other) = tokio::join!(Proxy::to(world.api_server_port()), Proxy::to(world.api_server_port()));
    let first = world.start_through(&proxy).await;
    first.leads().await;
    let a = first.identity().await;
    let second = world.start_through(&other).await;
    second.stands_by(&a).await;
    let b = second.identity().await;
    other.becomes(Network::Broken);
    second.unready("[-]leader-election failed: can't read or write the lease").await;
    other.becomes(Network::Whole);
    second.stands_by(&a).await;
    while_nodes_join(&world, &mut history, async {
        somebody_works(&world).await;
        proxy.becomes(Network::Stalled);
        assert_eq!(first.ended().await.code(), Some(1));
        // The network stays as it is: a write that it has swallowed may come out of it whenever it heals, and is the old
        // leader's.
        second.leads().await;
    })
    .await;
    let (third, c) = standby(&world, &b).await;
    while_nodes_join(&world, &mut history, async {
        other.becomes(Network::Broken);
        assert_eq!(second.ended().await.code(), Some(1));
        third.leads().await;
    })
    .await;
    wrote_in_turn(&world, &[&a, &b, &c]);
    assert!(third.stop().await.success());
}

#[tokio::test]
async fn a_lease_that_is_edited_by_hand_never_makes_two_leaders() {
    let world = world(&QUICK).await;
    let mut history = world.history().await;
    let (first, a) = leader(&world).await;
    let (second, b) = standby(&world, &a).await;
    let leases = leases(&world);
    let name = "cloud-controller-manager";
    while_nodes_join(&world, &mut history, async {
        let before = lease(&world).await.metadata.uid;
        leases.delete(name, &DeleteParams::default()).await.unwrap();
        let remade = lease_until(&world, |lease| lease.metadata.uid != before).await;
        assert_eq!(remade.spec.unwrap().holder_identity, Some(a.clone()), "its leader made it anew");
        second.stands_by(&a).await;

        let absurd = json!({"spec": {"leaseDurationSeconds": 1}, "metadata": {"labels": {"kept": "yes"}}});
        leases.patch(name, &PatchParams::default(), &Patch::Merge(absurd)).await.unwrap();
        let is_put_right = |lease: &Lease| lease.spec.as_ref().unwrap().lease_duration_seconds == Some(12);
        let edited = lease_until(&world, is_put_right).await;
        assert_eq!(edited.metadata.labels.unwrap()["kept"], "yes", "what others keep in it stays");
        assert!(first.is_well().await);
    })
    .await;
    while_nodes_join(&world, &mut history, async {
        let holder = json!({"spec": {"holderIdentity": "another"}});
        let begun = Instant::now();
        leases.patch(name, &PatchParams::default(), &Patch::Merge(holder)).await.unwrap();
        let asked = Instant::now();
        first.logged(&["ERROR", "lease lost; exiting", "another holds it"]).await;
        assert_eq!(first.ended().await.code(), Some(1));
        assert!(asked.elapsed() < RENEWAL, "it watches its Lease: {:?}", asked.elapsed());
        second.leads().await;
        assert!(begun.elapsed() > LEASE, "the stranger's time was respected");
    })
    .await;
    wrote_in_turn(&world, &[&a, &b]);
    assert!(second.stop().await.success());
}

#[tokio::test]
async fn without_leader_election_no_lease_is_touched() {
    let world = world(&["--leader-elect=false"]).await;
    let mut history = world.history().await;
    let run = world.start().await;
    while_nodes_join(&world, &mut history, async {}).await;
    assert!(leases(&world).get_opt("cloud-controller-manager").await.unwrap().is_none());
    assert!(run.stop().await.success());
}
