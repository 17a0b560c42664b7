//! Observations of a provider that conforms, for tests that break one rule at a time.

pub(super) mod changes;

use std::time::Duration;

use pileus_cloud::{
    Address, AddressKind, AnnotationType, Answer, Error, ErrorKind, Instance, InstanceState, NodeReference,
    ProviderId, Purpose, Stance,
};
use pileus_gate::{Coverage, Effect, Rule};
use pileus_host::{Annotation, CallShape, Capability, Description, Fault, ServiceFacts, Settings};
use serde_json::json;

use super::check::{self, CheckResult, NotPassed};
use super::cloud::{CloudMode, RETRY_AFTER};
use super::facts::{
    Alone, Configured, Expected, Facts, Known, LookupCall, LookupOutcome, Lookups, Rejection, SeenRequest,
    WrongDocument,
};

/// The ids of all checks with this result: `passed`, `failed` or `not run`.
pub(super) fn outcomes(facts: &Facts, wanted: &str) -> Vec<&'static str> {
    let outcome = |result: &CheckResult| match result {
        Ok(()) => "passed",
        Err(NotPassed::Failed(_)) => "failed",
        Err(NotPassed::NotRun(_)) => "not run",
    };
    check::all().filter(|check| outcome(&(check.test)(facts)) == wanted).map(|check| check.id).collect()
}

pub(super) fn lookups_of(facts: &mut Facts) -> &mut Lookups {
    facts.lookups.as_mut().unwrap()
}

pub(super) fn known(facts: &mut Facts) -> &mut Known {
    lookups_of(facts).known.as_mut().unwrap()
}

/// The instance that a call found for its first Node.
pub(super) fn found(call: &mut LookupCall) -> &mut Instance {
    match &mut call.outcome {
        LookupOutcome::Answers(answers) => match &mut answers[0] {
            Ok(Answer::Found(instance)) => instance,
            other => unreachable!("{other:?}"),
        },
        other => unreachable!("{other:?}"),
    }
}

pub(super) fn trapped() -> LookupOutcome {
    LookupOutcome::Fault(Fault::StackOverflow)
}

pub(super) fn answers<const N: usize>(answers: [Result<Answer, Error>; N]) -> LookupOutcome {
    LookupOutcome::Answers(answers.into())
}

/// The observations of a provider that conforms.
pub(super) fn facts() -> Facts {
    Facts {
        described: [Ok(description()), Ok(description())],
        capabilities: vec![Capability::Instances, Capability::LoadBalancers, Capability::Routes],
        wrong_documents: vec![
            refusal(Expected::AnyProblem, ""),
            refusal(Expected::Problem("endpoint".to_owned()), "endpoint"),
            WrongDocument { answer: Ok(Vec::new()), ..refusal(Expected::AnyAnswer, "") },
            WrongDocument {
                answer: Ok(vec![(String::new(), "zones has no effect".to_owned())]),
                ..refusal(Expected::ProblemOrNotice("zones".to_owned()), "")
            },
        ],
        configured: Some(Configured {
            document: r#"{"endpoint":"https://cloud.example"}"#.to_owned(),
            answers: [Ok(settings()), Ok(settings())],
            coverage: Coverage::default(),
        }),
        lookups: Some(lookups()),
        load_balancers: Some(changes::load_balancers()),
        routes: Some(changes::routes()),
    }
}

fn description() -> Description {
    let capability = Capability::Instances;
    Description {
        name: "sample".to_owned(),
        version: "1.4.0-rc.1".to_owned(),
        provider_id_schemes: vec!["sample".to_owned()],
        configuration_schema: json!({"type": "object", "properties": {"endpoint": {"type": "string"}}}),
        service_annotations: vec![
            annotation("sample.example/nodes", AnnotationType::NodeSelector, false),
            annotation("sample.example/id", AnnotationType::Integer, true),
        ],
        service_facts: ServiceFacts::default(),
        node_labels: Vec::new(),
        call_shapes: vec![CallShape { capability, largest_batch: 2, side_by_side: true }],
    }
}

fn annotation(name: &str, value: AnnotationType, is_written: bool) -> Annotation {
    Annotation { name: name.to_owned(), value, default: None, is_written, description: String::new() }
}

fn settings() -> Settings {
    let rule = Rule {
        host: "cloud.example".parse().unwrap(),
        method: "GET".parse().unwrap(),
        path: "/machines/*".parse().unwrap(),
        operation: None,
        effect: Effect::Read,
        limits: Vec::new(),
        cache_scope: None,
        fold_case: false,
        page: None,
    };
    Settings { rules: vec![rule], ..Settings::default() }
}

fn refusal(expected: Expected, path: &str) -> WrongDocument {
    let problem = (path.to_owned(), "is wrong".to_owned());
    let answer = Err(Rejection::Problems(vec![problem]));
    WrongDocument { what: "a mistake".to_owned(), document: "{}".to_owned(), expected, answer }
}

fn node(name: &str, id: Option<&str>) -> NodeReference {
    NodeReference {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        provider_id: id.map(|id| ProviderId::parse(id).unwrap()),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        addresses: Vec::new(),
        node_ips: Vec::new(),
        labels: Vec::new(),
        system_uuid: None,
    }
}

fn instance_named(name: &str) -> Answer {
    Answer::Found(Instance {
        provider_id: ProviderId::parse(&format!("sample://{name}")).unwrap(),
        instance_type: None,
        zone: Some("a".to_owned()),
        region: None,
        addresses: vec![Address::new(AddressKind::InternalIp, "10.0.0.1")],
        labels: Vec::new(),
        state: InstanceState::Running,
        left_out: Vec::new(),
    })
}

fn call(purpose: Purpose, nodes: Vec<NodeReference>, outcome: LookupOutcome) -> LookupCall {
    let request = |about| SeenRequest {
        line: "GET https://cloud.example/machines/x".to_owned(),
        effect: Effect::Read,
        has_rule: true,
        about: vec![about],
    };
    let requests = (0..nodes.len()).map(request).collect();
    LookupCall { purpose, nodes, outcome, requests, took: Duration::from_millis(5) }
}

fn alone(name: &str) -> Alone {
    let id = format!("sample://{name}");
    let of = |purpose, id| call(purpose, vec![node(name, id)], answers([Ok(instance_named(name))]));
    Alone {
        expected: Some(id.clone()),
        by_name: [of(Purpose::Initialise, None), of(Purpose::Initialise, None)],
        by_id: Some(of(Purpose::Refresh, Some(&id))),
        confirmed: Some(of(Purpose::Confirm, Some(&id))),
    }
}

fn lookups() -> Lookups {
    let absent = Ok(Answer::Absent);
    let initialise = |names: &[&str], outcome| {
        call(Purpose::Initialise, names.iter().map(|name| node(name, None)).collect(), outcome)
    };
    let failed = |kind| LookupOutcome::Failed(Error::new(kind, "the cloud is in trouble"));
    let trouble = |mode| {
        let kind = match mode {
            CloudMode::Busy => ErrorKind::Throttled(Some(Duration::from_secs(RETRY_AFTER))),
            CloudMode::Forbidden => ErrorKind::Denied,
            CloudMode::Page => ErrorKind::Broken,
            _ => ErrorKind::Unavailable(None),
        };
        let confirm = call(Purpose::Confirm, vec![node("node-1", Some("sample://node-1"))], failed(kind));
        (mode, vec![initialise(&["node-1", "node-2"], failed(kind)), confirm])
    };
    Lookups {
        deadlines: (Duration::from_secs(2), Duration::from_secs(12)),
        empty: initialise(&[], answers([])),
        missing: initialise(&["unknown"], answers([absent.clone()])),
        foreign: call(
            Purpose::Refresh,
            vec![node("unknown", Some("other://1"))],
            answers([Ok(Answer::Unmanaged(Stance::LeftAlone))]),
        ),
        largest: initialise(&["unknown-0", "unknown-1"], answers([absent.clone(), absent.clone()])),
        gone: Some(call(
            Purpose::Confirm,
            vec![node("unknown", Some("sample://gone"))],
            answers([absent.clone()]),
        )),
        known: Some(Known {
            alone: vec![alone("node-1"), alone("node-2")],
            mixed: initialise(
                &["node-1", "unknown-0", "node-2", "unknown-1", "unknown-2"],
                answers([
                    Ok(instance_named("node-1")),
                    absent.clone(),
                    Ok(instance_named("node-2")),
                    absent.clone(),
                    absent.clone(),
                ]),
            ),
            reversed: initialise(
                &["unknown-2", "unknown-1", "node-2", "unknown-0", "node-1"],
                answers([
                    absent.clone(),
                    absent.clone(),
                    Ok(instance_named("node-2")),
                    absent,
                    Ok(instance_named("node-1")),
                ]),
            ),
            refreshed: Some(call(
                Purpose::Refresh,
                ["node-1", "node-2"].map(|name| node(name, Some(&format!("sample://{name}")))).into(),
                answers(["node-1", "node-2"].map(|name| Ok(instance_named(name)))),
            )),
        }),
        faults: CloudMode::FAULTS.into_iter().map(trouble).collect(),
        refused: Vec::new(),
    }
}

#[test]
fn a_provider_that_conforms_passes_every_check() {
    assert_eq!(outcomes(&facts(), "passed").len(), check::all().count());
}
