//! Which Node has a provider ID or an address. Two Nodes with one provider ID would get each other's traffic, routes and taints,
//! and two with one address each other's traffic.
//!
//! Pure.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use pileus_cloud::{Address, AddressKind, ProviderId};

use crate::facts::node::{NodeFacts, Readiness};

/// The most IP addresses of one Node that count. A kubelet may list as many as fit into an object.
const MAX_ADDRESSES: usize = 64;

/// What a Node can't have because another Node has it, with the name of that Node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub(crate) enum Conflict {
    /// Its provider ID, or that of the instance that the cloud gives for it.
    #[error(
        "its provider ID {id} is that of node {other}, and one instance is one node: delete the wrong node of the two"
    )]
    ProviderId {
        /// The provider ID.
        id: ProviderId,
        /// The Node that has it.
        other: String,
    },
    /// An internal address.
    #[error(
        "its address {ip} is that of node {other}, whose kubelet reports: look in the cloud which of the two has it"
    )]
    Address {
        /// The address.
        ip: IpAddr,
        /// The Node that has it.
        other: String,
    },
}

impl Conflict {
    /// The Node that has what the other one can't have.
    pub(crate) fn other(&self) -> &str {
        match self {
            Self::ProviderId { other, .. } | Self::Address { other, .. } => other,
        }
    }
}

/// The order of Nodes that claim the same: one that isn't being deleted comes first, then the oldest.
type Rank = (bool, Timestamp, Arc<str>);

/// The identities of all Nodes. The two sets are indexes: a set for each provider ID and each address would take half a kilobyte
/// for its one element.
#[derive(Debug, Default)]
pub(super) struct Identities {
    nodes: HashMap<Arc<str>, Identity>,
    ids: BTreeSet<(ProviderId, Rank)>,
    addresses: BTreeSet<(IpAddr, Arc<str>)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Identity {
    rank: Rank,
    id: Option<ProviderId>,
    internal: Vec<IpAddr>,
    external: Vec<IpAddr>,
    /// Whether its kubelet reports. The address of a Node with a silent kubelet may have moved to a new one.
    is_live: bool,
}

impl Identity {
    fn of(node: &NodeFacts) -> Self {
        Self {
            rank: (node.is_deleting, node.created_at, Arc::from(node.name.as_str())),
            id: node.provider_id.clone(),
            internal: ips(&node.addresses, AddressKind::InternalIp),
            external: ips(&node.addresses, AddressKind::ExternalIp),
            is_live: is_live(node),
        }
    }
}

/// Whether the kubelet of a Node reports. Kubernetes sets the condition `Ready` to Unknown 40 s after its last report.
pub(crate) fn is_live(node: &NodeFacts) -> bool {
    !node.is_deleting && node.readiness != Readiness::Unknown
}

/// The IP addresses of a kind in a list, in canonical form.
pub(crate) fn ips(addresses: &[Address], kind: AddressKind) -> Vec<IpAddr> {
    let of_kind = addresses.iter().filter(|address| address.kind == kind).take(MAX_ADDRESSES);
    of_kind.filter_map(|address| Some(address.value.parse::<IpAddr>().ok()?.to_canonical())).collect()
}

impl Identities {
    /// Takes the identity of a Node as it is now. Returns the provider IDs whose first Node may be another one since.
    pub(super) fn set(&mut self, node: &NodeFacts) -> Vec<ProviderId> {
        let identity = Identity::of(node);
        if self.nodes.get(node.name.as_str()) == Some(&identity) {
            return Vec::new();
        }
        let mut changed = self.remove(&node.name);
        let name = Arc::clone(&identity.rank.2);
        if let Some(id) = &identity.id {
            self.ids.insert((id.clone(), identity.rank.clone()));
            changed.push(id.clone());
        }
        for ip in identity.internal.iter().chain(&identity.external) {
            self.addresses.insert((*ip, Arc::clone(&name)));
        }
        self.nodes.insert(name, identity);
        changed
    }

    /// Drops the identity of a Node that is gone. Returns the same as [`Identities::set`].
    pub(super) fn remove(&mut self, name: &str) -> Vec<ProviderId> {
        let Some(identity) = self.nodes.remove(name) else { return Vec::new() };
        for ip in identity.internal.iter().chain(&identity.external) {
            self.addresses.remove(&(*ip, Arc::clone(&identity.rank.2)));
        }
        let Some(id) = identity.id else { return Vec::new() };
        self.ids.remove(&(id.clone(), identity.rank));
        vec![id]
    }

    /// The names of the Nodes with this provider ID, the one that keeps it first.
    pub(super) fn with_id(&self, id: &ProviderId) -> impl Iterator<Item = &str> {
        let first = (false, Timestamp::MIN, Arc::default());
        let of_id = self.ids.range((id.clone(), first)..).take_while(move |(of, _)| of == id);
        of_id.map(|(_, (_, _, name))| &**name)
    }

    /// The names of the Nodes with this address.
    fn with_address(&self, ip: IpAddr) -> impl Iterator<Item = &str> {
        let of_ip = self.addresses.range((ip, Arc::default())..).take_while(move |(of, _)| *of == ip);
        of_ip.map(|(_, name)| &**name)
    }

    /// The Node that keeps the provider ID of this Node, where it is another one.
    pub(super) fn twin(&self, node: &NodeFacts) -> Option<&str> {
        let first = self.with_id(node.provider_id.as_ref()?).next()?;
        (first != node.name).then_some(first)
    }

    /// What a Node can't have that the cloud gives it: a provider ID that is in the spec of another Node, and internal addresses
    /// of another Node that is alive. Of two Nodes that have the same in their objects the older one keeps it.
    pub(super) fn conflict(
        &self,
        node: &NodeFacts,
        id: &ProviderId,
        internal: &[IpAddr],
    ) -> Option<Conflict> {
        for id in node.provider_id.iter().chain([id]) {
            let first = self.with_id(id).next().filter(|first| *first != node.name);
            if let Some(other) = first {
                return Some(Conflict::ProviderId { id: id.clone(), other: other.to_owned() });
            }
        }
        let own = Identity::of(node);
        internal.iter().find_map(|ip| {
            let others = self.with_address(*ip).filter(|name| *name != node.name);
            let mut others = others.filter_map(|name| self.nodes.get(name));
            let keeps = |other: &&Identity| {
                let is_older = other.rank < own.rank || !own.internal.contains(ip);
                other.is_live && other.internal.contains(ip) && is_older
            };
            let other = others.find(keeps)?.rank.2.to_string();
            Some(Conflict::Address { ip: *ip, other })
        })
    }

    /// A Node with this address.
    pub(super) fn node_with(&self, ip: IpAddr) -> Option<&str> {
        self.with_address(ip).next()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn id(text: &str) -> ProviderId {
        ProviderId::parse(&format!("fake://{text}")).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A ready Node that is so many minutes younger than the first.
    fn node(name: &str, minutes: i64, with: Option<&str>, address: &str) -> NodeFacts {
        NodeFacts {
            created_at: Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes),
            provider_id: with.map(id),
            addresses: vec![Address::new(AddressKind::InternalIp, address)],
            readiness: Readiness::True,
            ..NodeFacts::registered(name)
        }
    }

    fn identities(nodes: &[&NodeFacts]) -> Identities {
        let mut identities = Identities::default();
        for node in nodes {
            identities.set(node);
        }
        identities
    }

    #[test]
    fn one_node_has_a_provider_id_and_it_is_the_one_with_it_in_its_spec_or_else_the_oldest() {
        let a = node("a", 0, Some("1"), "10.0.0.1");
        let of = |name, minutes, with| node(name, minutes, with, "10.0.0.9");
        let going = NodeFacts { is_deleting: true, ..a.clone() };
        let renewed = NodeFacts { uid: "second".to_owned(), provider_id: None, ..a.clone() };
        let unset = NodeFacts { provider_id: None, ..a.clone() };
        for (claim, known, joins, answer, other) in [
            ("its own", &a, a.clone(), "1", None),
            ("another's", &a, of("b", 5, None), "2", None),
            ("that of an older one", &a, of("b", 5, None), "1", Some("a")),
            ("that of a younger one, which has it in its spec", &a, of("b", -5, None), "1", Some("a")),
            ("its kubelet says so, too", &a, of("b", 5, Some("1")), "1", Some("a")),
            ("its kubelet says so, the cloud another one", &a, of("b", 5, Some("1")), "2", Some("a")),
            ("the cloud writes its own as that of another", &a, of("b", 5, Some("x")), "1", Some("a")),
            ("it is the older one of two with it in their specs", &a, of("b", -5, Some("1")), "1", None),
            ("the other is being deleted", &going, of("b", 5, Some("1")), "1", None),
            ("the same name registers anew", &a, renewed, "1", None),
            ("no spec has it", &unset, of("b", 5, None), "1", None),
        ] {
            let mut identities = identities(&[known]);
            identities.set(&joins);
            let found = identities.conflict(&joins, &id(answer), &[ip("10.0.0.9")]);
            let expected = other.map(|other| Conflict::ProviderId { id: id("1"), other: other.to_owned() });
            assert_eq!(found, expected, "{claim}");
            assert_eq!(
                identities.twin(&joins).is_some(),
                expected.is_some() && joins.provider_id == Some(id("1")),
                "{claim}"
            );
        }
    }

    #[test]
    fn an_address_of_a_live_node_is_that_of_no_other_and_moves_when_the_node_is_silent_or_gone() {
        let a = node("a", 0, Some("1"), "10.0.0.1");
        let silent = NodeFacts { readiness: Readiness::Unknown, ..a.clone() };
        let unready = NodeFacts { readiness: Readiness::False, ..a.clone() };
        let going = NodeFacts { is_deleting: true, ..a.clone() };
        let external =
            NodeFacts { addresses: vec![Address::new(AddressKind::ExternalIp, "10.0.0.1")], ..a.clone() };
        let joins = |minutes, address| node("b", minutes, Some("2"), address);
        for (claim, known, joins, is_conflict) in [
            ("its own", &a, a.clone(), false),
            ("that of a live Node", &a, joins(5, "10.0.0.2"), true),
            ("that of a live Node, which is younger but has it", &a, joins(-5, "10.0.0.2"), true),
            ("the other isn't ready, but its kubelet says so", &unready, joins(5, "10.0.0.2"), true),
            ("both have it and the other is older", &a, joins(5, "10.0.0.1"), true),
            ("both have it and this one is older", &a, joins(-5, "10.0.0.1"), false),
            ("the other's kubelet is silent", &silent, joins(5, "10.0.0.2"), false),
            ("the other is being deleted", &going, joins(5, "10.0.0.2"), false),
            ("many share one external address", &external, joins(5, "10.0.0.2"), false),
        ] {
            let mut identities = identities(&[known]);
            identities.set(&joins);
            let given = joins.provider_id.clone().unwrap();
            let found = identities.conflict(&joins, &given, &[ip("10.0.0.7"), ip("10.0.0.1")]);
            let expected = Conflict::Address { ip: ip("10.0.0.1"), other: "a".to_owned() };
            assert_eq!(found, is_conflict.then_some(expected), "{claim}");
            identities.remove("a");
            assert_eq!(
                identities.conflict(&joins, &given, &[ip("10.0.0.1")]),
                None,
                "{claim}: the other is gone"
            );
        }
    }

    #[test]
    fn nothing_remains_of_a_node_that_is_gone_or_has_changed() {
        let mut identities = identities(&[&node("a", 0, Some("1"), "10.0.0.1")]);
        assert_eq!(identities.set(&node("a", 0, Some("1"), "10.0.0.1")), [], "a heartbeat");
        assert_eq!(identities.node_with(ip("10.0.0.1")), Some("a"));
        assert_eq!(identities.set(&node("a", 0, Some("2"), "::ffff:10.0.0.2")), [id("1"), id("2")]);
        assert_eq!(
            (identities.node_with(ip("10.0.0.1")), identities.node_with(ip("10.0.0.2"))),
            (None, Some("a"))
        );
        assert_eq!(identities.remove("a"), [id("2")]);
        assert!(identities.nodes.is_empty() && identities.ids.is_empty() && identities.addresses.is_empty());
    }
}
