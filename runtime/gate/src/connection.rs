//! How a gate gets to its cloud from the operator's network: whom it trusts beside the system's authorities, and through
//! which proxy it goes. Both are said in the document and nowhere else: an environment variable that somebody left behind
//! sends no credential elsewhere.

use std::{fmt, path::PathBuf, str::FromStr};

use ipnet::IpNet;

use crate::{
    credentials::Secret,
    error::Error,
    request::{Host, default_port},
};

/// How a gate gets to its cloud.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    /// A file of certificates in PEM form. Their owners are trusted beside the authorities of the system; it is read
    /// once, when the gate is made.
    pub extra_roots: Option<PathBuf>,
    /// Through which everything goes, where the network lets nothing else out.
    pub proxy: Option<Proxy>,
}

/// A proxy that takes `CONNECT`. Every request goes through it in a tunnel, those without TLS too.
///
/// What is lost: a name is resolved by the proxy, so nobody here sees its addresses. The address filter then holds
/// for targets that are written as addresses and for the proxy itself; which addresses a granted *name* leads to is for
/// the proxy's own rules to bound. Without a proxy nothing is lost.
///
/// What goes through it without TLS can be read and answered by it, a credential with `plain: true` included.
///
/// Targets that are written as addresses of the machine itself or of its own link, as metadata services are, never go
/// through a proxy: it would reach its own.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// Where it is.
    pub url: ProxyUrl,
    /// Who the gate is to the proxy. It is sent to nobody else.
    pub login: Option<Login>,
    /// The address ranges beyond the internet's that its name may resolve to, as those of a grant.
    pub addresses: Vec<IpNet>,
}

/// A user name and a password (RFC 7617). The password is read anew for each connection.
#[derive(Debug, Clone)]
pub struct Login {
    pub(crate) username: String,
    pub(crate) password: Secret,
}

impl Login {
    /// The login of this user.
    ///
    /// Errors: [`Error::Syntax`] for a user name that can't be sent.
    pub fn new(username: &str, password: Secret) -> Result<Self, Error> {
        // A colon would end it early.
        if username.is_empty() || username.contains(|c: char| c == ':' || c.is_control()) {
            return Err(Error::Syntax {
                kind: "user name",
                // What follows a colon is the password more often than not.
                text: username.split(':').next().unwrap_or_default().to_owned(),
                cause: "is empty or holds a colon or a control character",
                example: "pileus",
            });
        }
        Ok(Self { username: username.to_owned(), password })
    }
}

/// Where a proxy is, as in `http://proxy.corp:3128`.
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

    /// Errors: [`Error::Syntax`].
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |text: &str, cause| Error::Syntax {
            kind: "proxy",
            text: text.to_owned(),
            cause,
            example: "http://proxy.corp:3128",
        };
        if text.contains('@') {
            // A password, more often than not, so it isn't repeated.
            return Err(wrong("", "comes with a user name, which has a field of its own"));
        }
        let url = url::Url::parse(text).map_err(|_| wrong(text, "is no URL"))?;
        if url.scheme() != "http" {
            return Err(wrong(
                text,
                "must be spoken to by http; what goes through the tunnel has its own TLS",
            ));
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
