//! Which of the requests that a provider's rules describe no grant lets through. Pure. The gate decides about each request;
//! this comparison tells an operator of a grant that is too narrow before the first request is denied.
//!
//! Patterns are compared with patterns: a grant that lets through some of a rule's hosts or paths is taken for what the
//! operator means, since a provider that serves many accounts has rules for all of them. Methods are few, so all of a rule's
//! methods count.

use std::fmt;

use super::Grant;
use crate::pattern::MethodPattern;
use crate::rules::Rule;

/// Requests of a provider that no grant lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedRequests {
    /// The index of the rule that describes them.
    pub rule: usize,
    /// What the grants lack.
    pub missing: MissingPart,
}

/// What the grants lack for the requests of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingPart {
    /// No grant names the host.
    Host,
    /// The grants for the host don't open the path.
    Path,
    /// The grants for the path open only these methods.
    Methods(Vec<String>),
}

impl fmt::Display for MissingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("no grant for the host"),
            Self::Path => f.write_str("no grant for the path"),
            Self::Methods(granted) if granted.is_empty() => f.write_str("no grant for a method"),
            Self::Methods(granted) => write!(f, "only {} granted", granted.join(", ")),
        }
    }
}

/// The rules with requests that no grant lets through, in the order of the rules.
pub(super) fn denied(grants: &[Grant], rules: &[Rule]) -> Vec<DeniedRequests> {
    let missing = |(rule, described): (usize, &Rule)| {
        Some(DeniedRequests { rule, missing: missing(grants, described)? })
    };
    rules.iter().enumerate().filter_map(missing).collect()
}

fn missing(grants: &[Grant], rule: &Rule) -> Option<MissingPart> {
    let has_host = |grant: &&Grant| grant.host.covers(&rule.host) || rule.host.covers(&grant.host);
    let has_path =
        |grant: &&Grant| grant.paths.iter().any(|prefix| rule.path.overlaps(prefix, rule.fold_case));
    let on_host: Vec<_> = grants.iter().filter(has_host).collect();
    if on_host.is_empty() {
        return Some(MissingPart::Host);
    }
    let on_path: Vec<_> = on_host.into_iter().filter(has_path).collect();
    if on_path.is_empty() {
        return Some(MissingPart::Path);
    }
    let methods = || on_path.iter().flat_map(|grant| &grant.methods);
    if methods().any(|granted| *granted == MethodPattern::Any || *granted == rule.method) {
        return None;
    }
    let mut granted: Vec<_> = methods().map(ToString::to_string).collect();
    granted.sort_unstable();
    granted.dedup();
    Some(MissingPart::Methods(granted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effect;

    fn grant(host: &str, methods: &[&str], paths: &[&str]) -> Grant {
        Grant {
            tls: true,
            host: host.parse().unwrap(),
            port: 443,
            methods: methods.iter().map(|method| method.parse().unwrap()).collect(),
            paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
            addresses: Vec::new(),
        }
    }

    fn rule(method: &str, host: &str, path: &str) -> Rule {
        Rule {
            host: host.parse().unwrap(),
            method: method.parse().unwrap(),
            path: path.parse().unwrap(),
            operation: None,
            effect: Effect::Read,
            limits: Vec::new(),
            cache_scope: None,
            fold_case: false,
            page: None,
        }
    }

    #[test]
    fn a_rule_is_denied_where_no_grant_lets_its_requests_through() {
        let all = grant("api.example", &["*"], &["/"]);
        let reads = grant("api.example", &["GET"], &["/"]);
        let narrow = grant("api.example", &["*"], &["/v1/projects/one"]);
        let methods = |granted: &[&str]| {
            Some(MissingPart::Methods(granted.iter().map(|method| (*method).to_owned()).collect()))
        };
        let rows: &[(&str, &[Grant], Rule, Option<MissingPart>)] = &[
            ("no grant", &[], rule("GET", "api.example", "/v1"), Some(MissingPart::Host)),
            ("all", std::slice::from_ref(&all), rule("PUT", "api.example", "/v1/**"), None),
            (
                "another host",
                std::slice::from_ref(&all),
                rule("GET", "b.example", "/v1"),
                Some(MissingPart::Host),
            ),
            ("one of its hosts", std::slice::from_ref(&all), rule("GET", "*.example", "/v1"), None),
            ("below its host", &[grant("*.example", &["*"], &["/"])], rule("GET", "api.example", "/"), None),
            ("reads", std::slice::from_ref(&reads), rule("GET", "api.example", "/v1/servers/*"), None),
            ("a write", std::slice::from_ref(&reads), rule("PUT", "api.example", "/v1/*"), methods(&["GET"])),
            (
                "all methods",
                std::slice::from_ref(&reads),
                rule("*", "api.example", "/v1/*"),
                methods(&["GET"]),
            ),
            (
                "two grants",
                &[reads.clone(), grant("api.example", &["POST", "GET"], &["/v1"])],
                rule("DELETE", "api.example", "/v1/lbs/*"),
                methods(&["GET", "POST"]),
            ),
            (
                "the other grant",
                &[reads.clone(), grant("api.example", &["DELETE"], &["/v1"])],
                rule("DELETE", "api.example", "/v1/lbs/*"),
                None,
            ),
            (
                "the method elsewhere",
                &[reads.clone(), grant("api.example", &["DELETE"], &["/v2"])],
                rule("DELETE", "api.example", "/v1/lbs/*"),
                methods(&["GET"]),
            ),
            (
                "one project",
                std::slice::from_ref(&narrow),
                rule("GET", "api.example", "/v1/projects/*/vms"),
                None,
            ),
            ("all below", std::slice::from_ref(&narrow), rule("GET", "api.example", "/v1/**"), None),
            (
                "above",
                std::slice::from_ref(&narrow),
                rule("GET", "api.example", "/v1/projects"),
                Some(MissingPart::Path),
            ),
            (
                "beside",
                std::slice::from_ref(&narrow),
                rule("GET", "api.example", "/v1/lbs/*"),
                Some(MissingPart::Path),
            ),
            (
                "no method",
                &[grant("api.example", &[], &["/"])],
                rule("GET", "api.example", "/"),
                methods(&[]),
            ),
        ];
        for (name, grants, rule, expected) in rows {
            assert_eq!(missing(grants, rule), *expected, "{name}");
        }
    }

    #[test]
    fn the_case_of_a_path_counts_unless_the_cloud_ignores_it() {
        let grants = [grant("api.example", &["*"], &["/subscriptions/one"])];
        let exact = rule("GET", "api.example", "/Subscriptions/*/vms");
        assert_eq!(missing(&grants, &exact), Some(MissingPart::Path));
        let folded = Rule { fold_case: true, ..exact };
        assert_eq!(missing(&grants, &folded), None);
    }
}
