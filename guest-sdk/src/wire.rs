//! Converts between the contract's generated types and the types that authors see. Every record is destructured by name,
//! and every variant is matched without a wildcard. So a new field of the contract is a compile error here until it is
//! converted.

mod load_balancers;
mod routes;

use std::time::{Duration, SystemTime};

use crate::bindings::exports::pileus::provider::info;
use crate::bindings::instances::exports::pileus::provider::instances;
use crate::bindings::local_instance::exports::pileus::provider::local_instance;
use crate::bindings::pileus::provider::types;
use crate::http::{CodePlace, Codes, Meaning};
use crate::{
    Address, AddressKind, Annotation, AnnotationType, Answer, CallShape, Capability, CredentialHint,
    Description, Effect, Endpoint, Error, ErrorKind, InProgress, Instance, InstanceState, Limit, LocalAnswer,
    NodeReference, Operation, Place, Problem, Purpose, Rule, ServiceFacts, Settings, Stance,
};
pub(crate) use load_balancers::{owned_to_wit, service, service_change, service_outcome, target};
pub(crate) use routes::{cluster, listed, route_change, route_outcome};

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn in_progress(progress: InProgress) -> types::InProgress {
    let InProgress { after, resume } = progress;
    types::InProgress { after: milliseconds(after), resume, extra: Vec::new() }
}

pub(crate) fn purpose(purpose: instances::Purpose) -> Purpose {
    match purpose {
        instances::Purpose::Initialise => Purpose::Initialise,
        instances::Purpose::Refresh => Purpose::Refresh,
        instances::Purpose::Confirm => Purpose::Confirm,
    }
}

pub(crate) fn node_reference(node: types::NodeReference) -> NodeReference {
    let types::NodeReference {
        name,
        uid,
        provider_id,
        created_at,
        addresses,
        node_ips,
        labels,
        system_uuid,
        extra,
    } = node;
    NodeReference {
        name,
        uid,
        provider_id,
        // A time that overflows becomes 1970, which Kubernetes never uses.
        created_at: SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_secs(created_at))
            .unwrap_or(SystemTime::UNIX_EPOCH),
        addresses: addresses.into_iter().map(address).collect(),
        node_ips,
        labels,
        system_uuid,
        extra,
    }
}

fn address(address: types::Address) -> Address {
    let types::Address { kind, value } = address;
    let kind = match kind {
        types::AddressKind::Hostname => AddressKind::Hostname,
        types::AddressKind::InternalIp => AddressKind::InternalIp,
        types::AddressKind::ExternalIp => AddressKind::ExternalIp,
        types::AddressKind::InternalDns => AddressKind::InternalDns,
        types::AddressKind::ExternalDns => AddressKind::ExternalDns,
    };
    Address { kind, value }
}

fn address_to_wit(address: Address) -> types::Address {
    let Address { kind, value } = address;
    let kind = match kind {
        AddressKind::Hostname => types::AddressKind::Hostname,
        AddressKind::InternalIp => types::AddressKind::InternalIp,
        AddressKind::ExternalIp => types::AddressKind::ExternalIp,
        AddressKind::InternalDns => types::AddressKind::InternalDns,
        AddressKind::ExternalDns => types::AddressKind::ExternalDns,
    };
    types::Address { kind, value }
}

pub(crate) fn local_answer(answer: LocalAnswer) -> local_instance::LocalAnswer {
    match answer {
        LocalAnswer::Found(found) => local_instance::LocalAnswer::Found(instance(found)),
        LocalAnswer::Pending(after) => local_instance::LocalAnswer::Pending(milliseconds(after)),
    }
}

pub(crate) fn answer(answer: Result<Answer, Error>) -> instances::Answer {
    match answer {
        Ok(Answer::Found(found)) => instances::Answer::Found(instance(found)),
        Ok(Answer::Absent) => instances::Answer::Absent,
        Ok(Answer::Pending(after)) => instances::Answer::Pending(milliseconds(after)),
        Ok(Answer::Unmanaged(stance)) => instances::Answer::Unmanaged(match stance {
            Stance::LeftAlone => instances::Stance::LeftAlone,
            Stance::Released => instances::Stance::Released,
        }),
        Err(failed) => instances::Answer::Failed(error(failed)),
    }
}

fn instance(instance: Instance) -> types::Instance {
    let Instance { provider_id, instance_type, zone, region, addresses, labels, state, extra } = instance;
    let state = match state {
        InstanceState::Running => types::State::Running,
        InstanceState::Stopped => types::State::Stopped,
        InstanceState::Unknown => types::State::Unknown,
    };
    types::Instance {
        provider_id,
        instance_type,
        zone,
        region,
        addresses: addresses.into_iter().map(address_to_wit).collect(),
        labels,
        state,
        extra,
    }
}

pub(crate) fn error(error: Error) -> types::Error {
    let kind = match error.kind {
        ErrorKind::Throttled(after) => types::ErrorKind::Throttled(after.map(milliseconds)),
        ErrorKind::Conflict(after) => types::ErrorKind::Conflict(after.map(milliseconds)),
        ErrorKind::Invalid => types::ErrorKind::Invalid,
        ErrorKind::Denied => types::ErrorKind::Denied,
        ErrorKind::Unavailable(after) => types::ErrorKind::Unavailable(after.map(milliseconds)),
        ErrorKind::Broken => types::ErrorKind::Broken,
    };
    types::Error { kind, message: error.message, extra: error.extra }
}

pub(crate) fn problem(problem: Problem) -> info::Problem {
    let Problem { path, message } = problem;
    info::Problem { path, message }
}

pub(crate) fn description(
    description: Description,
    configuration_schema: String,
    capabilities: &[Capability],
) -> info::Description {
    let Description {
        name,
        version,
        provider_id_schemes,
        service_annotations,
        service_facts: facts,
        node_labels,
        instances,
        load_balancers,
        routes,
        extra,
    } = description;
    let shape = |of: &Capability| match of {
        Capability::Instances => Some(instances),
        // It is about one Node in each call.
        Capability::LocalInstance => None,
        Capability::LoadBalancers => Some(load_balancers),
        Capability::Routes => Some(routes),
    };
    let call_shapes = capabilities.iter().filter_map(|of| Some(call_shape(capability(*of), shape(of)?)));
    info::Description {
        name,
        version,
        provider_id_schemes,
        configuration_schema,
        service_annotations: service_annotations.into_iter().map(annotation).collect(),
        service_facts: service_facts(facts),
        node_labels,
        call_shapes: call_shapes.collect(),
        extra,
    }
}

fn service_facts(facts: ServiceFacts) -> info::ServiceFacts {
    let ServiceFacts { namespace_labels, endpoints, known, missing_node_ports } = facts;
    let flags = [
        (namespace_labels, info::ServiceFacts::NAMESPACE_LABELS),
        (endpoints, info::ServiceFacts::ENDPOINTS),
        (known, info::ServiceFacts::KNOWN),
        (missing_node_ports, info::ServiceFacts::MISSING_NODE_PORTS),
    ];
    flags
        .into_iter()
        .filter(|(is_wanted, _)| *is_wanted)
        .fold(info::ServiceFacts::empty(), |all, (_, flag)| all | flag)
}

fn capability(capability: Capability) -> info::Capability {
    match capability {
        Capability::Instances => info::Capability::Instances,
        Capability::LocalInstance => info::Capability::LocalInstance,
        Capability::LoadBalancers => info::Capability::LoadBalancers,
        Capability::Routes => info::Capability::Routes,
    }
}

fn call_shape(capability: info::Capability, shape: CallShape) -> info::CallShape {
    let CallShape { largest_batch, side_by_side } = shape;
    info::CallShape { capability, largest_batch, side_by_side, extra: Vec::new() }
}

fn annotation(annotation: Annotation) -> info::Annotation {
    let Annotation { name, value, default, written, description } = annotation;
    let value = match value {
        AnnotationType::Text => info::AnnotationType::Text,
        AnnotationType::Boolean => info::AnnotationType::Boolean,
        AnnotationType::Integer => info::AnnotationType::Integer,
        AnnotationType::TextList => info::AnnotationType::TextList,
        AnnotationType::RangeList => info::AnnotationType::RangeList,
        AnnotationType::NodeSelector => info::AnnotationType::NodeSelector,
    };
    info::Annotation { name, value, default, written, description, extra: Vec::new() }
}

pub(crate) fn settings(settings: Settings) -> info::Settings {
    let Settings { endpoints, rules, limits, codes, node_labels, notices, one_at_a_time, extra } = settings;
    info::Settings {
        endpoints: endpoints.into_iter().map(endpoint).collect(),
        rules: rules.into_iter().map(rule).collect(),
        limits: limits.into_iter().map(limit).collect(),
        refusals: codes.into_iter().flat_map(refusals).collect(),
        node_labels,
        notices: notices.into_iter().map(problem).collect(),
        one_at_a_time: one_at_a_time.into_iter().map(capability).collect(),
        extra,
    }
}

fn endpoint(endpoint: Endpoint) -> info::Endpoint {
    let Endpoint { tls, host, port, reason, credential } = endpoint;
    let credential = credential.map(|CredentialHint { kind, values }| info::CredentialHint { kind, values });
    info::Endpoint { tls, host, port, reason, credential, extra: Vec::new() }
}

fn limit(limit: Limit) -> info::Limit {
    let Limit { key, capacity, per_minute, told_by } = limit;
    info::Limit { key, capacity, per_minute, told_by, extra: Vec::new() }
}

fn refusals(codes: Codes) -> impl Iterator<Item = info::Refusal> {
    let Codes { host, place, rows } = codes;
    let place = match place {
        CodePlace::Header(name) => info::CodePlace::Header(name),
        CodePlace::Json(path) => info::CodePlace::Json(path),
        CodePlace::Xml(element) => info::CodePlace::Xml(element),
    };
    rows.into_iter().map(move |(status, code, meaning)| {
        let meaning = match meaning {
            Meaning::Throttled => info::RefusalMeaning::Throttled,
            Meaning::Locked => info::RefusalMeaning::Locked,
            Meaning::Absent => info::RefusalMeaning::Absent,
            Meaning::Later => info::RefusalMeaning::Later,
            Meaning::Invalid | Meaning::Denied | Meaning::Unavailable => info::RefusalMeaning::Other,
        };
        info::Refusal { host: host.clone(), status, place: place.clone(), code, meaning }
    })
}

fn rule(rule: Rule) -> info::Rule {
    let Rule { host, method, path, operation, effect, limits, cache_scope, page, fold_case } = rule;
    let effect = match effect {
        Effect::Read => info::Effect::Read,
        Effect::Write => info::Effect::Write,
        Effect::OperationPoll => info::Effect::OperationPoll,
    };
    info::Rule {
        host,
        method,
        path,
        operation: operation.map(|Operation { place: at, name }| info::Operation { place: place(at), name }),
        effect,
        limits,
        cache_scope,
        page: page.map(place),
        fold_case,
        extra: Vec::new(),
    }
}

fn place(place: Place) -> info::Place {
    match place {
        Place::Query(parameter) => info::Place::Query(parameter),
        Place::Header(header) => info::Place::Header(header),
        Place::FormField(field) => info::Place::FormField(field),
        Place::JsonField(field) => info::Place::JsonField(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_converted_completely() {
        let arrived = node_reference(types::NodeReference {
            name: "a".to_owned(),
            uid: "u".to_owned(),
            provider_id: Some("x://1".to_owned()),
            created_at: 7,
            addresses: vec![types::Address {
                kind: types::AddressKind::ExternalDns,
                value: "a.test".to_owned(),
            }],
            node_ips: vec!["10.0.0.1".to_owned()],
            labels: vec![("k".to_owned(), "v".to_owned())],
            system_uuid: Some("s".to_owned()),
            extra: vec![("e".to_owned(), "f".to_owned())],
        });
        let expected = NodeReference {
            uid: "u".to_owned(),
            created_at: SystemTime::UNIX_EPOCH + Duration::from_secs(7),
            addresses: vec![Address::new(AddressKind::ExternalDns, "a.test")],
            node_ips: vec!["10.0.0.1".to_owned()],
            labels: vec![("k".to_owned(), "v".to_owned())],
            system_uuid: Some("s".to_owned()),
            extra: vec![("e".to_owned(), "f".to_owned())],
            ..NodeReference::new("a").with_provider_id("x://1")
        };
        assert_eq!(arrived, expected);
        assert_eq!(arrived.label("k"), Some("v"));
    }

    #[test]
    fn an_error_keeps_its_kind_its_time_and_its_facts() {
        let rows = [
            (ErrorKind::Throttled(Some(Duration::from_millis(1500))), "Throttled(Some(1500))"),
            (ErrorKind::Throttled(None), "Throttled(None)"),
            (ErrorKind::Conflict(Some(Duration::from_secs(2))), "Conflict(Some(2000))"),
            (ErrorKind::Invalid, "Invalid"),
            (ErrorKind::Denied, "Denied"),
            (ErrorKind::Unavailable(Some(Duration::from_secs(3))), "Unavailable(Some(3000))"),
            (ErrorKind::Broken, "Broken"),
        ];
        for (kind, expected) in rows {
            let converted = error(Error::new(kind, "no").context("node a").with_extra("request-id", "7"));
            assert!(format!("{:?}", converted.kind).ends_with(expected), "{:?}", converted.kind);
            assert_eq!(converted.message, "node a: no");
            assert_eq!(converted.extra, [("request-id".to_owned(), "7".to_owned())]);
        }
    }

    #[test]
    fn only_exported_capabilities_have_a_call_shape() {
        let describe = |capabilities: &[Capability]| {
            description(Description::new("a", "1.0.0"), "{}".to_owned(), capabilities).call_shapes
        };
        assert!(describe(&[]).is_empty());
        let [shape] = describe(&[Capability::Instances]).try_into().unwrap();
        assert_eq!((shape.largest_batch, shape.side_by_side), (5_000, true));
    }

    #[test]
    fn service_facts_become_flags() {
        let none = ServiceFacts::default();
        for (facts, expected) in [
            (none, info::ServiceFacts::empty()),
            (ServiceFacts { namespace_labels: true, ..none }, info::ServiceFacts::NAMESPACE_LABELS),
            (ServiceFacts { endpoints: true, ..none }, info::ServiceFacts::ENDPOINTS),
            (ServiceFacts { known: true, ..none }, info::ServiceFacts::KNOWN),
            (ServiceFacts { missing_node_ports: true, ..none }, info::ServiceFacts::MISSING_NODE_PORTS),
        ] {
            assert_eq!(service_facts(facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn a_rule_is_converted_completely() {
        let rule = Rule::new("cloud.test", "POST", "/", Effect::OperationPoll)
            .operation(Place::FormField("Action".to_owned()), "Describe*")
            .limit("reads")
            .cache_scope("{1}")
            .page(Place::JsonField("NextToken".to_owned()))
            .fold_case();
        let codes = Codes::new("cloud.test", CodePlace::Json("error.code".to_owned()))
            .code(429, "Locked", Meaning::Locked)
            .code(409, "Scope*", Meaning::Denied);
        let converted =
            settings(Settings::default().rule(rule).limit(Limit::new("reads", 200, 600)).codes(codes));
        let shown = format!("{converted:?}");
        for part in [
            "OperationPoll",
            "FormField(\"Action\")",
            "Describe*",
            "Some(\"{1}\")",
            "page: Some(Place::JsonField(\"NextToken\"))",
            "fold-case: true",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        let refusals = format!("{:?}", converted.refusals);
        for part in
            ["Json(\"error.code\")", "429", "RefusalMeaning::Locked", "Scope*", "RefusalMeaning::Other"]
        {
            assert!(refusals.contains(part), "{part} in {refusals}");
        }
        assert_eq!((converted.limits[0].capacity, converted.limits[0].per_minute), (200, 600));
    }
}
