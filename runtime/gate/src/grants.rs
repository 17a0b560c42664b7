//! Whether the operator allows a request. A grant opens methods and paths of one endpoint; what no grant opens is
//! denied, and so is everything when there is no grant. What a provider wishes plays no part here: wishes are only
//! compared with grants for the operator to read.

use std::fmt;

use ipnet::IpNet;

use crate::{
    error::Missing,
    path::PathPrefix,
    pattern::{HostPattern, MethodPattern},
    request::{Host, Request, default_port},
};

/// What the operator opens of one endpoint. An empty list opens nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Whether it is spoken to over TLS.
    pub tls: bool,
    /// The hosts.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
    /// The methods.
    pub methods: Vec<MethodPattern>,
    /// The paths.
    pub paths: Vec<PathPrefix>,
    /// The address ranges beyond the internet's that the hosts may resolve to.
    pub addresses: Vec<IpNet>,
}

impl Grant {
    /// What metrics, logs and messages call the grant: its host, with the port where it isn't the scheme's own. Made
    /// from the document alone, so a provider can't add to the labels.
    pub fn label(&self) -> String {
        let Self { tls, host, port, .. } = self;
        match (tls, port) {
            (true, 443) => host.to_string(),
            (false, _) => format!("http://{host}:{port}"),
            (true, _) => format!("{host}:{port}"),
        }
    }

    /// Whether the grant is about this endpoint.
    pub(crate) fn names(&self, tls: bool, host: &Host, port: u16) -> bool {
        self.tls == tls && self.port == port && self.host.matches(host)
    }

    fn opens_path(&self, path: &str) -> bool {
        self.paths.iter().any(|prefix| prefix.matches(path))
    }
}

impl AsRef<Self> for Grant {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Finds the first grant that allows the request, or says what the nearest one lacks.
pub(crate) fn decide<'a, G: AsRef<Grant>>(grants: &'a [G], request: &Request) -> Result<&'a G, Missing> {
    let Request { method, tls, host, port, path, query: _ } = request;
    let mut missing = Missing::Endpoint { tls: *tls, host: host.to_string(), port: *port };
    for candidate in grants {
        let grant = candidate.as_ref();
        if !grant.names(*tls, host, *port) {
            continue;
        }
        if !grant.opens_path(path) {
            if matches!(missing, Missing::Endpoint { .. }) {
                missing = Missing::Path { grant: grant.label() };
            }
            continue;
        }
        if grant.methods.iter().any(|pattern| pattern.matches(method)) {
            return Ok(candidate);
        }
        if !matches!(missing, Missing::Method { .. }) {
            missing = Missing::Method { grant: grant.label() };
        }
    }
    Err(missing)
}

/// A host that a provider wishes to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether it is spoken to over TLS.
    pub tls: bool,
    /// The host, or the hosts.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", if self.tls { "https" } else { "http" }, self.host, self.port)
    }
}

impl Endpoint {
    /// An endpoint on this port, or on the scheme's own where there is none.
    pub fn new(tls: bool, host: HostPattern, port: Option<u16>) -> Self {
        Self { tls, host, port: port.unwrap_or(default_port(tls)) }
    }
}

/// What a provider wishes beside what it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The wishes that a grant names, each with the labels of these grants. A grant may still open only some methods
    /// and paths.
    pub granted: Vec<(Endpoint, Vec<String>)>,
    /// The wishes that no grant names as a whole.
    pub missing: Vec<Endpoint>,
}

impl Coverage {
    /// Compares wishes with grants.
    pub fn new(grants: &[Grant], wished: impl IntoIterator<Item = Endpoint>) -> Self {
        let mut coverage = Self::default();
        for wish in wished {
            let covers = |grant: &&Grant| {
                grant.tls == wish.tls && grant.port == wish.port && grant.host.covers(&wish.host)
            };
            let by: Vec<_> = grants.iter().filter(covers).map(Grant::label).collect();
            if by.is_empty() {
                coverage.missing.push(wish);
            } else {
                coverage.granted.push((wish, by));
            }
        }
        coverage
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn grant(host: &str) -> Grant {
        Grant {
            tls: true,
            host: host.parse().unwrap(),
            port: 443,
            methods: vec!["GET".parse().unwrap()],
            paths: vec!["/subscriptions/1".parse().unwrap()],
            addresses: Vec::new(),
        }
    }

    fn decision(grants: &[Grant], method: &Method, uri: &str) -> Result<String, Missing> {
        decide(grants, &Request::parse(method, &uri.parse().unwrap()).unwrap()).map(Grant::label)
    }

    #[test]
    fn a_request_is_allowed_by_the_first_grant_that_opens_endpoint_path_and_method() {
        let grants = [
            grant("*.example.com"),
            Grant { methods: vec![MethodPattern::Any], ..grant("api.example.com") },
            Grant { tls: false, port: 8080, ..grant("plain.example.com") },
        ];
        let rows = [
            (Method::GET, "https://api.example.com/subscriptions/1/vms", Ok("*.example.com")),
            (Method::PUT, "https://api.example.com/subscriptions/1", Ok("api.example.com")),
            (
                Method::GET,
                "http://plain.example.com:8080/subscriptions/1",
                Ok("http://plain.example.com:8080"),
            ),
            (Method::PUT, "https://other.example.com/subscriptions/1", Err("method")),
            (Method::GET, "https://api.example.com/subscriptions/12", Err("path")),
            (Method::GET, "https://api.example.com/", Err("path")),
            (Method::GET, "https://example.com/subscriptions/1", Err("endpoint")),
            (Method::GET, "https://api.example.com:8443/subscriptions/1", Err("endpoint")),
            (Method::GET, "http://api.example.com/subscriptions/1", Err("endpoint")),
            (Method::GET, "http://api.example.com:443/subscriptions/1", Err("endpoint")),
            (Method::GET, "https://metadata.google.internal/subscriptions/1", Err("endpoint")),
            (Method::GET, "https://169.254.169.254/subscriptions/1", Err("endpoint")),
        ];
        for (method, uri, expected) in rows {
            let found = decision(&grants, &method, uri).map_err(|missing| match missing {
                Missing::Endpoint { .. } => "endpoint",
                Missing::Path { .. } => "path",
                Missing::Method { .. } => "method",
            });
            assert_eq!(found.as_deref().map_err(|lack| *lack), expected, "{method} {uri}");
        }
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        let uri = "https://api.example.com/subscriptions/1";
        let open = grant("api.example.com");
        assert!(decision(std::slice::from_ref(&open), &Method::GET, uri).is_ok());
        assert!(decision(&[], &Method::GET, uri).is_err());
        assert!(decision(&[Grant { methods: Vec::new(), ..open.clone() }], &Method::GET, uri).is_err());
        assert!(decision(&[Grant { paths: Vec::new(), ..open }], &Method::GET, uri).is_err());
    }

    #[test]
    fn a_denial_says_what_to_add() {
        let uri = "https://api.example.com:8443/subscriptions/1";
        let text = decision(&[], &Method::GET, uri).unwrap_err().to_string();
        assert!(text.contains("`host: \"api.example.com\"` and `port: 8443`"), "{text}");
    }

    #[test]
    fn wishes_are_compared_as_wholes() {
        let grants = [grant("*.example.com"), grant("login.example.org")];
        let wish = |host: &str, port| Endpoint::new(true, host.parse().unwrap(), port);
        let plain = Endpoint::new(false, "api.example.com".parse().unwrap(), None);
        let wished = [
            wish("api.example.com", None),
            wish("*.example.org", None),
            wish("api.example.com", Some(1)),
            plain,
        ];
        let coverage = Coverage::new(&grants, wished.clone());
        let [api, org, other_port, plain] = wished;
        assert_eq!(coverage.granted, [(api, vec!["*.example.com".to_owned()])]);
        assert_eq!(coverage.missing, [org, other_port, plain]);
    }
}
