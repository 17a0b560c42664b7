//! What was seen of a provider that keeps every promise about load balancers and routes.

use std::time::Duration;

use pileus_cloud::{
    Error, ErrorKind, Ingress, IngressPoint, IpMode, ListedRoute, OwnedLoadBalancer, ProviderId,
};
use pileus_gate::Effect;

use super::super::changes::{Came, Changes, Listing, NoAnswer, Played, Step, Trouble, Turn};
use super::super::cloud::{RETRY_AFTER, Scene};
use super::super::facts::Seen;

/// One of the provider's steps.
pub(in super::super) fn turn<T>(changes: &mut Option<Changes<T>>, step: Step) -> &mut Turn {
    let played = changes.as_mut().unwrap().played.as_mut().unwrap();
    played.turns.iter_mut().find(|(other, _)| *other == step).map(|(_, turn)| turn).unwrap()
}

/// What was listed after a step.
pub(in super::super) fn list<T>(changes: &mut Option<Changes<T>>, step: Step) -> &mut Vec<T> {
    let played = changes.as_mut().unwrap().played.as_mut().unwrap();
    let listed = played.lists.iter_mut().find(|(other, _)| *other == step);
    listed.and_then(|(_, listing)| listing.came.as_mut().ok()).unwrap()
}

/// What happened in a scene.
pub(in super::super) fn trouble<T>(changes: &mut Option<Changes<T>>, scene: Scene) -> &mut Trouble<T> {
    changes.as_mut().unwrap().troubles.iter_mut().find(|trouble| trouble.scene == scene).unwrap()
}

pub(in super::super) fn request(effect: Effect) -> Seen {
    let line = "PUT https://cloud.example/things/x".to_owned();
    Seen { line, effect, has_rule: true, about: Vec::new() }
}

pub(in super::super) fn ip(address: &str) -> Came {
    Came::Done(vec![Ingress {
        point: IngressPoint::Ip(address.to_owned()),
        ip_mode: Some(IpMode::Vip),
        ports: Vec::new(),
    }])
}

/// A turn with this outcome, which wrote or only read.
fn of<const N: usize>(came: [Came; N], effect: Effect) -> Turn {
    let came = Vec::from(came);
    let requests = vec![request(effect)];
    Turn { sent: "change([…])".to_owned(), first: came.clone(), came: Ok(came), requests }
}

fn listing<T>(listed: Vec<T>) -> Listing<T> {
    Listing { came: Ok(listed), requests: vec![request(Effect::Read)] }
}

fn in_trouble<T>(scene: Scene) -> Trouble<T> {
    let kind = match scene {
        Scene::Busy => ErrorKind::Throttled(Some(Duration::from_secs(RETRY_AFTER))),
        Scene::Forbidden => ErrorKind::Denied,
        Scene::Page => ErrorKind::Broken,
        _ => ErrorKind::Unavailable,
    };
    let error = Error::new(kind, "the cloud is in trouble");
    let turn = of([Came::Failed(error.clone()), Came::Failed(error.clone())], Effect::Write);
    let requests = vec![request(Effect::Read), request(Effect::Read)];
    let list = Some(Listing { came: Err(NoAnswer::Error(error)), requests });
    Trouble { scene, turn, list }
}

fn gone() -> Came {
    Came::Done(Vec::new())
}

fn changes<T>(played: Played<T>) -> Changes<T> {
    let troubles = Scene::TROUBLES.into_iter().map(in_trouble).collect();
    Changes { played: Ok(played), troubles, patience: (Duration::from_secs(2), Duration::from_secs(12)) }
}

fn played<T>(keys: [&str; 2], turns: Vec<(Step, Turn)>, lists: Vec<(Step, Vec<T>)>) -> Played<T> {
    Played {
        turns,
        lists: lists.into_iter().map(|(step, listed)| (step, listing(listed))).collect(),
        ..Played::of(Some("cluster".to_owned()), keys.map(str::to_owned))
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
    let turns = vec![
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
    changes(played(["first", "second"], turns, lists))
}

pub(super) fn routes() -> Changes<ListedRoute> {
    let route = |destination: &str, node: &str| ListedRoute {
        name: format!("r-{destination}"),
        node: Some(node.to_owned()),
        target: ProviderId::parse(&format!("sample://{node}")).ok(),
        addresses: Vec::new(),
        destination: destination.to_owned(),
        is_blackhole: false,
        extra: Vec::new(),
    };
    let theirs = || route("10.0.0.0/24", "node-9");
    let made = || vec![theirs(), route("198.18.0.0/24", "node-1"), route("198.19.0.0/24", "node-2")];
    let both = || of([gone(), gone()], Effect::Write);
    let turns = vec![
        (Step::Make, both()),
        (Step::Again, both()),
        (Step::Move, both()),
        (Step::Delete, of([gone()], Effect::Write)),
        (Step::DeleteAgain, of([gone()], Effect::Write)),
    ];
    let moved = vec![theirs(), route("198.19.0.0/24", "node-2"), route("198.18.0.0/24", "node-2")];
    let lists = vec![
        (Step::Again, made()),
        (Step::Move, moved),
        (Step::Delete, vec![theirs(), route("198.19.0.0/24", "node-2")]),
    ];
    changes(played(["198.18.0.0/24", "198.19.0.0/24"], turns, lists))
}
