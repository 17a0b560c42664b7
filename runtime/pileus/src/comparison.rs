//! What a provider asks for beside what its document gives it: for the log of a load and for `pileus inspect`. Nothing is
//! decided here; requests are decided on one by one in the gate.

use pileus_gate::{Coverage, Credential, Endpoint, Limit, Rate};
use pileus_host::{PublishedLimit, Settings};

use crate::document::CloudProvider;

/// Wishes and limits of a provider beside those of its document.
pub(crate) struct Comparison {
    /// In the order in which the provider wishes.
    pub(crate) wishes: Vec<Wish>,
    /// The limits that the provider declares, and then those that the document alone has numbers for.
    pub(crate) limits: Vec<ComparedLimit>,
    /// The document's credentials.
    pub(crate) credentials: Vec<Credential>,
}

/// A host that a provider wishes.
#[derive(Debug, PartialEq)]
pub(crate) struct Wish {
    pub(crate) endpoint: Endpoint,
    /// The labels of the grants that name it; none for one that is missing.
    pub(crate) granted_by: Vec<String>,
    /// The credentials that requests to it may have; several only where it is a pattern.
    pub(crate) credentials: Vec<String>,
}

/// A limit on both sides. One without a number on either is named by the provider's rules alone, and isn't here.
#[derive(Debug, PartialEq)]
pub(crate) struct ComparedLimit {
    pub(crate) key: String,
    /// What the provider declares.
    pub(crate) declared: Option<Rate>,
    /// What the document allows at most.
    pub(crate) allowed: Option<Rate>,
}

impl Comparison {
    pub(crate) fn new(settings: &Settings, document: &CloudProvider) -> Self {
        let CloudProvider { grants, credentials, limits: tightened, .. } = document;
        let wished = settings.endpoints.iter().map(|wish| wish.endpoint.clone());
        let Coverage { granted, missing: _ } = Coverage::new(grants, wished.clone());
        let wish = |endpoint: Endpoint| {
            let granted = granted.iter().find(|(granted, _)| *granted == endpoint);
            let granted_by = granted.map(|(_, labels)| labels.clone()).unwrap_or_default();
            let credentials = attached(&endpoint, credentials);
            Wish { endpoint, granted_by, credentials }
        };
        Self {
            wishes: wished.map(wish).collect(),
            limits: compare_limits(&settings.limits, tightened),
            credentials: credentials.clone(),
        }
    }

    /// Writes it to the log.
    pub(crate) fn log(&self, provider: &str) {
        for Wish { endpoint, granted_by, credentials } in &self.wishes {
            if granted_by.is_empty() {
                tracing::warn!(%provider, %endpoint, "the provider asks for a host that no grant names; requests to it are denied until spec.grants of its document has one");
            } else {
                tracing::info!(%provider, %endpoint, grants = ?granted_by, ?credentials, "the provider may reach what it asks for");
            }
        }
        for Credential { name, hosts, kind, .. } in &self.credentials {
            let (kind, hosts) = (kind.label(), hosts.iter().map(ToString::to_string).collect::<Vec<_>>());
            tracing::info!(%provider, credential = %name, %kind, ?hosts, "the document has a credential");
        }
        for ComparedLimit { key, declared, allowed } in &self.limits {
            let (declared, allowed) = (declared.map(rate), allowed.map(rate));
            tracing::info!(%provider, limit = %key, declared, allowed, "a limit holds its requests back");
        }
    }
}

/// A rate for people.
pub(crate) fn rate(Rate { burst, per_second }: Rate) -> String {
    format!("{burst} at once, {} a minute", (per_second * 60.0 * 100.0).round() / 100.0)
}

fn compare_limits(declared: &[PublishedLimit], tightened: &[Limit]) -> Vec<ComparedLimit> {
    let both = declared.iter().map(|PublishedLimit { limit, .. }| {
        let allowed = tightened.iter().find(|tightened| tightened.is_the_same_as(limit)).map(Limit::rate);
        ComparedLimit { key: limit.key().to_string(), declared: Some(limit.rate()), allowed }
    });
    let is_new = |tightened: &&Limit| !declared.iter().any(|it| it.limit.is_the_same_as(tightened));
    let new = tightened.iter().filter(is_new).map(|limit| ComparedLimit {
        key: limit.key().to_string(),
        declared: None,
        allowed: Some(limit.rate()),
    });
    both.chain(new).collect()
}

/// The credentials that are for an endpoint: the first that is for all of it, and those before that are for a part.
fn attached(wish: &Endpoint, credentials: &[Credential]) -> Vec<String> {
    let mut names = Vec::new();
    for credential in credentials.iter().filter(|credential| wish.tls || credential.plain) {
        let is_for_all = credential.hosts.iter().any(|host| host.covers(&wish.host));
        if is_for_all || credential.hosts.iter().any(|host| wish.host.covers(host)) {
            names.push(credential.name.clone());
        }
        if is_for_all {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pileus_gate::{CredentialKind, SecretFile};

    use super::*;

    fn credential(name: &str, host: &str, plain: bool) -> Credential {
        Credential {
            name: name.to_owned(),
            hosts: vec![host.parse().unwrap()],
            plain,
            addresses: Vec::new(),
            kind: CredentialKind::Bearer { token: Arc::new(SecretFile::new("token")) },
        }
    }

    #[test]
    fn a_wish_has_the_credentials_that_may_be_attached_to_its_requests() {
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
            let wish = Endpoint::new(tls, host.parse().unwrap(), None);
            assert_eq!(attached(&wish, &credentials), expected, "{wish}");
        }
    }

    #[test]
    fn a_limit_is_beside_what_the_provider_declares_whatever_the_number_in_its_key() {
        let limit = |key: &str, burst| Limit::new(key, burst, 1.0).unwrap();
        let published = |key: &str| PublishedLimit {
            key: key.to_owned(),
            capacity: 9,
            per_minute: 60,
            limit: limit(key, 9),
        };
        let limits = vec![published("reads"), published("vm/{1}")];
        let settings =
            Settings { endpoints: Vec::new(), rules: Vec::new(), limits, one_at_a_time: Vec::new() };
        let tightened = [limit("other", 4), limit("vm/{2}", 3)];
        let document = CloudProvider {
            name: String::new(),
            component: "".into(),
            configuration: String::new(),
            grants: Vec::new(),
            limits: tightened.to_vec(),
            credentials: Vec::new(),
            connection: pileus_gate::Connection::default(),
            classes: Vec::new(),
        };
        let compared = Comparison::new(&settings, &document).limits;
        let burst = |rate: Option<Rate>| rate.map(|rate| rate.burst);
        let told = compared.iter().map(|it| (it.key.as_str(), burst(it.declared), burst(it.allowed)));
        let expected =
            [("reads", Some(9.0), None), ("vm/{1}", Some(9.0), Some(3.0)), ("other", None, Some(4.0))];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert_eq!(rate(Rate { burst: 9.0, per_second: 1.0 / 3.0 }), "9 at once, 20 a minute");
    }
}
