//! What to write to a Node, given what the cloud says of its machine.
//!
//! A Node that waits to be initialised gets its addresses before the taint goes, so that no Pod lands on a Node whose
//! addresses are still the kubelet's guess (upstream has it the other way round, P-05). The rest goes in one write with
//! the taint, so that a Node is either waiting or complete.
//!
//! A Node that takes part already follows its machine: addresses, labels, and the provider ID where it has none (P-08,
//! P-26). What can't be put right about its addresses doesn't stop the rest.

use std::collections::{BTreeMap, BTreeSet};

use pileus_cloud::{Address, Instance, ProviderId};

use super::addresses::{NotTheMachines, addresses, reachable};
use super::labels::{Labels, labels};
use crate::facts::node::{NodeFacts, NodeIps, Taint};
use crate::well_known::TAINT_UNINITIALIZED;

/// One write to a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Replace `status.addresses` by this list.
    SetAddresses(Vec<Address>),
    /// Complete the Node, in one write that fails if the Node has changed since it was read.
    Complete(Completion),
}

/// What a Node lacks besides its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completion {
    /// `spec.providerID`, where the Node has none: it can be set only once.
    pub(super) provider_id: Option<ProviderId>,
    /// Labels to set by key, and to remove where there is no value.
    pub(super) labels: BTreeMap<String, Option<String>>,
    /// The keys of the labels that are ours afterwards, where that changes.
    pub(super) owned_labels: Option<BTreeSet<String>>,
    /// The taints that stay, where one goes.
    pub(super) taints: Option<Vec<Taint>>,
}

/// What follows for a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is as it should be.
    Nothing,
    /// Write this, and plan again with what the Node is then.
    Write(Action),
    /// Nothing more can be written before something else changes.
    Blocked(Blocked),
}

/// Why a Node can't be completed, or can't get the cloud's addresses.
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
    /// It is complete but for its routes, without which its Pods can't be reached (P-24).
    #[error("the cloud has no route to its Pods yet")]
    NoRoute,
}

/// What to write next to a Node whose machine is known. The first write that is needed; the one after it follows from
/// the Node as the first has left it.
pub(super) fn plan(node: &NodeFacts, machine: &Instance) -> Plan {
    if node.is_deleting {
        return Plan::Nothing;
    }
    let blocked = match wanted_addresses(node, machine) {
        Ok(Some(addresses)) => return Plan::Write(Action::SetAddresses(addresses)),
        Err(why) if node.is_uninitialised() => return Plan::Blocked(why),
        other => other.err(),
    };
    match (completion(node, machine), blocked) {
        (Some(completion), _) => Plan::Write(Action::Complete(completion)),
        (None, Some(why)) => Plan::Blocked(why),
        (None, None) => Plan::Nothing,
    }
}

/// The same where a Node keeps the taint until it has its routes (P-24). The rest isn't held back: the routes may need the
/// machine's ID.
pub(super) fn plan_with_routes(node: &NodeFacts, machine: &Instance) -> Plan {
    match plan(node, machine) {
        Plan::Write(Action::Complete(completion)) if node.is_uninitialised() && !node.has_routes() => {
            let held = Completion { taints: None, ..completion };
            if held.provider_id.is_none() && held.labels.is_empty() && held.owned_labels.is_none() {
                return Plan::Blocked(Blocked::NoRoute);
            }
            Plan::Write(Action::Complete(held))
        }
        other => other,
    }
}

/// The addresses that the Node should have, where it has others; in this order, as the first of a type is the one that
/// is used (upstream compares them as a map by type, P-07).
fn wanted_addresses(node: &NodeFacts, machine: &Instance) -> Result<Option<Vec<Address>>, Blocked> {
    // A cloud that lists no IP address (any more) doesn't take its own from a Node that works.
    if !node.is_uninitialised() && !reachable(&machine.addresses) {
        return Ok(None);
    }
    let node_ips = match &node.node_ips {
        NodeIps::Given(addresses) => addresses,
        NodeIps::Malformed(why) => return Err(Blocked::NodeIpMalformed(why.clone())),
    };
    let wanted = addresses(&machine.addresses, &node.addresses, node_ips)
        .map_err(|NotTheMachines(ip)| Blocked::NodeIpUnknown(ip))?;
    if reachable(&wanted) {
        Ok((wanted != node.addresses).then_some(wanted))
    } else {
        Err(Blocked::NoAddress)
    }
}

/// What the Node lacks besides its addresses; none where it lacks nothing.
fn completion(node: &NodeFacts, machine: &Instance) -> Option<Completion> {
    // A Node keeps the ID that it has, also where the cloud writes it differently: it can't be changed.
    let provider_id = node.provider_id.is_none().then(|| machine.provider_id.clone());
    let labels = labels(node, machine);
    if provider_id.is_none() && labels.is_empty() && !node.is_uninitialised() {
        return None;
    }
    let stay = || node.taints.iter().filter(|taint| taint.key != TAINT_UNINITIALIZED).cloned().collect();
    let Labels { changes, owned } = labels;
    Some(Completion {
        provider_id,
        labels: changes,
        owned_labels: owned,
        taints: node.is_uninitialised().then(stay),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::node::NetworkUnavailable;
    use pileus_cloud::{AddressKind, InstanceState};
    use proptest::prelude::*;

    fn node() -> NodeFacts {
        NodeFacts::registered("a")
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
            labels: vec![("rack".to_owned(), "7".to_owned())],
            state: InstanceState::Running,
        }
    }

    /// What the API server makes of an action.
    fn apply(node: &mut NodeFacts, action: Action) {
        match action {
            Action::SetAddresses(addresses) => node.addresses = addresses,
            Action::Complete(Completion { provider_id, labels, owned_labels, taints }) => {
                if provider_id.is_some() {
                    assert_eq!(node.provider_id, None, "a provider ID is set once");
                    node.provider_id = provider_id;
                }
                for (key, value) in labels {
                    match value {
                        Some(value) => node.labels.insert(key, value),
                        None => node.labels.remove(&key),
                    };
                }
                node.owned_labels = owned_labels.unwrap_or(std::mem::take(&mut node.owned_labels));
                node.taints = taints.unwrap_or(std::mem::take(&mut node.taints));
            }
        }
    }

    /// Carries plans out until there is nothing to do; how many writes that took, and why not all could be done.
    fn settle(node: &mut NodeFacts, machine: &Instance) -> (usize, Option<Blocked>) {
        for writes in 0..3 {
            match plan(node, machine) {
                Plan::Nothing => return (writes, None),
                Plan::Blocked(why) => return (writes, Some(why)),
                Plan::Write(action) => apply(node, action),
            }
        }
        panic!("no end to the writes: {:?}", plan(node, machine));
    }

    /// A Node that takes part in the cluster.
    fn initialised() -> NodeFacts {
        let mut node = node();
        assert_eq!(settle(&mut node, &machine()), (2, None));
        node
    }

    #[test]
    fn a_node_is_complete_after_two_writes_of_which_the_last_removes_the_taint() {
        let mut node = node();
        let Plan::Write(Action::SetAddresses(first)) = plan(&node, &machine()) else {
            panic!("addresses first")
        };
        node.addresses = first;
        assert!(node.is_uninitialised());
        assert_eq!(settle(&mut node, &machine()), (1, None));
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
                "rack=7",
                "topology.kubernetes.io/region=region-a",
                "topology.kubernetes.io/zone=zone-a",
            ]
        );
    }

    #[test]
    fn a_node_that_waits_for_its_routes_is_complete_but_for_the_taint_until_they_are_told() {
        let settle = |node: &mut NodeFacts| {
            while let Plan::Write(action) = plan_with_routes(node, &machine()) {
                apply(node, action);
            }
            plan_with_routes(node, &machine())
        };
        for (told, has_routes) in [
            (None, false),
            (Some(("True", "NoRouteCreated")), false),
            (Some(("Unknown", "RouteCreated")), false),
            (Some(("False", "CalicoIsUp")), false),
            (Some(("False", "RouteCreated")), true),
        ] {
            let told = told.map(|(status, reason): (&str, &str)| NetworkUnavailable {
                status: status.to_owned(),
                reason: reason.to_owned(),
            });
            let mut node = NodeFacts { network_unavailable: told.clone(), ..node() };
            let left = if has_routes { Plan::Nothing } else { Plan::Blocked(Blocked::NoRoute) };
            assert_eq!(settle(&mut node), left, "{told:?}");
            assert_eq!(node.is_uninitialised(), !has_routes, "{told:?}");
            let taints = node.taints.clone();
            assert_eq!(
                node,
                NodeFacts { taints, network_unavailable: told.clone(), ..initialised() },
                "all else is there"
            );
            // One that takes part is not asked.
            let mut works = NodeFacts { network_unavailable: told, ..initialised() };
            works.labels.clear();
            assert_eq!(settle(&mut works), Plan::Nothing);
        }
    }

    #[test]
    fn a_node_that_is_being_deleted_is_left_alone() {
        assert_eq!(plan(&NodeFacts { is_deleting: true, ..node() }, &machine()), Plan::Nothing);
    }

    #[test]
    fn a_node_without_taint_and_provider_id_gets_all_the_same_and_keeps_its_taints() {
        let taints = vec![taint("other", "NoExecute")];
        let mut node = NodeFacts { taints: taints.clone(), ..node() };
        assert_eq!(settle(&mut node, &machine()), (2, None));
        assert_eq!(node, NodeFacts { taints, ..initialised() });
    }

    #[test]
    fn every_taint_with_the_key_goes_and_others_stay() {
        let taints = vec![
            taint(TAINT_UNINITIALIZED, "NoSchedule"),
            taint("other", "NoExecute"),
            taint(TAINT_UNINITIALIZED, "NoExecute"),
        ];
        let mut node = NodeFacts { taints, ..node() };
        settle(&mut node, &machine());
        assert_eq!(node.taints, [taint("other", "NoExecute")]);
    }

    #[test]
    fn a_provider_id_that_the_kubelet_gave_stays() {
        let given = ProviderId::parse("fake://other").unwrap();
        let mut node = NodeFacts { provider_id: Some(given.clone()), ..node() };
        settle(&mut node, &machine());
        assert_eq!(node.provider_id, Some(given));
    }

    #[test]
    fn a_machine_that_changes_is_followed_part_by_part() {
        let resized = Instance { instance_type: Some("t2.large".to_owned()), ..machine() };
        let moved =
            Instance { addresses: vec![Address::new(AddressKind::InternalIp, "10.0.0.2")], ..machine() };
        for (claim, machine) in [("its labels", &resized), ("its addresses", &moved)] {
            let mut node = initialised();
            assert_eq!(settle(&mut node, machine), (1, None), "{claim}");
        }
        let both = Instance { addresses: moved.addresses, ..resized };
        let mut node = initialised();
        assert_eq!(settle(&mut node, &both), (2, None));
        assert_eq!(node.labels["node.kubernetes.io/instance-type"], "t2.large");
        assert_eq!(node.addresses[0].value, "10.0.0.2");
    }

    #[test]
    fn the_order_of_addresses_matters_and_two_of_a_type_are_no_difference_by_themselves() {
        let pair = ["10.0.0.1", "2001:db8::1"].map(|ip| Address::new(AddressKind::InternalIp, ip));
        let machine = Instance { addresses: pair.to_vec(), ..machine() };
        let mut node = initialised();
        assert_eq!(settle(&mut node, &machine), (1, None));
        assert_eq!(settle(&mut node, &machine), (0, None));
        let [first, second] = pair;
        assert_eq!(settle(&mut node, &Instance { addresses: vec![second, first], ..machine }), (1, None));
    }

    #[test]
    fn a_node_that_works_keeps_its_addresses_where_the_cloud_lists_none_that_reaches_it() {
        let name = Address::new(AddressKind::InternalDns, "a.internal");
        for addresses in [vec![], vec![name]] {
            let mut node = initialised();
            assert_eq!(settle(&mut node, &Instance { addresses, ..machine() }), (0, None));
        }
    }

    #[test]
    fn a_node_that_nobody_could_reach_keeps_its_taint() {
        let silent = Instance { addresses: Vec::new(), ..machine() };
        assert_eq!(settle(&mut node(), &silent), (0, Some(Blocked::NoAddress)));
        let own = vec![Address::new(AddressKind::InternalIp, "10.0.0.9")];
        assert_eq!(settle(&mut NodeFacts { addresses: own, ..node() }, &silent), (1, None));
    }

    #[test]
    fn a_wrong_node_ip_blocks_a_node_that_waits_and_only_the_addresses_of_one_that_works() {
        let malformed = NodeIps::Malformed("why".to_owned());
        let ip = "10.9.9.9".parse().unwrap();
        for (node_ips, why) in [
            (malformed, Blocked::NodeIpMalformed("why".to_owned())),
            (NodeIps::Given(vec![ip]), Blocked::NodeIpUnknown(ip)),
        ] {
            let mut waiting = NodeFacts { node_ips: node_ips.clone(), ..node() };
            assert_eq!(settle(&mut waiting, &machine()), (0, Some(why.clone())));
            let resized = Instance { instance_type: Some("t2.large".to_owned()), ..machine() };
            let mut works = NodeFacts { node_ips, ..initialised() };
            assert_eq!(settle(&mut works, &resized), (1, Some(why)));
            assert_eq!(works.labels["node.kubernetes.io/instance-type"], "t2.large");
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["", "a", "b-1", "c.d", "not good", "-x"]).prop_map(str::to_owned)
    }

    fn any_key() -> impl Strategy<Value = String> {
        prop::sample::select(vec![
            "x",
            "y",
            "z.io/q",
            "k8s.io/no",
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
        ])
        .prop_map(str::to_owned)
    }

    fn any_machine() -> impl Strategy<Value = Instance> {
        let address = (prop::sample::select(AddressKind::ALL.to_vec()), 0_u8..3)
            .prop_map(|(kind, n)| Address::new(kind, format!("10.0.0.{n}")));
        (
            prop::option::of(any_text()),
            prop::option::of(any_text()),
            prop::collection::vec(address, 0..4),
            prop::collection::vec((any_key(), any_text()), 0..4),
        )
            .prop_map(|(zone, instance_type, addresses, labels)| Instance {
                zone,
                instance_type,
                addresses,
                labels,
                ..machine()
            })
    }

    prop_compose! {
        fn any_node()(
            hint in prop::option::of(0_u8..3),
            labels in prop::collection::btree_map(any_key(), "[ab]", 0..4),
            owned_labels in prop::collection::btree_set(any_key(), 0..4),
            taints in prop::sample::subsequence(vec![
                taint("other", "NoExecute"),
                taint(TAINT_UNINITIALIZED, "NoSchedule"),
                taint(TAINT_UNINITIALIZED, "NoExecute"),
            ], 0..=3),
            provider_id in prop::option::of(Just(ProviderId::parse("fake://given").unwrap())),
        ) -> NodeFacts {
            let node_ips = NodeIps::Given(hint.map(|n| [10, 0, 0, n].into()).into_iter().collect());
            NodeFacts { provider_id, taints, node_ips, labels, owned_labels, ..node() }
        }
    }

    proptest! {
        #[test]
        fn plans_come_to_rest_after_two_writes_also_when_the_machine_changes(
            given in any_node(),
            machines in prop::collection::vec(any_machine(), 1..4),
        ) {
            let mut node = given.clone();
            let mut waits = given.is_uninitialised();
            for machine in &machines {
                let before = node.clone();
                let (writes, blocked) = settle(&mut node, machine);
                prop_assert!(writes <= 2);
                prop_assert_eq!(settle(&mut node, machine), (0, blocked.clone()), "nothing is written twice");
                if waits && blocked.is_some() {
                    prop_assert_eq!(&node, &before, "a Node waits as it is, or is complete");
                }
                prop_assert!(!waits || blocked.is_some() || reachable(&node.addresses));
                waits &= blocked.is_some();
                prop_assert_eq!(node.is_uninitialised(), waits);
            }
            let others = |node: &NodeFacts| -> Vec<_> {
                node.taints.iter().filter(|taint| taint.key == "other").cloned().collect()
            };
            prop_assert_eq!(others(&node), others(&given));
            prop_assert!(given.provider_id.is_none() || node.provider_id == given.provider_id);
        }

        #[test]
        fn nobody_elses_label_changes(given in any_node(), machines in prop::collection::vec(any_machine(), 1..4)) {
            let mut node = given.clone();
            for machine in &machines {
                settle(&mut node, machine);
            }
            let zone = |key: &str| key.ends_with("/zone");
            for (key, value) in given.labels.iter().filter(|(key, _)| !given.owned_labels.contains(*key)) {
                prop_assert!(zone(key) || node.labels.get(key) == Some(value), "{key} changed");
            }
            for key in given.labels.keys().filter(|key| crate::well_known::is_reserved(key)) {
                prop_assert!(node.labels.contains_key(key), "{key} was removed");
            }
            for (key, value) in node.labels.iter().filter(|(key, _)| !given.labels.contains_key(*key)) {
                prop_assert!(zone(key) || node.owned_labels.contains(key) || key.ends_with("/instance-type")
                    || key.ends_with("/region"), "{key}={value} is nobody's");
            }
        }
    }
}
