//! Finds the targets for which a cloud refuses the change of a whole load balancer, and leaves them out.
//!
//! Where a call that brings targets is refused, it is repeated with fewer of them. The targets that the error names are
//! suspected first, then those that the cloud hasn't taken before, and then halves are tried. Each accepted call keeps what was
//! taken and adds more, so that a load balancer loses targets for a few calls at most. A search ends after a limited number of
//! calls. Where nothing was taken, the refusal has another cause, and no target is left out.
//!
//! Where Services share an object, one search serves all of them, and only the Services that were refused count as witnesses:
//! one that is refused for its own settings doesn't take targets from others. A refused target is tried again later.
//!
//! Pure: the clock is an argument.

mod search;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::Target;
use tokio::time::Instant;

use super::targets::Targets;
use search::Search;

/// How long a target is left out that is refused for the first time; each further time twice as long.
const FIRST_PAUSE: Duration = Duration::from_mins(2);

/// The longest time for which a refused target is left out. A search in which nothing was taken isn't repeated for this time,
/// unless the Service changes.
const PAUSE: Duration = Duration::from_hours(1);

/// A target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Member {
    /// The name of its Node.
    pub(super) node: String,
    uid: String,
    /// The provider ID of its instance.
    pub(super) provider_id: String,
}

/// What a call means for the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It isn't about targets, as far as can be told.
    Unrelated,
    /// The next call tries other targets.
    Searching,
    /// These targets are left out from now on, each with what the cloud has said.
    Found(Vec<(Member, String)>),
}

/// The outcome of one call about a subject.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallReport<'a> {
    /// The targets of the call.
    pub(super) targets: &'a Arc<Targets>,
    /// The UIDs of the Services for which the cloud took them.
    pub(super) accepted: &'a [&'a str],
    /// The UIDs of the Services for which it refused.
    pub(super) refused: &'a [&'a str],
    /// What it said first.
    pub(super) why: &'a str,
}

impl<'a> CallReport<'a> {
    /// The targets that the cloud names.
    fn named(&self) -> impl Iterator<Item = Member> + use<'a> {
        let why = self.why;
        self.targets.table().iter().filter(move |target| is_named(target, why)).map(member)
    }
}

/// The searches and their results, by what they are about: the UID of a Service, or none for all Services that share an object.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    subjects: HashMap<Option<String>, Subject>,
    /// The filtered tables, by the table's version and the targets that are left out.
    tables: HashMap<(u64, BTreeSet<Member>), Arc<Targets>>,
}

/// A target that was refused, and not taken since.
#[derive(Debug)]
struct RefusedTarget {
    until: Instant,
    is_left_out: bool,
    times: u32,
}

#[derive(Debug, Default)]
struct Subject {
    /// The targets that the cloud took last.
    accepted: Option<Arc<Targets>>,
    refused: HashMap<Member, RefusedTarget>,
    search: Option<Search>,
    /// When the next search may begin.
    paused_until: Option<Instant>,
}

impl Refusals {
    /// The targets for the next call about a subject.
    pub(super) fn targets(&mut self, subject: Option<&str>, all: &Arc<Targets>) -> Arc<Targets> {
        let Some(known) = self.subjects.get(&subject.map(str::to_owned)) else { return Arc::clone(all) };
        if known.search.is_none() && known.refused.is_empty() {
            return Arc::clone(all);
        }
        let members = all.table().iter().map(member);
        let left_out: BTreeSet<Member> = members.filter(|member| known.is_left_out(member)).collect();
        if left_out.is_empty() {
            return Arc::clone(all);
        }
        self.tables.retain(|(version, _), _| *version == all.version());
        let without = |left_out: &BTreeSet<Member>| all.filtered(|it| !left_out.contains(&member(it)));
        let table = self.tables.entry((all.version(), left_out));
        Arc::clone(table.or_insert_with_key(|(_, left_out)| Arc::new(without(left_out))))
    }

    /// Records the outcome of a call about a subject.
    pub(super) fn on_call_result(
        &mut self,
        subject: Option<&str>,
        report: CallReport<'_>,
        now: Instant,
    ) -> Verdict {
        let mut elsewhere = BTreeSet::new();
        if !report.refused.is_empty() {
            elsewhere.extend(self.subjects.values().flat_map(|subject| subject.refused.keys().cloned()));
        }
        let subject = self.subjects.entry(subject.map(str::to_owned)).or_default();
        if subject.search.is_some() {
            subject.proceed(report, now)
        } else {
            subject.begin(report, &elsewhere, now)
        }
    }

    /// Has refused targets tried again after their time, and gives up searches that don't proceed. Returns whether targets have
    /// changed by that.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let mut is_change = false;
        for subject in self.subjects.values_mut() {
            for target in
                subject.refused.values_mut().filter(|target| target.is_left_out && target.until <= now)
            {
                target.is_left_out = false;
                is_change = true;
            }
            let is_late = subject.search.take_if(|search| search.deadline <= now).is_some();
            is_change |= is_late;
        }
        is_change
    }

    /// When to call [`Refusals::expire`] next.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let of_subject = |subject: &Subject| {
            let left_out = subject.refused.values().filter(|target| target.is_left_out);
            left_out
                .map(|target| target.until)
                .chain(subject.search.as_ref().map(|search| search.deadline))
                .min()
        };
        self.subjects.values().filter_map(of_subject).min()
    }

    /// A Service wants something else than before: what was refused for it may be taken now.
    pub(super) fn on_spec_changed(&mut self, subject: Option<&str>) {
        if let Some(subject) = self.subjects.get_mut(&subject.map(str::to_owned)) {
            (subject.search, subject.paused_until) = (None, None);
        }
    }

    /// Removes what is known about a Service that is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.subjects.remove(&Some(uid.to_owned()));
    }
}

impl Subject {
    fn is_left_out(&self, member: &Member) -> bool {
        match &self.search {
            Some(search) => !search.is_tried(member),
            None => self.refused.get(member).is_some_and(|target| target.is_left_out),
        }
    }

    /// Begins a search where the call was refused.
    fn begin(&mut self, report: CallReport<'_>, elsewhere: &BTreeSet<Member>, now: Instant) -> Verdict {
        let table = report.targets.table();
        let is_paused = self.paused_until.is_some_and(|until| until > now);
        if !report.accepted.is_empty() {
            self.accept(report.targets);
        } else if !report.refused.is_empty() && table.len() > 1 && !is_paused {
            let mut suspects: BTreeSet<Member> = report.named().collect();
            if suspects.is_empty() || suspects.len() == table.len() {
                let accepted: BTreeSet<Member> =
                    self.accepted.iter().flat_map(|targets| targets.table()).map(member).collect();
                let is_new = |member: &Member| !accepted.is_empty() && !accepted.contains(member);
                let is_suspect = |member: &Member| elsewhere.contains(member) || is_new(member);
                suspects = table.iter().map(member).filter(is_suspect).collect();
            }
            // The cloud has taken just these targets before, so the refusal is about something else.
            let was_accepted =
                self.accepted.as_ref().is_some_and(|it| it.digest() == report.targets.digest());
            if was_accepted && suspects.is_empty() {
                return Verdict::Unrelated;
            }
            self.search = Some(Search::new(report, suspects, now));
            return Verdict::Searching;
        }
        Verdict::Unrelated
    }

    /// The cloud has taken these targets.
    fn accept(&mut self, targets: &Arc<Targets>) {
        if !self.refused.is_empty() {
            for member in targets.table().iter().map(member) {
                self.refused.remove(&member);
            }
        }
        self.accepted = Some(Arc::clone(targets));
    }

    /// Goes on with a search, or ends it.
    fn proceed(&mut self, report: CallReport<'_>, now: Instant) -> Verdict {
        let Some(search) = &mut self.search else { return Verdict::Unrelated };
        let is_of_witness = |uids: &[&str]| uids.iter().any(|uid| search.witnesses.contains(*uid));
        let (is_accepted, is_refused) = (is_of_witness(report.accepted), is_of_witness(report.refused));
        match (is_accepted, is_refused) {
            (true, _) => search.on_accepted(now),
            (false, true) => search.on_refused(report.why, report.named(), now),
            (false, false) => return Verdict::Unrelated,
        }
        let is_over = search.parts.is_empty();
        if is_accepted {
            self.accept(report.targets);
        }
        if !is_over {
            return Verdict::Searching;
        }
        let Search { refused, .. } = match self.search.take() {
            Some(search) if search.is_any_taken && !search.refused.is_empty() => search,
            _ => {
                self.paused_until = Some(now + PAUSE);
                return Verdict::Unrelated;
            }
        };
        let mut found = Vec::new();
        for (member, why) in refused {
            let times = self.refused.get(&member).map_or(0, |target| target.times);
            let pause = FIRST_PAUSE.saturating_mul(1 << times.min(10)).min(PAUSE);
            let target =
                RefusedTarget { until: now + pause, is_left_out: true, times: times.saturating_add(1) };
            self.refused.insert(member.clone(), target);
            // Once an hour at most; the API server keeps events that long.
            if times == 0 || pause == PAUSE {
                found.push((member, why));
            }
        }
        Verdict::Found(found)
    }
}

fn member(target: &Target) -> Member {
    let Target { node, uid, provider_id, .. } = target;
    Member { node: node.clone(), uid: uid.clone(), provider_id: provider_id.to_string() }
}

/// Whether a message names a target: its Node, its provider ID, or the last part of that, as a whole word.
fn is_named(target: &Target, message: &str) -> bool {
    let id = target.provider_id.as_str();
    let last = id.rsplit('/').next().unwrap_or(id);
    [id, last, &target.node].into_iter().any(|name| has_word(message, name))
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    let is_whole = |(at, found): (usize, &str)| {
        let (before, after) = (text.get(..at), text.get(at + found.len()..));
        let after = after.unwrap_or_default();
        let ends_sentence = after.strip_prefix('.').is_some_and(|rest| !rest.starts_with(is_part));
        !before.unwrap_or_default().ends_with(is_part) && (!after.starts_with(is_part) || ends_sentence)
    };
    !word.is_empty() && text.match_indices(word).any(is_whole)
}
