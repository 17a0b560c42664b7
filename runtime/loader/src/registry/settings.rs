//! What an operator sets for registries. Everything is checked when the program starts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::error::Error;
use crate::reference::{is_name, is_registry};

/// How to reach one registry. A registry without settings is reached over TLS, or over plain HTTP on loopback.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrySettings {
    /// Host and optional port, as references name it.
    pub registry: String,
    /// Whether to use plain HTTP. Without it, only for registries on loopback.
    pub plain_http: Option<bool>,
    /// A file of certificates in PEM form to trust besides the system's. It is read again for each connection.
    pub ca_bundle: Option<PathBuf>,
    /// Registries to ask first, in order, as `HOST[:PORT]` with an optional prefix of repositories, as in
    /// `mirror.corp/ghcr`. What they serve is verified like everything else.
    pub mirrors: Vec<String>,
    /// Hosts, besides its own and those of its domain, from which its tokens may come. They receive its credential.
    pub token_hosts: Vec<String>,
    /// Private ranges to which it may lead for downloads and tokens. Public addresses need no entry.
    pub addresses: Vec<IpNet>,
}

/// How long to wait for a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, with name and TLS.
    pub connect: Duration,
    /// For the head of an answer.
    pub first_byte: Duration,
    /// For the next part of a body.
    pub between_bytes: Duration,
    /// For everything that a fetch needs, with all attempts.
    pub whole: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(10),
            first_byte: seconds(30),
            between_bytes: seconds(30),
            whole: seconds(300),
        }
    }
}

impl RegistrySettings {
    /// Checks the settings, without the bundle's certificates.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |cause: String| Err(Error::Settings { registry: self.registry.clone(), cause });
        if !is_registry(&self.registry) || self.registry.chars().any(|c| c.is_ascii_uppercase()) {
            return wrong("its name is a host with an optional port, in lower case".to_owned());
        }
        if self.plain_http == Some(true) && self.ca_bundle.is_some() {
            return wrong("a bundle of certificates has no effect with plain HTTP".to_owned());
        }
        for mirror in &self.mirrors {
            let (host, prefix) = split_mirror(mirror);
            if !is_registry(host) || !prefix.is_none_or(is_name) {
                return wrong(format!(
                    "invalid mirror {mirror:?}; write it as in mirror.corp or mirror.corp:5000/ghcr"
                ));
            }
        }
        Ok(())
    }

    /// Reads the certificates of the bundle.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub(super) fn check_bundle(&self) -> Result<(), Error> {
        match &self.ca_bundle {
            Some(file) => add_bundle(&mut RootCertStore::empty(), file, &self.registry),
            None => Ok(()),
        }
    }
}

/// The registry of a mirror, and the prefix of its repositories.
pub(super) fn split_mirror(mirror: &str) -> (&str, Option<&str>) {
    mirror.split_once('/').map_or((mirror, None), |(host, prefix)| (host, Some(prefix)))
}

/// Adds all certificates of a bundle, which is used whole or refused.
pub(super) fn add_bundle(roots: &mut RootCertStore, file: &Path, registry: &str) -> Result<(), Error> {
    let wrong = |cause: String| {
        let cause = format!("can't use the certificates in {}: {cause}", file.display());
        Error::Settings { registry: registry.to_owned(), cause }
    };
    let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        count += 1;
        // The parser's own message would repeat the bytes of a damaged section.
        let certificate = certificate.map_err(|_| wrong(format!("its certificate {count} isn't whole")))?;
        roots.add(certificate).map_err(|error| wrong(format!("its certificate {count}: {error}")))?;
    }
    if count == 0 { Err(wrong("it holds no certificate in PEM form".to_owned())) } else { Ok(()) }
}
