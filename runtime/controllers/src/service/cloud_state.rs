//! What the cloud is believed to have for one Service.
//!
//! The belief follows the calls: a call that begins makes it uncertain, a confirmation makes it certain. Clouds are
//! eventually consistent, so a confirmation after a reverted change may be stale; then an audit is due once the cloud shows
//! everything.
//!
//! ```text
//!             named by the list, or our finalizer appears             ensure confirmed
//!  Nothing ───────────────────────────────────────────▶ Unconfirmed ──────────────────▶ Confirmed
//!     ▲                                                 │         ▲                        │
//!     └─────────────────────────────────────────────────┘         └────────────────────────┘
//!                       delete confirmed                                 delete begins
//! ```
//!
//! [`Doubt`] says how far a confirmation can be trusted: an ensure that begins, or an update that fails, makes it real; the
//! audit period makes an audit due.

use std::sync::Arc;

use pileus_cloud::{
    Error as CloudError, ErrorKind, Ingress, IngressPoint, IpMode, LocalEndpoints, ServiceProgress,
};
use tokio::time::Instant;

use super::plan::{Step, desired_spec};
use super::recent_intents::{NOTHING, RecentIntents, digest};
use super::targets::Targets;
use crate::facts::service::ServiceFacts;

/// What the cloud is believed to have.
#[derive(Debug)]
pub(super) enum Belief {
    /// Nothing.
    Nothing,
    /// It may have something, which it hasn't confirmed to this process.
    Unconfirmed {
        /// Whether the Service looks settled, as after a start: an audit is enough.
        is_settled: bool,
    },
    /// It has confirmed this, which may be wrong by now.
    Confirmed(Confirmation, Doubt),
}

/// What the cloud has confirmed.
#[derive(Debug)]
pub(super) struct Confirmation {
    /// The Service that it was asked for.
    pub(super) facts: Arc<ServiceFacts>,
    /// The targets; none while a change of them is in flight or has failed, and so may have come halfway.
    pub(super) targets: Option<u64>,
    /// The status to write; none where another controller serves the Service.
    pub(super) status: Option<Vec<Ingress>>,
}

/// Whether the cloud may have something else than it confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It shouldn't.
    None,
    /// It shouldn't, but an audit is due.
    Audit,
    /// An ensure has begun that isn't confirmed, or an update has failed.
    Real,
}

/// What is known about the cloud's side of one Service.
#[derive(Debug)]
pub(super) struct CloudState {
    belief: Belief,
    /// The status that the cloud last reported; it outlives the load balancer.
    last_status: Vec<Ingress>,
    /// The Service as the provider last got it: the cloud's side was made from that.
    last_sent: Option<Arc<ServiceFacts>>,
    /// What was asked for of late, targets and endpoints set aside.
    specs: RecentIntents,
    /// Which targets were asked for of late, and which targets with which endpoints.
    backends: [RecentIntents; 2],
    /// When the next audit makes sense: by then the cloud shows nothing that was asked for before.
    pub(super) audit_not_before: Instant,
}

impl CloudState {
    /// That of a Service which this process observes for the first time. With our finalizer and a status it looks settled.
    /// `is_listed` says that the cloud's list has named it.
    pub(super) fn new(facts: &ServiceFacts, is_listed: bool, now: Instant) -> Self {
        let belief = match (facts.has_finalizer(), !facts.service.status.is_empty()) {
            (false, false) => Belief::Nothing,
            (has_finalizer, has_status) => Belief::Unconfirmed { is_settled: has_finalizer && has_status },
        };
        let may_exist = is_listed || !matches!(belief, Belief::Nothing);
        let intents = || RecentIntents::new(may_exist);
        Self {
            belief,
            last_status: Vec::new(),
            last_sent: None,
            specs: intents(),
            backends: [intents(), intents()],
            audit_not_before: now,
        }
    }

    /// What the cloud is believed to have.
    pub(super) fn belief(&self) -> &Belief {
        &self.belief
    }

    /// Whether the cloud may have anything for the Service.
    pub(super) fn may_exist(&self) -> bool {
        !matches!(self.belief, Belief::Nothing)
    }

    /// Whether the cloud has confirmed the load balancer.
    pub(super) fn is_confirmed(&self) -> bool {
        matches!(self.belief, Belief::Confirmed(..))
    }

    /// Whether the cloud may still show something that it was asked for of late.
    pub(super) fn has_recent_intents(&self) -> bool {
        !self.specs.is_empty()
    }

    /// The Service as the provider last got it.
    pub(super) fn last_sent(&self) -> Option<&Arc<ServiceFacts>> {
        self.last_sent.as_ref()
    }

    /// Whether a Service's status is the one that the cloud last reported.
    pub(super) fn is_last_status(&self, status: &[Ingress]) -> bool {
        self.last_status == status
    }

    /// The provider has reported this status for a change that goes on.
    pub(super) fn on_status_reported(&mut self, status: &[Ingress]) {
        status.clone_into(&mut self.last_status);
    }

    /// Before the cloud's first list anything may exist that nothing points to.
    pub(super) fn mark_unknown(&mut self) {
        self.intents().for_each(|intents| *intents = RecentIntents::new(true));
    }

    /// Something says that the cloud has something for the Service.
    pub(super) fn mark_existing(&mut self) {
        if !self.may_exist() {
            self.belief = Belief::Unconfirmed { is_settled: false };
        }
    }

    /// The Service wants something else than before.
    pub(super) fn on_spec_changed(&mut self) {
        if let Belief::Unconfirmed { is_settled } = &mut self.belief {
            *is_settled = false;
        }
    }

    /// The audit period has passed. Old intents are forgotten, and the audit waits for no lag: what keeps alternating would
    /// postpone it forever.
    pub(super) fn on_audit_due(&mut self, now: Instant) {
        self.intents().for_each(|intents| intents.expire(now));
        self.audit_not_before = now;
        if let Belief::Confirmed(_, doubt @ Doubt::None) = &mut self.belief {
            *doubt = Doubt::Audit;
        }
    }

    /// A call begins that takes a step, with these targets and endpoints. Until it is confirmed, its effect is unknown.
    pub(super) fn on_call_started(
        &mut self,
        step: &Step,
        facts: &Arc<ServiceFacts>,
        targets: &Targets,
        endpoints: &[LocalEndpoints],
        now: Instant,
    ) {
        // A new load balancer may show without targets, as it does where there are none.
        let selection = targets.selection(facts);
        let has_no_targets = *step == Step::Delete || selection.is_empty;
        let targets = selection.digest;
        let intents = if has_no_targets { [NOTHING; 2] } else { [targets, digest(&(targets, endpoints))] };
        self.backends
            .iter_mut()
            .zip(intents)
            .for_each(|(recent, intent)| recent.on_call_started(intent, now));
        match step {
            Step::Ensure { is_audit } => {
                self.specs.on_call_started(digest(&desired_spec(facts)), now);
                self.last_sent = Some(Arc::clone(facts));
                self.mark_existing();
                if !is_audit {
                    self.mark_doubtful();
                }
            }
            Step::UpdateTargets => {
                self.last_sent = Some(Arc::clone(facts));
                if let Belief::Confirmed(confirmation, _) = &mut self.belief {
                    confirmation.targets = None;
                }
            }
            Step::Delete => {
                self.specs.on_call_started(NOTHING, now);
                if self.may_exist() {
                    self.belief = Belief::Unconfirmed { is_settled: false };
                }
            }
            Step::Idle | Step::Forget | Step::ReportInvalid | Step::Write(_) => {}
        }
    }

    /// The outcome of a call that took a step with these targets. `facts` are those of now.
    pub(super) fn on_outcome(
        &mut self,
        step: &Step,
        outcome: &Result<ServiceProgress, CloudError>,
        facts: &Arc<ServiceFacts>,
        targets: u64,
        now: Instant,
    ) {
        let is_confirmed = matches!(outcome, Ok(ServiceProgress::Done { .. } | ServiceProgress::Elsewhere));
        self.intents().for_each(|intents| intents.on_call_ended(is_confirmed, now));
        match outcome {
            Ok(ServiceProgress::Done { .. } | ServiceProgress::Elsewhere) if *step == Step::Delete => {
                (self.belief, self.last_sent) = (Belief::Nothing, None);
            }
            Ok(ServiceProgress::Done { status, .. }) => {
                self.confirm(step, Some(as_stored(status)), facts, targets, now);
            }
            Ok(ServiceProgress::Elsewhere) => self.confirm(step, None, facts, targets, now),
            // The cloud is changing it, so it wasn't as confirmed.
            Ok(ServiceProgress::InProgress { .. }) => {
                if matches!(step, Step::Ensure { .. }) {
                    self.mark_doubtful();
                }
            }
            Err(error) => {
                let is_transient = matches!(error.kind, ErrorKind::Throttled(_) | ErrorKind::Unavailable(_));
                // As upstream: an update that the cloud refuses may succeed together with the rest.
                if *step == Step::UpdateTargets && !is_transient {
                    self.mark_doubtful();
                }
            }
        }
    }

    /// The load balancer is as it was asked for; none for a status means that another controller serves the Service.
    fn confirm(
        &mut self,
        step: &Step,
        status: Option<Vec<Ingress>>,
        facts: &Arc<ServiceFacts>,
        targets: u64,
        now: Instant,
    ) {
        let mut doubt = match &self.belief {
            // An update says nothing about the rest.
            Belief::Confirmed(_, doubt) if *step == Step::UpdateTargets => *doubt,
            _ => Doubt::None,
        };
        if let Some(until) = self.intents().filter_map(|intents| intents.stale_until()).max() {
            // An audit that is due isn't postponed: what keeps alternating would postpone it forever.
            if doubt == Doubt::None || self.audit_not_before > now {
                self.audit_not_before = until;
            }
            if doubt == Doubt::None {
                doubt = Doubt::Audit;
            }
        }
        self.last_status = status.clone().unwrap_or_default();
        let facts = Arc::clone(self.last_sent.as_ref().unwrap_or(facts));
        self.belief = Belief::Confirmed(Confirmation { facts, targets: Some(targets), status }, doubt);
    }

    /// What the cloud has isn't what it confirmed, or what a Service looks like.
    fn mark_doubtful(&mut self) {
        match &mut self.belief {
            Belief::Nothing => {}
            Belief::Unconfirmed { is_settled } => *is_settled = false,
            Belief::Confirmed(_, doubt) => *doubt = Doubt::Real,
        }
    }

    fn intents(&mut self) -> impl Iterator<Item = &mut RecentIntents> {
        std::iter::once(&mut self.specs).chain(&mut self.backends)
    }
}

/// A provider's status as the API server stores it: with an IP mode for each address, and none for host names. Compared as
/// the provider reports it, the status would be written again and again.
pub(super) fn as_stored(status: &[Ingress]) -> Vec<Ingress> {
    let mut status = status.to_vec();
    for ingress in &mut status {
        ingress.ip_mode = match ingress.point {
            IngressPoint::Ip(_) => Some(ingress.ip_mode.unwrap_or(IpMode::Vip)),
            IngressPoint::Hostname(_) => None,
        };
    }
    status
}
