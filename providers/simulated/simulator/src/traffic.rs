//! What a call meets apart from the cloud's own state: the check of its token, the quotas, the faults, the counters and the
//! record of requests. It is independent of any API, so that every simulated cloud can use it. The clock is an argument.

use std::time::Duration;

use crate::call::{Kind, Outcome};
use crate::counters::Counters;
use crate::credentials::{Credentials, Tokens};
use crate::faults::{Action, Decision, Faults, Random};
use crate::quotas::{Buckets, QuotaStatus, Quotas};
use crate::requests::{Entry, Requests};
use crate::world::WriteFaults;

/// The state that decides what happens to a call, and what is known of past calls.
pub struct Traffic {
    /// The configured faults.
    pub faults: Faults,
    /// The quotas and what is left of them.
    pub buckets: Buckets,
    /// The known client and its tokens.
    pub tokens: Tokens,
    /// The numbers of calls.
    pub counters: Counters,
    /// The most recent requests.
    pub requests: Requests,
    random: Random,
    /// Random numbers for faults of long operations, so that they don't shift those of other faults.
    operation_random: Random,
}

impl Traffic {
    /// No faults, full buckets, and counters at zero.
    pub fn new(quotas: Quotas, credentials: Option<Credentials>, seed: u64) -> Self {
        Self {
            faults: Faults::default(),
            buckets: Buckets::new(quotas),
            tokens: Tokens::new(credentials, seed),
            counters: Counters::default(),
            requests: Requests::default(),
            random: Random::seeded(seed),
            operation_random: Random::seeded(!seed),
        }
    }

    /// Counts a call that has arrived, takes from its quota, and decides what happens to it. The quota is `None` where calls
    /// of this kind have none.
    pub fn admit(&mut self, now: Duration, kind: Kind, is_let_in: bool) -> (Decision, Option<QuotaStatus>) {
        self.counters.arrived();
        // A client without a valid token can't use up the quota.
        if !is_let_in {
            return (Decision { delay: Duration::ZERO, action: Action::Unauthorized }, None);
        }
        let status = self.buckets.take(kind, now);
        let over_quota = status.and_then(|status| status.retry_after_seconds);
        let shown = status.filter(|_| !self.buckets.quotas().silent);
        (self.faults.decide(kind, over_quota, &mut self.random), shown)
    }

    /// The faults of the next write that begins a long operation.
    pub fn write_faults(&mut self) -> WriteFaults {
        self.faults.write_faults(&mut self.operation_random)
    }

    /// Counts and records the end of a call. `status` is `None` where its response was lost.
    pub fn end(&mut self, kind: Kind, entry: Entry, status: Option<u16>) {
        let outcome = status.map_or(Outcome::Lost, Outcome::of_status);
        self.counters.ended(kind, outcome);
        self.requests.push(Entry { status, ..entry });
    }
}
