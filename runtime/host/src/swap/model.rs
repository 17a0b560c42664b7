//! A model of some replicas, the store of their status, a registry and an operator. It carries actions out in any order,
//! loses answers, and checks after each event what must always hold.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use pileus_loader::Digest;

use super::*;

pub(super) fn digest(kind: &str, index: usize) -> Digest {
    Digest::of(format!("{kind} {index}").as_bytes())
}

pub(super) fn release(component: usize, settings: usize) -> Release {
    Release { component: digest("component", component), settings: digest("settings", settings) }
}

pub(super) fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

pub(super) fn spec(generation: u64, follow: Follow, settings: usize) -> Spec {
    let policy = Policy {
        interval: minutes(12 * 60),
        window: None,
        lookups: OnDifference::Hold,
        writes: OnDifference::Hold,
        canary: Canary { share: 20, duration: minutes(5) },
        observe: minutes(10),
        drain: minutes(2),
    };
    Spec { generation, follow, settings: digest("settings", settings), policy }
}

/// How a component behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quality {
    Good,
    Untrusted,
    Incompatible,
    /// Does not fit the settings with index 1.
    Particular,
    LooksUpDifferently,
    Writes,
    TrapsAsCanary,
    TrapsWhenActive,
}

/// The components that exist.
pub(super) const COMPONENTS: usize = 5;
pub(super) const NODES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

#[derive(Debug, Default)]
pub(super) struct ModelReplica {
    pub(super) state: State,
    pub(super) pending: Vec<Action>,
    /// The stages that succeeded here since the last restart.
    prepared: BTreeMap<Release, BTreeSet<Stage>>,
    serving: Option<Release>,
    canary: Option<CanaryShare>,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) now: Timestamp,
    pub(super) replicas: Vec<ModelReplica>,
    pub(super) qualities: [Quality; COMPONENTS],
    pub(super) tag: usize,
    /// The component that the registry doesn't have any more.
    pub(super) missing: Option<usize>,
    pub(super) spec: Spec,
    pub(super) order: Option<Order>,
    /// The stored status, as it was read from JSON.
    stored: Status,
    /// The statuses before it, for watches that are late.
    replaced: Vec<Status>,
    pub(super) revision: u64,
    pub(super) written: Timestamp,
    /// Each release that was rejected, with the generation of the spec at that time.
    rejected: BTreeSet<(Release, u64)>,
}

/// How the model carries an action out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Succeeds,
    Fails,
    /// It is done, but the replica hears of a failure.
    IsLost,
}

impl Model {
    pub(super) fn new(replicas: usize, qualities: [Quality; COMPONENTS]) -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        Self {
            now,
            replicas: (0..replicas).map(|_| ModelReplica::default()).collect(),
            qualities,
            tag: 0,
            missing: None,
            spec: spec(1, Follow::Tag("stable".to_owned()), 0),
            order: None,
            stored: serde_json::from_str("{}").unwrap(),
            replaced: Vec::new(),
            revision: 0,
            written: now,
            rejected: BTreeSet::new(),
        }
    }

    pub(super) fn status(&self) -> Status {
        self.stored.clone()
    }

    pub(super) fn send(&mut self, index: usize, event: Event) {
        let replica = &mut self.replicas[index];
        let served = replica.serving;
        let (state, actions) = step(std::mem::take(&mut replica.state), event, self.now);
        replica.state = state;
        for action in actions {
            match action {
                Action::Switch(release) => replica.serving = Some(release),
                Action::Canary(canary) => replica.canary = canary,
                Action::Unload(release) => {
                    replica.prepared.remove(&release);
                }
                Action::Abort(_) => {}
                action => replica.pending.push(action),
            }
        }
        self.check(index, served);
        self.check_rest(index);
    }

    /// What must hold on a replica after each event.
    fn check(&self, index: usize, served: Option<Release>) {
        let replica = &self.replicas[index];
        let state = &replica.state;
        assert!(served.is_none() || replica.serving.is_some(), "what ran keeps running");
        let is_prepared = |release: Release| {
            replica.prepared.get(&release).is_some_and(|stages| {
                // Fetched and compiled may be what another release with this component brought.
                stages.contains(&Stage::Verify) && stages.contains(&Stage::Check)
            })
        };
        for node in NODES {
            let release = state.roles().release_for(Call::Lookup { node });
            let expected = [replica.serving, replica.canary.map(|canary| canary.release)];
            assert_eq!(release.is_some(), replica.serving.is_some(), "lookups are answered");
            assert!(release.is_none() || expected.contains(&release), "a call gets what the shell was told");
            assert!(release.is_none_or(is_prepared), "only what is prepared here serves");
        }
        let seen = state.status().cloned().unwrap_or_default();
        for call in [Call::Change, Call::List] {
            let Some(release) = state.roles().release_for(call) else { continue };
            assert_eq!(Some(release), replica.serving, "one release changes load balancers");
            assert_eq!(Some(release), seen.active.as_ref().map(|version| version.release), "the active one");
            assert_ne!(
                Some(release),
                seen.candidate.as_ref().map(|known| known.release),
                "never a candidate"
            );
        }
    }

    /// Without another event and with the time unchanged there is nothing to do.
    fn check_rest(&self, index: usize) {
        let state = &self.replicas[index].state;
        let (next, actions) = step(state.clone(), Event::Woke, self.now);
        assert_eq!(actions, [], "a step leaves nothing undone");
        assert_eq!(next, *state);
        assert!(state.wake_at(self.now).is_none_or(|at| at > self.now));
    }

    pub(super) fn deliver_status(&mut self, index: usize) {
        let event = Event::Status { revision: self.revision, status: self.status() };
        self.send(index, event);
    }

    /// A watch is late: the replica may know a newer status.
    pub(super) fn deliver_old_status(&mut self, index: usize, chosen: usize) {
        let Some(revision) = chosen.checked_rem(self.replaced.len()) else { return };
        let known = self.replicas[index].state.clone();
        let event = Event::Status { revision: revision as u64, status: self.replaced[revision].clone() };
        self.send(index, event);
        let state = &self.replicas[index].state;
        assert!(state.revision >= known.revision, "a replica never returns to an older status");
    }

    pub(super) fn deliver(&mut self, index: usize) {
        self.send(index, Event::Spec(self.spec.clone()));
        if let Some(order) = self.order {
            self.send(index, Event::Ordered(order));
        }
        self.deliver_status(index);
    }

    pub(super) fn lead(&mut self, index: usize) {
        let event = Event::Leads { revision: self.revision, status: self.status() };
        self.send(index, event);
    }

    pub(super) fn restart(&mut self, index: usize) {
        self.replicas[index] = ModelReplica::default();
    }

    pub(super) fn change_spec(&mut self, change: impl FnOnce(&mut Spec)) {
        change(&mut self.spec);
        self.spec.generation += 1;
    }

    pub(super) fn order(&mut self, kind: OrderKind) {
        let number = self.order.map_or(1, |order| order.number + 1);
        // The operator has read the status.
        let seen = self.stored.candidate.as_ref().map(|candidate| candidate.release.component);
        self.order = Some(Order { number, kind, seen });
    }

    pub(super) fn pass(&mut self, time: SignedDuration) {
        self.now += time;
        for index in 0..self.replicas.len() {
            self.send(index, Event::Woke);
        }
    }

    fn quality(&self, release: Release) -> Quality {
        let index = (0..COMPONENTS).find(|index| digest("component", *index) == release.component);
        self.qualities[index.unwrap()]
    }

    /// Carries out one of the pending actions of a replica.
    pub(super) fn carry_out(&mut self, index: usize, chosen: usize, fate: Fate) {
        let pending = &mut self.replicas[index].pending;
        if pending.is_empty() {
            return;
        }
        let action = pending.remove(chosen % pending.len());
        let failure = Failure { message: "no connection".to_owned(), is_permanent: false };
        let event = match action {
            Action::Resolve(follow) => {
                let result =
                    if fate == Fate::Succeeds { Ok(digest("component", self.tag)) } else { Err(failure) };
                Event::Resolved { follow, result }
            }
            Action::Prepare { stage, release } => {
                let result = if fate == Fate::Succeeds { self.prepare(stage, release) } else { Err(failure) };
                if result.is_ok() {
                    self.replicas[index].prepared.entry(release).or_default().insert(stage);
                }
                Event::Prepared(Ended { release, stage, result })
            }
            Action::Compare { candidate, active } => {
                let found = match self.quality(candidate) {
                    Quality::LooksUpDifferently => vec![Difference::Lookup("node a: zone".to_owned())],
                    Quality::Writes => vec![Difference::Write("PUT /v1/balancers/1".to_owned())],
                    _ => Vec::new(),
                };
                let result = if fate == Fate::Succeeds { Ok(found) } else { Err(failure) };
                Event::Compared { candidate, active, result }
            }
            Action::WriteStatus { replaces, status } => {
                let is_stored = fate != Fate::Fails && replaces == self.revision;
                if is_stored {
                    self.store(&status);
                }
                if is_stored && fate == Fate::Succeeds {
                    Event::Status { revision: self.revision, status: *status }
                } else {
                    Event::WriteFailed { replaces }
                }
            }
            Action::Drain { release, .. } => Event::Drained(release),
            action => panic!("{action:?} is carried out at once"),
        };
        self.send(index, event);
    }

    fn prepare(&self, stage: Stage, release: Release) -> Result<(), Failure> {
        let is_missing = self.missing.is_some_and(|index| digest("component", index) == release.component);
        if stage == Stage::Fetch && is_missing {
            return Err(Failure { message: "the registry doesn't have it".to_owned(), is_permanent: false });
        }
        let refused = match (stage, self.quality(release)) {
            (Stage::Verify, Quality::Untrusted) | (Stage::Check, Quality::Incompatible) => true,
            (Stage::Check, Quality::Particular) => release.settings == digest("settings", 1),
            _ => false,
        };
        let failure = Failure { message: format!("{stage:?} refuses it"), is_permanent: true };
        if refused { Err(failure) } else { Ok(()) }
    }

    /// Stores a status, and checks what must hold in each history of statuses.
    fn store(&mut self, status: &Status) {
        let before = self.status();
        let release_of = |version: &Option<Version>| version.as_ref().map(|version| version.release);
        let (active, previous) = (release_of(&status.active), release_of(&status.previous));
        let candidate = status.candidate.as_ref().map(|candidate| candidate.release);
        let named: Vec<_> = [active, previous, candidate].into_iter().flatten().collect();
        // The candidate may be the previous release: the operator wants it back.
        assert!(active.is_none() || (active != previous && active != candidate), "{status:?}");
        self.rejected.extend(status.rejected.iter().map(|known| (known.release, status.observed_generation)));
        for release in named {
            let is_rejected = self.rejected.contains(&(release, status.observed_generation));
            assert!(!is_rejected, "a rejected release has no role until the spec changes: {status:?}");
        }
        assert!(before.observed_generation <= status.observed_generation);
        assert!(before.last_order <= status.last_order);
        if active != release_of(&before.active) {
            self.check_change(&before, status, active);
        }
        self.replaced.push(before);
        self.revision += 1;
        self.written = self.now;
        self.stored = serde_json::from_str(&serde_json::to_string(status).unwrap()).unwrap();
        assert_eq!(self.stored, *status, "nothing is lost in JSON");
    }

    /// Another release may become active only as a tried candidate, or by a rollback.
    fn check_change(&self, before: &Status, status: &Status, active: Option<Release>) {
        let is_rollback = before.previous.as_ref().map(|version| version.release) == active
            && before
                .active
                .as_ref()
                .is_some_and(|bad| status.rejected.iter().any(|rejected| rejected.release == bad.release));
        let was_ready = before.candidate.as_ref().is_some_and(|candidate| {
            let is_tried = match candidate.phase {
                Phase::Waiting | Phase::Canary { .. } => true,
                // The dry run's result, and the end of a window or a canary, may be written at once.
                Phase::DryRun | Phase::Held => status.swap_now.is_none(),
                Phase::Preparing => before.active.is_none(),
            };
            // The operator may order it in place of what can't be prepared.
            let is_ordered = before.swap_now.is_some_and(|ordered| before.was_not_ready(ordered));
            Some(candidate.release) == active && (is_tried || is_ordered)
        });
        assert!(is_rollback || was_ready, "from {before:?} to {status:?}");
        let may_swap = !status.paused
            || before.swap_now.is_some()
            || self.order.is_some_and(|order| order.kind == OrderKind::SwapNow);
        assert!(is_rollback || may_swap, "a pause begins no swap");
    }

    pub(super) fn measure(&mut self, index: usize) {
        let replica = &self.replicas[index];
        let canary = replica.canary.map(|canary| canary.release);
        for (release, trapping) in
            [(replica.serving, Quality::TrapsWhenActive), (canary, Quality::TrapsAsCanary)]
        {
            let Some(release) = release else { continue };
            let traps = if self.quality(release) == trapping { 50 } else { 0 };
            let rates = Rates { items: 100, traps, ..Rates::default() };
            self.send(index, Event::Measured { release, rates });
        }
    }

    /// Lets everything that is due happen, with replica `leader` leading, until nothing but the regular resolution is left.
    pub(super) fn run(&mut self, leader: usize, time: SignedDuration) {
        let end = self.now + time;
        for index in (0..self.replicas.len()).filter(|index| *index != leader) {
            self.send(index, Event::Follows);
        }
        loop {
            self.settle(leader);
            let due = self.replicas.iter().filter_map(|replica| replica.state.wake_at(self.now)).min();
            let Some(due) = due.filter(|due| *due < end) else { break };
            let time = due.duration_since(self.now);
            self.measure(leader);
            self.pass(time);
        }
        self.settle(leader);
        let time = end.duration_since(self.now);
        self.pass(time);
        self.settle(leader);
    }

    /// Everything that can happen without time.
    pub(super) fn settle(&mut self, leader: usize) {
        for index in 0..self.replicas.len() {
            self.deliver(index);
        }
        if self.replicas[leader].state.leader.is_none() {
            self.lead(leader);
        }
        for _ in 0..1000 {
            let Some(index) =
                (0..self.replicas.len()).find(|index| !self.replicas[*index].pending.is_empty())
            else {
                return;
            };
            self.carry_out(index, 0, Fate::Succeeds);
            for index in 0..self.replicas.len() {
                self.deliver_status(index);
            }
        }
        panic!("the replicas don't come to rest");
    }

    pub(super) fn serving(&self, index: usize) -> Option<Release> {
        self.replicas[index].state.roles().release_for(Call::Change)
    }
}
