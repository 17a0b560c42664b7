//! A provider that is tried out: loaded as in a run, behind a gate that rehearses. It may be the one that runs or its next
//! version.

use std::net::IpAddr;

use pileus_cloud::{Cluster, Error as CloudError, Owned, Provider};
use pileus_gate::{Rehearsal, View};

use super::outlook::Identity;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::start::Metrics;
use crate::{cli, provider};

/// A provider whose writes are written down instead of sent.
pub(crate) struct Candidate {
    pub(crate) provider: Provider,
    pub(crate) rehearsal: Rehearsal,
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
        let (gate, rehearsal) = loaded.gate.clone().rehearsing();
        // Nothing changes meanwhile, so what was read once is true for every call.
        let gate = gate.with_view(View::fresh());
        let provider = loaded.behind(gate).provider(metrics);
        Ok(Self { provider, rehearsal, identity })
    }

    /// What the cloud says that it has for Services; nothing where the provider balances no load.
    pub(crate) async fn owned(&self, cluster: &Cluster) -> Result<Vec<Owned>, CloudError> {
        match &self.provider.load_balancers {
            Some(load_balancers) => load_balancers.list_owned(cluster).await,
            None => Ok(Vec::new()),
        }
    }
}
