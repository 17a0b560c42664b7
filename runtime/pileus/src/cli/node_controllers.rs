//! The flags of the controllers for Nodes: upstream's names, and defaults that its lists allow.

use std::time::Duration;

use clap::Args;
use pileus_controllers::{node, node_lifecycle};

use super::duration::period;

/// Flags of the controllers for Nodes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Nodes")]
pub struct NodeControllers {
    /// How often all initialised nodes are compared with their machines, together; what somebody else changes on a node
    /// is put right within seconds
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "30m")]
    pub node_status_update_frequency: Duration,

    /// How often the machines of all nodes that are not ready are looked up, together
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "10s")]
    pub node_monitor_period: Duration,

    /// Also give a node whose machine is confirmed to be stopped the taint node.kubernetes.io/out-of-service: its Pods
    /// are removed by force and their volumes detached, so that they can start elsewhere. It goes when the machine runs
    #[arg(long)]
    pub taint_stopped_nodes_out_of_service: bool,
}

impl NodeControllers {
    /// For the node controller.
    pub(crate) const fn node(&self, waits_for_routes: bool) -> node::Settings {
        node::Settings { refresh_period: self.node_status_update_frequency, waits_for_routes }
    }

    /// For the lifecycle controller.
    pub(crate) const fn node_lifecycle(&self) -> node_lifecycle::Settings {
        node_lifecycle::Settings {
            period: self.node_monitor_period,
            taints_out_of_service: self.taint_stopped_nodes_out_of_service,
        }
    }
}
