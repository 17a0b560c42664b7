//! Arguments of `pileus pull`.

use std::path::PathBuf;

use clap::Args;

use super::{ComponentFlags, EXIT_CODES};

const EXAMPLES: &str = "\
Examples:
  Fetch a component that a key has signed:
    pileus pull ghcr.io/example/provider:1.2 --key cosign.pub
  Fetch a component by its digest, into a file of this name:
    pileus pull ghcr.io/example/provider@sha256:… -o provider.wasm";

/// Arguments of `pileus pull`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Pull {
    /// Fetch the component that this reference names, as in ghcr.io/example/provider:1.2
    #[arg(value_name = "REF")]
    pub reference: String,

    /// Write it to this file, replacing one that is there [default: the last part of the repository's name, with .wasm]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// How to read it, and how to show the result.
    #[command(flatten)]
    pub flags: ComponentFlags,
}
