//! What every command does with a provider: it gets the component, compiles, describes and configures it, and makes its gate.

use std::net::IpAddr;
use std::path::Path;

use jiff::Timestamp;
use pileus_cloud::Provider;
use pileus_gate::{Fence, Gate, Problem};
use pileus_host::{CodeOrigin, Compiler, Component, Description, Engine, Guest, Settings};
use pileus_loader::{Loader, Registries, Store, Timeouts, Verified};

use crate::access_review::AccessReview;
use crate::document::{CloudProvider, Image, ImageSource, Source};
use crate::error::Error;
use crate::folders::compiled_code;
use crate::metrics::Metrics;
use crate::sources::{environment_proxies, read_file};
use crate::{cli, folders, terminal};

/// A loaded provider with its gate.
pub(crate) struct LoadedProvider {
    pub(crate) document: CloudProvider,
    pub(crate) component: Component,
    pub(crate) description: Description,
    pub(crate) gate: Gate,
}

impl LoadedProvider {
    /// The provider as controllers call it, behind this gate.
    pub(crate) fn provider(self, gate: Gate, metrics: &Metrics) -> Provider {
        let Self { document, component, description, .. } = self;
        let CloudProvider { name, configuration, identity, call_limits, .. } = document;
        let guest = Guest::new(component, &name, description, &configuration, gate, &metrics.host);
        guest.with_identity(identity).with_limits(call_limits).provider()
    }
}

/// Loads the provider of a document, for a command that doesn't run its controllers.
///
/// # Errors
/// [`Error::Source`] if the component can't be had, [`Error::Provider`] if it can't be used or rejects its configuration,
/// [`Error::Gate`] if the grants, limits or rules are invalid.
pub(crate) async fn prepare(
    document: CloudProvider,
    (compiled, stored): (cli::Compiled, cli::StoreFolder),
    denied_addresses: Vec<IpAddr>,
    metrics: &Metrics,
) -> Result<LoadedProvider, Error> {
    let engine = engine(compiled)?;
    let verified = obtain(&document, stored).await?;
    let failed = |source| Error::Provider { provider: document.name.clone(), source };
    let component = Component::load(&engine, verified).await.map_err(failed)?;
    let (description, settings) = configure(&component, &document, metrics).await?;
    AccessReview::new(&settings, &document).log(&document.name);
    let denied_ranges = denied_addresses.into_iter().map(Into::into).collect();
    let config = pileus_gate::Config { denied_ranges, ..gate_config(&document, &settings) };
    let invalid_gate = |source| Error::Gate { provider: document.name.clone(), source: Box::new(source) };
    let gate = Gate::new(config, &metrics.gate).map_err(invalid_gate)?;
    Ok(LoadedProvider { document, component, description, gate })
}

/// Describes and configures a component as a document says.
///
/// # Errors
/// [`Error::Provider`].
pub(crate) async fn configure(
    component: &Component,
    document: &CloudProvider,
    metrics: &Metrics,
) -> Result<(Description, Settings), Error> {
    let CloudProvider { name, configuration, call_limits: limits, .. } = document;
    let failed = |source| Error::Provider { provider: name.clone(), source };
    let description = component.describe(limits, &metrics.host).await.map_err(failed)?;
    let settings = component.configure(configuration, limits, &metrics.host).await.map_err(failed)?;
    let (source, took) = match component.code_origin {
        CodeOrigin::Compiled(took) => ("compiler", took),
        CodeOrigin::Cached(took) => ("cache", took),
    };
    tracing::info!(
        provider = %name, component = %description.name, version = %description.version,
        digest = %component.digest, contract = %component.contract, capabilities = ?component.capabilities,
        code_from = source, took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX), "provider loaded"
    );
    for Problem { path, message } in &settings.notices {
        tracing::warn!(provider = %name, field = path, notice = message, "the provider has a notice about its configuration");
    }
    let description = description.with_settings(&settings);
    Ok((description, settings))
}

/// The component file of a document with this name, for a command that fetches nothing.
///
/// # Errors
/// [`Error::Flag`] if its source is an image.
pub(crate) fn component_file<'a>(name: &str, source: &'a Source) -> Result<&'a Path, Error> {
    match source {
        Source::File(path) => Ok(path),
        Source::Image(_) => Err(Error::Flag {
            flag: "provider",
            value: name.to_owned(),
            problem: "its source is an image; get it by `pileus pull`, and name the file".to_owned(),
        }),
    }
}

/// Gets the component of a document: its file, or what its image led to at last, or leads to now.
///
/// # Errors
/// [`Error::Source`].
pub(crate) async fn obtain(document: &CloudProvider, stored: cli::StoreFolder) -> Result<Verified, Error> {
    let image = match &document.source {
        Source::File(path) => return read_file(path, &document.trust).await,
        Source::Image(image) => image,
    };
    let loader = loader(&folders::store(stored)?, image)?;
    let reference = match &image.image {
        Image::Reference(reference) => reference.clone(),
        Image::Range(repository, range) => range.newest(&loader, repository).await?,
    };
    Ok(loader.obtain(&reference, &document.trust, Timestamp::now()).await?)
}

/// A loader with the registries and credentials of an image.
///
/// # Errors
/// [`Error::Source`] for settings of registries that can't be used.
pub(crate) fn loader(store: &Store, image: &ImageSource) -> Result<Loader, Error> {
    let ImageSource { registries, credentials, .. } = image;
    let proxies = environment_proxies();
    let registries = Registries::new(registries.clone(), credentials.clone(), Timeouts::default(), proxies)?;
    Ok(Loader::new(store.clone(), registries))
}

/// The configuration of the gate, as far as document and settings determine it.
pub(crate) fn gate_config(document: &CloudProvider, settings: &Settings) -> pileus_gate::Config {
    pileus_gate::Config {
        provider: document.name.clone(),
        grants: document.grants.clone(),
        rules: settings.rules.clone(),
        refusals: settings.refusals.clone(),
        limits: settings.limits.iter().map(|published| published.limit.clone()).collect(),
        tightened: document.limits.clone(),
        credentials: document.credentials.clone(),
        denied_ranges: Vec::new(),
        fence: Fence::default(),
        connection: document.connection.clone(),
    }
}

/// Starts the engine that runs components.
///
/// # Errors
/// [`Error::Engine`].
pub(crate) fn engine(compiled: cli::Compiled) -> Result<Engine, Error> {
    Engine::start(compiled_code(compiled), compiler()).map_err(Error::Engine)
}

/// Loads a component, with progress on a terminal: compiling takes up to a second for each megabyte.
///
/// # Errors
/// As [`Component::load`].
pub(crate) async fn compile(engine: &Engine, verified: Verified) -> Result<Component, pileus_host::Error> {
    terminal::progress("compiling the component");
    let component = Component::load(engine, verified).await;
    // An error goes on a line of its own.
    terminal::clear_progress();
    component
}

/// A child process of this program compiles components.
pub(crate) fn compiler() -> Compiler {
    Compiler::this_program(&[cli::COMPILE])
}
