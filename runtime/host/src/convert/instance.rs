//! Converts instances. One bad fact doesn't spoil the others: what can't be taken is left out, with a sentence that says which
//! fact and why, and the Node gets the rest. Only a wrong provider ID makes an answer useless, as it decides which instance the
//! others are about.
//!
//! Pure.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use pileus_cloud::{
    Address, AddressKind, Error, ErrorKind, Instance, InstanceState, NodeReference, ProviderId,
};
use pileus_gate::check_output;

use super::names::host_name;
use super::{MAX_ITEMS, MAX_NAME_BYTES, address_kind_from_wit};
use crate::bindings::types;
use crate::sanitize::{excerpt, is_control, sanitize_message};

/// The most labels of an instance that are kept. The node controller keeps fewer of those, the valid ones.
const MAX_LABELS: usize = 1 << 10;

/// The longest key of a label, in bytes: a DNS name, a slash and 63 more.
const MAX_KEY_BYTES: usize = MAX_NAME_BYTES + 64;

/// The most sentences about what was left out of one instance. One more says how many others there are.
const MAX_LEFT_OUT: usize = 8;

/// What of an instance is left out.
#[derive(Default)]
struct LeftOut {
    facts: Vec<String>,
    others: usize,
}

impl LeftOut {
    fn add(&mut self, fact: String) {
        if self.facts.len() < MAX_LEFT_OUT && !self.facts.contains(&fact) {
            self.facts.push(fact);
        } else {
            self.others += 1;
        }
    }

    fn sentences(mut self) -> Vec<String> {
        if self.others > 0 {
            self.facts.push(format!("{} more", self.others));
        }
        self.facts
    }
}

/// Converts the instance of a Node. `schemes` are those of the provider.
///
/// # Errors
/// [`ErrorKind::Broken`] where the provider ID is invalid or another provider's.
pub(super) fn instance_from_wit(
    node: &NodeReference,
    instance: types::Instance,
    schemes: &[String],
) -> Result<Instance, Error> {
    let types::Instance {
        provider_id,
        instance_type,
        zone,
        region,
        addresses,
        labels,
        state,
        extra: _, // the contract defines nothing for it yet
    } = instance;
    let provider_id = own_provider_id(&provider_id, schemes)
        .map_err(|problem| Error::new(ErrorKind::Broken, format!("node {}: {problem}", node.name)))?;
    let mut left_out = LeftOut::default();
    let mut named = |name: &str, value: Option<String>| {
        let value = value.filter(|text| !text.is_empty())?;
        if value.len() <= MAX_NAME_BYTES && !value.contains(is_control) {
            return Some(value);
        }
        left_out.add(format!(
            "{name} {:?}: longer than {MAX_NAME_BYTES} bytes, or with control characters",
            excerpt(&value)
        ));
        None
    };
    let (instance_type, zone, region) =
        (named("instance type", instance_type), named("zone", zone), named("region", region));
    Ok(Instance {
        provider_id,
        instance_type,
        zone,
        region,
        addresses: addresses_from_wit(addresses, &node.node_ips, &mut left_out),
        labels: labels_from_wit(labels, &mut left_out),
        state: match state {
            types::State::Running => InstanceState::Running,
            types::State::Stopped => InstanceState::Stopped,
            types::State::Unknown => InstanceState::Unknown,
        },
        left_out: left_out.sentences(),
    })
}

fn own_provider_id(text: &str, schemes: &[String]) -> Result<ProviderId, String> {
    let provider_id = ProviderId::parse(text).map_err(|error| error.to_string())?;
    if text.contains(is_control) {
        return Err(format!("{} contains a control character", sanitize_message(text)));
    }
    if !schemes.iter().any(|scheme| scheme == provider_id.scheme()) {
        let own = schemes.join(", ");
        return Err(format!("{provider_id} has another scheme than the provider's ({own})"));
    }
    Ok(provider_id)
}

/// The addresses that a Node may have, each once. Of more than [`MAX_ITEMS`] the ones that `--node-ip` asks for and the first of
/// each kind and family stay before the others, in their order.
fn addresses_from_wit(
    addresses: Vec<types::Address>,
    node_ips: &[IpAddr],
    left_out: &mut LeftOut,
) -> Vec<Address> {
    let (mut taken, mut seen, mut seen_kinds) = (Vec::new(), HashSet::new(), HashSet::new());
    for given in addresses {
        let shown = excerpt(&given.value);
        match address_from_wit(given) {
            Ok(address) => {
                let ip = address.value.parse::<IpAddr>().ok();
                let is_first = seen_kinds.insert((address.kind, ip.map(|ip| ip.is_ipv4())));
                let is_preferred = is_first || ip.is_some_and(|ip| node_ips.contains(&ip));
                if seen.insert(address.clone()) {
                    taken.push((is_preferred, address));
                }
            }
            Err((kind, problem)) => left_out.add(format!("{kind} {shown:?}: {problem}")),
        }
    }
    let too_many = taken.len().saturating_sub(MAX_ITEMS);
    if too_many > 0 {
        left_out.add(format!("{too_many} of {} addresses: the limit is {MAX_ITEMS}", taken.len()));
    }
    let preferred = taken.iter().filter(|(is_preferred, _)| *is_preferred).count();
    let mut others = MAX_ITEMS.saturating_sub(preferred);
    let mut kept = Vec::new();
    for (is_preferred, address) in taken {
        if is_preferred || others > 0 {
            others -= usize::from(!is_preferred);
            kept.push(address);
        }
    }
    kept.truncate(MAX_ITEMS);
    kept
}

/// Returns an IP address in canonical form and a name in lower case.
///
/// # Errors
/// The address's kind, and why a Node can't have it. The API server accepts any text, and the cluster's traffic follows it.
fn address_from_wit(address: types::Address) -> Result<Address, (AddressKind, String)> {
    let types::Address { kind, value } = address;
    let kind = address_kind_from_wit(kind);
    let value = match kind {
        AddressKind::InternalIp | AddressKind::ExternalIp => match value.parse().map(check_output) {
            Ok(Ok(ip)) => Ok(ip.to_string()),
            Ok(Err(reason)) => Err(format!("it is {reason}")),
            Err(_) => Err("not an IP address".to_owned()),
        },
        AddressKind::Hostname | AddressKind::InternalDns | AddressKind::ExternalDns => host_name(&value),
    };
    value.map(|value| Address { kind, value }).map_err(|problem| (kind, problem))
}

/// The labels, by key: the last of two with one key, and of too many those whose keys come first, so that the choice doesn't
/// depend on the cloud's order. The node controller checks them against the API server's rules.
fn labels_from_wit(labels: Vec<(String, String)>, left_out: &mut LeftOut) -> Vec<(String, String)> {
    let mut taken = BTreeMap::new();
    for (key, value) in labels {
        if key.len() > MAX_KEY_BYTES
            || value.len() > MAX_NAME_BYTES
            || [&key, &value].iter().any(|text| text.contains(is_control))
        {
            let (key, value) = (excerpt(&key), excerpt(&value));
            left_out.add(format!("label {key:?}={value:?}: too long, or with control characters"));
        } else {
            taken.insert(key, value);
        }
    }
    let given = taken.len();
    if given > MAX_LABELS {
        left_out.add(format!("{} of {given} labels: the limit is {MAX_LABELS}", given - MAX_LABELS));
    }
    taken.into_iter().take(MAX_LABELS).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::node;
    use super::*;
    use types::AddressKind::{ExternalDns, ExternalIp, Hostname, InternalDns, InternalIp};

    fn instance(provider_id: &str) -> types::Instance {
        types::Instance {
            provider_id: provider_id.to_owned(),
            instance_type: Some("small-2".to_owned()),
            zone: Some(String::new()),
            region: None,
            addresses: vec![address(InternalIp, "10.0.0.1")],
            labels: vec![("rack".to_owned(), "7".to_owned())],
            state: types::State::Running,
            extra: Vec::new(),
        }
    }

    fn address(kind: types::AddressKind, value: &str) -> types::Address {
        types::Address { kind, value: value.to_owned() }
    }

    fn read_for(node: &NodeReference, given: types::Instance) -> Result<Instance, Error> {
        instance_from_wit(node, given, &["simulated".to_owned()])
    }

    fn read(given: types::Instance) -> Instance {
        read_for(&node(), given).unwrap()
    }

    #[test]
    fn only_a_wrong_provider_id_spoils_the_answer() {
        let known = read(instance("simulated://m-1"));
        assert_eq!(
            (known.zone, known.region, known.left_out),
            (None, None, vec![]),
            "an empty zone is unknown"
        );
        for id in ["azure://m-1", "m-1", "", "simulated://", "simulated://m-\u{202e}1", "azure://m-\u{202e}1"]
        {
            let error = read_for(&node(), instance(id)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Broken, "{id}");
            assert!(error.message.contains("node-1") && !error.message.contains(is_control), "{error}");
        }
    }

    #[test]
    fn addresses_are_in_canonical_form_and_one_that_a_node_cannot_have_is_left_out() {
        for (kind, given, taken) in [
            (InternalIp, "10.0.0.2", Ok("10.0.0.2")),
            (ExternalIp, "2001:DB8:0:0::1", Ok("2001:db8::1")),
            (InternalIp, "::ffff:10.0.0.2", Ok("10.0.0.2")),
            (InternalIp, "100.64.0.1", Ok("100.64.0.1")),
            (InternalIp, "", Err("not an IP address")),
            (InternalIp, "10.0.0.1/24", Err("not an IP address")),
            (InternalIp, "not an ip", Err("not an IP address")),
            (InternalIp, "127.0.0.1", Err("loopback")),
            (ExternalIp, "::ffff:127.0.0.1", Err("loopback")),
            (InternalIp, "0.0.0.0", Err("unspecified")),
            (InternalIp, "169.254.7.7", Err("link-local")),
            (InternalIp, "fe80::1", Err("link-local")),
            (ExternalIp, "169.254.169.254", Err("metadata")),
            (InternalIp, "100.100.100.200", Err("metadata")),
            (InternalIp, "64:ff9b::a9fe:a9fe", Err("metadata")),
            (InternalIp, "224.0.0.1", Err("multicast")),
            (InternalIp, "255.255.255.255", Err("broadcast")),
            (Hostname, "Node-1", Ok("node-1")),
            (Hostname, "", Err("RFC 1123")),
            (Hostname, "2130706433", Err("IP address")),
            (InternalDns, "node 1", Err("RFC 1123")),
            (InternalDns, "localhost", Err("reader itself")),
            (ExternalDns, "kubernetes.default.svc", Err("inside the cluster")),
        ] {
            let mut of = instance("simulated://m-1");
            of.addresses.push(address(kind, given));
            let Instance { addresses, left_out, instance_type, .. } = read(of);
            let values: Vec<_> = addresses.iter().map(|address| address.value.as_str()).collect();
            match taken {
                Ok(taken) => assert_eq!((values, left_out), (vec!["10.0.0.1", taken], vec![]), "{given:?}"),
                Err(why) => {
                    assert_eq!((values, left_out.len()), (vec!["10.0.0.1"], 1), "{given:?}");
                    let shown = format!("{} {given:?}: ", address_kind_from_wit(kind));
                    assert!(left_out[0].starts_with(&shown) && left_out[0].contains(why), "{left_out:?}");
                }
            }
            assert_eq!(instance_type.as_deref(), Some("small-2"), "the rest is taken");
        }
    }

    #[test]
    fn of_too_many_addresses_those_that_the_node_needs_are_taken() {
        let mut of = instance("simulated://m-1");
        of.addresses =
            (0..300).map(|n| address(ExternalIp, &format!("20.0.{}.{}", n / 250, n % 250))).collect();
        of.addresses.push(address(InternalIp, "10.0.0.1"));
        of.addresses.push(address(InternalIp, "10.0.0.2"));
        of.addresses.push(address(InternalIp, "fd12::1"));
        let asks = NodeReference { node_ips: vec!["10.0.0.2".parse().unwrap()], ..node() };
        let Instance { addresses, left_out, .. } = read_for(&asks, of).unwrap();
        let values: Vec<_> = addresses.iter().map(|address| address.value.as_str()).collect();
        assert_eq!((values.len(), &values[..2]), (MAX_ITEMS, &["20.0.0.0", "20.0.0.1"][..]));
        assert_eq!(values[MAX_ITEMS - 3..], ["10.0.0.1", "10.0.0.2", "fd12::1"]);
        assert_eq!(left_out, ["239 of 303 addresses: the limit is 64"]);
        let mut same = instance("simulated://m-1");
        same.addresses = vec![address(InternalIp, "10.0.0.1"); 300];
        let Instance { addresses, left_out, .. } = read(same);
        assert_eq!((addresses.len(), left_out.len()), (1, 0), "each once");
    }

    #[test]
    fn labels_and_names_that_are_too_many_or_too_long_are_left_out_and_few_sentences_say_so() {
        let label = |n: usize| (format!("tag-{n:04}"), "x".to_owned());
        let mut of = instance("simulated://m-1");
        of.zone = Some("z".repeat(MAX_NAME_BYTES + 1));
        of.region = Some("a\nb".to_owned());
        of.instance_type = Some("Server Auction".to_owned());
        of.labels = (0..MAX_LABELS + 44).rev().map(label).collect();
        of.labels.push(("long".to_owned(), "v".repeat(1 << 20)));
        of.labels.push(label(0));
        let Instance { zone, region, instance_type, labels, left_out, addresses, .. } = read(of);
        assert_eq!((zone, region), (None, None));
        assert_eq!(
            instance_type.as_deref(),
            Some("Server Auction"),
            "the node controller knows what a label may be"
        );
        assert_eq!((labels.len(), &labels[0], addresses.len()), (MAX_LABELS, &label(0), 1));
        let starts = ["zone \"zzz", "region \"a b\"", "label \"long\"", "44 of 1068 labels"];
        assert_eq!(left_out.len(), starts.len(), "{left_out:?}");
        assert!(left_out.iter().zip(starts).all(|(it, start)| it.starts_with(start)), "{left_out:?}");
        let mut of = instance("simulated://m-1");
        of.addresses = (0..300).map(|n| address(Hostname, &format!("a b {n}"))).collect();
        let Instance { left_out, .. } = read(of);
        assert_eq!((left_out.len(), left_out[MAX_LEFT_OUT].as_str()), (MAX_LEFT_OUT + 1, "292 more"));
        assert!(left_out.iter().all(|it| it.len() < 400 && !it.contains(is_control)), "{left_out:?}");
    }
}
