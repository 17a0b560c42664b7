//! `pileus provider document`: prints a complete CloudProvider document from what a component asks for with a configuration.
//! The program knows no cloud; what it prints is the component's own description, settings and hints. `draft` makes the
//! document, `credentials` its credentials, `yaml` writes it.

mod credentials;
mod draft;
mod yaml;

use std::io::Write as _;

use pileus_host::{Engine, Limits, sanitize};
use pileus_loader::{Source, Verified};
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};

use crate::access_review::AccessReview;
use crate::cli;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::folders::compiled_code;
use crate::provider::{compile, compiler, gate_config};
use crate::provider_test::configuration_text;
use crate::sources::{Artifact, key_text, read_file, source, trust_policy};
use draft::Draft;

/// Prints a document.
///
/// # Errors
/// [`Error::Source`], [`Error::Provider`] if the component can't be used or rejects the configuration, [`Error::NoDraft`] if what
/// it asks for makes no valid document.
pub(crate) async fn run(arguments: cli::ProviderDocument) -> Result<(), Error> {
    let cli::ProviderDocument { component, configuration, name, source: flags, store, compiled } = arguments;
    let given = configuration.as_deref().unwrap_or("{}");
    let configuration = configuration_text("configuration", given)?;
    let source = source(&component)?;
    let shown = component.to_string_lossy().into_owned();
    let failed = |source| Error::Provider { provider: shown.clone(), source };
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let (verified, source, trust) = read(source, &flags, store).await?;
    let component = compile(&engine, verified).await.map_err(failed)?;
    let (limits, metrics) = (Limits::default(), pileus_host::Metrics::register(&mut Registry::default()));
    let description = component.describe(&limits, &metrics).await.map_err(failed)?;
    let settings = component.configure(&configuration, &limits, &metrics).await.map_err(failed)?;
    let draft = Draft {
        name: name.as_deref().unwrap_or(&description.name),
        component: format!("{} {}", description.name, description.version),
        source,
        trust,
        configuration: serde_json::from_str(&configuration).unwrap_or_default(),
        settings: &settings,
    };
    let text = draft.text();
    let invalid = |problems| Error::NoDraft { provider: shown.clone(), problems };
    let document = CloudProvider::from_draft(&text).map_err(invalid)?;
    let invalid_gate = |source| Error::Gate { provider: shown.clone(), source: Box::new(source) };
    gate_config(&document, &settings).check().map_err(invalid_gate)?;
    for notice in &settings.notices {
        eprintln!("notice: {}", sanitize(&notice.to_string()));
    }
    for problem in AccessReview::new(&settings, &document).warnings {
        eprintln!("not followed: {}", sanitize(&problem.to_string()));
    }
    // A reader that closes the pipe early isn't an error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Reads a component. Returns it with the fields `source` and `trust` of its document.
async fn read(
    source: Source,
    flags: &cli::SourceFlags,
    store: cli::StoreFolder,
) -> Result<(Verified, Value, Option<Value>), Error> {
    let reference = match source {
        Source::File(path) => {
            let verified = read_file(&path, &trust_policy(flags)?).await?;
            let path = std::path::absolute(&path).unwrap_or(path);
            let trust = json!({"digest": verified.digest()});
            return Ok((verified, json!({"file": path.to_string_lossy()}), Some(trust)));
        }
        Source::Registry(reference) => reference,
    };
    let artifact = Artifact::new(reference, flags)?;
    let verified = artifact.fetch(store).await?;
    // Without keys, nothing but the digest says which component was reviewed.
    let image = if flags.key.is_empty() {
        artifact.pinned(verified.digest())
    } else {
        artifact.reference.to_string()
    };
    let mut source = Map::from_iter([("image".to_owned(), json!(image))]);
    source.extend(registry(flags, &artifact).map(|registry| ("registries".to_owned(), json!([registry]))));
    Ok((verified, Value::Object(source), trust(flags)?))
}

/// The field of the registry, where its flags say how to reach it.
fn registry(flags: &cli::SourceFlags, artifact: &Artifact) -> Option<Value> {
    let cli::RegistryFlags { plain_http, ca_bundle, docker_config: _ } = &flags.registry;
    let mut fields = Map::new();
    if *plain_http {
        fields.insert("plainHTTP".to_owned(), json!(true));
    }
    if let Some(file) = ca_bundle {
        fields.insert("caBundle".to_owned(), json!(file.to_string_lossy()));
    }
    if !flags.mirror.is_empty() {
        fields.insert("mirrors".to_owned(), json!(flags.mirror));
    }
    if fields.is_empty() {
        return None;
    }
    fields.insert("registry".to_owned(), json!(artifact.reference.repository.registry));
    Some(Value::Object(fields))
}

/// The field `trust`; none where the digest of the image decides.
fn trust(flags: &cli::SourceFlags) -> Result<Option<Value>, Error> {
    if flags.key.is_empty() {
        return Ok(None);
    }
    let key = |text: &String| {
        let (name, pem) = key_text(text)?;
        Ok(json!({"name": name, "key": pem}))
    };
    let keys = flags.key.iter().map(key).collect::<Result<Vec<_>, Error>>()?;
    let mut fields =
        Map::from_iter([("keys".to_owned(), json!(keys)), ("threshold".to_owned(), json!(flags.threshold))]);
    fields.extend(flags.signature_layout.map(|layout| {
        let layout = match layout {
            cli::SignatureLayout::Bundle => "bundle",
            cli::SignatureLayout::Tag => "tag",
        };
        ("layouts".to_owned(), json!([layout]))
    }));
    Ok(Some(Value::Object(fields)))
}
