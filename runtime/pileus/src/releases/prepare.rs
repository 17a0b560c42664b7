//! The stages by which a release gets ready on this replica: fetched, verified, compiled, checked. Each is a job that runs
//! beside the state machine, and returns what it made.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use pileus_gate::{Fence, Gate, GateFamily};
use pileus_host::swap::{Failure, Release};
use pileus_host::{Component, Description, Engine, Guest, Settings};
use pileus_loader::{Digest, Distrust, Loader, Reference, Retry, Store, TrustPolicy, Verified};

use crate::access_review::AccessReview;
use crate::document::{CloudProvider, Image, ImageSource, Source};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::provider;
use crate::sources::read_file;

/// What the releases of all providers of a process share.
pub(crate) struct ReleaseDeps {
    pub(crate) engine: Engine,
    /// `None` where no folder can be used: then only files serve as components.
    pub(crate) store: Option<Store>,
    pub(crate) metrics: Metrics,
    /// Addresses that no provider may reach: those of the API server.
    pub(crate) denied_addresses: Vec<IpAddr>,
    pub(crate) fence: Fence,
}

/// A release that is ready, besides its guest.
#[derive(Clone)]
pub(super) struct Ready {
    pub(super) gate: Gate,
    pub(super) component: Arc<Component>,
    pub(super) description: Description,
    pub(super) settings: Settings,
    pub(super) configuration: String,
    pub(super) document: Arc<CloudProvider>,
}

/// Finds out what a source leads to now.
pub(super) async fn resolve(deps: &ReleaseDeps, source: &Source) -> Result<Digest, Error> {
    match source {
        Source::File(path) => Ok(read_file(path, &TrustPolicy::default()).await?.digest()),
        Source::Image(image) => {
            let loader = deps.loader(image)?;
            match &image.image {
                Image::Reference(reference) => Ok(loader.resolve(reference).await?),
                Image::Range(repository, range) => {
                    Ok(loader.resolve(&range.newest(&loader, repository).await?).await?)
                }
            }
        }
    }
}

/// Gets the bytes of a release, and verifies them by the policy of its document. What the store has is verified again.
pub(super) async fn fetch(
    deps: &ReleaseDeps,
    release: Release,
    document: &CloudProvider,
) -> Result<Verified, Error> {
    match &document.source {
        Source::File(path) => {
            let verified = read_file(path, &document.trust).await?;
            if verified.digest() == release.component {
                return Ok(verified);
            }
            Err(Error::Replaced { path: path.clone(), wanted: release.component, found: verified.digest() })
        }
        Source::Image(image) => {
            let (loader, reference) = (deps.loader(image)?, unpinned(image));
            let fetched =
                loader.fetch_resolved(&reference, release.component, &document.trust, Timestamp::now());
            Ok(fetched.await?)
        }
    }
}

/// Returns the code of a release, or gets it for the bytes that were verified, or else that are fetched now.
pub(super) async fn compile(
    deps: &ReleaseDeps,
    release: Release,
    document: &CloudProvider,
    known: Result<Arc<Component>, Option<Verified>>,
) -> Result<Arc<Component>, Error> {
    let verified = match known {
        Ok(component) => return Ok(component),
        Err(Some(verified)) => verified,
        Err(None) => fetch(deps, release, document).await?,
    };
    let loaded = Component::load(&deps.engine, verified).await;
    loaded.map(Arc::new).map_err(|source| Error::Provider { provider: document.name.clone(), source })
}

/// Where an image is, without what names one of its versions: a digest that was found adds no trust.
fn unpinned(image: &ImageSource) -> Reference {
    Reference { repository: image.image.repository().clone(), tag: None, digest: None }
}

/// Describes and configures a component, compares it with the active release, and makes its gate among those of the provider.
pub(super) async fn check(
    deps: &ReleaseDeps,
    component: Arc<Component>,
    document: Arc<CloudProvider>,
    (gates, active): (&GateFamily, Option<&Ready>),
) -> Result<(Ready, Guest), Error> {
    let metrics = &deps.metrics;
    let (description, settings) = provider::configure(&component, &document, metrics).await?;
    let review = AccessReview::new(&settings, &document);
    if let Some(active) = active {
        incompatible(&document.name, &component, (&description, &review), active)?;
    }
    review.log(&document.name);
    let gate = match active {
        Some(active) if is_same_gate(active, &document, &settings) => active.gate.clone(),
        _ => gates
            .gate(deps.gate_config(&document, &settings), &metrics.gate)
            .map_err(|source| Error::Gate { provider: document.name.clone(), source: Box::new(source) })?,
    };
    let configuration = document.configuration.clone();
    let ready = Ready { gate, component, description, settings, configuration, document };
    let guest = ready.guest(ready.gate.clone(), metrics);
    Ok((ready, guest))
}

impl Ready {
    /// Whether both read the same of Nodes and Services.
    pub(super) fn reads_like(&self, other: &Self) -> bool {
        let read = |ready: &Self| {
            let description = &ready.description;
            (description.service_requirements(), description.node_labels.clone())
        };
        read(self) == read(other)
    }

    /// A guest that calls the component behind this gate.
    pub(super) fn guest(&self, gate: Gate, metrics: &Metrics) -> Guest {
        let Self { component, description, configuration, document, .. } = self;
        let component = Arc::clone(component);
        Guest::new(component, &document.name, description.clone(), configuration, gate, &metrics.host)
            .with_identity(document.identity.clone())
            .with_limits(document.call_limits.clone())
    }
}

/// Whether two releases can share a gate: the operator's part and the provider's part of its configuration are the same.
fn is_same_gate(active: &Ready, document: &CloudProvider, settings: &Settings) -> bool {
    let Settings { rules, limits, refusals, .. } = settings;
    active.document.settings.digest == document.settings.digest
        && (rules, limits, refusals)
            == (&active.settings.rules, &active.settings.limits, &active.settings.refusals)
}

/// Refuses a release that can't take over from the active one: it lacks a capability or a scheme that is in use, or needs
/// requests that no grant lets through. Only another component is refused for the latter.
fn incompatible(
    provider: &str,
    component: &Component,
    (description, review): (&Description, &AccessReview),
    active: &Ready,
) -> Result<(), Error> {
    let mut problems = Vec::new();
    for capability in &active.component.capabilities {
        if !component.capabilities.contains(capability) {
            problems.push(format!("it has no {capability}, which the active release has"));
        }
    }
    for scheme in &active.description.provider_id_schemes {
        if !description.provider_id_schemes.contains(scheme) {
            problems.push(format!(
                "it does not serve provider IDs with the scheme {scheme}, which nodes may have"
            ));
        }
    }
    let known = AccessReview::new(&active.settings, &active.document);
    let was_missing = |endpoint: &_| {
        known.hosts.iter().any(|host| host.endpoint == *endpoint && host.granted_by.is_empty())
    };
    // Where only the settings change, the operator has taken a grant away: that is to take effect.
    let hosts = if component.digest == active.component.digest { &[][..] } else { &review.hosts };
    for host in hosts {
        if host.granted_by.is_empty() && !was_missing(&host.endpoint) {
            problems.push(format!("it requests {}, which spec.grants does not allow", host.endpoint));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    let (provider, version) = (provider.to_owned(), description.version.clone());
    Err(Error::Incompatible { provider, version, problems, is_permanent: true })
}

/// A failure of a stage, for the state machine.
pub(super) fn failure(error: &Error) -> Failure {
    use pileus_host::Error as Host;
    let is_permanent = match error {
        // Who pushes a tag signs it some moments later.
        Error::Source(pileus_loader::Error::Untrusted { cause, .. }) => !matches!(
            **cause,
            Distrust::Unsigned | Distrust::Rejected { .. } | Distrust::BelowThreshold { .. }
        ),
        Error::Source(source) => source.retry() == Retry::Never,
        Error::Provider { source, .. } => !matches!(source, Host::Engine(_) | Host::CompilerSpawn(_)),
        Error::Gate { source, .. } => !matches!(**source, pileus_gate::Error::Roots { .. }),
        Error::Incompatible { is_permanent, .. } => *is_permanent,
        Error::Document { .. } | Error::Settings { .. } => true,
        _ => false,
    };
    Failure { message: one_line(&error.to_string()), is_permanent }
}

/// A message with a list of problems, for a status, an event and a line of a log.
fn one_line(message: &str) -> String {
    let mut lines = message.lines().map(str::trim);
    let first = lines.next().unwrap_or_default().to_owned();
    let rest = lines.collect::<Vec<_>>().join("; ");
    if rest.is_empty() { first } else { format!("{first} {rest}") }
}

impl ReleaseDeps {
    /// A loader with the registries and credentials of a document.
    fn loader(&self, image: &ImageSource) -> Result<Loader, Error> {
        let missing = || Error::Folder {
            flag: "store",
            cause: "an image can't be fetched without it; the log of the start says why it can't be used"
                .to_owned(),
        };
        provider::loader(self.store.as_ref().ok_or_else(missing)?, image)
    }

    fn gate_config(&self, document: &CloudProvider, settings: &Settings) -> pileus_gate::Config {
        pileus_gate::Config {
            denied_ranges: self.denied_addresses.iter().copied().map(Into::into).collect(),
            ..provider::gate_config(document, settings)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        assert_eq!(one_line("it is invalid:\n  a: wrong\n  b: wrong"), "it is invalid: a: wrong; b: wrong");
        assert_eq!(one_line("it is away"), "it is away");
    }
}
