//! What all replicas share about the releases of a provider: the status of its resource, or a file. Only the leader writes
//! it; each replica runs what it calls active. Pure.

use jiff::Timestamp;
use pileus_loader::Digest;
use serde::{Deserialize, Serialize};

use super::health::Rates;
use super::replica::CanaryShare;
use super::spec::Follow;

/// What can be active: a component with the settings that it runs under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Release {
    /// The artifact in the registry, or the file.
    pub component: Digest,
    /// Configuration, grants, credential references and trust policy.
    pub settings: Digest,
}

/// A release, and why it is where it is in the status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Which one.
    pub release: Release,
    /// Since when.
    pub since: Timestamp,
    /// One sentence for the operator.
    pub why: String,
}

/// The shared record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The generation of the spec that was considered last.
    pub observed_generation: u64,
    /// The operator's order that was carried out last.
    pub last_order: Option<u64>,
    /// Whether the operator paused swaps. A release that turns out to be bad is still rolled back.
    pub paused: bool,
    /// When the operator ordered a swap without window and canary, until it is done.
    pub swap_now: Option<Timestamp>,
    /// What the tag or range named when it was last resolved.
    pub resolved: Option<Resolved>,
    /// What every replica runs.
    pub active: Option<Version>,
    /// Present until the active release has proven itself.
    pub observing: Option<Observation>,
    /// The last release that had proven itself before the active one. A rollback returns to it.
    pub previous: Option<Version>,
    /// The release that may become active.
    pub candidate: Option<Candidate>,
    /// Releases that are never activated until the spec changes.
    pub rejected: Vec<Version>,
    /// The state in the form that Kubernetes tools read.
    pub conditions: Vec<Condition>,
    /// What went wrong last.
    pub last_error: Option<LastError>,
}

/// What a tag or range names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// What was resolved.
    pub follow: Follow,
    /// What it names.
    pub component: Digest,
}

/// The comparison of the active release with the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Since when.
    pub since: Timestamp,
    /// How the release before did.
    pub baseline: Rates,
}

/// A release that may become active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Which one.
    pub release: Release,
    /// When it was first seen.
    pub since: Timestamp,
    /// How far it got.
    pub phase: Phase,
    /// What the dry run found, once it has run.
    pub differences: Option<Differences>,
    /// Whether the operator ordered the swap after these differences were shown.
    pub accepted: bool,
}

/// How far a candidate got. Written as an object with a name, as a schema can describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "camelCase")]
pub enum Phase {
    /// It is fetched, verified, compiled and checked.
    Preparing,
    /// Its answers and wanted writes are compared with those of the active release.
    DryRun,
    /// The policy stops it because of differences.
    Held,
    /// It waits for the time window, or for the active release to prove itself.
    Waiting,
    /// It answers a share of the lookups.
    Canary {
        /// Since when.
        since: Timestamp,
        /// The percentage of nodes.
        share: u8,
    },
}

/// What a dry run found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differences {
    /// How many lookups were answered differently.
    pub lookups: usize,
    /// How many writes the candidate wanted.
    pub writes: usize,
    /// The first of them in words.
    pub shown: Vec<String>,
}

/// A condition as in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Which one.
    pub kind: ConditionKind,
    /// Whether it holds.
    pub holds: bool,
    /// Since when it holds, or does not.
    pub since: Timestamp,
    /// Why, in words.
    pub message: String,
}

/// The conditions. The first four are about the candidate, or else about the active release, on the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionKind {
    /// It is in the store.
    Fetched,
    /// Its signature and digest are trusted.
    Verified,
    /// There is native code.
    Compiled,
    /// It fits the contract, the configuration, the grants and what the cluster needs.
    Compatible,
    /// The active release serves calls, and no older provider claims the same Nodes or Services.
    Ready,
    /// A candidate is on its way.
    Progressing,
    /// What the spec asks for is not what runs, or something fails.
    Degraded,
}

/// What went wrong last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// In words.
    pub message: String,
    /// When it began.
    pub since: Timestamp,
}

impl Status {
    /// The active release.
    pub(super) fn active_release(&self) -> Option<Release> {
        self.active.as_ref().map(|version| version.release)
    }

    /// The release that a rollback returns to.
    pub(super) fn previous_release(&self) -> Option<Release> {
        self.previous.as_ref().map(|version| version.release)
    }

    /// The candidate's release.
    pub(super) fn candidate_release(&self) -> Option<Release> {
        self.candidate.as_ref().map(|candidate| candidate.release)
    }

    /// The releases that every replica holds, ready to run.
    pub fn releases(&self) -> impl Iterator<Item = Release> {
        [self.active_release(), self.candidate_release(), self.previous_release()].into_iter().flatten()
    }

    /// The rejection of a release.
    pub(super) fn rejection(&self, release: Release) -> Option<&Version> {
        self.rejected.iter().find(|version| version.release == release)
    }

    /// Whether the status showed before this time that the active release serves no calls, and still shows it.
    pub(super) fn was_not_ready(&self, time: Timestamp) -> bool {
        let is_not_ready = |condition: &Condition| condition.kind == ConditionKind::Ready && !condition.holds;
        self.conditions.iter().any(|condition| is_not_ready(condition) && condition.since < time)
    }

    /// Whether swaps may begin and continue.
    pub(super) fn may_swap(&self) -> bool {
        !self.paused || self.swap_now.is_some()
    }

    /// What the canary serves.
    pub(super) fn canary(&self) -> Option<CanaryShare> {
        let candidate = self.candidate.as_ref()?;
        match candidate.phase {
            Phase::Canary { share, .. } => Some(CanaryShare { release: candidate.release, share }),
            _ => None,
        }
    }
}
