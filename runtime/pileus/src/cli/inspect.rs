//! Arguments of `pileus inspect`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{Compiled, ComponentFlags, EXIT_CODES};

const EXAMPLES: &str = "\
Examples:
  Show what a component is:
    pileus inspect provider.wasm
  The same for one in a registry, with its signatures and what else is attached to it:
    pileus inspect ghcr.io/example/provider:1.2 --key cosign.pub
  Show what it requests with a configuration, and what the document grants:
    pileus inspect provider.wasm --provider provider.yaml";

/// Arguments of `pileus inspect`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Inspect {
    /// Inspect this component: a file, or a reference as in ghcr.io/example/provider:1.2. `file:` or `oci://` before it
    /// decides where both could be meant
    #[arg(value_name = "FILE.wasm|REF", value_hint = ValueHint::FilePath)]
    pub component: OsString,

    /// Configure it with this CloudProvider document: show the hosts that it requests, the grants and credentials that it
    /// gets, and the limits
    #[arg(long, value_name = "FILE.yaml")]
    pub provider: Option<PathBuf>,

    /// How to read it, and how to show the result.
    #[command(flatten)]
    pub flags: ComponentFlags,

    /// The cache of compiled code.
    #[command(flatten)]
    pub compiled: Compiled,
}
