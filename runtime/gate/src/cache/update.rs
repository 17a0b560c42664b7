//! What happens to fetches and changes, and what it does to the cache. Pure, like the decisions that it serves.

use std::time::Instant;

use crate::cache::decide::CacheCore;
use crate::cache::history::{FetchId, ListPosition, ViewHistory};
use crate::cache::key::List;
use crate::cache::query::CacheQuery;
use crate::cache::scopes::Scope;
use crate::cache::slot::{Fetched, ReadPart};

/// What a fetch brought, for the requests that wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FetchResult {
    fetched: Instant,
    /// When its paged read was begun.
    begun: Instant,
    part: ReadPart,
}

impl CacheCore {
    /// Notes that a fetch is sent. Returns whether its answer may be stored, as far as is known.
    pub(crate) fn on_sent(&mut self, now: Instant, id: FetchId) -> bool {
        let Self { fetches, slots, scopes, .. } = self;
        let Some(fetch) = fetches.get_mut(&id) else { return false };
        fetch.sent = Some(now);
        let slot = slots.get(fetch.slot).filter(|slot| slot.birth == fetch.birth);
        fetch.may_store = fetch.is_storable && slot.is_some_and(|slot| scopes.are_settled(&slot.scope, now));
        fetch.may_store
    }

    /// Notes that a fetch has ended. No request joins it afterwards.
    pub(crate) fn on_fetched(&mut self, now: Instant, id: FetchId, fetched: Fetched) -> FetchResult {
        let Some(fetch) = self.fetches.remove(&id) else {
            return FetchResult { fetched: now, begun: now, part: ReadPart::Failure };
        };
        let sent = fetch.sent.unwrap_or(now);
        let key = fetch.slot;
        let part = match self.slots.get_mut(key).filter(|slot| slot.birth == fetch.birth) {
            None => match fetched {
                Fetched::Failed => ReadPart::Failure,
                _ if fetch.continues.is_some() => ReadPart::Torn,
                _ => ReadPart::None,
            },
            Some(slot) if fetch.continues.is_none() => slot.first_landed(now, id, fetch, fetched),
            Some(slot) => slot.further_landed(now, id, &fetch, fetched),
        };
        let begun = self.slots.get(key).and_then(|slot| slot.paged_read.as_ref());
        let begun = begun
            .filter(|paged_read| part == ReadPart::Stored(paged_read.id))
            .map_or(sent, |paged_read| paged_read.begun);
        if matches!(part, ReadPart::Stored(_)) {
            self.slots.used(key);
        }
        let part = match part {
            ReadPart::Stored(_) if !self.slots.settle(key) => ReadPart::None,
            part => {
                self.slots.settle(key);
                part
            }
        };
        FetchResult { fetched: now, begun, part }
    }

    /// Records an answer in the history of a view that receives it.
    pub(crate) fn record(query: &CacheQuery, result: FetchResult, history: &mut ViewHistory, is_own: bool) {
        let FetchResult { fetched, begun, part } = result;
        if part == ReadPart::Failure {
            return;
        }
        if !is_own {
            history.on_received(begun);
        }
        let Some(List { key, .. }) = query.list else { return };
        history.is_torn |= part == ReadPart::Torn;
        match part {
            ReadPart::Stored(id) => history.set_position(key, ListPosition::Stored { id, at: fetched }),
            _ => history.set_position(key, ListPosition::Own { at: Some(fetched) }),
        }
    }

    /// Notes the begin of a change in this scope, or of a request for the state of a change.
    pub(crate) fn change_began(&mut self, scope: &Scope) {
        self.scopes.began(scope);
        self.slots.drop_scope(scope);
    }

    /// Notes its end, successful or not.
    pub(crate) fn change_ended(&mut self, now: Instant, scope: &Scope) {
        self.scopes.ended(scope, now);
        self.slots.drop_scope(scope);
    }

    /// The number of fetches in flight.
    pub(crate) fn fetches(&self) -> usize {
        self.fetches.len()
    }
}
