//! Compares what a provider requests with what its document grants, for the log of a load and for `pileus inspect`.
//! Nothing is decided here: the gate decides about each request.

use pileus_gate::{Coverage, Credential, DeniedRequests, Endpoint, Limit, Problem, Rate, Rule};
use pileus_host::{PublishedLimit, Settings};

use crate::document::CloudProvider;

/// How many kinds of denied requests are logged.
const MAX_DENIED: usize = 20;

/// The requested hosts and the limits of a provider, with what its document says about them.
pub(crate) struct AccessReview {
    /// In the provider's order.
    pub(crate) hosts: Vec<RequestedHost>,
    /// The provider's rules for requests that no grant lets through, each with its index and with what the grants lack.
    pub(crate) denied: Vec<DeniedRule>,
    /// The limits that the provider declares, then those that only the document has.
    pub(crate) limits: Vec<ComparedLimit>,
    /// The document's credentials.
    pub(crate) credentials: Vec<Credential>,
    /// What the provider's settings say and the gate doesn't follow.
    pub(crate) warnings: Vec<Problem>,
}

/// What settings say and the gate doesn't follow: rules that call a write a read, and limits that no rule counts against.
pub(crate) fn warnings(settings: &Settings) -> Vec<Problem> {
    let limits: Vec<_> = settings.limits.iter().map(|published| published.limit.clone()).collect();
    let mut warnings = pileus_gate::contradictions(&settings.rules);
    warnings.extend(pileus_gate::uncounted(&settings.rules, &limits));
    warnings
}

/// A host that a provider requests access to.
#[derive(Debug, PartialEq)]
pub(crate) struct RequestedHost {
    pub(crate) endpoint: Endpoint,
    /// The labels of the grants that name it; empty if it isn't granted.
    pub(crate) granted_by: Vec<String>,
    /// The credentials that may be attached to requests to it; several only for a pattern.
    pub(crate) credentials: Vec<String>,
}

/// A rule for requests that no grant lets through.
#[derive(Debug)]
pub(crate) struct DeniedRule {
    /// The rule's index.
    pub(crate) index: usize,
    pub(crate) rule: Rule,
    /// What the grants lack.
    pub(crate) missing: String,
}

/// A limit as the provider and the document set it. Limits that only the rules name have no rate and are left out.
#[derive(Debug, PartialEq)]
pub(crate) struct ComparedLimit {
    pub(crate) key: String,
    /// The rate that the provider declares.
    pub(crate) declared: Option<Rate>,
    /// The highest rate that the document allows.
    pub(crate) allowed: Option<Rate>,
    /// The requests that the document's match names; `None` for a limit by the provider's key.
    pub(crate) requests: Option<String>,
}

impl AccessReview {
    /// Compares the settings of a provider with its document.
    pub(crate) fn new(settings: &Settings, document: &CloudProvider) -> Self {
        let CloudProvider { grants, credentials, limits: tightened, .. } = document;
        let requested = settings.endpoints.iter().map(|host| host.endpoint.clone());
        let Coverage { granted, missing: _, denied } =
            Coverage::new(grants, requested.clone(), &settings.rules);
        let denied = denied.into_iter().filter_map(|DeniedRequests { rule: index, missing }| {
            let rule = settings.rules.get(index)?.clone();
            Some(DeniedRule { index, rule, missing: missing.to_string() })
        });
        let host = |endpoint: Endpoint| {
            let granted = granted.iter().find(|(granted, _)| *granted == endpoint);
            let granted_by = granted.map(|(_, labels)| labels.clone()).unwrap_or_default();
            let credentials = attached(&endpoint, credentials);
            RequestedHost { endpoint, granted_by, credentials }
        };
        Self {
            hosts: requested.map(host).collect(),
            denied: denied.collect(),
            limits: compare_limits(&settings.limits, tightened),
            credentials: credentials.clone(),
            warnings: warnings(settings),
        }
    }

    /// Why no grant lets the requests of the rule with this index through; none where one does.
    pub(crate) fn denial(&self, index: usize) -> Option<&str> {
        self.denied.iter().find(|denied| denied.index == index).map(|denied| denied.missing.as_str())
    }

    /// Logs the review.
    pub(crate) fn log(&self, provider: &str) {
        for RequestedHost { endpoint, granted_by, credentials } in &self.hosts {
            if granted_by.is_empty() {
                tracing::warn!(%provider, %endpoint, "the provider requests a host without a grant; requests to it are denied until spec.grants of the document names it");
            } else {
                tracing::info!(%provider, %endpoint, grants = ?granted_by, ?credentials, "host granted");
            }
        }
        for DeniedRule { rule, missing, .. } in self.denied.iter().take(MAX_DENIED) {
            let Rule { host, method, path, effect, .. } = rule;
            let effect = effect.label();
            tracing::warn!(%provider, %host, %method, %path, effect, missing, "no grant lets these requests of the provider through; what needs them fails until spec.grants of the document allows them");
        }
        if self.denied.len() > MAX_DENIED {
            let more = self.denied.len() - MAX_DENIED;
            tracing::warn!(%provider, more, "more kinds of requests are not granted; see `pileus inspect --provider`");
        }
        for Credential { name, hosts, kind, .. } in &self.credentials {
            let (kind, hosts) = (kind.label(), hosts.iter().map(ToString::to_string).collect::<Vec<_>>());
            tracing::info!(%provider, credential = %name, %kind, ?hosts, "credential configured");
        }
        for ComparedLimit { key, declared, allowed, requests } in &self.limits {
            let (declared, allowed) = (declared.map(rate), allowed.map(rate));
            tracing::info!(%provider, limit = %key, declared, allowed, requests, "limit configured");
        }
        for problem in &self.warnings {
            tracing::warn!(%provider, %problem, "the gate doesn't follow the provider's settings");
        }
    }
}

/// A rate as text.
pub(crate) fn rate(Rate { burst, per_second }: Rate) -> String {
    format!("burst {burst}, {} per minute", (per_second * 60.0 * 100.0).round() / 100.0)
}

fn compare_limits(declared: &[PublishedLimit], tightened: &[Limit]) -> Vec<ComparedLimit> {
    let both = declared.iter().map(|PublishedLimit { limit, .. }| {
        let allowed = tightened.iter().find(|tightened| tightened.is_the_same_as(limit)).map(Limit::rate);
        let (key, declared) = (limit.key().to_string(), Some(limit.rate()));
        ComparedLimit { key, declared, allowed, requests: None }
    });
    let is_new = |tightened: &&Limit| !declared.iter().any(|it| it.limit.is_the_same_as(tightened));
    let new = tightened.iter().filter(is_new).map(|limit| ComparedLimit {
        key: limit.key().to_string(),
        declared: None,
        allowed: Some(limit.rate()),
        requests: limit.scope().map(ToString::to_string),
    });
    both.chain(new).collect()
}

/// The credentials for an endpoint: the first that covers all of it, and those before it that cover a part.
fn attached(endpoint: &Endpoint, credentials: &[Credential]) -> Vec<String> {
    let mut names = Vec::new();
    for credential in credentials.iter().filter(|credential| endpoint.tls || credential.plain) {
        let covers_all = credential.hosts.iter().any(|host| host.covers(&endpoint.host));
        if covers_all || credential.hosts.iter().any(|host| endpoint.host.covers(host)) {
            names.push(credential.name.clone());
        }
        if covers_all {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pileus_gate::{CredentialKind, SecretFile};
    use serde_json::json;

    use super::*;
    use crate::document::ClusterOrigin;
    use crate::secrets::Secrets;

    fn credential(name: &str, host: &str, plain: bool) -> Credential {
        Credential {
            name: name.to_owned(),
            hosts: vec![host.parse().unwrap()],
            paths: Vec::new(),
            auxiliary: Vec::new(),
            plain,
            addresses: Vec::new(),
            kind: CredentialKind::Bearer { token: Arc::new(SecretFile::new("token")) },
        }
    }

    #[test]
    fn an_endpoint_has_the_credentials_that_may_be_attached_to_its_requests() {
        let credentials = [
            credential("one", "one.example", false),
            credential("all", "*.example", false),
            credential("late", "two.example", false),
            credential("plain", "*.example", true),
        ];
        for (tls, host, expected) in [
            (true, "one.example", &["one"][..]),
            (true, "two.example", &["all"]),
            (true, "*.example", &["one", "all"]),
            (false, "one.example", &["plain"]),
            (true, "elsewhere.test", &[]),
        ] {
            let endpoint = Endpoint::new(tls, host.parse().unwrap(), None);
            assert_eq!(attached(&endpoint, &credentials), expected, "{endpoint}");
        }
    }

    #[test]
    fn limits_match_regardless_of_the_number_in_their_key() {
        let limit = |key: &str, burst| Limit::new(key, burst, 1.0).unwrap();
        let published = |key: &str| PublishedLimit {
            key: key.to_owned(),
            capacity: 9,
            per_minute: 60,
            limit: limit(key, 9),
        };
        let limits = vec![published("reads"), published("vm/{1}")];
        let settings = Settings { limits, ..Settings::default() };
        let document = json!({"metadata": {"name": "a"}, "spec": {
            "source": {"image": "registry.example/a:1"},
            "trust": {"insecure": true},
            "limits": {"other": {"burst": 4, "perSecond": 1}, "vm/{2}": {"burst": 3, "perSecond": 1}},
        }});
        let origin = ClusterOrigin::new(Secrets::default(), None, false).unwrap();
        let document = CloudProvider::from_resource(&document, &origin).unwrap();
        let compared = AccessReview::new(&settings, &document).limits;
        let burst = |rate: Option<Rate>| rate.map(|rate| rate.burst);
        let found = compared.iter().map(|it| (it.key.as_str(), burst(it.declared), burst(it.allowed)));
        let expected =
            [("reads", Some(9.0), None), ("vm/{1}", Some(9.0), Some(3.0)), ("other", None, Some(4.0))];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(rate(Rate { burst: 9.0, per_second: 1.0 / 3.0 }), "burst 9, 20 per minute");
    }
}
