//! Who is answered with what: from what is kept, by an exchange that is on its way, or by one of his own. Pure: the
//! clock and what happens to the exchanges are arguments, so that any order of events can be tried.

use std::collections::HashMap;
use std::time::Instant;

use crate::cache::ask::{Ask, Verdict};
use crate::cache::key::{Key, List};
use crate::cache::scopes::{Scope, Scopes};
use crate::cache::seen::{FlightId, Reading, Seen};
use crate::cache::slot::{Flight, Landed, Page, Part};
use crate::cache::slots::{Dropped, Slots};

/// What one provider's cache holds, and what is on its way.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) slots: Slots,
    flights: HashMap<FlightId, Flight>,
    scopes: Scopes,
    /// The exchange that was begun last.
    latest: FlightId,
    pub(crate) counts: Counts,
}

/// How many reads were answered in which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) cached: u64,
    pub(crate) shared: u64,
    pub(crate) revalidated: u64,
    pub(crate) missed: u64,
}

/// What an answer is to those that it is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Landing {
    landed: Instant,
    /// When the sweep was begun that it is of.
    begun: Instant,
    part: Part,
}

impl State {
    /// An empty cache that holds so many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { slots: Slots::new(most), ..Self::default() }
    }

    /// Says how a read is answered for a view that has seen this much.
    pub(crate) fn read(&mut self, now: Instant, ask: &Ask, seen: &mut Seen) -> Verdict {
        match ask.list {
            Some(list) if !list.is_first => self.further(now, ask, list.key, seen),
            Some(list) => self.first(now, ask, list.key, seen),
            None => self.first(now, ask, ask.key, seen),
        }
    }

    /// A resource, or the first page of a list.
    fn first(&mut self, now: Instant, ask: &Ask, key: Key, seen: &mut Seen) -> Verdict {
        let slot = self.slots.get(key);
        let stored = slot.and_then(|slot| {
            let sweep = slot.sweep.as_ref()?;
            Some((sweep.id, sweep.begun, sweep.first_page(ask.key, ask.floor, now)?.clone()))
        });
        let joined = slot.and_then(|slot| slot.next).filter(|id| self.may_join(*id, ask, ask.floor));
        match (stored, joined) {
            // A sweep that has been begun will soon end the one that is there, in the midst of whoever reads it.
            (Some((id, begun, page)), joined)
                if ask.only_stored || ask.list.is_none() || !joined.is_some_and(|id| self.has_left(id)) =>
            {
                if ask.list.is_some() {
                    seen.reads(key, Reading::Sweep { id, at: page.landed });
                }
                self.give(key, begun, page, seen)
            }
            _ if ask.only_stored => Verdict::Nothing,
            (_, Some(id)) => self.join(id),
            _ => match self.sweep_before(now, ask, key) {
                Some(until) => Verdict::Wait(until),
                None => self.lead(now, ask, key, None, true),
            },
        }
    }

    /// Until when the first page of a list should wait, since another sweep of it is under way.
    fn sweep_before(&self, now: Instant, ask: &Ask, key: Key) -> Option<Instant> {
        if ask.list.is_none() || now >= ask.patience {
            return None;
        }
        let slot = self.slots.get(key)?;
        if let Some(next) = slot.next.and_then(|id| self.flights.get(&id)) {
            // What isn't kept is nobody's but theirs who share it, and who is more urgent waits for nobody's turn.
            let is_behind = next.sent.is_none() && next.urgency > ask.urgency;
            return (next.keeps && !is_behind).then_some(ask.patience);
        }
        slot.sweep.as_ref()?.goes_on(now, &ask.led, ask.patience)
    }

    /// A page that isn't the first.
    fn further(&mut self, now: Instant, ask: &Ask, list: Key, seen: &mut Seen) -> Verdict {
        let reading = seen.reading(list);
        if let Some(Reading::Sweep { id, at }) = reading
            && let Some(verdict) = self.of_sweep(now, ask, list, (id, at), seen)
        {
            return verdict;
        }
        if ask.only_stored {
            return Verdict::Nothing;
        }
        // From here on the view reads pages of its own, each asked for after the one before.
        let at = match reading {
            Some(Reading::Own { at }) => at.unwrap_or(now),
            Some(Reading::Sweep { at, .. }) => {
                seen.is_torn = true;
                at
            }
            None => {
                seen.is_torn = true;
                now
            }
        };
        seen.reads(list, Reading::Own { at: Some(at) });
        match self.slots.get(ask.key).and_then(|slot| slot.next) {
            Some(next) if self.may_join(next, ask, Some(at)) => self.join(next),
            _ => self.lead(now, ask, ask.key, None, false),
        }
    }

    /// A further page of a sweep, if that can be had.
    fn of_sweep(
        &mut self,
        now: Instant,
        ask: &Ask,
        list: Key,
        (id, at): (FlightId, Instant),
        seen: &mut Seen,
    ) -> Option<Verdict> {
        let sweep = self.slots.get(list)?.sweep.as_ref().filter(|sweep| sweep.id == id)?;
        if let Some(page) = sweep.pages.get(&ask.key).cloned() {
            let begun = sweep.begun;
            return (page.sent >= at).then(|| {
                seen.reads(list, Reading::Sweep { id, at: page.landed });
                self.give(list, begun, page, seen)
            });
        }
        if ask.only_stored {
            return None;
        }
        let flight =
            sweep.flights.get(&ask.key).and_then(|flight| Some((*flight, self.flights.get(flight)?.sent)));
        match flight {
            Some((flight, _)) if self.may_join(flight, ask, Some(at)) => Some(self.join(flight)),
            // It was asked for before the page that this view has already.
            Some((_, Some(_sent))) => None,
            _ if sweep.is_open(now) => Some(self.lead(now, ask, list, Some(id), true)),
            _ => {
                // Whoever comes later is to find a whole sweep or none.
                self.slots.drop(list, Dropped::Incomplete);
                None
            }
        }
    }

    fn give(&mut self, key: Key, asked: Instant, page: Page, seen: &mut Seen) -> Verdict {
        seen.was_given(asked);
        self.slots.used(key);
        self.counts.cached += 1;
        Verdict::Stored(page)
    }

    /// Whether a read may share this exchange: it isn't asked for too early, and isn't held up more than the read itself
    /// would be.
    fn may_join(&self, id: FlightId, ask: &Ask, floor: Option<Instant>) -> bool {
        self.flights.get(&id).is_some_and(|flight| match flight.sent {
            None => flight.urgency <= ask.urgency,
            Some(sent) => floor.is_none_or(|floor| sent >= floor),
        })
    }

    fn has_left(&self, id: FlightId) -> bool {
        self.flights.get(&id).is_some_and(|flight| flight.sent.is_some())
    }

    fn join(&mut self, id: FlightId) -> Verdict {
        self.counts.shared += 1;
        Verdict::Join(id)
    }

    fn lead(
        &mut self,
        now: Instant,
        ask: &Ask,
        key: Key,
        continues: Option<FlightId>,
        is_kept: bool,
    ) -> Verdict {
        self.counts.missed += 1;
        self.latest += 1;
        let id = self.latest;
        let keeps = is_kept && self.scopes.are_settled(&ask.scope, now);
        let slot = self.slots.make(key, &ask.scope);
        let former = slot.former(ask.key).filter(|_| keeps).cloned();
        match (&mut slot.sweep, continues) {
            (Some(sweep), Some(_)) => {
                sweep.flights.insert(ask.key, id);
            }
            _ => slot.next = Some(id),
        }
        let (birth, page, urgency, led) = (slot.birth, ask.key, ask.urgency, ask.led.clone());
        self.flights.insert(
            id,
            Flight { slot: key, birth, page, continues, urgency, sent: None, keeps, is_kept, led },
        );
        Verdict::Lead(id, former)
    }

    /// An exchange leaves. Whether its answer may be kept, as far as is known.
    pub(crate) fn sent(&mut self, now: Instant, id: FlightId) -> bool {
        let Self { flights, slots, scopes, .. } = self;
        let Some(flight) = flights.get_mut(&id) else { return false };
        flight.sent = Some(now);
        let slot = slots.get(flight.slot).filter(|slot| slot.birth == flight.birth);
        flight.keeps = flight.is_kept && slot.is_some_and(|slot| scopes.are_settled(&slot.scope, now));
        flight.keeps
    }

    /// An exchange has ended. Nobody joins it any more.
    pub(crate) fn landed(&mut self, now: Instant, id: FlightId, landed: Landed) -> Landing {
        let Some(flight) = self.flights.remove(&id) else {
            return Landing { landed: now, begun: now, part: Part::Failure };
        };
        let sent = flight.sent.unwrap_or(now);
        let key = flight.slot;
        let part = match self.slots.get_mut(key).filter(|slot| slot.birth == flight.birth) {
            None => match landed {
                Landed::Failure => Part::Failure,
                _ if flight.continues.is_some() => Part::Torn,
                _ => Part::None,
            },
            Some(slot) if flight.continues.is_none() => slot.first_landed(now, id, flight, landed),
            Some(slot) => slot.further_landed(now, id, &flight, landed),
        };
        let begun = self.slots.get(key).and_then(|slot| slot.sweep.as_ref());
        let begun = begun.filter(|sweep| part == Part::Sweep(sweep.id)).map_or(sent, |sweep| sweep.begun);
        if matches!(part, Part::Sweep(_)) {
            self.slots.used(key);
        }
        let part = match part {
            Part::Sweep(_) if !self.slots.settle(key) => Part::None,
            part => {
                self.slots.settle(key);
                part
            }
        };
        Landing { landed: now, begun, part }
    }

    /// What an answer means to a view that it is given to.
    pub(crate) fn given(ask: &Ask, landing: Landing, seen: &mut Seen, is_own: bool) {
        let Landing { landed, begun, part } = landing;
        if part == Part::Failure {
            return;
        }
        if !is_own {
            seen.was_given(begun);
        }
        let Some(List { key, .. }) = ask.list else { return };
        seen.is_torn |= part == Part::Torn;
        match part {
            Part::Sweep(id) => seen.reads(key, Reading::Sweep { id, at: landed }),
            _ => seen.reads(key, Reading::Own { at: Some(landed) }),
        }
    }

    /// Something begins to be changed in this scope, or the cloud is asked how a change gets on.
    pub(crate) fn change_began(&mut self, scope: &Scope) {
        self.scopes.began(scope);
        self.slots.drop_scope(scope);
    }

    /// That has ended, one way or the other.
    pub(crate) fn change_ended(&mut self, now: Instant, scope: &Scope) {
        self.scopes.ended(scope, now);
        self.slots.drop_scope(scope);
    }

    /// How many exchanges are on their way.
    pub(crate) fn flights(&self) -> usize {
        self.flights.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::cache::stored::{Reply, Stored};
    use crate::cache::wish::floor;
    use crate::limits::Urgency;

    fn stored(status: u16) -> Arc<Stored> {
        let headers = HeaderMap::from_iter([(http::header::ETAG, "\"1\"".parse().unwrap())]);
        let (status, body) = (StatusCode::from_u16(status).unwrap(), Bytes::new());
        Arc::new(Stored::pack(&Reply { status, headers, body }).unwrap())
    }

    struct View {
        /// At most so old; none for nothing from before it was made.
        age: Option<Duration>,
        made: Instant,
        seen: Seen,
        is_alive: Arc<()>,
    }

    struct Script {
        now: Instant,
        state: State,
        views: HashMap<char, View>,
        waiting: Vec<(FlightId, char, Ask, bool)>,
        said: Vec<String>,
    }

    /// Plays a script and says how each read was answered: `L1` by exchange 1 of its own (`L1?` if it may be confirmed),
    /// `J1` by exchange 1 of another, `S3` from the cache 3 s after it was asked for, `W` not yet, `N` not at all; at the
    /// end which views were torn.
    ///
    /// `u=9` makes a view of at most 9 s, `u=!` a fresh one, `-u` ends it. `u.a` reads `a` (of scope s, as are the lists `l`
    /// and `m`; `b` is of scope t, `e` of everything), `u.l2` the second page of `l`; `^` is urgent, `*` from the cache only, `%`
    /// has waited long enough.
    /// `>1` exchange 1 leaves, `1+` is answered, `1-` with 404, `1=` with 304, `1~` with what can't be kept, `1x` fails. `+5`
    /// lets 5 s pass. `s(` begins a change in scope s and `s)` ends it; `(` and `)` one of everything.
    fn play(script: &str) -> String {
        let mut played = Script::new(1 << 20);
        played.play(script);
        let mut torn: Vec<_> =
            played.views.iter().filter(|(_, view)| view.seen.is_torn).map(|(name, _)| *name).collect();
        torn.sort_unstable();
        played.said.extend(torn.into_iter().map(|name| format!("torn:{name}")));
        played.said.join(" ")
    }

    impl Script {
        fn new(most: usize) -> Self {
            let (state, now) = (State::new(most), Instant::now() + Duration::from_hours(1));
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
                let (made, seen, is_alive) = (self.now, Seen::default(), Arc::default());
                self.views.insert(view, View { age, made, seen, is_alive });
            } else if let Some((view, what)) = word.split_once('.').filter(|(view, _)| !view.starts_with('+'))
            {
                self.read(view.chars().next().unwrap(), what);
            } else if let Some(view) = word.strip_prefix('-') {
                self.views.remove(&view.chars().next().unwrap());
            } else if let Some(time) = word.strip_prefix('+') {
                self.now += seconds(time);
            } else if let Some(flight) = word.strip_prefix('>') {
                self.state.sent(self.now, flight.parse().unwrap());
            } else if let Some(changed) = word.strip_suffix('(') {
                self.state.change_began(&scope(changed));
            } else if let Some(changed) = word.strip_suffix(')') {
                self.state.change_ended(self.now, &scope(changed));
            } else {
                let (flight, how) = word.split_at(word.len() - 1);
                let landed = match how {
                    "+" | "=" => Landed::Good(stored(200)),
                    "-" => Landed::Good(stored(404)),
                    "~" => Landed::Passing,
                    "x" => Landed::Failure,
                    _ => unreachable!("{word}"),
                };
                self.land(flight.parse().unwrap(), landed);
            }
        }

        fn land(&mut self, flight: FlightId, landed: Landed) {
            let landing = self.state.landed(self.now, flight, landed);
            for (_, view, ask, is_own) in self.waiting.extract_if(.., |(id, ..)| *id == flight) {
                if let Some(view) = self.views.get_mut(&view) {
                    State::given(&ask, landing, &mut view.seen, is_own);
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
            let list = what.split_at(1);
            let list = (!list.1.is_empty()).then(|| List { key: key(list.0), is_first: list.1 == "1" });
            let scope = match what {
                "b" => Some("t".into()),
                "e" => None,
                _ => Some("s".into()),
            };
            let ask = Ask {
                key: key(what),
                list,
                scope,
                floor: view.age.map_or(Some(view.made), |age| floor(age, self.now, self.now)),
                urgency: if urgent { Urgency::User } else { Urgency::Background },
                only_stored,
                patience: self.now + if is_patient { Duration::from_secs(10) } else { Duration::ZERO },
                led: Arc::downgrade(&view.is_alive),
            };
            let verdict = self.state.read(self.now, &ask, &mut view.seen);
            self.said.push(match verdict {
                Verdict::Stored(page) => format!("S{}", (self.now - page.sent).as_secs()),
                Verdict::Nothing => "N".to_owned(),
                Verdict::Wait(until) => {
                    assert!(until > self.now, "{what}");
                    "W".to_owned()
                }
                Verdict::Join(id) => {
                    self.waiting.push((id, name, ask, false));
                    format!("J{id}")
                }
                Verdict::Lead(id, former) => {
                    self.waiting.push((id, name, ask, true));
                    format!("L{id}{}", if former.is_some() { "?" } else { "" })
                }
            });
        }
    }

    #[test]
    fn each_read_is_answered_as_it_may_be() {
        let rows = [
            // What is kept, and for whom.
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
            // What is on its way, and for whom.
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
    fn the_pages_of_a_list_are_of_one_sweep() {
        let whole = "u=60 u.l1 >1 1+ u.l2 >2 2+ u.l3 >3 3+";
        let rows = [
            // What is kept of a list is read as it was swept.
            ("v=60 +9 v.l1 v.l2 v.l3", "S9 S9 S9"),
            ("+9 v=! -u v.l1 >4 4+ v.l2 >5 5= v.l3 >6 6+ v.l2", "L4? L5? L6? S0"),
            ("+50 v=60 v.l1 +20 v.l2 v.l3 -v v=60 v.l1", "S50 S70 S70 L4?"),
            ("v=60 v.l2 v.m1 >5 5+ v.m1", "L4 L5 S0 torn:v"),
            ("v=60 v.l1* v.l2* v.l9*", "S0 S0 N"),
            // It is gone on with for a moment, and given up where it can't be.
            ("+1.9 v=60 v.l1 v.l4 >4 4+ v.l4", "S1 L4 S0"),
            ("+2 v=60 v.l1 v.l4 >4 4+ v.l4 w=60 w.l1", "S2 L4 L5 L6 torn:v"),
            ("v=60 v.l1 s( v.l2 s)", "S0 L4 torn:v"),
            ("v=60 v.l1 +3 w=! w.l1 >4 v.l2 4+ v.l3", "S0 L4? S3 L5 torn:v"),
            ("v=60 v.l1 v.l4 >4 s( s) 4+", "S0 L4 torn:v"),
            ("v=60 v.l1 v.l4 >4 4~ v.l5 w=60 w.l1", "S0 L4 L5 L6"),
            ("v=60 v.l1 v.l4 >4 4x v.l4 >5 5+ v.l4", "S0 L4 L5 S0"),
            ("v=60 v.l1 u.l4 v.l4^ >5 5+ v.l5 >6 6+ +1 >4 4+ u.l5", "S0 L4 L5 L6 L7 torn:u"),
            ("v=60 v.l1 u.l4 v.l4^ >5 5+ v.l5 >6 6+ +1 >4 4+ w=60 w.l1 w.l4 w.l5", "S0 L4 L5 L6 S1 S1 S1"),
            // One who wants a newer one waits for its end.
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
    fn pages_that_arent_kept_are_read_one_after_the_other_and_shared_where_that_keeps_the_order() {
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
    fn a_view_knows_what_is_the_oldest_that_it_was_given_by_others() {
        let mut script = Script::new(1 << 20);
        let begun = script.now;
        let mut oldest = |steps: &str, view: char| {
            script.play(steps);
            let oldest: Option<Instant> = script.views[&view].seen.oldest;
            oldest.map(|oldest| (oldest - begun).as_secs())
        };
        assert_eq!(oldest("+10 u=60 u.l1 >1 1+ +1 u.l2 >2 2+ u.a >3 3+", 'u'), None);
        assert_eq!(oldest("+1 v=60 v.a", 'v'), Some(11));
        assert_eq!(oldest("v.l1 v.l2", 'v'), Some(10));
        assert_eq!(oldest("w=60 w.l1 w.l2", 'w'), Some(10), "of a page, its sweep's begin");
        assert_eq!(oldest("x=! x.b >4 +5 y=60 y.b 4+", 'y'), Some(12), "another's exchange");
        assert_eq!(oldest("", 'x'), None);
        let ahead = "z=! z.m1 >5 5+ a=60 +1 a.m1 a.m2 >6 6+ z.m2";
        assert_eq!(oldest(ahead, 'z'), Some(17), "its own sweep, but not all of its own pages");
    }

    #[test]
    fn what_is_unread_for_longest_makes_room_and_a_list_does_as_a_whole() {
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
