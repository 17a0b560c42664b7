//! What is kept of one resource or one list: the answers of one sweep, kept and dropped together. A resource that is no
//! list is a sweep of one page.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cache::key::Key;
use crate::cache::scopes::Scope;
use crate::cache::seen::{FlightId, Led};
use crate::cache::stored::Stored;
use crate::limits::Urgency;

/// How long an answer holds which says that there is nothing: nobody is told for long that something is missing that
/// was just made elsewhere.
const ABSENCE: Duration = Duration::from_secs(5);

/// How long after its last page a sweep may be gone on with. A provider reads a page and asks for the next within
/// milliseconds.
const PAUSE: Duration = Duration::from_secs(2);

/// What an answer takes beside its block, in bytes: its place in two maps.
const OVERHEAD: usize = 320;

/// An answer, when it was asked for and when it was there.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) stored: Arc<Stored>,
    pub(crate) sent: Instant,
    pub(crate) landed: Instant,
}

/// The pages that were reached from one first page.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) id: FlightId,
    /// When its first page was asked for.
    pub(crate) begun: Instant,
    first: Key,
    pub(crate) pages: HashMap<Key, Page>,
    /// The exchanges for further pages that others may share.
    pub(crate) flights: HashMap<Key, FlightId>,
    /// When its last page was answered.
    last: Instant,
    led: Led,
}

impl Sweep {
    pub(crate) fn new(id: FlightId, key: Key, first: Page, led: Led, now: Instant) -> Self {
        let (begun, pages) = (first.sent, HashMap::from([(key, first)]));
        Self { id, begun, first: key, pages, flights: HashMap::new(), last: now, led }
    }

    /// Its first page, if that is the one of this key and not too old.
    pub(crate) fn first_page(&self, key: Key, floor: Option<Instant>, now: Instant) -> Option<&Page> {
        let page = self.pages.get(&key).filter(|_| self.first == key)?;
        let is_over = page.stored.is_absence() && now >= page.sent + ABSENCE;
        (!is_over && floor.is_none_or(|floor| self.begun >= floor)).then_some(page)
    }

    /// Until when it may be gone on with: as long as a page is on its way, and a moment after.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        !self.flights.is_empty() || now < self.last + PAUSE
    }

    /// Whether whoever began it is expected to go on, at this time or when the page is answered that is on its way. Until
    /// when at the most is said by `patience`, of one who would rather have a new sweep.
    pub(crate) fn goes_on(&self, now: Instant, led: &Led, patience: Instant) -> Option<Instant> {
        let pause = self.last + PAUSE;
        let is_led = self.led.strong_count() > 0 && !self.led.ptr_eq(led);
        if !self.flights.is_empty() {
            Some(patience)
        } else if now < pause && is_led {
            Some(pause.min(patience))
        } else {
            None
        }
    }

    /// An exchange for a further page has ended.
    pub(crate) fn ended(&mut self, key: Key, flight: FlightId, now: Instant) {
        if self.flights.get(&key) == Some(&flight) {
            self.flights.remove(&key);
        }
        self.last = now;
    }
}

/// What is kept of one resource or one list, and what is on its way for it.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Tells it from another of the same key, before or after.
    pub(crate) birth: u64,
    pub(crate) scope: Scope,
    /// When it was read last, as a number that grows.
    pub(crate) used: u64,
    /// What is read.
    pub(crate) sweep: Option<Box<Sweep>>,
    /// The pages of the sweep before, which the cloud may say are still right.
    pub(crate) former: HashMap<Key, Page>,
    /// The exchange for a first page that others may share.
    pub(crate) next: Option<FlightId>,
    /// What it takes in memory, in bytes, as it was last counted.
    pub(crate) bytes: usize,
    pub(crate) entries: usize,
}

/// An exchange with the cloud that others may share.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) slot: Key,
    pub(crate) birth: u64,
    pub(crate) page: Key,
    /// The sweep of which it asks for a further page.
    pub(crate) continues: Option<FlightId>,
    pub(crate) urgency: Urgency,
    /// When it left; none while it waits for its turn.
    pub(crate) sent: Option<Instant>,
    /// Whether its answer may be kept, as far as is known.
    pub(crate) keeps: bool,
    /// Whether it may ever.
    pub(crate) is_kept: bool,
    pub(crate) led: Led,
}

/// What came of an exchange.
#[derive(Debug, Clone)]
pub(crate) enum Landed {
    /// An answer that may be kept, or one that was kept and is still right.
    Good(Arc<Stored>),
    /// An answer to the point that can't be kept.
    Passing,
    /// An error, of the cloud or on the way to it.
    Failure,
}

/// What an answer is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A sweep that is kept.
    Sweep(FlightId),
    /// No sweep that is kept. What is asked for from now on can follow it.
    None,
    /// It was to be a part of a sweep that is no more.
    Torn,
    /// Nothing was answered.
    Failure,
}

impl Slot {
    pub(crate) fn new(birth: u64, scope: Scope) -> Self {
        let former = HashMap::new();
        Self { birth, scope, used: birth, sweep: None, former, next: None, bytes: 0, entries: 0 }
    }

    /// The answer of which the cloud can say that it is still right.
    pub(crate) fn former(&self, key: Key) -> Option<&Arc<Stored>> {
        let present = self.sweep.as_ref().and_then(|sweep| sweep.pages.get(&key));
        let page = present.or_else(|| self.former.get(&key))?;
        page.stored.validator().map(|_| &page.stored)
    }

    /// Whether nothing is lost with it.
    pub(crate) fn is_idle(&self) -> bool {
        self.sweep.is_none() && self.next.is_none()
    }

    /// How many answers it holds, and what they take.
    pub(crate) fn measure(&self) -> (usize, usize) {
        let present = self.sweep.iter().flat_map(|sweep| sweep.pages.values());
        let pages = present.chain(self.former.values());
        let sizes = pages.map(|page| page.stored.size() + OVERHEAD);
        sizes.fold((0, 0), |(entries, bytes), size| (entries + 1, bytes + size))
    }

    /// The first page of a new sweep has been answered, or hasn't.
    pub(crate) fn first_landed(
        &mut self,
        now: Instant,
        id: FlightId,
        flight: Flight,
        landed: Landed,
    ) -> Part {
        if self.next == Some(id) {
            self.next = None;
        }
        let Flight { page: key, keeps, led, .. } = flight;
        let sent = flight.sent.unwrap_or(now);
        match landed {
            Landed::Failure => Part::Failure,
            Landed::Good(stored) if keeps && self.sweep.as_ref().is_none_or(|sweep| sweep.begun <= sent) => {
                let sweep = Sweep::new(id, key, Page { stored, sent, landed: now }, led, now);
                self.former =
                    self.sweep.replace(Box::new(sweep)).map(|before| before.pages).unwrap_or_default();
                self.former.retain(|former, page| *former != key && page.stored.validator().is_some());
                Part::Sweep(id)
            }
            Landed::Good(_) | Landed::Passing => Part::None,
        }
    }

    /// A further page of a sweep has been answered, or hasn't.
    pub(crate) fn further_landed(
        &mut self,
        now: Instant,
        id: FlightId,
        flight: &Flight,
        landed: Landed,
    ) -> Part {
        let mut sweep = self.sweep.as_mut().filter(|sweep| flight.continues == Some(sweep.id));
        if let Some(sweep) = &mut sweep {
            sweep.ended(flight.page, id, now);
        }
        match (landed, sweep) {
            (Landed::Failure, _) => Part::Failure,
            (_, None) => Part::Torn,
            (Landed::Good(stored), Some(sweep)) if flight.keeps && !stored.is_absence() => {
                // Another may have been quicker. The first one stays: others may have gone on from it.
                let page = Page { stored, sent: flight.sent.unwrap_or(now), landed: now };
                sweep.pages.entry(flight.page).or_insert(page);
                let part = Part::Sweep(sweep.id);
                self.former.remove(&flight.page);
                part
            }
            _ => {
                // Kept together or not at all.
                self.sweep = None;
                self.former.clear();
                Part::None
            }
        }
    }
}
