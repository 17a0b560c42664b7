//! Arguments of `pileus push`.

use std::path::PathBuf;

use clap::Args;

use super::{Compiled, EXIT_CODES, RegistryFlags};

const PUSH: &str = "\
Push loads the component and lets it describe itself before anything is sent: what isn't a provider is refused. The artifact
has the CNCF's format for WebAssembly, which wkg and oras read, too. Equal components get equal digests, whenever they are
pushed. Users pin the digest that is printed; `cosign sign --key` signs it.

Examples:
  Push a component, and sign it:
    pileus push provider.wasm ghcr.io/example/provider:1.2
    cosign sign --key cosign.key ghcr.io/example/provider@sha256:…
  Push to a registry on this machine, which needs neither TLS nor a login:
    pileus push provider.wasm localhost:5000/provider:dev";

/// Arguments of `pileus push`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{PUSH}\n\n{EXIT_CODES}"))]
pub struct Push {
    /// Push this component
    #[arg(value_name = "FILE.wasm")]
    pub component: PathBuf,

    /// Push it to this repository under this tag, as in ghcr.io/example/provider:1.2
    #[arg(value_name = "REF")]
    pub reference: String,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// How to reach the registry.
    #[command(flatten)]
    pub registry: RegistryFlags,

    /// The cache of compiled code.
    #[command(flatten)]
    pub compiled: Compiled,
}
