//! Whether the operator allows a request. A grant opens methods and paths of one endpoint; a request that no grant opens is
//! denied, and without grants every request is. The endpoints that a provider asks for play no part in the decision; they
//! are only compared with the grants for the operator to read.

mod requests;

use std::fmt;

use ipnet::IpNet;

use crate::error::MissingGrant;
use crate::path::PathPrefix;
use crate::pattern::{HostPattern, MethodPattern};
use crate::request::{Host, Request, default_port};
use crate::rules::Rule;
pub use requests::{DeniedRequests, MissingPart};

/// The methods and paths of one endpoint that the operator allows. An empty list allows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Whether it uses TLS.
    pub tls: bool,
    /// The host, or the hosts.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
    /// The allowed methods.
    pub methods: Vec<MethodPattern>,
    /// The allowed paths.
    pub paths: Vec<PathPrefix>,
    /// The address ranges beyond the internet's that the hosts may resolve to.
    pub addresses: Vec<IpNet>,
}

impl Grant {
    /// The name of the grant in metrics, logs and messages: its host, with the port if it isn't the scheme's default. It comes
    /// from the document alone, so a provider can't add labels.
    pub fn label(&self) -> String {
        let Self { tls, host, port, .. } = self;
        match (tls, port) {
            (true, 443) => host.to_string(),
            (false, _) => format!("http://{host}:{port}"),
            (true, _) => format!("{host}:{port}"),
        }
    }

    /// Whether this is the grant's endpoint.
    pub(crate) fn names(&self, tls: bool, host: &Host, port: u16) -> bool {
        self.tls == tls && self.port == port && self.host.matches(host)
    }

    /// Whether it allows this canonical path; if it doesn't, what it lacks.
    fn opens_path(&self, path: &str) -> Result<(), MissingGrant> {
        let mut unclear = None;
        for prefix in &self.paths {
            match prefix.covers(path) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(cause) => unclear = Some(cause),
            }
        }
        let grant = self.label();
        Err(match unclear {
            Some(cause) => MissingGrant::Reading { grant, cause },
            None => MissingGrant::Path { grant },
        })
    }
}

impl AsRef<Self> for Grant {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Finds the first grant that allows the request.
///
/// # Errors
/// What the nearest grant lacks.
pub(crate) fn decide<'a, G: AsRef<Grant>>(grants: &'a [G], request: &Request) -> Result<&'a G, MissingGrant> {
    let Request { method, tls, host, port, path, query: _ } = request;
    let mut missing = MissingGrant::Endpoint { tls: *tls, host: host.to_string(), port: *port };
    for candidate in grants {
        let grant = candidate.as_ref();
        if !grant.names(*tls, host, *port) {
            continue;
        }
        if let Err(lack) = grant.opens_path(path) {
            let is_nearer = matches!(
                (&missing, &lack),
                (MissingGrant::Endpoint { .. }, _)
                    | (MissingGrant::Path { .. }, MissingGrant::Reading { .. })
            );
            if is_nearer {
                missing = lack;
            }
            continue;
        }
        if grant.methods.iter().any(|pattern| pattern.matches(method)) {
            return Ok(candidate);
        }
        if !matches!(missing, MissingGrant::Method { .. }) {
            missing = MissingGrant::Method { grant: grant.label() };
        }
    }
    Err(missing)
}

/// An endpoint that a provider asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether it uses TLS.
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
    /// An endpoint on this port, or on the scheme's default port.
    pub fn new(tls: bool, host: HostPattern, port: Option<u16>) -> Self {
        Self { tls, host, port: port.unwrap_or(default_port(tls)) }
    }
}

/// What a provider asks for, compared with its grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The endpoints that grants name, each with the labels of these grants. A grant may still open only some methods and
    /// paths.
    pub granted: Vec<(Endpoint, Vec<String>)>,
    /// The endpoints that no grant names as a whole.
    pub missing: Vec<Endpoint>,
    /// The requests that no grant lets through, by the provider's rules.
    pub denied: Vec<DeniedRequests>,
}

impl Coverage {
    /// Compares the endpoints that a provider asks for, and the requests that its rules describe, with grants.
    pub fn new(grants: &[Grant], requested: impl IntoIterator<Item = Endpoint>, rules: &[Rule]) -> Self {
        let mut coverage = Self { denied: requests::denied(grants, rules), ..Self::default() };
        for endpoint in requested {
            let covers = |grant: &&Grant| {
                grant.tls == endpoint.tls && grant.port == endpoint.port && grant.host.covers(&endpoint.host)
            };
            let by: Vec<_> = grants.iter().filter(covers).map(Grant::label).collect();
            if by.is_empty() {
                coverage.missing.push(endpoint);
            } else {
                coverage.granted.push((endpoint, by));
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

    fn decision(grants: &[Grant], method: &Method, uri: &str) -> Result<String, MissingGrant> {
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
            (Method::GET, "https://api.example.com/subscriptions/1/%252e%252e/2", Err("reading")),
            (Method::GET, "https://example.com/subscriptions/1", Err("endpoint")),
            (Method::GET, "https://api.example.com:8443/subscriptions/1", Err("endpoint")),
            (Method::GET, "http://api.example.com/subscriptions/1", Err("endpoint")),
            (Method::GET, "http://api.example.com:443/subscriptions/1", Err("endpoint")),
            (Method::GET, "https://metadata.google.internal/subscriptions/1", Err("endpoint")),
            (Method::GET, "https://169.254.169.254/subscriptions/1", Err("endpoint")),
        ];
        for (method, uri, expected) in rows {
            let found = decision(&grants, &method, uri).map_err(|missing| match missing {
                MissingGrant::Endpoint { .. } => "endpoint",
                MissingGrant::Path { .. } => "path",
                MissingGrant::Reading { .. } => "reading",
                MissingGrant::Method { .. } => "method",
                MissingGrant::Identity { .. } => "identity",
                MissingGrant::Addresses { .. } => "addresses",
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
    fn an_endpoint_is_covered_as_a_whole_or_not_at_all() {
        let grants = [grant("*.example.com"), grant("login.example.org")];
        let endpoint = |host: &str, port| Endpoint::new(true, host.parse().unwrap(), port);
        let plain = Endpoint::new(false, "api.example.com".parse().unwrap(), None);
        let requested = [
            endpoint("api.example.com", None),
            endpoint("*.example.org", None),
            endpoint("api.example.com", Some(1)),
            plain,
        ];
        let coverage = Coverage::new(&grants, requested.clone(), &[]);
        let [api, org, other_port, plain] = requested;
        assert_eq!(coverage.granted, [(api, vec!["*.example.com".to_owned()])]);
        assert_eq!(coverage.missing, [org, other_port, plain]);
    }
}
