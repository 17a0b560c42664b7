//! Bounds the number of calls that run at the same time to the slots of the instance pool, and reserves some slots for
//! urgent calls. So even many slow refreshes never delay a Node that joins.

use std::sync::Arc;
use std::time::Duration;

use pileus_gate::Urgency;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fault::Fault;
use crate::limits::{SLOTS, URGENT_SLOTS};

/// The slots of the pool. The pool itself would fail a call that finds no free slot instead of letting it wait.
pub(crate) struct Slots {
    all: Arc<Semaphore>,
    /// Those that background calls may take.
    background: Arc<Semaphore>,
}

/// The right to use one slot of the pool, until it is dropped.
pub(crate) struct Slot {
    _slot: OwnedSemaphorePermit,
    _background: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(crate) fn new() -> Self {
        let semaphore = |slots: u32| Arc::new(Semaphore::new(slots as usize));
        Self { all: semaphore(SLOTS), background: semaphore(SLOTS - URGENT_SLOTS) }
    }

    /// Waits for a slot, first come, first served.
    ///
    /// # Errors
    /// [`Fault::NoSlot`] where no slot becomes free in time.
    pub(crate) async fn acquire(&self, urgency: Urgency, timeout: Duration) -> Result<Slot, Fault> {
        let acquire = async {
            let background = match urgency {
                Urgency::User | Urgency::Initialise => None,
                Urgency::Background => Some(Arc::clone(&self.background).acquire_owned().await?),
            };
            Ok(Slot { _slot: Arc::clone(&self.all).acquire_owned().await?, _background: background })
        };
        match tokio::time::timeout(timeout, acquire).await {
            Ok(slot) => slot.map_err(|closed: tokio::sync::AcquireError| Fault::Host(closed.to_string())),
            Err(_elapsed) => Err(Fault::NoSlot(timeout)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn background_calls_leave_slots_for_urgent_ones_and_urgent_ones_may_take_all() {
        let slots = Slots::new();
        let mut background = Vec::new();
        while let Ok(slot) = slots.acquire(Urgency::Background, TIMEOUT).await {
            background.push(slot);
        }
        assert_eq!(background.len(), (SLOTS - URGENT_SLOTS) as usize);
        let mut urgent = Vec::new();
        while let Ok(slot) = slots.acquire(Urgency::Initialise, TIMEOUT).await {
            urgent.push(slot);
        }
        assert_eq!(urgent.len(), URGENT_SLOTS as usize);

        drop(background);
        while let Ok(slot) = slots.acquire(Urgency::Initialise, TIMEOUT).await {
            urgent.push(slot);
        }
        assert_eq!(urgent.len(), SLOTS as usize);
        let refused = slots.acquire(Urgency::Background, TIMEOUT).await.err();
        assert_eq!(refused, Some(Fault::NoSlot(TIMEOUT)));
        urgent.pop();
        assert!(
            slots.acquire(Urgency::Background, TIMEOUT).await.is_ok(),
            "a call that gave up holds nothing"
        );
    }
}
