//! Hands over the limits of one gate to the gate of a new version of the provider: what the cloud has shown holds for
//! any version.

use std::sync::Arc;
use std::time::Instant;

use crate::limits::Limiter;
use crate::limits::bucket::BucketSnapshot;
use crate::limits::buckets::{BucketSlot, LimitId};
use crate::limits::decide::LimiterState;
use crate::limits::pauses::PausedResources;

/// What one [`LimiterState`] hands over to the next.
#[derive(Debug)]
pub(crate) struct Handover {
    /// By limit and value.
    buckets: Vec<(LimitId, Arc<str>, BucketSnapshot)>,
    pauses: PausedResources,
}

impl LimiterState {
    /// Hands over what it has learned and the tokens of its buckets.
    pub(crate) fn hand_over(&mut self, now: Instant) -> Handover {
        let slots = self.capacity.buckets.iter_mut();
        let hand_over = |slot: &mut BucketSlot| (slot.limit, slot.value.clone(), slot.bucket.hand_over(now));
        let handover =
            Handover { buckets: slots.map(hand_over).collect(), pauses: self.capacity.pauses.clone() };
        self.hold_back_late(now);
        handover
    }

    /// Takes over what a predecessor learned about these limits.
    pub(crate) fn take_over(&mut self, now: Instant, handover: Handover) {
        let Handover { buckets, pauses } = handover;
        for (limit, value, snapshot) in buckets {
            let id = self.capacity.buckets.of(limit, &value, now);
            // Values without room share a bucket, which takes nothing over.
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
    /// Takes over, for the limits that both have, what another limiter has learned and the tokens of its buckets.
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
