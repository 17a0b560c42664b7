//! A provider in a dry run: loaded as for `pileus run`, behind a gate that records writes instead of sending them. It
//! may be the version that runs now or the next one.

use std::net::IpAddr;
use std::time::Duration;

use pileus_cloud::{Cluster, Error as CloudError, OwnedLoadBalancer, Provider};
use pileus_gate::{DryRun, Gate, View};
use tokio::time::Instant;

use super::attribution::{Attributed, Attribution, ItemOutcome};
use super::preview::Identity;
use crate::cli;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::provider;

/// How long writes are attributed to items. A thousand calls fit, each reading from a cloud at 20 ms, and some waiting
/// for its limits. After that the rest is reported as unattributed.
const ATTRIBUTION_TIME: Duration = Duration::from_mins(1);

/// A provider whose writes are recorded instead of sent.
pub(crate) struct DryRunProvider {
    pub(crate) provider: Provider,
    pub(crate) dry_run: DryRun,
    pub(crate) identity: Identity,
    /// Why it changes no load balancers, where it doesn't.
    pub(super) no_load_balancers: &'static str,
}

impl DryRunProvider {
    /// Loads the provider of a document.
    ///
    /// # Errors
    /// As [`provider::prepare`].
    pub(crate) async fn load(
        document: CloudProvider,
        folders: (cli::Compiled, cli::StoreFolder),
        denied_addresses: Vec<IpAddr>,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        let loaded = provider::prepare(document, folders, denied_addresses, metrics).await?;
        let identity = Identity::of(&loaded.document, &loaded.description, &loaded.component);
        Ok(Self::behind(loaded.gate.clone(), |gate| loaded.provider(gate, metrics), identity))
    }

    /// A provider that is made behind a gate like this one, which records writes.
    pub(crate) fn behind(gate: Gate, provider: impl FnOnce(Gate) -> Provider, identity: Identity) -> Self {
        let (gate, dry_run) = gate.dry_run();
        // Nothing changes during a dry run, so a cached answer serves every call.
        let provider = provider(gate.with_view(View::fresh()));
        Self { provider, dry_run, identity, no_load_balancers: "the provider manages no load balancers" }
    }

    /// The same provider for a process that runs these controllers: without the service controller Services aren't read either.
    pub(crate) fn with_controllers(mut self, controllers: &cli::ControllerSelection) -> Self {
        if !controllers.runs(cli::ControllerName::Service) {
            self.provider.load_balancers = None;
            self.no_load_balancers = "--controllers leaves out the service controller";
        }
        self
    }

    /// Lists what the cloud has for Services; nothing where the provider manages no load balancers.
    ///
    /// # Errors
    /// A sentence that says why the list failed.
    pub(crate) async fn owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, String> {
        let Some(load_balancers) = &self.provider.load_balancers else { return Ok(Vec::new()) };
        let owned = self.read(load_balancers.list_owned(cluster)).await;
        owned.map_err(|problem| format!("can't list the cloud's load balancers: {problem}"))
    }

    /// The answer of a call that should only read.
    ///
    /// # Errors
    /// A sentence that says why the call failed.
    pub(super) async fn read<T>(
        &self,
        call: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, String> {
        self.dry_run.take();
        let answer = call.await;
        let writes = self.dry_run.take();
        answer.map_err(|error| match writes.list.first() {
            // The most likely mistake of a provider's author, and hard to find without this hint.
            Some(write) => format!(
                "{error}: the provider's rules don't declare {} {} a read, so it was treated as a write and not sent",
                write.method, write.url
            ),
            None => error.message,
        })
    }

    /// Asks the provider for changes, in as few calls as it takes to know which writes belong to which.
    pub(super) async fn attribute<C: Clone>(
        &self,
        changes: &[C],
        largest: usize,
        call: impl AsyncFn(Vec<C>) -> Result<Vec<ItemOutcome>, CloudError>,
    ) -> Attributed {
        let until = Instant::now() + ATTRIBUTION_TIME;
        let mut attribution = Attribution::new(changes.len(), largest);
        while let Some(batch) = attribution.next() {
            if batch.is_first || Instant::now() < until {
                let items = batch.items.iter().filter_map(|item| changes.get(*item).cloned());
                self.dry_run.take();
                let outcomes = call(items.collect()).await;
                attribution.record(&batch, outcomes, self.dry_run.take());
            }
        }
        attribution.finish()
    }
}
