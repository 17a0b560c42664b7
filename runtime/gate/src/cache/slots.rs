//! The slots of a cache, by key, by scope and by use, and how much memory they take.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::cache::key::Key;
use crate::cache::scopes::Scope;
use crate::cache::slot::CacheSlot;

/// All slots of a cache.
#[derive(Debug, Default)]
pub(crate) struct SlotTable {
    /// The most bytes.
    most: usize,
    by_key: HashMap<Key, CacheSlot>,
    of_scope: HashMap<Scope, HashSet<Key>>,
    /// Slots with stored answers, the longest unread first.
    by_use: BTreeMap<u64, Key>,
    /// The last number that was given.
    number: u64,
    pub(crate) held: CacheTotals,
}

/// How much a cache holds, and how many answers it dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheTotals {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
    /// By [`Dropped`].
    pub(crate) dropped: [u64; 3],
}

/// Why answers are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EvictReason {
    /// Something changed in their scope.
    Change,
    /// Others need the room.
    Full,
    /// Other pages of their list are missing.
    Incomplete,
}

impl EvictReason {
    /// In the order of the counts.
    pub(crate) const ALL: [Self; 3] = [Self::Change, Self::Full, Self::Incomplete];

    /// The value of the `reason` label in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Full => "full",
            Self::Incomplete => "incomplete",
        }
    }
}

impl SlotTable {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&CacheSlot> {
        self.by_key.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut CacheSlot> {
        self.by_key.get_mut(&key)
    }

    /// The slot of this key; created if missing.
    pub(crate) fn make(&mut self, key: Key, scope: &Scope) -> &mut CacheSlot {
        let Self { by_key, of_scope, number, .. } = self;
        by_key.entry(key).or_insert_with(|| {
            of_scope.entry(scope.clone()).or_default().insert(key);
            *number += 1;
            CacheSlot::new(*number, scope.clone())
        })
    }

    /// Notes that a slot was read or written.
    pub(crate) fn used(&mut self, key: Key) {
        let Some(slot) = self.by_key.get_mut(&key) else { return };
        self.number += 1;
        self.by_use.remove(&slot.used);
        slot.used = self.number;
        self.by_use.insert(slot.used, key);
    }

    /// Drops what a change in this scope may affect.
    pub(crate) fn drop_scope(&mut self, scope: &Scope) {
        let keys: Vec<Key> = if scope.is_none() {
            self.by_key.keys().copied().collect()
        } else {
            // Reads without a scope may be affected too.
            let scopes = [scope, &None].into_iter().filter_map(|scope| self.of_scope.get(scope));
            scopes.flatten().copied().collect()
        };
        for key in keys {
            self.drop(key, EvictReason::Change);
        }
    }

    /// Drops a slot. Fetches that were begun for it continue, but no request joins them and their answers are not
    /// stored.
    pub(crate) fn drop(&mut self, key: Key, why: EvictReason) {
        if let Some(slot) = self.remove(key) {
            let dropped = u64::try_from(slot.entries).unwrap_or(u64::MAX);
            for (count, _) in
                self.held.dropped.iter_mut().zip(EvictReason::ALL).filter(|(_, each)| *each == why)
            {
                *count += dropped;
            }
        }
    }

    /// Counts what a slot holds now, and makes room for it. Returns whether it is still there.
    pub(crate) fn settle(&mut self, key: Key) -> bool {
        match self.by_key.get(&key) {
            Some(slot) if slot.is_idle() => drop(self.remove(key)),
            Some(CacheSlot { paged_read: None, used, .. }) => drop(self.by_use.remove(used)),
            _ => {}
        }
        self.count(key);
        while self.held.bytes > self.most {
            let Some((_, &oldest)) = self.by_use.first_key_value() else { break };
            match self.by_key.get_mut(&oldest) {
                // It alone is too large, but perhaps not without its former pages.
                Some(slot) if oldest == key && !slot.former.is_empty() => {
                    slot.former.clear();
                    self.count(key);
                }
                _ => self.drop(oldest, EvictReason::Full),
            }
        }
        self.by_key.contains_key(&key)
    }

    fn remove(&mut self, key: Key) -> Option<CacheSlot> {
        let slot = self.by_key.remove(&key)?;
        self.by_use.remove(&slot.used);
        self.held.entries -= slot.entries;
        self.held.bytes -= slot.bytes;
        if let Some(keys) = self.of_scope.get_mut(&slot.scope) {
            keys.remove(&key);
            if keys.is_empty() {
                self.of_scope.remove(&slot.scope);
            }
        }
        Some(slot)
    }

    fn count(&mut self, key: Key) {
        let Some(slot) = self.by_key.get_mut(&key) else { return };
        let (entries, bytes) = slot.measure();
        self.held.entries = self.held.entries - slot.entries + entries;
        self.held.bytes = self.held.bytes - slot.bytes + bytes;
        (slot.entries, slot.bytes) = (entries, bytes);
    }

    #[cfg(test)]
    pub(crate) fn is_consistent(&self) -> bool {
        let sums = self
            .by_key
            .values()
            .map(CacheSlot::measure)
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let scopes: usize = self.of_scope.values().map(HashSet::len).sum();
        let holding = self.by_key.values().filter(|slot| slot.paged_read.is_some()).count();
        sums == (self.held.entries, self.held.bytes)
            && self.held.bytes <= self.most
            && scopes == self.by_key.len()
            && holding == self.by_use.len()
            && self.by_key.values().all(|slot| !slot.is_idle())
    }
}
