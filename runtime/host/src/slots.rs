//! Who may call now: there are as many calls at a time as the pool has slots, and some of the slots are for those calls
//! alone that somebody waits for. So a storm of refreshes, slow as it may be, never stands before a Node that joins.

use std::sync::Arc;
use std::time::Duration;

use pileus_gate::Urgency;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fault::Fault;
use crate::limits::{SLOTS, URGENT_SLOTS};

/// The slots of the pool, which would answer with an error instead of letting a call wait.
pub(crate) struct Slots {
    all: Arc<Semaphore>,
    /// What calls in the background may take of them.
    background: Arc<Semaphore>,
}

/// The right to one slot of the pool.
pub(crate) struct Slot {
    _slot: OwnedSemaphorePermit,
    _share: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(crate) fn new() -> Self {
        let semaphore = |slots: u32| Arc::new(Semaphore::new(slots as usize));
        Self { all: semaphore(SLOTS), background: semaphore(SLOTS - URGENT_SLOTS) }
    }

    /// Waits for a slot, in the order in which calls came.
    ///
    /// # Errors
    /// [`Fault::NoSlot`] where none became free in time.
    pub(crate) async fn take(&self, urgency: Urgency, patience: Duration) -> Result<Slot, Fault> {
        let take = async {
            let share = match urgency {
                Urgency::User | Urgency::Initialise => None,
                Urgency::Background => Some(Arc::clone(&self.background).acquire_owned().await?),
            };
            Ok(Slot { _slot: Arc::clone(&self.all).acquire_owned().await?, _share: share })
        };
        match tokio::time::timeout(patience, take).await {
            Ok(taken) => taken.map_err(|closed: tokio::sync::AcquireError| Fault::Host(closed.to_string())),
            Err(_elapsed) => Err(Fault::NoSlot(patience)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn ordinary_calls_leave_slots_for_urgent_ones_and_urgent_ones_may_take_all() {
        let slots = Slots::new();
        let mut ordinary = Vec::new();
        while let Ok(slot) = slots.take(Urgency::Background, PATIENCE).await {
            ordinary.push(slot);
        }
        assert_eq!(ordinary.len(), (SLOTS - URGENT_SLOTS) as usize);
        let mut urgent = Vec::new();
        while let Ok(slot) = slots.take(Urgency::Initialise, PATIENCE).await {
            urgent.push(slot);
        }
        assert_eq!(urgent.len(), URGENT_SLOTS as usize);

        drop(ordinary);
        while let Ok(slot) = slots.take(Urgency::Initialise, PATIENCE).await {
            urgent.push(slot);
        }
        assert_eq!(urgent.len(), SLOTS as usize);
        let refused = slots.take(Urgency::Background, PATIENCE).await.err();
        assert_eq!(refused, Some(Fault::NoSlot(PATIENCE)));
        urgent.pop();
        assert!(
            slots.take(Urgency::Background, PATIENCE).await.is_ok(),
            "nothing is held by whoever gave up"
        );
    }
}
