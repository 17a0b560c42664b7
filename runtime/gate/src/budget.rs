//! What the memory of this process may hold for one call of a provider, in bytes, and for all its calls together. A charge
//! counts against both for as long as it exists. Once one is refused, the budget is exceeded for good: the caller ends the
//! call, since a provider must not probe for what is left.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::Notify;

/// A bound of memory. Clones are the same budget.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    limit: usize,
    used: AtomicUsize,
    whole: Option<MemoryBudget>,
    excess: OnceLock<MemoryExcess>,
    exceeded: Notify,
}

/// A charge that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryExcess {
    /// The bytes that would have been held with it.
    pub wanted: usize,
    /// The bytes that may be held.
    pub limit: usize,
}

/// Bytes that are counted against a budget until this is dropped.
#[derive(Debug)]
pub struct MemoryCharge {
    budget: MemoryBudget,
    bytes: usize,
}

impl MemoryBudget {
    /// A budget of this many bytes.
    pub fn new(limit: usize) -> Self {
        Self::part(limit, None)
    }

    /// A budget of this many bytes, which counts against this one too.
    #[must_use]
    pub fn split(&self, limit: usize) -> Self {
        Self::part(limit, Some(self.clone()))
    }

    fn part(limit: usize, whole: Option<Self>) -> Self {
        let (used, excess, exceeded) = (AtomicUsize::new(0), OnceLock::new(), Notify::new());
        Self(Arc::new(Budget { limit, used, whole, excess, exceeded }))
    }

    /// Counts this many bytes.
    ///
    /// # Errors
    /// [`MemoryExcess`], after which [`MemoryBudget::excess`] says the same.
    pub fn charge(&self, bytes: usize) -> Result<MemoryCharge, MemoryExcess> {
        let mut charge = MemoryCharge { budget: self.clone(), bytes: 0 };
        charge.grow(bytes)?;
        Ok(charge)
    }

    /// The bytes that are held now.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The first charge that was refused.
    pub fn excess(&self) -> Option<MemoryExcess> {
        self.0.excess.get().copied()
    }

    /// Waits until a charge is refused.
    pub async fn exceeded(&self) -> MemoryExcess {
        loop {
            let exceeded = self.0.exceeded.notified();
            if let Some(excess) = self.excess() {
                return excess;
            }
            exceeded.await;
        }
    }

    /// Takes this many bytes from the budget and from the whole, or from neither.
    fn take(&self, bytes: usize) -> Result<(), MemoryExcess> {
        let Budget { limit, used, whole, .. } = &*self.0;
        let wanted = used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let taken = if wanted > *limit {
            Err(MemoryExcess { wanted, limit: *limit })
        } else {
            whole.as_ref().map_or(Ok(()), |whole| whole.take(bytes))
        };
        taken.inspect_err(|_| {
            used.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    fn release(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.whole {
            whole.release(bytes);
        }
    }
}

impl MemoryCharge {
    /// Counts more bytes.
    ///
    /// # Errors
    /// [`MemoryExcess`]; the charge stays as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<(), MemoryExcess> {
        self.budget.take(bytes).inspect_err(|excess| {
            // A whole that is exceeded must not end the other calls.
            let Budget { excess: first, exceeded, .. } = &*self.budget.0;
            first.get_or_init(|| *excess);
            exceeded.notify_waiters();
        })?;
        self.bytes += bytes;
        Ok(())
    }

    /// Takes some of its bytes, or all, as a charge of their own.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes }
    }

    /// The same bytes, charged for as long as anything has them.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() { bytes } else { Bytes::from_owner(ChargedBytes { bytes, _charge: self }) }
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

struct ChargedBytes {
    bytes: Bytes,
    _charge: MemoryCharge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn charges_count_until_they_are_dropped_and_against_the_whole_too() {
        let whole = MemoryBudget::new(100);
        let (one, other) = (whole.split(80), whole.split(80));
        let mut charge = one.charge(50).unwrap();
        charge.grow(20).unwrap();
        assert_eq!((one.used(), other.used(), whole.used()), (70, 0, 70));
        assert_eq!(charge.grow(11), Err(MemoryExcess { wanted: 81, limit: 80 }));
        assert_eq!(other.charge(31).unwrap_err(), MemoryExcess { wanted: 101, limit: 100 });
        assert_eq!((one.used(), other.used(), whole.used()), (70, 0, 70), "what was refused isn't held");
        let part = charge.split(30);
        drop(charge);
        assert_eq!(whole.used(), 30);
        let bytes = part.hold(Bytes::from("held"));
        let copy = bytes.slice(1..);
        drop(bytes);
        assert_eq!(whole.used(), 30);
        drop(copy);
        assert_eq!(whole.used(), 0);
    }

    #[test]
    fn an_excess_is_told_for_good_and_to_its_own_call_only() {
        let whole = MemoryBudget::new(100);
        let (one, other) = (whole.split(80), whole.split(80));
        let held = one.charge(70).unwrap();
        assert_eq!(one.exceeded().now_or_never(), None);
        assert!(other.charge(40).is_err());
        let excess = MemoryExcess { wanted: 110, limit: 100 };
        assert_eq!(other.exceeded().now_or_never(), Some(excess));
        assert_eq!((one.excess(), whole.excess()), (None, None));
        drop(held);
        assert_eq!(other.excess(), Some(excess));
    }
}
