//! Arguments of `pileus warm`.

use clap::Args;

use super::{Compiled, ComponentFlags, EXIT_CODES};

const WARM: &str = "\
Warm fetches, verifies and compiles a component, so that a start of Pileus with the same folders finds both. It is meant for
an init container that shares a volume with the container of Pileus. If the registry doesn't answer, what the reference led
to at last is taken from the store, and verified again.

Example:
  pileus warm ghcr.io/example/provider:1.2 --key /etc/pileus/cosign.pub \\
      --store /var/lib/pileus/store --compiled-code /var/lib/pileus/compiled";

/// Arguments of `pileus warm`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{WARM}\n\n{EXIT_CODES}"))]
pub struct Warm {
    /// Fetch, verify and compile the component that this reference names, as in ghcr.io/example/provider:1.2
    #[arg(value_name = "REF")]
    pub reference: String,

    /// How to read it, and how to show the result.
    #[command(flatten)]
    pub flags: ComponentFlags,

    /// The cache of compiled code.
    #[command(flatten)]
    pub compiled: Compiled,
}
