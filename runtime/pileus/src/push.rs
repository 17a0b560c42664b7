//! `pileus push`: puts a provider into a registry, once it has shown that it is one.

use std::collections::BTreeMap;
use std::io::Write as _;

use pileus_host::{Component, Description, Engine, Limits};
use pileus_loader::{Package, Reference, TrustPolicy};
use prometheus_client::registry::Registry;
use serde_json::json;

use crate::error::Error;
use crate::folders::compiled_code;
use crate::provider::{compile, compiler};
use crate::sources::{read_file, registries, with_progress};
use crate::{cli, terminal};

/// Pushes a provider and prints its pinned reference.
///
/// # Errors
/// [`Error::Provider`] if it isn't a provider, [`Error::Source`].
pub(crate) async fn run(arguments: cli::Push) -> Result<(), Error> {
    let cli::Push { component: path, reference, json, registry, compiled } = arguments;
    let reference: Reference = reference.parse()?;
    Package::check_target(&reference)?;
    let registries = with_progress(registries(&registry, &[], &reference)?, "pushing the component");
    let failed = |source| Error::Provider { provider: path.display().to_string(), source };
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let verified = read_file(&path, &TrustPolicy::default()).await?;
    let bytes = verified.bytes().to_vec();
    let component = compile(&engine, verified).await.map_err(failed)?;
    let metrics = pileus_host::Metrics::register(&mut Registry::default());
    let description = component.describe(&Limits::default(), &metrics).await.map_err(failed)?;
    let package = Package {
        bytes: bytes.into(),
        annotations: annotations(&component, &description),
        imports: component.imports,
        exports: component.exports,
        // With a time, the same component would have another digest at each push.
        created: None,
    };
    let pushed = registries.push(&reference, &package).await;
    terminal::clear_progress();
    let digest = pushed?;
    let pinned = reference.pinned(digest).to_string();
    let text = if json {
        terminal::json(&json!({
            "reference": pinned,
            "digest": digest.to_string(),
            "sizeBytes": package.bytes.len(),
            "annotations": package.annotations,
        }))
    } else {
        format!("{pinned}\n")
    };
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// What registries show of a provider.
fn annotations(component: &Component, description: &Description) -> BTreeMap<String, String> {
    let Description { name, version, .. } = description;
    let capabilities: Vec<_> = component.capabilities.iter().map(|capability| capability.as_str()).collect();
    let about = format!(
        "Pileus provider {name}: {}; contract pileus:provider@{}",
        capabilities.join(", "),
        component.contract
    );
    [("title", name), ("version", version), ("description", &about)]
        .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value.clone()))
        .into()
}
