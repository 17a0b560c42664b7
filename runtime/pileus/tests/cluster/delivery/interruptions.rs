//! SIGKILL and a change of leader at each state of a swap. The next leader goes on from the status: the swap ends as it would
//! have, no call fails, and no node notices.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pileus_dev::kubernetes::User;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time;

use super::{Delivery, is_rejected};
use crate::SOON;
use crate::leader::QUICK;
use crate::relay::{Answers, Relay, state};
use crate::world::Run;

/// How a leader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    LeaseTaken,
}

/// What the operator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// A component that no replica has.
    Component,
    /// Another configuration.
    Settings,
    /// As before, while the release before is still being observed.
    SettingsEarly,
    /// A release that answers otherwise.
    Different,
    /// A release whose configuration is invalid.
    Invalid,
}

/// The states at which the leader ends, and what brings the provider there. The calls of the release before are drained in the
/// first of the states after the switch.
const ROWS: [(&str, Asked); 10] = [
    ("fetching", Asked::Component),
    ("verifying", Asked::Component),
    ("compiling", Asked::Component),
    ("checking", Asked::Component),
    ("dryRun", Asked::Settings),
    ("canary", Asked::Settings),
    ("observing", Asked::Settings),
    ("waiting", Asked::SettingsEarly),
    ("held", Asked::Different),
    ("rejected", Asked::Invalid),
];

#[tokio::test]
async fn after_a_kill_at_each_state_of_a_swap_the_next_leader_ends_it() {
    interrupted_at_each_state(End::Killed).await;
}

#[tokio::test]
async fn after_a_change_of_leader_at_each_state_of_a_swap_the_next_one_ends_it() {
    interrupted_at_each_state(End::LeaseTaken).await;
}

/// A provider with two replicas, whose requests to the API server go through a relay.
struct Replicated {
    delivery: Delivery,
    answers: Answers,
    relay: Relay,
    leader: Run,
    standby: Run,
    /// How many replicas have been started.
    started: usize,
    /// The image and the soft deadline of lookups of the present document.
    image: String,
    seconds: usize,
}

async fn interrupted_at_each_state(end: End) {
    let mut replicated = Replicated::new().await;
    let nodes = replicated.delivery.world.nodes().await;
    for (row, (at, asked)) in ROWS.into_iter().enumerate() {
        println!("{end:?} while {at}");
        let (spec, ends_active) = replicated.next_spec(row, asked).await;
        replicated.interrupt(at, spec, end).await;
        replicated.ends(ends_active).await;
        let log = replicated.failed_lookups(&replicated.leader).await;
        assert!(log.is_empty(), "{end:?} while {at}: {log:?}");
        assert_eq!(replicated.delivery.world.nodes().await, nodes, "{end:?} while {at}: no node notices");
    }
    let Replicated { leader, standby, .. } = replicated;
    assert!(leader.is_well().await && standby.is_well().await);
}

impl Replicated {
    async fn new() -> Self {
        let mut delivery = Delivery::new().await;
        delivery.world.flags.extend(QUICK);
        let digest = delivery.release("first", "stable").await;
        let answers = Answers::default();
        let client = delivery.world.kubernetes.client(User::Pileus).await.unwrap();
        let relay = Relay::to_api_server(client, &answers).await;
        let image = delivery.pinned(&digest);
        delivery.apply(spec(&delivery, &image, 5)).await;
        let server = format!("http://127.0.0.1:{}", relay.port);
        let leader = delivery.world.start_with_resources_at("store-0", &server).await;
        leader.leads().await;
        delivery.active(&digest).await;
        delivery.initialised(&["a", "b"]).await;
        delivery.register_silent().await;
        let standby = delivery.world.start_with_resources_at("store-1", &server).await;
        standby.logged(&["release serves calls"]).await;
        Self { delivery, answers, relay, leader, standby, started: 2, image, seconds: 5 }
    }

    /// The document that leads to the state of a row, and whether its release becomes active at the end.
    async fn next_spec(&mut self, row: usize, asked: Asked) -> (Value, bool) {
        if asked != Asked::SettingsEarly {
            self.delivery.until("settled", |status| status["observing"].is_null()).await;
        }
        if asked == Asked::Component {
            // The compiled code of all tests is shared and outlasts them, so no former run may have had this component.
            let folder = self.delivery.folder.path().file_name().unwrap().to_str().unwrap();
            let digest = self.delivery.release(&format!("build-{row}{folder}"), "stable").await;
            self.image = self.delivery.pinned(&digest);
        } else {
            self.seconds += 1;
        }
        let mut next = spec(&self.delivery, &self.image, self.seconds);
        match asked {
            Asked::Different => next["configuration"]["breaks"] = json!("forgets-by-id"),
            Asked::Invalid => next["configuration"]["breaks"] = json!("everything"),
            // Long enough that the next one has to wait.
            Asked::Settings if row == 6 => next["swap"]["observe"] = json!("4s"),
            Asked::SettingsEarly => next["swap"]["observe"] = json!("4s"),
            Asked::Component | Asked::Settings => {}
        }
        (next, !matches!(asked, Asked::Different | Asked::Invalid))
    }

    /// Lets the leader end when the status has this state. The standby takes over, and a new one stands by.
    async fn interrupt(&mut self, at: &'static str, spec: Value, end: End) {
        let reached = self.answers.halt_at(at);
        self.delivery.apply(spec).await;
        time::timeout(SOON, reached).await.unwrap_or_else(|_| panic!("no swap reaches {at}")).unwrap();
        let failed = self.failed_lookups(&self.leader).await;
        assert!(failed.is_empty(), "{failed:?}");
        let status = self.delivery.api().get(super::NAME).await.unwrap().data["status"].clone();
        assert_eq!(state(&status), at, "the relay lets nothing through");
        let server = format!("http://127.0.0.1:{}", self.relay.port);
        let store = format!("store-{}", self.started % 2);
        if end == End::Killed {
            self.leader.signal(Signal::KILL);
        }
        let stopped = self.answers.stopped();
        self.release_lease().await;
        // Before the next replica begins, which would take the Lease if it came first.
        self.standby.leads().await;
        // The store of the former leader goes on with the next replica, as on the node of a Pod.
        let next = self.delivery.world.start_with_resources_at(&store, &server).await;
        let former = std::mem::replace(&mut self.leader, next);
        assert!(!former.ended().await.success());
        // A new leader whose first write is never answered tries again.
        if (at, end) == ("verifying", End::LeaseTaken) {
            self.answers.stop_more_than(stopped).await;
        }
        self.answers.go_on();
        std::mem::swap(&mut self.leader, &mut self.standby);
        self.started += 1;
    }

    /// Makes the Lease one that its holder has released, so that the standby need not wait until it expires.
    async fn release_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.delivery.world.client.clone(), "kube-system");
        let released = Patch::Merge(json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}));
        leases.patch("cloud-controller-manager", &PatchParams::default(), &released).await.unwrap();
    }

    /// Waits for the end of the swap as the document leads to it, on both replicas.
    async fn ends(&mut self, becomes_active: bool) {
        let delivery = &self.delivery;
        let generation = delivery.api().get(super::NAME).await.unwrap().metadata.generation.unwrap();
        let is_over = |status: &Value| {
            let is_observed = status["observedGeneration"] == generation;
            is_observed
                && if becomes_active {
                    status["candidate"].is_null()
                } else {
                    is_held(status) || is_rejected(status)
                }
        };
        let status = delivery.until("the swap ends", is_over).await;
        let is_active = status["active"]["release"]["component"] == self.image.rsplit_once('@').unwrap().1;
        assert!(is_active, "{status:#}");
        if !becomes_active {
            // The document goes back to what is active.
            self.seconds -= 1;
            delivery.apply(spec(delivery, &self.image, self.seconds)).await;
            delivery.until("dropped", |status| state(status) == "settled").await;
        }
        self.standby.logged(&["release serves calls"]).await;
    }

    /// The series of lookups that did not succeed on a replica.
    async fn failed_lookups(&self, run: &Run) -> Vec<String> {
        let page = run.page("/metrics").await.body;
        let is_failed = |line: &&str| {
            line.starts_with("pileus_provider_calls_total{")
                && line.contains(r#"function="lookup""#)
                && !line.contains(r#"result="ok""#)
        };
        page.lines().filter(is_failed).map(str::to_owned).collect()
    }
}

fn is_held(status: &Value) -> bool {
    status["candidate"]["phase"]["name"] == "held"
}

/// The document with this image and soft deadline of lookups. Its swaps are short.
fn spec(delivery: &Delivery, image: &str, seconds: usize) -> Value {
    let mut spec = delivery.spec("nothing");
    spec["source"] = json!({"image": image});
    spec["swap"] = json!({"canary": {"share": 50, "duration": "1s"}, "observe": "1s"});
    spec["deadlines"] = json!({"lookup": {"soft": format!("{seconds}s")}});
    spec
}
