//! Plans the next write to a Node from its facts and its instance.
//!
//! A Node that waits to be initialized gets its addresses before the taint is removed, so that no Pod starts on a Node whose
//! addresses are still the kubelet's guess. Upstream does this the other way round (U-05). Everything else is
//! written together with the removal of the taint, so that a Node either waits or is complete.
//!
//! An initialized Node follows its instance: addresses, labels, and the provider ID where it has none (U-08, U-26). A problem
//! with its addresses doesn't block the rest.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use pileus_cloud::{Address, Instance, ProviderId};

use super::addresses::{UnknownNodeIp, addresses, has_ip};
use super::labels::{LabelChanges, label_changes};
use crate::facts::node::{NodeFacts, NodeIps, Taint};
use crate::well_known::TAINT_UNINITIALIZED;

/// What a Node is to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Goal {
    /// This instance.
    Instance(Box<Instance>),
    /// Nothing: the provider deliberately doesn't manage the instance. The Node only loses its uninitialized taint.
    Released,
}

impl Goal {
    /// The provider ID that the Node has afterwards.
    pub(super) fn provider_id<'a>(&'a self, node: &'a NodeFacts) -> Option<&'a ProviderId> {
        let given = match self {
            Self::Instance(instance) => Some(&instance.provider_id),
            Self::Released => None,
        };
        node.provider_id.as_ref().or(given)
    }
}

/// One write to a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Replace `status.addresses` with this list.
    SetAddresses(Vec<Address>),
    /// Complete the Node, in one write that fails if the Node has changed since it was read.
    Complete(Completion),
}

/// What a Node lacks beside its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Completion {
    /// `spec.providerID`, where the Node has none. It can be set only once.
    pub(super) provider_id: Option<ProviderId>,
    /// The labels to set, by key. `None` removes a label.
    pub(super) labels: BTreeMap<String, Option<String>>,
    /// The keys of the labels that Pileus owns afterwards, where they change.
    pub(super) owned_labels: Option<BTreeSet<String>>,
    /// The remaining taints, where the uninitialized taint is removed.
    pub(super) taints: Option<Vec<Taint>>,
    /// Whether the Node gets the mark of its node manager.
    pub(super) marks_node_manager: bool,
}

/// The next step for a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// The Node is up to date.
    Nothing,
    /// Write this, and plan again with the Node as it is then.
    Write(Action),
    /// The Node can't be completed before something else changes.
    Blocked(Blocked),
}

/// Why a Node can't be completed, or can't get the cloud's addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Blocked {
    /// The annotation with `--node-ip` is malformed.
    #[error("{0}")]
    NodeIpMalformed(String),
    /// The kubelet's `--node-ip` asks for an address that the instance doesn't have.
    #[error("the kubelet's --node-ip asks for {0}, which the cloud does not list for this instance")]
    NodeIpUnknown(std::net::IpAddr),
    /// Neither the cloud nor the kubelet knows an IP address of the Node. Without the taint, Pods would start on a Node that
    /// can't be reached (U-06).
    #[error("the instance has no IP address yet")]
    NoAddress,
    /// Only the routes are missing, without which the Node's Pods can't be reached (U-24).
    #[error("the cloud has no route to its Pods yet")]
    NoRoute,
}

/// Plans the first write that a Node needs. The next one follows from the Node as this write leaves it.
pub(super) fn plan(node: &NodeFacts, instance: &Instance) -> Plan {
    if node.is_deleting {
        return Plan::Nothing;
    }
    let blocked = match address_change(node, instance) {
        Ok(Some(addresses)) => return Plan::Write(Action::SetAddresses(addresses)),
        Err(why) if node.is_uninitialized() => return Plan::Blocked(why),
        other => other.err(),
    };
    match (completion(node, instance), blocked) {
        (Some(completion), _) => Plan::Write(Action::Complete(completion)),
        (None, Some(why)) => Plan::Blocked(why),
        (None, None) => Plan::Nothing,
    }
}

/// Plans the write that releases a Node: it waits for nothing that the provider would bring. All else stays as it is.
pub(super) fn release(node: &NodeFacts) -> Plan {
    if node.is_deleting || !node.is_uninitialized() {
        return Plan::Nothing;
    }
    Plan::Write(Action::Complete(Completion {
        provider_id: None,
        labels: BTreeMap::new(),
        owned_labels: None,
        taints: Some(remaining_taints(node)),
        marks_node_manager: false,
    }))
}

/// The first write that a Node needs, where it keeps the taint until it has its routes (U-24). Everything else is written at once, since the routes
/// may need the provider ID.
pub(super) fn plan_with_routes(node: &NodeFacts, instance: &Instance) -> Plan {
    match plan(node, instance) {
        Plan::Write(Action::Complete(completion)) if node.is_uninitialized() && !node.has_routes() => {
            let tainted = Completion { taints: None, ..completion };
            if tainted.provider_id.is_none() && tainted.labels.is_empty() && tainted.owned_labels.is_none() {
                return Plan::Blocked(Blocked::NoRoute);
            }
            Plan::Write(Action::Complete(tainted))
        }
        other => other,
    }
}

/// The same plan for a node manager, which marks its Node in the same write, or in one of its own where nothing else is due.
pub(super) fn with_mark(node: &NodeFacts, plan: Plan) -> Plan {
    if node.has_node_manager || node.is_deleting {
        return plan;
    }
    match plan {
        Plan::Write(Action::Complete(completion)) => {
            Plan::Write(Action::Complete(Completion { marks_node_manager: true, ..completion }))
        }
        Plan::Nothing => Plan::Write(Action::Complete(Completion {
            provider_id: None,
            labels: BTreeMap::new(),
            owned_labels: None,
            taints: None,
            marks_node_manager: true,
        })),
        other => other,
    }
}

/// The desired addresses, where the Node has others. Their order matters, because the first address of a type is the one that
/// is used. Upstream compares them as a map by type (U-07).
fn address_change(node: &NodeFacts, instance: &Instance) -> Result<Option<Vec<Address>>, Blocked> {
    // An initialized Node keeps its addresses where the cloud lists no IP address.
    if !node.is_uninitialized() && !has_ip(&instance.addresses) {
        return Ok(None);
    }
    let node_ips = match &node.node_ips {
        NodeIps::Given(addresses) => addresses,
        NodeIps::Malformed(why) => return Err(Blocked::NodeIpMalformed(why.clone())),
    };
    let wanted = addresses(&instance.addresses, &node.addresses, node_ips)
        .map_err(|UnknownNodeIp(ip)| Blocked::NodeIpUnknown(ip))?;
    if has_ip(&wanted) { Ok((wanted != node.addresses).then_some(wanted)) } else { Err(Blocked::NoAddress) }
}

/// What the Node lacks beside its addresses. `None` where it lacks nothing.
fn completion(node: &NodeFacts, instance: &Instance) -> Option<Completion> {
    // A provider ID can't be changed, so a Node keeps its own even where the cloud writes it differently.
    let provider_id = node.provider_id.is_none().then(|| instance.provider_id.clone());
    let labels = label_changes(node, instance);
    if provider_id.is_none() && labels.is_empty() && !node.is_uninitialized() {
        return None;
    }
    let LabelChanges { changes, owned } = labels;
    Some(Completion {
        provider_id,
        labels: changes,
        owned_labels: owned,
        taints: node.is_uninitialized().then(|| remaining_taints(node)),
        marks_node_manager: false,
    })
}

/// The taints without the uninitialized taint.
fn remaining_taints(node: &NodeFacts) -> Vec<Taint> {
    node.taints.iter().filter(|taint| taint.key != TAINT_UNINITIALIZED).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Labels;
    use crate::facts::node::NetworkUnavailable;
    use pileus_cloud::{AddressKind, InstanceState};
    use proptest::prelude::*;

    fn node() -> NodeFacts {
        NodeFacts::registered("a")
    }

    fn taint(key: &str, effect: &str) -> Taint {
        Taint { key: key.to_owned(), value: None, effect: effect.to_owned(), time_added: None }
    }

    fn instance() -> Instance {
        Instance {
            provider_id: ProviderId::parse("fake://12345").unwrap(),
            instance_type: Some("t1.micro".to_owned()),
            zone: Some("zone-a".to_owned()),
            region: Some("region-a".to_owned()),
            addresses: vec![Address::new(AddressKind::InternalIp, "10.0.0.1")],
            labels: vec![("rack".to_owned(), "7".to_owned())],
            state: InstanceState::Running,
            left_out: Vec::new(),
        }
    }

    /// What the API server makes of an action.
    fn apply(node: &mut NodeFacts, action: Action) {
        match action {
            Action::SetAddresses(addresses) => node.addresses = addresses,
            Action::Complete(Completion {
                provider_id,
                labels,
                owned_labels,
                taints,
                marks_node_manager,
            }) => {
                node.has_node_manager |= marks_node_manager;
                if provider_id.is_some() {
                    assert_eq!(node.provider_id, None, "a provider ID is set once");
                    node.provider_id = provider_id;
                }
                for (key, value) in labels {
                    match value {
                        Some(value) => node.labels.insert(&key, &value),
                        None => node.labels.remove(&key),
                    }
                }
                node.owned_labels = owned_labels.unwrap_or(std::mem::take(&mut node.owned_labels));
                node.taints = taints.unwrap_or(std::mem::take(&mut node.taints));
            }
        }
    }

    /// Carries plans out until there is nothing to do; how many writes that took, and why not all could be done.
    fn settle(node: &mut NodeFacts, instance: &Instance) -> (usize, Option<Blocked>) {
        for writes in 0..3 {
            match plan(node, instance) {
                Plan::Nothing => return (writes, None),
                Plan::Blocked(why) => return (writes, Some(why)),
                Plan::Write(action) => apply(node, action),
            }
        }
        panic!("the writes never end: {:?}", plan(node, instance));
    }

    /// A Node that takes part in the cluster.
    fn initialized() -> NodeFacts {
        let mut node = node();
        assert_eq!(settle(&mut node, &instance()), (2, None));
        node
    }

    #[test]
    fn a_node_is_complete_after_two_writes_and_the_second_removes_the_taint() {
        let mut node = node();
        let Plan::Write(Action::SetAddresses(first)) = plan(&node, &instance()) else {
            panic!("addresses first")
        };
        node.addresses = first;
        assert!(node.is_uninitialized());
        assert_eq!(settle(&mut node, &instance()), (1, None));
        assert!(!node.is_uninitialized());
        assert_eq!(node.provider_id, Some(instance().provider_id));
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
    fn a_node_keeps_only_the_taint_until_its_routes_are_reported() {
        let settle = |node: &mut NodeFacts| {
            while let Plan::Write(action) = plan_with_routes(node, &instance()) {
                apply(node, action);
            }
            plan_with_routes(node, &instance())
        };
        for (condition, has_routes) in [
            (None, false),
            (Some(("True", "NoRouteCreated")), false),
            (Some(("Unknown", "RouteCreated")), false),
            (Some(("False", "CalicoIsUp")), false),
            (Some(("False", "RouteCreated")), true),
        ] {
            let condition = condition.map(|(status, reason): (&str, &str)| NetworkUnavailable {
                status: status.to_owned(),
                reason: reason.to_owned(),
            });
            let mut node = NodeFacts { network_unavailable: condition.clone(), ..node() };
            let left = if has_routes { Plan::Nothing } else { Plan::Blocked(Blocked::NoRoute) };
            assert_eq!(settle(&mut node), left, "{condition:?}");
            assert_eq!(node.is_uninitialized(), !has_routes, "{condition:?}");
            let taints = node.taints.clone();
            assert_eq!(
                node,
                NodeFacts { taints, network_unavailable: condition.clone(), ..initialized() },
                "everything else is written"
            );
            // An initialized Node doesn't need routes.
            let mut works = NodeFacts { network_unavailable: condition, ..initialized() };
            works.labels = Labels::default();
            assert_eq!(settle(&mut works), Plan::Nothing);
        }
    }

    #[test]
    fn a_node_manager_marks_its_node_once_and_not_before_the_taint_goes() {
        let settle = |node: &mut NodeFacts| {
            let mut writes = Vec::new();
            while let Plan::Write(action) = with_mark(node, plan(node, &instance())) {
                apply(node, action);
                writes.push((node.has_node_manager, node.is_uninitialized()));
                assert!(writes.len() < 9, "the writes never end");
            }
            writes
        };
        let mut joins = node();
        assert_eq!(settle(&mut joins), [(false, true), (true, false)]);
        assert_eq!(joins, NodeFacts { has_node_manager: true, ..initialized() });
        assert_eq!(settle(&mut joins), [], "marked already");
        assert_eq!(settle(&mut initialized()), [(true, false)], "of the central process before");
        let going = NodeFacts { is_deleting: true, ..initialized() };
        assert_eq!(with_mark(&going, Plan::Nothing), Plan::Nothing);
        let blocked = Plan::Blocked(Blocked::NoAddress);
        assert_eq!(with_mark(&node(), blocked.clone()), blocked, "a node that isn't served isn't marked");
    }

    #[test]
    fn a_node_that_is_being_deleted_is_left_alone() {
        assert_eq!(plan(&NodeFacts { is_deleting: true, ..node() }, &instance()), Plan::Nothing);
    }

    #[test]
    fn a_node_without_taint_and_provider_id_is_completed_and_keeps_its_taints() {
        let taints = vec![taint("other", "NoExecute")];
        let mut node = NodeFacts { taints: taints.clone(), ..node() };
        assert_eq!(settle(&mut node, &instance()), (2, None));
        assert_eq!(node, NodeFacts { taints, ..initialized() });
    }

    #[test]
    fn every_taint_with_the_key_is_removed_and_others_stay() {
        let taints = vec![
            taint(TAINT_UNINITIALIZED, "NoSchedule"),
            taint("other", "NoExecute"),
            taint(TAINT_UNINITIALIZED, "NoExecute"),
        ];
        let mut node = NodeFacts { taints, ..node() };
        settle(&mut node, &instance());
        assert_eq!(node.taints, [taint("other", "NoExecute")]);
    }

    #[test]
    fn the_kubelets_provider_id_stays() {
        let given = ProviderId::parse("fake://other").unwrap();
        let mut node = NodeFacts { provider_id: Some(given.clone()), ..node() };
        settle(&mut node, &instance());
        assert_eq!(node.provider_id, Some(given));
    }

    #[test]
    fn a_changed_instance_is_followed_part_by_part() {
        let resized = Instance { instance_type: Some("t2.large".to_owned()), ..instance() };
        let moved =
            Instance { addresses: vec![Address::new(AddressKind::InternalIp, "10.0.0.2")], ..instance() };
        for (claim, instance) in [("its labels", &resized), ("its addresses", &moved)] {
            let mut node = initialized();
            assert_eq!(settle(&mut node, instance), (1, None), "{claim}");
        }
        let both = Instance { addresses: moved.addresses, ..resized };
        let mut node = initialized();
        assert_eq!(settle(&mut node, &both), (2, None));
        assert_eq!(&node.labels["node.kubernetes.io/instance-type"], "t2.large");
        assert_eq!(node.addresses[0].value, "10.0.0.2");
    }

    #[test]
    fn the_order_of_addresses_matters_and_two_of_a_type_are_allowed() {
        let pair = ["10.0.0.1", "2001:db8::1"].map(|ip| Address::new(AddressKind::InternalIp, ip));
        let instance = Instance { addresses: pair.to_vec(), ..instance() };
        let mut node = initialized();
        assert_eq!(settle(&mut node, &instance), (1, None));
        assert_eq!(settle(&mut node, &instance), (0, None));
        let [first, second] = pair;
        assert_eq!(settle(&mut node, &Instance { addresses: vec![second, first], ..instance }), (1, None));
    }

    #[test]
    fn an_initialized_node_keeps_its_addresses_where_the_cloud_lists_no_ip() {
        let name = Address::new(AddressKind::InternalDns, "a.internal");
        for addresses in [vec![], vec![name]] {
            let mut node = initialized();
            assert_eq!(settle(&mut node, &Instance { addresses, ..instance() }), (0, None));
        }
    }

    #[test]
    fn a_node_without_reachable_address_keeps_its_taint() {
        let silent = Instance { addresses: Vec::new(), ..instance() };
        assert_eq!(settle(&mut node(), &silent), (0, Some(Blocked::NoAddress)));
        let own = vec![Address::new(AddressKind::InternalIp, "10.0.0.9")];
        assert_eq!(settle(&mut NodeFacts { addresses: own, ..node() }, &silent), (1, None));
    }

    #[test]
    fn a_wrong_node_ip_blocks_a_waiting_node_and_only_the_addresses_of_an_initialized_one() {
        let malformed = NodeIps::Malformed("why".to_owned());
        let ip = "10.9.9.9".parse().unwrap();
        for (node_ips, why) in [
            (malformed, Blocked::NodeIpMalformed("why".to_owned())),
            (NodeIps::Given(vec![ip]), Blocked::NodeIpUnknown(ip)),
        ] {
            let mut waiting = NodeFacts { node_ips: node_ips.clone(), ..node() };
            assert_eq!(settle(&mut waiting, &instance()), (0, Some(why.clone())));
            let resized = Instance { instance_type: Some("t2.large".to_owned()), ..instance() };
            let mut works = NodeFacts { node_ips, ..initialized() };
            assert_eq!(settle(&mut works, &resized), (1, Some(why)));
            assert_eq!(&works.labels["node.kubernetes.io/instance-type"], "t2.large");
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

    fn any_instance() -> impl Strategy<Value = Instance> {
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
                ..instance()
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
            NodeFacts { provider_id, taints, node_ips, labels: labels.into(), owned_labels, ..node() }
        }
    }

    proptest! {
        #[test]
        fn plans_reach_a_fixpoint_after_two_writes_even_when_the_instance_changes(
            given in any_node(),
            instances in prop::collection::vec(any_instance(), 1..4),
        ) {
            let mut node = given.clone();
            let mut waits = given.is_uninitialized();
            for instance in &instances {
                let before = node.clone();
                let (writes, blocked) = settle(&mut node, instance);
                prop_assert!(writes <= 2);
                prop_assert_eq!(settle(&mut node, instance), (0, blocked.clone()), "nothing is written twice");
                if waits && blocked.is_some() {
                    prop_assert_eq!(&node, &before, "a Node waits as it is, or is complete");
                }
                prop_assert!(!waits || blocked.is_some() || has_ip(&node.addresses));
                waits &= blocked.is_some();
                prop_assert_eq!(node.is_uninitialized(), waits);
            }
            let others = |node: &NodeFacts| -> Vec<_> {
                node.taints.iter().filter(|taint| taint.key == "other").cloned().collect()
            };
            prop_assert_eq!(others(&node), others(&given));
            prop_assert!(given.provider_id.is_none() || node.provider_id == given.provider_id);
        }

        #[test]
        fn labels_of_other_owners_never_change(given in any_node(), instances in prop::collection::vec(any_instance(), 1..4)) {
            let mut node = given.clone();
            for instance in &instances {
                settle(&mut node, instance);
            }
            let zone = |key: &str| key.ends_with("/zone");
            let is_adopted = |key: &str, value: &str| {
                instances.iter().any(|it| it.labels.iter().any(|(of, given)| of == key && given == value))
            };
            for (key, value) in given.labels.iter().filter(|(key, _)| !given.owned_labels.contains(*key)) {
                prop_assert!(zone(key) || is_adopted(key, value) || node.labels.get(key) == Some(value), "{key} changed");
            }
            for (key, _) in given.labels.iter().filter(|(key, _)| crate::well_known::is_reserved(key)) {
                prop_assert!(node.labels.contains_key(key), "{key} was removed");
            }
            for (key, value) in node.labels.iter().filter(|(key, _)| !given.labels.contains_key(key)) {
                prop_assert!(zone(key) || node.owned_labels.contains(key) || key.ends_with("/instance-type")
                    || key.ends_with("/region"), "{key}={value} has no owner");
            }
        }
    }
}
