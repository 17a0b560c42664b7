//! What follows from a configuration: the hosts that the provider needs, what its requests mean, and the limits that its
//! cloud publishes. The host reads the settings once, before any other call.

mod rule;

use std::num::NonZeroU32;

pub use rule::{Effect, Operation, Place, Rule};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::http::Codes;
use crate::{Capability, Extra, Problem};

/// A host that the provider asks to reach. The request grants nothing: the operator decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether requests to the host use TLS.
    pub tls: bool,
    /// A DNS name, or `*.` and a DNS name for any name below it.
    pub host: String,
    /// The port. None means 443 with TLS and 80 without.
    pub port: Option<u16>,
    /// Why the provider needs the host, in one sentence for the operator who is asked to grant it.
    pub reason: String,
    /// The credential that its requests need. None if they need none, or if the configuration doesn't tell.
    pub credential: Option<CredentialHint>,
}

/// What kind of credential a host wants, with the values that are public. From it the host makes the draft of a
/// CloudProvider document. It grants nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialHint {
    /// The kind, as the CloudProvider document names it: `bearer`, `clientSecret`, `workloadIdentity` and so on.
    pub kind: String,
    /// The public values by the document's field names, such as `tokenURL`, `clientID` and `scope`. Never a secret.
    pub values: Vec<(String, String)>,
}

impl CredentialHint {
    /// A credential of this kind, without values.
    pub fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), values: Vec::new() }
    }

    /// Adds a public value.
    #[must_use]
    pub fn value(mut self, field: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.push((field.into(), value.into()));
        self
    }
}

impl Endpoint {
    /// A host that is reached over TLS on port 443.
    pub fn new(host: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { tls: true, host: host.into(), port: None, reason: reason.into(), credential: None }
    }

    /// Says which credential requests to the host need.
    #[must_use]
    pub fn credential(mut self, hint: CredentialHint) -> Self {
        self.credential = Some(hint);
        self
    }
}

/// A limit of the cloud: a token bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name by which rules refer to it.
    pub key: String,
    /// How many requests a full bucket holds.
    pub capacity: u32,
    /// How many requests are added to the bucket each minute.
    pub per_minute: u32,
    /// Where responses tell how many requests are left in this bucket: a header, and the name under which its value has the
    /// number. With an empty name the value is the number. None leaves the bucket to the headers that the host knows.
    pub told_by: Option<(String, String)>,
}

impl Limit {
    /// A limit under this key, with the size of its bucket and how many requests are added to it each minute.
    pub fn new(key: impl Into<String>, capacity: u32, per_minute: u32) -> Self {
        Self { key: key.into(), capacity, per_minute, told_by: None }
    }

    /// Names the response header that tells how many requests are left, and the name under which its value has the number,
    /// as in `x-ms-ratelimit-remaining-resource` and `Microsoft.Compute/HighCostGetVMScaleSet`.
    #[must_use]
    pub fn told_by(mut self, header: impl Into<String>, name: impl Into<String>) -> Self {
        self.told_by = Some((header.into(), name.into()));
        self
    }
}

/// How many requests a cloud accepts, as the operator configures it. A type for a field of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Quota {
    /// How many requests may come at once.
    pub burst: NonZeroU32,
    /// How many more may come each second.
    pub per_second: NonZeroU32,
}

/// What follows from a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Settings {
    /// The hosts that the provider needs.
    pub endpoints: Vec<Endpoint>,
    /// What its requests mean. The first matching rule applies.
    pub rules: Vec<Rule>,
    /// The cloud's published limits.
    pub limits: Vec<Limit>,
    /// What the clouds' error codes mean, where the status alone misleads.
    pub codes: Vec<Codes>,
    /// The keys of the Node labels that the provider reads with this configuration. A `*` at the end stands for any text.
    pub node_labels: Vec<String>,
    /// What the operator should know about the configuration although it is accepted: a field without effect, a value that
    /// is about to go.
    pub notices: Vec<Problem>,
    /// The capabilities of which no two calls may run at the same time.
    pub one_at_a_time: Vec<Capability>,
    /// See [`Extra`].
    pub extra: Extra,
}

impl Settings {
    /// Adds a host that the provider needs.
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// Adds a rule after the existing ones.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds rules after the existing ones.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules.extend(rules);
        self
    }

    /// Adds the limit that the operator configured, if any.
    pub fn quota(self, key: impl Into<String>, quota: Option<Quota>) -> Self {
        match quota {
            Some(Quota { burst, per_second }) => {
                self.limit(Limit::new(key, burst.get(), per_second.get().saturating_mul(60)))
            }
            None => self,
        }
    }

    /// Makes the host send one call of a capability at a time, for example because all Services share one resource. What
    /// is due meanwhile goes into the next call together.
    pub fn one_at_a_time(mut self, capability: Capability) -> Self {
        self.one_at_a_time.push(capability);
        self
    }

    /// Adds a limit that the cloud publishes.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// Says what the error codes of a host mean. The SDK reports errors by it, and the host learns by it.
    pub fn codes(mut self, codes: Codes) -> Self {
        self.codes.push(codes);
        self
    }

    /// Adds the key of a Node label that the provider reads with this configuration. A `*` at the end stands for any text.
    pub fn node_label(mut self, key: impl Into<String>) -> Self {
        self.node_labels.push(key.into());
        self
    }

    /// Adds something that the operator should know about the configuration although it is accepted.
    pub fn notice(mut self, notice: Problem) -> Self {
        self.notices.push(notice);
        self
    }
}
