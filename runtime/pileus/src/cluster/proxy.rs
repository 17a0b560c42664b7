//! Which proxy leads to the API server. Pure: the environment is an argument.
//!
//! As in client-go: the `proxy-url` of the kubeconfig decides alone; without it, the environment does.

use http::Uri;
use pileus_loader::{Proxy, ProxyEnvironment};

/// The proxy for the API server at this URL, with where it is named.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn of_server(
    server: &Uri,
    proxy_url: Option<&str>,
    environment: &ProxyEnvironment,
) -> Result<Option<(&'static str, Proxy)>, String> {
    if let Some(text) = proxy_url.filter(|text| !text.is_empty()) {
        let named = |proxy| Some(("proxy-url of the kubeconfig", proxy));
        return Proxy::parse(text)
            .map(named)
            .map_err(|problem| format!("proxy-url of the kubeconfig: {problem}"));
    }
    let tls = server.scheme_str() != Some("http");
    let port = server.port_u16().unwrap_or(if tls { 443 } else { 80 });
    environment.proxy_for(tls, server.host().unwrap_or_default(), port)
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
    fn the_kubeconfig_decides_before_the_environment() {
        let (https, http) = (("HTTPS_PROXY", "http://a:1"), ("HTTP_PROXY", "http://b:2"));
        let rows: &[(&str, Option<&str>, Variables<'_>, Option<&str>)] = &[
            ("https://api.corp:6443", None, &[], None),
            ("https://api.corp:6443", None, &[https, http], Some("http://a:1")),
            ("http://api.corp:6443", None, &[https, http], Some("http://b:2")),
            ("http://api.corp:6443", None, &[https], None),
            ("https://api.corp:6443", None, &[https, ("NO_PROXY", "api.corp")], None),
            // The exceptions are for the environment's proxies alone, and so is the exception of this machine.
            (
                "https://api.corp:6443",
                Some("socks5://k"),
                &[https, ("NO_PROXY", "*")],
                Some("socks5://k:1080"),
            ),
            ("https://127.0.0.1:6443", Some("http://k"), &[], Some("http://k:80")),
            ("https://127.0.0.1:6443", Some(""), &[https], None),
            ("https://localhost:6443", None, &[https], None),
            ("https://[::1]:6443", None, &[https], None),
            ("https://[fd00::1]:6443", None, &[https], Some("http://a:1")),
        ];
        for (server, proxy_url, variables, expected) in rows {
            let found = of_server(&server.parse().unwrap(), *proxy_url, &environment(variables)).unwrap();
            let found = found.map(|(_, proxy)| proxy.to_string());
            assert_eq!(found.as_deref(), *expected, "{server} {proxy_url:?} {variables:?}");
        }
    }
}
