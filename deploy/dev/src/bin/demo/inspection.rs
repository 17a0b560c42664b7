//! The parts of `pileus inspect --json` that the demo shows.

use std::fmt;

use serde_json::Value;

/// What `pileus inspect` knows about a component.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inspection {
    pub(crate) digest: String,
    /// In bytes.
    pub(crate) size: u64,
    /// The version of the contract.
    pub(crate) contract: String,
    /// Name and version.
    pub(crate) provider: String,
    pub(crate) capabilities: Vec<String>,
    /// How many interfaces it imports.
    pub(crate) imports: usize,
    pub(crate) requested_hosts: Vec<RequestedHost>,
}

/// A host that the provider wants to reach.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestedHost {
    pub(crate) endpoint: String,
    pub(crate) reason: String,
    pub(crate) is_granted: bool,
}

impl Inspection {
    /// Reads the JSON document. `None` if it lacks a field.
    pub(crate) fn read(document: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let provider = document.get("provider")?;
        let host = |host: &Value| {
            Some(RequestedHost {
                endpoint: text(host.get("endpoint")?)?,
                reason: text(host.get("reason")?)?,
                is_granted: host.get("grantedBy")?.as_array().is_some_and(|grants| !grants.is_empty()),
            })
        };
        Some(Self {
            digest: text(document.get("digest")?)?,
            size: document.get("sizeBytes")?.as_u64()?,
            contract: text(document.get("contract")?.get("version")?)?,
            provider: format!("{} {}", text(provider.get("name")?)?, text(provider.get("version")?)?),
            capabilities: named(document.get("capabilities")?)?,
            imports: document.get("imports")?.as_array()?.len(),
            requested_hosts: document
                .get("settings")?
                .get("requestedHosts")?
                .as_array()?
                .iter()
                .map(host)
                .collect::<Option<_>>()?,
        })
    }
}

impl fmt::Display for RequestedHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, reason, is_granted } = self;
        let grant = if *is_granted { "granted" } else { "NOT GRANTED" };
        write!(formatter, "{endpoint} [{grant}]: {reason}")
    }
}

/// The names of the objects of a list.
fn named(list: &Value) -> Option<Vec<String>> {
    list.as_array()?.iter().map(|it| it.get("name")?.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_that_no_grant_names_is_not_granted() {
        let mut document = json!({
            "digest": "sha256:00", "sizeBytes": 1000, "contract": {"version": "0.2.0"},
            "provider": {"name": "a", "version": "1"}, "capabilities": [{"name": "routes"}], "imports": [{}, {}],
            "settings": {"requestedHosts": [
                {"endpoint": "https://a:443", "reason": "x", "grantedBy": ["a"]},
                {"endpoint": "https://b:443", "reason": "y", "grantedBy": []},
            ]},
        });
        let inspection = Inspection::read(&document).unwrap();
        assert_eq!((&*inspection.provider, inspection.imports), ("a 1", 2));
        let hosts: Vec<_> = inspection.requested_hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["https://a:443 [granted]: x", "https://b:443 [NOT GRANTED]: y"]);

        document["settings"] = json!(null);
        assert_eq!(Inspection::read(&document), None);
    }
}
