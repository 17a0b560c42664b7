//! Arguments of `pileus inspect`.

use std::path::PathBuf;

use clap::Args;

use super::{Compiled, EXIT_CODES};

const EXAMPLES: &str = "\
Examples:
  Show what a component is:
    pileus inspect provider.wasm
  Show what it requests with a configuration, and what the document grants:
    pileus inspect provider.wasm --provider provider.yaml";

/// Arguments of `pileus inspect`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Inspect {
    /// Inspect this component
    #[arg(value_name = "FILE.wasm")]
    pub component: PathBuf,

    /// Configure it with this CloudProvider document: show the hosts that it requests, the grants and credentials that it
    /// gets, and the limits
    #[arg(long, value_name = "FILE.yaml")]
    pub provider: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// The cache of compiled code.
    #[command(flatten)]
    pub compiled: Compiled,
}
