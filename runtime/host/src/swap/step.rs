//! The step of the state machine: an event changes what is known, and actions follow from what is known. Pure.

use jiff::{SignedDuration, Timestamp};
use pileus_loader::Digest;

use super::failure::{Difference, Failure};
use super::health::Rates;
use super::lead::lead;
use super::leader::Leader;
use super::replica::{CanaryShare, Replica};
use super::spec::{Follow, Spec};
use super::status::{Release, Status};

/// What one replica knows about one provider. A restart begins with the default; nothing in it needs to be stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub(super) spec: Option<Spec>,
    pub(super) order: Option<Order>,
    /// The status as it was last read, and its revision.
    pub(super) status: Option<Status>,
    pub(super) revision: u64,
    /// Why the operator's newest spec can't be used, while the one before is.
    pub(super) invalid_spec: Option<String>,
    /// Why the controllers of the provider don't run on any replica.
    pub(super) refusal: Option<String>,
    pub(super) replica: Replica,
    /// Present while this replica leads.
    pub(super) leader: Option<Leader>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The operator's spec was read.
    Spec(Spec),
    /// The operator's spec has changed and can't be used: why. The one before stays.
    InvalidSpec(String),
    /// An order of the operator was read.
    Ordered(Order),
    /// The status was read, by a watch or after a write.
    Status {
        /// Grows with each write of the status.
        revision: u64,
        /// The status; empty before the first write.
        status: Status,
    },
    /// This replica leads. It read this status after it had won the lease, so that it never works from an older one.
    Leads {
        /// As in [`Event::Status`].
        revision: u64,
        /// As in [`Event::Status`].
        status: Status,
    },
    /// This replica doesn't lead any more.
    Follows,
    /// [`Action::Resolve`] ended.
    Resolved {
        /// What was resolved.
        follow: Follow,
        /// What it names.
        result: Result<Digest, Failure>,
    },
    /// [`Action::Prepare`] ended.
    Prepared(Ended),
    /// [`Action::Compare`] ended.
    Compared {
        /// The candidate of the action.
        candidate: Release,
        /// The active release of the action.
        active: Release,
        /// What is different.
        result: Result<Vec<Difference>, Failure>,
    },
    /// Calls of a release were counted since it took its present role here. Reported regularly by the leader.
    Measured {
        /// Which one.
        release: Release,
        /// How its calls went.
        rates: Rates,
    },
    /// No call of a release that was to be drained runs any more.
    Drained(Release),
    /// [`Action::WriteStatus`] failed. If another write came first, the shell also reads the status.
    WriteFailed {
        /// The revision that it was to replace.
        replaces: u64,
    },
    /// An older provider claims the same Nodes or Services, or none does any more. Each replica decides that in the same way.
    Refused(Option<String>),
    /// The time of [`State::wake_at`] has come.
    Woke,
}

/// What the shell does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Find out what a tag or range names.
    Resolve(Follow),
    /// Do one stage of the preparation of a release.
    Prepare {
        /// Which stage.
        stage: Stage,
        /// Which release.
        release: Release,
    },
    /// Run the candidate in a gate that answers reads, and refuses and records writes: lookups of a sample of nodes, and
    /// changes for settled Services and routes. Its lookups are compared with those of the active release.
    Compare {
        /// The release to examine.
        candidate: Release,
        /// The release to compare with.
        active: Release,
    },
    /// Write the status, if its revision is still this one.
    WriteStatus {
        /// The revision to replace.
        replaces: u64,
        /// The new status.
        status: Box<Status>,
    },
    /// Let new calls use this release. Notes of the release before are offered to it once, and may be lost.
    Switch(Release),
    /// Let a share of new lookups use this release, or none.
    Canary(Option<CanaryShare>),
    /// Report when no call of this release runs any more.
    Drain {
        /// Which one.
        release: Release,
        /// When its calls are aborted.
        deadline: Timestamp,
    },
    /// Abort the calls of this release.
    Abort(Release),
    /// Drop this release, and its code if no other release here has the same component.
    Unload(Release),
}

/// A part of the preparation of a release, in their order. Each replica prepares all releases that the status names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Bring the component into the store.
    Fetch,
    /// Verify digest and signature.
    Verify,
    /// Get native code.
    Compile,
    /// Compare with the contract, the capabilities and schemes in use, the configuration and the grants.
    Check,
}

impl Stage {
    /// The stage that follows.
    pub(super) fn next(self) -> Option<Self> {
        match self {
            Self::Fetch => Some(Self::Verify),
            Self::Verify => Some(Self::Compile),
            Self::Compile => Some(Self::Check),
            Self::Check => None,
        }
    }
}

/// How one stage of a preparation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Which release.
    pub release: Release,
    /// Which stage.
    pub stage: Stage,
    /// Whether it succeeded.
    pub result: Result<(), Failure>,
}

/// An order of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Grows with each order, so that each is carried out once.
    pub number: u64,
    /// What to do.
    pub kind: OrderKind,
    /// The component that the operator saw as candidate. Only its differences are accepted.
    pub seen: Option<Digest>,
}

/// What the operator can order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderKind {
    /// Begin and continue no swap. What turns out to be bad is still rolled back.
    Pause,
    /// End the pause.
    Resume,
    /// End the canary if there is one, otherwise return to the previous release. What is left is rejected.
    Rollback,
    /// Resolve at once and swap without window, pause or canary. The differences of the candidate that the operator saw are
    /// accepted.
    SwapNow,
}

/// What one replica knows after an event at the time `now`, and what its shell does.
#[must_use]
pub fn step(mut state: State, event: Event, now: Timestamp) -> (State, Vec<Action>) {
    state.observe(event, now);
    let drain = state.spec.as_ref().map_or(DRAIN, |spec| spec.policy.drain);
    let mut actions = match &state.status {
        Some(status) => state.replica.follow(status, drain, now),
        None => Vec::new(),
    };
    actions.extend(lead(&mut state, now));
    (state, actions)
}

/// How long calls may take to finish while the spec is unknown: longer than any default deadline of a call.
const DRAIN: SignedDuration = SignedDuration::from_mins(2);

impl State {
    /// What the status says, as far as this replica has read it.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// Why the controllers of the provider don't run, as it was told last.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// When [`Event::Woke`] is due after a step at the time `now`, if no event comes before.
    pub fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        let status = self.status.as_ref()?;
        let replica = self.replica.times(status);
        let leads = self.leader.as_ref().zip(self.spec.as_ref());
        let leads = leads.into_iter().flat_map(|(leader, spec)| leader.times(spec, status, now));
        // What is written without a spec is tried again, too.
        let write = self.leader.as_ref().and_then(|leader| leader.write.wake_at());
        replica.chain(leads).chain(write).filter(|at| *at > now).min()
    }

    fn observe(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Spec(spec) => {
                if self.spec.as_ref().is_none_or(|known| known.generation <= spec.generation) {
                    self.spec = Some(spec);
                    self.invalid_spec = None;
                }
            }
            Event::InvalidSpec(why) => self.invalid_spec = Some(why),
            Event::Ordered(order) => {
                if self.order.is_none_or(|known| known.number < order.number) {
                    self.order = Some(order);
                }
            }
            Event::Status { revision, status } => self.observe_status(revision, status),
            Event::Leads { revision, status } => {
                self.observe_status(revision, status);
                self.leader = Some(Leader::new(now));
            }
            Event::Follows => self.leader = None,
            Event::Prepared(ended) => {
                let status = self.status.as_ref();
                let may_refuse = status.and_then(Status::candidate_release) == Some(ended.release);
                self.replica.finish(ended, may_refuse, now);
            }
            Event::Drained(release) => self.replica.drained(release),
            Event::WriteFailed { replaces } => {
                // The answer to the write of an older revision says nothing about the present one.
                if let Some(leader) = self.leader.as_mut().filter(|_| replaces == self.revision) {
                    leader.on_write_failure(now);
                }
            }
            Event::Resolved { .. } | Event::Compared { .. } | Event::Measured { .. } => {
                if let (Some(leader), Some(spec)) = (&mut self.leader, &self.spec) {
                    leader.observe(event, spec, now);
                }
            }
            Event::Refused(refusal) => self.refusal = refusal,
            Event::Woke => {}
        }
    }

    fn observe_status(&mut self, revision: u64, status: Status) {
        if self.status.is_some() && revision <= self.revision {
            return;
        }
        if let Some(leader) = &mut self.leader {
            leader.on_new_status(self.status.as_ref(), &status);
        }
        self.revision = revision;
        self.status = Some(status);
    }
}
