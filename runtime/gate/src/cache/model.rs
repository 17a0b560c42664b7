//! A model of a cloud and its callers, with any order of events between them. It shows that no answer is too old and no
//! absence is believed that is not new.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use proptest::prelude::*;

use crate::cache::decide::CacheCore;
use crate::cache::directives::floor;
use crate::cache::history::{FetchId, ViewHistory};
use crate::cache::key::{Key, List};
use crate::cache::query::{CacheDecision, CacheQuery};
use crate::cache::scopes::{SETTLING, Scope};
use crate::cache::slot::{Fetched, Page};
use crate::cache::stored::{Stored, WholeResponse};
use crate::limits::Urgency;

/// The next event. Numbers choose among what there is.
#[derive(Debug, Clone)]
enum Event {
    /// A view makes its next request, or repeats one that waits; or another request first.
    Reads {
        view: usize,
        what: usize,
        urgent: bool,
        fresh: bool,
        only_stored: bool,
    },
    Passes(u64),
    Leaves(usize),
    Lands {
        fetch: usize,
        how: How,
        lag: u64,
        late: bool,
    },
    Begins(usize),
    Ends(usize),
    /// Another client inserts an item into a list.
    Inserts {
        list: usize,
        at: usize,
    },
    /// A view ends, and another with this bound begins.
    Renews {
        view: usize,
        bound: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    Good,
    Passing,
    Fails,
}

/// Any event, with reads of these things.
fn event(whats: std::ops::Range<usize>) -> impl Strategy<Value = Event> {
    let how = prop_oneof![12 => Just(How::Good), 1 => Just(How::Passing), 1 => Just(How::Fails)];
    // Mostly the times in which paged reads are made, sometimes those after which changes settle or answers are old.
    let time = prop_oneof![12 => 0..1500_u64, 4 => 1500..12_000_u64, 1 => 25_000..40_000_u64];
    let seldom = prop::bool::weighted(0.1);
    let reads = (0..VIEWS, whats, prop::bool::weighted(0.2), seldom, seldom);
    prop_oneof![
        20 => reads.prop_map(|(view, what, urgent, fresh, only_stored)| {
            Event::Reads { view, what, urgent, fresh, only_stored }
        }),
        6 => time.prop_map(Event::Passes),
        14 => (0..3_usize).prop_map(Event::Leaves),
        14 => (0..3_usize, how, 0..30_000_u64, any::<bool>())
            .prop_map(|(fetch, how, lag, late)| Event::Lands { fetch, how, lag, late }),
        1 => (0..3_usize).prop_map(Event::Begins),
        2 => (0..2_usize).prop_map(Event::Ends),
        4 => (0..2_usize, 0..4_usize).prop_map(|(list, at)| Event::Inserts { list, at }),
        2 => (0..VIEWS, prop::option::of(0..60_000_u64)).prop_map(|(view, bound)| Event::Renews { view, bound }),
    ]
}

const VIEWS: usize = 4;
/// The number of items on a page.
const PAGE: usize = 2;

fn scopes() -> [Scope; 3] {
    [Some("a".into()), Some("b".into()), None]
}

/// Whether a change in one scope may affect a read in the other.
fn concerns(changed: &Scope, read: &Scope) -> bool {
    changed.is_none() || read.is_none() || changed == read
}

/// A resource of each scope, and a page of a list of the first and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Resource(usize),
    Page { list: usize, offset: usize },
}

impl What {
    fn key(self, domain: u8) -> Key {
        let mut key = [domain; 32];
        match self {
            Self::Resource(number) => key[..2].copy_from_slice(&[1, u8::try_from(number).unwrap()]),
            Self::Page { list, offset } => {
                key[..3].copy_from_slice(&[2, u8::try_from(list).unwrap(), u8::try_from(offset).unwrap()]);
            }
        }
        Key(key)
    }

    fn scope(self) -> Scope {
        let [a, b, all] = scopes();
        match self {
            Self::Resource(0) | Self::Page { list: 0, .. } => a,
            Self::Resource(1) => b,
            _ => all,
        }
    }

    fn list(self) -> Option<List> {
        let Self::Page { list, offset } = self else { return None };
        Some(List { key: Self::Page { list, offset: 0 }.key(9), is_first: offset == 0 })
    }
}

struct Fetch {
    what: What,
    sent: Option<Instant>,
    former: Option<Arc<Stored>>,
}

/// The progress of a view in a list.
#[derive(Default)]
struct Listing {
    found: BTreeSet<usize>,
    next: usize,
    /// When the view requested its first page itself, or the paged read that it received was begun.
    begun: Option<Instant>,
    floor: Option<Instant>,
}

struct Pending {
    what: What,
    query: CacheQuery,
    arrived: Instant,
    /// The fetch, and whether it is its own. None while it waits.
    fetch: Option<(FetchId, bool)>,
}

struct View {
    bound: Option<Duration>,
    made: Instant,
    history: ViewHistory,
    is_alive: Arc<()>,
    pending: Option<Pending>,
    lists: BTreeMap<usize, Listing>,
}

struct Change {
    scope: Scope,
    ended: Option<Instant>,
}

struct World {
    now: Instant,
    state: CacheCore,
    views: Vec<View>,
    fetches: BTreeMap<FetchId, Fetch>,
    changes: Vec<Change>,
    /// The items of each list in order, and since when they exist.
    lists: [Vec<(usize, Instant)>; 2],
    items: usize,
}

impl World {
    fn new(most: usize) -> Self {
        let now = Instant::now() + Duration::from_hours(24);
        let view = || View {
            bound: Some(Duration::from_secs(20)),
            made: now,
            history: ViewHistory::default(),
            is_alive: Arc::default(),
            pending: None,
            lists: BTreeMap::new(),
        };
        let views = std::iter::repeat_with(view).take(VIEWS).collect();
        let list = |first: usize| (first..first + 3).map(|item| (item, now)).collect();
        let (lists, state) = ([list(0), list(3)], CacheCore::new(most));
        Self { now, state, views, fetches: BTreeMap::new(), changes: Vec::new(), lists, items: 6 }
    }

    fn happens(&mut self, event: &Event) {
        // No two events happen at the same time, so that their times show their order.
        self.now += Duration::from_micros(1);
        match *event {
            Event::Passes(millis) => self.now += Duration::from_millis(millis),
            Event::Leaves(nth) => {
                let mut waiting = self.fetches.iter_mut().filter(|(_, fetch)| fetch.sent.is_none());
                if let Some((id, fetch)) = waiting.nth(nth) {
                    fetch.sent = Some(self.now);
                    self.state.on_sent(self.now, *id);
                }
            }
            Event::Lands { fetch, how, lag, late } => {
                let left = self.fetches.iter().filter(|(_, fetch)| fetch.sent.is_some() || how == How::Fails);
                if let Some(id) = left.map(|(id, _)| *id).nth(fetch) {
                    self.lands(id, how, Duration::from_millis(lag), late);
                }
            }
            Event::Begins(scope) => {
                let scope = scopes()[scope].clone();
                self.state.change_began(&scope);
                self.changes.push(Change { scope, ended: None });
            }
            Event::Ends(nth) => {
                let mut under_way = self.changes.iter_mut().filter(|change| change.ended.is_none());
                if let Some(change) = under_way.nth(nth) {
                    change.ended = Some(self.now);
                    self.state.change_ended(self.now, &change.scope);
                }
            }
            Event::Inserts { list, at } => {
                let at = at.min(self.lists[list].len());
                self.lists[list].insert(at, (self.items, self.now));
                self.items += 1;
            }
            Event::Renews { view, bound } => {
                let (made, bound) = (self.now, bound.map(Duration::from_millis));
                self.views[view] = View {
                    bound,
                    made,
                    history: ViewHistory::default(),
                    is_alive: Arc::default(),
                    pending: None,
                    lists: BTreeMap::new(),
                };
                self.give_up_unwanted();
            }
            Event::Reads { view, what, urgent, fresh, only_stored } => {
                self.reads(view, what, (urgent, fresh, only_stored));
            }
        }
        assert!(self.state.slots.is_consistent());
    }

    /// Ends the fetches that no view waits for.
    fn give_up_unwanted(&mut self) {
        let wanted: BTreeSet<_> = self.views.iter().filter_map(|view| view.pending.as_ref()?.fetch).collect();
        let unwanted = |id: &FetchId| !wanted.iter().any(|(wanted, _)| wanted == id);
        for id in self.fetches.keys().copied().filter(unwanted).collect::<Vec<_>>() {
            self.fetches.remove(&id);
            self.state.on_fetched(self.now, id, Fetched::Failed);
        }
    }

    fn reads(&mut self, view: usize, what: usize, (urgent, fresh, only_stored): (bool, bool, bool)) {
        let now = self.now;
        let reader = &mut self.views[view];
        let pending = reader.pending.take();
        let (what, arrived, wait_until, fresh) = match pending {
            Some(pending) if pending.fetch.is_some() => {
                reader.pending = Some(pending);
                return;
            }
            Some(Pending { what, query, arrived, .. }) => (what, arrived, query.wait_until, false),
            None => {
                let what = match what {
                    0..=2 => What::Resource(what),
                    3 => What::Page { list: 0, offset: reader.lists.entry(0).or_default().next },
                    _ => What::Page { list: 1, offset: reader.lists.entry(1).or_default().next },
                };
                (what, now, now + Duration::from_secs(10), fresh)
            }
        };
        let bound = reader.bound.map_or(Some(reader.made), |age| floor(age, arrived, now));
        let query = CacheQuery {
            key: what.key(0),
            list: what.list(),
            scope: what.scope(),
            floor: bound.max(fresh.then_some(arrived)),
            avoided: None,
            accepts_slow: view.is_multiple_of(2) && reader.bound.is_some() && !fresh,
            urgency: if urgent { Urgency::User } else { Urgency::Background },
            only_stored,
            wait_until,
            owner_alive: Arc::downgrade(&reader.is_alive),
        };
        let was_torn = reader.history.is_torn;
        let verdict = self.state.read(now, &query, &mut reader.history);
        let pend = |fetch| Some(Pending { what, query: query.clone(), arrived, fetch });
        match verdict {
            CacheDecision::Nothing => {
                assert!(only_stored);
                assert_eq!(reader.history.is_torn, was_torn, "it was reply nothing");
            }
            CacheDecision::Wait(until) => {
                assert!(until > now && now < wait_until);
                reader.pending = pend(None);
            }
            CacheDecision::Join(id) => {
                let fetch = &self.fetches[&id];
                assert_eq!(fetch.what, what);
                reader.pending = pend(Some((id, false)));
            }
            CacheDecision::Lead(id, former) => {
                self.fetches.insert(id, Fetch { what, sent: None, former });
                reader.pending = pend(Some((id, true)));
            }
            CacheDecision::Stored(Page { stored, sent, .. }) => {
                let pending = Pending { what, query, arrived, fetch: None };
                let text = String::from_utf8(stored.unpack().body.to_vec()).unwrap();
                if matches!(what, What::Resource(_)) {
                    let shown: usize = text.parse().unwrap();
                    let made = self.changes_before(&what.scope(), arrived);
                    assert!(shown >= made, "{shown} of {made} changes");
                }
                self.reply(view, &pending, &text, sent, false);
            }
        }
    }

    /// The number of changes that may affect this scope and had ended by then.
    fn changes_before(&self, scope: &Scope, then: Instant) -> usize {
        let ended = |change: &&Change| change.ended.is_some_and(|ended| ended <= then);
        self.changes.iter().filter(ended).filter(|change| concerns(&change.scope, scope)).count()
    }

    fn lands(&mut self, id: FetchId, how: How, lag: Duration, late: bool) {
        let Fetch { what, sent, former } = self.fetches.remove(&id).unwrap();
        let text = match what {
            // A cloud shows a change within the settling time.
            What::Resource(_) => {
                assert!(lag < SETTLING);
                self.changes_before(
                    &what.scope(),
                    sent.map_or(self.now, |sent| sent.checked_sub(lag).unwrap()),
                )
                .to_string()
            }
            // A list shows its items at some time between request and answer.
            What::Page { list, offset } => {
                let shown_at = if late { self.now } else { sent.unwrap_or(self.now) };
                let there: Vec<_> = self.lists[list].iter().filter(|(_, since)| *since <= shown_at).collect();
                let page = there.iter().skip(offset).take(PAGE).map(|(item, _)| item.to_string());
                let more = if there.len() > offset + PAGE { "more" } else { "end" };
                format!("{}|{more}", page.collect::<Vec<_>>().join(","))
            }
        };
        let fetched = match how {
            How::Fails => Fetched::Failed,
            How::Passing => Fetched::NotStorable,
            How::Good => {
                let confirmed = former.filter(|former| former.unpack().body == text);
                Fetched::Storable(confirmed.unwrap_or_else(|| stored(&text)))
            }
        };
        let result = self.state.on_fetched(self.now, id, fetched);
        for view in 0..VIEWS {
            let of_flight = |pending: &Pending| pending.fetch.is_some_and(|(fetch, _)| fetch == id);
            let Some(pending) = self.views[view].pending.take_if(|pending| of_flight(pending)) else {
                continue;
            };
            let is_own = pending.fetch.is_some_and(|(_, is_own)| is_own);
            CacheCore::record(&pending.query, result, &mut self.views[view].history, is_own);
            if how != How::Fails {
                self.reply(view, &pending, &text, sent.unwrap(), is_own);
            }
        }
    }

    /// Checks an answer that a view received and that was requested at `sent`.
    fn reply(&mut self, view: usize, pending: &Pending, text: &str, sent: Instant, is_own: bool) {
        let Pending { what, query, arrived, .. } = pending;
        for change in self.changes.iter().filter(|change| concerns(&change.scope, &what.scope())) {
            let ended_before = change.ended.filter(|ended| ended <= arrived);
            assert!(
                ended_before.is_none_or(|ended| ended <= sent),
                "it was asked for before a change had ended"
            );
        }
        let reader = &mut self.views[view];
        if !is_own {
            assert!(
                reader.history.oldest.is_some_and(|oldest| oldest <= sent),
                "it is older than the view knows"
            );
        }
        let What::Page { list, offset } = *what else {
            assert!(query.accepts_slow || query.floor.is_none_or(|floor| sent >= floor), "it is too old");
            return;
        };
        let listing = reader.lists.entry(list).or_default();
        if offset == 0 {
            let floor = query.floor.filter(|_| !query.accepts_slow);
            *listing = Listing { floor, begun: Some(sent), ..Listing::default() };
        }
        assert!(listing.floor.is_none_or(|floor| sent >= floor), "it is too old");
        let (items, more) = text.split_once('|').unwrap();
        listing.found.extend(
            items.split(',').filter(|item| !item.is_empty()).map(|item| item.parse::<usize>().unwrap()),
        );
        listing.next = if more == "more" { offset + PAGE } else { 0 };
        if more != "more" && !reader.history.is_torn {
            // All items that existed when the oldest page was requested must have been found.
            let begun = reader.history.oldest.into_iter().chain(listing.begun).min().unwrap();
            for (item, since) in &self.lists[list] {
                assert!(
                    *since > begun || listing.found.contains(item),
                    "{item} of {list} is believed to be absent"
                );
            }
        }
    }

    /// Ends all fetches in flight.
    fn ends(&mut self) {
        for id in self.fetches.keys().copied().collect::<Vec<_>>() {
            self.lands(id, How::Fails, Duration::ZERO, false);
        }
        assert_eq!(self.state.fetches(), 0);
        assert!(self.state.slots.is_consistent());
    }
}

fn stored(text: &str) -> Arc<Stored> {
    let headers = HeaderMap::from_iter([(http::header::ETAG, format!("\"{text}\"").parse().unwrap())]);
    Arc::new(
        Stored::pack(&WholeResponse {
            status: StatusCode::OK,
            headers,
            body: Bytes::from(text.to_owned()),
            meaning: None,
        })
        .unwrap(),
    )
}

fn plays(most: usize, events: &[Event]) {
    let mut world = World::new(most);
    for event in events {
        world.happens(event);
    }
    world.ends();
}

proptest! {
    #[test]
    fn no_answer_is_too_old_and_none_hides_a_change(
        most in prop_oneof![Just(1_000_000_usize), 500..4000_usize],
        events in prop::collection::vec(event(0..6), 1..150),
    ) {
        plays(most, &events);
    }

    #[test]
    fn no_absence_is_believed_that_isnt_new(
        most in prop_oneof![4 => Just(1_000_000_usize), 1 => 1000..4000_usize],
        events in prop::collection::vec(event(4..6), 1..300),
    ) {
        plays(most, &events);
    }
}
