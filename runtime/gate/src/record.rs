//! The record of each request: metrics, a log line at its end and another if it failed, and an entry on the admin page
//! (`recent`). No query, header or body is ever written. A record counts itself when it is dropped, so a request that is
//! given up halfway is counted like any other, and once.

mod metrics;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Span, debug_span};

use crate::body::BodyObserver;
use crate::effect::Effect;
use crate::error::Error;
use crate::failure_log::FailureLog;
use crate::families::ProviderLabels;
use crate::limits::Urgency;
use crate::recent::{RecentRequest, RecentRequests, Source};
use crate::refusals::RefusalMeaning;
use crate::request::Request;
pub(crate) use metrics::RequestMetrics;
use metrics::{GrantLabels, RequestLabels};

/// Where the records of a gate end up.
#[derive(Debug)]
pub(crate) struct Records {
    metrics: RequestMetrics,
    provider: Arc<str>,
    /// The label of a request without a grant.
    none: Arc<str>,
    failure_log: FailureLog,
    pub(crate) recent: RecentRequests,
}

impl Records {
    pub(crate) fn new(provider: Arc<str>, metrics: RequestMetrics) -> Self {
        let failure_log = FailureLog::new(Instant::now());
        Self { metrics, provider, none: "none".into(), failure_log, recent: RecentRequests::default() }
    }

    fn in_flight(&self, change: i64) {
        let labels = ProviderLabels { provider: Arc::clone(&self.provider) };
        self.metrics.in_flight.get_or_create(&labels).inc_by(change);
    }

    /// Begins the record of a request. At first it has no grant and no effect, and a record that is dropped so counts as
    /// canceled.
    pub(crate) fn begin(self: &Arc<Self>, urgency: Urgency) -> Record {
        self.in_flight(1);
        self.blank(urgency)
    }

    fn blank(self: &Arc<Self>, urgency: Urgency) -> Record {
        Record {
            records: Arc::clone(self),
            request: None,
            urgency,
            grant: Arc::clone(&self.none),
            effect: "unknown",
            result: "cancelled",
            status: None,
            source: Source::Unanswered,
            span: Span::none(),
            begun: Instant::now(),
            waits_since: None,
            waited: Duration::ZERO,
            answered: None,
            sent: 0,
            received: 0,
            stripped: 0,
            outlived_caller: false,
            duty: Duty::Full,
        }
    }
}

/// What is known of one request. It counts itself when it is dropped.
#[derive(Debug)]
pub(crate) struct Record {
    records: Arc<Records>,
    request: Option<Arc<Request>>,
    urgency: Urgency,
    grant: Arc<str>,
    effect: &'static str,
    result: &'static str,
    status: Option<StatusCode>,
    source: Source,
    /// Says in each event which request it was.
    span: Span,
    begun: Instant,
    waits_since: Option<Instant>,
    waited: Duration,
    answered: Option<Duration>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) stripped: u64,
    /// Whether the request was finished although its caller had gone.
    outlived_caller: bool,
    duty: Duty,
}

/// What a record does for its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// It logs failures, and counts the request at its end.
    Full,
    /// Another record counts the request; this one logs what its caller is told.
    LogOnly,
    /// Another record counts the request and logs its failures.
    None,
}

impl Record {
    /// Gives the record to the task that ends the request in any case. What stays with the caller has this duty.
    pub(crate) fn hand_over(&mut self, duty: Duty) -> Self {
        let mut stays = self.records.blank(self.urgency);
        stays.duty = duty;
        stays.grant = Arc::clone(&self.grant);
        stays.span = self.span.clone();
        std::mem::replace(self, stays)
    }

    /// The host of the request, for messages.
    pub(crate) fn host(&self) -> String {
        self.request.as_ref().map(|request| request.host.to_string()).unwrap_or_default()
    }

    /// Notes that the request is finished although its caller has gone.
    pub(crate) fn outlive_caller(&mut self) {
        self.outlived_caller = true;
    }

    /// Notes which request it is.
    pub(crate) fn set_request(&mut self, request: &Arc<Request>) {
        self.span = debug_span!(
            "cloud request", provider = %self.records.provider, method = %request.method, url = request.shown_url(),
            grant = Empty, effect = Empty,
        );
        self.request = Some(Arc::clone(request));
    }

    /// The span of the request, below that of its call.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Notes which grant allows it.
    pub(crate) fn set_grant(&mut self, grant: &Arc<str>) {
        self.grant = Arc::clone(grant);
        self.span.record("grant", &**grant);
    }

    /// Notes what it does in the cloud.
    pub(crate) fn set_effect(&mut self, effect: Effect) {
        self.effect = effect.label();
        self.span.record("effect", self.effect);
    }

    /// The request waits for a limit from now on.
    pub(crate) fn start_waiting(&mut self) {
        self.waits_since = Some(Instant::now());
    }

    /// The request waits no longer.
    pub(crate) fn stop_waiting(&mut self) {
        if let Some(since) = self.waits_since.take() {
            self.waited += since.elapsed();
        }
    }

    /// Notes an error, and logs it unless there is a flood of them: the provider sees no more of it than a code.
    pub(crate) fn fail(&mut self, error: &Error) {
        if self.duty == Duty::None {
            return;
        }
        self.result = error.label();
        let (Records { provider, failure_log, .. }, grant) = (&*self.records, &self.grant);
        let _entered = self.span.enter();
        if matches!(error, Error::DeadlinePassed | Error::Fenced | Error::Closed) {
            // Expected in long calls and at the end of a process.
            tracing::debug!(%provider, %grant, %error, "request to the cloud not sent");
        } else if let Some(suppressed) = failure_log.admit(Instant::now()) {
            let suppressed = (suppressed > 0).then_some(suppressed);
            tracing::warn!(%provider, %grant, %error, suppressed, "request to the cloud failed");
        }
    }

    /// Notes the head of the response, what it means, and where it came from. A body that fails later overrides the result.
    pub(crate) fn respond(&mut self, from: Source, status: StatusCode, meaning: Option<RefusalMeaning>) {
        self.status = Some(status);
        self.source = from;
        let by_status = match status.as_u16() {
            ..400 => "ok",
            400..500 => "http_4xx",
            500.. => "http_5xx",
        };
        self.result = match from {
            Source::Limit => "held_back",
            Source::NotCached => "not_cached",
            Source::Cache => "cached",
            Source::Shared => "shared",
            _ => meaning.and_then(RefusalMeaning::label).unwrap_or(by_status),
        };
        // A request that a limit holds back is in the durations of waits, not of responses.
        if from != Source::Limit {
            self.answered = Some(self.begun.elapsed());
        }
    }

    /// Notes that the cloud confirmed a cached response: with that, the status is the cached one's.
    pub(crate) fn revalidate(&mut self) {
        self.respond(Source::Cloud, StatusCode::OK, None);
        self.result = "revalidated";
    }

    /// What the admin page shows of the request.
    fn summary(&self) -> RecentRequest {
        let request = self.request.as_ref();
        RecentRequest {
            begun: self.begun,
            grant: Arc::clone(&self.grant),
            method: request.map(|request| request.method.to_string()).unwrap_or_default(),
            url: request.map(|request| request.shown_url()).unwrap_or_default(),
            effect: self.effect,
            urgency: self.urgency,
            result: self.result,
            status: self.status,
            source: self.source,
            sent: self.sent,
            received: self.received,
            waited: self.waited,
            answered: self.answered,
            took: self.begun.elapsed(),
            outlived_caller: self.outlived_caller,
        }
    }
}

impl BodyObserver for Record {
    fn on_bytes(&mut self, count: u64) {
        self.received = self.received.saturating_add(count);
    }

    fn on_error(&mut self, error: &Error) {
        self.fail(error);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.duty != Duty::Full {
            return;
        }
        self.stop_waiting();
        let summary = self.summary();
        let Self { records, grant, effect, result, answered, sent, received, stripped, .. } = self;
        let Records { metrics, provider, recent, .. } = &**records;
        records.in_flight(-1);
        let labels = GrantLabels { provider: Arc::clone(provider), grant: Arc::clone(grant) };
        if let Some(answered) = answered {
            metrics.duration.get_or_create(&labels).observe(answered.as_secs_f64());
        }
        metrics.sent.get_or_create(&labels).inc_by(*sent);
        metrics.received.get_or_create(&labels).inc_by(*received);
        metrics.stripped.get_or_create(&labels).inc_by(*stripped);
        let labels =
            RequestLabels { provider: Arc::clone(provider), grant: Arc::clone(grant), effect, result };
        metrics.requests.get_or_create(&labels).inc();
        self.span.in_scope(|| {
            tracing::debug!(
                %provider, %grant, effect, result, sent, received, stripped,
                elapsed_ms = summary.took.as_secs_f64() * 1e3,
                outlived = summary.outlived_caller,
                "request to the cloud finished",
            );
        });
        recent.add(summary);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    fn records(metrics: &RequestMetrics) -> Arc<Records> {
        Arc::new(Records::new("azure".into(), metrics.clone()))
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_record_counts_as_cancelled_once_and_as_in_flight_until_then() {
        let mut registry = Registry::default();
        let records = records(&RequestMetrics::register(&mut registry));
        let mut record = records.begin(Urgency::User);
        record.start_waiting();
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(text(&registry).contains(r#"pileus_gate_in_flight{provider="azure"} 1"#));
        drop(record);
        let text = text(&registry);
        for line in [
            r#"pileus_gate_requests_total{provider="azure",grant="none",effect="unknown",result="cancelled"} 1"#,
            r#"pileus_gate_in_flight{provider="azure"} 0"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
        let seen = records.recent.list();
        let [seen]: [RecentRequest; 1] = seen.try_into().unwrap();
        assert_eq!(
            (seen.result, seen.source, seen.urgency),
            ("cancelled", Source::Unanswered, Urgency::User)
        );
        assert_eq!((seen.waited, seen.took), (Duration::from_secs(2), Duration::from_secs(2)));
    }

    #[test]
    fn the_result_of_a_response_is_its_meaning_or_the_class_of_its_status() {
        let metrics = RequestMetrics::register(&mut Registry::default());
        for (status, meaning, result) in [
            (200, None, "ok"),
            (304, None, "ok"),
            (404, None, "http_4xx"),
            (429, None, "http_4xx"),
            (500, None, "http_5xx"),
            (999, None, "http_5xx"),
            (403, Some(RefusalMeaning::Throttled), "throttled"),
            (429, Some(RefusalMeaning::Locked), "locked"),
            (400, Some(RefusalMeaning::Absent), "absent"),
            (400, Some(RefusalMeaning::Later), "later"),
            (429, Some(RefusalMeaning::Other), "http_4xx"),
            (503, Some(RefusalMeaning::Other), "http_5xx"),
        ] {
            let mut record = records(&metrics).begin(Urgency::default());
            record.respond(Source::Cloud, StatusCode::from_u16(status).unwrap(), meaning);
            assert_eq!(record.result, result, "{status} {meaning:?}");
        }
    }
}
