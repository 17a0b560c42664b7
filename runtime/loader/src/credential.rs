//! Credentials for registries: where they come from, and which one a repository gets. A source is read again for each
//! fetch, so that a rotated secret needs no restart. A configured source that can't be read is an error: an anonymous
//! attempt in its place would end in a refusal that names no cause.

mod docker_config;
mod helper;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::reference::Repository;
use docker_config::Entry;

/// A Docker configuration has some KiB; one with many registries more.
const MAX_SECRET: u64 = 256 << 10;
/// How long a source may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One secret text that is stored elsewhere: in a file, or under a key of a Kubernetes Secret, such as `.dockerconfigjson`
/// of a pull secret.
///
/// `Display` names it in messages. Neither `Display` nor `Debug` may show the text.
pub trait SecretSource: fmt::Debug + fmt::Display + Send + Sync {
    /// Reads the current text. An error's text must not hold the secret. Dropping the future gives up, which the caller does
    /// after 10 s.
    fn read(&self) -> Pin<Box<dyn Future<Output = io::Result<SecretString>> + Send + '_>>;
}

/// Where credentials come from.
#[derive(Debug, Clone)]
pub enum CredentialSource {
    /// A name and a password for one registry.
    Basic {
        /// The registry.
        registry: String,
        /// The name.
        username: String,
        /// The password.
        password: Arc<dyn SecretSource>,
    },
    /// A bearer token for one registry, which is sent as it is.
    Token {
        /// The registry.
        registry: String,
        /// The token.
        token: Arc<dyn SecretSource>,
    },
    /// A Docker configuration: `config.json`, or a pull secret of Kubernetes.
    DockerConfig {
        /// The configuration.
        config: Arc<dyn SecretSource>,
        /// Whether the programs that it names may be run. Fine for a user's command, not for a controller.
        helpers: bool,
    },
}

/// A file with a secret. Its path is resolved at each read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile(PathBuf);

impl SecretFile {
    /// The file at this path. It is opened when the secret is first needed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}", self.0.display())
    }
}

impl SecretSource for SecretFile {
    fn read(&self) -> Pin<Box<dyn Future<Output = io::Result<SecretString>> + Send + '_>> {
        Box::pin(async {
            // Checked before it is opened: opening a pipe without a writer would block a thread forever.
            if !tokio::fs::metadata(&self.0).await?.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            let file = tokio::fs::File::open(&self.0).await?;
            // The whole capacity at once: growing would leave copies behind.
            let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(MAX_SECRET).unwrap_or(0) + 1));
            file.take(MAX_SECRET + 1).read_to_end(&mut bytes).await?;
            if bytes.len() as u64 > MAX_SECRET {
                return Err(io::Error::other("it is over 256 KiB"));
            }
            let text = std::str::from_utf8(&bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))?;
            Ok(SecretString::from(text))
        })
    }
}

/// A credential for one repository. It has no `Debug`.
pub(crate) struct Credential {
    pub(crate) kind: CredentialKind,
    /// Where it comes from, for messages.
    pub(crate) origin: String,
}

pub(crate) enum CredentialKind {
    Basic {
        username: String,
        password: Zeroizing<String>,
    },
    /// Is exchanged for a token.
    Identity(Zeroizing<String>),
    /// Is sent as it is.
    Bearer(Zeroizing<String>),
}

/// The credential for a repository: that of the first source that has one. `None` means an anonymous fetch.
///
/// # Errors
/// [`Error::Credential`] if a source that applies can't be read.
pub(crate) async fn find(sources: &[CredentialSource], of: &Repository) -> Result<Option<Credential>, Error> {
    for source in sources {
        let found = match source {
            CredentialSource::Basic { registry, username, password } if *registry == of.registry => {
                let password = Zeroizing::new(read(&**password, of).await?.expose_secret().trim().to_owned());
                let kind = CredentialKind::Basic { username: username.clone(), password };
                Some(Credential { kind, origin: format!("user {username}") })
            }
            CredentialSource::Token { registry, token } if *registry == of.registry => {
                let text = Zeroizing::new(read(&**token, of).await?.expose_secret().trim().to_owned());
                Some(Credential {
                    kind: CredentialKind::Bearer(text),
                    origin: format!("the token of {token}"),
                })
            }
            CredentialSource::DockerConfig { config, helpers } => docker(&**config, *helpers, of).await?,
            CredentialSource::Basic { .. } | CredentialSource::Token { .. } => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

async fn docker(
    config: &dyn SecretSource,
    helpers: bool,
    of: &Repository,
) -> Result<Option<Credential>, Error> {
    let text = read(config, of).await?;
    let failed = |cause: &str| failed(of, &format!("{config}: {cause}"));
    let found = docker_config::find(text.expose_secret(), of).map_err(failed)?;
    let (kind, origin) = match found {
        None => return Ok(None),
        Some(Entry::Credential { kind, key }) => (kind, format!("entry {key:?} of {config}")),
        Some(Entry::Helper { .. }) if !helpers => {
            return Err(failed(
                "it names a credential helper, which a controller doesn't run; use a pull secret",
            ));
        }
        Some(Entry::Helper { name, server }) => {
            let asked = timeout(TIMEOUT, helper::ask(&name, &server)).await;
            let answer = asked.unwrap_or(Err("it took longer than 10 s".to_owned()));
            match answer.map_err(|cause| failed(&format!("docker-credential-{name}: {cause}")))? {
                Some(kind) => (kind, format!("credential helper {name}")),
                None => return Ok(None),
            }
        }
    };
    Ok(Some(Credential { kind, origin }))
}

async fn read(source: &dyn SecretSource, of: &Repository) -> Result<SecretString, Error> {
    let late = |_| failed(of, &format!("{source} took longer than 10 s to read"));
    let read = timeout(TIMEOUT, source.read()).await.map_err(late)?;
    read.map_err(|error| failed(of, &format!("can't read {source}: {error}")))
}

fn failed(of: &Repository, cause: &str) -> Error {
    Error::Credential { registry: of.registry.clone(), cause: cause.to_owned() }
}
