//! The provider with the simulator of the resource manager, as a pure state machine: its requests are those that the API has, and
//! what it reports follows what happens to machines and route tables.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy lets tests panic, but not the functions that they share"
)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use azure_provider::Azure;
use azure_simulator::request::Request;
use azure_simulator::seed::{Arrangement, NewNodes, Seed};
use azure_simulator::state::{Behavior, Concurrent, MachineCommand, Metadata, Quotas, Settings};
use azure_simulator::{Response, State};
use pileus_guest::testing::{Exchange, Host, SentRequest};
use pileus_guest::{
    Address, AddressKind, Answer, Cluster, Error, ErrorKind, Instance, InstanceState, LocalAnswer,
    NodeReference, Purpose, Route, RouteAction, RouteChange, RouteProgress,
};
use serde_json::{Value, json};
use simulated_cloud::world::WriteFaults;

const SUBSCRIPTION: &str = "11111111-1111-1111-1111-111111111111";

const ARM: &str = "https://management.azure.com";

/// The simulator, with a clock that moves only when a test says so.
#[derive(Clone)]
struct Cloud {
    state: Rc<RefCell<State>>,
    now: Rc<Cell<Duration>>,
    faults: Rc<Cell<WriteFaults>>,
}

impl Cloud {
    fn new() -> Self {
        let state = State::new(Settings {
            started_at: jiff::Timestamp::UNIX_EPOCH,
            seed: 7,
            subscription: SUBSCRIPTION.to_owned(),
            tenant: "22222222-2222-2222-2222-222222222222".to_owned(),
            quotas: Quotas::unlimited(),
            directory: None,
        });
        let state = Rc::new(RefCell::new(state));
        Self { state, now: Rc::default(), faults: Rc::new(Cell::new(WriteFaults::default())) }
    }

    fn create(&self, nodes: NewNodes) -> Vec<String> {
        self.state.borrow_mut().sow(&Seed { nodes: vec![nodes], ..Seed::default() }).unwrap()
    }

    /// Machines of each kind, in one resource group.
    fn of_all_kinds() -> (Self, Vec<String>) {
        let cloud = Self::new();
        let mut names = Vec::new();
        for (arrangement, prefix) in [
            (Arrangement::Uniform, "pool"),
            (Arrangement::Flexible, "flex"),
            (Arrangement::AvailabilitySets, "avset"),
            (Arrangement::Standalone, "alone"),
        ] {
            let (prefix, sets) = (prefix.to_owned(), 1);
            names.extend(cloud.create(NewNodes {
                count: 3,
                arrangement,
                sets,
                prefix,
                dual_stack: true,
                public_addresses: true,
                ..NewNodes::default()
            }));
        }
        (cloud, names)
    }

    fn act(&self, machine: &str, action: &str) {
        let command =
            json!({"machines": [machine], "action": action, "zone": (action == "move").then_some("3")});
        let command: MachineCommand = serde_json::from_value(command).unwrap();
        self.state.borrow_mut().command(self.now.get(), &command).unwrap();
    }

    fn behave(&self, change: impl FnOnce(&mut Behavior)) {
        let mut state = self.state.borrow_mut();
        let mut behavior = state.behavior().clone();
        change(&mut behavior);
        state.set_behavior(behavior).unwrap();
    }

    fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }

    fn apply(&self, sent: &SentRequest) -> Response {
        let (origin, rest) = sent.url.split_at(sent.url[8..].find('/').unwrap() + 8);
        let mut request = Request::new(sent.method.parse().unwrap(), origin, rest);
        for (name, value) in &sent.headers {
            request.headers.insert::<http::HeaderName>(name.parse().unwrap(), value.parse().unwrap());
        }
        if rest.starts_with("/metadata/") {
            request.headers.insert("metadata", "true".parse().unwrap());
        }
        request.body.clone_from(&sent.body);
        self.state.borrow_mut().apply(self.now.get(), &request, self.faults.get())
    }

    fn host(&self) -> Host {
        let cloud = self.clone();
        let answer = move |sent: &SentRequest| {
            if sent.is_cache_only() {
                return Exchange::new("", "").status(504).header("pileus-gate", "not-cached");
            }
            let Response { status, headers, body } = cloud.apply(sent);
            let answer =
                headers.iter().fold(Exchange::new("", "").status(status), |answer, (name, value)| {
                    answer.header(name, value)
                });
            match body {
                Some(body) => answer.json(body),
                None => answer,
            }
        };
        let document = json!({
            "subscriptionId": SUBSCRIPTION, "resourceGroup": "Nodes", "location": "eastus", "routeTableName": "routes",
            "useInstanceMetadata": true,
        });
        Host::new().configuration(document).cloud(answer)
    }

    fn look_up(&self, purpose: Purpose, nodes: &[NodeReference]) -> Vec<Result<Answer, ErrorKind>> {
        let answers = self.host().lookup::<Azure>(purpose, nodes).unwrap();
        answers.into_iter().map(|answer| answer.map_err(|error: Error| error.kind)).collect()
    }

    /// The instances by their names, as a list has them.
    fn instances(&self, names: &[String]) -> Vec<Instance> {
        let nodes: Vec<_> = names.iter().map(NodeReference::new).collect();
        self.look_up(Purpose::Refresh, &nodes).into_iter().map(found).collect()
    }

    fn routes(&self) -> Vec<Value> {
        let url = format!(
            "{ARM}/subscriptions/{SUBSCRIPTION}/resourceGroups/nodes/providers/Microsoft.Network/routeTables/routes?api-version=2025-05-01"
        );
        let sent = SentRequest { method: "GET".to_owned(), url, headers: Vec::new(), body: Vec::new() };
        let body = self.apply(&sent).body.unwrap_or_default();
        body["properties"]["routes"].as_array().cloned().unwrap_or_default()
    }

    fn writes(&self) -> usize {
        self.state.borrow().journal(0).filter(|entry| entry.method == "PUT").count()
    }

    /// Makes changes as the host does: again and again with the notes, until all have an outcome.
    fn change(&self, cluster: &Cluster, actions: Vec<RouteAction>) -> Vec<Result<RouteProgress, ErrorKind>> {
        let mut changes: Vec<_> = actions
            .into_iter()
            .map(|action| RouteChange { action, resume: None, extra: Vec::new() })
            .collect();
        for _ in 0..50 {
            let outcomes = self.host().change_routes::<Azure>(cluster, &changes).unwrap();
            let is_over =
                |outcome: &Result<RouteProgress, Error>| !matches!(outcome, Ok(RouteProgress::InProgress(_)));
            if outcomes.iter().all(is_over) {
                return outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.kind)).collect();
            }
            for (change, outcome) in changes.iter_mut().zip(&outcomes) {
                change.resume = match outcome {
                    Ok(RouteProgress::InProgress(progress)) => progress.resume.clone(),
                    _ => None,
                };
            }
            self.pass(Duration::from_secs(1));
        }
        panic!("the changes never end: {:#?}", self.routes())
    }
}

fn found(answer: Result<Answer, ErrorKind>) -> Instance {
    let Ok(Answer::Found(instance)) = answer else { panic!("{answer:?}") };
    instance
}

fn known(instance: &Instance) -> NodeReference {
    NodeReference::new("node").with_provider_id(&instance.provider_id)
}

fn cluster(uid: &str) -> Cluster {
    Cluster { uid: Some(uid.to_owned()), ..Cluster::default() }
}

fn one() -> Cluster {
    cluster("0a1b2c3d-4e5f-6789-abcd-ef0123456789")
}

fn create(number: usize) -> RouteAction {
    let (node, destination) = (format!("node-{number}"), format!("10.244.{number}.0/24"));
    let addresses = vec![Address::new(AddressKind::InternalIp, format!("10.224.0.{number}"))];
    RouteAction::Create(Route { node, addresses, destination, ..Route::default() })
}

/// A list and a read of one machine say the same of each kind, by provider ID and by name.
#[test]
fn lists_and_single_reads_say_the_same_of_each_kind_of_machine() {
    let (cloud, names) = Cloud::of_all_kinds();
    let listed = cloud.instances(&names);
    for (name, instance) in names.iter().zip(&listed) {
        assert_eq!(instance.state, InstanceState::Running, "{name}");
        let kinds: Vec<_> = instance.addresses.iter().map(|address| address.kind).collect();
        let expected = [
            AddressKind::InternalIp,
            AddressKind::Hostname,
            AddressKind::ExternalIp,
            AddressKind::InternalIp,
        ];
        assert_eq!(kinds, expected, "{name}: {instance:?}");
        assert!(
            instance.zone.is_some() && instance.region.as_deref() == Some("eastus"),
            "{name}: {instance:?}"
        );
        let upper = NodeReference::new("node").with_provider_id(
            instance.provider_id.replace("/nodes/", "/NODES/").replace("resourceGroups", "resourcegroups"),
        );
        for node in [NodeReference::new(name), known(instance), upper] {
            let read = cloud.look_up(Purpose::Confirm, &[node]).remove(0);
            assert_eq!(found(read), *instance, "{name}");
        }
    }
}

/// Any page size, and both spellings of the page's parameter.
#[test]
fn lists_are_whole_at_any_page_size() {
    let (cloud, names) = Cloud::of_all_kinds();
    let whole = cloud.instances(&names);
    for page_size in [1, 2, 7] {
        for token in ["$skiptoken", "$skipToken", "%24skiptoken", "%24skipToken"] {
            cloud.behave(|behavior| {
                behavior.page_size = page_size;
                token.clone_into(&mut behavior.skip_token);
            });
            assert_eq!(cloud.instances(&names), whole, "{page_size} {token}");
        }
    }
}

/// Machines stop, vanish, are reimaged, fail, are made again and move; a list and a single read agree on each.
#[test]
fn what_happens_to_a_machine_is_reported_of_each_kind() {
    use InstanceState::{Running, Stopped, Unknown};
    for (action, expected) in [
        ("start", Some(Running)),
        ("stop", Some(Stopped)),
        ("deallocate", Some(Stopped)),
        ("hide", Some(Unknown)),
        ("reimage", None),
        ("fail", None),
        ("move", Some(Running)),
    ] {
        let (cloud, names) = Cloud::of_all_kinds();
        let before = cloud.instances(&names);
        for name in &names {
            cloud.act(name, action);
        }
        let nodes: Vec<_> = before.iter().map(known).collect();
        let listed = cloud.look_up(Purpose::Refresh, &nodes);
        assert_eq!(cloud.look_up(Purpose::Confirm, &nodes), listed, "{action}");
        for (name, answer) in names.iter().zip(listed) {
            let state = found(answer).state;
            match expected {
                Some(expected) => assert_eq!(state, expected, "{action} {name}"),
                None => assert_ne!(state, Stopped, "{action} {name}"),
            }
        }
    }
    for action in ["delete", "deleting"] {
        let (cloud, names) = Cloud::of_all_kinds();
        let before = cloud.instances(&names);
        for name in &names {
            cloud.act(name, action);
        }
        let by_id: Vec<_> = before.iter().map(known).collect();
        let by_name: Vec<_> = names.iter().map(NodeReference::new).collect();
        for nodes in [by_id, by_name] {
            for purpose in [Purpose::Refresh, Purpose::Confirm] {
                let answers = cloud.look_up(purpose, &nodes);
                assert!(
                    answers.iter().all(|answer| *answer == Ok(Answer::Absent)),
                    "{action} {purpose:?} {answers:?}"
                );
            }
        }
    }
}

/// Bug 6: a machine that was made again under its name is found at once.
#[test]
fn a_machine_that_is_made_again_is_found_at_once() {
    let (cloud, names) = Cloud::of_all_kinds();
    for name in &names {
        cloud.act(name, "recreate");
    }
    for instance in cloud.instances(&names) {
        let read = cloud.look_up(Purpose::Confirm, &[known(&instance)]).remove(0);
        assert_eq!(found(read), instance);
    }
}

/// The metadata service and the resource manager say the same about a machine, apart from the order of its addresses.
#[test]
fn the_metadata_service_and_the_resource_manager_agree() {
    let (cloud, names) = Cloud::of_all_kinds();
    for (name, instance) in names.iter().zip(cloud.instances(&names)) {
        for reverse_interfaces in [false, true] {
            let machine = Some(name.clone());
            let metadata = Metadata { machine, reverse_interfaces, ..Metadata::default() };
            cloud.state.borrow_mut().set_metadata(metadata);
            let mut node = NodeReference::new(name);
            node.addresses = instance.addresses.clone();
            let answer = cloud.host().describe_local_instance::<Azure>(&node);
            let Ok(LocalAnswer::Found(local)) = answer else { panic!("{name}: {answer:?}") };
            let facts = |it: &Instance| {
                (it.provider_id.clone(), it.instance_type.clone(), it.zone.clone(), it.region.clone())
            };
            assert_eq!(facts(&local), facts(&instance), "{name}");
            let sorted = |it: &Instance| {
                let mut all: Vec<_> =
                    it.addresses.iter().map(|it| (format!("{:?}", it.kind), it.value.clone())).collect();
                all.sort();
                all
            };
            assert_eq!(sorted(&local), sorted(&instance), "{name}");
        }
    }
}

/// Routes come and go by few writes, although operations take time and writes meet each kind of conflict.
#[test]
fn routes_are_made_and_deleted_although_writes_meet_operations() {
    for concurrent in [Concurrent::Conflict, Concurrent::Busy, Concurrent::Retryable, Concurrent::Supersede] {
        for ignore_if_none_match in [false, true] {
            let (cloud, _) = Cloud::of_all_kinds();
            cloud.faults.set(WriteFaults { takes: Duration::from_secs(3), ..WriteFaults::default() });
            cloud.behave(|behavior| {
                behavior.concurrent = concurrent;
                behavior.ignore_if_none_match = ignore_if_none_match;
            });
            let made = cloud.change(&one(), (1..=40).map(create).collect());
            assert!(
                made.iter().all(|outcome| *outcome == Ok(RouteProgress::Done)),
                "{concurrent:?} {made:?}"
            );
            assert_eq!((cloud.routes().len(), cloud.writes()), (40, 1), "{concurrent:?}");
            let listed = cloud.host().list_routes::<Azure>(&one()).unwrap();
            let goes = listed.into_iter().filter(|route| route.node.as_deref() < Some("node-2"));
            let deleted = cloud.change(&one(), goes.map(RouteAction::Delete).collect());
            assert!(
                deleted.iter().all(|outcome| *outcome == Ok(RouteProgress::Done)),
                "{concurrent:?} {deleted:?}"
            );
            assert_eq!((cloud.routes().len(), cloud.writes()), (29, 2), "{concurrent:?}");
        }
    }
}

/// Two clusters with the same ranges leave each other's routes alone, and what is right is never written.
#[test]
fn two_clusters_share_a_table() {
    let (cloud, _) = Cloud::of_all_kinds();
    let two = cluster("ffffffff-0000-1111-2222-333333333333");
    assert_eq!(cloud.change(&one(), vec![create(1)]), [Ok(RouteProgress::Done)]);
    assert_eq!(cloud.change(&two, vec![create(2)]), [Ok(RouteProgress::Done)]);
    assert_eq!(
        cloud.change(&two, vec![create(1)]),
        [Ok(RouteProgress::Done)],
        "the same Node's name and address"
    );
    let listed = cloud.host().list_routes::<Azure>(&two).unwrap();
    let marks: Vec<_> = listed.iter().map(|route| route.cluster_uid.clone().unwrap()).collect();
    assert_eq!(marks, ["0a1b2c3d4e5f6789abcdef01", "ffffffff0000111122223333"]);
    let writes = cloud.writes();
    assert_eq!(cloud.change(&one(), vec![create(1)]), [Ok(RouteProgress::Done)]);
    assert_eq!(cloud.writes(), writes);
}

/// An operation that fails is told with its reason, and the next call tries again.
#[test]
fn a_failed_operation_is_told_and_tried_again() {
    let (cloud, _) = Cloud::of_all_kinds();
    cloud.faults.set(WriteFaults { takes: Duration::from_secs(3), fails: true, ..WriteFaults::default() });
    assert_eq!(cloud.change(&one(), vec![create(1)]), [Err(ErrorKind::Unavailable(None))]);
    cloud.faults.set(WriteFaults { takes: Duration::from_secs(3), ..WriteFaults::default() });
    assert_eq!(cloud.change(&one(), vec![create(1)]), [Ok(RouteProgress::Done)]);
    assert_eq!(cloud.routes().len(), 1);
}
