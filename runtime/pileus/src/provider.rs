//! Loads a provider: reads, compiles, describes and configures its component, and creates its gate.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pileus_cloud::Provider;
use pileus_gate::{Fence, Gate, Problem};
use pileus_host::{CodeOrigin, Compiler, Component, Description, Engine, Guest, Limits, Settings};
use pileus_loader::{TrustPolicy, Verified};

use crate::access_review::AccessReview;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::folders::compiled_code;
use crate::metrics::Metrics;
use crate::sources::read_file;
use crate::{cli, terminal};

/// A loaded provider with its gate.
pub(crate) struct LoadedProvider {
    /// The operator's name for the provider.
    pub(crate) name: String,
    pub(crate) component: Component,
    pub(crate) description: Description,
    configuration: String,
    identity: BTreeMap<String, String>,
    limits: Limits,
    pub(crate) gate: Gate,
}

impl LoadedProvider {
    /// Replaces the gate.
    pub(crate) fn with_gate(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// The provider as controllers call it.
    pub(crate) fn provider(self, metrics: &Metrics) -> Provider {
        let Self { name, component, description, configuration, identity, limits, gate } = self;
        let guest = Guest::new(component, &name, description, &configuration, gate, &metrics.host);
        guest.with_identity(identity).with_limits(limits).provider()
    }
}

/// Loads the provider of a document, and returns it with its gate.
///
/// # Errors
/// As [`prepare`].
pub(crate) async fn load(
    document: CloudProvider,
    compiled: cli::Compiled,
    denied_addresses: Vec<IpAddr>,
    fence: Fence,
    metrics: &Metrics,
) -> Result<(Provider, Gate), Error> {
    let loaded = prepare(document, compiled, denied_addresses, fence, metrics).await?;
    let gate = loaded.gate.clone();
    Ok((loaded.provider(metrics), gate))
}

/// Loads the provider of a document, without an adapter for controllers yet.
///
/// # Errors
/// [`Error::Provider`] if the component can't be used or rejects its configuration, [`Error::Gate`] if the grants,
/// limits or rules are invalid.
pub(crate) async fn prepare(
    document: CloudProvider,
    compiled: cli::Compiled,
    denied_addresses: Vec<IpAddr>,
    fence: Fence,
    metrics: &Metrics,
) -> Result<LoadedProvider, Error> {
    let (name, configuration) = (document.name.clone(), document.configuration.clone());
    let failed = |source| Error::Provider { provider: name.clone(), source };
    let (identity, limits) = (document.identity.clone(), document.call_limits.clone());
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let verified = read_file(&document.component, &TrustPolicy::default()).await?;
    let component = Component::load(&engine, verified).await.map_err(failed)?;
    let description = component.describe(&limits, &metrics.host).await.map_err(failed)?;
    let settings = component.configure(&configuration, &limits, &metrics.host).await.map_err(failed)?;
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
    AccessReview::new(&settings, &document).log(&name);
    let denied_ranges = denied_addresses.into_iter().map(Into::into).collect();
    let config = pileus_gate::Config { denied_ranges, fence, ..gate_config(document, settings) };
    let invalid_gate = |source| Error::Gate { provider: name.clone(), source: Box::new(source) };
    let gate = Gate::new(config, &metrics.gate).map_err(invalid_gate)?;
    Ok(LoadedProvider { name, component, description, configuration, identity, limits, gate })
}

/// The configuration of the gate, as far as document and settings determine it.
pub(crate) fn gate_config(document: CloudProvider, settings: Settings) -> pileus_gate::Config {
    let CloudProvider { name, grants, limits: tightened, credentials, connection, .. } = document;
    pileus_gate::Config {
        provider: name,
        grants,
        rules: settings.rules,
        refusals: settings.refusals,
        limits: settings.limits.into_iter().map(|published| published.limit).collect(),
        tightened,
        credentials,
        denied_ranges: Vec::new(),
        fence: Fence::default(),
        connection,
    }
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
