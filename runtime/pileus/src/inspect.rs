//! `pileus inspect`: shows what a component is, before it is trusted with a cluster.
//!
//! `binary` reads the component's bytes, and `artifact` has what a registry says about it; the host and the provider itself
//! supply the rest. `text`, with the table of `rules`, and `json` print the same [`Inspection`].

mod artifact;
mod binary;
mod json;
mod rules;
mod text;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use pileus_host::{Capability, CodeOrigin, Description, Engine, Limits, Settings};
use pileus_loader::{Source, Verified};
use prometheus_client::registry::Registry;

use crate::access_review::{AccessReview, RequestedHost};
use crate::cli;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::folders::compiled_code;
use crate::provider::{compile, compiler, gate_config};
use crate::secrets::Secrets;
use crate::sources::{Artifact, read_file, source, trust_policy};
use crate::terminal;
use artifact::InspectedArtifact;
use binary::Binary;

/// All that is known about a component.
struct Inspection {
    /// The file, or the reference.
    source: String,
    /// What a registry has of it; none for a file.
    artifact: Option<InspectedArtifact>,
    digest: String,
    /// In bytes.
    size: usize,
    /// Where its native code came from, and how long that took.
    code: (CodeSource, Duration),
    /// The version of the contract that it implements.
    contract: String,
    exports: Vec<String>,
    imports: Vec<String>,
    capabilities: Vec<Capability>,
    binary: Binary,
    limits: Limits,
    description: Description,
    /// The facts of the document that it may read, by name.
    identity: BTreeMap<String, String>,
    /// The result of its configuration; none if it needs a document first.
    settings: Option<Settings>,
    /// What the document grants; none without a document.
    access: Option<AccessReview>,
}

#[derive(Clone, Copy)]
enum CodeSource {
    Compiler,
    Cache,
}

/// Prints an inspection.
pub(crate) async fn run(arguments: cli::Inspect) -> Result<(), Error> {
    let cli::Inspect { component, provider, flags, compiled } = arguments;
    let cli::ComponentFlags { json, source: flags, store } = flags;
    let source = source(&component)?;
    let name = match &source {
        Source::File(path) => path.display().to_string(),
        Source::Registry(reference) => reference.to_string(),
    };
    let read_document = |path| CloudProvider::read(path, &Secrets::default());
    let document = provider.as_deref().map(read_document).transpose()?;
    let failed = |source| Error::Provider { provider: name.clone(), source };
    let limits = document.as_ref().map_or_else(Limits::default, |document| document.call_limits.clone());
    let identity = document.as_ref().map_or_else(BTreeMap::new, |document| document.identity.clone());
    let metrics = pileus_host::Metrics::register(&mut Registry::default());
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let (verified, artifact) = read(source, &flags, store).await?;
    let binary = Binary::read(verified.bytes());
    let component = compile(&engine, verified).await.map_err(failed)?;
    let description = component.describe(&limits, &metrics).await.map_err(failed)?;
    let configuration = document.as_ref().map_or("{}", |document| document.configuration.as_str());
    let settings = match (component.configure(configuration, &limits, &metrics).await, &document) {
        (Ok(settings), _) => Some(settings),
        // Without a document, a rejected configuration is not the operator's error.
        (Err(pileus_host::Error::Configuration(_)), None) => None,
        (Err(error), _) => return Err(failed(error)),
    };
    let description = match &settings {
        Some(settings) => description.with_settings(settings),
        None => description,
    };
    let access = match (document, &settings) {
        (Some(document), Some(settings)) => Some(review(&document, settings, &name)?),
        _ => None,
    };
    let inspection = Inspection {
        source: name.clone(),
        artifact,
        digest: component.digest.to_string(),
        size: component.size,
        code: match component.code_origin {
            CodeOrigin::Compiled(took) => (CodeSource::Compiler, took),
            CodeOrigin::Cached(took) => (CodeSource::Cache, took),
        },
        contract: component.contract,
        exports: component.exports,
        imports: component.imports,
        capabilities: component.capabilities,
        binary,
        limits,
        description,
        identity,
        access,
        settings,
    };
    let text = if json { terminal::json(&json::object(&inspection)) } else { text::report(&inspection) };
    // A reader that closes the pipe early (`pileus inspect … | head -1`) isn't an error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Reads a component, and what its registry has of it.
async fn read(
    source: Source,
    flags: &cli::SourceFlags,
    store: cli::StoreFolder,
) -> Result<(Verified, Option<InspectedArtifact>), Error> {
    let reference = match source {
        Source::File(path) => return Ok((read_file(&path, &trust_policy(flags)?).await?, None)),
        Source::Registry(reference) => reference,
    };
    let artifact = Artifact::new(reference, flags)?;
    let verified = artifact.fetch(store).await?;
    // Of the very artifact that was fetched, although a tag may have moved in between.
    let pinned = artifact.reference.pinned(verified.digest());
    let details = artifact.registries.details(&pinned, &artifact.policy, Timestamp::now()).await?;
    let inspected = InspectedArtifact {
        reference: pinned.to_string(),
        tag: artifact.reference.tag.clone(),
        has_keys: !flags.key.is_empty(),
        details,
    };
    Ok((verified, Some(inspected)))
}

/// Reviews settings with a document.
///
/// # Errors
/// [`Error::Gate`] if a run would reject them.
fn review(document: &CloudProvider, settings: &Settings, component: &str) -> Result<AccessReview, Error> {
    let access = AccessReview::new(settings, document);
    let invalid_gate = |source| Error::Gate { provider: component.to_owned(), source: Box::new(source) };
    gate_config(document, settings).check().map_err(invalid_gate)?;
    Ok(access)
}

/// The controllers of this host that use a capability.
fn controllers(capability: Capability) -> &'static [&'static str] {
    match capability {
        Capability::Instances => &["cloud-node", "cloud-node-lifecycle"],
        Capability::LoadBalancers => &["service-lb"],
        Capability::Routes => &["node-route"],
        Capability::LocalInstance => &["node-manager"],
    }
}

/// What an import provides; none for one that is linked only because toolchains import it. An import that the host
/// doesn't offer fails the load, with its name.
fn provides(import: &str) -> Option<&'static str> {
    let rest = import.strip_prefix("wasi:").or(import.strip_prefix("pileus:provider/"));
    let name = rest.unwrap_or(import).split(['/', '@']).next().unwrap_or_default();
    match name {
        "http" => Some("requests to granted hosts, through the gate"),
        "clocks" => Some("the time"),
        "random" => Some("random numbers"),
        "io" => Some("streams and polling"),
        "cli" if ["stdout@", "stderr@"].iter().any(|name| import.contains(name)) => Some("the log"),
        "logging" => Some("the log"),
        "call" => Some("its configuration, its deadline and the facts of spec.identity"),
        "types" => Some("the contract's types"),
        _ => None,
    }
}

impl Inspection {
    /// What the document says about a requested host; none without a document.
    fn access_to(&self, requested: &pileus_host::RequestedEndpoint) -> Option<&RequestedHost> {
        self.access.as_ref()?.hosts.iter().find(|host| host.endpoint == requested.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_files_and_sockets_provide_nothing() {
        for (import, provides_something) in [
            ("wasi:http/outgoing-handler@0.2.12", true),
            ("wasi:cli/stdout@0.2.12", true),
            ("wasi:cli/stdin@0.2.12", false),
            ("wasi:cli/environment@0.2.12", false),
            ("wasi:filesystem/preopens@0.2.12", false),
            ("wasi:sockets/tcp@0.2.12", false),
            ("pileus:provider/logging@0.2.0", true),
        ] {
            assert_eq!(provides(import).is_some(), provides_something, "{import}");
        }
    }
}
