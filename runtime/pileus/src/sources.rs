//! Components of the command line: which file or artifact is meant, how its registry is reached, and what makes it trusted.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use pileus_loader::{
    CredentialSource, Digest, Key, Layout, Loader, ProxyEnvironment, PublicKey, Reference, Registries,
    RegistrySettings, SecretFile, Signer, Source, Timeouts, Trust, TrustPolicy, TrustSpec, Verified,
};
use serde_json::{Value, json};

use crate::cli::{self, RegistryFlags, SignatureLayout, SourceFlags};
use crate::error::Error;
use crate::{folders, terminal};

/// An artifact in a registry, the way to it, and the operator's policy.
pub(crate) struct Artifact {
    pub(crate) reference: Reference,
    pub(crate) registries: Registries,
    pub(crate) policy: TrustPolicy,
}

impl Artifact {
    /// Reads a reference with its flags.
    ///
    /// # Errors
    /// [`Error::Flag`] for a key, [`Error::Source`] for everything else.
    pub(crate) fn new(reference: Reference, flags: &SourceFlags) -> Result<Self, Error> {
        let policy = trust_policy(flags)?;
        let registries = registries(&flags.registry, &flags.mirror, &reference)?;
        Ok(Self { reference, registries, policy })
    }

    /// Fetches and verifies it.
    ///
    /// # Errors
    /// [`Error::Source`], and [`Error::Folder`] without a store.
    pub(crate) async fn fetch(&self, store: cli::StoreFolder) -> Result<Verified, Error> {
        let fetched = self.loader(store)?.fetch(&self.reference, &self.policy, Timestamp::now()).await;
        terminal::clear_progress();
        Ok(fetched?)
    }

    /// A loader that shows its progress.
    ///
    /// # Errors
    /// [`Error::Source`], and [`Error::Folder`] without a store.
    pub(crate) fn loader(&self, store: cli::StoreFolder) -> Result<Loader, Error> {
        let registries = with_progress(self.registries.clone(), "fetching the component");
        Ok(Loader::new(folders::store(store)?, registries))
    }

    /// The reference as it is pinned, for output.
    pub(crate) fn pinned(&self, digest: Digest) -> String {
        self.reference.pinned(digest).to_string()
    }
}

/// The same registries, with progress on a terminal.
pub(crate) fn with_progress(registries: Registries, what: &'static str) -> Registries {
    match terminal::transfer(what) {
        Some(progress) => registries.with_progress(progress),
        None => registries,
    }
}

/// Reads a component of the operator.
///
/// # Errors
/// [`Error::Source`].
pub(crate) async fn read_file(path: &Path, policy: &TrustPolicy) -> Result<Verified, Error> {
    Ok(Loader::read_file(path, policy).await?)
}

/// Tells a file from a reference: what exists or ends with `.wasm` is a file, and what begins with a registry is a reference.
///
/// # Errors
/// [`Error::Source`] for a reference that can't be read.
pub(crate) fn source(text: &OsStr) -> Result<Source, Error> {
    let path = PathBuf::from(text);
    let Some(text) = text.to_str() else { return Ok(Source::File(path)) };
    let has_scheme = text.starts_with("file:") || text.contains("://");
    let is_file = || path.exists() || path.extension().is_some_and(|extension| extension == "wasm");
    if !has_scheme && (is_file() || !begins_with_registry(text)) {
        return Ok(Source::File(path));
    }
    Ok(text.parse()?)
}

/// Whether a text begins with a host, as a reference does.
fn begins_with_registry(text: &str) -> bool {
    let first = text.split_once('/').map_or("", |(first, _)| first);
    let is_host = first.contains(['.', ':']) || first == "localhost";
    is_host && !first.starts_with('.')
}

/// The registry of a reference and its mirrors.
///
/// # Errors
/// [`Error::Source`].
pub(crate) fn registries(
    flags: &RegistryFlags,
    mirrors: &[String],
    reference: &Reference,
) -> Result<Registries, Error> {
    let RegistryFlags { plain_http, ca_bundle, docker_config } = flags;
    let settings = |registry: &str| RegistrySettings {
        registry: registry.to_owned(),
        // Certificates are for TLS, also on loopback.
        plain_http: plain_http.then_some(true).or(ca_bundle.as_ref().map(|_| false)),
        ca_bundle: ca_bundle.clone(),
        ..RegistrySettings::default()
    };
    let own = RegistrySettings { mirrors: mirrors.to_vec(), ..settings(&reference.repository.registry) };
    let hosts = mirrors.iter().filter_map(|mirror| mirror.split('/').next());
    let others: BTreeSet<_> = hosts.filter(|host| *host != own.registry).collect();
    let all = std::iter::once(own).chain(others.into_iter().map(settings)).collect();
    let config = docker_config.clone().or_else(default_docker_config);
    let credentials = config.map(|file| CredentialSource::DockerConfig {
        config: Arc::new(SecretFile::new(file)),
        helpers: true,
    });
    let credentials = credentials.into_iter().collect();
    Ok(Registries::new(all, credentials, Timeouts::default(), environment_proxies())?)
}

/// The proxies that the environment of this process names.
pub(crate) fn environment_proxies() -> ProxyEnvironment {
    ProxyEnvironment::read(|name| std::env::var(name).ok())
}

/// The Docker configuration that docker and oras use, if there is one.
fn default_docker_config() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name).filter(|value: &std::ffi::OsString| !value.is_empty()).map(PathBuf::from)
    };
    let folder = variable("DOCKER_CONFIG").or_else(|| Some(variable("HOME")?.join(".docker")))?;
    Some(folder.join("config.json")).filter(|file| file.exists())
}

/// The policy of the flags.
///
/// # Errors
/// [`Error::Flag`] for a key that can't be read, [`Error::Source`] for a policy that contradicts itself.
pub(crate) fn trust_policy(flags: &SourceFlags) -> Result<TrustPolicy, Error> {
    let SourceFlags { registry: _, mirror: _, key, threshold, digest, insecure, signature_layout } = flags;
    let layouts = match signature_layout {
        None => Layout::ALL.to_vec(),
        Some(SignatureLayout::Bundle) => vec![Layout::Bundle],
        Some(SignatureLayout::Tag) => vec![Layout::Tag],
    };
    let keys = key.iter().map(|text| public_key(text)).collect::<Result<_, _>>()?;
    let (digest, threshold, insecure) = (*digest, *threshold, *insecure);
    let spec = TrustSpec { digest, keys, threshold, layouts, insecure, ..TrustSpec::default() };
    Ok(TrustPolicy::new(spec)?)
}

/// A key that the operator names by its file.
fn public_key(text: &str) -> Result<Key, Error> {
    let (name, pem) = key_text(text)?;
    let wrong = |cause: &str| Error::Flag { flag: "key", value: text.to_owned(), problem: cause.to_owned() };
    let key = PublicKey::from_pem(&pem).map_err(wrong)?;
    Ok(Key { name, key, expires: None })
}

/// The name of a key of the command line, and the text of its file.
///
/// # Errors
/// [`Error::Flag`].
pub(crate) fn key_text(text: &str) -> Result<(String, String), Error> {
    let wrong = |problem: String| Error::Flag { flag: "key", value: text.to_owned(), problem };
    // A path may have this character, too.
    let (name, file) = match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !name.contains('/') => (name.to_owned(), file),
        _ => {
            let stem = Path::new(text).file_stem().unwrap_or_default();
            (stem.to_string_lossy().into_owned(), text)
        }
    };
    let pem = std::fs::read_to_string(file).map_err(|error| wrong(format!("can't read the key: {error}")))?;
    Ok((name, pem))
}

/// What the trust in a component rests on, in words.
pub(crate) fn trust_text(trust: &Trust) -> String {
    match trust {
        Trust::Digest => "trusted by its digest".to_owned(),
        Trust::Signed { signers } => {
            let names: Vec<_> = signers.iter().map(Signer::name).collect();
            format!("signed by {}", names.join(", "))
        }
        Trust::File => "a file, which the operator trusts".to_owned(),
        Trust::Insecure => "not verified, since --insecure accepts any component".to_owned(),
    }
}

/// What the trust in a component rests on, as JSON.
pub(crate) fn trust_json(trust: &Trust) -> Value {
    match trust {
        Trust::Digest => json!({"by": "digest"}),
        // The flags list keys only.
        Trust::Signed { signers } => {
            json!({"by": "signatures", "keys": signers.iter().map(Signer::name).collect::<Vec<_>>()})
        }
        Trust::File => json!({"by": "file"}),
        Trust::Insecure => json!({"by": "insecure"}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_from_a_reference() {
        let folder = tempfile::tempdir().unwrap();
        let existing = folder.path().join("a.example:1");
        std::fs::write(&existing, "").unwrap();
        let existing = existing.to_str().unwrap();
        for (text, expected) in [
            (existing, Some(existing)),
            ("provider.wasm", Some("provider.wasm")),
            ("none.example/provider.wasm", Some("none.example/provider.wasm")),
            ("./none.d/provider", Some("./none.d/provider")),
            ("../none.d/provider", Some("../none.d/provider")),
            ("/none.d/provider", Some("/none.d/provider")),
            ("target/provider", Some("target/provider")),
            ("provider:1", Some("provider:1")),
            ("file:ghcr.io/a/b:1", Some("ghcr.io/a/b:1")),
            ("ghcr.io/a/b:1", None),
            ("localhost/a:1", None),
            ("[::1]:5000/a:1", None),
            ("oci://ghcr.io/a/b.wasm:1.wasm", None),
        ] {
            let found = match source(OsStr::new(text)) {
                Ok(Source::File(path)) => Some(path),
                Ok(Source::Registry(_)) => None,
                Err(error) => panic!("{text}: {error}"),
            };
            assert_eq!(found.as_deref(), expected.map(Path::new), "{text}");
        }
        for text in ["ghcr.io/a/b", "https://ghcr.io/a/b:1", "localhost:5000/A:1"] {
            assert!(matches!(source(OsStr::new(text)), Err(Error::Source(_))), "{text}");
        }
    }

    #[test]
    fn a_key_has_the_name_that_the_operator_gives_or_that_of_its_file() {
        const PEM: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a=b.pub");
        std::fs::write(&file, PEM).unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(public_key(file).unwrap().name, "a=b");
        assert_eq!(public_key(&format!("release={file}")).unwrap().name, "release");
        for text in ["none.pub", "release=none.pub"] {
            assert!(matches!(public_key(text), Err(Error::Flag { flag: "key", .. })), "{text}");
        }
    }
}
