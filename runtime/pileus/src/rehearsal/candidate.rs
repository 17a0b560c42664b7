//! A provider that is tried out: loaded as in a run, behind a gate that rehearses. It may be the one that runs or its next
//! version.

use std::net::IpAddr;
use std::time::Duration;

use pileus_cloud::{Cluster, Error as CloudError, OwnedLoadBalancer, Provider};
use pileus_gate::{DryRun, View};
use tokio::time::Instant;

use super::apart::{Apart, Outcome, Told};
use super::outlook::Identity;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::start::Metrics;
use crate::{cli, provider};

/// How long writes are told apart that were wanted by a call about several things: a thousand calls that read something
/// from a cloud at 20 ms, and a while for its limits. What is left then is told as it is.
const TELLING: Duration = Duration::from_mins(1);

/// A provider whose writes are written down instead of sent.
pub(crate) struct Candidate {
    pub(crate) provider: Provider,
    pub(crate) rehearsal: DryRun,
    pub(crate) identity: Identity,
}

impl Candidate {
    /// Loads it.
    ///
    /// # Errors
    /// As in a run.
    pub(crate) async fn load(
        document: CloudProvider,
        compiled: cli::Compiled,
        denied_addresses: Vec<IpAddr>,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        let fence = pileus_gate::Fence::default();
        let loaded = provider::prepare(document, compiled, denied_addresses, fence, metrics).await?;
        let identity = Identity {
            name: loaded.name.clone(),
            component: loaded.description.name.clone(),
            version: loaded.description.version.clone(),
            digest: loaded.component.digest.to_string(),
        };
        let (gate, rehearsal) = loaded.gate.clone().dry_run();
        // Nothing changes meanwhile, so what was read once is true for every call.
        let gate = gate.with_view(View::fresh());
        let provider = loaded.behind(gate).provider(metrics);
        Ok(Self { provider, rehearsal, identity })
    }

    /// What the cloud has for Services; nothing where the provider balances no load. Or why that can't be told.
    pub(crate) async fn owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, String> {
        let Some(load_balancers) = &self.provider.load_balancers else { return Ok(Vec::new()) };
        let owned = self.read(load_balancers.list_owned(cluster)).await;
        owned.map_err(|problem| format!("what the cloud has for Services can't be listed: {problem}"))
    }

    /// What a call answers that only reads, or what is wrong.
    pub(super) async fn read<T>(
        &self,
        call: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, String> {
        self.rehearsal.take();
        let answer = call.await;
        let writes = self.rehearsal.take();
        answer.map_err(|error| match writes.list.first() {
            // The most likely mistake of a provider's author, and a mystery without a word.
            Some(write) => format!(
                "{error}: the provider's rules don't declare {} {} a read, so it was taken for a write and not sent",
                write.method, write.url
            ),
            None => error.message,
        })
    }

    /// Asks for changes, in as few calls as it takes to know what is wanted for which.
    pub(super) async fn tell_apart<C: Clone>(
        &self,
        changes: &[C],
        largest: usize,
        call: impl AsyncFn(Vec<C>) -> Result<Vec<Outcome>, CloudError>,
    ) -> Told {
        let until = Instant::now() + TELLING;
        let mut apart = Apart::new(changes.len(), largest);
        while let Some(part) = apart.next() {
            if part.is_new || Instant::now() < until {
                let asked = part.things.iter().filter_map(|thing| changes.get(*thing).cloned());
                self.rehearsal.take();
                let outcomes = call(asked.collect()).await;
                apart.came(&part, outcomes, self.rehearsal.take());
            }
        }
        apart.told()
    }
}
