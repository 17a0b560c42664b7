//! Arguments of the commands that read components from registries: how to reach a registry, what makes a component trusted,
//! and where it is stored.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pileus_loader::Digest;

/// How to reach a registry.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Registry")]
pub struct RegistryFlags {
    /// Reach the registry and its mirrors without TLS; a registry on loopback needs no flag
    #[arg(long, conflicts_with = "ca_bundle")]
    pub plain_http: bool,

    /// Trust the certificates in this PEM file besides the system's, and use TLS on loopback, too
    #[arg(long, value_name = "FILE")]
    pub ca_bundle: Option<PathBuf>,

    /// Take credentials from this Docker configuration, credential helpers included [default: config.json in the folder of
    /// DOCKER_CONFIG, else ~/.docker/config.json, if there is one]
    #[arg(long, value_name = "FILE")]
    pub docker_config: Option<PathBuf>,
}

/// Where to read a component, and what makes it trusted.
#[derive(Debug, Clone, Default, Args)]
pub struct SourceFlags {
    /// How to reach the registry.
    #[command(flatten)]
    pub registry: RegistryFlags,

    /// Ask this registry first, as in mirror.corp or mirror.corp:5000/ghcr with a prefix for repositories. May be repeated.
    /// What it serves is verified like everything else
    #[arg(long, value_name = "HOST[:PORT][/PREFIX]", help_heading = "Registry")]
    pub mirror: Vec<String>,

    /// Trust what this public key of cosign has signed. May be repeated; NAME is for messages [default: the file's name]
    #[arg(long, value_name = "[NAME=]FILE", help_heading = "Trust")]
    pub key: Vec<String>,

    /// Require signatures by this many of the keys
    #[arg(long, value_name = "N", default_value_t = 1, requires = "key", help_heading = "Trust")]
    pub threshold: usize,

    /// Trust only the artifact with this digest, as in sha256:…; a reference with a digest needs no flag
    #[arg(long, value_name = "DIGEST", value_parser = digest, help_heading = "Trust")]
    pub digest: Option<Digest>,

    /// Accept any component, without a signature or a digest
    #[arg(long, conflicts_with_all = ["key", "digest"], help_heading = "Trust")]
    pub insecure: bool,

    /// Count only signatures that are stored like this [default: both]
    #[arg(long, value_enum, value_name = "LAYOUT", requires = "key", help_heading = "Trust")]
    pub signature_layout: Option<SignatureLayout>,
}

/// How cosign stores a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SignatureLayout {
    /// A bundle that refers to the artifact, as cosign 3 stores it
    Bundle,
    /// A tag sha256-….sig, as cosign 2 stores it. Only these signatures name their repository
    Tag,
}

/// What the commands have in common that read a component from a registry by way of the store.
#[derive(Debug, Args)]
pub struct ComponentFlags {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Where to read it, and what makes it trusted.
    #[command(flatten)]
    pub source: SourceFlags,

    /// The store of components.
    #[command(flatten)]
    pub store: StoreFolder,
}

/// The store of components.
#[derive(Debug, Clone, Default, Args)]
pub struct StoreFolder {
    /// Store components in this folder, which only this user may write [default: pileus/store in the user's cache folder]
    #[arg(long, value_name = "FOLDER", env = "PILEUS_STORE")]
    pub store: Option<PathBuf>,
}

fn digest(text: &str) -> Result<Digest, &'static str> {
    text.parse()
}
