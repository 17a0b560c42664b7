//! The client for registries, by the OCI distribution specification.
//!
//! It does not use `oci-client`, whose limits don't allow what is needed here (0.18): it reads manifests, signatures and
//! tokens of any size into memory; it follows redirects anywhere, metadata services and plain HTTP included; it sends the
//! password to the place that a registry names for tokens, without a check of scheme or host; it has no hook for addresses;
//! it takes certificates at construction only; it doesn't exchange identity tokens. What would be left of it is the parsing of
//! two JSON documents. The stack below is the one of the gate: hyper, rustls and ring.
//!
//! ```text
//! pull, referrers   what is read of a repository
//! push              what is written to it
//! session           credential, token, redirects, repetition
//! challenge         what a registry demands with a 401 (pure)
//! target, address   where an answer may lead (pure)
//! network           names, addresses, TLS
//! exchange, upload  one request and its answer
//! settings          what the operator sets for a registry
//! ```

mod address;
mod challenge;
mod exchange;
mod network;
mod pull;
mod push;
mod referrers;
mod session;
pub(crate) mod settings;
mod target;
mod upload;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::time::timeout;

use crate::credential::{self, CredentialSource};
use crate::error::Error;
use crate::progress::Progress;
use crate::proxy::ProxyEnvironment;
use crate::reference::{Reference, Repository};
use network::Network;
pub(crate) use session::{Access, Session};
use settings::{RegistrySettings, Timeouts, split_mirror};
use target::Origin;

/// Boxed, since the compiler can't tell that those of asynchronous closures can be sent to another thread.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// All registries, with their settings and credentials. Clones share them.
#[derive(Debug, Clone)]
pub struct Registries {
    shared: Arc<Shared>,
    progress: Option<Progress>,
}

#[derive(Debug)]
struct Shared {
    settings: Vec<RegistrySettings>,
    credentials: Vec<CredentialSource>,
    timeouts: Timeouts,
    network: Network,
}

/// A place that may have an artifact: a registry itself or a mirror of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) repository: Repository,
}

impl Registries {
    /// Checks the settings, and reads the certificates that they name. `proxies` lead to registries, to token services and to
    /// where redirects lead.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub fn new(
        settings: Vec<RegistrySettings>,
        credentials: Vec<CredentialSource>,
        timeouts: Timeouts,
        proxies: ProxyEnvironment,
    ) -> Result<Self, Error> {
        let mut names = BTreeSet::new();
        for one in &settings {
            one.check()?;
            one.check_bundle()?;
            if !names.insert(&one.registry) {
                let cause = "it is listed twice".to_owned();
                return Err(Error::Settings { registry: one.registry.clone(), cause });
            }
        }
        let network = Network::new(proxies);
        Ok(Self { shared: Arc::new(Shared { settings, credentials, timeouts, network }), progress: None })
    }

    /// The same registries, whose transfers of components report how far they are.
    #[must_use]
    pub fn with_progress(self, progress: Progress) -> Self {
        Self { progress: Some(progress), ..self }
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.shared.timeouts
    }

    /// The places to ask for a repository, in order: its registry's mirrors, and the registry itself.
    pub(crate) fn places(&self, repository: &Repository) -> Vec<Place> {
        let mirrors = self.settings(&repository.registry).mirrors;
        let mirrored = mirrors.iter().map(|mirror| {
            let (registry, prefix) = split_mirror(mirror);
            let name =
                prefix.map_or(repository.name.clone(), |prefix| format!("{prefix}/{}", repository.name));
            Place { repository: Repository { registry: registry.to_owned(), name } }
        });
        mirrored.chain([Place { repository: repository.clone() }]).collect()
    }

    /// Asks each place of a reference until one has what is wanted, within the time for all of it.
    pub(crate) async fn ask_each<'a, T>(
        &'a self,
        reference: &'a Reference,
        ask: impl Fn(Place) -> BoxFuture<'a, Result<T, Error>>,
    ) -> Result<T, Error> {
        let whole = self.timeouts().whole;
        let asking = async {
            let mut each = Vec::new();
            for place in self.places(&reference.repository) {
                match ask(place).await {
                    Ok(found) => return Ok(found),
                    // No other place could help.
                    Err(error @ Error::Store { .. }) => return Err(error),
                    Err(error) => each.push(error),
                }
            }
            match each.len() {
                1 => each.pop().map_or(Err(Error::NotFound { place: reference.to_string() }), Err),
                _ => Err(Error::Everywhere { each }),
            }
        };
        let registry = reference.repository.registry.clone();
        let late = |_| Error::Timeout { registry, phase: "for the whole fetch", after: whole };
        timeout(whole, asking).await.map_err(late)?
    }

    /// Begins to ask a place.
    ///
    /// # Errors
    /// [`Error::Credential`], [`Error::Settings`].
    pub(crate) async fn session(&self, place: &Place, access: Access) -> Result<Session<'_>, Error> {
        let repository = place.repository.clone();
        let settings = self.settings(&repository.registry);
        let origin = Origin::of_registry(&repository.registry, settings.plain_http).ok_or_else(|| {
            Error::Settings {
                registry: repository.registry.clone(),
                cause: "its name is not a host".to_owned(),
            }
        })?;
        let credential = credential::find(&self.shared.credentials, &repository).await?;
        Ok(Session {
            network: &self.shared.network,
            settings,
            timeouts: self.shared.timeouts,
            origin,
            repository,
            access,
            credential,
            authorization: Mutex::new(None),
            progress: self.progress.clone(),
        })
    }

    fn settings(&self, registry: &str) -> RegistrySettings {
        let found = self.shared.settings.iter().find(|settings| settings.registry == registry);
        found.cloned().unwrap_or_else(|| RegistrySettings {
            registry: registry.to_owned(),
            ..RegistrySettings::default()
        })
    }
}
