//! What can go wrong on the way to a cloud, told apart by what the caller does about it: the host turns each variant
//! into the error code that the guest sees, and a message names the thing and the next step for the operator. No
//! message holds a query string, a header value or a part of a body, since these carry secrets.

use std::{fmt, io, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use crate::{address::Reason, problem::Problem, proxy::NoTunnel};

/// Why a request wasn't carried or its answer not delivered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A host, method, path or key in a document or in a provider's settings isn't written as it must be. Fatal at
    /// load; no request causes it.
    #[error("{kind} {text:?} isn't valid: it {cause}; write it as in {example}")]
    Syntax {
        /// What was to be read, as in `host`.
        kind: &'static str,
        /// The text as it was given.
        text: String,
        /// What is wrong, as a verb phrase.
        cause: &'static str,
        /// Examples of right ones.
        example: &'static str,
    },
    /// What the gate is to be made from isn't right. Fatal at load; no request causes it.
    #[error(
        "no gate can be made of the CloudProvider document and the provider's settings:{}",
        Problem::list(problems)
    )]
    Config {
        /// All that is wrong.
        problems: Vec<Problem>,
    },
    /// The machine has no certificates to check a cloud's with. Fatal at load.
    #[error(
        "trust roots of the system couldn't be loaded: {source}; install ca-certificates or let SSL_CERT_FILE name a \
         bundle"
    )]
    Roots {
        /// What the loader said.
        source: Arc<io::Error>,
    },
    /// The certificates of the operator's bundle can't be used. Fatal at load.
    #[error(
        "certificates in {} couldn't be used: {cause}; `caBundle` in the CloudProvider document names a file of whole \
         certificates in PEM form", file.display()
    )]
    ExtraRoots {
        /// The bundle.
        file: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The request has no one meaning, or was left unfinished by its sender. The provider must send another.
    #[error("request refused: its {part} {found:?} {cause}")]
    Malformed {
        /// The part, as in `path`.
        part: &'static str,
        /// The offending text, cut to a sane length; empty where it could hold a secret.
        found: String,
        /// What is wrong and what would be right, as a verb phrase.
        cause: String,
    },
    /// No grant allows the request. Trying again can't help; the operator can.
    #[error("{method} {url} isn't granted to provider {provider}: {missing}")]
    Denied {
        /// The provider that wished it.
        provider: String,
        /// The method that was wished.
        method: String,
        /// Scheme, host, port and path that were wished.
        url: String,
        /// What the grants lack, and with it what to add.
        missing: Missing,
    },
    /// The host has only addresses that the grant doesn't open.
    #[error(
        "{host} has no address that may be dialled ({}); if it is meant, add the range to `addresses` of grant {grant} \
         in the CloudProvider document",
        Refused(refused)
    )]
    AddressBlocked {
        /// The host of the request.
        host: String,
        /// The label of the grant that allowed the request.
        grant: String,
        /// Every address and why it isn't dialled.
        refused: Vec<(IpAddr, Reason)>,
    },
    /// The request's head is over a limit.
    #[error("request refused: {found} of headers where {limit} are carried; send fewer or shorter ones")]
    HeadersTooLarge {
        /// What was found, with its unit.
        found: String,
        /// What is carried at most, with its unit.
        limit: &'static str,
    },
    /// The request's body is over a limit.
    #[error("request refused: its body is over {limit}; send it in parts")]
    BodyTooLarge {
        /// The limit, with its unit.
        limit: String,
    },
    /// The soft deadline of the call is past. The request wasn't sent; the provider should answer what it has.
    #[error("request not sent: the call's time for new requests is over")]
    DeadlinePassed,
    /// The credential for the request can't be had now. The request wasn't sent; trying again later can help.
    #[error("request not sent: there is no valid credential {credential}: {cause}")]
    Credential {
        /// Its name in the document.
        credential: String,
        /// Why it couldn't be acquired, without anything secret.
        cause: String,
    },
    /// This process may not change anything now: it isn't the leader (any more), or it is about to end. The request wasn't
    /// sent, and another process does the work.
    #[error(
        "change not sent: this process may not change anything now, as it does not lead or is about to end"
    )]
    Fenced,
    /// The gate takes no requests any more, since the process is about to end. The request wasn't sent, or it was a read
    /// and its answer isn't waited for.
    #[error("request given up: the process is about to end")]
    Closed,
    /// The cloud took too long. The request may have had its effect unless the phase is `Connect`.
    #[error("{host} took longer than {after:?} {phase}")]
    Timeout {
        /// What was waited for.
        phase: Phase,
        /// The host of the request.
        host: String,
        /// How long it was waited.
        after: Duration,
    },
    /// The name of the host has no address. The request wasn't sent.
    #[error("name {host} wasn't resolved: {source}; check the name and the cluster's DNS")]
    Dns {
        /// The host of the request.
        host: String,
        /// What the resolver said.
        source: Arc<io::Error>,
    },
    /// None of the host's addresses took a connection. The request wasn't sent.
    #[error("{host} took no connection: {source}")]
    Connect {
        /// The host of the request.
        host: String,
        /// What the last address said.
        source: Arc<io::Error>,
    },
    /// The proxy didn't let the request through. The request wasn't sent, and nothing of this is the host's answer.
    #[error("{host} wasn't reached through proxy {proxy}: {cause}")]
    Proxy {
        /// The proxy, as in `http://proxy.corp:3128`.
        proxy: String,
        /// The host of the request.
        host: String,
        /// Why.
        cause: NoTunnel,
    },
    /// The host isn't who the request was for, or doesn't speak TLS. The request wasn't sent.
    #[error(
        "TLS with {host} failed: {source}; check its certificate, the trust roots and `tls` of the grant"
    )]
    Tls {
        /// The host of the request.
        host: String,
        /// What the TLS library said.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The answer is over a limit. The request has had its effect.
    #[error("answer of {host} refused: its {part} is over {limit}; ask for less at a time")]
    ResponseTooLarge {
        /// The host of the request.
        host: String,
        /// `head` or `body`.
        part: &'static str,
        /// The limit, with its unit.
        limit: String,
    },
    /// The answer shows the credential that the request carried. The request has had its effect.
    #[error(
        "answer of {host} refused: it repeats the credential that the gate attached; grant no path that shows the \
         headers of a request"
    )]
    Echo {
        /// The host of the request.
        host: String,
    },
    /// The connection broke, or what came back isn't HTTP. The request may have had its effect.
    #[error("exchange with {host} broke off: {source}")]
    Protocol {
        /// The host of the request.
        host: String,
        /// What the HTTP library said.
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
            Self::Closed | Self::ResponseTooLarge { .. } | Self::Echo { .. } | Self::Protocol { .. } => false,
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
            Self::Echo { .. } => "credential_shown",
            Self::Protocol { .. } => "protocol_error",
        }
    }
}

/// What the grants lack for a request. Its text says what to add to the CloudProvider document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No grant names this endpoint.
    Endpoint {
        /// Whether it was to be spoken to over TLS.
        tls: bool,
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A grant names the endpoint, but none with this path.
    Path {
        /// The label of the first grant that names the endpoint.
        grant: String,
    },
    /// A grant names endpoint and path, but none the method as well.
    Method {
        /// The label of the first grant that names endpoint and path.
        grant: String,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint { tls, host, port } => write!(
                f,
                "no grant names it; if it is meant, add a grant with `tls: {tls}`, `host: \"{host}\"` and `port: \
                 {port}` to the CloudProvider document"
            ),
            Self::Path { grant } => write!(
                f,
                "grant {grant} doesn't open the path; if it is meant, add a prefix of it to `paths` of the grant in \
                 the CloudProvider document"
            ),
            Self::Method { grant } => write!(
                f,
                "grant {grant} doesn't open the method; if it is meant, add it to `methods` of the grant in the \
                 CloudProvider document"
            ),
        }
    }
}

/// What the gate was waiting for when the time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A connection: name, address and TLS. The request hasn't left.
    Connect,
    /// The head of the answer.
    FirstByte,
    /// The next part of the answer's body.
    BetweenBytes,
    /// Anything, when the call's hard deadline came.
    Call,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "to connect",
            Self::FirstByte => "to begin its answer",
            Self::BetweenBytes => "to go on with its answer",
            Self::Call => "for what was left of the call",
        })
    }
}

/// Addresses that aren't dialled, as text.
pub(crate) struct Refused<'a>(pub(crate) &'a [(IpAddr, Reason)]);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A hostile answer may hold hundreds of addresses; a reader learns nothing from the ninth.
        for (position, (address, reason)) in self.0.iter().take(8).enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{address} is {reason}")?;
        }
        Ok(())
    }
}
