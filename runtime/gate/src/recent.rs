//! The last requests of one gate, for whoever looks at its page: what was asked, what became of it, and where the time
//! went. Nothing is kept that may hold a secret: no header, no query, no body, and of the path no segment that is too
//! long for a name. What is kept is bounded, in number and, since a shown URL is, in bytes.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::StatusCode;
use tokio::time::Instant;

use crate::limits::Urgency;

/// With URLs of the greatest length, about 160 KiB. A provider of 5,000 nodes sends some 100 requests in a minute.
const KEPT: usize = 256;

/// Who answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nobody has.
    Nobody,
    /// The cloud.
    Cloud,
    /// The cloud, some time before.
    Cache,
    /// The cloud, to somebody else who asked the same at the same time.
    Shared,
    /// Whoever stands in for the cloud.
    StandIn,
    /// The gate, since a limit didn't let the request through in time.
    Gate,
}

impl Source {
    /// What pages call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Cloud => "cloud",
            Self::Cache => "cache",
            Self::Shared => "shared",
            Self::StandIn => "stand_in",
            Self::Gate => "gate",
        }
    }
}

/// A request that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// When it came to the gate.
    pub begun: Instant,
    /// The label of the grant that allowed it; `none` where none did.
    pub grant: Arc<str>,
    /// The method; empty where the request had no canonical form.
    pub method: String,
    /// Scheme, host, port and path, cut to half a KiB; empty where the request had no canonical form.
    pub url: String,
    /// What it does in the cloud, or `unknown`, as in metrics.
    pub effect: &'static str,
    /// How urgent the call was.
    pub urgency: Urgency,
    /// What became of it, as in metrics.
    pub result: &'static str,
    /// The status of the answer, whoever gave it.
    pub status: Option<StatusCode>,
    /// Who answered.
    pub source: Source,
    /// The bytes of its body, as often as it was to be sent.
    pub sent: u64,
    /// The bytes of the answer's body that were read.
    pub received: u64,
    /// How long it waited for the limits.
    pub waited: Duration,
    /// How long it took until the head of the answer was there.
    pub answered: Option<Duration>,
    /// How long it took until its end: that of the answer's body, or of whoever waited for it.
    pub took: Duration,
    /// Whether it was finished although nobody waited for it any more.
    pub outlived: bool,
}

/// The last requests.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<VecDeque<Seen>>);

impl Recent {
    pub(crate) fn note(&self, seen: Seen) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == KEPT {
            all.pop_back();
        }
        all.push_front(seen);
    }

    /// From the one that ended last.
    pub(crate) fn list(&self) -> Vec<Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_the_newest_first() {
        let recent = Recent::default();
        for number in 0..1_000 {
            recent.note(Seen {
                begun: Instant::now(),
                grant: "none".into(),
                method: "GET".to_owned(),
                url: number.to_string(),
                effect: "read",
                urgency: Urgency::Background,
                result: "ok",
                status: None,
                source: Source::Nobody,
                sent: 0,
                received: 0,
                waited: Duration::ZERO,
                answered: None,
                took: Duration::ZERO,
                outlived: false,
            });
        }
        let urls: Vec<_> = recent.list().into_iter().map(|seen| seen.url).collect();
        assert_eq!((urls.len(), urls[0].as_str(), urls[255].as_str()), (256, "999", "744"));
    }
}
