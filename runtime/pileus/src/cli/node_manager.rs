//! Arguments of `pileus node-manager`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pileus_controllers::node;

use super::duration::period;
use super::{Compiled, EXIT_CODES, LogFormat, StoreFolder};

const NODE_MANAGER: &str = "\
A node manager runs on each Node and initializes that Node from the machine's own metadata service, so that the cloud's API
gets no request. The central process leaves this out: start `pileus run` with --controllers=*,-cloud-node.

Of the document's grants and credentials only those of the kind `metadata` and for their hosts apply, unless
--fallback-instances is passed.";

/// Arguments of `pileus node-manager`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{NODE_MANAGER}\n\n{EXIT_CODES}"))]
pub struct NodeManager {
    /// Read the CloudProvider document from this file, and follow its changes
    #[arg(long, value_name = "FILE.yaml")]
    pub provider: PathBuf,

    /// Manage the Node of this name [default: the host name in lower case]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: Option<String>,

    /// Reach the API server with this kubeconfig [default: the files in KUBECONFIG, else the Pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Compare the Node with the machine this often; changes that others make to the Node are corrected within seconds
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "5m")]
    pub node_status_update_frequency: Duration,

    /// Keep the taint node.cloudprovider.kubernetes.io/uninitialized until the route controller reports the Node's routes
    #[arg(long, alias = "wait-for-routes")]
    pub wait_routes: bool,

    /// Ask the cloud's API where the metadata service doesn't answer
    #[arg(long)]
    pub fallback_instances: bool,

    /// Serve /livez, /readyz and /metrics here, over plain HTTP; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:10268")]
    pub admin_address: SocketAddr,

    /// Write the log in this format
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log these entries: a level, or levels of modules, as in `info,pileus_gate=debug,provider=trace`
    #[arg(long, value_name = "FILTER", default_value = "info", env = "PILEUS_LOG")]
    pub log_filter: String,

    /// The cache of compiled code.
    #[command(flatten)]
    pub compiled: Compiled,

    /// The folder of fetched components.
    #[command(flatten)]
    pub stored: StoreFolder,
}

impl NodeManager {
    /// The settings of the node controller.
    pub(crate) const fn node(&self) -> node::Settings {
        node::Settings {
            refresh_period: self.node_status_update_frequency,
            waits_for_routes: self.wait_routes,
            is_node_manager: true,
        }
    }
}
