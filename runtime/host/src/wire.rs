//! Between the contract's records and `pileus-cloud`'s words, both ways.
//!
//! Records are taken apart by name and variants matched without a wildcard, so that whatever the contract gains stops
//! the build where a decision is due. What a provider says is not trusted: ids are parsed, texts are cut.

mod load_balancers;
mod routes;

use std::net::IpAddr;
use std::time::Duration;

use pileus_cloud::{
    Address, AddressKind, Answer, Cluster, Error, ErrorKind, Instance, InstanceState, NodeReference,
    ProviderId, Purpose,
};

use crate::bindings::{instances, types};
use crate::one_line::{is_obeyed, one_line};
pub(crate) use load_balancers::{
    owned_from_wire, service_change_to_wire, service_outcome_from_wire, service_to_wire, target_to_wire,
};
pub(crate) use routes::{route_change_to_wire, route_from_wire, route_outcome_from_wire};

/// The longest message of a provider that is kept, in bytes: an event's note may have 1 KiB.
const MESSAGE: usize = 1 << 10;

/// The longest id of a request that is kept, in bytes.
const REQUEST_ID: usize = 128;

/// What one machine may have of addresses and of labels. A Node with more is no machine but a mistake, or an attack on
/// whoever has to compare them.
const MANY: usize = 64;

/// The longest text of a machine's fact, in bytes: a DNS name's.
const FACT: usize = 253;

/// The longest name of a thing in the cloud, and the longest of what a provider notes beside it, in bytes: an id of
/// Azure's resource manager has some 200.
const LONGEST: usize = 1 << 10;

/// The longest note that a provider leaves for itself, in bytes: the URL of an operation that Azure signs has more than
/// 3,000, as a certificate is part of it.
const RESUME: usize = 4 << 10;

/// The shortest `pending` that is believed: asking more often would be a loop.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The longest `pending` or `throttled` time that is believed: after an hour the world may look different.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

pub(crate) fn purpose_to_wire(purpose: Purpose) -> instances::Purpose {
    match purpose {
        Purpose::Initialise => instances::Purpose::Initialise,
        Purpose::Refresh => instances::Purpose::Refresh,
        Purpose::Confirm => instances::Purpose::Confirm,
    }
}

pub(crate) fn cluster_to_wire(cluster: &Cluster) -> types::Cluster {
    let Cluster { name, uid } = cluster;
    types::Cluster { name: name.clone(), uid: uid.clone(), extra: Vec::new() }
}

pub(crate) fn node_to_wire(node: &NodeReference) -> types::NodeReference {
    let NodeReference { name, uid, provider_id, created_at, addresses, node_ips, labels } = node;
    types::NodeReference {
        name: name.clone(),
        uid: uid.clone(),
        provider_id: provider_id.as_ref().map(ToString::to_string),
        created_at: u64::try_from(created_at.as_second()).unwrap_or(0),
        addresses: addresses.iter().map(address_to_wire).collect(),
        node_ips: node_ips.iter().map(ToString::to_string).collect(),
        labels: labels.clone(),
        extra: Vec::new(),
    }
}

fn address_to_wire(address: &Address) -> types::Address {
    let Address { kind, value } = address;
    let kind = match kind {
        AddressKind::Hostname => types::AddressKind::Hostname,
        AddressKind::InternalIp => types::AddressKind::InternalIp,
        AddressKind::ExternalIp => types::AddressKind::ExternalIp,
        AddressKind::InternalDns => types::AddressKind::InternalDns,
        AddressKind::ExternalDns => types::AddressKind::ExternalDns,
    };
    types::Address { kind, value: value.clone() }
}

/// IP addresses become what their canonical text is, and names must be ones: the API server takes anything, and a Node
/// with an address that is none would lose its taint although nobody can reach it.
fn address_from_wire(address: types::Address) -> Result<Address, String> {
    let types::Address { kind, value } = address;
    let kind = match kind {
        types::AddressKind::Hostname => AddressKind::Hostname,
        types::AddressKind::InternalIp => AddressKind::InternalIp,
        types::AddressKind::ExternalIp => AddressKind::ExternalIp,
        types::AddressKind::InternalDns => AddressKind::InternalDns,
        types::AddressKind::ExternalDns => AddressKind::ExternalDns,
    };
    let value = match kind {
        AddressKind::InternalIp | AddressKind::ExternalIp => {
            let ip = value.parse::<IpAddr>();
            ip.map_err(|_| format!("{:?} is no IP address", text(&value)))?.to_string()
        }
        AddressKind::Hostname | AddressKind::InternalDns | AddressKind::ExternalDns => fact(value)?,
    };
    Ok(Address { kind, value })
}

/// A text that says something and isn't too long to.
fn fact(value: String) -> Result<String, String> {
    if value.is_empty() || value.len() > FACT || value.chars().any(|c| is_obeyed(c) || c.is_whitespace()) {
        return Err(format!("{:?} is no name", start_of(&value)));
    }
    Ok(value)
}

/// An answer about the Node of this name. `schemes` are the provider's own: a machine of another's is no answer.
pub(crate) fn answer_from_wire(
    node: &str,
    answer: instances::Answer,
    schemes: &[String],
) -> Result<Answer, Error> {
    match answer {
        instances::Answer::Found(instance) => instance_from_wire(node, instance, schemes).map(Answer::Found),
        instances::Answer::Absent => Ok(Answer::Absent),
        instances::Answer::Pending(after) => Ok(Answer::Pending(wait(after))),
        instances::Answer::Unmanaged => Ok(Answer::Unmanaged),
        instances::Answer::Failed(error) => Err(error_from_wire(error)),
    }
}

fn instance_from_wire(node: &str, instance: types::Instance, schemes: &[String]) -> Result<Instance, Error> {
    let types::Instance {
        provider_id,
        instance_type,
        zone,
        region,
        addresses,
        labels,
        state,
        extra: _, // nothing is defined for it yet
    } = instance;
    let broken = |problem: String| Error::new(ErrorKind::Broken, format!("node {node}: {problem}"));
    let provider_id = ProviderId::parse(&provider_id).map_err(|error| broken(error.to_string()))?;
    if !schemes.iter().any(|scheme| scheme == provider_id.scheme()) {
        let own = schemes.join(", ");
        return Err(broken(format!("{provider_id} has a scheme that is not the provider's own ({own})")));
    }
    if provider_id.as_str().contains(is_obeyed) {
        return Err(broken(format!("{} holds a character that can't be shown", text(provider_id.as_str()))));
    }
    let state = match state {
        types::State::Running => InstanceState::Running,
        types::State::Stopped => InstanceState::Stopped,
        types::State::Unknown => InstanceState::Unknown,
    };
    if addresses.len() > MANY || labels.len() > MANY {
        let (addresses, labels) = (addresses.len(), labels.len());
        return Err(broken(format!(
            "{addresses} addresses and {labels} labels, at most {MANY} of each are taken"
        )));
    }
    let told = |value: Option<String>| value.filter(|text| !text.is_empty()).map(fact).transpose();
    Ok(Instance {
        provider_id,
        instance_type: told(instance_type).map_err(broken)?,
        zone: told(zone).map_err(broken)?,
        region: told(region).map_err(broken)?,
        addresses: addresses.into_iter().map(address_from_wire).collect::<Result<_, _>>().map_err(broken)?,
        labels, // whoever writes them checks them against the API server's rules
        state,
    })
}

pub(crate) fn error_from_wire(error: types::Error) -> Error {
    let types::Error { kind, message, extra } = error;
    let kind = match kind {
        types::ErrorKind::Throttled(after) => ErrorKind::Throttled(after.map(wait)),
        types::ErrorKind::Conflict => ErrorKind::Conflict,
        types::ErrorKind::Invalid => ErrorKind::Invalid,
        types::ErrorKind::Denied => ErrorKind::Denied,
        types::ErrorKind::Unavailable => ErrorKind::Unavailable,
        types::ErrorKind::Broken => ErrorKind::Broken,
    };
    let mut message = text(&message);
    if let Some((_, id)) = extra.iter().find(|(name, _)| name == "request-id") {
        let id = text(id.get(..id.floor_char_boundary(REQUEST_ID)).unwrap_or_default());
        message = format!("{message} (request {id})");
    }
    Error::new(kind, message)
}

/// When to ask again, and the provider's note. That is a hint: one that is too long is as good as lost.
fn under(progress: types::InProgress) -> (Duration, Option<String>) {
    let types::InProgress { after, resume, extra: _ } = progress;
    (wait(after), resume.filter(|note| note.len() <= RESUME))
}

fn wait(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

/// The start of a provider's text, enough to recognise what it is about.
fn start_of(long: &str) -> String {
    text(long.get(..long.floor_char_boundary(80)).unwrap_or_default())
}

/// A provider's text on one line and of bearable length.
pub(crate) fn text(text: &str) -> String {
    let text = text.get(..text.floor_char_boundary(MESSAGE)).unwrap_or_default();
    one_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(provider_id: &str) -> types::Instance {
        types::Instance {
            provider_id: provider_id.to_owned(),
            instance_type: Some("small-2".to_owned()),
            zone: Some(String::new()),
            region: None,
            addresses: Vec::new(),
            labels: Vec::new(),
            state: types::State::Running,
            extra: Vec::new(),
        }
    }

    fn address(kind: types::AddressKind, value: &str) -> types::Address {
        types::Address { kind, value: value.to_owned() }
    }

    fn read(answer: types::Instance) -> Result<Instance, Error> {
        let answer = answer_from_wire("node-1", instances::Answer::Found(answer), &["simulated".to_owned()]);
        answer.map(|answer| match answer {
            Answer::Found(instance) => instance,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_machine_of_another_providers_scheme_is_no_answer() {
        let of = |id: &str| read(instance(id));
        let known = of("simulated://m-1").unwrap();
        assert_eq!((known.zone, known.region), (None, None), "an empty zone is none");
        for id in ["azure://m-1", "m-1", "", "simulated://", "simulated://m-\u{202e}1"] {
            let error = of(id).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Broken, "{id}");
            assert!(error.message.contains("node-1"), "{error}");
        }
    }

    #[test]
    fn addresses_are_addresses_in_canonical_form() {
        use types::AddressKind::{ExternalIp, Hostname, InternalDns, InternalIp};
        let with = |address| types::Instance { addresses: vec![address], ..instance("simulated://m-1") };
        for (kind, given, taken) in [
            (InternalIp, "10.0.0.1", Some("10.0.0.1")),
            (ExternalIp, "2001:DB8:0:0::1", Some("2001:db8::1")),
            (InternalIp, "", None),
            (InternalIp, "10.0.0.1/24", None),
            (InternalIp, "not an ip", None),
            (Hostname, "node-1", Some("node-1")),
            (Hostname, "", None),
            (InternalDns, "node 1", None),
        ] {
            let read = read(with(address(kind, given))).map(|instance| instance.addresses[0].value.clone());
            assert_eq!(read.ok().as_deref(), taken, "{given:?}");
        }
    }

    #[test]
    fn a_machine_with_more_than_any_machine_has_is_refused() {
        let many = |count: usize| vec![address(types::AddressKind::InternalIp, "10.0.0.1"); count];
        let of = |count| read(types::Instance { addresses: many(count), ..instance("simulated://m-1") });
        assert!(of(MANY).is_ok());
        assert_eq!(of(MANY + 1).unwrap_err().kind, ErrorKind::Broken);
        let labels = vec![("a".to_owned(), "b".to_owned()); MANY + 1];
        assert!(read(types::Instance { labels, ..instance("simulated://m-1") }).is_err());
        let zone = Some("z".repeat(FACT + 1));
        assert!(read(types::Instance { zone, ..instance("simulated://m-1") }).is_err());
    }

    #[test]
    fn a_wait_is_neither_a_loop_nor_for_ever() {
        for (given, taken) in [(0, SHORTEST_WAIT), (5000, Duration::from_secs(5)), (u64::MAX, LONGEST_WAIT)] {
            assert_eq!(
                answer_from_wire("a", instances::Answer::Pending(given), &[]),
                Ok(Answer::Pending(taken))
            );
        }
    }

    #[test]
    fn a_providers_text_is_one_line_of_bounded_length() {
        let error = error_from_wire(types::Error {
            kind: types::ErrorKind::Throttled(Some(u64::MAX)),
            message: format!("line one\nline two\x1b[31m{}", "é".repeat(5000)),
            extra: vec![("request-id".to_owned(), "i".repeat(5000))],
        });
        assert_eq!(error.kind, ErrorKind::Throttled(Some(LONGEST_WAIT)));
        assert!(!error.message.contains(char::is_control));
        assert!(error.message.len() < MESSAGE + REQUEST_ID + 32, "{}", error.message.len());
        assert!(error.message.ends_with("ii)"));
    }
}
