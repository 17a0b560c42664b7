//! Arguments of the operator's commands: `pileus status`, `swap`, `rollback`, `pause` and `resume`.

use std::path::PathBuf;

use clap::Args;

use super::EXIT_CODES;

const SWAP: &str = "\
Pileus looks at once for what the CloudProvider follows, and swaps without its time window, its canary and a pause. A
release that is held because of differences in its dry run is accepted. What turns out to be worse than the release before
is still rolled back.

Example:
  pileus swap hetzner";

const ROLLBACK: &str = "\
A canary ends, or the release before becomes active again. What is left is rejected: it does not run until the spec of the
CloudProvider changes.

Example:
  pileus rollback hetzner";

/// How the API server is reached, by the rules of kubectl.
#[derive(Debug, Args)]
pub struct Access {
    /// Use this kubeconfig [default: the files in KUBECONFIG, else ~/.kube/config, else the Pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Use this context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Arguments of an order.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Order {
    /// The CloudProvider; needed where there are several
    #[arg(value_name = "PROVIDER")]
    pub provider: Option<String>,

    /// The cluster.
    #[command(flatten)]
    pub access: Access,
}

/// Arguments of `pileus swap`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{SWAP}\n\n{EXIT_CODES}"))]
pub struct Swap {
    /// The order.
    #[command(flatten)]
    pub order: Order,
}

/// Arguments of `pileus rollback`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{ROLLBACK}\n\n{EXIT_CODES}"))]
pub struct Rollback {
    /// The order.
    #[command(flatten)]
    pub order: Order,
}

/// Arguments of `pileus status`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Status {
    /// Show only this CloudProvider
    #[arg(value_name = "PROVIDER")]
    pub provider: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// The Lease that names the leader
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager")]
    pub leader_elect_resource_name: String,

    /// The namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,

    /// The cluster.
    #[command(flatten)]
    pub access: Access,
}
