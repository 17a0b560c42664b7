//! What a plan comes to: for load balancers and for routes, what would be changed and what is as it should be. A value, so
//! that it can be shown in two ways, and held against another.

use super::apart::{Together, Told, Verdict};

/// What Pileus would do to the cloud now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// Who would do it.
    pub(crate) provider: Identity,
    /// The cluster's name, and its UID where that can be read.
    pub(crate) cluster: (String, Option<String>),
    pub(crate) load_balancers: Part,
    pub(crate) routes: Part,
}

/// Which component it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The operator's name for the provider.
    pub(crate) name: String,
    /// What the component calls itself.
    pub(crate) component: String,
    pub(crate) version: String,
    pub(crate) digest: String,
}

/// One kind of things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// There is nothing to do for them, and why.
    Nothing(String),
    /// They couldn't be looked at, and why.
    Unseen(String),
    Seen(Findings),
}

/// What was found out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// How many things are as they should be.
    pub(crate) settled: usize,
    /// The others.
    pub(crate) changes: Vec<Change>,
    /// What is written once for several of them.
    pub(crate) together: Vec<Shared>,
    /// How many more writes there were than could be kept.
    pub(crate) left_out: usize,
    /// What else is to be said.
    pub(crate) notes: Vec<String>,
}

/// What would be done about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) verb: Verb,
    /// What it is about: `namespace/name` of a Service, the range of a route.
    pub(crate) object: String,
    /// Why.
    pub(crate) reason: String,
    pub(crate) end: End,
}

/// What would be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Change,
    Delete,
}

/// What it comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// What the provider says.
    Told(Verdict),
    /// Nobody was asked: it is done once something else has been.
    Next,
    /// Nobody is asked: the object itself is wrong.
    Refused(String),
}

/// A write that isn't for one thing alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) write: pileus_gate::WantedWrite,
    /// For which objects; none where that couldn't be told.
    pub(crate) by: Vec<String>,
}

impl Verb {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Delete => "delete",
        }
    }
}

impl Change {
    /// Whether Pileus would write something for it.
    pub(crate) const fn is_write(&self) -> bool {
        matches!(self.end, End::Next | End::Told(Verdict::Writes(_) | Verdict::Unclear))
    }
}

impl Findings {
    /// Takes up what the provider said about these changes, in their order. What needs nothing is as it should
    /// be, and what was to be deleted is gone already.
    pub(super) fn add(&mut self, asked: Vec<Change>, told: Told) {
        let Told { verdicts, together, left_out } = told;
        let shared = together.into_iter().map(|Together { write, by }| {
            let by = by.iter().filter_map(|index| asked.get(*index)).map(|change| change.object.clone());
            Shared { by: by.collect(), write }
        });
        self.together.extend(shared);
        self.left_out += left_out;
        for (change, verdict) in asked.into_iter().zip(verdicts) {
            match (change.verb, verdict) {
                (Verb::Delete, Verdict::Settled) => {}
                (_, Verdict::Settled) => self.settled += 1,
                (_, verdict) => self.changes.push(Change { end: End::Told(verdict), ..change }),
            }
        }
    }

    /// How many things something would be written for, of one kind of change.
    pub(crate) fn count(&self, verb: Verb) -> usize {
        self.changes.iter().filter(|change| change.verb == verb && change.is_write()).count()
    }

    /// How many things are neither as they should be nor written for.
    pub(crate) fn others(&self) -> usize {
        self.changes.iter().filter(|change| !change.is_write()).count()
    }

    fn is_settled(&self) -> bool {
        let is_elsewhere = |change: &Change| change.end == End::Told(Verdict::Elsewhere);
        self.together.is_empty() && self.changes.iter().all(is_elsewhere)
    }
}

impl Part {
    /// What was found out, if anything.
    pub(crate) fn findings(&self) -> Option<&Findings> {
        if let Self::Seen(findings) = self { Some(findings) } else { None }
    }
}

impl Outlook {
    /// The parts, and what their things are called.
    pub(crate) fn parts(&self) -> [(&'static str, &Part); 2] {
        [("load balancer", &self.load_balancers), ("route", &self.routes)]
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_settled(&self) -> bool {
        self.parts().iter().all(|(_, part)| match part {
            Part::Nothing(_) => true,
            Part::Unseen(_) => false,
            Part::Seen(findings) => findings.is_settled(),
        })
    }

    /// What couldn't be looked at, and why.
    pub(crate) fn unseen(&self) -> Vec<String> {
        let unseen = self.parts().into_iter().filter_map(|(kind, part)| match part {
            Part::Unseen(problem) => Some(format!("{kind}s: {problem}")),
            _ => None,
        });
        unseen.collect()
    }
}

/// The names that a sentence holds.
const NAMES: usize = 5;

/// The first of some names, and how many there are beside.
pub(super) fn names(all: &[String]) -> String {
    let shown = all.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
