//! `pileus verify`: says by what a component in a registry is trusted, or why it isn't.

use std::io::Write as _;

use jiff::Timestamp;
use serde_json::json;

use crate::error::Error;
use crate::sources::{Artifact, trust_json, trust_text};
use crate::{cli, terminal};

/// Prints the pinned reference of a component that is trusted.
///
/// # Errors
/// [`Error::Source`].
pub(crate) async fn run(arguments: cli::Verify) -> Result<(), Error> {
    let cli::Verify { reference, json, source } = arguments;
    let artifact = Artifact::new(reference.parse()?, &source)?;
    let Artifact { reference, registries, policy } = &artifact;
    let (digest, trust) = registries.verify(reference, policy, Timestamp::now()).await?;
    let pinned = artifact.pinned(digest);
    let text = if json {
        terminal::json(&json!({
            "reference": pinned,
            "digest": digest.to_string(),
            "trust": trust_json(&trust),
        }))
    } else {
        format!("{pinned}\n{}\n", trust_text(&trust))
    };
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
