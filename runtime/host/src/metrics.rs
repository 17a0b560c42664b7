//! What the host counts about calls. Labels are closed sets: providers, functions, results.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::component::Component;
use crate::native::Kept;

/// The metric families of the host. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    calls: Family<Outcome, Counter>,
    in_flight: Family<Function, Gauge>,
    seconds: Family<Function, Histogram>,
    memory: Family<Function, Histogram>,
    dropped_log_lines: Family<Provider, Counter>,
    repeats: Family<Function, Counter>,
    culprits: Family<Function, Counter>,
    doubted: Family<Function, Counter>,
    compiled_code: Family<Lookup, Counter>,
    info: Family<Loaded, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provider {
    provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Function {
    provider: String,
    function: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    provider: String,
    function: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lookup {
    provider: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Loaded {
    provider: String,
    version: String,
    digest: String,
    contract: String,
}

impl Metrics {
    /// Makes the families and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        // From a call that needs no request to the hard deadline of the slowest.
        let seconds = || Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0]);
        // From what a small guest starts with, in doublings, to the ceiling.
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
        prefix.register("calls", "Calls to a provider, by what became of them", metrics.calls.clone());
        let help = "Calls that have a sandbox and aren't over";
        prefix.register("in_flight", help, metrics.in_flight.clone());
        prefix.register_with_unit("call", "Time of a call", Unit::Seconds, metrics.seconds.clone());
        prefix.register_with_unit(
            "memory",
            "Most linear memory of a call",
            Unit::Bytes,
            metrics.memory.clone(),
        );
        let help = "Log lines of a provider that were not kept";
        prefix.register("log_lines_dropped", help, metrics.dropped_log_lines.clone());
        let help = "Calls that repeated a part of one that failed, to find what it failed at";
        prefix.register("repeats", help, metrics.repeats.clone());
        let help = "Items that a provider failed at, each found by repeating";
        prefix.register("culprits", help, metrics.culprits.clone());
        let help = "Answers that rested on what was cached for too long to say so, and were asked for again";
        prefix.register("doubted", help, metrics.doubted.clone());
        let help = "Loads that looked for compiled code on disk, by what was there: hit, miss or invalid";
        prefix.register("compiled_code", help, metrics.compiled_code.clone());
        prefix.register("info", "The provider versions that are loaded", metrics.info.clone());
        metrics
    }

    /// A provider version was loaded.
    pub(crate) fn loaded(&self, provider: &str, version: &str, component: &Component) {
        let (provider, version) = (provider.to_owned(), version.to_owned());
        let found = match component.kept {
            Kept::Hit => Some("hit"),
            Kept::Miss => Some("miss"),
            Kept::Invalid => Some("invalid"),
            Kept::Off => None,
        };
        if let Some(result) = found {
            self.compiled_code.get_or_create(&Lookup { provider: provider.clone(), result }).inc();
        }
        let (digest, contract) = (component.digest.short(), component.contract.clone());
        self.info.get_or_create(&Loaded { provider, version, digest, contract }).set(1);
    }

    /// A call begins; it is over when what this returns is dropped.
    pub(crate) fn call_begins(&self, provider: &str, function: &str) -> InFlight {
        let labels = Function { provider: provider.to_owned(), function: function.to_owned() };
        let calls = self.in_flight.get_or_create_owned(&labels);
        calls.inc();
        InFlight(calls)
    }

    /// A call is over. `result` is `ok`, a fault's label or an error kind's.
    pub(crate) fn call_ended(&self, provider: &str, function: &str, result: &'static str, took: Duration) {
        let (provider, function) = (provider.to_owned(), function.to_owned());
        let labels = Function { provider: provider.clone(), function: function.clone() };
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.calls.get_or_create(&Outcome { provider, function, result }).inc();
    }

    /// A part of a call that failed was asked about again.
    pub(crate) fn repeated(&self, provider: &str, function: &str) {
        let labels = Function { provider: provider.to_owned(), function: function.to_owned() };
        self.repeats.get_or_create(&labels).inc();
    }

    /// A provider fails at one item, and without it at no other.
    pub(crate) fn found_culprit(&self, provider: &str, function: &str) {
        let labels = Function { provider: provider.to_owned(), function: function.to_owned() };
        self.culprits.get_or_create(&labels).inc();
    }

    /// So many answers were asked for again past the cache.
    pub(crate) fn doubted(&self, provider: &str, function: &str, answers: usize) {
        let labels = Function { provider: provider.to_owned(), function: function.to_owned() };
        self.doubted.get_or_create(&labels).inc_by(u64::try_from(answers).unwrap_or(u64::MAX));
    }

    /// What a call used.
    #[expect(clippy::cast_precision_loss, reason = "memory is below 2^52 bytes")]
    pub(crate) fn call_used(&self, provider: &str, function: &str, memory: usize, dropped_lines: u64) {
        let labels = Function { provider: provider.to_owned(), function: function.to_owned() };
        self.memory.get_or_create(&labels).observe(memory as f64);
        if dropped_lines > 0 {
            self.dropped_log_lines
                .get_or_create(&Provider { provider: provider.to_owned() })
                .inc_by(dropped_lines);
        }
    }
}

/// A call that isn't over.
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
