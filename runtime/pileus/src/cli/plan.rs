//! Arguments of `pileus plan`: those of `pileus run` that affect what the controllers want of the cloud, under the same
//! names.

use std::path::PathBuf;

use clap::Args;
use pileus_cloud::Cluster;

use super::{Compiled, ControllerSelection, EXIT_CODES, RouteController, StoreFolder};

const PLAN: &str = "\
Plan reads Nodes and Services from the API server and resources from the cloud, and lets the provider make the changes that
are due. The gate refuses and records each request that may change something instead of sending it. Nothing is written to
the API server either, so plan can run beside a running Pileus, also with another provider or version.

PUT, PATCH and DELETE are never sent. Whether a POST changes something only the provider's own rules say, so try third-party
components with read-only credentials. The output contains no credential of the document; the bodies of -v contain what the
provider derives from your configuration and your Services.

Examples:
  Preview what Pileus would change now:
    pileus plan --provider provider.yaml --cluster-cidr 10.244.0.0/16
  Preview the next version of a provider, named by another document; a settled cluster should have no changes pending:
    pileus plan --provider next.yaml --cluster-cidr 10.244.0.0/16 -v
  Continue a script only if no changes are pending:
    pileus plan --provider next.yaml --cluster-cidr 10.244.0.0/16 --json >plan.json || exit";

/// Arguments of `pileus plan`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{PLAN}\n\n{EXIT_CODES}"))]
pub struct Plan {
    /// Read the CloudProvider document, as for `pileus run`
    #[arg(long, value_name = "FILE.yaml")]
    pub provider: PathBuf,

    /// Reach the API server with this kubeconfig [default: the files in KUBECONFIG, else the Pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Name the cluster, as for `pileus run`
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub cluster_name: String,

    /// Which controllers run.
    #[command(flatten)]
    pub controllers: ControllerSelection,

    /// Settings of the route controller.
    #[command(flatten)]
    pub route_controller: RouteController,

    /// Include the bodies of the recorded requests
    #[arg(long, short)]
    pub verbose: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Log these entries to standard error, as in `provider=debug` for the provider's own log
    #[arg(long, value_name = "FILTER", default_value = "off", env = "PILEUS_LOG")]
    pub log_filter: String,

    /// The cache of compiled code.
    #[command(flatten)]
    pub compiled: Compiled,

    /// The folder of fetched components.
    #[command(flatten)]
    pub stored: StoreFolder,
}

impl Plan {
    /// The cluster as the command line names it. Its UID comes from the API server.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { name: self.cluster_name.clone(), uid: None }
    }
}
