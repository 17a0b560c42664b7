#![expect(clippy::unnecessary_wraps, reason = "outcomes are compared as they come")]

use std::cell::RefCell;
use std::collections::HashMap;

use Stage::{Failed, Running, Succeeded};

use super::*;
use crate::testing::Host;
use crate::{ErrorKind, Ingress, OwnedLoadBalancer, ServiceAction, ServiceCall};

/// A resource of a cloud. A Service asks for its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct TestResource {
    pub(in super::super) size: u32,
    pub(in super::super) stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in super::super) enum Stage {
    #[default]
    Succeeded,
    Running,
    Failed,
}

impl Stage {
    pub(in super::super) fn status(self, headers: &HeaderMap) -> Status {
        match self {
            Self::Succeeded => Status::Succeeded,
            Self::Running => Status::Running(operation::from_headers(headers)),
            Self::Failed => Status::failed(None),
        }
    }
}

impl Resource<u32> for TestResource {
    fn status(&self, headers: &HeaderMap) -> Status {
        self.stage.status(headers)
    }

    fn matches(&self, size: &u32) -> bool {
        self.size == *size
    }

    fn report(&self, service: &Service) -> ServiceProgress {
        ServiceProgress::done([Ingress::hostname(&service.uid)])
    }
}

pub(in super::super) fn service(uid: &str) -> Service {
    Service { uid: uid.to_owned(), ..Service::default() }
}

pub(in super::super) fn call(changes: &[(ServiceAction, Option<&str>)]) -> ServiceCall {
    let change = |(action, note): &(ServiceAction, Option<&str>)| ServiceChange {
        resume: note.map(str::to_owned),
        ..ServiceChange::from(action.clone())
    };
    ServiceCall { changes: changes.iter().map(change).collect(), ..ServiceCall::default() }
}

pub(in super::super) fn resource(size: u32, stage: Stage) -> TestResource {
    TestResource { size, stage }
}

pub(in super::super) fn waits(note: &str) -> ServiceOutcome {
    Ok(ServiceProgress::in_progress_with(operation::POLL_INTERVAL, note))
}

pub(in super::super) fn failed(what: &str) -> ServiceOutcome {
    let message = "the cloud could not finish what it began: it doesn't say why";
    Err(Error::unavailable(message).context(what))
}

/// The outcome of a change to size 2, and the requests that were sent.
fn reconcile(
    action: ServiceAction,
    note: Option<&str>,
    found: Option<Result<TestResource, Error>>,
    written: &Result<(TestResource, HeaderMap), Error>,
    deletion: &Status,
) -> (ServiceOutcome, Vec<String>) {
    let call = call(&[(action, note)]);
    let found: HashMap<_, _> = found.into_iter().map(|found| ("u".to_owned(), found)).collect();
    let sent = RefCell::new(Vec::new());
    let write = async |name: &str, size: &u32| {
        sent.borrow_mut().push(format!("write {name} {size}"));
        written.clone()
    };
    let delete = async |name: &str| {
        sent.borrow_mut().push(format!("delete {name}"));
        Ok(deletion.clone())
    };
    let changes = call.resource_changes(&found, |_| Ok(2));
    let outcomes = Host::new().run(ResourceChange::reconcile(&changes, write, delete));
    (outcomes.into_iter().next().unwrap(), sent.into_inner())
}

#[test]
fn a_resource_is_written_if_it_differs_and_no_operation_is_running() {
    let done = || Ok(ServiceProgress::done([Ingress::hostname("u")]));
    let rows = [
        ("new", None, None, Succeeded, done(), true),
        ("new, takes time", None, None, Running, waits("written /7"), true),
        ("new, fails at once", None, None, Failed, failed("u"), true),
        ("as wanted", None, Some((2, Succeeded)), Succeeded, done(), false),
        ("another size", None, Some((1, Succeeded)), Running, waits("written /7"), true),
        ("running", None, Some((1, Running)), Succeeded, waits("written"), false),
        (
            "running, its operation known",
            Some("written /6"),
            Some((2, Running)),
            Succeeded,
            waits("written /6"),
            false,
        ),
        ("failed before", None, Some((2, Failed)), Succeeded, done(), true),
        ("failed meanwhile", Some("written"), Some((2, Failed)), Succeeded, failed("u"), false),
    ];
    for (name, note, found, becomes, expected, is_written) in rows {
        let headers: HeaderMap =
            [(http::HeaderName::from_static("operation-location"), "/7".parse().unwrap())]
                .into_iter()
                .collect();
        let found = found.map(|(size, stage)| Ok(resource(size, stage)));
        let action = ServiceAction::Ensure(service("u"));
        let result = reconcile(action, note, found, &Ok((resource(2, becomes), headers)), &Status::Succeeded);
        let writes = if is_written { vec!["write u 2".to_owned()] } else { Vec::new() };
        assert_eq!(result, (expected, writes), "{name}");
    }
}

#[test]
fn a_write_with_another_result_is_a_conflict() {
    let (action, written) =
        (ServiceAction::Ensure(service("u")), Ok((resource(3, Succeeded), HeaderMap::new())));
    let (outcome, sent) = reconcile(action, None, None, &written, &Status::Succeeded);
    assert_eq!((outcome.unwrap_err().kind, sent.len()), (ErrorKind::Conflict(None), 1));
}

#[test]
fn a_resource_is_deleted_until_it_is_gone() {
    let gone = || Ok(ServiceProgress::gone());
    let running = Status::running;
    let rows = [
        ("there, takes time", None, Some(Succeeded), running(), waits("deleted"), true),
        ("there, at once", None, Some(Succeeded), Status::Succeeded, gone(), true),
        ("running", None, Some(Running), Status::Succeeded, waits("deleted"), false),
        ("failed before", None, Some(Failed), running(), waits("deleted"), true),
        ("failed meanwhile", Some("deleted"), Some(Failed), Status::Succeeded, failed("u"), false),
        ("not seen", None, None, Status::Succeeded, gone(), true),
        ("not seen, written before", Some("written"), None, running(), waits("deleted"), true),
        ("not seen, deleted before", Some("deleted /7"), None, running(), gone(), false),
    ];
    for (name, note, found, deletes, expected, is_deleted) in rows {
        let orphan = OwnedLoadBalancer { name: "u".to_owned(), ..OwnedLoadBalancer::default() };
        for action in [ServiceAction::Delete(service("u")), ServiceAction::RemoveOrphan(orphan)] {
            let found = found.map(|stage| Ok(resource(1, stage)));
            let result = reconcile(action, note, found, &Err(Error::broken("written")), &deletes);
            let deletions = if is_deleted { vec!["delete u".to_owned()] } else { Vec::new() };
            assert_eq!(result, (expected.clone(), deletions), "{name}");
        }
    }
}

#[test]
fn nothing_is_done_if_the_resource_or_the_desired_state_is_unknown() {
    let found = HashMap::from([
        ("u".to_owned(), Err(Error::denied("read"))),
        ("v".to_owned(), Ok(resource(2, Succeeded))),
    ]);
    let actions = ["u", "v"].map(|uid| (ServiceAction::Ensure(service(uid)), None));
    let call = call(&actions);
    let changes = call.resource_changes(&found, |_| Err::<u32, _>(Error::invalid("wrong")));
    let write = async |_: &str, _: &u32| Err(Error::broken("written"));
    let outcomes = Host::new()
        .run(ResourceChange::reconcile(&changes, write, async |_: &str| Err(Error::broken("deleted"))));
    let kinds: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap_err().kind).collect();
    assert_eq!(kinds, [ErrorKind::Denied, ErrorKind::Invalid]);
}
