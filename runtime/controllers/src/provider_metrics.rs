//! Metric families with one set of series for each provider. Where one provider runs, the series have no label for it, so that
//! they look as upstream's do; where several run, each series has the label `provider`.

use std::fmt::Debug;
use std::hash::Hash;

use prometheus_client::metrics::family::Family;

/// The labels of a metric that has none of its own.
pub(crate) type NoLabels = [(&'static str, &'static str); 0];

/// The label `provider`, or nothing.
type ProviderLabel = Vec<(&'static str, String)>;

/// A family, as one provider sees it. Clones and the views of other providers share its series.
#[derive(Debug)]
pub(crate) struct ProviderFamily<L, M> {
    /// What is registered.
    pub(crate) family: Family<(ProviderLabel, L), M>,
    provider: ProviderLabel,
}

impl<L, M> Clone for ProviderFamily<L, M> {
    fn clone(&self) -> Self {
        Self { family: self.family.clone(), provider: self.provider.clone() }
    }
}

impl<L: Clone + Hash + Eq, M: Default> Default for ProviderFamily<L, M> {
    fn default() -> Self {
        Self { family: Family::default(), provider: Vec::new() }
    }
}

impl<L: Clone + Hash + Eq, M: Clone> ProviderFamily<L, M> {
    /// A family whose metrics are made by a function, as histograms are.
    pub(crate) fn made_by(constructor: fn() -> M) -> Self {
        Self { family: Family::new_with_constructor(constructor), provider: Vec::new() }
    }

    /// The same family, as the provider of this name sees it.
    pub(crate) fn of_provider(&self, name: &str) -> Self {
        Self { family: self.family.clone(), provider: vec![("provider", name.to_owned())] }
    }

    /// The provider's metric with these labels.
    pub(crate) fn with(&self, labels: L) -> M {
        self.family.get_or_create_owned(&(self.provider.clone(), labels))
    }
}

impl<M: Clone> ProviderFamily<NoLabels, M> {
    /// The provider's metric.
    pub(crate) fn metric(&self) -> M {
        self.with([])
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::EncodeLabelSet;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct ResultLabel {
        result: &'static str,
    }

    #[test]
    fn the_series_of_one_provider_have_no_label_for_it_and_those_of_several_do() {
        let mut registry = Registry::default();
        let nodes: ProviderFamily<NoLabels, Gauge> = ProviderFamily::default();
        let calls: ProviderFamily<ResultLabel, Counter> = ProviderFamily::default();
        let seconds: ProviderFamily<NoLabels, Histogram> = ProviderFamily::made_by(|| Histogram::new([1.0]));
        registry.register("nodes", "Nodes", nodes.family.clone());
        registry.register("calls", "Calls", calls.family.clone());
        registry.register("seconds", "Seconds", seconds.family.clone());
        let shown = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned);
            lines.collect::<std::collections::BTreeSet<_>>()
        };
        nodes.metric().set(3);
        calls.with(ResultLabel { result: "ok" }).inc();
        seconds.metric().observe(0.5);
        let alone = shown();
        for line in
            ["nodes 3", "calls_total{result=\"ok\"} 1", "seconds_bucket{le=\"1.0\"} 1", "seconds_count 1"]
        {
            assert!(alone.contains(line), "{line} is not in {alone:?}");
        }
        nodes.of_provider("a").metric().set(1);
        nodes.of_provider("b").metric().set(2);
        calls.of_provider("a").with(ResultLabel { result: "ok" }).inc();
        seconds.of_provider("b").metric().observe(0.5);
        let several: Vec<_> = shown().difference(&alone).cloned().collect();
        for line in [
            "nodes{provider=\"a\"} 1",
            "nodes{provider=\"b\"} 2",
            "calls_total{provider=\"a\",result=\"ok\"} 1",
            "seconds_bucket{le=\"1.0\",provider=\"b\"} 1",
        ] {
            assert!(several.iter().any(|shown| shown == line), "{line} is not in {several:?}");
        }
        assert!(shown().is_superset(&alone), "the series of no provider stay as they are");
    }
}
