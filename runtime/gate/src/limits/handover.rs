//! What the limits of one gate hand to those of the next, when a new version of a provider takes over: what the cloud
//! has taught them about itself holds for whoever asks it.

use std::sync::Arc;
use std::time::Instant;

use crate::limits::Limiter;
use crate::limits::bucket::BucketSnapshot;
use crate::limits::buckets::{BucketSlot, LimitId};
use crate::limits::decide::LimiterState;
use crate::limits::pauses::PausedResources;

/// What one [`LimiterState`] hands to the next.
#[derive(Debug)]
pub(crate) struct Handover {
    /// By limit and value.
    buckets: Vec<(LimitId, Arc<str>, BucketSnapshot)>,
    pauses: PausedResources,
}

impl LimiterState {
    /// Hands over what it knows, and what its buckets hold.
    pub(crate) fn hand_over(&mut self, now: Instant) -> Handover {
        let slots = self.capacity.buckets.iter_mut();
        let hand_over = |slot: &mut BucketSlot| (slot.limit, slot.value.clone(), slot.bucket.hand_over(now));
        let handover =
            Handover { buckets: slots.map(hand_over).collect(), pauses: self.capacity.pauses.clone() };
        self.hold_back_late(now);
        handover
    }

    /// Goes on with what a predecessor knew of these limits.
    pub(crate) fn take_over(&mut self, now: Instant, handover: Handover) {
        let Handover { buckets, pauses } = handover;
        for (limit, value, snapshot) in buckets {
            let id = self.capacity.buckets.of(limit, &value, now);
            // Values for which there is no room share a bucket, which is nobody's heir.
            if let Some(slot) = self.capacity.buckets.get_mut(id).filter(|slot| slot.value == value) {
                slot.bucket.take_over(now, snapshot);
            }
        }
        self.capacity.pauses.take_over(&pauses);
        self.hold_back_late(now);
        self.serve(now);
    }
}

impl Limiter {
    /// Goes on with what another limiter has learned of the limits that both have, and with what its buckets hold.
    pub(crate) fn take_over(&self, predecessor: &Self) {
        let common_limits = self.shared.table.common_limits(&predecessor.shared.table);
        let mut handover = predecessor.shared.change(LimiterState::hand_over);
        handover.buckets.retain_mut(|(limit, _, _)| match common_limits.get(limit) {
            Some(heir) => {
                *limit = *heir;
                true
            }
            None => false,
        });
        self.shared.change(|state, now| state.take_over(now, handover));
    }
}
