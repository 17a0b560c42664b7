//! The labels that a Node gets from its instance, and which of its labels Pileus owns: may change and remove again.
//!
//! Pileus owns a label that it has set itself. The annotation [`ANNOTATION_OWNED_LABELS`] records this, in the same write as
//! the label. An editor of the annotation could claim other labels for Pileus, so Pileus never owns a key that is
//! reserved for Kubernetes: roles and exclusions depend on such keys, and the API server protects them from kubelets
//! (`NodeRestriction`). Any other label the editor could change without Pileus.
//!
//! Pure.
//!
//! [`ANNOTATION_OWNED_LABELS`]: crate::well_known::ANNOTATION_OWNED_LABELS

use std::collections::{BTreeMap, BTreeSet};

use pileus_cloud::Instance;

use crate::facts::node::NodeFacts;
use crate::well_known::{LABELS_INSTANCE_TYPE, LABELS_REGION, LABELS_ZONE, TOPOLOGY_LABELS, is_reserved};

/// The longest name or value of a label, in bytes.
const MAX_LENGTH: usize = 63;

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
/// - Type, zone and region of the cloud replace any other value, under the current and the old key. Where the cloud gives
///   none, the value of the old key is copied to the current one, as upstream does.
/// - Other labels of the cloud never replace a value that another client has set, and never take a reserved key. Labels that
///   Pileus owns follow the cloud, and are removed when the cloud no longer has them (U-08).
pub(super) fn label_changes(node: &NodeFacts, instance: &Instance) -> LabelChanges {
    let mut changes: BTreeMap<_, _> =
        topology_labels(node, instance).map(|(key, value)| (key, Some(value))).collect();
    let extra: BTreeMap<_, _> = instance
        .labels
        .iter()
        .filter(|(key, value)| !is_reserved(key) && is_label(key, value))
        .cloned()
        .collect();
    let may_own = |key: &String| node.owned_labels.contains(key) || !node.labels.contains_key(key);
    let ours: BTreeMap<_, _> = extra.into_iter().filter(|(key, _)| may_own(key)).collect();
    let owned: BTreeSet<_> = ours.keys().cloned().collect();
    let lost = node.owned_labels.difference(&owned);
    let lost = lost.filter(|key| !is_reserved(key) && node.labels.contains_key(*key));
    changes.extend(lost.map(|key| (key.clone(), None)));
    changes.extend(ours.into_iter().map(|(key, value)| (key, Some(value))));
    changes.retain(|key, value| node.labels.get(key) != value.as_ref());
    LabelChanges { changes, owned: (owned != node.owned_labels).then_some(owned) }
}

/// The desired labels of type, zone and region.
fn topology_labels(node: &NodeFacts, instance: &Instance) -> impl Iterator<Item = (String, String)> {
    let reported: BTreeMap<_, _> =
        reported(instance).filter(|([key, _], value)| is_label(key, value)).collect();
    TOPOLOGY_LABELS.into_iter().flat_map(move |keys| {
        let [current, old] = keys;
        let pairs = match (reported.get(&keys), node.labels.get(old)) {
            (Some(value), _) => vec![(current, *value), (old, *value)],
            (None, Some(value)) => vec![(current, value)],
            (None, None) => Vec::new(),
        };
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect::<Vec<_>>()
    })
}

/// What the cloud gives that can't be a label of a Node, as `key=value`.
pub(super) fn invalid_labels(instance: &Instance) -> Vec<String> {
    let topology =
        reported(instance).map(|([key, _], value)| (key, value)).filter(|(key, value)| !is_label(key, value));
    let extra = instance.labels.iter().map(|(key, value)| (key.as_str(), value));
    let extra = extra.filter(|(key, value)| is_reserved(key) || !is_label(key, value));
    topology.chain(extra).map(|(key, value)| format!("{}={}", truncated(key), truncated(value))).collect()
}

/// The first part of a text, as long as a label could be. A text of a provider may be as large as its memory.
fn truncated(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_LENGTH)).unwrap_or_default()
}

/// Type, zone and region as the cloud reports them, each with the current and the old key of its label.
fn reported(instance: &Instance) -> impl Iterator<Item = ([&'static str; 2], &String)> {
    let facts = [
        (LABELS_INSTANCE_TYPE, &instance.instance_type),
        (LABELS_ZONE, &instance.zone),
        (LABELS_REGION, &instance.region),
    ];
    facts
        .into_iter()
        .filter_map(|(keys, value)| Some((keys, value.as_ref().filter(|value| !value.is_empty())?)))
}

/// Whether the API server accepts a label. An invalid one would make it reject the whole write, and with it the removal of the
/// taint.
fn is_label(key: &str, value: &str) -> bool {
    let word = |text: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= MAX_LENGTH
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
            ("it isn't adopted where it is equal", &[("rack", "7")], &[], &[("rack", "7")], &[], None),
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
    fn invalid_labels_are_returned_for_the_log() {
        let cloud = instance(&[("rack", "7"), ("k8s.io/x", "y"), ("a b", "c")]);
        let cloud = Instance { zone: Some("eu west".to_owned()), ..cloud };
        assert_eq!(invalid_labels(&cloud), ["topology.kubernetes.io/zone=eu west", "k8s.io/x=y", "a b=c"]);
        assert_eq!(show(&label_changes(&node(&[], &[]), &cloud)).0, ["rack=7"]);
        let long = "ü".repeat(1_000_000);
        let cloud = Instance { labels: vec![(long.clone(), long)], ..instance(&[]) };
        assert_eq!(invalid_labels(&cloud).iter().map(String::len).collect::<Vec<_>>(), [125]);
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
