//! Finds out which writes of a dry run belong to which item.
//!
//! A call carries many items and the gate refuses each write, so one call shows which writes are wanted but not for which
//! item. Items that the first call doesn't settle are sent again in smaller batches, until each stands alone or a batch
//! turns out to want no write. Pure: the caller makes the calls.

use std::collections::{HashMap, HashSet};

use pileus_cloud::Error;
use pileus_gate::{WantedWrite, WantedWrites};

/// What a provider answers about one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ItemOutcome {
    Done,
    InProgress,
    Elsewhere,
    Failed(Error),
}

/// What the dry run of one item shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DryRunResult {
    /// The provider wants no write: the item is as it should be.
    Settled,
    /// The provider wants these writes, and perhaps others that follow from their answers. Writes that it shares with
    /// other items are among [`Attributed::shared_writes`] instead.
    Writes(Vec<WantedWrite>),
    /// The cloud is working on the item; the provider wants no write.
    InProgress,
    /// The provider says that another controller serves the item.
    Elsewhere,
    /// The provider can't serve the item, and wants no write.
    Failed(String),
    /// The provider wants writes, but time ran out before they could be attributed to this item.
    Unattributed,
}

/// A write for several items. `T` is what names an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedWrite<T> {
    /// The write as the call about all items wanted it.
    pub(crate) write: WantedWrite,
    /// The items; empty where they could not be found out.
    pub(crate) items: Vec<T>,
}

/// The results of all items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributed {
    /// One result for each item, in their order.
    pub(crate) results: Vec<DryRunResult>,
    /// Writes for several items, which are named by index.
    pub(crate) shared_writes: Vec<SharedWrite<usize>>,
    /// How many further writes the gate didn't keep.
    pub(crate) left_out: usize,
}

/// The state of an attribution: what is known of each item, and which batches are still to be sent.
#[derive(Debug)]
pub(super) struct Attribution {
    results: Vec<Option<DryRunResult>>,
    /// The batches still to be sent, the next one last.
    pending: Vec<Batch>,
    /// The writes that the first calls wanted for batches of several items.
    batch_writes: Vec<WantedWrite>,
    left_out: usize,
}

/// The items of one call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// The indices of the items.
    pub(super) items: Vec<usize>,
    /// Whether these items are sent for the first time.
    pub(super) is_first: bool,
}

impl Attribution {
    /// Starts with `count` items, of which a call carries at most `largest`.
    pub(super) fn new(count: usize, largest: usize) -> Self {
        let all: Vec<_> = (0..count).collect();
        let batch = |items: &[usize]| Batch { items: items.to_vec(), is_first: true };
        let pending = all.chunks(largest.max(1)).map(batch).rev().collect();
        Self { results: vec![None; count], pending, batch_writes: Vec::new(), left_out: 0 }
    }

    /// The next batch to send; none when every item has its result.
    pub(super) fn next(&mut self) -> Option<Batch> {
        self.pending.pop()
    }

    /// Records what the provider answered about a batch, and the writes that it wanted.
    pub(super) fn record(
        &mut self,
        batch: &Batch,
        outcomes: Result<Vec<ItemOutcome>, Error>,
        writes: WantedWrites,
    ) {
        let Batch { items, is_first } = batch;
        let WantedWrites { list: writes, left_out } = writes;
        let outcomes = outcomes.unwrap_or_else(|error| vec![ItemOutcome::Failed(error); items.len()]);
        if *is_first {
            self.left_out += left_out;
        }
        if writes.is_empty() {
            for (item, outcome) in items.iter().zip(outcomes) {
                self.set_result(*item, without_writes(outcome));
            }
        } else if let [item] = items.as_slice() {
            self.set_result(*item, DryRunResult::Writes(writes));
        } else {
            self.split(items, outcomes, writes.len());
            if *is_first {
                self.batch_writes.extend(writes);
            }
        }
    }

    /// Divides a batch for which the provider wanted writes.
    fn split(&mut self, items: &[usize], outcomes: Vec<ItemOutcome>, writes: usize) {
        let is_open =
            |outcome: &ItemOutcome| matches!(outcome, ItemOutcome::InProgress | ItemOutcome::Failed(_));
        let mut rest: Vec<_> = items.iter().copied().zip(outcomes).collect();
        // An item that is done although writes were refused needed none. Where all are done, one of them wanted the write.
        if rest.iter().any(|(_, outcome)| is_open(outcome)) {
            for (item, outcome) in rest.extract_if(.., |(_, outcome)| !is_open(outcome)) {
                self.set_result(item, without_writes(outcome));
            }
        }
        // With as many writes as items each item probably has its own; with fewer, most items need none.
        let size = if writes >= rest.len() { 1 } else { rest.len().div_ceil(2) };
        let batch = |part: &[(usize, ItemOutcome)]| Batch {
            items: part.iter().map(|(item, _)| *item).collect(),
            is_first: false,
        };
        self.pending.extend(rest.chunks(size).map(batch).rev());
    }

    fn set_result(&mut self, item: usize, result: DryRunResult) {
        if let Some(slot) = self.results.get_mut(item) {
            *slot = Some(result);
        }
    }

    /// The results of all items. Items that are still in a pending batch are unattributed.
    pub(super) fn finish(self) -> Attributed {
        let Self { results, pending: _, batch_writes, left_out } = self;
        let mut results: Vec<_> =
            results.into_iter().map(|result| result.unwrap_or(DryRunResult::Unattributed)).collect();
        let mut items_by_key: HashMap<Key, Vec<usize>> = HashMap::new();
        for (item, result) in results.iter().enumerate() {
            let DryRunResult::Writes(writes) = result else { continue };
            for write in writes {
                let items = items_by_key.entry(key(write)).or_default();
                if items.last() != Some(&item) {
                    items.push(item);
                }
            }
        }
        let mut shared_keys = HashSet::new();
        let mut shared_writes = Vec::new();
        for write in batch_writes {
            let items = items_by_key.get(&key(&write)).map(Vec::as_slice).unwrap_or_default();
            if items.len() != 1 && shared_keys.insert(key(&write)) {
                shared_writes.push(SharedWrite { write, items: items.to_vec() });
            }
        }
        for result in &mut results {
            if let DryRunResult::Writes(writes) = result {
                writes.retain(|write| !shared_keys.contains(&key(write)));
            }
        }
        Attributed { results, shared_writes, left_out }
    }
}

/// What makes two writes the same: method and URL, regardless of their bodies.
type Key = (String, String);

fn key(write: &WantedWrite) -> Key {
    (write.method.clone(), write.url.clone())
}

fn without_writes(outcome: ItemOutcome) -> DryRunResult {
    match outcome {
        ItemOutcome::Done => DryRunResult::Settled,
        ItemOutcome::InProgress => DryRunResult::InProgress,
        ItemOutcome::Elsewhere => DryRunResult::Elsewhere,
        ItemOutcome::Failed(error) => DryRunResult::Failed(error.message),
    }
}

#[cfg(test)]
mod tests;
