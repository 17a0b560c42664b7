//! What to write to a Node that waits to be initialised, given what the cloud says of its machine.
//!
//! Addresses are written before the taint goes, so that no Pod lands on a Node whose addresses are still the kubelet's
//! guess (upstream has it the other way round, P-05). The rest goes in one write with the taint, so that a Node is
//! either waiting or complete.

use std::collections::BTreeMap;

use pileus_cloud::{Address, Instance, ProviderId};

use super::addresses::{NotTheMachines, addresses, reachable};
use crate::facts::node::{NodeFacts, NodeIps, Taint};
use crate::well_known::{LABELS_INSTANCE_TYPE, LABELS_REGION, LABELS_ZONE, TAINT_UNINITIALIZED, is_reserved};

/// One write to a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Replace `status.addresses` by this list.
    SetAddresses(Vec<Address>),
    /// Complete the Node, in one write that fails if the Node has changed since it was read.
    Complete {
        /// `spec.providerID`, where the Node has none: it can be set only once.
        provider_id: Option<ProviderId>,
        /// Labels to add or change.
        labels: BTreeMap<String, String>,
        /// The taints that stay.
        taints: Vec<Taint>,
    },
}

/// What follows for a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is as it should be.
    Nothing,
    /// Write this, and plan again with what the Node is then.
    Write(Action),
    /// It can't be completed before something else changes.
    Blocked(Blocked),
}

/// Why a Node can't be completed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Blocked {
    /// The annotation for `--node-ip` makes no sense.
    #[error("{0}")]
    NodeIpMalformed(String),
    /// The kubelet's `--node-ip` asks for an address that the machine doesn't have.
    #[error("the kubelet's --node-ip asks for {0}, which the cloud does not list for this machine")]
    NodeIpUnknown(std::net::IpAddr),
    /// Neither the cloud nor the kubelet knows an IP address of the Node. To remove the taint now would let Pods onto
    /// a Node that nobody can reach (P-06).
    #[error("the machine has no IP address yet")]
    NoAddress,
}

/// What to write next to a Node whose machine is known. The first write that is needed; the one after it follows from
/// the Node as the first has left it.
pub(super) fn plan(node: &NodeFacts, machine: &Instance) -> Plan {
    if node.is_deleting || !node.is_uninitialised() {
        return Plan::Nothing;
    }
    let node_ips = match &node.node_ips {
        NodeIps::Given(addresses) => addresses,
        NodeIps::Malformed(why) => return Plan::Blocked(Blocked::NodeIpMalformed(why.clone())),
    };
    let wanted = match addresses(&machine.addresses, &node.addresses, node_ips) {
        Ok(wanted) => wanted,
        Err(NotTheMachines(ip)) => return Plan::Blocked(Blocked::NodeIpUnknown(ip)),
    };
    if !reachable(&wanted) {
        return Plan::Blocked(Blocked::NoAddress);
    }
    if wanted != node.addresses {
        return Plan::Write(Action::SetAddresses(wanted));
    }
    Plan::Write(Action::Complete {
        // A Node keeps the ID that it has, also where the cloud writes it differently: it can't be changed.
        provider_id: node.provider_id.is_none().then(|| machine.provider_id.clone()),
        labels: labels(node, machine),
        taints: node.taints.iter().filter(|taint| taint.key != TAINT_UNINITIALIZED).cloned().collect(),
    })
}

/// The labels that the Node lacks or has with another value.
///
/// What the cloud says of type, zone and region holds whatever stands there, under the current and the old key; what it
/// doesn't say is left alone. Its other labels never replace a value that somebody else set, nor take a key that is
/// Kubernetes' own (ccm-behaviour 2.5).
fn labels(node: &NodeFacts, machine: &Instance) -> BTreeMap<String, String> {
    let own = told(machine).flat_map(|(keys, value)| keys.map(|key| (key.to_owned(), value.clone())));
    let extra = machine.labels.iter().filter(|(key, _)| !is_reserved(key) && !node.labels.contains_key(key));
    let mut wanted: BTreeMap<_, _> = extra.cloned().collect();
    wanted.extend(own);
    wanted.retain(|key, value| node.labels.get(key) != Some(value) && is_label(key, value));
    wanted
}

/// What the cloud says that can't be a label, as `key=value`, for whoever wonders where it is.
pub(super) fn no_labels(machine: &Instance) -> Vec<String> {
    let own =
        told(machine).map(|([key, _], value)| (key, value)).filter(|(key, value)| !is_label(key, value));
    let extra = machine.labels.iter().map(|(key, value)| (key.as_str(), value));
    let extra = extra.filter(|(key, value)| is_reserved(key) || !is_label(key, value));
    own.chain(extra).map(|(key, value)| format!("{key}={value}")).collect()
}

/// What the cloud says of type, zone and region, each with the current and the old key of its label.
fn told(machine: &Instance) -> impl Iterator<Item = ([&'static str; 2], &String)> {
    let facts = [
        (LABELS_INSTANCE_TYPE, &machine.instance_type),
        (LABELS_ZONE, &machine.zone),
        (LABELS_REGION, &machine.region),
    ];
    facts.into_iter().filter_map(|(keys, value)| Some((keys, value.as_ref()?)))
}

/// Whether the API server would take a label: one that it refuses would make it refuse the taint's removal with it.
fn is_label(key: &str, value: &str) -> bool {
    let word = |text: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= 63
            && ends(text.chars().next())
            && ends(text.chars().next_back())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let domain = |text: &str| {
        text.len() <= 253
            && text
                .split('.')
                .all(|part| word(part) && !part.contains('_') && !part.contains(char::is_uppercase))
    };
    let is_key = match key.split_once('/') {
        Some((prefix, name)) => domain(prefix) && word(name),
        None => word(key),
    };
    is_key && (value.is_empty() || word(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use pileus_cloud::{AddressKind, State};
    use proptest::prelude::*;

    fn node() -> NodeFacts {
        NodeFacts {
            name: "a".to_owned(),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            is_deleting: false,
            provider_id: None,
            taints: vec![taint(TAINT_UNINITIALIZED, "NoSchedule")],
            addresses: vec![Address::new(AddressKind::Hostname, "a")],
            node_ips: NodeIps::Given(Vec::new()),
            labels: BTreeMap::new(),
        }
    }

    fn taint(key: &str, effect: &str) -> Taint {
        Taint { key: key.to_owned(), value: None, effect: effect.to_owned(), time_added: None }
    }

    fn machine() -> Instance {
        Instance {
            provider_id: ProviderId::parse("fake://12345").unwrap(),
            instance_type: Some("t1.micro".to_owned()),
            zone: Some("zone-a".to_owned()),
            region: Some("region-a".to_owned()),
            addresses: vec![Address::new(AddressKind::InternalIp, "10.0.0.1")],
            labels: Vec::new(),
            state: State::Running,
        }
    }

    /// What the API server makes of an action.
    fn apply(node: &mut NodeFacts, action: Action) {
        match action {
            Action::SetAddresses(addresses) => node.addresses = addresses,
            Action::Complete { provider_id, labels, taints } => {
                if provider_id.is_some() {
                    assert_eq!(node.provider_id, None, "a provider ID is set once");
                    node.provider_id = provider_id;
                }
                node.labels.extend(labels);
                node.taints = taints;
            }
        }
    }

    /// Carries plans out until there is nothing to do; how many writes that took, or why it can't be done.
    fn settle(node: &mut NodeFacts, machine: &Instance) -> Result<usize, Blocked> {
        for writes in 0..3 {
            match plan(node, machine) {
                Plan::Nothing => return Ok(writes),
                Plan::Blocked(why) => return Err(why),
                Plan::Write(action) => apply(node, action),
            }
        }
        panic!("no end to the writes: {:?}", plan(node, machine));
    }

    #[test]
    fn a_node_is_complete_after_two_writes_of_which_the_last_removes_the_taint() {
        let mut node = node();
        let Plan::Write(Action::SetAddresses(first)) = plan(&node, &machine()) else {
            panic!("addresses first")
        };
        node.addresses = first;
        assert!(node.is_uninitialised());
        assert_eq!(settle(&mut node, &machine()), Ok(1));
        assert!(!node.is_uninitialised());
        assert_eq!(node.provider_id, Some(machine().provider_id));
        let labels: Vec<_> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            labels,
            [
                "beta.kubernetes.io/instance-type=t1.micro",
                "failure-domain.beta.kubernetes.io/region=region-a",
                "failure-domain.beta.kubernetes.io/zone=zone-a",
                "node.kubernetes.io/instance-type=t1.micro",
                "topology.kubernetes.io/region=region-a",
                "topology.kubernetes.io/zone=zone-a",
            ]
        );
    }

    #[test]
    fn a_node_without_the_taint_is_left_alone() {
        let node = NodeFacts { taints: vec![taint("other", "NoExecute")], ..node() };
        assert_eq!(plan(&node, &machine()), Plan::Nothing);
    }

    #[test]
    fn a_node_that_is_being_deleted_is_left_alone() {
        assert_eq!(plan(&NodeFacts { is_deleting: true, ..node() }, &machine()), Plan::Nothing);
    }

    #[test]
    fn every_taint_with_the_key_goes_and_others_stay() {
        let taints = vec![
            taint(TAINT_UNINITIALIZED, "NoSchedule"),
            taint("other", "NoExecute"),
            taint(TAINT_UNINITIALIZED, "NoExecute"),
        ];
        let mut node = NodeFacts { taints, ..node() };
        settle(&mut node, &machine()).unwrap();
        assert_eq!(node.taints, [taint("other", "NoExecute")]);
    }

    #[test]
    fn a_provider_id_that_the_kubelet_gave_stays() {
        let given = ProviderId::parse("fake://other").unwrap();
        let mut node = NodeFacts { provider_id: Some(given.clone()), ..node() };
        settle(&mut node, &machine()).unwrap();
        assert_eq!(node.provider_id, Some(given));
    }

    #[test]
    fn what_the_cloud_does_not_know_is_not_written() {
        let silent = Instance { instance_type: None, zone: None, region: None, ..machine() };
        let mut node = node();
        node.labels.insert(LABELS_ZONE[0].to_owned(), "by-hand".to_owned());
        settle(&mut node, &silent).unwrap();
        assert_eq!(node.labels.len(), 1);
        assert_eq!(node.labels[LABELS_ZONE[0]], "by-hand");
    }

    #[test]
    fn extra_labels_respect_what_is_there_and_what_is_reserved() {
        let labels = [
            ("node.kubernetes.io/evil", "x"),
            ("kubernetes.io/evil", "x"),
            ("a.k8s.io/evil", "x"),
            ("k8s.io/evil", "x"),
            ("taken", "new"),
            ("same", "same"),
            ("app.k8snio/bar", "ok"),
            ("k8snio/bar", "ok"),
            ("not a label", "x"),
            ("too-long", "0123456789012345678901234567890123456789012345678901234567890123"),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let machine = Instance { labels, instance_type: None, zone: None, region: None, ..machine() };
        let present = [("taken", "old"), ("same", "same")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let mut node = NodeFacts { labels: present.into(), ..node() };
        settle(&mut node, &machine).unwrap();
        let labels: Vec<_> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(labels, ["app.k8snio/bar=ok", "k8snio/bar=ok", "same=same", "taken=old"]);
    }

    #[test]
    fn a_node_that_nobody_could_reach_keeps_its_taint() {
        let silent = Instance { addresses: Vec::new(), ..machine() };
        assert_eq!(settle(&mut node(), &silent), Err(Blocked::NoAddress));
        let own = vec![Address::new(AddressKind::InternalIp, "10.0.0.9")];
        assert_eq!(settle(&mut NodeFacts { addresses: own, ..node() }, &silent), Ok(1));
    }

    #[test]
    fn a_node_ip_that_makes_no_sense_blocks_the_node() {
        let malformed = NodeFacts { node_ips: NodeIps::Malformed("why".to_owned()), ..node() };
        assert_eq!(plan(&malformed, &machine()), Plan::Blocked(Blocked::NodeIpMalformed("why".to_owned())));
        let ip = "10.9.9.9".parse().unwrap();
        let unknown = NodeFacts { node_ips: NodeIps::Given(vec![ip]), ..node() };
        assert_eq!(plan(&unknown, &machine()), Plan::Blocked(Blocked::NodeIpUnknown(ip)));
    }

    #[test]
    fn what_can_not_be_a_label_is_told() {
        let labels =
            [("rack", "7"), ("k8s.io/x", "y"), ("a b", "c")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let machine = Instance { zone: Some("eu west".to_owned()), labels: labels.to_vec(), ..machine() };
        assert_eq!(no_labels(&machine), ["topology.kubernetes.io/zone=eu west", "k8s.io/x=y", "a b=c"]);
        let mut node = node();
        settle(&mut node, &machine).unwrap();
        assert!(!node.labels.contains_key(LABELS_ZONE[0]));
    }

    #[test]
    fn labels_are_what_the_api_server_takes() {
        for (key, value, good) in [
            ("a", "", true),
            ("example.com/a", "B_c.d-1", true),
            ("Example.com/a", "b", false),
            ("/a", "b", false),
            ("a/", "b", false),
            ("a/b/c", "d", false),
            ("a", "-b", false),
            ("a", "b c", false),
            ("a", "ü", false),
        ] {
            assert_eq!(is_label(key, value), good, "{key}={value}");
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["", "a", "b-1", "c.d", "not good", "-x"]).prop_map(str::to_owned)
    }

    fn any_machine() -> impl Strategy<Value = Instance> {
        let address = (prop::sample::select(AddressKind::ALL.to_vec()), 0_u8..3)
            .prop_map(|(kind, n)| Address::new(kind, format!("10.0.0.{n}")));
        let label = (prop::sample::select(vec!["x", "y", "z.io/q", "k8s.io/no"]), any_text())
            .prop_map(|(key, value)| (key.to_owned(), value));
        (
            prop::option::of(any_text()),
            prop::option::of(any_text()),
            prop::collection::vec(address, 0..4),
            prop::collection::vec(label, 0..4),
        )
            .prop_map(|(zone, instance_type, addresses, labels)| Instance {
                zone,
                instance_type,
                addresses,
                labels,
                ..machine()
            })
    }

    proptest! {
        #[test]
        fn plans_come_to_rest_after_two_writes_and_only_a_complete_node_loses_its_taint(
            machine in any_machine(),
            hint in prop::option::of(0_u8..3),
            present in prop::collection::btree_map("[xy]", any_text(), 0..3),
        ) {
            let node_ips = NodeIps::Given(hint.map(|n| [10, 0, 0, n].into()).into_iter().collect());
            let mut node = NodeFacts { node_ips, labels: present.clone(), ..node() };
            match settle(&mut node, &machine) {
                Ok(writes) => {
                    prop_assert!(writes <= 2);
                    prop_assert!(!node.is_uninitialised() && reachable(&node.addresses));
                    prop_assert_eq!(&node.provider_id, &Some(machine.provider_id.clone()));
                }
                Err(_) => prop_assert!(node.is_uninitialised() && node.provider_id.is_none()),
            }
            for (key, value) in present {
                prop_assert_eq!(node.labels.get(&key), Some(&value), "nobody's label changes");
            }
        }
    }
}
