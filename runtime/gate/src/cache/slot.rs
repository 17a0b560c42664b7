//! What is stored of one resource or one list: the pages of one paged read, stored and dropped together. A single
//! resource is a paged read of one page.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cache::history::{CallAlive, FetchId};
use crate::cache::key::Key;
use crate::cache::query::CacheQuery;
use crate::cache::scopes::Scope;
use crate::cache::stored::Stored;
use crate::limits::Urgency;

/// How long an answer is used that says that something is absent: it may have been created elsewhere since.
const ABSENCE: Duration = Duration::from_secs(5);

/// How long after its last page a paged read may be continued. A provider reads a page and requests the next within
/// milliseconds.
const PAUSE: Duration = Duration::from_secs(2);

/// An answer that takes this long is slow: it may have taken all the time of the call that requested it.
pub(crate) const SLOW: Duration = Duration::from_secs(5);

/// The memory of an answer beside its block, in bytes: its place in two maps.
const OVERHEAD: usize = 320;

/// An answer, when it was requested and when it was received.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) stored: Arc<Stored>,
    pub(crate) sent: Instant,
    pub(crate) fetched: Instant,
}

/// The pages that were reached from one first page.
#[derive(Debug)]
pub(crate) struct PagedRead {
    pub(crate) id: FetchId,
    /// When its first page was requested.
    pub(crate) begun: Instant,
    first: Key,
    pub(crate) pages: HashMap<Key, Page>,
    /// The fetches of further pages that others may join.
    pub(crate) fetches: HashMap<Key, FetchId>,
    /// When its last page was answered.
    last: Instant,
    /// How long the cloud took for its slowest page.
    slowest: Duration,
    owner_alive: CallAlive,
}

impl PagedRead {
    pub(crate) fn new(id: FetchId, key: Key, first: Page, owner_alive: CallAlive, now: Instant) -> Self {
        let begun = first.sent;
        let (slowest, pages) = (now.saturating_duration_since(begun), HashMap::from([(key, first)]));
        Self { id, begun, first: key, pages, fetches: HashMap::new(), last: now, slowest, owner_alive }
    }

    /// Its first page, if it has this key and is not too old.
    pub(crate) fn first_page(&self, query: &CacheQuery, now: Instant) -> Option<&Page> {
        let page = self.pages.get(&query.key).filter(|_| self.first == query.key)?;
        let is_over = page.stored.is_absence() && now >= page.sent + ABSENCE;
        let came = (self.slowest >= SLOW).then_some(self.last);
        (!is_over && query.accepts(self.begun, came)).then_some(page)
    }

    /// Whether it may be continued: while a page is being fetched, and a moment longer.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        !self.fetches.is_empty() || now < self.last + self.pause()
    }

    /// A call that a slow page has taken all its time is followed by another, which may take as long to come.
    fn pause(&self) -> Duration {
        if self.slowest >= SLOW { PAUSE.max(self.slowest) } else { PAUSE }
    }

    /// Until when a caller that prefers a new paged read should wait, at most until `wait_until`, because the call that
    /// began this one is expected to continue it. None if it is not.
    pub(crate) fn goes_on(
        &self,
        now: Instant,
        owner_alive: &CallAlive,
        wait_until: Instant,
    ) -> Option<Instant> {
        let pause = self.last + PAUSE;
        let is_led = self.owner_alive.strong_count() > 0 && !self.owner_alive.ptr_eq(owner_alive);
        if !self.fetches.is_empty() {
            Some(wait_until)
        } else if now < pause && is_led {
            Some(pause.min(wait_until))
        } else {
            None
        }
    }

    /// Notes that the fetch of a further page has ended.
    pub(crate) fn on_fetch_end(&mut self, key: Key, fetch: FetchId, sent: Instant, now: Instant) {
        if self.fetches.get(&key) == Some(&fetch) {
            self.fetches.remove(&key);
        }
        self.last = now;
        self.slowest = self.slowest.max(now.saturating_duration_since(sent));
    }
}

/// What is stored of one resource or one list, and what is being fetched for it.
#[derive(Debug)]
pub(crate) struct CacheSlot {
    /// Distinguishes it from earlier and later slots of the same key.
    pub(crate) birth: u64,
    pub(crate) scope: Scope,
    /// The number of its last use, which grows.
    pub(crate) used: u64,
    /// The paged read that answers reads.
    pub(crate) paged_read: Option<Box<PagedRead>>,
    /// The pages of the paged read before, which the cloud may confirm.
    pub(crate) former: HashMap<Key, Page>,
    /// The fetch of a first page that others may join.
    pub(crate) next: Option<FetchId>,
    /// The memory that it takes, in bytes, as last counted.
    pub(crate) bytes: usize,
    pub(crate) entries: usize,
}

/// A fetch that others may join.
#[derive(Debug)]
pub(crate) struct FetchRecord {
    pub(crate) slot: Key,
    pub(crate) birth: u64,
    pub(crate) page: Key,
    /// The paged read that it continues.
    pub(crate) continues: Option<FetchId>,
    pub(crate) urgency: Urgency,
    /// When it was sent. None while it waits for a limit.
    pub(crate) sent: Option<Instant>,
    /// Whether its answer may be stored, as far as is known.
    pub(crate) may_store: bool,
    /// Whether its answer may be stored at all.
    pub(crate) is_storable: bool,
    pub(crate) owner_alive: CallAlive,
}

/// What a fetch brought, for the cache.
#[derive(Debug, Clone)]
pub(crate) enum Fetched {
    /// An answer that may be stored, or a stored one that was confirmed.
    Storable(Arc<Stored>),
    /// An answer that can't be stored.
    NotStorable,
    /// An error, of the cloud or in the exchange with it.
    Failed,
}

/// The paged read that an answer is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadPart {
    /// A stored paged read.
    Stored(FetchId),
    /// None that is stored. Later requests can follow it.
    None,
    /// A paged read that was dropped meanwhile.
    Torn,
    /// There is no answer.
    Failure,
}

impl CacheSlot {
    pub(crate) fn new(birth: u64, scope: Scope) -> Self {
        let former = HashMap::new();
        Self { birth, scope, used: birth, paged_read: None, former, next: None, bytes: 0, entries: 0 }
    }

    /// The answer that the cloud can confirm.
    pub(crate) fn former(&self, key: Key) -> Option<&Arc<Stored>> {
        let present = self.paged_read.as_ref().and_then(|paged_read| paged_read.pages.get(&key));
        let page = present.or_else(|| self.former.get(&key))?;
        page.stored.validator().map(|_| &page.stored)
    }

    /// Whether nothing is lost when it is removed.
    pub(crate) fn is_idle(&self) -> bool {
        self.paged_read.is_none() && self.next.is_none()
    }

    /// The number of answers, and the memory that they take.
    pub(crate) fn measure(&self) -> (usize, usize) {
        let present = self.paged_read.iter().flat_map(|paged_read| paged_read.pages.values());
        let pages = present.chain(self.former.values());
        let sizes = pages.map(|page| page.stored.size() + OVERHEAD);
        sizes.fold((0, 0), |(entries, bytes), size| (entries + 1, bytes + size))
    }

    /// Notes the end of the fetch of a first page.
    pub(crate) fn first_landed(
        &mut self,
        now: Instant,
        id: FetchId,
        fetch: FetchRecord,
        fetched: Fetched,
    ) -> ReadPart {
        if self.next == Some(id) {
            self.next = None;
        }
        let FetchRecord { page: key, may_store, owner_alive, .. } = fetch;
        let sent = fetch.sent.unwrap_or(now);
        match fetched {
            Fetched::Failed => ReadPart::Failure,
            Fetched::Storable(stored)
                if may_store
                    && self.paged_read.as_ref().is_none_or(|paged_read| paged_read.begun <= sent) =>
            {
                let paged_read =
                    PagedRead::new(id, key, Page { stored, sent, fetched: now }, owner_alive, now);
                self.former = self
                    .paged_read
                    .replace(Box::new(paged_read))
                    .map(|before| before.pages)
                    .unwrap_or_default();
                self.former.retain(|former, page| *former != key && page.stored.validator().is_some());
                ReadPart::Stored(id)
            }
            Fetched::Storable(_) | Fetched::NotStorable => ReadPart::None,
        }
    }

    /// Notes the end of the fetch of a further page.
    pub(crate) fn further_landed(
        &mut self,
        now: Instant,
        id: FetchId,
        fetch: &FetchRecord,
        fetched: Fetched,
    ) -> ReadPart {
        let mut paged_read =
            self.paged_read.as_mut().filter(|paged_read| fetch.continues == Some(paged_read.id));
        if let Some(paged_read) = &mut paged_read {
            paged_read.on_fetch_end(fetch.page, id, fetch.sent.unwrap_or(now), now);
        }
        match (fetched, paged_read) {
            (Fetched::Failed, _) => ReadPart::Failure,
            (_, None) => ReadPart::Torn,
            (Fetched::Storable(stored), Some(paged_read)) if fetch.may_store && !stored.is_absence() => {
                // Another fetch may have been quicker. The first answer stays: others may have continued from it.
                let page = Page { stored, sent: fetch.sent.unwrap_or(now), fetched: now };
                paged_read.pages.entry(fetch.page).or_insert(page);
                let part = ReadPart::Stored(paged_read.id);
                self.former.remove(&fetch.page);
                part
            }
            _ => {
                // The pages are stored together or not at all.
                self.paged_read = None;
                self.former.clear();
                ReadPart::None
            }
        }
    }
}
