//! What a provider asks for beside what its document gives it: for the log of a load and for `pileus inspect`. Nothing is
//! decided here; requests are decided on one by one in the gate.

use pileus_gate::{Coverage, Credential, Endpoint, Limit, Rate};
use pileus_host::Settings;

use crate::document::CloudProvider;

/// Wishes and limits of a provider beside those of its document.
pub(crate) struct Comparison {
    /// In the order in which the provider wishes.
    pub(crate) wishes: Vec<Wish>,
    /// The document's limits.
    pub(crate) limits: Vec<Tightened>,
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

/// A limit that the document tightens.
#[derive(Debug, PartialEq)]
pub(crate) struct Tightened {
    pub(crate) key: String,
    /// What the provider declares; none for one that only its rules name.
    pub(crate) declared: Option<Rate>,
    /// What the document allows at most.
    pub(crate) allowed: Rate,
}

impl Comparison {
    pub(crate) fn new(settings: &Settings, document: &CloudProvider) -> Self {
        let CloudProvider { grants, credentials, limits: tightened, .. } = document;
        let wished = settings.wishes.iter().map(|wish| wish.endpoint.clone());
        let Coverage { granted, missing: _ } = Coverage::new(grants, wished.clone());
        let wish = |endpoint: Endpoint| {
            let granted = granted.iter().find(|(granted, _)| *granted == endpoint);
            let granted_by = granted.map(|(_, labels)| labels.clone()).unwrap_or_default();
            let credentials = attached(&endpoint, credentials);
            Wish { endpoint, granted_by, credentials }
        };
        let limit = |limit: &Limit| {
            let declared = settings.limits.iter().find(|published| published.limit.is_the_same_as(limit));
            let declared = declared.map(|published| published.limit.rate());
            Tightened { key: limit.key().to_string(), declared, allowed: limit.rate() }
        };
        Self {
            wishes: wished.map(wish).collect(),
            limits: tightened.iter().map(limit).collect(),
            credentials: credentials.clone(),
        }
    }

    /// Writes it to the log.
    pub(crate) fn log(&self, provider: &str) {
        for Wish { endpoint, granted_by, credentials } in &self.wishes {
            if granted_by.is_empty() {
                tracing::warn!(%provider, %endpoint, "the provider asks for a host that no grant names; requests to it will be denied");
            } else {
                tracing::info!(%provider, %endpoint, grants = ?granted_by, ?credentials, "the provider may reach what it asks for");
            }
        }
        for Credential { name, hosts, kind, .. } in &self.credentials {
            let (kind, hosts) = (kind.label(), hosts.iter().map(ToString::to_string).collect::<Vec<_>>());
            tracing::info!(%provider, credential = %name, %kind, ?hosts, "the document has a credential");
        }
        for Tightened { key, declared, allowed } in &self.limits {
            let declared = declared.map_or_else(|| "nothing".to_owned(), rate);
            tracing::info!(%provider, limit = %key, %declared, allowed = %rate(*allowed), "the document tightens a limit");
        }
    }
}

/// A rate for people.
pub(crate) fn rate(Rate { burst, per_second }: Rate) -> String {
    format!("{burst} at once, {} a minute", (per_second * 60.0 * 100.0).round() / 100.0)
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
        let published = |key: &str| pileus_host::PublishedLimit {
            key: key.to_owned(),
            capacity: 9,
            per_minute: 60,
            limit: limit(key, 9),
        };
        let limits = vec![published("reads"), published("vm/{1}")];
        let settings = Settings { wishes: Vec::new(), rules: Vec::new(), limits };
        let tightened = [limit("vm/{2}", 3), limit("other", 4)];
        let document = CloudProvider {
            name: String::new(),
            component: "".into(),
            configuration: String::new(),
            grants: Vec::new(),
            limits: tightened.to_vec(),
            credentials: Vec::new(),
            connection: pileus_gate::Connection::default(),
        };
        let compared = Comparison::new(&settings, &document).limits;
        let bursts = compared.iter().map(|it| (it.declared.map(|rate| rate.burst), it.allowed.burst));
        assert_eq!(bursts.collect::<Vec<_>>(), [(Some(9.0), 3.0), (None, 4.0)]);
        assert_eq!(rate(Rate { burst: 9.0, per_second: 1.0 / 3.0 }), "9 at once, 20 a minute");
    }
}
