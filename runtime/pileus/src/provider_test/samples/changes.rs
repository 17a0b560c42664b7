//! Observations of a provider that conforms, for load balancers and routes.

use std::time::Duration;

use pileus_cloud::{
    Error, ErrorKind, Ingress, IngressPoint, IpMode, ListedRoute, OwnedLoadBalancer, ProviderId,
};
use pileus_gate::Effect;

use super::super::changes::{
    CallFailure, CallRecord, ChangeOutcome, Changes, FaultRecord, Listing, Scenario, ServiceReport, Step,
};
use super::super::cloud::{CloudMode, RETRY_AFTER};
use super::super::facts::SeenRequest;

/// The call of a step.
pub(in super::super) fn call<T>(changes: &mut Option<Changes<T>>, step: Step) -> &mut CallRecord {
    let scenario = changes.as_mut().unwrap().scenario.as_mut().unwrap();
    scenario.calls.iter_mut().find(|(other, _)| *other == step).map(|(_, call)| call).unwrap()
}

/// The list after a step.
pub(in super::super) fn list<T>(changes: &mut Option<Changes<T>>, step: Step) -> &mut Vec<T> {
    let scenario = changes.as_mut().unwrap().scenario.as_mut().unwrap();
    let listed = scenario.lists.iter_mut().find(|(other, _)| *other == step);
    listed.and_then(|(_, listing)| listing.items.as_mut().ok()).unwrap()
}

/// What happened with a fault.
pub(in super::super) fn fault<T>(changes: &mut Option<Changes<T>>, mode: CloudMode) -> &mut FaultRecord<T> {
    changes.as_mut().unwrap().faults.iter_mut().find(|fault| fault.mode == mode).unwrap()
}

pub(in super::super) fn request(effect: Effect) -> SeenRequest {
    let line = "PUT https://cloud.example/things/x".to_owned();
    SeenRequest { line, effect, has_rule: true, about: Vec::new() }
}

pub(in super::super) fn ip(address: &str) -> ChangeOutcome {
    ChangeOutcome::Done(report(&[address]))
}

/// A report of these addresses.
pub(in super::super) fn report(addresses: &[&str]) -> ServiceReport {
    let ingress = |address: &&str| Ingress {
        point: IngressPoint::Ip((*address).to_owned()),
        ip_mode: Some(IpMode::Vip),
        ports: Vec::new(),
    };
    ServiceReport { status: Some(addresses.iter().map(ingress).collect()), ..ServiceReport::default() }
}

/// A call with these outcomes, and one request with this effect.
fn of<const N: usize>(outcomes: [ChangeOutcome; N], effect: Effect) -> CallRecord {
    let outcomes = Vec::from(outcomes);
    let requests = vec![request(effect)];
    let history = outcomes.iter().map(|outcome| vec![outcome.clone()]).collect();
    CallRecord { sent: "change([…])".to_owned(), outcomes: Ok(outcomes), history, requests }
}

fn listing<T>(listed: Vec<T>) -> Listing<T> {
    Listing { items: Ok(listed), requests: vec![request(Effect::Read)] }
}

fn fault_record<T>(mode: CloudMode) -> FaultRecord<T> {
    let kind = match mode {
        CloudMode::Busy => ErrorKind::Throttled(Some(Duration::from_secs(RETRY_AFTER))),
        CloudMode::Forbidden => ErrorKind::Denied,
        CloudMode::Page => ErrorKind::Broken,
        _ => ErrorKind::Unavailable(None),
    };
    let error = Error::new(kind, "the cloud is in trouble");
    let call =
        of([ChangeOutcome::Failed(error.clone()), ChangeOutcome::Failed(error.clone())], Effect::Write);
    let requests = vec![request(Effect::Read), request(Effect::Read)];
    let list = Some(Listing { items: Err(CallFailure::Error(error)), requests });
    FaultRecord { mode, call, list }
}

fn gone() -> ChangeOutcome {
    ChangeOutcome::Done(ServiceReport::default())
}

fn changes<T>(scenario: Scenario<T>) -> Changes<T> {
    let faults = CloudMode::FAULTS.into_iter().map(fault_record).collect();
    Changes { scenario: Ok(scenario), faults, deadlines: (Duration::from_secs(2), Duration::from_secs(12)) }
}

fn scenario<T>(keys: [&str; 2], calls: Vec<(Step, CallRecord)>, lists: Vec<(Step, Vec<T>)>) -> Scenario<T> {
    Scenario {
        calls,
        lists: lists.into_iter().map(|(step, listed)| (step, listing(listed))).collect(),
        ..Scenario::of(Some("cluster".to_owned()), keys.map(str::to_owned))
    }
}

pub(super) fn load_balancers() -> Changes<OwnedLoadBalancer> {
    let owned = |service: &str| OwnedLoadBalancer {
        cluster_uid: Some("cluster".to_owned()),
        service_uid: Some(service.to_owned()),
        service: None,
        name: format!("lb-{service}"),
        extra: Vec::new(),
    };
    let both = |effect| of([ip("198.51.100.1"), ip("198.51.100.2")], effect);
    let calls = vec![
        (Step::Before, of([gone()], Effect::Write)),
        (Step::Make, both(Effect::Write)),
        (Step::Again, both(Effect::Read)),
        (Step::Mixed, of([gone(), ip("198.51.100.2"), ip("198.51.100.1")], Effect::Read)),
        (Step::Unknown, of([ip("198.51.100.1")], Effect::Write)),
        (Step::AfterUnknown, of([ip("198.51.100.2")], Effect::Read)),
        (Step::Known, of([ip("198.51.100.1")], Effect::Write)),
        (Step::AfterKnown, of([ip("198.51.100.2")], Effect::Read)),
        (Step::Move, both(Effect::Write)),
        (Step::MoveAgain, both(Effect::Read)),
        (Step::Select, both(Effect::Read)),
        (Step::Delete, of([gone()], Effect::Write)),
        (Step::DeleteAgain, of([gone()], Effect::Write)),
        (Step::Orphan, of([gone()], Effect::Write)),
        (Step::OrphanAgain, of([gone()], Effect::Write)),
    ];
    let lists = vec![
        (Step::Make, vec![owned("first"), owned("second")]),
        (Step::Unknown, vec![owned("first"), owned("second")]),
        (Step::Known, vec![owned("first"), owned("second")]),
        (Step::Delete, vec![owned("second")]),
        (Step::Orphan, Vec::new()),
    ];
    changes(scenario(["first", "second"], calls, lists))
}

pub(super) fn routes() -> Changes<ListedRoute> {
    let route = |destination: &str, node: &str| ListedRoute {
        name: format!("r-{destination}"),
        node: Some(node.to_owned()),
        target: ProviderId::parse(&format!("sample://{node}")).ok(),
        addresses: Vec::new(),
        destination: destination.to_owned(),
        cluster_uid: None,
        is_blackhole: false,
        extra: Vec::new(),
    };
    let theirs = || route("10.0.0.0/24", "node-9");
    let made = || vec![theirs(), route("10.1.2.0/25", "node-1"), route("10.1.2.128/25", "node-2")];
    let both = || of([gone(), gone()], Effect::Write);
    let calls = vec![
        (Step::Make, both()),
        (Step::Again, both()),
        (Step::Move, both()),
        (Step::Delete, of([gone()], Effect::Write)),
        (Step::DeleteAgain, of([gone()], Effect::Write)),
    ];
    let moved = vec![theirs(), route("10.1.2.128/25", "node-2"), route("10.1.2.0/25", "node-2")];
    let lists = vec![
        (Step::Again, made()),
        (Step::Move, moved),
        (Step::Delete, vec![theirs(), route("10.1.2.128/25", "node-2")]),
    ];
    changes(scenario(["10.1.2.0/25", "10.1.2.128/25"], calls, lists))
}
