//! The host's metrics of calls. Labels have few values: providers, functions, results.

use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::code::CacheResult;
use crate::component::Component;

/// The metric families of the host. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    calls: Family<CallLabels, Counter>,
    in_flight: Family<FunctionLabels, Gauge>,
    seconds: Family<FunctionLabels, Histogram>,
    memory: Family<FunctionLabels, Histogram>,
    dropped_log_lines: Family<ProviderLabels, Counter>,
    repeats: Family<FunctionLabels, Counter>,
    culprits: Family<FunctionLabels, Counter>,
    doubted: Family<FunctionLabels, Counter>,
    compiled_code: Family<CompiledCodeLabels, Counter>,
    info: Family<InfoLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabels {
    provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FunctionLabels {
    provider: String,
    function: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    provider: String,
    function: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CompiledCodeLabels {
    provider: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct InfoLabels {
    pub(crate) provider: String,
    pub(crate) version: String,
    pub(crate) digest: String,
    pub(crate) contract: String,
}

impl Metrics {
    /// Creates and registers the families.
    pub fn register(registry: &mut Registry) -> Self {
        // From a call without a request to the longest hard deadline.
        let seconds =
            || Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0, 300.0]);
        // From the memory of a small guest at its start, doubling up to the limit.
        let bytes = || Histogram::new((20..=28).map(|power| f64::from(1_u32 << power)));
        let metrics = Self {
            calls: Family::default(),
            in_flight: Family::default(),
            seconds: Family::new_with_constructor(seconds as fn() -> Histogram),
            memory: Family::new_with_constructor(bytes as fn() -> Histogram),
            dropped_log_lines: Family::default(),
            repeats: Family::default(),
            culprits: Family::default(),
            doubted: Family::default(),
            compiled_code: Family::default(),
            info: Family::default(),
        };
        let prefix = registry.sub_registry_with_prefix("pileus_provider");
        prefix.register("calls", "Calls to a provider, by result", metrics.calls.clone());
        let help = "Calls that are running in a sandbox";
        prefix.register("in_flight", help, metrics.in_flight.clone());
        prefix.register_with_unit("call", "Duration of a call", Unit::Seconds, metrics.seconds.clone());
        prefix.register_with_unit(
            "memory",
            "Peak linear memory of a call",
            Unit::Bytes,
            metrics.memory.clone(),
        );
        let help = "Log lines of a provider that were dropped";
        prefix.register("log_lines_dropped", help, metrics.dropped_log_lines.clone());
        let help = "Calls that repeat a part of a failed batch to find the item that it failed at";
        prefix.register("repeats", help, metrics.repeats.clone());
        let help = "Items that a provider failed at, found by repeating their batch in parts";
        prefix.register("culprits", help, metrics.culprits.clone());
        let help = "Answers that the cloud's replies didn't support or that rested on too old data, and were asked for again";
        prefix.register("doubted", help, metrics.doubted.clone());
        let help = "Loads of components with a cache of compiled code, by result: hit, miss or invalid";
        prefix.register("compiled_code", help, metrics.compiled_code.clone());
        prefix.register("info", "Provider versions that serve calls", metrics.info.clone());
        metrics
    }

    /// Counts what the code cache had of a component, once for all releases that have it.
    pub(crate) fn record_code(&self, provider: &str, component: &Component) {
        if component.is_counted.swap(true, Ordering::Relaxed) {
            return;
        }
        let result = match component.cache_result {
            CacheResult::Hit => Some("hit"),
            CacheResult::Miss => Some("miss"),
            CacheResult::Invalid => Some("invalid"),
            CacheResult::Disabled => None,
        };
        if let Some(result) = result {
            self.compiled_code
                .get_or_create(&CompiledCodeLabels { provider: provider.to_owned(), result })
                .inc();
        }
    }

    /// Shows which component serves the calls of a provider, in place of another.
    pub(crate) fn show_served(&self, before: Option<&InfoLabels>, now: Option<&InfoLabels>) {
        if let Some(before) = before {
            self.info.remove(before);
        }
        if let Some(now) = now {
            self.info.get_or_create(now).set(1);
        }
    }

    /// Counts a call as in flight until the returned guard is dropped.
    pub(crate) fn call_started(&self, provider: &str, function: &str) -> InFlightGuard {
        let labels = FunctionLabels { provider: provider.to_owned(), function: function.to_owned() };
        let calls = self.in_flight.get_or_create_owned(&labels);
        calls.inc();
        InFlightGuard(calls)
    }

    /// Records a call that has ended. `result` is `ok`, `unanswered`, or the label of a fault or of an error kind.
    pub(crate) fn call_ended(&self, provider: &str, function: &str, result: &'static str, took: Duration) {
        let (provider, function) = (provider.to_owned(), function.to_owned());
        let labels = FunctionLabels { provider: provider.clone(), function: function.clone() };
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.calls.get_or_create(&CallLabels { provider, function, result }).inc();
    }

    /// Counts a repeated part of a failed batch.
    pub(crate) fn count_repeat(&self, provider: &str, function: &str) {
        let labels = FunctionLabels { provider: provider.to_owned(), function: function.to_owned() };
        self.repeats.get_or_create(&labels).inc();
    }

    /// Counts an item that a provider fails at alone.
    pub(crate) fn count_culprit(&self, provider: &str, function: &str) {
        let labels = FunctionLabels { provider: provider.to_owned(), function: function.to_owned() };
        self.culprits.get_or_create(&labels).inc();
    }

    /// Counts answers that were looked up again without the cache.
    pub(crate) fn count_doubted(&self, provider: &str, function: &str, answers: usize) {
        let labels = FunctionLabels { provider: provider.to_owned(), function: function.to_owned() };
        self.doubted.get_or_create(&labels).inc_by(u64::try_from(answers).unwrap_or(u64::MAX));
    }

    /// Records what a call used.
    #[expect(clippy::cast_precision_loss, reason = "memory is below 2^52 bytes")]
    pub(crate) fn record_usage(&self, provider: &str, function: &str, memory: usize, dropped_lines: u64) {
        let labels = FunctionLabels { provider: provider.to_owned(), function: function.to_owned() };
        self.memory.get_or_create(&labels).observe(memory as f64);
        if dropped_lines > 0 {
            self.dropped_log_lines
                .get_or_create(&ProviderLabels { provider: provider.to_owned() })
                .inc_by(dropped_lines);
        }
    }
}

/// Counts one call as in flight.
pub(crate) struct InFlightGuard(Gauge);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
