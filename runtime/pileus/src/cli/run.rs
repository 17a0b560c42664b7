//! Arguments of `pileus run`.

use std::path::PathBuf;

use clap::Args;
use pileus_cloud::Cluster;

use super::{
    AdminServer, Compiled, ControllerSelection, EXIT_CODES, LeaderElection, LogFormat, NodeControllers,
    RouteController, ServiceController, StoreFolder,
};

const EXAMPLES: &str = "\
Examples:
  In a Pod, with the service account of the Pod:
    pileus run --provider /etc/pileus/provider.yaml --cluster-cidr 10.244.0.0/16
  On a workstation, as the only replica:
    pileus run --provider provider.yaml --kubeconfig ~/.kube/config --leader-elect=false
  See `pileus plan` for what it would change, and `pileus inspect` for what the component may reach.";

/// Arguments of `pileus run`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Run {
    /// Read the CloudProvider document from this file, and follow its changes: the component with its configuration, grants,
    /// limits and credentials [default: the CloudProvider resources of the cluster]
    #[arg(long, value_name = "FILE.yaml")]
    pub provider: Option<PathBuf>,

    /// Let CloudProvider resources name files in this folder; without it they name Secrets only
    #[arg(long, value_name = "FOLDER", conflicts_with = "provider")]
    pub provider_files: Option<PathBuf>,

    /// Let CloudProvider resources use the identity of this node, and reach its metadata service, loopback and link
    #[arg(long, conflicts_with = "provider")]
    pub provider_node_access: bool,

    /// Reach the API server with this kubeconfig [default: the files in KUBECONFIG, else the Pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Name the cluster; a provider may write the name on what it creates
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub cluster_name: String,

    /// Where the admin server listens.
    #[command(flatten)]
    pub admin_server: AdminServer,

    /// Write the log in this format
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log these entries: a level, or levels of modules, as in `info,pileus_gate=debug,provider=trace`. The Kubernetes
    /// client (kube_client, kube_runtime) is off unless it is named, because Pileus logs the result of each request itself
    #[arg(long, value_name = "FILTER", default_value = "info", env = "PILEUS_LOG")]
    pub log_filter: String,

    /// The cache of compiled code.
    #[command(flatten)]
    pub compiled: Compiled,

    /// The folder of fetched components.
    #[command(flatten)]
    pub stored: StoreFolder,

    /// Which of several replicas leads.
    #[command(flatten)]
    pub leader_election: LeaderElection,

    /// Which controllers run.
    #[command(flatten)]
    pub controllers: ControllerSelection,

    /// Settings of the controllers for Nodes.
    #[command(flatten)]
    pub node_controllers: NodeControllers,

    /// Settings of the route controller.
    #[command(flatten)]
    pub route_controller: RouteController,

    /// Settings of the service controller.
    #[command(flatten)]
    pub service_controller: ServiceController,
}

impl Run {
    /// The cluster as the command line names it. Its UID comes from the API server.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { name: self.cluster_name.clone(), uid: None }
    }
}
