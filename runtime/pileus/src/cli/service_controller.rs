//! The flags of the service controller: upstream's name for the one that it has, and a cloud that is read as rarely as for
//! routes.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use pileus_cloud::Cluster;
use pileus_controllers::service;

use super::duration::period;

/// Flags of the service controller.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load balancers")]
pub struct ServiceController {
    /// How many calls about Services may run side by side, where the provider can; each is about all that is due
    #[arg(long, value_name = "N", default_value = "4")]
    pub concurrent_service_syncs: NonZeroUsize,

    /// How often all load balancers are looked at although nothing has changed: somebody else may have changed them, or
    /// left some behind
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "30m")]
    pub load_balancer_audit_period: Duration,
}

impl ServiceController {
    /// What the controller is told; `classes` are the load balancer classes that are the provider's.
    pub(crate) fn service(&self, cluster: Cluster, classes: Vec<String>) -> service::Settings {
        service::Settings {
            cluster,
            classes,
            audit_period: self.load_balancer_audit_period,
            calls: self.concurrent_service_syncs.get(),
        }
    }
}
