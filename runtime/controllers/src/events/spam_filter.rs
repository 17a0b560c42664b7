//! A limit on repeated events about one object, as client-go's spam filter is. Nodes that come and go behind a thousand load
//! balancers would otherwise keep the API server busy with events.
//!
//! The numbers are client-go's: a burst of 25, then one each 5 minutes. Here each reason of an object has a bucket of its
//! own, so that a frequent event doesn't suppress a rare one. The reasons that a provider chooses share buckets.
//!
//! Pure: the clock is an argument.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// The number of events that may come at once.
const BURST: u32 = 25;

/// The time after which one more event is allowed.
const REFILL: Duration = Duration::from_mins(5);

/// A token bucket for each object and reason, by a hash of both.
#[derive(Debug)]
pub(super) struct SpamFilter {
    /// The time at which a bucket is full again. A missing bucket is full.
    full_at: HashMap<u64, Instant>,
    /// When full buckets were last removed.
    cleaned_at: Instant,
}

impl SpamFilter {
    /// A filter whose buckets are all full.
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: HashMap::new(), cleaned_at: now }
    }

    /// Takes a token for an event, by the hash of its object and its reason. Returns whether there was one.
    pub(super) fn allow(&mut self, bucket: u64, now: Instant) -> bool {
        if now.duration_since(self.cleaned_at) >= REFILL {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.cleaned_at = now;
        }
        let full_at = self.full_at.entry(bucket).or_insert(now);
        let next = now.max(*full_at) + REFILL;
        let is_allowed = next <= now + REFILL * BURST;
        if is_allowed {
            *full_at = next;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_each_object_has_a_bucket_that_refills_slowly() {
        let start = Instant::now();
        let mut filter = SpamFilter::new(start);
        let mut allowed = |bucket: u64, after: Duration| {
            (0..100).filter(|_: &u32| filter.allow(bucket, start + after)).count()
        };
        assert_eq!(allowed(1, Duration::ZERO), 25);
        assert_eq!([allowed(2, Duration::ZERO), allowed(3, Duration::ZERO)], [25, 25]);
        assert_eq!(allowed(1, REFILL / 2), 0);
        assert_eq!(allowed(1, REFILL), 1);
        assert_eq!(allowed(1, REFILL * 10), 9);
        assert_eq!(allowed(1, REFILL * 100), 25);
        assert_eq!(filter.full_at.len(), 1, "full buckets are removed");
    }
}
