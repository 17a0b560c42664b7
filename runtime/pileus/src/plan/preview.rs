//! The result of a plan as a value: for load balancers and for routes, what would change and what is as it should be.
//!
//! `text` and `json` both print this value, and the previews of two providers can be compared.

use pileus_host::{Component, Description};

use super::attribution::{Attributed, DryRunResult, SharedWrite};
use crate::document::CloudProvider;

/// What Pileus would change in the cloud now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Preview {
    pub(crate) provider: Identity,
    /// The cluster's name, and its UID where that can be read.
    pub(crate) cluster: (String, Option<String>),
    pub(crate) load_balancers: Section,
    pub(crate) routes: Section,
}

/// The component that would make the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The operator's name for the provider.
    pub(crate) name: String,
    /// The component's own name.
    pub(crate) component: String,
    pub(crate) version: String,
    pub(crate) digest: String,
}

impl Identity {
    /// That of a component which describes itself so, under a document.
    pub(crate) fn of(document: &CloudProvider, description: &Description, component: &Component) -> Self {
        Self {
            name: document.name.clone(),
            component: description.name.clone(),
            version: description.version.clone(),
            digest: component.digest.to_string(),
        }
    }
}

/// The preview for one kind of resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Section {
    /// Pileus doesn't manage this kind here, and why.
    NotApplicable(String),
    /// It could not be read, and why.
    Unknown(String),
    Planned(Findings),
}

/// What the dry run found for one kind of resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// How many objects are as they should be.
    pub(crate) settled: usize,
    /// The other objects.
    pub(crate) changes: Vec<PreviewedChange>,
    /// Writes for several objects, which are named as in [`PreviewedChange::object`].
    pub(crate) shared_writes: Vec<SharedWrite<String>>,
    /// How many further writes the gate didn't keep.
    pub(crate) left_out: usize,
    /// Remarks for the operator.
    pub(crate) notes: Vec<String>,
}

/// What would be done about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreviewedChange {
    pub(crate) action: Action,
    /// `namespace/name` of a Service, or the CIDR of a route.
    pub(crate) object: String,
    pub(crate) reason: String,
    pub(crate) result: ChangeResult,
}

/// The kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Create,
    Change,
    Delete,
}

/// What a change comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangeResult {
    /// The provider was called.
    DryRun(DryRunResult),
    /// The provider was not called: the change follows once another is done.
    Follows,
    /// The provider was not called: the object itself is wrong.
    Rejected(String),
}

impl Action {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Delete => "delete",
        }
    }
}

impl PreviewedChange {
    /// Whether Pileus would write to the cloud for it.
    pub(crate) const fn is_write(&self) -> bool {
        matches!(
            self.result,
            ChangeResult::Follows
                | ChangeResult::DryRun(DryRunResult::Writes(_) | DryRunResult::Unattributed)
        )
    }
}

impl Findings {
    /// Adds the results of these changes, in their order. An object that needs no write is settled; one that was to be
    /// deleted is gone already.
    pub(super) fn add(&mut self, changes: Vec<PreviewedChange>, attributed: Attributed) {
        let Attributed { results, shared_writes, left_out } = attributed;
        let shared_writes = shared_writes.into_iter().map(|SharedWrite { write, items }| {
            let objects = items.iter().filter_map(|index| changes.get(*index));
            SharedWrite { items: objects.map(|change| change.object.clone()).collect(), write }
        });
        self.shared_writes.extend(shared_writes);
        self.left_out += left_out;
        for (change, result) in changes.into_iter().zip(results) {
            match (change.action, result) {
                (Action::Delete, DryRunResult::Settled) => {}
                (_, DryRunResult::Settled) => self.settled += 1,
                (_, result) => {
                    self.changes.push(PreviewedChange { result: ChangeResult::DryRun(result), ..change });
                }
            }
        }
    }

    /// How many objects Pileus would write for, by the kind of change.
    pub(crate) fn count(&self, action: Action) -> usize {
        self.changes.iter().filter(|change| change.action == action && change.is_write()).count()
    }

    /// How many objects are not settled, although Pileus would write nothing for them.
    pub(crate) fn others(&self) -> usize {
        self.changes.iter().filter(|change| !change.is_write()).count()
    }

    fn is_settled(&self) -> bool {
        let is_elsewhere =
            |change: &PreviewedChange| change.result == ChangeResult::DryRun(DryRunResult::Elsewhere);
        self.shared_writes.is_empty() && self.changes.iter().all(is_elsewhere)
    }
}

impl Section {
    /// What the dry run found, where there was one.
    pub(crate) fn findings(&self) -> Option<&Findings> {
        if let Self::Planned(findings) = self { Some(findings) } else { None }
    }
}

impl Preview {
    /// The sections, with the name of their kind of resource.
    pub(crate) fn sections(&self) -> [(&'static str, &Section); 2] {
        [("load balancer", &self.load_balancers), ("route", &self.routes)]
    }

    /// Whether no change is pending.
    pub(crate) fn is_settled(&self) -> bool {
        self.sections().iter().all(|(_, section)| match section {
            Section::NotApplicable(_) => true,
            Section::Unknown(_) => false,
            Section::Planned(findings) => findings.is_settled(),
        })
    }

    /// What could not be read, and why.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let unknown = self.sections().into_iter().filter_map(|(kind, section)| match section {
            Section::Unknown(problem) => Some(format!("{kind}s: {problem}")),
            _ => None,
        });
        unknown.collect()
    }
}

/// The most names in a sentence.
const NAMES: usize = 5;

/// The first of some names, and how many more there are.
pub(super) fn names(all: &[String]) -> String {
    let shown = all.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
