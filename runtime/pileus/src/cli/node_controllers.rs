//! Flags of the controllers for Nodes, with upstream's names. Shorter periods than upstream's are affordable because a
//! lookup covers all Nodes at once.

use std::time::Duration;

use clap::Args;
use pileus_controllers::{node, node_lifecycle};

use super::duration::period;

/// Flags of the controllers for Nodes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Nodes")]
pub struct NodeControllers {
    /// Compare all initialised Nodes with their instances this often, in one batch; changes that others make to a Node are
    /// corrected within seconds
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "30m")]
    pub node_status_update_frequency: Duration,

    /// Look up the instances of all Nodes that are not ready this often, in one batch
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "10s")]
    pub node_monitor_period: Duration,

    /// Also taint Nodes whose instance is confirmed to be stopped with node.kubernetes.io/out-of-service: their Pods are
    /// deleted by force and their volumes detached, so that the Pods can start elsewhere. The taint is removed when the
    /// instance runs again
    #[arg(long)]
    pub taint_stopped_nodes_out_of_service: bool,
}

impl NodeControllers {
    /// The settings of the node controller.
    pub(crate) const fn node(&self, waits_for_routes: bool) -> node::Settings {
        node::Settings {
            refresh_period: self.node_status_update_frequency,
            waits_for_routes,
            is_node_manager: false,
        }
    }

    /// The settings of the node lifecycle controller.
    pub(crate) const fn node_lifecycle(&self) -> node_lifecycle::Settings {
        node_lifecycle::Settings {
            period: self.node_monitor_period,
            taints_out_of_service: self.taint_stopped_nodes_out_of_service,
        }
    }
}
