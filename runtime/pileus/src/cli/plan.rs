//! Arguments of `pileus plan`: those of `pileus run` that decide what is wanted of the cloud, so that a command line of the
//! one can be made of the other's.

use std::path::PathBuf;

use clap::Args;
use pileus_cloud::Cluster;

use super::{Compiled, EXIT_CODES, RouteController};

const PLAN: &str = "\
It reads Nodes and Services from the API server, and what the cloud has, and lets the provider do what is due; but each
request of the provider that may change something is answered here and written down instead of being sent. Nothing is
written to the API server either, so it can run beside the Pileus that works, and with another provider or version than
that one.

No PUT, PATCH or DELETE is ever sent. Whether a POST changes something only the provider's own rules tell, so try a
component that you don't trust yet with credentials that may only read. No credential of the document is in what is shown,
but the bodies of -v hold what the provider makes of your configuration and your Services.

What would Pileus change now?
  pileus plan --provider provider.yaml --cluster-cidr 10.244.0.0/16

What would the next version change? Its document names the new component; a settled cluster should see no difference:
  pileus plan --provider next.yaml --cluster-cidr 10.244.0.0/16 -v

Before a rollout, in a script: go on only where there is nothing to do.
  pileus plan --provider next.yaml --cluster-cidr 10.244.0.0/16 --json >plan.json || exit";

/// Arguments of `pileus plan`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{PLAN}\n\n{EXIT_CODES}"))]
pub struct Plan {
    /// The CloudProvider document, as of `pileus run`
    #[arg(long, value_name = "FILE.yaml")]
    pub provider: PathBuf,

    /// How to reach the API server; without it the files in KUBECONFIG, else the service account of the Pod that this
    /// runs in
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The cluster's name, which a provider may write on what it creates
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub cluster_name: String,

    /// Which routes there should be.
    #[command(flatten)]
    pub route_controller: RouteController,

    /// Show the bodies of what would be sent
    #[arg(long, short)]
    pub verbose: bool,

    /// Write one JSON object, for machines
    #[arg(long)]
    pub json: bool,

    /// Which lines to log to standard error, as in `provider=debug` for what the provider itself says
    #[arg(long, value_name = "FILTER", default_value = "off", env = "PILEUS_LOG")]
    pub log_filter: String,

    /// Where compiled code is kept.
    #[command(flatten)]
    pub compiled: Compiled,
}

impl Plan {
    /// The cluster as the command line names it. Its UID is the API server's to tell.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { name: self.cluster_name.clone(), uid: None }
    }
}
