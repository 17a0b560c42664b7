//! Flags of the service controller. `--concurrent-service-syncs` is upstream's; the audit period is that of routes.

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
    /// Make up to this many concurrent calls for Services, if the provider supports it; each call carries all that is due
    #[arg(long, value_name = "N", default_value = "4")]
    pub concurrent_service_syncs: NonZeroUsize,

    /// Compare all load balancers with their Services at least this often, to find changes that others made and orphans
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "30m")]
    pub load_balancer_audit_period: Duration,
}

impl ServiceController {
    /// The settings of the service controller; `classes` are the load balancer classes that the provider serves.
    pub(crate) fn service(&self, cluster: Cluster, classes: Vec<String>) -> service::Settings {
        service::Settings {
            cluster,
            classes,
            is_default: true,
            marks_services: false,
            audit_period: self.load_balancer_audit_period,
            calls: self.concurrent_service_syncs.get(),
        }
    }
}
