//! Where a request goes: an origin and a path. A registry names further places by URL, for downloads and for tokens; these
//! are read here, and refused where following them would give up what the first request had. Pure.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

/// Scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) tls: bool,
    /// A name in lower case, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

/// An origin, and what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) origin: Origin,
    /// The path and the query, which may hold a signature and is never shown.
    pub(super) path: String,
}

impl Origin {
    /// The origin of a registry. `text` is a host with an optional port, as the parser of references accepts it.
    pub(super) fn of_registry(text: &str, plain_http: Option<bool>) -> Option<Self> {
        let text = if text == "docker.io" { "registry-1.docker.io" } else { text };
        let url = Url::parse(&format!("http://{text}/")).ok()?;
        let host = host_of(&url)?;
        let tls = !plain_http.unwrap_or_else(|| is_loopback(&host));
        // The parser of URLs drops a port that is the default of the scheme.
        let written = url.port().or_else(|| text.ends_with(":80").then_some(80));
        Some(Self { tls, host, port: written.unwrap_or(if tls { 443 } else { 80 }) })
    }

    /// A path at this origin.
    pub(super) fn at(&self, path: impl Into<String>) -> Target {
        Target { origin: self.clone(), path: path.into() }
    }

    /// The value of the header `Host`.
    pub(super) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == if self.tls { 443 } else { 80 } { host } else { format!("{host}:{}", self.port) }
    }

    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }
}

/// Whether a host means this machine by its very name.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

impl Target {
    /// The place that an answer leads to, absolute or relative. The error says why it isn't followed.
    pub(super) fn follow(&self, location: &str) -> Result<Self, &'static str> {
        let base =
            Url::parse(&format!("{}{}", self.origin, self.path)).map_err(|_| "its own URL can't be read")?;
        let next = Self::parse(base.join(location).map_err(|_| "it is not a URL")?.as_str())?;
        if self.origin.tls && !next.origin.tls {
            return Err("it leaves TLS");
        }
        Ok(next)
    }

    /// Reads an absolute URL.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "it is not a URL")?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err("it is neither http nor https"),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it contains a login");
        }
        let host = host_of(&url).ok_or("it has no host")?;
        let port = url.port_or_known_default().ok_or("it has no port")?;
        let query = url.query().map_or(String::new(), |query| format!("?{query}"));
        Ok(Self { origin: Origin { tls, host, port }, path: format!("{}{query}", url.path()) })
    }
}

fn host_of(url: &Url) -> Option<String> {
    match url.host()? {
        Host::Domain(name) => Some(name.trim_end_matches('.').to_owned()),
        Host::Ipv4(address) => Some(address.to_string()),
        Host::Ipv6(address) => Some(address.to_string()),
    }
}

/// Whether a registry's tokens may come from a host: from its own, from one that the operator lists, or from a neighbor in
/// the same domain, as `auth.docker.io` is of `registry-1.docker.io`, and `gitlab.com` of `registry.gitlab.com`.
pub(super) fn may_issue_tokens(registry: &str, host: &str, listed: &[String]) -> bool {
    if registry == host || listed.iter().any(|listed| listed == host) {
        return true;
    }
    let domain = registry.split_once('.').map_or("", |(_, domain)| domain);
    let is_domain = domain.contains('.') && registry.parse::<IpAddr>().is_err();
    is_domain && (host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

impl fmt::Display for Target {
    /// Without the query, which may hold a signature.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.split('?').next().unwrap_or_default();
        write!(f, "{}{}", self.origin, path.chars().take(200).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_reached_over_tls_unless_it_is_on_loopback_or_plain_http_is_allowed() {
        for (registry, plain, expected) in [
            ("ghcr.io", None, "https://ghcr.io"),
            ("ghcr.io:8443", None, "https://ghcr.io:8443"),
            ("docker.io", None, "https://registry-1.docker.io"),
            ("localhost", None, "http://localhost"),
            ("127.0.0.1:5000", None, "http://127.0.0.1:5000"),
            ("[::1]:5000", None, "http://[::1]:5000"),
            ("127.0.0.1:5000", Some(false), "https://127.0.0.1:5000"),
            ("registry.corp:80", None, "https://registry.corp:80"),
            ("registry.corp:5000", Some(true), "http://registry.corp:5000"),
        ] {
            assert_eq!(Origin::of_registry(registry, plain).unwrap().to_string(), expected, "{registry}");
        }
    }

    #[test]
    fn a_location_is_followed_unless_it_leaves_tls_or_could_mislead() {
        let from = Origin::of_registry("r.example", None).unwrap().at("/v2/a/blobs/x?y=1");
        for (location, expected) in [
            ("https://cdn.example/b?signature=1", Ok("https://cdn.example/b?signature=1")),
            ("/b", Ok("https://r.example/b")),
            ("?z=2", Ok("https://r.example/v2/a/blobs/x?z=2")),
            ("//evil.example/b", Ok("https://evil.example/b")),
            ("https://[fd00::1]:8443/b", Ok("https://[fd00::1]:8443/b")),
            ("https://2852039166/b", Ok("https://169.254.169.254/b")),
            ("http://cdn.example/b", Err("it leaves TLS")),
            ("https://user:pw@cdn.example/b", Err("it contains a login")),
            ("ftp://cdn.example/b", Err("it is neither http nor https")),
            ("https://", Err("it is not a URL")),
        ] {
            let found = from.follow(location).map(|target| format!("{}{}", target.origin, target.path));
            assert_eq!(found.as_deref().map_err(|cause| *cause), expected, "{location}");
        }
        let shown = from.follow("https://cdn.example/b?signature=1").unwrap().to_string();
        assert_eq!(shown, "https://cdn.example/b");
    }

    #[test]
    fn tokens_come_from_the_registry_or_from_its_neighbors() {
        let listed = ["login.corp.example".to_owned()];
        for (registry, host, expected) in [
            ("ghcr.io", "ghcr.io", true),
            ("registry-1.docker.io", "auth.docker.io", true),
            ("registry.gitlab.com", "gitlab.com", true),
            ("a.b.azurecr.io", "x.b.azurecr.io", true),
            ("registry.example.org", "login.corp.example", true),
            ("ghcr.io", "evil.io", false),
            ("ghcr.io", "io", false),
            ("registry.gitlab.com", "evilgitlab.com", false),
            ("registry.gitlab.com", "gitlab.com.evil.org", false),
            ("127.0.0.1", "1.0.0.1", false),
            ("10.0.0.1", "11.0.0.1", false),
            ("localhost", "169.254.169.254", false),
        ] {
            assert_eq!(may_issue_tokens(registry, host, &listed), expected, "{registry} {host}");
        }
    }
}
