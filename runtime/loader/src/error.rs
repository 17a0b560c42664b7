//! Why a component can't be had. The variants differ in what the caller does about them: [`Error::retry`] says whether
//! another attempt can succeed, and the messages tell the operator what to do next. No message holds a credential, a query
//! or the body of an answer beyond the registry's own words.

mod distrust;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::digest::Digest;
pub use distrust::{Distrust, Finding, Signer};

/// Why a component can't be had, stored or pushed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A reference can't be read.
    #[error("invalid reference {text:?}: {cause}")]
    Reference {
        /// The reference.
        text: String,
        /// What would be right.
        cause: &'static str,
    },
    /// A trust policy contradicts itself.
    #[error("invalid trust policy: {}", problems.join("; "))]
    Policy {
        /// Every contradiction.
        problems: Vec<String>,
    },
    /// A setting of a registry can't be used.
    #[error("invalid settings of registry {registry}: {cause}")]
    Settings {
        /// The registry.
        registry: String,
        /// What is wrong, and what would be right.
        cause: String,
    },
    /// What was found isn't trusted. It never runs.
    #[error("{source_name}{} is not trusted: {cause}", digest.map_or(String::new(), |digest| format!(" ({digest})")))]
    Untrusted {
        /// The reference or the file.
        source_name: String,
        /// The digest that was found, if it was looked for.
        digest: Option<Digest>,
        /// Why.
        cause: Box<Distrust>,
    },
    /// A file of the operator can't be read.
    #[error("can't read the component {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An artifact or a file is not a component.
    #[error("{place} is not a component: {cause}")]
    NotComponent {
        /// The reference or the file.
        place: String,
        /// What it is instead.
        cause: String,
    },
    /// What the registry sent is not what its digest names. A proxy or the registry is defective, or forges.
    #[error(
        "{place} is corrupt: its bytes have the digest {found}, not {expected}; check the registry, its mirrors and proxies"
    )]
    Corrupt {
        /// What was fetched.
        place: String,
        /// Its digest as it was announced.
        expected: String,
        /// The digest of the bytes.
        found: Digest,
    },
    /// What the registry or a proxy sends is larger than announced or allowed.
    #[error("{place} is refused: it has more than {limit} bytes")]
    TooLarge {
        /// What was fetched.
        place: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The registry doesn't have it.
    #[error("{place} does not exist: check the name, the tag, and whether the credential may read it")]
    NotFound {
        /// What was asked for.
        place: String,
    },
    /// The registry refuses access.
    #[error("{registry} refuses access to {name}{}: {cause}; credential used: {credential}{}", said.as_ref().map_or(String::new(), |said| format!(" ({said})")), login(credential))]
    Unauthorized {
        /// The registry.
        registry: String,
        /// The repository.
        name: String,
        /// Which credential was sent, without its secret.
        credential: String,
        /// What happened.
        cause: &'static str,
        /// The registry's own words.
        said: Option<String>,
    },
    /// A credential can't be had.
    #[error("no credential for {registry}: {cause}")]
    Credential {
        /// The registry.
        registry: String,
        /// Why, without anything secret.
        cause: String,
    },
    /// The registry leads somewhere that the loader doesn't go.
    #[error("{registry} leads to {target}, which is refused: {cause}")]
    Misled {
        /// The registry.
        registry: String,
        /// The URL without its query.
        target: String,
        /// Why, and what to configure if it is meant.
        cause: String,
    },
    /// The registry can't be reached, or its answer isn't HTTP.
    #[error("can't reach {registry}: {cause}")]
    Unreachable {
        /// The registry.
        registry: String,
        /// Why.
        cause: String,
    },
    /// The registry takes too long.
    #[error("{registry} took longer than {after:?} {phase}")]
    Timeout {
        /// The registry.
        registry: String,
        /// What was waited for, as in "to connect".
        phase: &'static str,
        /// How long.
        after: Duration,
    },
    /// The registry answers with an error.
    #[error("{registry} answers {status} to {request}{}", said.as_ref().map_or(String::new(), |said| format!(": {said}")))]
    Answer {
        /// The registry.
        registry: String,
        /// The status.
        status: u16,
        /// The method and path.
        request: String,
        /// The registry's own words.
        said: Option<String>,
        /// When the registry wants to be asked again.
        after: Option<Duration>,
    },
    /// The answer violates the protocol.
    #[error("{registry} violates the protocol: {cause}")]
    Protocol {
        /// The registry.
        registry: String,
        /// What is wrong.
        cause: String,
    },
    /// Neither the registry nor its mirrors have it; the causes are in their order.
    #[error("{}", each.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Everywhere {
        /// The error of each place.
        each: Vec<Error>,
    },
    /// The store's folder can't be used.
    #[error("can't {action} {} in the store: {source}{}", path.display(), advice(source))]
    Store {
        /// What should be done, as in "write".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The store doesn't have it.
    #[error("{place} is not in the store: fetch it first")]
    NotStored {
        /// The reference.
        place: String,
    },
}

/// Whether another attempt can succeed while nothing else changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Not before the operator or the owner of the repository changes something.
    Never,
    /// Later, at the earliest after the time that the registry names.
    Later(Option<Duration>),
}

/// Advice about a missing credential.
fn login(credential: &str) -> &'static str {
    if credential == "none" { "; log in with `docker login`, or add a pull secret" } else { "" }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space on the volume, or lower the store's budget"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; components that it has can be loaded, but mount it writable to fetch more"
        }
        _ => "",
    }
}

impl Error {
    /// Whether another attempt can succeed. Only what the operator wrote and what has the right digest is bad for good: every other
    /// answer may be that of a proxy in between, such as a captive portal.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Reference { .. }
            | Self::Policy { .. }
            | Self::Settings { .. }
            | Self::Untrusted { .. }
            | Self::NotComponent { .. } => Retry::Never,
            Self::Answer { after, .. } => Retry::Later(*after),
            // What is missing or refused may be pushed or allowed at any time, and damage may be repaired.
            Self::File { .. }
            | Self::TooLarge { .. }
            | Self::Misled { .. }
            | Self::Corrupt { .. }
            | Self::NotFound { .. }
            | Self::Unauthorized { .. }
            | Self::Credential { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Protocol { .. }
            | Self::Store { .. }
            | Self::NotStored { .. } => Retry::Later(None),
            Self::Everywhere { each } => {
                let soonest = each.iter().map(Self::retry).find(|retry| *retry != Retry::Never);
                soonest.unwrap_or(Retry::Never)
            }
        }
    }

    /// The value of the `result` label in metrics: one of a fixed set.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Reference { .. } => "reference",
            Self::Policy { .. } => "policy",
            Self::Settings { .. } => "settings",
            Self::Untrusted { .. } => "untrusted",
            Self::File { .. } => "file",
            Self::NotComponent { .. } => "not_component",
            Self::Corrupt { .. } => "corrupt",
            Self::TooLarge { .. } => "too_large",
            Self::NotFound { .. } => "not_found",
            Self::Unauthorized { .. } => "unauthorized",
            Self::Credential { .. } => "credential",
            Self::Misled { .. } => "misled",
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Answer { .. } => "answer",
            Self::Protocol { .. } => "protocol",
            Self::Everywhere { each } => each.last().map_or("unreachable", Self::label),
            Self::Store { .. } => "store",
            Self::NotStored { .. } => "not_stored",
        }
    }
}
