//! What the limits of one gate hand to those of the next, when a new version of a provider takes over: what the cloud
//! has taught them about itself holds for whoever asks it.

use std::{sync::Arc, time::Instant};

use crate::limits::{
    Limiter,
    bucket::Heritage,
    buckets::{LimitId, Slot},
    closures::Closures,
    decide::State,
};

/// What one [`State`] hands to the next.
#[derive(Debug)]
pub(crate) struct Handover {
    /// By limit and value.
    buckets: Vec<(LimitId, Arc<str>, Heritage)>,
    closures: Closures,
}

impl State {
    /// Hands over what it knows, and what its buckets hold.
    pub(crate) fn hand_over(&mut self, now: Instant) -> Handover {
        let slots = self.supply.buckets.iter_mut();
        let hand_over = |slot: &mut Slot| (slot.limit, slot.value.clone(), slot.bucket.hand_over(now));
        let handover =
            Handover { buckets: slots.map(hand_over).collect(), closures: self.supply.closures.clone() };
        self.refuse_the_late(now);
        handover
    }

    /// Goes on with what a predecessor knew of these limits.
    pub(crate) fn take_over(&mut self, now: Instant, handover: Handover) {
        let Handover { buckets, closures } = handover;
        for (limit, value, heritage) in buckets {
            let id = self.supply.buckets.of(limit, &value, now);
            // Values for which there is no room share a bucket, which is nobody's heir.
            if let Some(slot) = self.supply.buckets.get_mut(id).filter(|slot| slot.value == value) {
                slot.bucket.take_over(now, heritage);
            }
        }
        self.supply.closures.take_over(&closures);
        self.refuse_the_late(now);
        self.serve(now);
    }
}

impl Limiter {
    /// Goes on with what another limiter has learned of the limits that both have, and with what its buckets hold.
    pub(crate) fn take_over(&self, predecessor: &Self) {
        let heirs = self.shared.known.heirs(&predecessor.shared.known);
        let mut handover = predecessor.shared.change(State::hand_over);
        handover.buckets.retain_mut(|(limit, _, _)| match heirs.get(limit) {
            Some(heir) => {
                *limit = *heir;
                true
            }
            None => false,
        });
        self.shared.change(|state, now| state.take_over(now, handover));
    }
}
