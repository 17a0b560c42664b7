//! The Nodes that have no instance, by cause. Each cause is reported once: a Node that works, and one that no provider serves, may
//! otherwise be without an instance for weeks, and no operator would know.
//!
//! Pure: the clock is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{Answer, Error, Provider, Stance};
use tokio::time::Instant;

use crate::claims::NodeOwner;
use crate::events::Reason;
use crate::facts::node::{NodeFacts, Readiness};
use crate::nodes::Change;

/// How long a Node that no provider serves may wait to be initialized before it is reported. Where the cluster has a second
/// cloud-controller-manager, that one initializes the Node.
const UNSERVED_DELAY: Duration = Duration::from_secs(30);

/// Why a Node has no instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// The Node has no provider ID, and the cloud has no instance by its name.
    NotFound,
    /// The cloud has no instance with the Node's provider ID.
    Absent,
    /// The Node waits to be initialized, but no provider here has the scheme of its provider ID.
    ForeignProvider,
    /// The Node waits to be initialized, but the node selectors of several providers match it, so none serves it.
    Contested,
    /// The Node waits to be initialized, but it has no provider ID, and no provider's node selector matches it.
    Unselected,
    /// The Node waits to be initialized, but the provider doesn't manage its instance.
    Unmanaged,
}

/// The Nodes without an instance.
#[derive(Debug, Default)]
pub(super) struct MissingInstances {
    /// The cause by the name of the Node, with its UID.
    causes: BTreeMap<String, (String, Cause)>,
    /// The number of Nodes with each cause.
    counts: BTreeMap<Cause, usize>,
    /// The Nodes that wait to be initialized and that no provider serves, and when each is to be reported.
    unserved: BTreeMap<String, (Arc<NodeFacts>, Instant)>,
    /// Those of them that are yet to be reported, the next one first.
    unreported: BTreeSet<(Instant, String)>,
}

impl Cause {
    /// All causes.
    pub(crate) const ALL: [Self; 6] = [
        Self::NotFound,
        Self::Absent,
        Self::ForeignProvider,
        Self::Contested,
        Self::Unselected,
        Self::Unmanaged,
    ];

    /// Why a Node is served by no provider, if this provider has to report that.
    fn of_unserved(node: &NodeFacts, provider: &str) -> Option<Self> {
        match &node.owner {
            NodeOwner::Unserved { contenders, reporter } if reporter.as_deref() == Some(provider) => {
                Some(match &node.provider_id {
                    Some(_) => Self::ForeignProvider,
                    None if contenders.is_empty() => Self::Unselected,
                    None => Self::Contested,
                })
            }
            NodeOwner::Unserved { .. } | NodeOwner::Provider(_) => None,
        }
    }

    /// The cause as a metric label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Absent => "absent",
            Self::ForeignProvider => "foreign_provider",
            Self::Contested => "contested",
            Self::Unselected => "unselected",
            Self::Unmanaged => "unmanaged",
        }
    }

    /// The reason of the event about it.
    pub(super) const fn reason(self) -> Reason {
        match self {
            Self::Contested => Reason::ProviderConflict,
            Self::NotFound | Self::Absent | Self::ForeignProvider | Self::Unselected | Self::Unmanaged => {
                Reason::InstanceNotFound
            }
        }
    }

    /// What users read: what was looked for, and what to do.
    pub(super) fn note(self, node: &NodeFacts, provider: &Provider) -> String {
        let (sought, name) = (looked_for(node), &provider.name);
        match self {
            Self::NotFound => format!(
                "The cloud has no instance with {sought}, so provider {name} neither updates this node nor sends it traffic. Give \
                 the node the name of its instance, or start its kubelet with --provider-id"
            ),
            Self::Absent => format!(
                "The cloud has no instance with {sought}: it is gone, or another one was made in its place. If this node still \
                 works, delete it and restart its kubelet, which registers it anew"
            ),
            Self::ForeignProvider => format!(
                "The node waits to be initialized, but its provider ID is of another provider: found {sought}, and provider {name} \
                 serves {}://. Correct the kubelet's --provider-id, or run the cloud-controller-manager of the other provider",
                provider.schemes.join("://, ")
            ),
            Self::Contested => {
                let contenders = match &node.owner {
                    NodeOwner::Unserved { contenders, .. } => contenders.join(" and "),
                    NodeOwner::Provider(owner) => owner.clone(),
                };
                format!(
                    "The node waits to be initialized, but the node selectors of the providers {contenders} match its labels, so \
                     none of them serves it. Correct spec.nodeSelector of these providers or the labels, or start its kubelet \
                     with --provider-id"
                )
            }
            Self::Unselected => "The node waits to be initialized, but it has no provider ID, and spec.nodeSelector of no provider \
                                 matches its labels. Correct a selector or the labels, or start its kubelet with --provider-id"
                .to_owned(),
            Self::Unmanaged => format!(
                "The node waits to be initialized, but provider {name} does not manage its instance; looked for {sought}. Start \
                 its kubelet without --cloud-provider=external, or correct what the provider finds it by"
            ),
        }
    }
}

/// What the instance of a Node was looked up by, in words.
pub(super) fn looked_for(node: &NodeFacts) -> String {
    match &node.provider_id {
        Some(id) => format!("the provider ID {id}"),
        None => format!("the name {:?}", node.name),
    }
}

impl MissingInstances {
    /// Applies a change of a Node, of any provider.
    pub(super) fn observe(&mut self, change: &Change, provider: &str, now: Instant) {
        let node = match change {
            Change::Present(node) if !node.is_deleting => node,
            Change::Present(node) => return self.forget(&node.name),
            Change::Gone(name) => return self.forget(name),
        };
        let known = self.causes.get(&node.name).map(|(uid, _)| uid);
        let unserved = self.unserved.get(&node.name).map(|(known, _)| known);
        if known.or(unserved.map(|known| &known.uid)).is_some_and(|uid| *uid != node.uid) {
            return self.begin(node, provider, now);
        }
        let cause = |node: &NodeFacts| {
            Cause::of_unserved(node, provider)
                .filter(|_| node.is_uninitialized())
                .map(|cause| (cause, node.owner.clone()))
        };
        match (unserved.map(|known| cause(known)), cause(node)) {
            (Some(before), now) if before == now => {
                if let Some((known, _)) = self.unserved.get_mut(&node.name) {
                    *known = Arc::clone(node);
                }
            }
            (None, None) if node.belongs_to(provider) => {}
            (None, None) => self.remove_cause(&node.name),
            _ => self.begin(node, provider, now),
        }
    }

    /// Forgets what was known about a Node, and begins to wait if no provider serves it.
    fn begin(&mut self, node: &Arc<NodeFacts>, provider: &str, now: Instant) {
        self.forget(&node.name);
        if node.is_uninitialized() && Cause::of_unserved(node, provider).is_some() {
            let at = now + UNSERVED_DELAY;
            self.unreported.insert((at, node.name.clone()));
            self.unserved.insert(node.name.clone(), (Arc::clone(node), at));
        }
    }

    /// Applies an answer of the cloud. An absent instance of a ready Node must be confirmed. Returns the cause if it is to be
    /// reported.
    pub(super) fn on_answer(&mut self, node: &NodeFacts, answer: &Result<Answer, Error>) -> Option<Cause> {
        if self.unserved.contains_key(&node.name) {
            return None; // it was asked about before it belonged to no provider
        }
        let waits = node.is_uninitialized();
        let cause = match answer {
            Ok(Answer::Absent) if node.provider_id.is_none() => Cause::NotFound,
            Ok(Answer::Absent) if waits || node.readiness == Readiness::True => Cause::Absent,
            Ok(Answer::Unmanaged(Stance::LeftAlone)) if waits => Cause::Unmanaged,
            Ok(Answer::Found(_) | Answer::Unmanaged(_)) => {
                self.remove_cause(&node.name);
                return None;
            }
            // The lifecycle controller deletes a Node that isn't ready and has no instance. No other answer says anything.
            Ok(Answer::Absent | Answer::Pending(_)) | Err(_) => return None,
        };
        // That a Node which waits has no instance is a failure of its initialization, and reported as such.
        let is_reported = waits && cause != Cause::Unmanaged;
        (self.insert(node, cause) && !is_reported).then_some(cause)
    }

    /// The Nodes that no provider serves and that have waited too long, once each, with the cause.
    pub(super) fn take_unserved(&mut self, provider: &str, now: Instant) -> Vec<(Arc<NodeFacts>, Cause)> {
        let mut due = Vec::new();
        while self.next_unserved().is_some_and(|at| at <= now) {
            let next = self.unreported.pop_first();
            let node = next.and_then(|(_, name)| self.unserved.get(&name)).map(|(node, _)| Arc::clone(node));
            due.extend(node.and_then(|node| Some((Cause::of_unserved(&node, provider)?, node))));
        }
        due.retain(|(cause, node)| self.insert(node, *cause));
        due.into_iter().map(|(cause, node)| (node, cause)).collect()
    }

    /// When [`MissingInstances::take_unserved`] next has a Node.
    pub(super) fn next_unserved(&self) -> Option<Instant> {
        self.unreported.first().map(|(at, _)| *at)
    }

    /// The number of Nodes with this cause.
    pub(super) fn count(&self, cause: Cause) -> usize {
        self.counts.get(&cause).copied().unwrap_or_default()
    }

    /// Stores the cause of a Node. Returns whether it is new.
    fn insert(&mut self, node: &NodeFacts, cause: Cause) -> bool {
        let new = (node.uid.clone(), cause);
        if self.causes.get(&node.name) == Some(&new) {
            return false;
        }
        self.remove_cause(&node.name);
        *self.counts.entry(cause).or_default() += 1;
        self.causes.insert(node.name.clone(), new);
        true
    }

    fn remove_cause(&mut self, name: &str) {
        if let Some((_, cause)) = self.causes.remove(name)
            && let Some(count) = self.counts.get_mut(&cause)
        {
            *count -= 1;
        }
    }

    fn forget(&mut self, name: &str) {
        self.remove_cause(name);
        if let Some((node, at)) = self.unserved.remove(name) {
            self.unreported.remove(&(at, node.name.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pileus_cloud::{ErrorKind, InstanceState};

    use crate::model::{self, PROVIDER, Random, instance};

    fn provider() -> Provider {
        model::provider("model")
    }

    fn node(id: Option<&str>, waits: bool, readiness: Readiness) -> NodeFacts {
        NodeFacts::with_instance("a", id, waits, readiness)
    }

    #[test]
    fn each_cause_is_counted_and_reported_once_until_it_ends() {
        use Readiness::{False, True, Unknown};
        let found = || Ok(Answer::Found(instance("model://1", InstanceState::Running)));
        let own = Some("model://1");
        // Whether the Node waits to be initialized, the answer, the cause, and whether it is reported here.
        for (id, waits, readiness, answer, cause, is_reported) in [
            (None, false, True, Answer::Absent, Some(Cause::NotFound), true),
            (None, false, False, Answer::Absent, Some(Cause::NotFound), true),
            (None, true, False, Answer::Absent, Some(Cause::NotFound), false),
            (own, true, Unknown, Answer::Absent, Some(Cause::Absent), false),
            (own, true, True, Answer::Absent, Some(Cause::Absent), false),
            (own, false, True, Answer::Absent, Some(Cause::Absent), true),
            (own, false, False, Answer::Absent, None, false),
            (own, false, Unknown, Answer::Absent, None, false),
            (own, true, True, Answer::Unmanaged(Stance::LeftAlone), Some(Cause::Unmanaged), true),
            (None, true, False, Answer::Unmanaged(Stance::LeftAlone), Some(Cause::Unmanaged), true),
            (own, false, True, Answer::Unmanaged(Stance::LeftAlone), None, false),
            (None, false, True, Answer::Unmanaged(Stance::LeftAlone), None, false),
            (own, true, True, Answer::Unmanaged(Stance::Released), None, false),
            (None, true, False, Answer::Unmanaged(Stance::Released), None, false),
            (None, false, True, Answer::Unmanaged(Stance::Released), None, false),
            (own, true, True, Answer::Pending(Duration::ZERO), None, false),
        ] {
            let (node, row) =
                (node(id, waits, readiness), format!("{id:?} {waits} {readiness:?} {answer:?}"));
            let mut missing = MissingInstances::default();
            let reported = cause.filter(|_| is_reported);
            assert_eq!(missing.on_answer(&node, &Ok(answer.clone())), reported, "{row}");
            assert_eq!(missing.on_answer(&node, &Ok(answer.clone())), None, "{row}, again");
            let fails = Err(Error::new(ErrorKind::Unavailable(None), "why"));
            assert_eq!(missing.on_answer(&node, &fails), None, "{row}, failed");
            let counted = |missing: &MissingInstances| {
                Cause::ALL.into_iter().flat_map(|of| vec![of; missing.count(of)]).collect::<Vec<_>>()
            };
            assert_eq!(counted(&missing), Vec::from_iter(cause), "{row}");
            assert_eq!(missing.on_answer(&node, &found()), None, "{row}, found");
            assert_eq!(counted(&missing), [], "{row}, found");
            assert_eq!(missing.on_answer(&node, &Ok(answer)), reported, "{row}, a second time");
            missing.observe(&Change::Gone("a".to_owned()), PROVIDER, Instant::now());
            assert_eq!(counted(&missing), [], "{row}, gone");
        }
    }

    /// The Node `a` that no provider serves, for this reason.
    fn unserved(cause: Cause) -> NodeFacts {
        let node = node(None, true, Readiness::True);
        let contenders: &[&str] = match cause {
            Cause::ForeignProvider => return node.unserved("other://7"),
            Cause::Contested => &["x", "y"],
            _ => &[],
        };
        let contenders = contenders.iter().map(|name| (*name).to_owned()).collect();
        NodeFacts { owner: NodeOwner::Unserved { contenders, reporter: Some(PROVIDER.to_owned()) }, ..node }
    }

    #[test]
    fn a_waiting_node_that_no_provider_serves_is_reported_once_after_a_while() {
        type Edit = fn(&mut NodeFacts);
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let provider = |name: &str| NodeOwner::Provider(name.to_owned());
        let rows: [(&str, Edit, bool); 6] = [
            ("it stays", |_| {}, true),
            ("a heartbeat", |node| node.readiness = Readiness::False, true),
            ("another one initializes it", |node| node.taints.clear(), false),
            ("it is deleted", |node| node.is_deleting = true, false),
            ("it registers anew", |node| node.uid = "another".to_owned(), false),
            ("it is ours", |node| node.owner = NodeFacts::registered("a").owner, false),
        ];
        for cause in [Cause::ForeignProvider, Cause::Contested, Cause::Unselected] {
            for (row, change, is_reported) in rows {
                let (mut missing, row) = (MissingInstances::default(), format!("{cause:?}, {row}"));
                missing.observe(&Change::Present(Arc::new(unserved(cause))), PROVIDER, start);
                assert_eq!(missing.next_unserved(), Some(after(30)), "{row}");
                let mut changed = unserved(cause);
                change(&mut changed);
                missing.observe(&Change::Present(Arc::new(changed.clone())), PROVIDER, after(20));
                assert!(missing.take_unserved(PROVIDER, after(29)).is_empty(), "{row}");
                let reported = missing.take_unserved(PROVIDER, after(30));
                let expected = is_reported.then(|| (Arc::new(changed.clone()), cause));
                assert_eq!(reported, Vec::from_iter(expected), "{row}");
                assert!(missing.take_unserved(PROVIDER, after(31)).is_empty(), "{row}: once");
                assert_eq!(missing.count(cause), usize::from(is_reported), "{row}");
                // Another provider takes it over.
                let theirs = NodeFacts { owner: provider("other"), ..changed };
                missing.observe(&Change::Present(Arc::new(theirs)), PROVIDER, after(60));
                assert_eq!((missing.count(cause), missing.next_unserved()), (0, None), "{row}");
            }
        }
    }

    #[test]
    fn one_provider_reports_a_node_that_no_provider_serves_and_again_where_the_cause_changes() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut missing = MissingInstances::default();
        let see = |missing: &mut MissingInstances, node: NodeFacts, seconds| {
            missing.observe(&Change::Present(Arc::new(node)), PROVIDER, after(seconds));
        };
        let due = |missing: &mut MissingInstances, seconds| -> Vec<Cause> {
            missing.take_unserved(PROVIDER, after(seconds)).into_iter().map(|(_, cause)| cause).collect()
        };
        let reporter = Some("other".to_owned());
        let owner = NodeOwner::Unserved { contenders: Vec::new(), reporter };
        see(&mut missing, NodeFacts { owner, ..unserved(Cause::Unselected) }, 0);
        assert_eq!(
            (missing.next_unserved(), due(&mut missing, 99)),
            (None, vec![]),
            "another provider reports it"
        );
        see(&mut missing, unserved(Cause::Unselected), 100);
        assert_eq!(due(&mut missing, 130), [Cause::Unselected]);
        see(&mut missing, unserved(Cause::Contested), 140);
        assert_eq!(missing.count(Cause::Unselected), 0);
        assert_eq!((due(&mut missing, 169), due(&mut missing, 170)), (vec![], vec![Cause::Contested]));
        assert_eq!(missing.count(Cause::Contested), 1);
    }

    #[test]
    fn counts_and_the_next_report_agree_with_a_scan_after_any_history() {
        use Readiness::{False, True, Unknown};
        for seed in 0..100 {
            let (mut random, mut missing) = (Random(seed), MissingInstances::default());
            let mut now = Instant::now();
            for step in 0..60 {
                now += Duration::from_secs(random.below(20));
                let name = *random.pick(&["a", "b", "c"]).unwrap();
                let id = *random.pick(&[None, Some("model://1")]).unwrap();
                let readiness = *random.pick(&[True, False, Unknown]).unwrap();
                let mut node = NodeFacts::with_instance(name, id, random.percent(70), readiness);
                match random.below(6) {
                    0 => node = node.unserved("other://7"),
                    1 => node.owner = unserved(Cause::Contested).owner,
                    2 => node.owner = NodeOwner::Provider("other".to_owned()),
                    _ => {}
                }
                node.uid = random.below(2).to_string();
                let answers = [
                    Answer::Absent,
                    Answer::Unmanaged(Stance::LeftAlone),
                    Answer::Found(instance("model://1", InstanceState::Running)),
                ];
                match random.below(8) {
                    0 => missing.observe(&Change::Gone(name.to_owned()), PROVIDER, now),
                    1..4 => missing.observe(&Change::Present(Arc::new(node)), PROVIDER, now),
                    4..6 => drop(missing.on_answer(&node, &Ok(random.pick(&answers).unwrap().clone()))),
                    _ => drop(missing.take_unserved(PROVIDER, now)),
                }
                let row = format!("seed {seed}, step {step}: {missing:?}");
                for cause in Cause::ALL {
                    let scanned = missing.causes.values().filter(|(_, of)| *of == cause).count();
                    assert_eq!(missing.count(cause), scanned, "{row}");
                }
                let is_reported = |name: &String| missing.causes.contains_key(name);
                let unreported = missing.unserved.iter().filter(|(name, _)| !is_reported(name));
                assert_eq!(missing.next_unserved(), unreported.map(|(_, (_, at))| *at).min(), "{row}");
            }
        }
    }

    #[test]
    fn a_note_says_what_was_looked_for_and_what_to_do() {
        for (cause, id, parts) in [
            (Cause::NotFound, None, ["the name \"a\"", "--provider-id"]),
            (
                Cause::Absent,
                Some("model://1"),
                ["the provider ID model://1", "delete it and restart its kubelet"],
            ),
            (Cause::ForeignProvider, Some("other://1"), ["the provider ID other://1", "serves model://"]),
            (Cause::Contested, None, ["the providers x and y match", "Correct spec.nodeSelector"]),
            (Cause::Unselected, None, ["spec.nodeSelector of no provider", "Correct a selector"]),
            (Cause::Unmanaged, None, ["the name \"a\"", "without --cloud-provider=external"]),
        ] {
            let node = NodeFacts { owner: unserved(cause).owner, ..node(id, true, Readiness::True) };
            let note = cause.note(&node, &provider());
            assert_eq!(cause.reason() == Reason::ProviderConflict, cause == Cause::Contested);
            assert!(parts.iter().all(|part| note.contains(part)), "{note}");
        }
    }
}
