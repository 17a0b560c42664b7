//! Arguments of `pileus provider document`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::{Compiled, EXIT_CODES, SourceFlags, StoreFolder};

const PROVIDER_DOCUMENT: &str = "\
The document has what the provider asks for with this configuration: grants with its reasons, the limits of its cloud, and
credentials that refer to Secrets which you create. Nothing is granted before you apply it, so review it first. What the
provider has to say about the configuration goes to standard error.

Example, for the configuration file of another cloud-controller-manager:
  pileus provider document ghcr.io/example/provider:1.2 --key cosign.pub --configuration cloud.json > provider.yaml
  kubectl apply -f provider.yaml";

/// Arguments of `pileus provider document`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{PROVIDER_DOCUMENT}\n\n{EXIT_CODES}"))]
pub struct ProviderDocument {
    /// Draft the document of this component: a file, or a reference as in ghcr.io/example/provider:1.2. `file:` or `oci://`
    /// before it decides where both could be meant
    #[arg(value_name = "FILE.wasm|REF", value_hint = ValueHint::FilePath)]
    pub component: OsString,

    /// Configure the provider with this file of JSON or YAML, or with JSON text that starts with { [default: {}]
    #[arg(long, value_name = "FILE|JSON")]
    pub configuration: Option<String>,

    /// Name the provider in the document [default: the component's own name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Where to read it, and what makes it trusted.
    #[command(flatten)]
    pub source: SourceFlags,

    /// The store of components.
    #[command(flatten)]
    pub store: StoreFolder,

    /// The cache of compiled code.
    #[command(flatten)]
    pub compiled: Compiled,
}
