//! How often the same may be told of an object. What goes on for long, such as Nodes that come and go behind a thousand load
//! balancers, would keep the API server busy with events that nobody reads.
//!
//! Upstream's numbers (ccm-behaviour 4.9). What is better here: each reason has its own allowance, so that what happens all
//! the time doesn't hide what happens at last.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// How many events may come at once.
const BURST: u32 = 25;

/// In what time one more may.
const REFILL: Duration = Duration::from_mins(5);

/// What has been told of which object and why.
#[derive(Debug)]
pub(super) struct Allowances {
    /// When the whole burst is allowed again, where it isn't now.
    full: HashMap<(String, String), Instant>,
    /// When those that are full were last forgotten.
    cleared: Instant,
}

impl Allowances {
    /// Nothing has been told yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { full: HashMap::new(), cleared: now }
    }

    /// Whether one more event of this reason may be told of this object, which then is.
    pub(super) fn take(&mut self, object: String, reason: String, now: Instant) -> bool {
        if now.duration_since(self.cleared) >= REFILL {
            self.full.retain(|_, full| *full > now);
            self.cleared = now;
        }
        let full = self.full.entry((object, reason)).or_insert(now);
        let next = now.max(*full) + REFILL;
        let is_allowed = next <= now + REFILL * BURST;
        if is_allowed {
            *full = next;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_has_an_allowance_for_each_reason_that_comes_back_slowly() {
        let start = Instant::now();
        let mut allowances = Allowances::new(start);
        let mut told = |object: &str, reason: &str, after: Duration| {
            let take = |_: &u32| allowances.take(object.to_owned(), reason.to_owned(), start + after);
            (0..100).filter(take).count()
        };
        assert_eq!(told("a", "Updated", Duration::ZERO), 25);
        assert_eq!([told("a", "Failed", Duration::ZERO), told("b", "Updated", Duration::ZERO)], [25, 25]);
        assert_eq!(told("a", "Updated", REFILL / 2), 0);
        assert_eq!(told("a", "Updated", REFILL), 1);
        assert_eq!(told("a", "Updated", REFILL * 10), 9);
        assert_eq!(told("a", "Updated", REFILL * 100), 25);
        assert_eq!(allowances.full.len(), 1, "those that are full are forgotten");
    }
}
