//! A CloudProvider document from what a provider asks for: the grants that its rules need, with its reasons, the limits that it
//! declares, and credentials. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pileus_gate::{Endpoint, MethodPattern, Rule, check_output};
use pileus_host::{PublishedLimit, RequestedEndpoint, Settings};
use serde_json::{Map, Value, json};

use super::credentials::credentials;
use super::yaml::Yaml;
use crate::document::API_VERSION;

/// The most path prefixes of a grant. More would be longer than a reader follows.
const MAX_PATHS: usize = 16;

/// What a document is drafted of.
pub(super) struct Draft<'a> {
    /// The provider's name in the document.
    pub(super) name: &'a str,
    /// The component's own name and version.
    pub(super) component: String,
    /// The fields `source` and `trust`.
    pub(super) source: Value,
    pub(super) trust: Option<Value>,
    /// An object.
    pub(super) configuration: Value,
    pub(super) settings: &'a Settings,
}

impl Draft<'_> {
    /// The document as YAML.
    pub(super) fn text(&self) -> String {
        let Self { name, component, source, trust, configuration, settings } = self;
        let mut yaml = Yaml::default();
        yaml.comment(
            0,
            &format!(
                "Drafted by `pileus provider document` from what {component} asks for with this configuration. Nothing is granted \
                 before it is applied: review each grant and credential first."
            ),
        );
        yaml.field(0, "apiVersion", &json!(API_VERSION));
        yaml.field(0, "kind", &json!("CloudProvider"));
        yaml.field(0, "metadata", &json!({"name": name}));
        yaml.line(0, "spec:");
        if source.get("file").is_some() {
            yaml.comment(
                2,
                "For a document of the cluster, push the component to a registry and name it in `image`.",
            );
        } else if trust.is_none() {
            yaml.comment(
                2,
                "Pinned by its digest. To follow a tag, name the keys of those who sign it in `trust.keys`.",
            );
        }
        yaml.field(2, "source", source);
        if let Some(trust) = trust {
            yaml.field(2, "trust", trust);
        }
        yaml.field(2, "configuration", configuration);
        add_grants(&mut yaml, settings);
        add_limits(&mut yaml, &settings.limits);
        add_credentials(&mut yaml, settings, name);
        yaml.text()
    }
}

fn add_grants(yaml: &mut Yaml, settings: &Settings) {
    if settings.endpoints.is_empty() {
        return yaml.field(2, "grants", &json!([]));
    }
    yaml.line(2, "grants:");
    for RequestedEndpoint { endpoint, reason, .. } in &settings.endpoints {
        yaml.comment(4, reason);
        yaml.item(4, &grant(endpoint, &settings.rules));
    }
}

/// A grant of the requests to an endpoint that the rules describe; of all, where they describe none.
fn grant(endpoint: &Endpoint, rules: &[Rule]) -> Value {
    let Endpoint { tls, host, port } = endpoint;
    let of_host = |rule: &&Rule| host.covers(&rule.host) || rule.host.covers(host);
    let rules: Vec<_> = rules.iter().filter(of_host).collect();
    let mut fields = Map::from_iter([("host".to_owned(), json!(host.to_string()))]);
    if *port != Endpoint::new(*tls, host.clone(), None).port {
        fields.insert("port".to_owned(), json!(port));
    }
    if !tls {
        fields.insert("tls".to_owned(), json!(false));
    }
    let methods: BTreeSet<_> = rules.iter().map(|rule| rule.method.to_string()).collect();
    if !methods.is_empty() && !rules.iter().any(|rule| rule.method == MethodPattern::Any) {
        fields.insert("methods".to_owned(), json!(methods));
    }
    let paths = paths(&rules);
    if !paths.is_empty() {
        fields.insert("paths".to_owned(), json!(paths));
    }
    let addresses = addresses(&host.to_string());
    if !addresses.is_empty() {
        fields.insert("addresses".to_owned(), json!(addresses));
    }
    Value::Object(fields)
}

/// The prefixes of the paths of rules; empty for all paths. A prefix is compared with regard to case, so a rule without it needs
/// all.
fn paths(rules: &[&Rule]) -> Vec<String> {
    let prefix = |rule: &&Rule| {
        let path = rule.path.to_string();
        let segments =
            path.split('/').skip(1).take_while(|segment| !segment.contains('*') && !rule.fold_case);
        segments.fold(String::new(), |prefix, segment| prefix + "/" + segment)
    };
    let all: BTreeSet<_> = rules.iter().map(prefix).collect();
    let is_below = |path: &str, other: &String| {
        path.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    let widest = all.iter().filter(|path| !all.iter().any(|other| is_below(path, other)));
    let widest: Vec<_> = widest.cloned().collect();
    let is_all = widest.iter().any(String::is_empty) || widest.len() > MAX_PATHS;
    if is_all { Vec::new() } else { widest }
}

/// The ranges that a grant has to open for a host whose addresses are not the internet's, as far as its name tells.
fn addresses(host: &str) -> Vec<String> {
    let alone = |address: IpAddr| format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 });
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) if is_public(address) => Vec::new(),
        Ok(address) => vec![alone(address)],
        Err(_) if host == "localhost" => {
            [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)].map(alone).into()
        }
        Err(_) => Vec::new(),
    }
}

/// Whether an address is certainly open without a range. A range that wasn't needed does no harm.
fn is_public(address: IpAddr) -> bool {
    let is_private = match address {
        IpAddr::V4(address) => address.is_private() || address.octets()[0] == 100,
        IpAddr::V6(_) => true,
    };
    !is_private && check_output(address).is_ok()
}

fn add_limits(yaml: &mut Yaml, limits: &[PublishedLimit]) {
    if limits.is_empty() {
        return;
    }
    yaml.comment(
        2,
        "As the provider declares them. Lower them to leave a part of the cloud's quota to others, or remove them to follow the \
         provider's next release.",
    );
    let limit = |published: &PublishedLimit| {
        let (burst, rate) = (published.capacity, published.limit.rate().per_second);
        (published.key.clone(), json!({"burst": burst, "perSecond": rate}))
    };
    yaml.field(2, "limits", &limits.iter().map(limit).collect());
}

fn add_credentials(yaml: &mut Yaml, settings: &Settings, name: &str) {
    let credentials = credentials(&settings.endpoints, name);
    if credentials.iter().any(|drafted| drafted.value.is_some()) {
        yaml.line(2, "credentials:");
    }
    for drafted in credentials {
        for comment in &drafted.comments {
            yaml.comment(4, comment);
        }
        if let Some(value) = &drafted.value {
            yaml.item(4, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use pileus_gate::Effect;

    use super::*;

    fn rule(method: &str, path: &str, fold_case: bool) -> Rule {
        Rule {
            host: "api.example".parse().unwrap(),
            method: method.parse().unwrap(),
            path: path.parse().unwrap(),
            operation: None,
            effect: Effect::Read,
            limits: Vec::new(),
            cache_scope: None,
            fold_case,
            page: None,
        }
    }

    #[test]
    fn a_grant_opens_what_the_rules_describe_and_no_more() {
        let endpoint = |tls, host: &str, port| Endpoint::new(tls, host.parse().unwrap(), port);
        let api = endpoint(true, "api.example", None);
        for (endpoint, rules, expected) in [
            (&api, vec![], json!({"host": "api.example"})),
            (
                &api,
                vec![
                    rule("PUT", "/v1/a/*", false),
                    rule("GET", "/v1/a", false),
                    rule("GET", "/v1/ab/*/x", false),
                ],
                json!({"host": "api.example", "methods": ["GET", "PUT"], "paths": ["/v1/a", "/v1/ab"]}),
            ),
            (
                &api,
                vec![rule("GET", "/v1/a/**", false), rule("*", "/v1", false)],
                json!({"host": "api.example", "paths": ["/v1"]}),
            ),
            (
                &api,
                vec![rule("GET", "/v1/a", false), rule("GET", "/*/b", false)],
                json!({"host": "api.example", "methods": ["GET"]}),
            ),
            (&api, vec![rule("GET", "/Sub/a", true)], json!({"host": "api.example", "methods": ["GET"]})),
            (
                &endpoint(true, "*.example", Some(8443)),
                vec![rule("GET", "/v1", false)],
                json!({"host": "*.example", "port": 8443, "methods": ["GET"], "paths": ["/v1"]}),
            ),
            (
                &endpoint(false, "169.254.169.254", None),
                vec![],
                json!({"host": "169.254.169.254", "tls": false, "addresses": ["169.254.169.254/32"]}),
            ),
            (
                &endpoint(false, "localhost", Some(1)),
                vec![],
                json!({"host": "localhost", "port": 1, "tls": false, "addresses": ["127.0.0.1/32", "::1/128"]}),
            ),
            (
                &endpoint(true, "10.0.0.1", None),
                vec![],
                json!({"host": "10.0.0.1", "addresses": ["10.0.0.1/32"]}),
            ),
            (&endpoint(true, "20.0.0.1", None), vec![], json!({"host": "20.0.0.1"})),
        ] {
            assert_eq!(grant(endpoint, &rules), expected, "{endpoint}");
        }
    }

    #[test]
    fn too_many_paths_are_all_paths() {
        let rules: Vec<_> = (0..=MAX_PATHS).map(|n| rule("GET", &format!("/v1/{n}"), false)).collect();
        let rules: Vec<_> = rules.iter().collect();
        assert_eq!(paths(&rules[1..]).len(), MAX_PATHS);
        assert_eq!(paths(&rules), Vec::<String>::new());
    }
}
