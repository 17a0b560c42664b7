//! Which labels a Node gets from its machine, and which of them are ours to change and to take away again.
//!
//! A label is ours where we have set it ourselves, which the annotation [`ANNOTATION_OWNED_LABELS`] remembers, written
//! together with the label. Whoever may edit the annotation could make us take other labels for ours, so keys that are
//! Kubernetes' own never are: those the API server keeps from a kubelet (`NodeRestriction`), and roles, exclusions and
//! the like hang on them. Any other label such an editor could change without us.
//!
//! [`ANNOTATION_OWNED_LABELS`]: crate::well_known::ANNOTATION_OWNED_LABELS

use std::collections::{BTreeMap, BTreeSet};

use pileus_cloud::Instance;

use crate::facts::node::NodeFacts;
use crate::well_known::{LABELS_INSTANCE_TYPE, LABELS_OF_THE_CLOUD, LABELS_REGION, LABELS_ZONE, is_reserved};

/// The longest name or value of a label, in bytes.
const LONGEST: usize = 63;

/// What to change about a Node's labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Labels {
    /// The values to set, by key; no value for a label to remove.
    pub(super) changes: BTreeMap<String, Option<String>>,
    /// The labels that are ours then, where that is not what the Node says already.
    pub(super) owned: Option<BTreeSet<String>>,
}

impl Labels {
    /// Whether nothing is to be changed.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.owned.is_none()
    }
}

/// What the labels of a Node lack (ccm-behaviour 2.5, 2.6, P-08):
///
/// - What the cloud says of type, zone and region holds whatever stands there, under the current and the old key. Where
///   it says nothing, the current key follows the old one, if there is one.
/// - Its other labels never replace a value that somebody else has set, nor take a key that is Kubernetes' own. Those
///   that are ours follow the cloud, and go when it doesn't name them any more.
pub(super) fn labels(node: &NodeFacts, machine: &Instance) -> Labels {
    let mut changes: BTreeMap<_, _> = own(node, machine).map(|(key, value)| (key, Some(value))).collect();
    let extra: BTreeMap<_, _> = machine
        .labels
        .iter()
        .filter(|(key, value)| !is_reserved(key) && is_label(key, value))
        .cloned()
        .collect();
    let is_ours = |key: &String| node.owned_labels.contains(key) || !node.labels.contains_key(key);
    let ours: BTreeMap<_, _> = extra.into_iter().filter(|(key, _)| is_ours(key)).collect();
    let owned: BTreeSet<_> = ours.keys().cloned().collect();
    let lost = node.owned_labels.difference(&owned);
    let lost = lost.filter(|key| !is_reserved(key) && node.labels.contains_key(*key));
    changes.extend(lost.map(|key| (key.clone(), None)));
    changes.extend(ours.into_iter().map(|(key, value)| (key, Some(value))));
    changes.retain(|key, value| node.labels.get(key) != value.as_ref());
    Labels { changes, owned: (owned != node.owned_labels).then_some(owned) }
}

/// The labels of type, zone and region as they should be.
fn own(node: &NodeFacts, machine: &Instance) -> impl Iterator<Item = (String, String)> {
    let told: BTreeMap<_, _> = told(machine).filter(|([key, _], value)| is_label(key, value)).collect();
    LABELS_OF_THE_CLOUD.into_iter().flat_map(move |keys| {
        let [current, old] = keys;
        let pairs = match (told.get(&keys), node.labels.get(old)) {
            (Some(value), _) => vec![(current, *value), (old, *value)],
            (None, Some(value)) => vec![(current, value)],
            (None, None) => Vec::new(),
        };
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect::<Vec<_>>()
    })
}

/// What the cloud says that can't be a label, as `key=value`, for whoever wonders where it is.
pub(super) fn no_labels(machine: &Instance) -> Vec<String> {
    let own =
        told(machine).map(|([key, _], value)| (key, value)).filter(|(key, value)| !is_label(key, value));
    let extra = machine.labels.iter().map(|(key, value)| (key.as_str(), value));
    let extra = extra.filter(|(key, value)| is_reserved(key) || !is_label(key, value));
    own.chain(extra).map(|(key, value)| format!("{}={}", shown(key), shown(value))).collect()
}

/// As much of a text as a label could hold: what a provider says may be as long as its memory.
fn shown(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default()
}

/// What the cloud says of type, zone and region, each with the current and the old key of its label.
fn told(machine: &Instance) -> impl Iterator<Item = ([&'static str; 2], &String)> {
    let facts = [
        (LABELS_INSTANCE_TYPE, &machine.instance_type),
        (LABELS_ZONE, &machine.zone),
        (LABELS_REGION, &machine.region),
    ];
    facts
        .into_iter()
        .filter_map(|(keys, value)| Some((keys, value.as_ref().filter(|value| !value.is_empty())?)))
}

/// Whether the API server would take a label: one that it refuses would make it refuse the taint's removal with it.
fn is_label(key: &str, value: &str) -> bool {
    let word = |text: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= LONGEST
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

    /// A machine of which the cloud says nothing but these labels.
    fn machine(labels: Pairs) -> Instance {
        Instance {
            provider_id: ProviderId::parse("fake://12345").unwrap(),
            instance_type: None,
            zone: None,
            region: None,
            addresses: Vec::new(),
            labels: pairs(labels),
            state: InstanceState::Running,
        }
    }

    /// The changes as `key=value` or `key-`, as `kubectl label` takes them, and what is ours then, where that changes.
    fn show(labels: &Labels) -> (Vec<String>, Option<String>) {
        let change = |(key, value): (&String, &Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => format!("{key}-"),
        };
        let owned =
            labels.owned.as_ref().map(|owned| owned.iter().map(String::as_str).collect::<Vec<_>>().join(","));
        (labels.changes.iter().map(change).collect(), owned)
    }

    /// A claim; the Node's labels and those that it says are ours; the cloud's; the changes, and what is ours then.
    type Row =
        (&'static str, Pairs, &'static [&'static str], Pairs, &'static [&'static str], Option<&'static str>);

    #[test]
    fn a_label_that_is_ours_follows_the_cloud_and_no_other_does() {
        let rows: &[Row] = &[
            ("a new label becomes ours", &[], &[], &[("rack", "7")], &["rack=7"], Some("rack")),
            ("it changes with the cloud", &[("rack", "7")], &["rack"], &[("rack", "8")], &["rack=8"], None),
            ("it goes with the cloud", &[("rack", "7")], &["rack"], &[], &["rack-"], Some("")),
            ("it comes back where somebody removed it", &[], &["rack"], &[("rack", "7")], &["rack=7"], None),
            (
                "it is put right where somebody changed it",
                &[("rack", "x")],
                &["rack"],
                &[("rack", "7")],
                &["rack=7"],
                None,
            ),
            ("nothing differs", &[("rack", "7")], &["rack"], &[("rack", "7")], &[], None),
            ("a label of somebody else stays", &[("rack", "x")], &[], &[("rack", "7")], &[], None),
            ("it isn't adopted where it is equal", &[("rack", "7")], &[], &[("rack", "7")], &[], None),
            ("what is removed by others and by the cloud is forgotten", &[], &["rack"], &[], &[], Some("")),
            (
                "a value that is no label's is as good as none",
                &[("rack", "7")],
                &["rack"],
                &[("rack", "a b")],
                &["rack-"],
                Some(""),
            ),
            (
                "the last of two words of the cloud holds",
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
            let got = show(&labels(&node(present, owned), &machine(cloud)));
            assert_eq!(
                got,
                (changes.iter().map(|&change| change.to_owned()).collect(), ours.map(str::to_owned)),
                "{claim}"
            );
        }
    }

    #[test]
    fn an_annotation_that_somebody_forged_gives_no_right_over_kubernetes_own_labels() {
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
            let (changes, ours) = show(&labels(&node, &machine(cloud)));
            assert!(changes.is_empty(), "{changes:?}");
            assert_eq!(ours.as_deref(), Some(""), "and the annotation is put right");
        }
    }

    #[test]
    fn an_annotation_full_of_nonsense_does_no_harm() {
        let node =
            node(&[("team", "x")], &["", "/", "a b", "Team", "team/", "metadata", "pileus.dev/owned-labels"]);
        let (changes, ours) = show(&labels(&node, &machine(&[("rack", "7")])));
        assert_eq!((changes, ours.as_deref()), (vec!["rack=7".to_owned()], Some("rack")));
    }

    #[test]
    fn what_the_cloud_says_holds_under_both_keys_and_else_the_old_key_holds() {
        const CURRENT: &str = LABELS_ZONE[0];
        const OLD: &str = LABELS_ZONE[1];
        let rows: [(&str, Pairs, Option<&str>, Pairs); 8] = [
            ("told", &[], Some("z"), &[(CURRENT, "z"), (OLD, "z")]),
            (
                "told, and others stand there",
                &[(CURRENT, "x"), (OLD, "y")],
                Some("z"),
                &[(CURRENT, "z"), (OLD, "z")],
            ),
            ("told, and stands there", &[(CURRENT, "z"), (OLD, "z")], Some("z"), &[]),
            ("not told, old alone", &[(OLD, "y")], None, &[(CURRENT, "y")]),
            ("not told, and they differ", &[(CURRENT, "x"), (OLD, "y")], None, &[(CURRENT, "y")]),
            ("not told, current alone", &[(CURRENT, "x")], None, &[]),
            ("told, but empty", &[(CURRENT, "x")], Some(""), &[]),
            ("told, but no label", &[(CURRENT, "x"), (OLD, "y")], Some("eu west"), &[(CURRENT, "y")]),
        ];
        for (claim, present, zone, expected) in rows {
            let node = node(present, &[]);
            let machine = Instance { zone: zone.map(str::to_owned), ..machine(&[]) };
            let expected = pairs(expected).into_iter().map(|(key, value)| (key, Some(value))).collect();
            assert_eq!(labels(&node, &machine), Labels { changes: expected, owned: None }, "{claim}");
        }
    }

    #[test]
    fn what_can_not_be_a_label_is_told() {
        let cloud = machine(&[("rack", "7"), ("k8s.io/x", "y"), ("a b", "c")]);
        let cloud = Instance { zone: Some("eu west".to_owned()), ..cloud };
        assert_eq!(no_labels(&cloud), ["topology.kubernetes.io/zone=eu west", "k8s.io/x=y", "a b=c"]);
        assert_eq!(show(&labels(&node(&[], &[]), &cloud)).0, ["rack=7"]);
        let long = "ü".repeat(1_000_000);
        let cloud = Instance { labels: vec![(long.clone(), long)], ..machine(&[]) };
        assert_eq!(no_labels(&cloud).iter().map(String::len).collect::<Vec<_>>(), [125]);
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
