//! Arguments of `pileus release-deletion`.

use std::path::PathBuf;

use clap::Args;

use super::EXIT_CODES;

const RELEASE: &str = "\
When more than a quarter of a provider's Nodes, and at least 4, lose their instances within 10 minutes, pileus deletes
none of them, because that is more likely an error of the cloud. It holds these Nodes: they get the condition
pileus.dev/MachineAbsent and an event. A hold ends by itself once the instance is found again. Use this command for Nodes
whose instances are gone for good: it sets the annotation pileus.dev/release-deletion to the Node's UID. Pileus then asks
the cloud once more about each, and deletes the Node if its instance is confirmed to be absent.

Examples:
  kubectl get nodes -o custom-columns='NAME:.metadata.name,HELD:.status.conditions[?(@.type==\"pileus.dev/MachineAbsent\")].status'
  pileus release-deletion node-7 node-8
  pileus release-deletion --all";

/// Arguments of `pileus release-deletion`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{RELEASE}\n\n{EXIT_CODES}"))]
pub struct ReleaseDeletion {
    /// Release these Nodes; none is released if one of them is not held
    #[arg(value_name = "NODE", required_unless_present = "all")]
    pub nodes: Vec<String>,

    /// Release all Nodes that are held now
    #[arg(long, conflicts_with = "nodes")]
    pub all: bool,

    /// Reach the API server with this kubeconfig [default: the files in KUBECONFIG, else the Pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}
