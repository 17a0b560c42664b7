//! The URL of a token endpoint.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::error::Error;
use crate::request::{Host, Request};

/// The URL of a token endpoint: scheme, host, port and path, without user name, query and fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUrl(pub(crate) Request);

impl FromStr for TokenUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |text: &str, cause| Error::Syntax {
            kind: "token URL",
            text: text.to_owned(),
            cause,
            example: "https://login.example.com/TENANT/oauth2/v2.0/token",
        };
        if text.contains(['?', '#', '@']) {
            // These parts often contain secrets, so the message repeats nothing.
            return Err(wrong("", "has a user name, a query or a fragment"));
        }
        let uri = text.parse().map_err(|_| wrong(text, "is not a URL"))?;
        Request::parse(&http::Method::POST, &uri)
            .map(Self)
            .map_err(|_| wrong(text, "is not an http or https URL with a host and a path"))
    }
}

impl fmt::Display for TokenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.url())
    }
}

impl TokenUrl {
    /// The URL of this path, which is canonical, at a host without TLS.
    pub(crate) fn plain(host: &Host, port: u16, path: &str) -> Self {
        let (method, host, path) = (http::Method::PUT, host.clone(), path.to_owned());
        Self(Request { method, tls: false, host, port, path, query: None })
    }

    /// The address, if the host is one.
    pub(crate) fn literal(&self) -> Option<IpAddr> {
        match self.0.host {
            Host::Ip(address) => Some(address),
            Host::Name(_) => None,
        }
    }
}
