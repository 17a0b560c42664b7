//! How a gate reaches its cloud from the operator's network: which certificate authorities it trusts in addition to the
//! system's, and through which proxy it connects. Only the document sets these, so a stray environment variable can't send
//! a credential elsewhere.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;

use crate::error::Error;
use crate::request::{Host, default_port};
use crate::secret::Secret;

/// How a gate reaches its cloud.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// A file of certificates in PEM form, which are trusted in addition to the system's. It is read when the gate is made,
    /// and again while it is used.
    pub extra_roots: Option<PathBuf>,
    /// The proxy for all connections, if the network allows no others.
    pub proxy: Option<Proxy>,
}

/// A proxy that accepts `CONNECT`. Every request goes through it in a tunnel, including those without TLS.
///
/// A proxy weakens the address filter. The proxy resolves names, so the gate doesn't see their addresses: the filter then
/// applies to targets that are written as addresses, and to the proxy itself. To which addresses a granted *name* may lead
/// is up to the proxy's own rules.
///
/// The proxy can read and answer a request without TLS, including a credential with `plain: true`.
///
/// A target that is written as an address of this machine or its link, as metadata services are, never goes through a
/// proxy, which would reach its own.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// Its URL.
    pub url: ProxyUrl,
    /// The login for the proxy. It is sent only to the proxy.
    pub login: Option<Login>,
    /// The address ranges beyond the internet's to which its name may resolve, as in a grant.
    pub addresses: Vec<IpNet>,
}

/// A user name and a password (RFC 7617). The password is read again for each connection.
#[derive(Debug, Clone)]
pub struct Login {
    pub(crate) username: String,
    pub(crate) password: Secret,
}

impl Login {
    /// The login of this user.
    ///
    /// # Errors
    /// [`Error::Syntax`] for a user name that can't be sent.
    pub fn new(username: &str, password: Secret) -> Result<Self, Error> {
        // A colon would end the user name early.
        if username.is_empty() || username.contains(|c: char| c == ':' || c.is_control()) {
            return Err(Error::Syntax {
                kind: "user name",
                // The text after a colon is usually the password.
                text: username.split(':').next().unwrap_or_default().to_owned(),
                cause: "is empty or holds a colon or a control character",
                example: "pileus",
            });
        }
        Ok(Self { username: username.to_owned(), password })
    }
}

/// The URL of a proxy, as in `http://proxy.corp:3128`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl FromStr for ProxyUrl {
    type Err = Error;

    /// # Errors
    /// [`Error::Syntax`].
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |text: &str, cause| Error::Syntax {
            kind: "proxy",
            text: text.to_owned(),
            cause,
            example: "http://proxy.corp:3128",
        };
        if text.contains('@') {
            // It usually holds a password, so it isn't repeated.
            return Err(wrong("", "holds a user name, which belongs in `username`"));
        }
        let url = url::Url::parse(text).map_err(|_| wrong(text, "isn't a URL"))?;
        if url.scheme() != "http" {
            return Err(wrong(text, "must use http; what goes through the tunnel has its own TLS"));
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong(text, "has more than scheme, host and port"));
        }
        let host = Host::parse(url.host_str().unwrap_or_default()).map_err(|cause| wrong(text, cause))?;
        Ok(Self { host, port: url.port().unwrap_or(default_port(false)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_plain_url_of_a_host_and_a_port() {
        let rows = [
            ("http://proxy.corp:3128", Some("http://proxy.corp:3128")),
            ("http://Proxy.Corp.:3128/", Some("http://proxy.corp:3128")),
            ("http://proxy.corp", Some("http://proxy.corp:80")),
            ("HTTP://10.1.2.3:8080", Some("http://10.1.2.3:8080")),
            ("http://[fd00::1]:3128", Some("http://[fd00::1]:3128")),
            ("https://proxy.corp:3128", None),
            ("socks5://proxy.corp:1080", None),
            ("proxy.corp:3128", None),
            ("http://proxy.corp:3128/path", None),
            ("http://proxy.corp:3128?a=b", None),
            ("http://:3128", None),
            ("", None),
        ];
        for (text, expected) in rows {
            let found = text.parse::<ProxyUrl>();
            match expected {
                Some(expected) => assert_eq!(found.unwrap().to_string(), expected, "{text}"),
                None => assert!(matches!(found, Err(Error::Syntax { .. })), "{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_password_in_a_url_a_user_name_or_a_host_is_refused_and_not_repeated() {
        let refusal = "http://user:hunter2@proxy.corp:3128".parse::<ProxyUrl>().unwrap_err().to_string();
        assert!(!refusal.contains("hunter2") && refusal.contains("user name"), "{refusal}");
        let password = std::sync::Arc::new(crate::SecretFile::new("/password"));
        let refusal = Login::new("user:hunter2", password).unwrap_err().to_string();
        assert!(!refusal.contains("hunter2") && refusal.contains("\"user\""), "{refusal}");
        let refusal = "user:hunter2@api.example".parse::<crate::HostPattern>().unwrap_err().to_string();
        assert!(!refusal.contains("hunter2") && refusal.contains("api.example"), "{refusal}");
    }
}
