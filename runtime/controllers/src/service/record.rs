//! What is known of one Service: the object, and what the cloud has for it as far as is known.

use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Error as CloudError, ErrorKind, Ingress, IngressPoint, IpMode, LocalEndpoints, ServiceProgress,
};
use tokio::time::Instant;

use super::attempt::Attempt;
use super::plan::{Step, desired_spec, has_other_class, is_same_spec, wants_ours};
use super::recent_intents::{NOTHING, RecentIntents, digest};
use super::targets::Targets;
use super::work::Write;
use super::write_backoff::Written;
use crate::facts::service::ServiceFacts;

/// One Service, by its UID.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all combinations come up")]
pub(super) struct Record {
    /// The object as it was last seen.
    pub(super) facts: Arc<ServiceFacts>,
    /// Whether it is still there.
    pub(super) is_present: bool,
    /// Whether it is ours to clean up whatever it looks like: it was wanted while we ran.
    pub(super) is_ours: bool,
    /// Whether it is ours to clean up unless it is a live one of a foreign class: a list has told of it when it wasn't, or
    /// its deletion has begun.
    pub(super) is_leftover: bool,
    /// Whether a list has told of something in the cloud that bears its UID and the cluster's, which doesn't count yet: as
    /// long as it is a live one of a foreign class that may be another provider's, or the class is missing in our settings.
    pub(super) is_listed: bool,
    /// Where somebody else's class was the last that it had as a LoadBalancer, when it was last seen so or seen to turn.
    pub(super) foreign: Option<Instant>,
    /// Whether it was seen to be held at the last list, see [`Record::is_held`].
    pub(super) was_held: bool,
    /// Whether the cloud may have something for it.
    pub(super) may_exist: bool,
    /// What the cloud last confirmed.
    pub(super) confirmed: Option<Confirmed>,
    /// Whether that may be wrong.
    pub(super) doubt: Doubt,
    /// The ways in that the cloud last told.
    pub(super) address: Vec<Ingress>,
    /// What a provider last heard of it: what is in the cloud was made from that.
    pub(super) last_sent: Option<Arc<ServiceFacts>>,
    /// What was asked for of late, apart from what is behind it.
    pub(super) wishes: RecentIntents,
    /// Which targets were asked for of late, and which with which endpoints on them.
    behind: [RecentIntents; 2],
    /// From when on a look at the cloud shows no more what was asked for before.
    pub(super) looks: Instant,
    /// Whether its problems have been told.
    pub(super) is_refused: bool,
    /// The warnings that were last told.
    pub(super) warnings: Vec<String>,
    /// The step that waits or is under way.
    pub(super) step: Step,
    /// How its work fares.
    pub(super) turn: Attempt,
    /// What was last written.
    written: Written,
}

/// How long whoever serves a foreign class has to clean up what turned to another type, and to remove a finalizer that looks
/// just like ours: clouds take minutes to delete a load balancer, and a controller may be away for as long as somebody needs
/// to put it right. Then nobody is at it, and upstream's rule counts, as it does after a restart.
const YIELDING: Duration = Duration::from_mins(30);

/// What the cloud has confirmed.
#[derive(Debug)]
pub(super) struct Confirmed {
    /// The Service that it was asked for.
    pub(super) facts: Arc<ServiceFacts>,
    /// The targets; none where a change of them has begun, and nobody knows how far it came.
    pub(super) targets: Option<u64>,
    /// The ways in; none where somebody else serves it.
    pub(super) status: Option<Vec<Ingress>>,
}

/// Whether what the cloud has may differ from what it confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It shouldn't.
    None,
    /// It shouldn't either, but it is time to look.
    Audit,
    /// A change has begun that isn't confirmed.
    Real,
}

/// A status as the API server stores it, which says of every address how to treat it, and of names nothing. Compared as a
/// provider tells it, it would be written again and again (ccm-behaviour 4.5).
fn as_stored(status: &[Ingress]) -> Vec<Ingress> {
    let mut status = status.to_vec();
    for ingress in &mut status {
        ingress.ip_mode = match ingress.point {
            IngressPoint::Ip(_) => Some(ingress.ip_mode.unwrap_or(IpMode::Vip)),
            IngressPoint::Hostname(_) => None,
        };
    }
    status
}

impl Record {
    /// Of a Service that wasn't known. One that looks settled was probably ours before we started: it is looked at when
    /// there is time. `is_listed` says that the cloud has something of it.
    pub(super) fn new(facts: &Arc<ServiceFacts>, classes: &[String], is_listed: bool, now: Instant) -> Self {
        let has_address = !facts.service.status.is_empty();
        let is_settled = facts.has_finalizer() && has_address;
        let may_exist = facts.has_finalizer() || has_address;
        let mut record = Self {
            facts: Arc::clone(facts),
            is_present: true,
            is_ours: false,
            is_leftover: false,
            is_listed,
            foreign: None,
            was_held: false,
            may_exist,
            confirmed: None,
            doubt: if is_settled { Doubt::Audit } else { Doubt::Real },
            address: Vec::new(),
            last_sent: None,
            wishes: RecentIntents::new(may_exist || is_listed),
            behind: [RecentIntents::new(may_exist || is_listed), RecentIntents::new(may_exist || is_listed)],
            looks: now,
            is_refused: false,
            warnings: Vec::new(),
            step: Step::Idle,
            turn: Attempt::new(now),
            written: Written::default(),
        };
        record.note(classes, now);
        record
    }

    /// The cloud may have something for it that nothing has told of yet.
    pub(super) fn mark_unknown(&mut self) {
        self.trails().for_each(|trail| *trail = RecentIntents::new(true));
    }

    /// The object is as these facts say.
    pub(super) fn observe(&mut self, facts: &Arc<ServiceFacts>, classes: &[String], now: Instant) {
        let before = std::mem::replace(&mut self.facts, Arc::clone(facts));
        let was_present = std::mem::replace(&mut self.is_present, true);
        let (was, is) = (was_present && wants_ours(&before, classes), wants_ours(facts, classes));
        let is_changed = !is_same_spec(&before, facts);
        let has_other_problems = before.problems != facts.problems;
        // Whoever has put our finalizer there may have gone on from it: one who led before us was faster than our write.
        self.may_exist |= self.is_ours && facts.has_finalizer() && !before.has_finalizer();
        if is && has_other_problems {
            self.is_refused = false;
        }
        if is_changed && self.confirmed.is_none() {
            self.doubt = Doubt::Real;
        }
        if was != is || (is && (is_changed || has_other_problems)) {
            self.turn.renew(now);
        }
        if before.is_load_balancer {
            self.foreign = self.foreign.map(|_| now);
        }
        self.note(classes, now);
    }

    /// The object is gone.
    pub(super) fn vanish(&mut self, classes: &[String], now: Instant) {
        if std::mem::replace(&mut self.is_present, false) && wants_ours(&self.facts, classes) {
            self.turn.renew(now);
        }
        self.count_listing(classes);
    }

    /// A list tells of something in the cloud that bears its UID and the cluster's. Whether that is news.
    pub(super) fn listed(&mut self, classes: &[String]) -> bool {
        let is_news = !std::mem::replace(&mut self.is_listed, true);
        self.count_listing(classes);
        is_news
    }

    /// Whether only a list says that what the cloud has is ours, and somebody else's class that it is theirs. It stays.
    pub(super) fn has_class_conflict(&self, classes: &[String]) -> bool {
        self.is_listed && self.is_aloof(classes) && !(self.is_ours && self.may_exist)
    }

    /// Whether it is a live one of a foreign class.
    fn is_aloof(&self, classes: &[String]) -> bool {
        self.is_present && !self.facts.is_deleting && has_other_class(&self.facts, classes)
    }

    /// Whether it is ours to clean up now.
    pub(super) fn is_claimed(&self, classes: &[String]) -> bool {
        self.is_ours || (self.is_leftover && !self.is_aloof(classes))
    }

    /// Whether a deletion waits for somebody to remove a finalizer that looks like ours, although the class is somebody
    /// else's and the cloud has nothing of ours for it.
    pub(super) fn is_held(&self, classes: &[String]) -> bool {
        let facts = &self.facts;
        let has_other_class = self.is_present && has_other_class(facts, classes);
        has_other_class && facts.is_deleting && facts.has_finalizer() && !self.is_claimed(classes)
    }

    /// Makes it ours to clean up, whatever we thought, if a list has told of it and nobody else can claim it.
    fn count_listing(&mut self, classes: &[String]) {
        if self.is_listed && !self.is_aloof(classes) {
            (self.is_listed, self.is_leftover, self.may_exist) = (false, true, true);
        }
    }

    /// This was written.
    pub(super) fn wrote(&mut self, write: Write, now: Instant) {
        self.written.wrote(write, now);
    }

    /// When the present step may be taken at the earliest, whatever became of its task before.
    pub(super) fn not_before(&self, classes: &[String]) -> Option<Instant> {
        let yields = match &self.step {
            Step::Delete | Step::Write(Write::Finish | Write::Release) if !self.is_claimed(classes) => {
                self.foreign.map(|since| since + YIELDING)
            }
            _ => None,
        };
        let again = match &self.step {
            Step::Write(write) => self.written.again(write),
            Step::Ensure { is_audit: true } => Some(self.looks),
            _ => None,
        };
        yields.max(again)
    }

    fn note(&mut self, classes: &[String], now: Instant) {
        self.is_ours |= wants_ours(&self.facts, classes);
        if self.facts.is_load_balancer {
            self.foreign = has_other_class(&self.facts, classes).then_some(now);
        }
        self.count_listing(classes);
    }

    /// Whether the cloud tells other ways in than the Service has.
    pub(super) fn is_news(&self, status: &[Ingress]) -> bool {
        as_stored(status) != self.facts.service.status
    }

    /// The Service as a provider is told to delete it: as it last heard of it.
    pub(super) fn last_sent(&self) -> &Arc<ServiceFacts> {
        self.last_sent.as_ref().unwrap_or(&self.facts)
    }

    /// A call for the present step begins, with these targets and endpoints on them: until it is confirmed nobody knows
    /// what is there.
    pub(super) fn begins(&mut self, targets: &Targets, endpoints: &[LocalEndpoints], now: Instant) {
        self.turn.begins();
        // What is made anew may show with nothing behind it, as where there are no targets.
        let is_bare = self.step == Step::Delete || targets.table().is_empty();
        let targets = targets.digest();
        let behind = if is_bare { [NOTHING; 2] } else { [targets, digest(&(targets, endpoints))] };
        self.behind.iter_mut().zip(behind).for_each(|(trail, behind)| trail.begins(behind, now));
        match self.step {
            Step::Ensure { is_audit } => {
                self.wishes.begins(digest(&desired_spec(&self.facts.service)), now);
                self.last_sent = Some(Arc::clone(&self.facts));
                self.may_exist = true;
                if !is_audit {
                    self.doubt = Doubt::Real;
                }
            }
            Step::UpdateTargets => {
                self.last_sent = Some(Arc::clone(&self.facts));
                if let Some(confirmed) = &mut self.confirmed {
                    confirmed.targets = None;
                }
            }
            Step::Delete => {
                self.wishes.begins(NOTHING, now);
                (self.confirmed, self.doubt, self.is_leftover) = (None, Doubt::Real, true);
            }
            Step::Idle | Step::Forget | Step::ReportInvalid | Step::Write(_) => {}
        }
    }

    /// What was asked for long ago is forgotten.
    pub(super) fn forgets(&mut self, now: Instant) {
        self.trails().for_each(|trail| trail.forgets(now));
    }

    fn trails(&mut self) -> impl Iterator<Item = &mut RecentIntents> {
        std::iter::once(&mut self.wishes).chain(&mut self.behind)
    }

    /// What the cloud has since the present step, which was taken with these targets. What becomes of the turn is another
    /// matter.
    pub(super) fn learn(
        &mut self,
        outcome: &Result<ServiceProgress, CloudError>,
        targets: u64,
        now: Instant,
    ) {
        let is_confirmed = matches!(outcome, Ok(ServiceProgress::Done { .. } | ServiceProgress::Elsewhere));
        self.trails().for_each(|trail| trail.ends(is_confirmed, now));
        let is_delete = self.step == Step::Delete;
        let status = match outcome {
            Ok(ServiceProgress::Done { status, .. }) => Some(status),
            Ok(ServiceProgress::Elsewhere) => None,
            // Something is being done to it, so it wasn't as it was confirmed.
            Ok(ServiceProgress::InProgress { .. }) if matches!(self.step, Step::Ensure { .. }) => {
                self.doubt = Doubt::Real;
                return;
            }
            Ok(ServiceProgress::InProgress { .. }) => return,
            Err(error) => {
                let passes = matches!(error.kind, ErrorKind::Throttled(_) | ErrorKind::Unavailable);
                // As upstream: targets that can't be changed alone may be able to with all the rest.
                if self.step == Step::UpdateTargets && !passes {
                    self.doubt = Doubt::Real;
                }
                return;
            }
        };
        if is_delete {
            (self.may_exist, self.is_listed, self.last_sent) = (false, false, None);
            return;
        }
        if !matches!(self.step, Step::UpdateTargets) {
            self.doubt = Doubt::None;
        }
        if let Some(until) = self.trails().filter_map(|trail| trail.may_be_old()).max() {
            // A look that is due isn't put off: what goes back and forth would do so for ever.
            if self.doubt == Doubt::None || self.looks > now {
                self.looks = until;
            }
            if self.doubt == Doubt::None {
                self.doubt = Doubt::Audit;
            }
        }
        let status = status.map(|status| as_stored(status));
        self.address = status.clone().unwrap_or_default();
        let facts = Arc::clone(self.last_sent());
        self.confirmed = Some(Confirmed { facts, targets: Some(targets), status });
    }
}
