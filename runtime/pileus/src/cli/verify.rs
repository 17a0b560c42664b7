//! Arguments of `pileus verify`.

use clap::Args;

use super::{EXIT_CODES, SourceFlags};

const EXAMPLES: &str = "\
Examples:
  Verify that a key has signed a component:
    pileus verify ghcr.io/example/provider:1.2 --key cosign.pub
  Verify that two of three keys have:
    pileus verify ghcr.io/example/provider:1.2 --key a.pub --key b.pub --key c.pub --threshold 2";

/// Arguments of `pileus verify`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Verify {
    /// Verify the component that this reference names, as in ghcr.io/example/provider:1.2. Only its manifest and signatures
    /// are fetched
    #[arg(value_name = "REF")]
    pub reference: String,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Where to read it, and what makes it trusted.
    #[command(flatten)]
    pub source: SourceFlags,
}
