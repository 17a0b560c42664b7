//! Converts between the contract's generated types and `pileus-cloud`'s types.
//!
//! Records are destructured by name and variants matched without a wildcard, so a field or case that the contract gains
//! fails the build where it needs a decision. A provider's answers are not trusted: IDs are parsed, texts are sanitized and
//! truncated.

mod instance;
mod load_balancers;
mod names;
mod routes;
mod status;

use std::net::IpAddr;
use std::time::Duration;

use pileus_cloud::{
    Address, AddressKind, Answer, Cluster, Error, ErrorKind, LocalAnswer, NodeReference, Purpose, Stance,
};

use crate::bindings::{instances, local_instance, types};
use crate::sanitize::{excerpt, is_control, sanitize_message, truncate};
use instance::instance_from_wit;
pub(crate) use load_balancers::{
    owned_from_wit, service_change_to_wit, service_outcome_from_wit, service_to_wit, target_to_wit,
};
pub(crate) use routes::{route_change_to_wit, route_from_wit, route_outcome_from_wit};

/// The longest request ID of the cloud that is kept, in bytes.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The most addresses, labels or notes of one instance, load balancer or route. More are a mistake, or an attack on the code
/// that compares them.
const MAX_ITEMS: usize = 64;

/// The longest host name, instance type, zone or region, in bytes: the limit of a DNS name.
const MAX_NAME_BYTES: usize = 253;

/// The longest name of a resource in the cloud, and the longest note that a provider keeps with it, in bytes: an ID of
/// Azure's resource manager has some 200.
const MAX_TEXT_BYTES: usize = 1 << 10;

/// The longest `resume` note, in bytes: the URL of an operation that Azure signs has more than 3,000, because it contains a
/// certificate.
const MAX_RESUME_BYTES: usize = 4 << 10;

/// The shortest time after which an item is asked about again: less would be a busy loop.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The longest time after which an item is asked about again: after an hour, the state of the cloud may be different.
const MAX_WAIT: Duration = Duration::from_hours(1);

pub(crate) fn purpose_to_wit(purpose: Purpose) -> instances::Purpose {
    match purpose {
        Purpose::Initialise => instances::Purpose::Initialise,
        Purpose::Refresh => instances::Purpose::Refresh,
        Purpose::Confirm => instances::Purpose::Confirm,
    }
}

pub(crate) fn cluster_to_wit(cluster: &Cluster) -> types::Cluster {
    let Cluster { name, uid } = cluster;
    types::Cluster { name: name.clone(), uid: uid.clone(), extra: Vec::new() }
}

pub(crate) fn node_to_wit(node: &NodeReference) -> types::NodeReference {
    let NodeReference { name, uid, provider_id, created_at, addresses, node_ips, labels, system_uuid } = node;
    types::NodeReference {
        name: name.clone(),
        uid: uid.clone(),
        provider_id: provider_id.as_ref().map(ToString::to_string),
        created_at: u64::try_from(created_at.as_second()).unwrap_or(0),
        addresses: addresses.iter().map(address_to_wit).collect(),
        node_ips: node_ips.iter().map(ToString::to_string).collect(),
        labels: labels.clone(),
        system_uuid: system_uuid.clone(),
        extra: Vec::new(),
    }
}

fn address_to_wit(address: &Address) -> types::Address {
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

const fn address_kind_from_wit(kind: types::AddressKind) -> AddressKind {
    match kind {
        types::AddressKind::Hostname => AddressKind::Hostname,
        types::AddressKind::InternalIp => AddressKind::InternalIp,
        types::AddressKind::ExternalIp => AddressKind::ExternalIp,
        types::AddressKind::InternalDns => AddressKind::InternalDns,
        types::AddressKind::ExternalDns => AddressKind::ExternalDns,
    }
}

/// The next hop of a listed route, which is only compared with Nodes: an IP address in canonical form, or a name.
fn hop_from_wit(address: types::Address) -> Result<Address, String> {
    let types::Address { kind, value } = address;
    let kind = address_kind_from_wit(kind);
    let value = match kind {
        AddressKind::InternalIp | AddressKind::ExternalIp => {
            let ip = value.parse::<IpAddr>();
            ip.map_err(|_| format!("invalid IP address {:?}", excerpt(&value)))?.to_canonical().to_string()
        }
        AddressKind::Hostname | AddressKind::InternalDns | AddressKind::ExternalDns => checked_name(value)?,
    };
    Ok(Address { kind, value })
}

/// A name that isn't empty or too long, and has no white space.
fn checked_name(value: String) -> Result<String, String> {
    if value.is_empty()
        || value.len() > MAX_NAME_BYTES
        || value.chars().any(|c| is_control(c) || c.is_whitespace())
    {
        return Err(format!("invalid name {:?}", excerpt(&value)));
    }
    Ok(value)
}

/// Converts the answer about one Node. `schemes` are those of the provider: an instance with another scheme is an error.
pub(crate) fn answer_from_wit(
    node: &NodeReference,
    answer: instances::Answer,
    schemes: &[String],
) -> Result<Answer, Error> {
    match answer {
        instances::Answer::Found(instance) => instance_from_wit(node, instance, schemes).map(Answer::Found),
        instances::Answer::Absent => Ok(Answer::Absent),
        instances::Answer::Pending(after) => Ok(Answer::Pending(wait(after))),
        instances::Answer::Unmanaged(instances::Stance::LeftAlone) => {
            Ok(Answer::Unmanaged(Stance::LeftAlone))
        }
        instances::Answer::Unmanaged(instances::Stance::Released) => Ok(Answer::Unmanaged(Stance::Released)),
        instances::Answer::Failed(error) => Err(error_from_wit(error)),
    }
}

/// Converts the answer about the instance that the host runs on, with the same checks as [`answer_from_wit`].
///
/// # Errors
/// [`ErrorKind::Broken`] also where the instance isn't that of the Node's provider ID: the metadata service is another machine's.
pub(crate) fn local_answer_from_wit(
    node: &NodeReference,
    answer: local_instance::LocalAnswer,
    schemes: &[String],
) -> Result<LocalAnswer, Error> {
    let instance = match answer {
        local_instance::LocalAnswer::Pending(after) => return Ok(LocalAnswer::Pending(wait(after))),
        local_instance::LocalAnswer::Found(instance) => instance_from_wit(node, instance, schemes)?,
    };
    match &node.provider_id {
        Some(expected) if *expected != instance.provider_id => {
            let (name, found) = (&node.name, &instance.provider_id);
            let message = format!(
                "node {name}: the metadata service describes instance {found}, but the node's provider ID is {expected}"
            );
            Err(Error::new(ErrorKind::Broken, message))
        }
        _ => Ok(LocalAnswer::Found(instance)),
    }
}

pub(crate) fn error_from_wit(error: types::Error) -> Error {
    let types::Error { kind, message, extra } = error;
    let kind = match kind {
        types::ErrorKind::Throttled(after) => ErrorKind::Throttled(after.map(wait)),
        types::ErrorKind::Conflict(after) => ErrorKind::Conflict(after.map(wait)),
        types::ErrorKind::Invalid => ErrorKind::Invalid,
        types::ErrorKind::Denied => ErrorKind::Denied,
        types::ErrorKind::Unavailable(after) => ErrorKind::Unavailable(after.map(wait)),
        types::ErrorKind::Broken => ErrorKind::Broken,
    };
    let mut message = sanitize_message(&message);
    if let Some((_, id)) = extra.iter().find(|(name, _)| name == "request-id") {
        let id = sanitize_message(truncate(id, MAX_REQUEST_ID_BYTES));
        message = format!("{message} (request {id})");
    }
    Error::new(kind, message)
}

/// When to ask again, and the provider's `resume` note.
fn progress_from_wit(progress: types::InProgress) -> (Duration, Option<String>) {
    let types::InProgress { after, resume, extra: _ } = progress;
    (wait(after), kept_note(resume))
}

/// A `resume` note, unless it is too long. It is only a hint.
fn kept_note(resume: Option<String>) -> Option<String> {
    resume.filter(|note| note.len() <= MAX_RESUME_BYTES)
}

fn wait(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).clamp(MIN_WAIT, MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sanitize::MAX_MESSAGE_BYTES;

    /// A Node whose kubelet has no `--node-ip`.
    pub(super) fn node() -> NodeReference {
        NodeReference {
            name: "node-1".to_owned(),
            uid: "u-1".to_owned(),
            provider_id: None,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            addresses: Vec::new(),
            node_ips: Vec::new(),
            labels: Vec::new(),
            system_uuid: None,
        }
    }

    #[test]
    fn a_wait_is_neither_too_short_nor_too_long() {
        for (given, taken) in [(0, MIN_WAIT), (5000, Duration::from_secs(5)), (u64::MAX, MAX_WAIT)] {
            assert_eq!(
                answer_from_wit(&node(), instances::Answer::Pending(given), &[]),
                Ok(Answer::Pending(taken))
            );
        }
    }

    #[test]
    fn a_local_instance_is_that_of_the_node_or_an_error() {
        let schemes = ["sim".to_owned()];
        let instance = |provider_id: &str| {
            local_instance::LocalAnswer::Found(types::Instance {
                provider_id: provider_id.to_owned(),
                instance_type: None,
                zone: Some("z\u{1b}".to_owned()),
                region: None,
                addresses: Vec::new(),
                labels: Vec::new(),
                state: types::State::Running,
                extra: Vec::new(),
            })
        };
        for (own, found, problem) in [
            (None, "sim://1", None),
            (Some("sim://1"), "sim://1", None),
            (
                Some("sim://1"),
                "sim://2",
                Some("describes instance sim://2, but the node's provider ID is sim://1"),
            ),
            (None, "other://1", Some("another scheme")),
            (None, "1", Some("not a provider ID")),
        ] {
            let provider_id = own.map(|id| pileus_cloud::ProviderId::parse(id).unwrap());
            let node = NodeReference { provider_id, ..node() };
            match (local_answer_from_wit(&node, instance(found), &schemes), problem) {
                (Ok(LocalAnswer::Found(taken)), None) => {
                    assert_eq!(
                        (taken.provider_id.as_str(), taken.zone, taken.left_out.len()),
                        (found, None, 1)
                    );
                }
                (Err(error), Some(problem)) => {
                    assert_eq!(error.kind, ErrorKind::Broken, "{found}");
                    assert!(error.message.contains(problem), "{found}: {}", error.message);
                }
                (other, _) => panic!("{own:?} {found}: {other:?}"),
            }
        }
        let pending = local_answer_from_wit(&node(), local_instance::LocalAnswer::Pending(0), &schemes);
        assert_eq!(pending, Ok(LocalAnswer::Pending(MIN_WAIT)));
    }

    #[test]
    fn a_providers_message_is_one_line_of_bounded_length() {
        let error = error_from_wit(types::Error {
            kind: types::ErrorKind::Throttled(Some(u64::MAX)),
            message: format!("line one\nline two\x1b[31m{}", "é".repeat(5000)),
            extra: vec![("request-id".to_owned(), "i".repeat(5000))],
        });
        assert_eq!(error.kind, ErrorKind::Throttled(Some(MAX_WAIT)));
        assert!(!error.message.contains(char::is_control));
        assert!(
            error.message.len() < MAX_MESSAGE_BYTES + MAX_REQUEST_ID_BYTES + 32,
            "{}",
            error.message.len()
        );
        assert!(error.message.ends_with("ii)"));
    }
}
