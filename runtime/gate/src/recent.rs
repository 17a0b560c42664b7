//! The last requests of one gate, for the admin page: what each asked for, its result, and where the time went. Nothing is
//! kept that may hold a secret: no header, no query, no body, and no path segment that is too long for a name. The number
//! of requests is bounded, and so are their bytes, since a shown URL is.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use crate::limits::Urgency;

/// About 160 KiB with the longest URLs. A provider of 5,000 nodes sends some 100 requests a minute.
const MAX_KEPT: usize = 256;

/// Where a response came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// There was none.
    Unanswered,
    /// The cloud.
    Cloud,
    /// The cache.
    Cache,
    /// The cloud's response to another caller, who sent the same request at the same time.
    Shared,
    /// The gate's [`Interceptor`](crate::Interceptor).
    Interceptor,
    /// The gate, because a limit didn't let the request through in time.
    Limit,
    /// The gate, because the provider wanted a cached response only and there was none.
    NotCached,
}

impl Source {
    /// The name of the source on the admin page.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unanswered => "none",
            Self::Cloud => "cloud",
            Self::Cache => "cache",
            Self::Shared => "shared",
            Self::Interceptor => "interceptor",
            Self::Limit | Self::NotCached => "gate",
        }
    }
}

/// A request that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RecentRequest {
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
    /// The urgency of its call.
    pub urgency: Urgency,
    /// Its result, as in metrics.
    pub result: &'static str,
    /// The status of the response, regardless of its source.
    pub status: Option<StatusCode>,
    /// Where the response came from.
    pub source: Source,
    /// The bytes of its body, once for each time that it was to be sent.
    pub sent: u64,
    /// The bytes of the response's body that were read.
    pub received: u64,
    /// How long it waited for the limits.
    pub waited: Duration,
    /// How long it took until the head of the response was there.
    pub answered: Option<Duration>,
    /// How long it took until its end: until the response's body ended, or until its caller went.
    pub took: Duration,
    /// Whether it was finished although its caller had gone.
    pub outlived_caller: bool,
}

/// The last requests.
#[derive(Debug, Default)]
pub(crate) struct RecentRequests(Mutex<VecDeque<RecentRequest>>);

impl RecentRequests {
    pub(crate) fn add(&self, request: RecentRequest) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == MAX_KEPT {
            all.pop_back();
        }
        all.push_front(request);
    }

    /// All of them, the one that ended last first.
    pub(crate) fn list(&self) -> Vec<RecentRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_requests_are_kept_newest_first() {
        let recent = RecentRequests::default();
        for number in 0..1_000 {
            recent.add(RecentRequest {
                begun: Instant::now(),
                grant: "none".into(),
                method: "GET".to_owned(),
                url: number.to_string(),
                effect: "read",
                urgency: Urgency::Background,
                result: "ok",
                status: None,
                source: Source::Unanswered,
                sent: 0,
                received: 0,
                waited: Duration::ZERO,
                answered: None,
                took: Duration::ZERO,
                outlived_caller: false,
            });
        }
        let urls: Vec<_> = recent.list().into_iter().map(|request| request.url).collect();
        assert_eq!((urls.len(), urls[0].as_str(), urls[255].as_str()), (256, "999", "744"));
    }
}
