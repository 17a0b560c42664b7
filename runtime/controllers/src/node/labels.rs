//! The labels that a Node gets from its instance, and which of its labels Pileus owns: may change and remove again.
//!
//! Pileus owns a label that it has set itself, and one that it finds with the very value that the cloud gives: the controller
//! that managed the Node before has set it, and it would stop following the instance after a migration. The annotation
//! [`ANNOTATION_OWNED_LABELS`] records this, in the same write as the label. An editor of the annotation could claim other labels for Pileus, so Pileus never owns a key that is
//! reserved for Kubernetes: roles and exclusions depend on such keys, and the API server protects them from kubelets
//! (`NodeRestriction`). Any other label the editor could change without Pileus.
//!
//! Pure.
//!
//! [`ANNOTATION_OWNED_LABELS`]: crate::well_known::ANNOTATION_OWNED_LABELS

use std::collections::{BTreeMap, BTreeSet};

use pileus_cloud::Instance;

use crate::facts::node::NodeFacts;
use crate::label_syntax::{MAX_LENGTH, is_key, is_value};
use crate::well_known::{LABELS_INSTANCE_TYPE, LABELS_REGION, LABELS_ZONE, TOPOLOGY_LABELS, is_reserved};

/// The most labels of the cloud that a Node gets: their keys, which the annotation repeats, fit into it. Of more, those whose keys
/// come first are taken, so that the choice doesn't depend on the cloud's order.
const MAX_LABELS: usize = 256;

/// The most labels that can't be taken and are named to users.
const MAX_INVALID: usize = 8;

/// The changes to a Node's labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LabelChanges {
    /// The values to set, by key. `None` removes a label.
    pub(super) changes: BTreeMap<String, Option<String>>,
    /// The keys of the labels that Pileus owns then, where they differ from the annotation.
    pub(super) owned: Option<BTreeSet<String>>,
}

impl LabelChanges {
    /// Whether there is nothing to change.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.owned.is_none()
    }
}

/// The changes that bring a Node's labels up to date:
///
/// - Type, zone and region of the cloud replace any other value, under the current and the old key. An initialized Node that has
///   the current key alone keeps it alone: cloud-node-manager writes no old keys. Where the cloud gives none, the value of the
///   old key is copied to the current one, as upstream does.
/// - Other labels of the cloud never replace a different value that another client has set, and never take a reserved key. One
///   with the value that the cloud gives is adopted. Labels that Pileus owns follow the cloud, and are removed when the cloud
///   no longer has them (U-08).
pub(super) fn label_changes(node: &NodeFacts, instance: &Instance) -> LabelChanges {
    let mut changes: BTreeMap<_, _> =
        topology_labels(node, instance).map(|(key, value)| (key, Some(value))).collect();
    let may_own = |key: &str, value: &str| {
        node.owned_labels.contains(key) || node.labels.get(key).is_none_or(|present| present == value)
    };
    let extra = extra_labels(instance).take(MAX_LABELS);
    let ours: BTreeMap<_, _> = extra.filter(|(key, value)| may_own(key, value)).collect();
    let owned: BTreeSet<_> = ours.keys().map(|key| (*key).to_owned()).collect();
    let lost = node.owned_labels.difference(&owned);
    let lost = lost.filter(|key| !is_reserved(key) && node.labels.contains_key(key));
    changes.extend(lost.map(|key| (key.clone(), None)));
    changes.extend(ours.into_iter().map(|(key, value)| (key.to_owned(), Some(value.to_owned()))));
    changes.retain(|key, value| node.labels.get(key) != value.as_deref());
    LabelChanges { changes, owned: (owned != node.owned_labels).then_some(owned) }
}

/// The other labels of the cloud that a Node can have, by key. The last of two values wins.
fn extra_labels(instance: &Instance) -> impl Iterator<Item = (&str, &str)> {
    let labels = instance.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let valid: BTreeMap<_, _> =
        labels.filter(|(key, value)| !is_reserved(key) && is_label(key, value)).collect();
    valid.into_iter()
}

/// The desired labels of type, zone and region.
fn topology_labels(node: &NodeFacts, instance: &Instance) -> impl Iterator<Item = (String, String)> {
    let reported = topology_facts(instance).into_iter();
    let reported: BTreeMap<_, _> = reported
        .filter_map(|(keys, value)| {
            Some((keys, value.as_deref().filter(|value| !value.is_empty() && is_value(value))?))
        })
        .collect();
    TOPOLOGY_LABELS.into_iter().flat_map(move |keys| {
        let [current, old] = keys;
        let pairs = match (reported.get(&keys), node.labels.get(old)) {
            (Some(value), None) if !node.is_uninitialized() && node.labels.contains_key(current) => {
                vec![(current, *value)]
            }
            (Some(value), _) => vec![(current, *value), (old, *value)],
            (None, Some(value)) => vec![(current, value)],
            (None, None) => Vec::new(),
        };
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect::<Vec<_>>()
    })
}

/// What the cloud gives that can't be a label of a Node, as sentences that say which fact and why.
pub(super) fn invalid_labels(instance: &Instance) -> Vec<String> {
    const RULE: &str =
        "not a label value (up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends)";
    let names = ["instance type", "zone", "region"];
    let topology = names.into_iter().zip(topology_facts(instance)).filter_map(|(name, (_, value))| {
        let value = value.as_ref().filter(|value| !value.is_empty() && !is_value(value))?;
        Some(format!("{name} {:?}: {RULE}", truncated(value)))
    });
    let extra = instance.labels.iter().filter_map(|(key, value)| {
        let why = if is_reserved(key) {
            "the key is reserved for Kubernetes"
        } else if !is_key(key) {
            "not a label key"
        } else if !is_value(value) {
            RULE
        } else {
            return None;
        };
        Some(format!("label {:?}={:?}: {why}", truncated(key), truncated(value)))
    });
    let mut invalid: Vec<_> = topology.chain(extra).collect();
    let others = invalid.len().saturating_sub(MAX_INVALID);
    invalid.truncate(MAX_INVALID);
    invalid.extend((others > 0).then(|| format!("{others} more labels")));
    let valid = extra_labels(instance).count();
    invalid.extend(
        (valid > MAX_LABELS)
            .then(|| format!("{} of {valid} labels: the limit is {MAX_LABELS}", valid - MAX_LABELS)),
    );
    invalid
}

/// The first part of a text, as long as a label could be. A text of a provider may be as large as its memory.
fn truncated(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_LENGTH)).unwrap_or_default()
}

/// Type, zone and region as the cloud reports them, each with the current and the old key of its label.
fn topology_facts(instance: &Instance) -> [([&'static str; 2], &Option<String>); 3] {
    [
        (LABELS_INSTANCE_TYPE, &instance.instance_type),
        (LABELS_ZONE, &instance.zone),
        (LABELS_REGION, &instance.region),
    ]
}

/// Whether the API server accepts a label. An invalid one would make it reject the whole write, and with it the removal of the
/// taint.
fn is_label(key: &str, value: &str) -> bool {
    is_key(key) && is_value(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Labels;
    use pileus_cloud::{InstanceState, ProviderId};

    type Pairs = &'static [(&'static str, &'static str)];

    fn pairs(labels: Pairs) -> Vec<(String, String)> {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn node(labels: Pairs, owned: &[&str]) -> NodeFacts {
        NodeFacts {
            labels: pairs(labels).into_iter().collect(),
            owned_labels: owned.iter().map(|key| (*key).to_owned()).collect(),
            ..NodeFacts::registered("a")
        }
    }

    /// An instance with nothing but these labels.
    fn instance(labels: Pairs) -> Instance {
        Instance {
            provider_id: ProviderId::parse("fake://12345").unwrap(),
            instance_type: None,
            zone: None,
            region: None,
            addresses: Vec::new(),
            labels: pairs(labels),
            state: InstanceState::Running,
            left_out: Vec::new(),
        }
    }

    /// The changes in the notation of `kubectl label`, and the owned keys where they change.
    fn show(labels: &LabelChanges) -> (Vec<String>, Option<String>) {
        let change = |(key, value): (&String, &Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => format!("{key}-"),
        };
        let owned =
            labels.owned.as_ref().map(|owned| owned.iter().map(String::as_str).collect::<Vec<_>>().join(","));
        (labels.changes.iter().map(change).collect(), owned)
    }

    /// The claim; the Node's labels and owned keys; the cloud's labels; the expected changes and owned keys.
    type Row =
        (&'static str, Pairs, &'static [&'static str], Pairs, &'static [&'static str], Option<&'static str>);

    #[test]
    fn only_an_owned_label_follows_the_cloud() {
        let rows: &[Row] = &[
            ("a new label is owned", &[], &[], &[("rack", "7")], &["rack=7"], Some("rack")),
            ("it changes with the cloud", &[("rack", "7")], &["rack"], &[("rack", "8")], &["rack=8"], None),
            ("it is removed with the cloud", &[("rack", "7")], &["rack"], &[], &["rack-"], Some("")),
            (
                "it is restored where another client removed it",
                &[],
                &["rack"],
                &[("rack", "7")],
                &["rack=7"],
                None,
            ),
            (
                "it is corrected where another client changed it",
                &[("rack", "x")],
                &["rack"],
                &[("rack", "7")],
                &["rack=7"],
                None,
            ),
            ("nothing differs", &[("rack", "7")], &["rack"], &[("rack", "7")], &[], None),
            ("a label of another owner stays", &[("rack", "x")], &[], &[("rack", "7")], &[], None),
            ("it is adopted where it is equal", &[("rack", "7")], &[], &[("rack", "7")], &[], Some("rack")),
            (
                "of the former manager's labels those that are as the cloud says",
                &[("rack", "7"), ("row", "1"), ("team", "x")],
                &[],
                &[("rack", "7"), ("row", "2")],
                &[],
                Some("rack"),
            ),
            ("a label that is gone everywhere is no longer owned", &[], &["rack"], &[], &[], Some("")),
            (
                "an invalid value counts as none",
                &[("rack", "7")],
                &["rack"],
                &[("rack", "a b")],
                &["rack-"],
                Some(""),
            ),
            (
                "the last of two values of the cloud wins",
                &[],
                &[],
                &[("a", "1"), ("a", "2")],
                &["a=2"],
                Some("a"),
            ),
            (
                "several at once",
                &[("b", "1"), ("c", "1")],
                &["b", "c"],
                &[("a", "1"), ("c", "2")],
                &["a=1", "b-", "c=2"],
                Some("a,c"),
            ),
        ];
        for (claim, present, owned, cloud, changes, ours) in rows {
            let got = show(&label_changes(&node(present, owned), &instance(cloud)));
            assert_eq!(
                got,
                (changes.iter().map(|&change| change.to_owned()).collect(), ours.map(str::to_owned)),
                "{claim}"
            );
        }
    }

    #[test]
    fn a_forged_annotation_gives_no_ownership_of_reserved_labels() {
        let present: Pairs = &[
            ("node-restriction.kubernetes.io/tenant", "a"),
            ("node-role.kubernetes.io/control-plane", ""),
            ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
            ("topology.kubernetes.io/zone", "by-hand"),
            ("kubernetes.io/hostname", "a"),
            ("x.k8s.io/y", "z"),
        ];
        let forged: Vec<_> = present.iter().map(|(key, _)| *key).collect();
        let node = node(present, &forged);
        let cloud: Pairs = &[("node-restriction.kubernetes.io/tenant", "b"), ("x.k8s.io/new", "z")];
        for cloud in [&[][..], cloud] {
            let (changes, ours) = show(&label_changes(&node, &instance(cloud)));
            assert!(changes.is_empty(), "{changes:?}");
            assert_eq!(ours.as_deref(), Some(""), "the annotation is corrected");
        }
    }

    #[test]
    fn a_malformed_annotation_does_no_harm() {
        let node =
            node(&[("team", "x")], &["", "/", "a b", "Team", "team/", "metadata", "pileus.dev/owned-labels"]);
        let (changes, ours) = show(&label_changes(&node, &instance(&[("rack", "7")])));
        assert_eq!((changes, ours.as_deref()), (vec!["rack=7".to_owned()], Some("rack")));
    }

    #[test]
    fn what_the_cloud_says_holds_under_both_keys_and_else_the_old_key_holds() {
        const CURRENT: &str = LABELS_ZONE[0];
        const OLD: &str = LABELS_ZONE[1];
        let rows: [(&str, Pairs, Option<&str>, Pairs); 8] = [
            ("reported", &[], Some("z"), &[(CURRENT, "z"), (OLD, "z")]),
            (
                "reported, and the Node has other values",
                &[(CURRENT, "x"), (OLD, "y")],
                Some("z"),
                &[(CURRENT, "z"), (OLD, "z")],
            ),
            ("reported, and the Node has the values", &[(CURRENT, "z"), (OLD, "z")], Some("z"), &[]),
            ("not reported, old alone", &[(OLD, "y")], None, &[(CURRENT, "y")]),
            ("not reported, and they differ", &[(CURRENT, "x"), (OLD, "y")], None, &[(CURRENT, "y")]),
            ("not reported, current alone", &[(CURRENT, "x")], None, &[]),
            ("reported, but empty", &[(CURRENT, "x")], Some(""), &[]),
            ("reported, but invalid", &[(CURRENT, "x"), (OLD, "y")], Some("eu west"), &[(CURRENT, "y")]),
        ];
        for (claim, present, zone, expected) in rows {
            let node = node(present, &[]);
            let instance = Instance { zone: zone.map(str::to_owned), ..instance(&[]) };
            let expected = pairs(expected).into_iter().map(|(key, value)| (key, Some(value))).collect();
            assert_eq!(
                label_changes(&node, &instance),
                LabelChanges { changes: expected, owned: None },
                "{claim}"
            );
        }
    }

    #[test]
    fn an_initialized_node_without_an_old_key_gets_none() {
        const ALONE: Pairs = &[(LABELS_ZONE[0], "z")];
        let zone = |zone: &str| Instance { zone: Some(zone.to_owned()), ..instance(&[]) };
        let [current, old] = LABELS_ZONE;
        let joining = node(ALONE, &[]);
        let initialized = NodeFacts { taints: Vec::new(), ..joining.clone() };
        let bare = NodeFacts { labels: Labels::default(), ..initialized.clone() };
        for (claim, node, reported, expected) in [
            ("a Node that joins gets it", &joining, "z", &[(old, "z")][..]),
            ("an equal value stays alone", &initialized, "z", &[]),
            ("another value of the cloud is written alone", &initialized, "y", &[(current, "y")]),
            ("a Node without either gets both", &bare, "z", &[(current, "z"), (old, "z")]),
        ] {
            let expected = expected.iter().map(|&(key, value)| (key.to_owned(), Some(value.to_owned())));
            assert_eq!(label_changes(node, &zone(reported)).changes, expected.collect(), "{claim}");
        }
    }

    #[test]
    fn a_label_of_a_former_manager_follows_the_instance_once_it_was_as_the_cloud_says() {
        let mut node = node(&[("rack", "7"), (LABELS_ZONE[0], "z"), (LABELS_ZONE[1], "z")], &[]);
        let cloud = |rack: Pairs, zone: &str| Instance { zone: Some(zone.to_owned()), ..instance(rack) };
        for (rack, zone, changes) in [
            (&[("rack", "7")][..], "z", &[][..]),
            (
                &[("rack", "8")],
                "y",
                &["failure-domain.beta.kubernetes.io/zone=y", "rack=8", "topology.kubernetes.io/zone=y"],
            ),
            (&[], "y", &["rack-"]),
        ] {
            let planned = label_changes(&node, &cloud(rack, zone));
            assert_eq!(show(&planned).0, changes);
            for (key, value) in planned.changes {
                match value {
                    Some(value) => node.labels.insert(&key, &value),
                    None => node.labels.remove(&key),
                }
            }
            node.owned_labels = planned.owned.unwrap_or(node.owned_labels);
        }
    }

    #[test]
    fn what_can_not_be_a_label_is_left_out_and_named_with_its_reason() {
        let cloud = instance(&[("rack", "7"), ("k8s.io/x", "y"), ("a b", "c"), ("row", "Row 3")]);
        let cloud = Instance {
            zone: Some("Default Group".to_owned()),
            instance_type: Some("Server Auction".to_owned()),
            region: Some("eu".to_owned()),
            ..cloud
        };
        let invalid = invalid_labels(&cloud);
        let starts = [
            "instance type \"Server Auction\": not a label value",
            "zone \"Default Group\": not a label value",
            "label \"k8s.io/x\"=\"y\": the key is reserved",
            "label \"a b\"=\"c\": not a label key",
            "label \"row\"=\"Row 3\": not a label value",
        ];
        assert_eq!(invalid.len(), starts.len(), "{invalid:?}");
        assert!(invalid.iter().zip(starts).all(|(it, start)| it.starts_with(start)), "{invalid:?}");
        let taken = show(&label_changes(&node(&[], &[]), &cloud)).0;
        let expected =
            ["failure-domain.beta.kubernetes.io/region=eu", "rack=7", "topology.kubernetes.io/region=eu"];
        assert_eq!(taken, expected);
        let long = "ü".repeat(1_000_000);
        let cloud = Instance { labels: vec![(long.clone(), long)], ..instance(&[]) };
        let invalid = invalid_labels(&cloud);
        assert!(invalid.len() == 1 && invalid[0].len() < 300, "{invalid:?}");
    }

    #[test]
    fn of_three_hundred_labels_the_same_ones_are_taken_in_any_order_of_the_cloud() {
        let label = |n: usize| (format!("tag-{n:03}"), "x".to_owned());
        let of = |labels: Vec<_>| Instance { labels, ..instance(&[]) };
        let sorted = of((0..300).map(label).collect());
        let reversed = of((0..300).rev().map(label).collect());
        let changes = label_changes(&node(&[], &[]), &sorted);
        assert_eq!(
            (changes.changes.len(), &changes),
            (MAX_LABELS, &label_changes(&node(&[], &[]), &reversed))
        );
        assert_eq!(invalid_labels(&sorted), ["44 of 300 labels: the limit is 256"]);
        let invalid = of((0..300).map(|n| (format!("a b {n}"), String::new())).collect());
        assert_eq!(
            (invalid_labels(&invalid).len(), invalid_labels(&invalid)[MAX_INVALID].as_str()),
            (9, "292 more labels")
        );
    }

    #[test]
    fn labels_are_what_the_api_server_takes() {
        let long = "0123456789012345678901234567890123456789012345678901234567890123";
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
            ("a", long, false),
        ] {
            assert_eq!(is_label(key, value), good, "{key}={value}");
        }
    }
}
