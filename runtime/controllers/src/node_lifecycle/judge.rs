//! Whom a pass asks about, what the answers are worth, and what follows: the controller without its network.
//!
//! A pass goes through here four times: `candidates`, a lookup, `looked_up`, a second lookup of those that are in doubt,
//! `confirmed`, `plan`. Found may be old, but absent must be new: what takes a Node away, or ends what protects it, rests
//! on a direct read that began after the doubt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pileus_cloud::{Answer, Error, InstanceState, Provider, Retry};

use super::breaker::{Breaker, Verdict};
use super::plan::{self, Action, Fate, Finding};
use crate::facts::node::{NodeFacts, Readiness};

/// How old a Node must be to be asked about: a cloud may not show a machine in its first seconds (upstream deletes such
/// Nodes at once, P-01).
const YOUNGEST: SignedDuration = SignedDuration::from_mins(1);

/// How long a Node is left alone after a direct read has contradicted a list: else a list that is wrong would cost a read
/// for each Node in each pass.
const CONTRADICTED: Duration = Duration::from_mins(1);

/// How long it is left alone after an error that somebody has to mend first: else one that may not be deleted would cost
/// a direct read and two events in each pass.
const SLOW: Duration = Duration::from_mins(1);

/// The time, as the caller's clocks tell it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// To compare with what stands in objects.
    pub(super) wall: Timestamp,
    /// Since the controller's start, to measure with: nobody sets this clock.
    pub(super) uptime: Duration,
}

/// A Node that was asked about, and the answer.
pub(super) type Answered = (Arc<NodeFacts>, Result<Answer, Error>);

/// What is decided in one pass, and what must be remembered until the next.
pub(super) struct Judge {
    provider: Provider,
    wants_out_of_service: bool,
    breaker: Breaker,
    /// Until when a Node, by UID, isn't asked about.
    rests: BTreeMap<String, Duration>,
    /// The Nodes, by UID, of whose machines the last answer was an error.
    unknown: BTreeSet<String>,
    /// The Nodes, by UID, that a list lacked and of which no direct read has said anything since: those that nobody lets
    /// go.
    doubted: BTreeSet<String>,
}

/// What one pass has heard of machines, by the UID of the Node.
#[derive(Debug, Default)]
pub(super) struct Findings {
    known: BTreeMap<String, (Arc<NodeFacts>, Finding)>,
    /// How many Nodes a direct read found that a list lacked.
    pub(super) contradicted: u64,
    /// The first of the errors that came instead of an answer.
    pub(super) failed: Option<Error>,
}

/// What a pass writes, and how it stands.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) verdict: Verdict,
    /// The Nodes that are held once this is written.
    pub(super) held: usize,
}

impl Judge {
    pub(super) fn new(provider: Provider, wants_out_of_service: bool) -> Self {
        let (breaker, rests) = (Breaker::default(), BTreeMap::new());
        let (unknown, doubted) = (BTreeSet::new(), BTreeSet::new());
        Self { provider, wants_out_of_service, breaker, rests, unknown, doubted }
    }

    /// The Nodes whose machines are looked up in this pass. None that is ready: its machine is well, whatever a cloud
    /// says.
    pub(super) fn candidates(&mut self, nodes: &[Arc<NodeFacts>], now: Now) -> Vec<Arc<NodeFacts>> {
        self.rests.retain(|_, until| *until > now.uptime);
        let is_old_enough = |node: &NodeFacts| now.wall.duration_since(node.created_at) >= YOUNGEST;
        let of_interest: Vec<_> = nodes
            .iter()
            .filter(|node| self.is_ours(node) && node.readiness != Readiness::True && is_old_enough(node))
            .collect();
        let uids: BTreeSet<_> = of_interest.iter().map(|node| &node.uid).collect();
        self.unknown.retain(|uid| uids.contains(uid));
        self.doubted.retain(|uid| uids.contains(uid));
        of_interest.into_iter().filter(|node| !self.rests.contains_key(&node.uid)).cloned().collect()
    }

    /// How many Nodes are not ready for reasons that the cloud doesn't tell: the last answer about each was an error.
    pub(super) fn unknown(&self) -> usize {
        self.unknown.len()
    }

    /// Takes in what was answered at first; returns the Nodes that need a direct read.
    pub(super) fn looked_up(
        &mut self,
        findings: &mut Findings,
        answers: Vec<Answered>,
        now: Now,
    ) -> Vec<Answered> {
        let mut doubted = Vec::new();
        for (node, answer) in answers {
            let Some(answer) = self.usable(findings, &node, answer, now) else { continue };
            let is_doubted = match finding(&answer, false) {
                // A Node that is held and not released is only asked about to see whether its machine is back.
                None => !node.is_held || plan::is_let_go(&node),
                Some(_) if node.is_held => true,
                Some(found) => {
                    findings.note(&node, found);
                    matches!(found, Finding::Stopped { .. })
                        && self.wants_out_of_service
                        && plan::lacks_out_of_service(&node)
                }
            };
            if is_doubted && answer == Answer::Absent && !plan::is_let_go(&node) {
                self.doubted.insert(node.uid.clone());
            } else {
                self.doubted.remove(&node.uid);
            }
            if is_doubted {
                doubted.push((node, Ok(answer)));
            }
        }
        doubted
    }

    /// Takes in what the direct read said of those that were in doubt.
    pub(super) fn confirmed(
        &mut self,
        findings: &mut Findings,
        doubted: &[Answered],
        answers: Vec<Answered>,
        now: Now,
    ) {
        for ((_, doubt), (node, answer)) in doubted.iter().zip(answers) {
            // Where there is no answer, as where a cloud takes only so many direct reads at a time, the doubt stays.
            if matches!(answer, Ok(Answer::Found(_) | Answer::Absent | Answer::Unmanaged)) {
                self.doubted.remove(&node.uid);
            }
            let Some(answer) = self.usable(findings, &node, answer, now) else { continue };
            let (was_absent, is_absent) = (*doubt == Ok(Answer::Absent), answer == Answer::Absent);
            if was_absent != is_absent {
                self.rest(&node, CONTRADICTED, now);
            }
            findings.contradicted += u64::from(was_absent && !is_absent);
            findings.note(&node, finding(&answer, true).unwrap_or(Finding::Absent));
        }
    }

    /// What follows for all Nodes as they are by now. A finding counts only for a Node about which the same question would
    /// be asked again.
    pub(super) fn plan(&self, nodes: &[Arc<NodeFacts>], findings: &Findings, now: Now) -> Plan {
        let ours = nodes.iter().filter(|node| self.is_ours(node));
        let fates: Vec<_> = ours
            .map(|node| {
                let labels = &self.provider.node_labels;
                let is_same = |asked: &NodeFacts| asked.reference(labels) == node.reference(labels);
                let known = findings.known.get(&node.uid).filter(|(asked, _)| is_same(asked));
                let finding = known.map(|(_, finding)| *finding);
                (Arc::clone(node), plan::fate(node, finding, self.wants_out_of_service, now.wall))
            })
            .collect();
        let present = fates.iter().map(|(node, _)| node.uid.as_str()).collect();
        let is_doubted = |(node, fate): &&(Arc<NodeFacts>, Fate)| {
            *fate == Fate::Rests && node.readiness != Readiness::True && self.doubted.contains(&node.uid)
        };
        let doubted = fates.iter().filter(is_doubted).map(|(node, _)| node.uid.as_str());
        let absent = plan::absent(&fates).into_iter().chain(doubted).collect();
        let verdict = self.breaker.judge(&present, &absent, now.uptime);
        let is_held = |fate: &Fate| match fate {
            Fate::StaysHeld => true,
            Fate::Doomed => verdict.is_open,
            Fate::Rests | Fate::Write(_) => false,
        };
        let held = fates.iter().filter(|(_, fate)| is_held(fate)).count();
        Plan { actions: plan::plan(&fates, verdict), verdict, held }
    }

    /// A Node has been deleted, or may have been, or should be but may not.
    pub(super) fn deleted(&mut self, node: &NodeFacts, is_released: bool, now: Now) {
        if !is_released {
            self.breaker.deleted(&node.uid, now.uptime);
        }
    }

    /// The API server refuses to change a Node, or to delete it.
    pub(super) fn refused(&mut self, node: &NodeFacts, now: Now) {
        self.rest(node, SLOW, now);
    }

    /// Whether a Node is the provider's to look after. Of one with neither a provider ID nor the taint of those that
    /// wait for one, nothing says that it is this cloud's.
    fn is_ours(&self, node: &NodeFacts) -> bool {
        !node.is_deleting
            && (node.provider_id.is_some() || node.is_uninitialised())
            && self.provider.serves(node.provider_id.as_ref())
    }

    /// An answer from which something follows. After any other the Node stays as it is, and is asked about again.
    fn usable(
        &mut self,
        findings: &mut Findings,
        node: &NodeFacts,
        answer: Result<Answer, Error>,
        now: Now,
    ) -> Option<Answer> {
        if let Err(error) = &answer {
            self.unknown.insert(node.uid.clone());
            findings.failed.get_or_insert_with(|| error.clone());
        } else {
            self.unknown.remove(&node.uid);
        }
        let after = match answer {
            Ok(answer @ (Answer::Found(_) | Answer::Absent)) => return Some(answer),
            Ok(Answer::Pending(after)) => after,
            Ok(Answer::Unmanaged) => return None,
            Err(error) => match error.kind.retry() {
                Retry::After(after) => after,
                Retry::Slowly => SLOW,
                Retry::Soon | Retry::WithBackoff | Retry::Uncertain => return None,
            },
        };
        self.rest(node, after, now);
        None
    }

    fn rest(&mut self, node: &NodeFacts, after: Duration, now: Now) {
        self.rests.insert(node.uid.clone(), now.uptime.saturating_add(after));
    }
}

impl Findings {
    fn note(&mut self, node: &Arc<NodeFacts>, finding: Finding) {
        self.known.insert(node.uid.clone(), (Arc::clone(node), finding));
    }
}

/// What an answer says of the machine; none where it says that there is none.
fn finding(answer: &Answer, is_confirmed: bool) -> Option<Finding> {
    let Answer::Found(machine) = answer else { return None };
    Some(match machine.state {
        InstanceState::Running => Finding::Runs,
        InstanceState::Stopped => Finding::Stopped { is_confirmed },
        InstanceState::Unknown => Finding::Exists,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::node::Taint;
    use crate::model::instance;
    use crate::node_lifecycle::plan::Write;
    use crate::well_known::{TAINT_AUTOSCALER_DELETES, TAINT_OUT_OF_SERVICE};
    use pileus_cloud::{ErrorKind, ProviderId};

    fn provider() -> Provider {
        Provider {
            name: "model".to_owned(),
            schemes: vec!["model".to_owned()],
            node_labels: vec!["pool".to_owned()],
            largest_lookup_batch: 1000,
            service_requirements: pileus_cloud::ServiceRequirements::default(),
            load_balancers: None,
            largest_route_batch: 1,
            routes: None,
            instances: None,
        }
    }

    /// A Node that was initialised an hour ago, and isn't ready.
    fn node(name: &str) -> NodeFacts {
        NodeFacts {
            provider_id: Some(ProviderId::parse(&format!("model://{name}")).unwrap()),
            taints: Vec::new(),
            readiness: Readiness::Unknown,
            ..NodeFacts::registered(name)
        }
    }

    fn nodes(count: usize) -> Vec<NodeFacts> {
        (0..count).map(|n| node(&format!("n{n}"))).collect()
    }

    fn at(seconds: u64) -> Now {
        let wall = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        let uptime = Duration::from_secs(seconds);
        Now { wall: wall + SignedDuration::try_from(uptime).unwrap(), uptime }
    }

    fn found(state: InstanceState) -> Answer {
        Answer::Found(instance("model://m", state))
    }

    const ABSENT: Result<Answer, Error> = Ok(Answer::Absent);

    /// A pass in which each question is answered by these; its plan, and whom it asked, at first and directly.
    fn pass(
        judge: &mut Judge,
        nodes: &[NodeFacts],
        now: Now,
        list: impl Fn(&NodeFacts) -> Result<Answer, Error>,
        read: impl Fn(&NodeFacts) -> Result<Answer, Error>,
    ) -> (Plan, Vec<String>, Vec<String>) {
        let nodes: Vec<_> = nodes.iter().cloned().map(Arc::new).collect();
        let names = |asked: &[Answered]| asked.iter().map(|(node, _)| node.name.clone()).collect();
        let mut findings = Findings::default();
        let listed: Vec<_> =
            judge.candidates(&nodes, now).into_iter().map(|node| (Arc::clone(&node), list(&node))).collect();
        let asked = names(&listed);
        let doubted = judge.looked_up(&mut findings, listed, now);
        let answers = doubted.iter().map(|(node, _)| (Arc::clone(node), read(node))).collect();
        judge.confirmed(&mut findings, &doubted, answers, now);
        (judge.plan(&nodes, &findings, now), asked, names(&doubted))
    }

    /// What a plan does, by the name of the Node.
    fn writes(plan: &Plan) -> Vec<(&str, &Write)> {
        plan.actions.iter().map(|action| (action.node.name.as_str(), &action.write)).collect()
    }

    fn counts(plan: &Plan) -> (usize, usize) {
        let of = |wanted: fn(&Write) -> bool| plan.actions.iter().filter(|a| wanted(&a.write)).count();
        (of(|write| matches!(write, Write::Delete { .. })), of(|write| matches!(write, Write::Hold(_))))
    }

    #[test]
    fn asked_about_are_the_providers_own_that_are_old_enough_and_not_ready() {
        type Change = fn(&mut NodeFacts);
        let rows: [(&str, Change, bool); 11] = [
            ("not ready", |node| node.readiness = Readiness::False, true),
            ("silent", |node| node.readiness = Readiness::Unknown, true),
            ("ready", |node| node.readiness = Readiness::True, false),
            ("being deleted", |node| node.is_deleting = true, false),
            ("another's", |node| node.provider_id = Some(ProviderId::parse("other://x").unwrap()), false),
            ("nobody's", |node| node.provider_id = None, false),
            (
                "waiting",
                |node| *node = NodeFacts { created_at: node.created_at, ..NodeFacts::registered("a") },
                true,
            ),
            ("59 s old", |node| node.created_at = at(0).wall - SignedDuration::from_secs(59), false),
            ("60 s old", |node| node.created_at = at(0).wall - SignedDuration::from_secs(60), true),
            ("from the future", |node| node.created_at = at(0).wall + SignedDuration::from_hours(9), false),
            ("held", |node| node.is_held = true, true),
        ];
        for (row, change, is_asked) in rows {
            let mut node = node("a");
            change(&mut node);
            let asked = Judge::new(provider(), false).candidates(&[Arc::new(node)], at(0));
            assert_eq!(asked.len(), usize::from(is_asked), "{row}");
        }
    }

    #[test]
    fn a_direct_read_is_for_what_can_not_be_taken_back() {
        let rows = [
            ("absent", false, None, false, ABSENT, true),
            ("absent, held", true, None, false, ABSENT, false),
            ("absent, held, released", true, Some("uid-a"), false, ABSENT, true),
            ("absent, held, another released", true, Some("uid-b"), false, ABSENT, false),
            ("back", true, None, false, Ok(found(InstanceState::Running)), true),
            ("runs", false, None, true, Ok(found(InstanceState::Running)), false),
            ("stopped", false, None, false, Ok(found(InstanceState::Stopped)), false),
            ("stopped, and its Pods shall move", false, None, true, Ok(found(InstanceState::Stopped)), true),
        ];
        for (row, is_held, released, wants, listed, is_read) in rows {
            let release_deletion = released.map(str::to_owned);
            let node = NodeFacts { is_held, release_deletion, ..node("a") };
            let mut judge = Judge::new(provider(), wants);
            let (_, _, read) = pass(&mut judge, &[node], at(0), |_| listed.clone(), |_| ABSENT);
            assert_eq!(read.len(), usize::from(is_read), "{row}");
        }
        let theirs = Taint {
            key: TAINT_OUT_OF_SERVICE.to_owned(),
            value: None,
            effect: "NoExecute".to_owned(),
            time_added: None,
        };
        let moving = NodeFacts { taints: vec![theirs], ..node("a") };
        let stopped = |_: &NodeFacts| Ok(found(InstanceState::Stopped));
        let (_, _, read) = pass(&mut Judge::new(provider(), true), &[moving], at(0), stopped, |_| ABSENT);
        assert!(read.is_empty(), "stopped, and its Pods move already");
    }

    #[test]
    fn only_a_confirmed_absent_deletes() {
        let pending = || Ok(Answer::Pending(Duration::from_secs(5)));
        let broken = || Err(Error::new(ErrorKind::Broken, "404"));
        for (row, listed, read, is_deleted) in [
            ("both", ABSENT, ABSENT, true),
            ("the list is wrong", ABSENT, Ok(found(InstanceState::Running)), false),
            ("the read fails", ABSENT, broken(), false),
            ("the read is pending", ABSENT, pending(), false),
            ("the read says that it is unmanaged", ABSENT, Ok(Answer::Unmanaged), false),
            ("the list fails", broken(), ABSENT, false),
            ("the list is pending", pending(), ABSENT, false),
            ("unmanaged", Ok(Answer::Unmanaged), ABSENT, false),
            ("found, maybe of old", Ok(found(InstanceState::Unknown)), ABSENT, false),
        ] {
            let mut judge = Judge::new(provider(), false);
            let (plan, ..) = pass(&mut judge, &[node("a")], at(0), |_| listed.clone(), |_| read.clone());
            assert_eq!(counts(&plan), (usize::from(is_deleted), 0), "{row}");
        }
    }

    #[test]
    fn an_answer_about_what_a_node_was_before_counts_for_nothing() {
        type Change = fn(&mut NodeFacts);
        let rows: [(&str, Change, usize); 7] = [
            ("heartbeat", |node| node.resource_version = "9".to_owned(), 1),
            ("another of the name", |node| node.uid = "other".to_owned(), 0),
            ("another machine", |node| node.provider_id = Some(ProviderId::parse("model://b").unwrap()), 0),
            ("ready", |node| node.readiness = Readiness::True, 0),
            ("being deleted", |node| node.is_deleting = true, 0),
            (
                "another label that the provider reads",
                |node| drop(node.labels.insert("pool".into(), "b".into())),
                0,
            ),
            ("another label", |node| drop(node.labels.insert("x".into(), "y".into())), 1),
        ];
        for (row, change, deleted) in rows {
            let (mut judge, mut findings) = (Judge::new(provider(), false), Findings::default());
            let asked = Arc::new(node("a"));
            let doubted = judge.looked_up(&mut findings, vec![(Arc::clone(&asked), ABSENT)], at(0));
            judge.confirmed(&mut findings, &doubted, vec![(asked, ABSENT)], at(0));
            let mut changed = node("a");
            change(&mut changed);
            let plan = judge.plan(&[Arc::new(changed.clone())], &findings, at(0));
            assert_eq!(counts(&plan).0, deleted, "{row}");
            assert!(
                plan.actions.iter().all(|action| *action.node == changed),
                "{row}: with the facts of now"
            );
        }
    }

    #[test]
    fn a_node_rests_as_long_as_the_cloud_asks_for() {
        let error = |kind| Err(Error::new(kind, "why"));
        let throttled = |seconds: Option<u64>| error(ErrorKind::Throttled(seconds.map(Duration::from_secs)));
        for (row, listed, read, rests) in [
            ("pending", Ok(Answer::Pending(Duration::from_secs(30))), ABSENT, 30),
            ("throttled", throttled(Some(25)), ABSENT, 25),
            ("throttled, who knows how long", throttled(None), ABSENT, 0),
            ("unavailable", error(ErrorKind::Unavailable), ABSENT, 0),
            ("denied", error(ErrorKind::Denied), ABSENT, 60),
            ("the read is pending", ABSENT, Ok(Answer::Pending(Duration::from_secs(20))), 20),
            ("the list is wrong", ABSENT, Ok(found(InstanceState::Running)), 60),
            ("absent", ABSENT, ABSENT, 0),
            ("runs", Ok(found(InstanceState::Running)), ABSENT, 0),
        ] {
            let mut judge = Judge::new(provider(), false);
            pass(&mut judge, &[node("a")], at(0), |_| listed.clone(), |_| read.clone());
            let mut is_asked = |seconds| !judge.candidates(&[Arc::new(node("a"))], at(seconds)).is_empty();
            assert!(rests == 0 || !is_asked(rests - 1), "{row}: too soon");
            assert!(is_asked(rests), "{row}: too late");
        }
    }

    #[test]
    fn a_node_is_unknown_from_an_error_to_an_answer_or_until_it_needs_none() {
        let error = |_: &NodeFacts| Err(Error::new(ErrorKind::Denied, "no right"));
        let runs = |_: &NodeFacts| Ok(found(InstanceState::Running));
        let mut all = nodes(4);
        let mut judge = Judge::new(provider(), false);
        pass(&mut judge, &all, at(0), error, runs);
        assert_eq!(judge.unknown(), 4);
        pass(&mut judge, &all, at(10), runs, runs);
        assert_eq!(judge.unknown(), 4, "they rest, and nothing is known of them");
        all[0].readiness = Readiness::True;
        all[1].uid = "another".to_owned();
        judge.candidates(&all.clone().into_iter().map(Arc::new).collect::<Vec<_>>(), at(20));
        assert_eq!(judge.unknown(), 2);
        pass(&mut judge, &all, at(70), |node| if node.name == "n2" { ABSENT } else { runs(node) }, error);
        assert_eq!(judge.unknown(), 1, "the direct read has failed");
        pass(&mut judge, &all, at(140), runs, runs);
        assert_eq!(judge.unknown(), 0);
    }

    #[test]
    fn the_first_error_of_a_pass_is_what_is_told() {
        let (mut judge, mut findings) = (Judge::new(provider(), false), Findings::default());
        let answers = ["", "first", "second"].map(|why| match why {
            "" => Ok(found(InstanceState::Running)),
            why => Err(Error::new(ErrorKind::Unavailable, why)),
        });
        let answered = nodes(3).into_iter().map(Arc::new).zip(answers).collect();
        judge.looked_up(&mut findings, answered, at(0));
        assert_eq!(findings.failed.map(|error| error.message).as_deref(), Some("first"));
    }

    #[test]
    fn a_list_that_lies_is_counted_and_harms_nobody() {
        let mut judge = Judge::new(provider(), false);
        let running = |_: &NodeFacts| Ok(found(InstanceState::Running));
        let all: Vec<_> = nodes(100).into_iter().map(Arc::new).collect();
        let mut findings = Findings::default();
        let doubted = judge.looked_up(
            &mut findings,
            all.iter().map(|node| (Arc::clone(node), ABSENT)).collect(),
            at(0),
        );
        let answers = all.iter().map(|node| (Arc::clone(node), running(node))).collect();
        judge.confirmed(&mut findings, &doubted, answers, at(0));
        assert_eq!(findings.contradicted, 100);
        assert_eq!(judge.plan(&all, &findings, at(0)).actions, []);
    }

    #[test]
    fn a_cloud_that_denies_everything_takes_no_node() {
        let mut judge = Judge::new(provider(), false);
        let (plan, ..) = pass(&mut judge, &nodes(100), at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.held, plan.verdict.is_open), ((0, 100), 100, true));
        let mut small = Judge::new(provider(), false);
        let (plan, ..) = pass(&mut small, &nodes(3), at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.held, plan.verdict.is_open), ((3, 0), 0, false));
    }

    #[test]
    fn a_cloud_that_denies_everything_takes_no_node_although_it_confirms_few_at_a_time() {
        let all = nodes(100);
        let slow = || Ok(Answer::Pending(Duration::from_secs(5)));
        let error = || Err(Error::new(ErrorKind::Throttled(None), "slower"));
        for (row, others, deleted, held) in [
            ("the others are pending", slow(), 0, 10),
            ("the others fail", error(), 0, 10),
            ("the others are there", Ok(found(InstanceState::Running)), 10, 0),
            ("the others are nobody's", Ok(Answer::Unmanaged), 10, 0),
        ] {
            let read = |node: &NodeFacts| if node.name.len() == 2 { ABSENT } else { others.clone() };
            let (plan, ..) = pass(&mut Judge::new(provider(), false), &all, at(0), |_| ABSENT, read);
            assert_eq!(counts(&plan), (deleted, held), "{row}");
        }
    }

    #[test]
    fn a_doubt_lasts_until_it_is_settled() {
        type Change = fn(&mut NodeFacts);
        type Answers = fn(&NodeFacts) -> Result<Answer, Error>;
        let slow = |_: &NodeFacts| Ok(Answer::Pending(Duration::from_secs(5)));
        let runs = |_: &NodeFacts| Ok(found(InstanceState::Running));
        let absent = |_: &NodeFacts| ABSENT;
        let ready = |node: &mut NodeFacts| node.readiness = Readiness::True;
        let rows: [(&str, u64, Change, Answers, Answers, usize); 6] = [
            ("they rest", 1, |_| {}, absent, slow, 10),
            ("they are asked about in vain", 10, |_| {}, absent, slow, 10),
            ("a list has them again", 10, |_| {}, runs, slow, 0),
            ("a direct read finds them", 10, |_| {}, absent, runs, 0),
            ("they are gone for sure", 10, |_| {}, absent, absent, 10),
            ("they are ready", 10, ready, absent, slow, 0),
        ];
        for (row, after, change, list, read, gone) in rows {
            let (mut judge, mut all) = (Judge::new(provider(), false), nodes(10));
            pass(&mut judge, &all, at(0), absent, slow);
            all.iter_mut().for_each(change);
            let (plan, ..) = pass(&mut judge, &all, at(after), list, read);
            assert_eq!(plan.verdict.gone, gone, "{row}");
            all.clear();
            let (plan, ..) = pass(&mut judge, &all, at(after + 1), list, read);
            assert_eq!(
                (plan.verdict.gone, judge.doubted.len()),
                (0, 0),
                "{row}: and forgotten with the Node"
            );
        }
    }

    #[test]
    fn nodes_of_others_and_those_being_deleted_make_no_share_smaller() {
        let mut all = nodes(10);
        for node in all.iter_mut().skip(5) {
            node.readiness = Readiness::True;
        }
        for n in 0..90 {
            let mut other = node(&format!("o{n}"));
            match n % 3 {
                0 => other.provider_id = Some(ProviderId::parse("other://x").unwrap()),
                1 => other.provider_id = None,
                _ => other.is_deleting = true,
            }
            all.push(other);
        }
        let (plan, ..) = pass(&mut Judge::new(provider(), false), &all, at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.verdict.gone, plan.verdict.of), ((0, 5), 5, 10));
    }

    #[test]
    fn what_is_held_stays_held_when_the_share_falls_and_after_a_restart() {
        let mut all = nodes(100);
        all.iter_mut().take(20).for_each(|node| node.is_held = true);
        all.iter_mut().skip(22).for_each(|node| node.readiness = Readiness::True);
        let (plan, ..) = pass(&mut Judge::new(provider(), false), &all, at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.held, plan.verdict.is_open), ((2, 0), 20, false));
        all.iter_mut().skip(22).take(8).for_each(|node| node.readiness = Readiness::False);
        let (plan, ..) = pass(&mut Judge::new(provider(), false), &all, at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((counts(&plan), plan.held, plan.verdict.gone), ((0, 10), 30, 30));
    }

    #[test]
    fn somebody_lets_some_of_the_held_go_whatever_the_breaker_says() {
        let mut all = nodes(40);
        for node in all.iter_mut().take(20) {
            node.is_held = true;
        }
        for node in all.iter_mut().take(5) {
            node.release_deletion = Some(node.uid.clone());
        }
        all.iter_mut().skip(20).for_each(|node| node.readiness = Readiness::True);
        let mut judge = Judge::new(provider(), false);
        let (plan, ..) = pass(&mut judge, &all, at(0), |_| ABSENT, |_| ABSENT);
        assert!(plan.verdict.is_open);
        assert_eq!((counts(&plan), plan.held), ((5, 0), 15));
        assert!(writes(&plan).iter().all(|(_, write)| **write == Write::Delete { is_released: true }));
        // They don't count any more.
        all.iter().take(5).for_each(|node| judge.deleted(node, true, at(0)));
        let (plan, ..) = pass(&mut judge, &all[5..], at(10), |_| ABSENT, |_| ABSENT);
        assert_eq!((plan.verdict.gone, plan.verdict.of), (15, 35));
        all.iter().take(5).for_each(|node| judge.deleted(node, false, at(0)));
        let (plan, ..) = pass(&mut judge, &all[5..], at(10), |_| ABSENT, |_| ABSENT);
        assert_eq!((plan.verdict.gone, plan.verdict.of), (20, 40), "as they would, had nobody released them");
    }

    #[test]
    fn what_the_autoscaler_takes_away_neither_counts_nor_is_held() {
        let mut all = nodes(20);
        for node in all.iter_mut().take(10) {
            let key = TAINT_AUTOSCALER_DELETES.to_owned();
            node.taints.push(Taint { key, value: None, effect: "NoSchedule".to_owned(), time_added: None });
        }
        all.iter_mut().skip(14).for_each(|node| node.readiness = Readiness::True);
        let mut judge = Judge::new(provider(), false);
        let (plan, ..) = pass(&mut judge, &all, at(0), |_| ABSENT, |_| ABSENT);
        assert_eq!((plan.verdict.gone, plan.verdict.of, plan.verdict.is_open), (4, 20, false));
        assert_eq!((counts(&plan), plan.held), ((14, 0), 0));
        // One that is ready, or whose machine is there, is nobody's to delete for all that.
        let marked = NodeFacts { readiness: Readiness::True, ..all[0].clone() };
        let (plan, ..) = pass(&mut judge, &[marked], at(10), |_| ABSENT, |_| ABSENT);
        assert_eq!(counts(&plan), (0, 0));
        let (plan, ..) =
            pass(&mut judge, &all[..1], at(20), |_| ABSENT, |_| Ok(found(InstanceState::Running)));
        assert_eq!(counts(&plan), (0, 0));
    }

    #[test]
    fn a_list_that_is_old_does_not_end_a_hold() {
        let held = NodeFacts { is_held: true, release_deletion: Some("uid-a".to_owned()), ..node("a") };
        let mut judge = Judge::new(provider(), false);
        for (read, expected) in [
            (Ok(found(InstanceState::Running)), Some(Write::EndHold)),
            (Err(Error::new(ErrorKind::Unavailable, "why")), None),
            (ABSENT, Some(Write::Delete { is_released: true })),
        ] {
            let (plan, ..) = pass(
                &mut judge,
                std::slice::from_ref(&held),
                at(0),
                |_| Ok(found(InstanceState::Running)),
                |_| read.clone(),
            );
            let actions = writes(&plan);
            assert_eq!(actions.first().map(|(_, write)| *write), expected.as_ref(), "{read:?}");
        }
    }
}
