//! One search for refused targets: which targets the next call brings. Pure: the clock is an argument.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::{CallReport, Member, member};

/// The most calls of a search: enough for several targets among thousands.
const MAX_CALLS: usize = 64;

/// The most calls of a search in which nothing was taken: the halves, quarters and eighths.
const MAX_FRUITLESS_CALLS: usize = 14;

/// How long a search waits for a call to end. The Services that it is about may be deleted, or of another type by now.
const TIMEOUT: Duration = Duration::from_mins(15);

/// A search.
#[derive(Debug)]
pub(super) struct Search {
    /// The Services whose refusal began it.
    pub(super) witnesses: BTreeSet<String>,
    /// The targets that were refused together.
    pub(super) all: BTreeSet<Member>,
    /// Those that were taken together.
    pub(super) taken: BTreeSet<Member>,
    pub(super) is_any_taken: bool,
    pub(super) suspects: BTreeSet<Member>,
    /// What has yet to be tried; the last is being tried together with those that were taken.
    pub(super) parts: Vec<Vec<Member>>,
    /// Those that were refused alone, and what the cloud has said.
    pub(super) refused: Vec<(Member, String)>,
    /// The target that was refused alone once, and is being tried again.
    retried: Option<Member>,
    pub(super) calls: usize,
    /// What the cloud has said last.
    pub(super) why: String,
    /// When the search is given up unless a call ends before.
    pub(super) deadline: Instant,
}

impl Search {
    pub(super) fn new(report: CallReport<'_>, suspects: BTreeSet<Member>, now: Instant) -> Self {
        let all: BTreeSet<Member> = report.targets.table().iter().map(member).collect();
        let mut search = Self {
            witnesses: report.refused.iter().map(|uid| (*uid).to_owned()).collect(),
            taken: BTreeSet::new(),
            is_any_taken: false,
            suspects,
            parts: Vec::new(),
            refused: Vec::new(),
            retried: None,
            calls: 0,
            why: report.why.to_owned(),
            deadline: now + TIMEOUT,
            all,
        };
        search.split(search.all.iter().cloned().collect());
        search
    }

    pub(super) fn is_tried(&self, member: &Member) -> bool {
        self.taken.contains(member) || self.parts.last().is_some_and(|part| part.contains(member))
    }

    /// The targets of the last call were taken.
    pub(super) fn on_accepted(&mut self, now: Instant) {
        (self.calls, self.deadline) = (self.calls + 1, now + TIMEOUT);
        self.is_any_taken = true;
        self.taken.extend(self.parts.pop().into_iter().flatten());
    }

    /// They were refused. `named` are those that the cloud names.
    pub(super) fn on_refused(&mut self, why: &str, named: impl Iterator<Item = Member>, now: Instant) {
        (self.calls, self.deadline, self.why) = (self.calls + 1, now + TIMEOUT, why.to_owned());
        self.suspects.extend(named);
        if let Some(part) = self.parts.pop() {
            self.refuse(part);
        }
        let is_fruitless = !self.is_any_taken && self.calls >= MAX_FRUITLESS_CALLS;
        if is_fruitless || self.calls >= MAX_CALLS {
            // What wasn't tried may be refused, and waits for the next search.
            let rest = self.parts.drain(..).flatten();
            self.refused.extend(rest.map(|member| (member, "it could not be tried".to_owned())));
        }
        if !self.is_any_taken {
            // As long as the load balancer may have lost targets, the most promising part is next.
            let is_suspect = |member: &Member| self.suspects.contains(member);
            self.parts.sort_by_key(|part| (!part.iter().any(is_suspect), part.len()));
        }
    }

    /// A part was refused together with what was taken. A single target is tried twice, since the refusal may pass.
    fn refuse(&mut self, part: Vec<Member>) {
        let completes = self.taken.len() + part.len() == self.all.len();
        match &part[..] {
            [] => {}
            [member] if completes || self.retried.as_ref() == Some(member) => {
                self.refused.push((member.clone(), self.why.clone()));
            }
            [member] => {
                self.retried = Some(member.clone());
                self.parts.push(part);
            }
            _ => self.split(part),
        }
    }

    /// Has the two parts of a part tried, the less suspect one first.
    fn split(&mut self, part: Vec<Member>) {
        let is_suspect = |member: &Member| self.suspects.contains(member);
        let (suspect, mut innocent): (Vec<_>, Vec<_>) = part.into_iter().partition(is_suspect);
        let (mut first, mut second) = (Vec::new(), suspect);
        if innocent.is_empty() {
            first = second.split_off(second.len() / 2);
        } else if second.is_empty() {
            second = innocent.split_off(innocent.len() / 2);
            first = innocent;
        } else {
            first.append(&mut innocent);
        }
        self.parts.extend([second, first].into_iter().filter(|part| !part.is_empty()));
    }
}
