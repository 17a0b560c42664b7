//! `pileus inspect`: what a component is, before anybody trusts it with a cluster.
//!
//! `binary` is what its bytes tell, the host and the provider itself tell the rest; `text` shows it to people, with the
//! table of `rules`, `json` to machines, both from one [`Inspection`].

mod binary;
mod json;
mod rules;
mod text;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use pileus_host::{Capability, CodeOrigin, Component, Description, Engine, Limits, Settings};
use prometheus_client::registry::Registry;

use crate::comparison::Comparison;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::provider::{compiled_code, compiler, gate_config};
use crate::secrets::Secrets;
use crate::terminal;
use crate::{cli, comparison};
use binary::Binary;

/// All that can be told of a component.
struct Inspection {
    file: String,
    digest: String,
    /// In bytes.
    size: usize,
    /// Where its native code came from.
    code: (CodeSource, Duration),
    /// The version of the contract that it speaks.
    contract: String,
    exports: Vec<String>,
    imports: Vec<String>,
    capabilities: Vec<Capability>,
    binary: Binary,
    limits: Limits,
    description: Description,
    /// What follows from its configuration; none where that has to be given first.
    settings: Option<Settings>,
    /// What of it the document gives; none without a document.
    comparison: Option<Comparison>,
}

#[derive(Clone, Copy)]
enum CodeSource {
    Compiler,
    Cache,
}

/// Prints what a component is.
pub(crate) async fn run(arguments: cli::Inspect) -> Result<(), Error> {
    let cli::Inspect { component: path, provider, json, compiled } = arguments;
    let read = |path| CloudProvider::read(path, &Secrets::default());
    let document = provider.as_deref().map(read).transpose()?;
    let failed = |source| Error::Provider { provider: path.display().to_string(), source };
    let limits = Limits::default();
    let metrics = pileus_host::Metrics::register(&mut Registry::default());
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let bytes = pileus_host::read_component(&path).await.map_err(failed)?;
    let binary = Binary::read(&bytes);
    let component = Component::load(&engine, bytes).await.map_err(failed)?;
    let description = component.describe(&limits, &metrics).await.map_err(failed)?;
    let configuration = document.as_ref().map_or("{}", |document| document.configuration.as_str());
    let settings = match (component.configure(configuration, &limits, &metrics).await, &document) {
        (Ok(settings), _) => Some(settings),
        // Without a document there is nothing that the operator could have got wrong.
        (Err(pileus_host::Error::Configuration(_)), None) => None,
        (Err(error), _) => return Err(failed(error)),
    };
    let description = match &settings {
        Some(settings) => description.with_one_at_a_time(&settings.one_at_a_time),
        None => description,
    };
    let comparison = match (document, &settings) {
        (Some(document), Some(settings)) => Some(compare(document, settings, &path)?),
        _ => None,
    };
    let inspection = Inspection {
        file: path.display().to_string(),
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
        comparison,
        settings,
    };
    let text = if json { terminal::json(&json::object(&inspection)) } else { text::report(&inspection) };
    // A reader that has gone away (`pileus inspect … | head -1`) is no failure.
    let _gone = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Holds settings against a document, and refuses what a run would refuse.
fn compare(document: CloudProvider, settings: &Settings, component: &Path) -> Result<Comparison, Error> {
    let comparison = Comparison::new(settings, &document);
    let no_gate =
        |source| Error::Gate { provider: component.display().to_string(), source: Box::new(source) };
    gate_config(document, settings.clone()).check().map_err(no_gate)?;
    Ok(comparison)
}

/// The controllers of this host that use a capability.
fn controllers(capability: Capability) -> &'static [&'static str] {
    match capability {
        Capability::Instances => &["cloud-node", "cloud-node-lifecycle"],
        Capability::LoadBalancers => &["service-lb"],
        Capability::Routes => &["node-route"],
        Capability::LocalInstance => &[],
    }
}

/// What an import really gives a provider; none for what is linked only because toolchains import it. An import that
/// the host doesn't offer ends the load, with its name.
fn gives(import: &str) -> Option<&'static str> {
    let rest = import.strip_prefix("wasi:").or(import.strip_prefix("pileus:provider/"));
    let name = rest.unwrap_or(import).split(['/', '@']).next().unwrap_or_default();
    match name {
        "http" => Some("requests to what is granted, through the gate"),
        "clocks" => Some("the time"),
        "random" => Some("random numbers"),
        "io" => Some("streams, and waiting for several things at once"),
        "cli" if ["stdout@", "stderr@"].iter().any(|name| import.contains(name)) => Some("the log"),
        "logging" => Some("the log"),
        "call" => Some("its configuration and its deadline"),
        "types" => Some("the contract's types"),
        _ => None,
    }
}

impl Inspection {
    /// What the document gives of a wish; none without a document.
    fn given(&self, wish: &pileus_host::RequestedEndpoint) -> Option<&comparison::Wish> {
        self.comparison.as_ref()?.wishes.iter().find(|given| given.endpoint == wish.endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_gives_what_it_says_and_files_and_sockets_give_nothing() {
        for (import, something) in [
            ("wasi:http/outgoing-handler@0.2.12", true),
            ("wasi:cli/stdout@0.2.12", true),
            ("wasi:cli/stdin@0.2.12", false),
            ("wasi:cli/environment@0.2.12", false),
            ("wasi:filesystem/preopens@0.2.12", false),
            ("wasi:sockets/tcp@0.2.12", false),
            ("pileus:provider/logging@0.1.0", true),
        ] {
            assert_eq!(gives(import).is_some(), something, "{import}");
        }
    }
}
