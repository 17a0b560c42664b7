//! Proxies that the environment names, for registries and for the API server. Pure: the environment is an argument.
//!
//! It decides as in Go's `net/http`, and so as for containerd, docker and kubectl: `HTTPS_PROXY` is for `https` and
//! `HTTP_PROXY` for `http`, `NO_PROXY` lists what is reached directly, each also in lower case, and this machine is always
//! reached directly. `ALL_PROXY` has no meaning in Go, so it has none here. `tunnel` speaks to a proxy.

mod tunnel;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use url::Url;
use zeroize::Zeroizing;

/// How a proxy is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyScheme {
    /// `CONNECT` without TLS.
    Http,
    /// `CONNECT` over TLS.
    Https,
    /// SOCKS version 5. The proxy resolves names.
    Socks5,
}

/// A proxy. `Display` shows its URL without the login, and `Debug` no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    scheme: ProxyScheme,
    /// With brackets where it is an IPv6 address.
    host: String,
    port: u16,
    /// User name and password.
    login: Option<(String, Zeroizing<String>)>,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port, login: _ } = self;
        write!(f, "{}://{host}:{port}", scheme.as_str())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ProxyScheme {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5 => "socks5",
        }
    }
}

impl Proxy {
    /// Parses a proxy as Go does: without a scheme it is `http`.
    ///
    /// # Errors
    /// What is wrong. The text isn't repeated, because it may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let has_host = |url: &Url| url.has_host() && url.host_str().is_some_and(|host| !host.is_empty());
        let url = Url::parse(text).ok().filter(has_host);
        let plain = || {
            Url::parse(&format!("http://{text}")).ok().filter(|url| !text.contains("://") && has_host(url))
        };
        let url = url.or_else(plain);
        let url = url.ok_or("not a URL; write it as in http://proxy.corp:3128")?;
        let (scheme, default_port) = match url.scheme() {
            "http" => (ProxyScheme::Http, 80),
            "https" => (ProxyScheme::Https, 443),
            "socks5" | "socks5h" => (ProxyScheme::Socks5, 1080),
            other => return Err(format!("unsupported scheme {other}; use http, https or socks5")),
        };
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8();
            text.map(Cow::into_owned).map_err(|_| "its login is not UTF-8 text".to_owned())
        };
        let login = if url.username().is_empty() && url.password().is_none() {
            None
        } else {
            let password = decoded(url.password().unwrap_or_default())?;
            Some((decoded(url.username())?, Zeroizing::new(password)))
        };
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port().unwrap_or(default_port);
        let proxy = Self { scheme, host, port, login };
        proxy.to_string().parse::<Uri>().map_err(|error| error.to_string())?;
        Ok(proxy)
    }

    /// How it is spoken to.
    pub fn scheme(&self) -> ProxyScheme {
        self.scheme
    }

    /// Its name, or its address without brackets.
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL without the login.
    pub fn uri(&self) -> Uri {
        self.to_string().parse().unwrap_or_default() // `parse` has tried it
    }
}

/// The proxy settings of the environment: the name and value of each variable that is set. By default none is. `Debug` shows
/// no value, which may have a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    https: Option<(&'static str, String)>,
    http: Option<(&'static str, String)>,
    no_proxy: Option<(&'static str, String)>,
}

impl fmt::Debug for ProxyEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { https, http, no_proxy } = self;
        let set = [https, http, no_proxy].into_iter().flatten().map(|(name, _)| name);
        f.debug_list().entries(set).finish()
    }
}

impl ProxyEnvironment {
    /// Reads the environment. Upper case wins, and an empty variable counts as not set.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&'static str; 2]| {
            names
                .into_iter()
                .find_map(|name| variable(name).filter(|value| !value.is_empty()).map(|value| (name, value)))
        };
        Self {
            https: first(["HTTPS_PROXY", "https_proxy"]),
            http: first(["HTTP_PROXY", "http_proxy"]),
            no_proxy: first(["NO_PROXY", "no_proxy"]),
        }
    }

    /// The proxy for a server, with the variable that names it; none where it is reached directly.
    ///
    /// # Errors
    /// What is wrong with the variable, which the text names.
    pub fn proxy_for(
        &self,
        tls: bool,
        host: &str,
        port: u16,
    ) -> Result<Option<(&'static str, Proxy)>, String> {
        let Some((name, value)) = (if tls { &self.https } else { &self.http }) else { return Ok(None) };
        let exceptions = self.no_proxy.as_ref().map_or("", |(_, value)| value);
        if !is_proxied(host, port, exceptions) {
            return Ok(None);
        }
        Proxy::parse(value).map(|proxy| Some((*name, proxy))).map_err(|problem| format!("{name}: {problem}"))
    }

    /// The variable that names another way to a server than the document does, which alone decides about the cloud. `used` is
    /// the URL of the document's proxy, if it has one.
    pub fn overruled(&self, tls: bool, host: &str, port: u16, used: Option<&str>) -> Option<&'static str> {
        let (name, _) = (if tls { self.https.as_ref() } else { self.http.as_ref() })?;
        match self.proxy_for(tls, host, port) {
            Ok(Some((_, proxy))) => (used != Some(proxy.to_string().as_str())).then_some(*name),
            Ok(None) => {
                let is_excepted = is_proxied(host, port, "");
                self.no_proxy.as_ref().filter(|_| is_excepted && used.is_some()).map(|(name, _)| *name)
            }
            Err(_) => Some(*name),
        }
    }
}

/// Whether a server is reached through a proxy, given the value of `NO_PROXY`: Go's `golang.org/x/net/http/httpproxy`.
fn is_proxied(host: &str, port: u16, no_proxy: &str) -> bool {
    let host = host.trim().trim_start_matches('[').trim_end_matches(']').to_lowercase();
    let ip = host.parse::<IpAddr>().ok();
    if host == "localhost" || ip.is_some_and(|ip| ip.to_canonical().is_loopback()) {
        return false;
    }
    !no_proxy.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let entry = entry.to_lowercase();
        excepts(&entry, &host, ip, port)
    })
}

/// Whether one entry of `NO_PROXY` excepts a server: `*`, a CIDR, an address, or a domain, the last two also with a port.
/// A domain stands for itself and what is below it; with a dot or `*.` before it, only for what is below it.
fn excepts(entry: &str, host: &str, ip: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(range) = entry.parse::<IpNet>() {
        return ip.is_some_and(|ip| range.contains(&ip.to_canonical()));
    }
    let (name, only_port) = match entry.rsplit_once(':') {
        // An IPv6 address without brackets has colons, and no port.
        Some((name, only_port)) if !name.contains(':') || name.ends_with(']') => (name, Some(only_port)),
        _ => (entry, None),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if name.is_empty() || only_port.is_some_and(|only| only.parse() != Ok(port)) {
        return false;
    }
    if let Ok(address) = name.parse::<IpAddr>() {
        return ip.is_some_and(|ip| ip.to_canonical() == address.to_canonical());
    }
    let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables<'a> = &'a [(&'a str, &'a str)];

    fn environment(variables: &[(&str, &str)]) -> ProxyEnvironment {
        ProxyEnvironment::read(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn upper_case_wins_and_this_machine_is_reached_directly() {
        let (https, http) = (("HTTPS_PROXY", "http://a:1"), ("HTTP_PROXY", "http://b:2"));
        let rows: &[(&str, u16, bool, Variables<'_>, Option<&str>)] = &[
            ("ghcr.io", 443, true, &[], None),
            ("ghcr.io", 443, true, &[https, http], Some("http://a:1")),
            ("ghcr.io", 80, false, &[https, http], Some("http://b:2")),
            ("ghcr.io", 80, false, &[https], None),
            ("ghcr.io", 443, true, &[("https_proxy", "http://c:3")], Some("http://c:3")),
            ("ghcr.io", 443, true, &[https, ("https_proxy", "http://c:3")], Some("http://a:1")),
            ("ghcr.io", 443, true, &[("HTTPS_PROXY", ""), ("https_proxy", "c:3")], Some("http://c:3")),
            ("ghcr.io", 443, true, &[("ALL_PROXY", "http://d:4")], None),
            ("ghcr.io", 443, true, &[https, ("NO_PROXY", "ghcr.io")], None),
            ("ghcr.io", 443, true, &[https, ("no_proxy", "ghcr.io")], None),
            ("127.0.0.1", 5000, true, &[https], None),
            ("localhost", 5000, true, &[https], None),
            ("::1", 5000, true, &[https], None),
            ("fd00::1", 443, true, &[https], Some("http://a:1")),
        ];
        for (host, port, tls, variables, expected) in rows {
            let found = environment(variables).proxy_for(*tls, host, *port).unwrap();
            let found = found.map(|(_, proxy)| proxy.to_string());
            assert_eq!(found.as_deref(), *expected, "{host} {variables:?}");
        }
        let planted = environment(&[("HTTPS_PROXY", "ftp://me:planted@a:1")]);
        let error = planted.proxy_for(true, "ghcr.io", 443).unwrap_err();
        assert_eq!(error, "HTTPS_PROXY: unsupported scheme ftp; use http, https or socks5");
        assert_eq!(format!("{planted:?}"), "[\"HTTPS_PROXY\"]");
    }

    #[test]
    fn a_variable_is_overruled_where_it_names_another_way_to_the_cloud() {
        let (https, no_proxy) = (("HTTPS_PROXY", "http://a:1"), ("NO_PROXY", ".corp"));
        let rows: &[(&str, Variables<'_>, Option<&str>, Option<&str>)] = &[
            ("api.example.com", &[], None, None),
            ("api.example.com", &[], Some("http://a:1"), None),
            ("api.example.com", &[https], None, Some("HTTPS_PROXY")),
            ("api.example.com", &[https], Some("http://a:1"), None),
            ("api.example.com", &[("https_proxy", "a:1")], Some("http://a:1"), None),
            ("api.example.com", &[https], Some("http://b:1"), Some("HTTPS_PROXY")),
            ("api.example.com", &[("HTTPS_PROXY", "ftp://a")], None, Some("HTTPS_PROXY")),
            ("api.example.com", &[("HTTP_PROXY", "http://a:1")], None, None),
            ("api.corp", &[https, no_proxy], None, None),
            ("api.corp", &[https, no_proxy], Some("http://a:1"), Some("NO_PROXY")),
            ("api.corp", &[no_proxy], Some("http://a:1"), None),
            ("127.0.0.1", &[https], Some("http://a:1"), None),
        ];
        for (host, variables, used, expected) in rows {
            let found = environment(variables).overruled(true, host, 443, *used);
            assert_eq!(found, *expected, "{host} {variables:?} {used:?}");
        }
    }

    #[test]
    fn exceptions_are_those_of_go() {
        let rows: &[(&str, &str, bool)] = &[
            ("", "api.corp", true),
            (" , ", "api.corp", true),
            ("*", "api.corp", false),
            ("api.corp", "api.corp", false),
            ("API.Corp", "api.corp", false),
            ("corp", "api.corp", false),
            ("corp", "apicorp", true),
            (".corp", "api.corp", false),
            (".api.corp", "api.corp", true),
            ("*.corp", "api.corp", false),
            ("*.api.corp", "api.corp", true),
            ("*corp", "api.corp", true),
            ("other, api.corp", "api.corp", false),
            ("api.corp:6443", "api.corp", false),
            ("api.corp:443", "api.corp", true),
            (":6443", "api.corp", true),
            ("10.0.0.0/8", "10.1.2.3", false),
            ("10.0.0.0/8", "11.1.2.3", true),
            ("10.0.0.0/8", "api.corp", true),
            ("10.1.2.3", "10.1.2.3", false),
            ("10.1.2.3:6443", "10.1.2.3", false),
            ("10.1.2.3:1", "10.1.2.3", true),
            ("fd00::/8", "[fd00::1]", false),
            ("fd00::1", "[fd00::1]", false),
            ("[fd00::1]:6443", "[fd00::1]", false),
            ("[fd00::1]:1", "[fd00::1]", true),
            ("10.96.0.0/12,.svc,.cluster.local", "kubernetes.default.svc", false),
        ];
        for (no_proxy, host, expected) in rows {
            assert_eq!(is_proxied(host, 6443, no_proxy), *expected, "{no_proxy:?} {host}");
        }
    }

    #[test]
    fn a_proxy_is_a_url_or_a_host_and_never_shows_its_login() {
        let rows = [
            ("http://proxy.corp:3128", Ok(("http://proxy.corp:3128", None))),
            ("proxy.corp:3128", Ok(("http://proxy.corp:3128", None))),
            ("proxy.corp", Ok(("http://proxy.corp:80", None))),
            ("10.0.0.1:3128", Ok(("http://10.0.0.1:3128", None))),
            ("https://proxy.corp", Ok(("https://proxy.corp:443", None))),
            ("socks5://proxy.corp", Ok(("socks5://proxy.corp:1080", None))),
            ("socks5h://proxy.corp:1", Ok(("socks5://proxy.corp:1", None))),
            ("http://[fd00::1]:3128/", Ok(("http://[fd00::1]:3128", None))),
            ("http://me:p%40ss%3A@proxy.corp:3128", Ok(("http://proxy.corp:3128", Some(("me", "p@ss:"))))),
            ("me:planted@proxy.corp:3128", Ok(("http://proxy.corp:3128", Some(("me", "planted"))))),
            ("ftp://planted@proxy.corp", Err("unsupported scheme ftp")),
            ("http://planted@:3128", Err("not a URL")),
        ];
        for (text, expected) in rows {
            match (Proxy::parse(text), expected) {
                (Ok(found), Ok((shown, login))) => {
                    let found_login =
                        found.login.as_ref().map(|(user, password)| (user.as_str(), password.as_str()));
                    assert_eq!((found.to_string().as_str(), found_login), (shown, login), "{text}");
                    assert_eq!(format!("{found:?}"), shown);
                }
                (Err(problem), Err(expected)) => {
                    assert!(problem.contains(expected) && !problem.contains("planted"), "{problem}");
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
