//! Decides how a read is answered: from the cache, by a fetch in flight, or by a fetch of its own. Pure: the clock and
//! the results of fetches are arguments, so that any order of events can be tested.

use std::collections::HashMap;
use std::time::Instant;

use crate::cache::history::{FetchId, ListPosition, ViewHistory};
use crate::cache::key::Key;
use crate::cache::query::{CacheDecision, CacheQuery};
use crate::cache::scopes::Scopes;
use crate::cache::slot::{FetchRecord, Page};
use crate::cache::slots::{EvictReason, SlotTable};
use crate::deadlines::LINGER;

/// What one provider's cache holds, and the fetches in flight.
#[derive(Debug, Default)]
pub(crate) struct CacheCore {
    pub(crate) slots: SlotTable,
    pub(super) fetches: HashMap<FetchId, FetchRecord>,
    pub(super) scopes: Scopes,
    /// The last fetch that was begun.
    latest: FetchId,
    pub(crate) counts: CacheCounts,
}

/// How many reads were answered in which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheCounts {
    pub(crate) cached: u64,
    pub(crate) shared: u64,
    pub(crate) revalidated: u64,
    pub(crate) missed: u64,
}

impl CacheCore {
    /// An empty cache of at most this many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { slots: SlotTable::new(most), ..Self::default() }
    }

    /// Decides how a read is answered for a view with this history.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        query: &CacheQuery,
        history: &mut ViewHistory,
    ) -> CacheDecision {
        match query.list {
            Some(list) if !list.is_first => self.further(now, query, list.key, history),
            Some(list) => self.first(now, query, list.key, history),
            None => self.first(now, query, query.key, history),
        }
    }

    /// Decides on a resource, or on the first page of a list.
    fn first(
        &mut self,
        now: Instant,
        query: &CacheQuery,
        key: Key,
        history: &mut ViewHistory,
    ) -> CacheDecision {
        let slot = self.slots.get(key);
        let stored = slot.and_then(|slot| {
            let paged_read = slot.paged_read.as_ref()?;
            Some((paged_read.id, paged_read.begun, paged_read.first_page(query, now)?.clone()))
        });
        let is_new = |sent: Instant| query.accepts(sent, Some(sent + LINGER));
        let next = slot.and_then(|slot| slot.next).filter(|id| query.avoided != Some(*id));
        let joined = next.filter(|id| self.may_join(*id, query, is_new));
        match (stored, joined) {
            // A new paged read that was sent will soon replace the stored one, in the middle of its readers.
            (Some((id, begun, page)), joined)
                if query.only_stored
                    || query.list.is_none()
                    || !joined.is_some_and(|id| self.has_left(id)) =>
            {
                if query.list.is_some() {
                    history.set_position(key, ListPosition::Stored { id, at: page.fetched });
                }
                self.give(key, begun, page, history)
            }
            _ if query.only_stored => CacheDecision::Nothing,
            (_, Some(id)) => self.join(id),
            _ => match self.other_paged_read(now, query, key) {
                Some(until) => CacheDecision::Wait(until),
                None => self.lead(now, query, key, None, true),
            },
        }
    }

    /// Until when the first page of a list should wait for another paged read of it.
    fn other_paged_read(&self, now: Instant, query: &CacheQuery, key: Key) -> Option<Instant> {
        if query.list.is_none() || now >= query.wait_until {
            return None;
        }
        let slot = self.slots.get(key)?;
        if let Some(next) = slot.next.and_then(|id| self.fetches.get(&id)) {
            // An answer that is not stored is only for the requests that share it, and a more urgent request does not
            // wait behind a less urgent one.
            let is_behind = next.sent.is_none() && next.urgency > query.urgency;
            return (next.may_store && !is_behind).then_some(query.wait_until);
        }
        slot.paged_read.as_ref()?.goes_on(now, &query.owner_alive, query.wait_until)
    }

    /// Decides on a further page.
    fn further(
        &mut self,
        now: Instant,
        query: &CacheQuery,
        list: Key,
        history: &mut ViewHistory,
    ) -> CacheDecision {
        let reading = history.position(list);
        if let Some(ListPosition::Stored { id, at }) = reading
            && let Some(verdict) = self.page_of_stored(now, query, list, (id, at), history)
        {
            return verdict;
        }
        if query.only_stored {
            return CacheDecision::Nothing;
        }
        // From here on the view reads pages of its own, each requested after the one before.
        let at = match reading {
            Some(ListPosition::Own { at }) => at.unwrap_or(now),
            Some(ListPosition::Stored { at, .. }) => {
                history.is_torn = true;
                at
            }
            None => {
                history.is_torn = true;
                now
            }
        };
        history.set_position(list, ListPosition::Own { at: Some(at) });
        match self.slots.get(query.key).and_then(|slot| slot.next) {
            Some(next) if self.may_join(next, query, |sent| sent >= at) => self.join(next),
            _ => self.lead(now, query, query.key, None, false),
        }
    }

    /// Decides on a further page of a stored paged read, if that is possible.
    fn page_of_stored(
        &mut self,
        now: Instant,
        query: &CacheQuery,
        list: Key,
        (id, at): (FetchId, Instant),
        history: &mut ViewHistory,
    ) -> Option<CacheDecision> {
        let paged_read =
            self.slots.get(list)?.paged_read.as_ref().filter(|paged_read| paged_read.id == id)?;
        if let Some(page) = paged_read.pages.get(&query.key).cloned() {
            let begun = paged_read.begun;
            return (page.sent >= at).then(|| {
                history.set_position(list, ListPosition::Stored { id, at: page.fetched });
                self.give(list, begun, page, history)
            });
        }
        if query.only_stored {
            return None;
        }
        let fetch = paged_read
            .fetches
            .get(&query.key)
            .and_then(|fetch| Some((*fetch, self.fetches.get(fetch)?.sent)));
        match fetch {
            Some((fetch, _)) if self.may_join(fetch, query, |sent| sent >= at) => Some(self.join(fetch)),
            // It was requested before the page that this view already has.
            Some((_, Some(_sent))) => None,
            _ if paged_read.is_open(now) => Some(self.lead(now, query, list, Some(id), true)),
            _ => {
                // Later readers must find a whole paged read or none.
                self.slots.drop(list, EvictReason::Incomplete);
                None
            }
        }
    }

    fn give(&mut self, key: Key, asked: Instant, page: Page, history: &mut ViewHistory) -> CacheDecision {
        history.on_received(asked);
        self.slots.used(key);
        self.counts.cached += 1;
        CacheDecision::Stored(page)
    }

    /// Whether a read may join this fetch: it was not requested too early, and is not held up more than the read itself
    /// would be.
    fn may_join(&self, id: FetchId, query: &CacheQuery, is_new: impl Fn(Instant) -> bool) -> bool {
        self.fetches.get(&id).is_some_and(|fetch| match fetch.sent {
            None => fetch.urgency <= query.urgency,
            Some(sent) => is_new(sent),
        })
    }

    fn has_left(&self, id: FetchId) -> bool {
        self.fetches.get(&id).is_some_and(|fetch| fetch.sent.is_some())
    }

    fn join(&mut self, id: FetchId) -> CacheDecision {
        self.counts.shared += 1;
        CacheDecision::Join(id)
    }

    fn lead(
        &mut self,
        now: Instant,
        query: &CacheQuery,
        key: Key,
        continues: Option<FetchId>,
        is_storable: bool,
    ) -> CacheDecision {
        self.counts.missed += 1;
        self.latest += 1;
        let id = self.latest;
        let may_store = is_storable && self.scopes.are_settled(&query.scope, now);
        let slot = self.slots.make(key, &query.scope);
        let former = slot.former(query.key).filter(|_| may_store).cloned();
        match (&mut slot.paged_read, continues) {
            (Some(paged_read), Some(_)) => {
                paged_read.fetches.insert(query.key, id);
            }
            _ => slot.next = Some(id),
        }
        let (birth, page, urgency, owner_alive) =
            (slot.birth, query.key, query.urgency, query.owner_alive.clone());
        self.fetches.insert(
            id,
            FetchRecord {
                slot: key,
                birth,
                page,
                continues,
                urgency,
                sent: None,
                may_store,
                is_storable,
                owner_alive,
            },
        );
        CacheDecision::Lead(id, former)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::cache::directives::floor;
    use crate::cache::key::List;
    use crate::cache::slot::Fetched;
    use crate::cache::stored::{Stored, WholeResponse};
    use crate::limits::Urgency;

    fn stored(status: u16) -> Arc<Stored> {
        let headers = HeaderMap::from_iter([(http::header::ETAG, "\"1\"".parse().unwrap())]);
        let (status, body) = (StatusCode::from_u16(status).unwrap(), Bytes::new());
        Arc::new(Stored::pack(&WholeResponse { status, headers, body, meaning: None }).unwrap())
    }

    struct View {
        /// Answers at most this old. None for answers requested after the view was made.
        age: Option<Duration>,
        made: Instant,
        history: ViewHistory,
        is_alive: Arc<()>,
    }

    struct Script {
        now: Instant,
        state: CacheCore,
        views: HashMap<char, View>,
        waiting: Vec<(FetchId, char, CacheQuery, bool)>,
        said: Vec<String>,
    }

    /// Plays a script. Returns how each read was answered: `L1` by its own fetch 1 (`L1?` if it may be confirmed), `J1`
    /// by fetch 1 of another, `S3` from the cache 3 s after the request, `W` not yet, `N` not at all. At the end come
    /// the views with torn lists. A view in upper case accepts the answers of a slow cloud.
    ///
    /// `u=9` makes a view of at most 9 s, `u=!` a fresh one, `-u` ends it. `u.a` reads `a` (of scope s, as are the
    /// lists `l` and `m`; `b` is of scope t, `e` of everything), `u.l2` the second page of `l`; `^` is urgent, `*` from
    /// the cache only, `%` has waited long enough; `#` avoids the latest fetch.
    /// `>1` fetch 1 is sent, `1+` is answered, `1-` with 404, `1=` with 304, `1~` with an answer that can't be stored,
    /// `1x` fails. `+5` lets 5 s pass. `s(` begins a change in scope s and `s)` ends it; `(` and `)` one of everything.
    fn play(script: &str) -> String {
        let mut played = Script::new(1 << 20);
        played.play(script);
        let mut torn: Vec<_> =
            played.views.iter().filter(|(_, view)| view.history.is_torn).map(|(name, _)| *name).collect();
        torn.sort_unstable();
        played.said.extend(torn.into_iter().map(|name| format!("torn:{name}")));
        played.said.join(" ")
    }

    impl Script {
        fn new(most: usize) -> Self {
            let (state, now) = (CacheCore::new(most), Instant::now() + Duration::from_hours(1));
            Self { now, state, views: HashMap::new(), waiting: Vec::new(), said: Vec::new() }
        }

        fn play(&mut self, script: &str) {
            for word in script.split_whitespace() {
                self.step(word);
                assert!(self.state.slots.is_consistent(), "{script}: {word}");
            }
        }

        fn step(&mut self, word: &str) {
            let seconds = |text: &str| Duration::from_secs_f64(text.parse().unwrap());
            let scope = |text: &str| (!text.is_empty()).then(|| Arc::from(text));
            if let Some((view, bound)) = word.split_once('=').filter(|(view, _)| view.parse::<u64>().is_err())
            {
                let age = (bound != "!").then(|| seconds(bound));
                let view = view.chars().next().unwrap();
                let (made, history, is_alive) = (self.now, ViewHistory::default(), Arc::default());
                self.views.insert(view, View { age, made, history, is_alive });
            } else if let Some((view, what)) = word.split_once('.').filter(|(view, _)| !view.starts_with('+'))
            {
                self.read(view.chars().next().unwrap(), what);
            } else if let Some(view) = word.strip_prefix('-') {
                self.views.remove(&view.chars().next().unwrap());
            } else if let Some(time) = word.strip_prefix('+') {
                self.now += seconds(time);
            } else if let Some(fetch) = word.strip_prefix('>') {
                self.state.on_sent(self.now, fetch.parse().unwrap());
            } else if let Some(changed) = word.strip_suffix('(') {
                self.state.change_began(&scope(changed));
            } else if let Some(changed) = word.strip_suffix(')') {
                self.state.change_ended(self.now, &scope(changed));
            } else {
                let (fetch, how) = word.split_at(word.len() - 1);
                let fetched = match how {
                    "+" | "=" => Fetched::Storable(stored(200)),
                    "-" => Fetched::Storable(stored(404)),
                    "~" => Fetched::NotStorable,
                    "x" => Fetched::Failed,
                    _ => unreachable!("{word}"),
                };
                self.land(fetch.parse().unwrap(), fetched);
            }
        }

        fn land(&mut self, fetch: FetchId, fetched: Fetched) {
            let result = self.state.on_fetched(self.now, fetch, fetched);
            for (_, view, query, is_own) in self.waiting.extract_if(.., |(id, ..)| *id == fetch) {
                if let Some(view) = self.views.get_mut(&view) {
                    CacheCore::record(&query, result, &mut view.history, is_own);
                }
            }
        }

        fn read(&mut self, name: char, what: &str) {
            let view = self.views.get_mut(&name).unwrap();
            let (what, urgent) = what.strip_suffix('^').map_or((what, false), |what| (what, true));
            let (what, only_stored) = what.strip_suffix('*').map_or((what, false), |what| (what, true));
            let key = |text: &str| {
                let mut key = [0; 32];
                key[..text.len()].copy_from_slice(text.as_bytes());
                Key(key)
            };
            let (what, is_patient) = what.strip_suffix('%').map_or((what, true), |what| (what, false));
            let (what, is_impatient) = what.strip_suffix('#').map_or((what, false), |what| (what, true));
            let list = what.split_at(1);
            let list = (!list.1.is_empty()).then(|| List { key: key(list.0), is_first: list.1 == "1" });
            let scope = match what {
                "b" => Some("t".into()),
                "e" => None,
                _ => Some("s".into()),
            };
            let query = CacheQuery {
                key: key(what),
                list,
                scope,
                floor: view.age.map_or(Some(view.made), |age| floor(age, self.now, self.now)),
                accepts_slow: name.is_ascii_uppercase() && view.age.is_some(),
                avoided: is_impatient.then_some(self.state.latest),
                urgency: if urgent { Urgency::User } else { Urgency::Background },
                only_stored,
                wait_until: self.now + if is_patient { Duration::from_secs(10) } else { Duration::ZERO },
                owner_alive: Arc::downgrade(&view.is_alive),
            };
            let verdict = self.state.read(self.now, &query, &mut view.history);
            self.said.push(match verdict {
                CacheDecision::Stored(page) => format!("S{}", (self.now - page.sent).as_secs()),
                CacheDecision::Nothing => "N".to_owned(),
                CacheDecision::Wait(until) => {
                    assert!(until > self.now, "{what}");
                    "W".to_owned()
                }
                CacheDecision::Join(id) => {
                    self.waiting.push((id, name, query, false));
                    format!("J{id}")
                }
                CacheDecision::Lead(id, former) => {
                    self.waiting.push((id, name, query, true));
                    format!("L{id}{}", if former.is_some() { "?" } else { "" })
                }
            });
        }
    }

    #[test]
    fn each_read_is_answered_from_the_allowed_source() {
        let rows = [
            // Stored answers, and which views may have them.
            ("u=60 u.a >1 1+ u.a +59 u.a +2 u.a", "L1 S0 S59 L2?"),
            ("u=60 u.a +50 >1 +20 1+ u.a +30 u.a +11 u.a", "L1 S20 S50 L2?"),
            ("u=! u.a >1 1+ u.a +1000 u.a v=! v.a", "L1 S0 S1000 L2?"),
            ("u=0 u.a >1 1+ u.a +1 u.a", "L1 S0 L2?"),
            ("u=60 u.a >1 1x u.a", "L1 L2"),
            ("u=60 u.a >1 1~ u.a", "L1 L2"),
            ("u=60 u.a >1 1- u.a +4.9 u.a +0.1 u.a", "L1 S0 S4 L2"),
            ("u=60 u.a* u.a >1 u.a* 1+ u.a*", "N L1 N S0"),
            ("u=60 u.a >1 1+ +61 u.a >2 +5 2= +55 u.a +1 u.a", "L1 L2? S60 L3?"),
            ("u=60 u.a >1 1+ +1 v=! v.a u.a >2 u.a 2x u.a", "L1 L2? S1 S1 S1"),
            ("u=60 u.a >1 1+ +1 v=! v.a >2 2~ u.a", "L1 L2? S1"),
            // Fetches in flight, and which views may join them.
            ("u=! u.a v=! v.a >1 v.a w=! +1 x=! w.a x.a 1+", "L1 J1 J1 J1 L2"),
            ("u=60 u.a >1 +59 u.a +2 u.a", "L1 J1 L2"),
            ("u=60 u.a >1 +1 v=! v.a >2 w=! w.a 2+ 1+ w.a u.a", "L1 L2 J2 S0 S0"),
            ("u=60 u.a >1 +1 v=! v.a >2 1+ u.a 2x u.a", "L1 L2 S1 S1"),
            ("u=60 u.a v=60 v.a^ w=60 w.a w.a^ >1 >2 1+ u.a", "L1 L2 J2 J2 S0"),
            ("u=60 u.a^ v=60 v.a v.a^", "L1 J1 J1"),
            ("u=60 u.a v=60 >1 v.a^", "L1 J1"),
            // Changes.
            ("u=60 u.a >1 1+ s( u.a >2 2+ u.a s) u.a", "L1 L2 L3 L4"),
            ("u=60 u.a >1 s( u.a >2 s) u.a 1+ 2+ u.a", "L1 L2 L3 J3"),
            ("u=60 s( s) u.a >1 1+ u.a +29 >2 2+ u.a", "L1 L2 L3"),
            ("u=60 s( s) u.a +30 >1 1+ u.a", "L1 S0"),
            ("u=60 s( +100 s( s) +100 u.a >1 1+ u.a", "L1 L2"),
            ("u=60 u.a >1 s( s) +30 1+ u.a", "L1 L2"),
            ("u=60 u.b >1 1+ s( u.b s) u.b", "L1 S0 S0"),
            ("u=60 u.e >1 1+ s( u.e s)", "L1 L2"),
            ("u=60 u.a >1 1+ u.b >2 2+ ( u.a u.b )", "L1 L2 L3 L4"),
            ("u=60 ( ) +29 u.a >1 1+ u.a +1 u.b >3 3+ u.b", "L1 L2 L3 S0"),
        ];
        for (script, expected) in rows {
            assert_eq!(play(script), expected, "{script}");
        }
    }

    #[test]
    fn the_pages_of_a_list_are_of_one_paged_read() {
        let whole = "u=60 u.l1 >1 1+ u.l2 >2 2+ u.l3 >3 3+";
        let rows = [
            // A stored list is read as its pages were.
            ("v=60 +9 v.l1 v.l2 v.l3", "S9 S9 S9"),
            ("+9 v=! -u v.l1 >4 4+ v.l2 >5 5= v.l3 >6 6+ v.l2", "L4? L5? L6? S0"),
            ("+50 v=60 v.l1 +20 v.l2 v.l3 -v v=60 v.l1", "S50 S70 S70 L4?"),
            ("v=60 v.l2 v.m1 >5 5+ v.m1", "L4 L5 S0 torn:v"),
            ("v=60 v.l1* v.l2* v.l9*", "S0 S0 N"),
            // It is continued for a moment, and given up where it can't be.
            ("+1.9 v=60 v.l1 v.l4 >4 4+ v.l4", "S1 L4 S0"),
            ("+2 v=60 v.l1 v.l4 >4 4+ v.l4 w=60 w.l1", "S2 L4 L5 L6 torn:v"),
            ("v=60 v.l1 s( v.l2 s)", "S0 L4 torn:v"),
            ("v=60 v.l1 +3 w=! w.l1 >4 v.l2 4+ v.l3", "S0 L4? S3 L5 torn:v"),
            ("v=60 v.l1 v.l4 >4 s( s) 4+", "S0 L4 torn:v"),
            ("v=60 v.l1 v.l4 >4 4~ v.l5 w=60 w.l1", "S0 L4 L5 L6"),
            ("v=60 v.l1 v.l4 >4 4x v.l4 >5 5+ v.l4", "S0 L4 L5 S0"),
            ("v=60 v.l1 u.l4 v.l4^ >5 5+ v.l5 >6 6+ +1 >4 4+ u.l5", "S0 L4 L5 L6 L7 torn:u"),
            ("v=60 v.l1 u.l4 v.l4^ >5 5+ v.l5 >6 6+ +1 >4 4+ w=60 w.l1 w.l4 w.l5", "S0 L4 L5 L6 S1 S1 S1"),
            // A read that wants a newer one waits for its end.
            ("+1 v=! v.l1 +1 v.l1", "W L4?"),
            ("+1 v=! v.l1 -u v.l1", "W L4?"),
            ("+1 u.l4 >4 v=! v.l1 v.l1%", "L4 W L5?"),
            ("+1 u.l4 >4 +1 v=! v.l1 +5 v.l1 4+ v.l1 +2 v.l1", "L4 W W W L5?"),
            ("+1 u=! u.l1", "L4?"),
            ("+1 v=! v.l1* v.l2*", "N N"),
            ("+3 v=! v.l1 w=! w.l1 >4 x=! x.l1 +1 y=! y.l1 4+ x.l2 w.l2", "L4? J4 J4 W L5? J5"),
            ("+3 v=! v.l1 w=! w.l1^ >4 +1 >5 5+ w.l2 4+ v.l2", "L4? L5? L6? L7"),
        ];
        for (script, expected) in rows {
            let expected = format!("L1 L2 L3 {expected}");
            assert_eq!(play(&format!("{whole} {script}")), expected, "{script}");
        }
    }

    #[test]
    fn pages_that_are_not_stored_are_read_in_order_and_shared_where_the_order_allows() {
        let rows = [
            ("s( s) u=! u.l1 v=! v.l1 >1 1+ u.l2 v.l2 >2 2+ u.l3 >3 v.l3 3+", "L1 J1 L2 J2 L3 J3"),
            ("s( s) u=! u.l1 >1 1+ v=! +1 v.l1 >2 2+ u.l2 >3 3+ v.l2", "L1 L2 L3 L4"),
            ("s( s) u=! u.l1 >1 1+ u.l2 >2 +1 v=! v.l1 >3 3+ v.l2", "L1 L2 L3 L4"),
            ("s( s) u=! u.l1 >1 +40 1+ u.l2 >2 2+ v=60 v.l1", "L1 L2 L3"),
            ("u=! u.l1 >1 1~ u.l2 >2 2+ v=60 v.l1", "L1 L2 L3"),
        ];
        for (script, expected) in rows {
            assert_eq!(play(script), expected, "{script}");
        }
    }

    #[test]
    fn what_a_slow_cloud_answers_late_serves_the_next_calls() {
        let rows = [
            // A fetch that a former call has left serves a call that would find it too old.
            ("A=5 A.a >1 +25 -A B=5 B.a +5 1+ B.a +5 C=5 C.a +1 C.a", "L1 J1 S30 S35 L2?"),
            ("A=5 A.a >1 +125 B=5 B.a +1 C=5 C.a", "L1 J1 L2"),
            // It doesn't wait for it for ever, and the one that comes first serves.
            ("A=5 A.a >1 +20 -A B=5 B.a +5 B.a#% >2 +5 1+ C=5 C.a", "L1 J1 L2 S30"),
            ("A=5 A.a >1 +20 -A B=5 B.a +5 B.a#% C=5 C.a >2 2+ C.a 1x C.a", "L1 J1 L2 J2 S0 S0"),
            ("A=5 A.l1 >1 +20 -A B=5 B.l1 +5 B.l1#% >2 2+ B.l2 >3 3+ 1+ C=5 C.l1 C.l2", "L1 J1 L2 L3 S0 S0"),
            // An answer that came at once is as old as ever.
            ("A=5 A.a >1 1+ +5 A.a +1 B=5 B.a", "L1 S5 L2?"),
            ("A=5 A.a >1 +4 1+ +1 A.a +1 B=5 B.a", "L1 S5 L2?"),
            // A fresh view takes nothing from before.
            ("A=! A.a >1 +30 1+ B=! B.a", "L1 L2?"),
            ("A=! A.a >1 +1 B=! B.a", "L1 L2"),
            // A list of slow pages: each call gets one page further.
            (
                "A=30 A.l1 >1 +15 -A +15 1+ B=30 B.l1 B.l2 >2 +15 -B +15 2+ C=30 C.l1 C.l2 C.l3 >3 3+ +29 D=30 D.l1 D.l2 D.l3",
                "L1 S30 L2 S60 S30 L3 S89 S59 S29",
            ),
            ("A=30 A.l1 >1 +15 -A +15 1+ +31 B=30 B.l1", "L1 L2?"),
        ];
        for (script, expected) in rows {
            assert_eq!(play(script), expected, "{script}");
        }
    }

    #[test]
    fn a_view_records_its_oldest_shared_answer() {
        let mut script = Script::new(1 << 20);
        let begun = script.now;
        let mut oldest = |steps: &str, view: char| {
            script.play(steps);
            let oldest: Option<Instant> = script.views[&view].history.oldest;
            oldest.map(|oldest| (oldest - begun).as_secs())
        };
        assert_eq!(oldest("+10 u=60 u.l1 >1 1+ +1 u.l2 >2 2+ u.a >3 3+", 'u'), None);
        assert_eq!(oldest("+1 v=60 v.a", 'v'), Some(11));
        assert_eq!(oldest("v.l1 v.l2", 'v'), Some(10));
        assert_eq!(oldest("w=60 w.l1 w.l2", 'w'), Some(10), "of a page, its paged_read's begin");
        assert_eq!(oldest("x=! x.b >4 +5 y=60 y.b 4+", 'y'), Some(12), "another's exchange");
        assert_eq!(oldest("", 'x'), None);
        let ahead = "z=! z.m1 >5 5+ a=60 +1 a.m1 a.m2 >6 6+ z.m2";
        assert_eq!(oldest(ahead, 'z'), Some(17), "its own paged_read, but not all of its own pages");
    }

    #[test]
    fn the_longest_unread_answers_make_room_and_a_list_as_a_whole() {
        let mut one = Script::new(1 << 20);
        one.play("u=60 u.a >1 1+");
        let size = one.state.slots.held.bytes;
        let play = |steps: &str| {
            let mut script = Script::new(size * 3);
            script.play(steps);
            script.said.join(" ")
        };
        assert_eq!(play("u=60 u.a >1 1+ u.b >2 2+ u.c >3 3+ u.a u.d >4 4+ u.a u.b"), "L1 L2 L3 S0 L4 S0 L5");
        assert_eq!(play("u=60 u.l1 >1 1+ u.l2 >2 2+ u.a >3 3+ u.b >4 4+ u.l2"), "L1 L2 L3 L4 L5");
        let too_long = "u=60 u.l1 >1 1+ u.l2 >2 2+ u.l3 >3 3+ u.l4 >4 4+ u.l5 >5 5+ v=60 v.l1";
        assert_eq!(play(too_long), "L1 L2 L3 L4 L5 L6");
    }
}
