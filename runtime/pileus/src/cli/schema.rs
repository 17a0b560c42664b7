//! The command line of `pileus schema`.

use clap::Args;

/// Arguments of `pileus schema`.
#[derive(Debug, Args)]
pub struct Schema {
    /// Print the JSON schema of the file of --provider instead, for editors
    #[arg(long)]
    pub file: bool,
}
