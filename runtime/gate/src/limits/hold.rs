//! The answer to a request that the gate holds back. It looks like the cloud's own, so that a provider needs no second
//! kind of error: a 429 with the time after which to retry. One header says that it comes from the gate, and why.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use crate::headers::GATE_HEADER;
use crate::limits::buckets::LimitId;
use crate::limits::capacity::Estimate;

/// What a request has to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HoldReason {
    /// For tokens to flow in.
    Rate,
    /// For the end of the pause of a limit.
    LimitPaused,
    /// For the end of the pause of the resource.
    ResourcePaused,
    /// For room in the queue.
    QueueFull,
    /// For the end of a write whose caller has gone.
    WriteUnfinished,
    /// For nothing: it could be sent at once if its deadline had not passed.
    Late,
}

impl HoldReason {
    /// The value of the `reason` label in metrics, and in the header.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::LimitPaused => "closed",
            Self::ResourcePaused => "resource_closed",
            Self::QueueFull => "queue_full",
            Self::WriteUnfinished => "write_unfinished",
            Self::Late => "deadline_passed",
        }
    }
}

/// Why a request is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The limit that it waits for longest. None if it is the resource.
    pub(crate) limit: Option<LimitId>,
    pub(crate) reason: HoldReason,
    /// The time after which it could be sent.
    pub(crate) after: Duration,
}

impl Hold {
    pub(crate) fn new(estimate: Estimate, now: Instant) -> Self {
        let Estimate { at, limit, reason } = estimate;
        Self { limit, reason, after: at.saturating_duration_since(now) }
    }
}

/// A request that is held back, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldBack {
    limit: Arc<str>,
    reason: HoldReason,
    after: Duration,
}

impl HeldBack {
    pub(crate) fn new(limit: Arc<str>, hold: Hold) -> Self {
        let Hold { limit: _, reason, after } = hold;
        Self { limit, reason, after }
    }

    /// The response that the provider receives.
    pub(crate) fn into_response(self) -> Response<Bytes> {
        let Self { limit, reason, after } = self;
        // Rounded up: a retry a moment early would be held back again.
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        let seconds = seconds.max(1);
        let printable = |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\') { c } else { '?' };
        let limit: String = limit.chars().map(printable).collect();
        let reason = reason.label();
        let body = format!("not sent to the cloud: limit {limit}, {reason}; try again in {seconds} s\n");
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, seconds.into());
        headers.insert(CONTENT_LENGTH, body.len().into());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let own = format!(r#"reason={reason}; limit="{limit}""#);
        headers.insert(GATE_HEADER, own.parse().expect("visible characters and spaces are a header value"));
        response.map(|_| Bytes::from(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_a_429_with_the_time_rounded_up_and_names_the_gate() {
        let millis = Duration::from_millis;
        for (after, seconds) in [(millis(0), "1"), (millis(1), "1"), (millis(1000), "1"), (millis(1001), "2")]
        {
            let hold = Hold { limit: Some(0), reason: HoldReason::LimitPaused, after };
            let response = HeldBack::new("reads/{1} \"é".into(), hold).into_response();
            assert_eq!(
                (response.status(), &response.headers()["retry-after"]),
                (StatusCode::TOO_MANY_REQUESTS, &HeaderValue::from_static(seconds))
            );
            assert_eq!(response.headers()[GATE_HEADER], r#"reason=closed; limit="reads/{1}???""#);
            let length = response.body().len().to_string();
            assert_eq!(response.headers()[CONTENT_LENGTH], length.as_str());
        }
    }
}
