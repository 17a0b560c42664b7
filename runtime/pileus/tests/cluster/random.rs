//! Random histories of a cluster and its cloud. Two replicas are killed, stopped and paused, and the cloud fails in
//! every possible way. No Node is ever deleted while its instance exists, and no load balancer while its Service needs
//! it. In the end cluster and cloud agree.
//!
//! `make test` runs a few hundred steps of two histories, one for each layout of load balancers in the cloud.
//! `PILEUS_RANDOM_SECONDS` runs longer ones, and `PILEUS_RANDOM_SEED` repeats one; a failing history prints its seed.

mod services;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt};
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::node;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{self, Instant};

use crate::node::{addresses, is_uninitialised, set_ready, taints};
use crate::service::{Style, document, stays};
use crate::world::{Run, World, release};
use services::Known;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Short times, so that a history of two minutes has many leaders and many sweeps.
const QUICK: [&str; 8] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
    "--node-monitor-period=500ms",
    "--node-status-update-frequency=2s",
    "--cluster-cidr=10.244.0.0/16",
    "--route-reconciliation-period=5s",
    "--load-balancer-audit-period=5s",
];

/// How long the history of `make test` lasts: longer than the minute that a Node must be old before it can be deleted.
const SHORT: Duration = Duration::from_secs(80);

/// Between two steps.
const PACE: Duration = Duration::from_millis(250);

/// How long the last faults take to be forgotten: the longest delay of anything that failed before.
const QUIET: Duration = Duration::from_mins(4);

/// The most machines at a time.
const MOST: usize = 40;

/// A generator that needs no crate (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % below as u64).unwrap()
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.roll(from.len())].clone())
    }
}

/// A machine that is there, as the history knows it.
#[derive(Debug, Clone)]
struct Machine {
    id: String,
    name: String,
    /// The UID of its Node.
    node: String,
    is_stopped: bool,
}

/// The UIDs of the Nodes that were deleted.
struct Deleted {
    nodes: watch::Receiver<Vec<String>>,
    task: JoinHandle<()>,
}

impl Deleted {
    async fn begin(world: &World) -> Self {
        let (write, nodes) = watch::channel(Vec::new());
        let (listed, mut is_listed) = watch::channel(false);
        let api = Api::<Node>::all(world.client.clone());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Delete(node)) => {
                        write.send_modify(|nodes| nodes.push(node.uid().unwrap()));
                    }
                    Ok(watcher::Event::InitDone) => drop(listed.send_replace(true)),
                    _ => {}
                }
            }
        });
        is_listed.wait_for(|listed| *listed).await.unwrap();
        Self { nodes, task }
    }
}

impl Drop for Deleted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The history so far.
struct Story {
    world: World,
    style: Style,
    dice: Dice,
    machines: Vec<Machine>,
    /// The names of machines that are gone.
    former: BTreeSet<String>,
    replicas: Vec<Run>,
    joined: usize,
    services: Vec<Known>,
    /// The UIDs of those that have a load balancer in the cloud.
    held: BTreeSet<String>,
    /// How many Services there were.
    made: usize,
    /// What the cloud fails at.
    faults: Value,
    /// The steps so far, to find the cause of a failure.
    told: Vec<String>,
}

impl Story {
    async fn step(&mut self) {
        self.replace_the_dead().await;
        match self.dice.roll(150) {
            100.. => self.service_step().await,
            0..=24 if self.machines.len() < MOST => self.join().await,
            0..=34 => self.leave().await,
            35..=44 => self.stop_or_start().await,
            45..=52 => self.change().await,
            53..=62 => self.meddle().await,
            63..=68 => self.waver().await,
            69..=86 => self.cloud_fails().await,
            87..=92 => self.cloud_recovers().await,
            93 => {
                self.tell("held nodes are released".to_owned());
                self.release().await;
            }
            94 => self.replace(|run| async { run.kill() }).await,
            95..=96 => self.replace(stopped).await,
            _ => self.pause().await,
        }
    }

    fn tell(&mut self, what: String) {
        self.told.push(what);
    }

    /// A machine, sometimes of a name that another one had, and its Node; sometimes the Node comes first.
    async fn join(&mut self) {
        let in_use: BTreeSet<_> = self.world.nodes().await.iter().map(ResourceExt::name_any).collect();
        let free: Vec<_> = self.former.difference(&in_use).cloned().collect();
        self.joined += 1;
        let again = self.dice.roll(3) == 0;
        let name = self.dice.pick(&free).filter(|_| again).unwrap_or_else(|| format!("n-{}", self.joined));
        self.tell(format!("{name} joins"));
        let (id, registered);
        let kubelet = node(&name).pod_cidrs(&self.range());
        if self.dice.roll(2) == 0 {
            registered = self.world.register([kubelet]).await;
            id = self.create(&name).await;
        } else {
            id = self.create(&name).await;
            registered = self.world.register([kubelet]).await;
        }
        let node = registered.first().and_then(ResourceExt::uid).unwrap();
        self.machines.push(Machine { id, name, node, is_stopped: false });
    }

    /// A range of Pod addresses for the Node that joins; some get none.
    fn range(&mut self) -> Vec<String> {
        // 4,096 of them: whose number comes again was deleted long ago.
        let number = self.joined % 4_096;
        let range = format!("10.244.{}.{}/28", number / 16, number % 16 * 16);
        if self.dice.roll(3) == 0 { Vec::new() } else { vec![range] }
    }

    async fn create(&self, name: &str) -> String {
        let labels = json!({"example.com/rack": format!("rack-of-{name}")});
        let machine = json!({"name": name, "labels": labels});
        self.undisturbed(self.world.cloud.create(machine)).await
    }

    /// What the history itself does at the cloud, past the faults.
    async fn undisturbed<T>(&self, act: impl Future<Output = T>) -> T {
        self.world.cloud.set_faults(json!({})).await;
        let done = act.await;
        self.world.cloud.set_faults(self.faults.clone()).await;
        done
    }

    /// From now on the cloud fails so.
    async fn fault(&mut self, faults: Value) {
        self.tell(format!("the cloud: {faults}"));
        self.world.cloud.set_faults(faults.clone()).await;
        self.faults = faults;
    }

    /// A machine goes, and its kubelet isn't heard of any more.
    async fn leave(&mut self) {
        let Some(machine) = self.dice.pick(&self.machines) else { return };
        self.tell(format!("{} ({}) leaves", machine.name, machine.id));
        self.machines.retain(|other| other.id != machine.id);
        self.former.insert(machine.name.clone());
        self.undisturbed(self.world.cloud.delete(&machine.id)).await;
        set_ready(&self.world.client, &machine.name, "Unknown").await;
    }

    async fn stop_or_start(&mut self) {
        let Some(chosen) = self.dice.pick(&self.machines) else { return };
        let Some(machine) = self.machines.iter_mut().find(|machine| machine.id == chosen.id) else { return };
        machine.is_stopped = !machine.is_stopped;
        let (id, name, is_stopped) = (machine.id.clone(), machine.name.clone(), machine.is_stopped);
        self.tell(format!("{name} {}", if is_stopped { "stops" } else { "starts" }));
        if is_stopped {
            self.undisturbed(self.world.cloud.stop(&id)).await;
        } else {
            self.undisturbed(self.world.cloud.start_machine(&id)).await;
        }
        set_ready(&self.world.client, &name, if is_stopped { "Unknown" } else { "True" }).await;
    }

    /// A machine gets other addresses and labels.
    async fn change(&mut self) {
        let Some(machine) = self.dice.pick(&self.machines) else { return };
        let n = self.dice.roll(200);
        self.tell(format!("{} changes to {n}", machine.name));
        // No two machines have one address.
        let own: u32 = machine.id.trim_start_matches("m-").parse().unwrap();
        let address = format!("10.{}.{}.{n}", 16 + own / 256, own % 256);
        let change = json!({
            "addresses": [{"kind": "internal-ip", "value": address}],
            "labels": {format!("example.com/l-{}", n % 3): format!("v-{n}")},
        });
        self.undisturbed(self.world.cloud.change(&machine.id, change)).await;
    }

    /// Another client writes to a Node.
    async fn meddle(&mut self) {
        let Some(machine) = self.dice.pick(&self.machines) else { return };
        self.tell(format!("{} is labelled by others", machine.name));
        let labels = json!({"others.example.com/x": self.dice.roll(9).to_string()});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let api = Api::<Node>::all(self.world.client.clone());
        api.patch(&machine.name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A kubelet isn't heard of for a while, though its machine runs.
    async fn waver(&mut self) {
        let running: Vec<_> = self.machines.iter().filter(|machine| !machine.is_stopped).cloned().collect();
        let Some(machine) = self.dice.pick(&running) else { return };
        let status = ["True", "False", "Unknown"][self.dice.roll(3)];
        self.tell(format!("{} says Ready={status}", machine.name));
        set_ready(&self.world.client, &machine.name, status).await;
    }

    async fn cloud_fails(&mut self) {
        let share = [0.2, 0.6, 1.0][self.dice.roll(3)];
        // Only what has been initialised has an ID by which it can be read directly.
        let nodes = self.world.nodes().await;
        let known: Vec<_> =
            nodes.iter().filter(|node| !is_uninitialised(node)).map(ResourceExt::name_any).collect();
        let hidden: Vec<_> = (0..6).filter_map(|_| self.dice.pick(&known)).collect();
        let faults = match self.dice.roll(6) {
            0 => json!({"throttle": {"share": share, "retryAfterSeconds": 1}}),
            1 => json!({"errors": {"share": share, "status": 503}}),
            2 => json!({"lost": {"share": share, "kinds": ["list", "get"]}}),
            3 => json!({"lag": {"listsMs": 20_000}}),
            4 => json!({"latency": {"fixedMs": 300, "jitterMs": 500}}),
            _ => json!({"hidden": {"lists": {"names": hidden}}}),
        };
        self.fault(faults_of_reads(faults)).await;
    }

    async fn cloud_recovers(&mut self) {
        self.fault(json!({})).await;
    }

    /// An operator releases the held Nodes.
    async fn release(&self) {
        assert_eq!(release(&self.world, &["--all"]).await.code, Some(0));
    }

    /// One of the replicas ends in some way, and another one is started.
    async fn replace<F: Future<Output = ()>>(&mut self, end: impl FnOnce(Run) -> F) {
        let chosen = self.dice.roll(self.replicas.len());
        self.tell(format!("replica {chosen} is replaced"));
        end(self.replicas.remove(chosen)).await;
        self.start().await;
    }

    async fn start(&mut self) {
        let document = document(&self.world, self.style);
        let next = self.world.start_with(&document).await;
        self.replicas.push(next);
    }

    /// What a kubelet does for those that have lost their lease.
    async fn replace_the_dead(&mut self) {
        let before = self.replicas.len();
        self.replicas.retain_mut(|run| !run.has_ended());
        for _ in self.replicas.len()..before {
            self.tell("a replica that had ended is replaced".to_owned());
            self.start().await;
        }
    }

    /// Replaces the replicas by one that can't lose its lease: on a busy machine leases this short are lost also without a fault.
    async fn go_on_without_leases(&mut self) {
        self.replicas.clear();
        self.world.flags.push("--leader-elect=false");
        self.start().await;
    }

    /// One of the replicas stands still for longer than a leader may.
    async fn pause(&mut self) {
        let chosen = self.dice.roll(self.replicas.len());
        self.tell(format!("replica {chosen} is paused"));
        self.replicas[chosen].signal(Signal::STOP);
        time::sleep(Duration::from_millis(2_500)).await;
        self.replicas[chosen].signal(Signal::CONT);
    }

    /// No Node was deleted whose machine is there.
    fn nothing_was_deleted_wrongly(&self, deleted: &[String]) {
        let wrong = self.machines.iter().find(|machine| deleted.contains(&machine.node));
        assert!(wrong.is_none(), "{wrong:?} is there, and its Node was deleted: {:#?}", self.told);
    }

    /// What of the cluster isn't as the cloud is.
    async fn differences(&self) -> Vec<String> {
        let nodes = self.world.nodes().await;
        let machines = self.world.cloud.machines().await;
        let mut differences = Vec::new();
        for node in &nodes {
            let name = node.name_any();
            match machines.iter().find(|machine| machine["name"] == name.as_str()) {
                // One that never had an instance is kept for ten minutes.
                None if is_uninitialised(node)
                    && node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_none()) => {}
                None => differences.push(format!("{name} is still there")),
                Some(machine) => differences.extend(difference(node, machine)),
            }
        }
        for machine in &machines {
            if !nodes.iter().any(|node| machine["name"] == node.name_any().as_str()) {
                differences.push(format!("{machine} has no node"));
            }
        }
        differences.extend(self.network_differences().await);
        differences
    }
}

async fn stopped(run: Run) {
    run.signal(Signal::TERM);
    run.ended().await;
}

/// Faults that meet what Pileus asks for and not what the test does.
fn faults_of_reads(mut faults: Value) -> Value {
    for fault in ["throttle", "errors", "latency"] {
        if let Some(fault) = faults.get_mut(fault) {
            fault["kinds"] = json!(["list", "get"]);
        }
    }
    faults
}

fn difference(node: &Node, machine: &Value) -> Option<String> {
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    let wanted = Some(format!("simulated://{}", machine["id"].as_str().unwrap()));
    let ips: BTreeSet<_> =
        addresses(node).into_iter().filter(|(kind, _)| kind.ends_with("IP")).map(|(_, ip)| ip).collect();
    let wanted_ips: BTreeSet<_> = machine["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|address| address["kind"].as_str().unwrap().ends_with("-ip"))
        .map(|address| address["value"].as_str().unwrap().to_owned())
        .collect();
    let labels: Vec<_> = machine["labels"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, value)| node.labels().get(*key).map(String::as_str) != value.as_str())
        .collect();
    let stale: Vec<_> = node
        .labels()
        .keys()
        .filter(|key| key.starts_with("example.com/") && machine["labels"].get(key.as_str()).is_none())
        .collect();
    let keys = taints(node);
    let is_tainted = keys.iter().any(|key| key == SHUTDOWN);
    let is_ready =
        node.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some_and(|conditions| {
            conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        });
    let is_stopped = machine["state"] == "stopped";
    let should_be_tainted = is_stopped && !is_ready;
    // One that was stopped and runs again keeps the taint until its kubelet is heard of.
    let is_taint_wrong = if is_ready || is_stopped { is_tainted != should_be_tainted } else { false };
    let name = node.name_any();
    if is_uninitialised(node) {
        Some(format!("{name} waits to be initialised"))
    } else if id != wanted {
        Some(format!("{name} has the ID {id:?}, not {wanted:?}"))
    } else if ips != wanted_ips {
        Some(format!("{name} has the addresses {ips:?}, not {wanted_ips:?}"))
    } else if !labels.is_empty() || !stale.is_empty() {
        Some(format!("{name} lacks the labels {labels:?} and has {stale:?} too many"))
    } else if is_taint_wrong {
        Some(format!("{name} is {} and has the taints {keys:?}", machine["state"]))
    } else {
        None
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value:?} is not a number")))
}

#[tokio::test]
async fn after_any_history_cluster_and_cloud_agree_with_an_object_for_each_service() {
    after_any_history_cluster_and_cloud_agree(Style::PerService).await;
}

#[tokio::test]
async fn after_any_history_cluster_and_cloud_agree_with_a_shared_object() {
    after_any_history_cluster_and_cloud_agree(Style::Shared).await;
}

async fn after_any_history_cluster_and_cloud_agree(style: Style) {
    let mut world = World::with(Options { audit: true }).await;
    world.flags = QUICK.to_vec();
    let seed = variable("PILEUS_RANDOM_SEED").unwrap_or(1);
    let lasts = variable("PILEUS_RANDOM_SECONDS").map_or(SHORT, Duration::from_secs);
    println!("{style:?}, seed {seed}, {lasts:?}");
    let deleted = Deleted::begin(&world).await;
    let mut story = Story {
        world,
        style,
        dice: Dice(seed),
        machines: Vec::new(),
        former: BTreeSet::new(),
        replicas: Vec::new(),
        joined: 0,
        services: Vec::new(),
        held: BTreeSet::new(),
        made: 0,
        faults: json!({}),
        told: vec![format!("{style:?}, seed {seed}")],
    };
    for _ in 0..2 {
        story.start().await;
    }
    for _ in 0..12 {
        story.join().await;
    }
    let (began, mut steps) = (Instant::now(), 0);
    while began.elapsed() < lasts {
        story.step().await;
        steps += 1;
        story.nothing_was_deleted_wrongly(&deleted.nodes.borrow());
        story.nothing_was_removed_wrongly().await;
        time::sleep(PACE).await;
    }

    story.cloud_recovers().await;
    let quiet = Instant::now();
    loop {
        // On a busy machine leases this short are lost also without a fault.
        story.replace_the_dead().await;
        // Many machines went within ten minutes, so Nodes may be held until an operator releases them.
        story.release().await;
        let differences = story.differences().await;
        story.nothing_was_deleted_wrongly(&deleted.nodes.borrow());
        story.nothing_was_removed_wrongly().await;
        if differences.is_empty() {
            break;
        }
        assert!(quiet.elapsed() < QUIET, "seed {seed}: {differences:#?} after {:#?}", story.told);
        time::sleep(Duration::from_millis(500)).await;
    }
    let quiet = quiet.elapsed();
    story.world.wrote_one_at_a_time();
    story.go_on_without_leases().await;
    stays(&story.world, style).await;
    println!(
        "{style:?}: {steps} steps, {} nodes joined, {} deleted, {} services made, quiet after {quiet:?}",
        story.joined,
        deleted.nodes.borrow().len(),
        story.made
    );
    assert!(!deleted.nodes.borrow().is_empty(), "nothing was deleted at all");
}
