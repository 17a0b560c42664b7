//! What is remembered of each request: counters, an event at its end and one more if it failed. Every label is from the
//! operator's document or from a fixed set, so neither a provider nor a cloud can make series; no query, header or body
//! is ever written. A record counts itself when it is dropped, so an exchange that is given up halfway is counted like
//! any other, and once.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use http::StatusCode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use tokio::time::Instant;
use tracing::Span;

use crate::{error::Error, failures::Failures, limits::Urgency, rules::Effect};

/// The gate's metrics, one set for all gates of a process.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    requests: Family<RequestLabels, Counter>,
    duration: Family<GrantLabels, Histogram, fn() -> Histogram>,
    sent: Family<GrantLabels, Counter>,
    received: Family<GrantLabels, Counter>,
    stripped: Family<GrantLabels, Counter>,
    waiting: Family<UrgencyLabels, Gauge>,
    waits: Family<UrgencyLabels, Histogram, fn() -> Histogram>,
    held_back: Family<RefusalLabels, Counter>,
    closures: Family<LimitLabels, Counter>,
    rates: Family<LimitLabels, Gauge<f64, AtomicU64>>,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UrgencyLabels {
    provider: Arc<str>,
    urgency: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    provider: Arc<str>,
    limit: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    provider: Arc<str>,
    limit: Arc<str>,
    reason: &'static str,
}

/// From a round trip within a data centre to the longest that a call may take.
fn duration_histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0])
}

impl Metrics {
    /// Makes the metrics and registers them, with their full names: the registry is expected to add no prefix.
    pub fn register(registry: &mut Registry) -> Self {
        let families = Families {
            requests: Family::default(),
            duration: Family::new_with_constructor(duration_histogram),
            sent: Family::default(),
            received: Family::default(),
            stripped: Family::default(),
            waiting: Family::default(),
            waits: Family::new_with_constructor(duration_histogram),
            held_back: Family::default(),
            closures: Family::default(),
            rates: Family::default(),
        };
        families.register_limits(registry);
        let Families { requests, duration, sent, received, stripped, .. } = &families;
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
        Self(Arc::new(families))
    }

    /// A request of this provider begins to wait, or waits no longer.
    pub(crate) fn waiting(&self, provider: &Arc<str>, urgency: Urgency, change: i64) {
        let labels = UrgencyLabels { provider: provider.clone(), urgency: urgency.label() };
        self.0.waiting.get_or_create(&labels).inc_by(change);
    }

    /// A request waited for so long.
    pub(crate) fn waited(&self, provider: &Arc<str>, urgency: Urgency, time: Duration) {
        let labels = UrgencyLabels { provider: provider.clone(), urgency: urgency.label() };
        self.0.waits.get_or_create(&labels).observe(time.as_secs_f64());
    }

    /// A request was answered 429 here.
    pub(crate) fn held_back(&self, provider: &Arc<str>, limit: Arc<str>, reason: &'static str) {
        self.0.held_back.get_or_create(&RefusalLabels { provider: provider.clone(), limit, reason }).inc();
    }

    /// A limit was closed.
    pub(crate) fn closed(&self, provider: &Arc<str>, limit: Arc<str>) {
        self.0.closures.get_or_create(&LimitLabels { provider: provider.clone(), limit }).inc();
    }

    /// So many requests a second is what a limit lets through.
    pub(crate) fn rate(&self, provider: &Arc<str>, limit: Arc<str>, per_second: f64) {
        self.0.rates.get_or_create(&LimitLabels { provider: provider.clone(), limit }).set(per_second);
    }

    /// Begins the record of a request of this provider. Until more is known it has no grant and no effect, and if it is
    /// dropped so, it was cancelled.
    pub(crate) fn begin(&self, provider: Arc<str>, none: Arc<str>, failures: Arc<Failures>) -> Record {
        Record {
            metrics: self.clone(),
            failures,
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

impl Families {
    fn register_limits(&self, registry: &mut Registry) {
        let Self { waiting, waits, held_back, closures, rates, .. } = self;
        registry.register("pileus_gate_waiting", "Requests that wait for their turn", waiting.clone());
        registry.register_with_unit(
            "pileus_gate_wait_duration",
            "Time that requests waited for their turn, those that had it at once included",
            Unit::Seconds,
            waits.clone(),
        );
        registry.register(
            "pileus_gate_held_back",
            "Requests that the gate answered 429 itself, by the limit that would have taken longest",
            held_back.clone(),
        );
        registry.register(
            "pileus_gate_limit_closures",
            "Times that a limit was closed because the cloud refused",
            closures.clone(),
        );
        registry.register(
            "pileus_gate_limit_rate",
            "Requests a second that a limit lets through, as far as the cloud has shown; the slowest bucket of several",
            rates.clone(),
        );
    }
}

/// What is known of one request. Counted when dropped.
#[derive(Debug)]
pub(crate) struct Record {
    metrics: Metrics,
    failures: Arc<Failures>,
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

    /// Notes what went wrong, and tells the operator unless there is a flood: the provider only sees a code of it.
    pub(crate) fn failed(&mut self, error: &Error) {
        self.result = error.label();
        let Self { provider, grant, .. } = &*self;
        let _entered = self.span.enter();
        if matches!(error, Error::DeadlinePassed | Error::Fenced | Error::Closed) {
            // Part of the ordinary life of a long call, and of a process.
            tracing::debug!(%provider, %grant, %error, "request to the cloud not sent");
        } else if let Some(untold) = self.failures.note(Instant::now()) {
            let untold = (untold > 0).then_some(untold);
            tracing::warn!(%provider, %grant, %error, untold, "request to the cloud failed");
        }
    }

    /// Notes that the gate answered in the cloud's place, since a limit forbids to send.
    pub(crate) fn held_back(&mut self) {
        self.result = "held_back";
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
            failures: _,
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
            metrics.0.duration.get_or_create(&labels).observe(answered.as_secs_f64());
        }
        metrics.0.sent.get_or_create(&labels).inc_by(*sent);
        metrics.0.received.get_or_create(&labels).inc_by(*received);
        metrics.0.stripped.get_or_create(&labels).inc_by(*stripped);
        let labels = RequestLabels { provider: provider.clone(), grant: grant.clone(), effect, result };
        metrics.0.requests.get_or_create(&labels).inc();
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

    fn failures() -> Arc<Failures> {
        Arc::new(Failures::new(Instant::now()))
    }

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn a_record_that_is_dropped_unfinished_counts_as_cancelled_once() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        drop(metrics.begin("azure".into(), "none".into(), failures()));
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
            let mut record = metrics.begin("azure".into(), "a.example".into(), failures());
            record.answered(StatusCode::from_u16(status).unwrap());
            assert_eq!(record.result, result, "{status}");
        }
    }
}
