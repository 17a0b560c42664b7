//! Why the gate refuses a request or fails to carry it. The variants differ in what the caller does about them: the host
//! turns each into the error code that the provider sees, and its message tells the operator what to do next. No message
//! holds a query, a header value or a part of a body, since these carry secrets.
//!
//! The small reason types below are a part of it, so that stages depend on their errors and not the other way round.

mod address;
mod grant;
mod phase;
mod tunnel;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::problem::Problem;
pub use address::BlockReason;
pub(crate) use address::Blocked;
pub use grant::MissingGrant;
pub use phase::Phase;
pub use tunnel::TunnelError;

/// Why a request wasn't carried, or its response not delivered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A host, method, path or key in a document or in a provider's settings is malformed. Fatal at load; no request
    /// causes it.
    #[error("{kind} {text:?} isn't valid: it {cause}; write it as in {example}")]
    Syntax {
        /// What was to be read, as in `host`.
        kind: &'static str,
        /// The text as it was given.
        text: String,
        /// What is wrong, as a verb phrase.
        cause: &'static str,
        /// Valid examples.
        example: &'static str,
    },
    /// The configuration of the gate is invalid. Fatal at load; no request causes it.
    #[error("the CloudProvider document or the provider's settings are invalid:{}", Problem::list(problems))]
    Config {
        /// Every mistake.
        problems: Vec<Problem>,
    },
    /// The system has no certificates to check a cloud's with. Fatal at load.
    #[error(
        "can't load the system's trust roots: {source}; install ca-certificates or set SSL_CERT_FILE to a bundle"
    )]
    Roots {
        /// The loader's error.
        source: Arc<io::Error>,
    },
    /// The certificates in the operator's bundle can't be used. Fatal at load.
    #[error(
        "can't use the certificates in {}: {cause}; `caBundle` in the CloudProvider document must name a file of whole \
         certificates in PEM form", file.display()
    )]
    ExtraRoots {
        /// The bundle.
        file: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The request can be read in more than one way, or its sender left it unfinished. The provider must send another.
    #[error("request refused: its {part} {found:?} {cause}")]
    Malformed {
        /// The part, as in `path`.
        part: &'static str,
        /// The offending text, cut to a sane length; empty where it could hold a secret.
        found: String,
        /// What is wrong and what would be right, as a verb phrase.
        cause: String,
    },
    /// No grant allows the request. Only the operator can change that; another attempt can't.
    #[error("{method} {url} isn't granted to provider {provider}: {missing}")]
    Denied {
        /// The provider that sent it.
        provider: String,
        /// Its method.
        method: String,
        /// Its scheme, host, port and path.
        url: String,
        /// What the grants lack, and so what to add.
        missing: MissingGrant,
    },
    /// The request may change something, and its call may only read. The provider must send it in another call, or call it a
    /// read.
    #[error(
        "{method} {url} of provider {provider} is denied: {function} may only read; if the request changes nothing, a rule \
         of the provider must call it a read"
    )]
    ReadOnly {
        /// The provider that sent it.
        provider: String,
        /// Its method.
        method: String,
        /// Its scheme, host, port and path.
        url: String,
        /// The function that was called.
        function: &'static str,
    },
    /// The host has only addresses that the grant doesn't open.
    #[error(
        "every address of {host} is blocked ({}); to allow one, add its range to `addresses` of grant {grant} in the \
         CloudProvider document",
        Blocked(refused)
    )]
    AddressBlocked {
        /// The host of the request.
        host: String,
        /// The label of the grant that allowed the request.
        grant: String,
        /// Every address, and why it isn't dialed.
        refused: Vec<(IpAddr, BlockReason)>,
    },
    /// The request's head is over a limit.
    #[error(
        "request refused: {found} of headers are over the limit of {limit}; send fewer or shorter headers"
    )]
    HeadersTooLarge {
        /// What was found, with its unit.
        found: String,
        /// The limit, with its unit.
        limit: &'static str,
    },
    /// The request's body is over a limit.
    #[error("request refused: its body is over {limit}; send it in parts")]
    BodyTooLarge {
        /// The limit, with its unit.
        limit: String,
    },
    /// The soft deadline of the call has passed. The request wasn't sent; the provider should return what it has.
    #[error("request not sent: the call's soft deadline has passed")]
    DeadlinePassed,
    /// The credential for the request isn't available. The request wasn't sent; a later attempt can succeed.
    #[error("request not sent: there is no valid credential {credential}: {cause}")]
    Credential {
        /// Its name in the document.
        credential: String,
        /// Why it couldn't be acquired, without anything secret.
        cause: String,
    },
    /// This process must not change anything now: it isn't the leader, or is shutting down. The request wasn't sent;
    /// another replica does the work.
    #[error("change not sent: this replica is not the leader, or is shutting down")]
    Fenced,
    /// The gate is closed, because the process is shutting down. The request wasn't sent, or it was a read, whose response
    /// isn't waited for.
    #[error("request aborted: the process is shutting down")]
    Closed,
    /// The cloud took too long. The request may have had its effect unless the phase is `Connect`.
    #[error("{host} took longer than {after:?} {phase}")]
    Timeout {
        /// What the gate waited for.
        phase: Phase,
        /// The host of the request.
        host: String,
        /// How long the gate waited.
        after: Duration,
    },
    /// The name of the host has no address. The request wasn't sent.
    #[error("can't resolve {host}: {source}; check the name and the cluster's DNS")]
    Dns {
        /// The host of the request.
        host: String,
        /// The resolver's error.
        source: Arc<io::Error>,
    },
    /// None of the host's addresses accepted a connection. The request wasn't sent.
    #[error("can't connect to {host}: {source}")]
    Connect {
        /// The host of the request.
        host: String,
        /// The error of the last address.
        source: Arc<io::Error>,
    },
    /// The proxy didn't let the request through. The request wasn't sent, and nothing of this came from the host.
    #[error("can't reach {host} through proxy {proxy}: {cause}")]
    Proxy {
        /// The proxy, as in `http://proxy.corp:3128`.
        proxy: String,
        /// The host of the request.
        host: String,
        /// Why.
        cause: TunnelError,
    },
    /// The host's certificate isn't valid for it, or the host doesn't speak TLS. The request wasn't sent.
    #[error(
        "TLS with {host} failed: {source}; check its certificate, the trust roots and `tls` of the grant"
    )]
    Tls {
        /// The host of the request.
        host: String,
        /// The TLS library's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The response is over a limit. The request has had its effect.
    #[error("response of {host} refused: its {part} is over {limit}; request less at a time")]
    ResponseTooLarge {
        /// The host of the request.
        host: String,
        /// `head` or `body`.
        part: &'static str,
        /// The limit, with its unit.
        limit: String,
    },
    /// The response shows the credential that the request carried. The request has had its effect.
    #[error(
        "response of {host} refused: it repeats the credential that the gate attached; don't grant a path that returns \
         the headers of a request"
    )]
    CredentialEchoed {
        /// The host of the request.
        host: String,
    },
    /// The response can't be searched for the credential that the request carried. The request has had its effect.
    #[error(
        "response of {host} refused: it {cause}, so the gate can't search it for the credential that it attached"
    )]
    Unsearchable {
        /// The host of the request.
        host: String,
        /// What it is, as a verb phrase.
        cause: &'static str,
    },
    /// The connection broke, or what came back isn't HTTP. The request may have had its effect.
    #[error("exchange with {host} broke off: {source}")]
    Protocol {
        /// The host of the request.
        host: String,
        /// The HTTP library's error.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Whether the request surely never left, so that the cloud can't have counted it.
    pub(crate) fn is_before_sending(&self) -> bool {
        match self {
            Self::Syntax { .. }
            | Self::Config { .. }
            | Self::Roots { .. }
            | Self::ExtraRoots { .. }
            | Self::Malformed { .. }
            | Self::Denied { .. }
            | Self::ReadOnly { .. }
            | Self::AddressBlocked { .. }
            | Self::HeadersTooLarge { .. }
            | Self::BodyTooLarge { .. }
            | Self::DeadlinePassed
            | Self::Credential { .. }
            | Self::Fenced
            | Self::Dns { .. }
            | Self::Connect { .. }
            | Self::Proxy { .. }
            | Self::Tls { .. } => true,
            Self::Timeout { phase, .. } => *phase == Phase::Connect,
            Self::Closed
            | Self::ResponseTooLarge { .. }
            | Self::CredentialEchoed { .. }
            | Self::Unsearchable { .. }
            | Self::Protocol { .. } => false,
        }
    }

    /// The value of the `result` label in metrics: one of a fixed set.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "syntax",
            Self::Config { .. } => "config",
            Self::Roots { .. } => "roots",
            Self::ExtraRoots { .. } => "extra_roots",
            Self::Malformed { .. } => "malformed",
            Self::Denied { .. } => "denied",
            Self::ReadOnly { .. } => "read_only",
            Self::AddressBlocked { .. } => "address_blocked",
            Self::HeadersTooLarge { .. } => "headers_too_large",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::DeadlinePassed => "deadline_passed",
            Self::Credential { .. } => "credential_error",
            Self::Fenced => "fenced",
            Self::Closed => "closed",
            Self::Timeout { .. } => "timeout",
            Self::Dns { .. } => "dns_error",
            Self::Connect { .. } => "connect_error",
            Self::Proxy { .. } => "proxy_error",
            Self::Tls { .. } => "tls_error",
            Self::ResponseTooLarge { .. } => "response_too_large",
            Self::CredentialEchoed { .. } => "credential_shown",
            Self::Unsearchable { .. } => "unsearchable",
            Self::Protocol { .. } => "protocol_error",
        }
    }
}
