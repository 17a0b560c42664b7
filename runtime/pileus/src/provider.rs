//! A provider, from its document to something that controllers can call: read, compiled, described, configured, and put
//! behind its gate.

use std::net::IpAddr;
use std::path::PathBuf;

use pileus_cloud::Provider;
use pileus_gate::{Coverage, Fence, Gate};
use pileus_host::{Code, CompiledCode, Compiler, Component, Engine, Guest, Limits, PublishedLimit, Settings};

use crate::cli;
use crate::document::CloudProvider;
use crate::error::Error;
use crate::start::Metrics;

/// Takes a provider all the way from its document to something that controllers can call.
pub(crate) async fn load(
    document: CloudProvider,
    compiled: cli::Compiled,
    denied_addresses: Vec<IpAddr>,
    fence: Fence,
    metrics: &Metrics,
) -> Result<(Provider, Gate), Error> {
    let CloudProvider { name, component, configuration, grants, limits: tightened } = document;
    let failed = |source| Error::Provider { provider: name.clone(), source };
    let limits = Limits::default();
    let engine = Engine::start(compiled_code(compiled), compiler()).map_err(failed)?;
    let bytes = pileus_host::read(&component).await.map_err(failed)?;
    let component = Component::load(&engine, bytes).await.map_err(failed)?;
    let description = component.describe(&limits, &metrics.host).await.map_err(failed)?;
    let settings = component.configure(&configuration, &limits, &metrics.host).await.map_err(failed)?;
    let (source, took) = match component.code {
        Code::Compiled(took) => ("compiler", took),
        Code::Cached(took) => ("cache", took),
    };
    tracing::info!(
        provider = %name, component = %description.name, version = %description.version,
        digest = %component.digest, contract = %component.contract, capabilities = ?component.capabilities,
        code_from = source, took_ms = took.as_millis(), "provider loaded"
    );
    let coverage = coverage(&grants, &settings);
    for (endpoint, grants) in &coverage.granted {
        tracing::info!(provider = %name, %endpoint, ?grants, "the provider may reach what it asks for");
    }
    for endpoint in &coverage.missing {
        tracing::warn!(provider = %name, %endpoint, "the provider asks for a host that no grant names; requests to it will be denied");
    }
    let denied_ranges = denied_addresses.into_iter().map(Into::into).collect();
    let no_gate = |source| Error::Gate { provider: name.clone(), source: Box::new(source) };
    let limits = settings.limits.iter().map(published).collect::<Result<_, _>>().map_err(no_gate)?;
    let (provider, rules) = (name.clone(), settings.rules);
    let config = pileus_gate::Config { provider, grants, rules, limits, tightened, denied_ranges, fence };
    let gate = Gate::new(config, &metrics.gate).map_err(no_gate)?;
    let guest = Guest::new(component, &name, description, &configuration, gate.clone(), &metrics.host);
    Ok((guest.provider(), gate))
}

/// A limit as the gate takes it.
fn published(limit: &PublishedLimit) -> Result<pileus_gate::Limit, pileus_gate::Error> {
    let PublishedLimit { key, capacity, per_minute } = limit;
    pileus_gate::Limit::new(key, *capacity, f64::from(*per_minute) / 60.0)
}

/// What the provider wishes, against what it has.
pub(crate) fn coverage(grants: &[pileus_gate::Grant], settings: &Settings) -> Coverage {
    Coverage::new(grants, settings.wishes.iter().map(|wish| wish.endpoint.clone()))
}

/// The folder for compiled code, where there is one that can be used. A relative or empty `XDG_CACHE_HOME` doesn't
/// count, as its specification says.
pub(crate) fn compiled_code(compiled: cli::Compiled) -> Option<CompiledCode> {
    let default = || {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        cache.map(|cache| cache.join("pileus/compiled"))
    };
    let folder = compiled.compiled_code.or_else(default)?;
    CompiledCode::open(&folder)
        .inspect_err(|error| {
            tracing::warn!(folder = %folder.display(), %error, "compiled code is not kept; each start compiles");
        })
        .ok()
}

/// Components are compiled by a child process of this very program.
pub(crate) fn compiler() -> Compiler {
    Compiler::this_program(&[cli::COMPILE])
}
