//! What is remembered of each request: counters, an event at its end and one more if it failed, and a line among the last
//! ones (`recent`). Every label is from the operator's document or from a fixed set, so neither a provider nor a cloud can
//! make series; no query, header or body is ever written. A record counts itself when it is dropped, so an exchange that is
//! given up halfway is counted like any other, and once.

mod metrics;

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::time::Instant;
use tracing::{Span, debug_span, field::Empty};

use crate::{
    error::Error,
    failures::Failures,
    limits::Urgency,
    recent::{Recent, Seen, Source},
    request::Request,
    rules::Effect,
};
pub use metrics::Metrics;
use metrics::{GrantLabels, ProviderLabels, RequestLabels};

/// Where a gate keeps what it remembers of its requests.
#[derive(Debug)]
pub(crate) struct Records {
    metrics: Metrics,
    provider: Arc<str>,
    /// The label of grant where there is none.
    none: Arc<str>,
    failures: Failures,
    pub(crate) recent: Recent,
}

impl Records {
    pub(crate) fn new(provider: Arc<str>, metrics: Metrics) -> Self {
        let failures = Failures::new(Instant::now());
        Self { metrics, provider, none: "none".into(), failures, recent: Recent::default() }
    }

    fn in_flight(&self, change: i64) {
        let labels = ProviderLabels { provider: self.provider.clone() };
        self.metrics.0.in_flight.get_or_create(&labels).inc_by(change);
    }

    /// Begins the record of a request. Until more is known it has no grant and no effect, and if it is dropped so, it was
    /// cancelled.
    pub(crate) fn begin(self: &Arc<Self>, urgency: Urgency) -> Record {
        self.in_flight(1);
        self.blank(urgency)
    }

    fn blank(self: &Arc<Self>, urgency: Urgency) -> Record {
        Record {
            records: self.clone(),
            request: None,
            urgency,
            grant: self.none.clone(),
            effect: "unknown",
            result: "cancelled",
            status: None,
            source: Source::Nobody,
            span: Span::none(),
            begun: Instant::now(),
            waits_since: None,
            waited: Duration::ZERO,
            answered: None,
            sent: 0,
            received: 0,
            stripped: 0,
            outlived: false,
            is_handed_over: false,
        }
    }
}

/// What is known of one request. Counted when dropped.
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
    /// Whether it was finished although nobody waited for it any more.
    outlived: bool,
    /// Whether another record stands for the request.
    is_handed_over: bool,
}

impl Record {
    /// Hands it to whoever ends the request in any case. What stays tells the log what becomes of its caller, and is
    /// never counted.
    pub(crate) fn hand_over(&mut self) -> Self {
        let mut stays = self.records.blank(self.urgency);
        stays.is_handed_over = true;
        stays.grant = self.grant.clone();
        stays.span = self.span.clone();
        std::mem::replace(self, stays)
    }

    /// The host of the request, for messages.
    pub(crate) fn host(&self) -> String {
        self.request.as_ref().map(|request| request.host.to_string()).unwrap_or_default()
    }

    /// Nobody waits for the request any more, and it is finished nonetheless.
    pub(crate) fn outlived(&mut self) {
        self.outlived = true;
    }

    /// Notes which request it is.
    pub(crate) fn asks(&mut self, request: &Arc<Request>) {
        self.span = debug_span!(
            "cloud request", provider = %self.records.provider, method = %request.method, url = request.shown_url(),
            grant = Empty, effect = Empty,
        );
        self.request = Some(request.clone());
    }

    /// The span of the request, below that of its call.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Notes which grant allows it.
    pub(crate) fn granted(&mut self, grant: &Arc<str>) {
        self.grant = grant.clone();
        self.span.record("grant", &**grant);
    }

    pub(crate) fn means(&mut self, effect: Effect) {
        self.effect = effect.label();
        self.span.record("effect", self.effect);
    }

    /// It waits for its turn from now on.
    pub(crate) fn waits(&mut self) {
        self.waits_since = Some(Instant::now());
    }

    /// It waits no longer.
    pub(crate) fn waited(&mut self) {
        if let Some(since) = self.waits_since.take() {
            self.waited += since.elapsed();
        }
    }

    /// Notes what went wrong, and tells the operator unless there is a flood: the provider only sees a code of it.
    pub(crate) fn failed(&mut self, error: &Error) {
        self.result = error.label();
        let (Records { provider, failures, .. }, grant) = (&*self.records, &self.grant);
        let _entered = self.span.enter();
        if matches!(error, Error::DeadlinePassed | Error::Fenced | Error::Closed) {
            // Part of the ordinary life of a long call, and of a process.
            tracing::debug!(%provider, %grant, %error, "request to the cloud not sent");
        } else if let Some(untold) = failures.note(Instant::now()) {
            let untold = (untold > 0).then_some(untold);
            tracing::warn!(%provider, %grant, %error, untold, "request to the cloud failed");
        }
    }

    /// Notes that the gate answered in the cloud's place, since a limit forbids to send.
    pub(crate) fn held_back(&mut self, status: StatusCode) {
        self.result = "held_back";
        self.status = Some(status);
        self.source = Source::Gate;
    }

    /// Notes the head of the answer and whose it is. What goes wrong with the body after it overrides the result.
    pub(crate) fn answered(&mut self, status: StatusCode, source: Source) {
        self.answered = Some(self.begun.elapsed());
        self.status = Some(status);
        self.source = source;
        self.result = match status.as_u16() {
            ..400 => "ok",
            400..500 => "http_4xx",
            500.. => "http_5xx",
        };
    }

    /// Notes that the cloud didn't give this answer, or not to this request alone; `result` says why.
    pub(crate) fn told(&mut self, status: StatusCode, source: Source, result: &'static str) {
        self.answered(status, source);
        self.result = result;
    }

    /// Whether another record stands for the request.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// Takes it down to what pages show.
    fn seen(&self) -> Seen {
        let request = self.request.as_ref();
        Seen {
            begun: self.begun,
            grant: self.grant.clone(),
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
            outlived: self.outlived,
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.is_handed_over {
            return;
        }
        self.waited();
        let seen = self.seen();
        let Self { records, grant, effect, result, answered, sent, received, stripped, .. } = self;
        let Records { metrics: Metrics(families), provider, recent, .. } = &**records;
        records.in_flight(-1);
        let labels = GrantLabels { provider: provider.clone(), grant: grant.clone() };
        if let Some(answered) = answered {
            families.duration.get_or_create(&labels).observe(answered.as_secs_f64());
        }
        families.sent.get_or_create(&labels).inc_by(*sent);
        families.received.get_or_create(&labels).inc_by(*received);
        families.stripped.get_or_create(&labels).inc_by(*stripped);
        let labels = RequestLabels { provider: provider.clone(), grant: grant.clone(), effect, result };
        families.requests.get_or_create(&labels).inc();
        self.span.in_scope(|| {
            tracing::debug!(
                %provider, %grant, effect, result, sent, received, stripped, elapsed = ?seen.took,
                outlived = seen.outlived,
                "request to the cloud finished",
            );
        });
        recent.note(seen);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    fn records(metrics: &Metrics) -> Arc<Records> {
        Arc::new(Records::new("azure".into(), metrics.clone()))
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_is_dropped_unfinished_counts_as_cancelled_once_and_is_in_flight_until_then() {
        let mut registry = Registry::default();
        let records = records(&Metrics::register(&mut registry));
        let mut record = records.begin(Urgency::User);
        record.waits();
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
        let [seen]: [Seen; 1] = seen.try_into().unwrap();
        assert_eq!((seen.result, seen.source, seen.urgency), ("cancelled", Source::Nobody, Urgency::User));
        assert_eq!((seen.waited, seen.took), (Duration::from_secs(2), Duration::from_secs(2)));
    }

    #[test]
    fn a_result_is_the_class_of_the_status_unless_the_body_fails() {
        let metrics = Metrics::register(&mut Registry::default());
        for (status, result) in [
            (200, "ok"),
            (304, "ok"),
            (404, "http_4xx"),
            (429, "http_4xx"),
            (500, "http_5xx"),
            (999, "http_5xx"),
        ] {
            let mut record = records(&metrics).begin(Urgency::default());
            record.answered(StatusCode::from_u16(status).unwrap(), Source::Cloud);
            assert_eq!(record.result, result, "{status}");
        }
    }
}
