//! What is remembered of each request: counters, an event at its end and one more if it failed. Every label is from the
//! operator's document or from a fixed set, so neither a provider nor a cloud can make series; no query, header or body
//! is ever written. A record counts itself when it is dropped, so an exchange that is given up halfway is counted like
//! any other, and once.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use tokio::time::Instant;
use tracing::Span;

use crate::{error::Error, rules::Effect};

/// The gate's metrics, one set for all gates of a process.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    duration: Family<GrantLabels, Histogram, fn() -> Histogram>,
    sent: Family<GrantLabels, Counter>,
    received: Family<GrantLabels, Counter>,
    stripped: Family<GrantLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    provider: Arc<str>,
    grant: Arc<str>,
    effect: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GrantLabels {
    provider: Arc<str>,
    grant: Arc<str>,
}

/// From a round trip within a data centre to the longest that a call may take.
fn duration_histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0])
}

impl Metrics {
    /// Makes the metrics and registers them, with their full names: the registry is expected to add no prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(duration_histogram),
            sent: Family::default(),
            received: Family::default(),
            stripped: Family::default(),
        };
        let Self { requests, duration, sent, received, stripped } = &metrics;
        registry.register("pileus_gate_requests", "Requests of providers to clouds", requests.clone());
        registry.register_with_unit(
            "pileus_gate_answer_duration",
            "Time from a provider's request to the head of its answer",
            Unit::Seconds,
            duration.clone(),
        );
        registry.register_with_unit("pileus_gate_sent", "Bodies of requests sent", Unit::Bytes, sent.clone());
        registry.register_with_unit(
            "pileus_gate_received",
            "Bodies of answers received",
            Unit::Bytes,
            received.clone(),
        );
        registry.register(
            "pileus_gate_stripped_headers",
            "Header lines that were taken out of requests and answers",
            stripped.clone(),
        );
        metrics
    }

    /// Begins the record of a request of this provider. Until more is known it has no grant and no effect, and if it is
    /// dropped so, it was cancelled.
    pub(crate) fn begin(&self, provider: Arc<str>, none: Arc<str>) -> Record {
        Record {
            metrics: self.clone(),
            provider,
            grant: none,
            effect: "unknown",
            result: "cancelled",
            span: Span::none(),
            begun: Instant::now(),
            answered: None,
            sent: 0,
            received: 0,
            stripped: 0,
        }
    }
}

/// What is known of one request. Counted when dropped.
#[derive(Debug)]
pub(crate) struct Record {
    metrics: Metrics,
    provider: Arc<str>,
    pub(crate) grant: Arc<str>,
    effect: &'static str,
    result: &'static str,
    /// Says in the event which request it was.
    pub(crate) span: Span,
    begun: Instant,
    answered: Option<Duration>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) stripped: u64,
}

impl Record {
    pub(crate) fn means(&mut self, effect: Effect) {
        self.effect = effect.label();
    }

    /// Notes what went wrong, and tells the operator: the provider only sees a code of it.
    pub(crate) fn failed(&mut self, error: &Error) {
        self.result = error.label();
        let Self { provider, grant, .. } = &*self;
        let _entered = self.span.enter();
        if matches!(error, Error::DeadlinePassed | Error::Fenced | Error::Closed) {
            // Part of the ordinary life of a long call, and of a process.
            tracing::debug!(%provider, %grant, %error, "request to the cloud not sent");
        } else {
            tracing::warn!(%provider, %grant, %error, "request to the cloud failed");
        }
    }

    /// Notes the head of the answer. What goes wrong with the body after it overrides the result.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.answered = Some(self.begun.elapsed());
        self.result = match status.as_u16() {
            ..400 => "ok",
            400..500 => "http_4xx",
            500.. => "http_5xx",
        };
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Self {
            metrics,
            provider,
            grant,
            effect,
            result,
            span,
            begun,
            answered,
            sent,
            received,
            stripped,
        } = self;
        let labels = GrantLabels { provider: provider.clone(), grant: grant.clone() };
        if let Some(answered) = answered {
            metrics.duration.get_or_create(&labels).observe(answered.as_secs_f64());
        }
        metrics.sent.get_or_create(&labels).inc_by(*sent);
        metrics.received.get_or_create(&labels).inc_by(*received);
        metrics.stripped.get_or_create(&labels).inc_by(*stripped);
        let labels = RequestLabels { provider: provider.clone(), grant: grant.clone(), effect, result };
        metrics.requests.get_or_create(&labels).inc();
        span.in_scope(|| {
            tracing::debug!(
                %provider, %grant, effect, result, sent, received, stripped, elapsed = ?begun.elapsed(),
                "request to the cloud finished",
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn a_record_that_is_dropped_unfinished_counts_as_cancelled_once() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        drop(metrics.begin("azure".into(), "none".into()));
        let line = r#"pileus_gate_requests_total{provider="azure",grant="none",effect="unknown",result="cancelled"} 1"#;
        let text = text(&registry);
        assert!(text.contains(line), "{text}");
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
            let mut record = metrics.begin("azure".into(), "a.example".into());
            record.answered(StatusCode::from_u16(status).unwrap());
            assert_eq!(record.result, result, "{status}");
        }
    }
}
