//! What the gates of one provider have in common. Each release has a gate of its own where its rules, grants or credentials
//! differ.

use std::sync::Arc;

use super::in_force::LimitsInForce;
use super::{Config, Gate};
use crate::error::Error;
use crate::fence::Fence;
use crate::metrics::Metrics;
use crate::network::{self, Resolve};
use crate::record::Records;
use crate::shutdown::Shutdown;
use crate::writes::Writes;

/// What no release of a provider may begin anew: which write waits for which, the fence, the end of the gate ([`Gate::close`]
/// and [`Gate::wait_for_writes`] are about all), the record, and which limits are in force. All gates count against the
/// limits of the one that has [taken over](Gate::take_over), by its rules, so together they send no more than one. Cache and
/// credentials are each gate's own, since they depend on the config. Clones share it all.
#[derive(Debug, Clone)]
pub struct GateFamily {
    pub(super) writes: Writes,
    pub(super) records: Arc<Records>,
    pub(super) shutdown: Shutdown,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) in_force: LimitsInForce,
}

impl GateFamily {
    /// The family of a provider by the operator's name for it, without a gate. The fence of its gates is this one.
    pub fn new(provider: &str, fence: Fence, metrics: &Metrics) -> Self {
        Self::with_resolver(provider, fence, metrics, Arc::new(network::System))
    }

    /// As [`GateFamily::new`], with this resolver for names.
    pub fn with_resolver(
        provider: &str,
        fence: Fence,
        metrics: &Metrics,
        resolver: Arc<dyn Resolve>,
    ) -> Self {
        let shutdown = Shutdown::default();
        let writes = Writes::new(fence, shutdown.clone());
        let records = Arc::new(Records::new(provider.into(), metrics.requests.clone()));
        Self { writes, records, shutdown, resolver, in_force: LimitsInForce::default() }
    }

    /// Makes a gate of the family. The limits of the first one are in force from now on.
    ///
    /// # Errors
    /// As [`Gate::new`].
    pub fn gate(&self, config: Config, metrics: &Metrics) -> Result<Gate, Error> {
        Gate::build(config, metrics, self.clone())
    }
}
