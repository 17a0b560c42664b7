//! The client for registries, by the OCI distribution specification.
//!
//! It does not use `oci-client`, whose limits don't allow what is needed here (0.18): it reads manifests, signatures and
//! tokens of any size into memory; it follows redirects anywhere, metadata services and plain HTTP included; it sends the
//! password to the place that a registry names for tokens, without a check of scheme or host; it has no hook for addresses;
//! it takes certificates at construction only; it doesn't exchange identity tokens. What would be left of it is the parsing of
//! two JSON documents. The stack below is the one of the gate: hyper, rustls and ring.
//!
//! ```text
//! pull, push        what is asked of a repository
//! session           credential, token, redirects, repetition
//! challenge         what a registry demands with a 401 (pure)
//! target, address   where an answer may lead (pure)
//! network           names, addresses, TLS
//! exchange          one request and its answer
//! settings          what the operator sets for a registry
//! ```

mod address;
mod challenge;
mod exchange;
mod network;
mod pull;
mod push;
mod session;
pub(crate) mod settings;
mod target;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::credential::{self, CredentialSource};
use crate::error::Error;
use crate::reference::Repository;
use network::Network;
pub(crate) use session::{Access, Session};
use settings::{RegistrySettings, Timeouts, split_mirror};
use target::Origin;

/// All registries, with their settings and credentials. Clones share them.
#[derive(Debug, Clone)]
pub struct Registries {
    shared: Arc<Shared>,
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
    /// Checks the settings, and reads the certificates that they name.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub fn new(
        settings: Vec<RegistrySettings>,
        credentials: Vec<CredentialSource>,
        timeouts: Timeouts,
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
        let network = Network::new();
        Ok(Self { shared: Arc::new(Shared { settings, credentials, timeouts, network }) })
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
