//! What follows from a configuration: the hosts that a provider must reach, what its requests mean, and the limits that
//! its cloud publishes. The host reads it once; nothing here runs during a call.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Capability, Extra};

/// A host that the provider must reach to do its work: a wish, which grants nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether the host is spoken to over TLS.
    pub tls: bool,
    /// A DNS name, or `*.` and a DNS name for any name below it.
    pub host: String,
    /// The port; 443 with TLS and 80 without where there is none.
    pub port: Option<u16>,
    /// Why, in one sentence, for the operator who is asked to grant it.
    pub reason: String,
}

impl Endpoint {
    /// A host that is spoken to over TLS on port 443.
    pub fn new(host: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { tls: true, host: host.into(), port: None, reason: reason.into() }
    }
}

/// What a request does in the cloud, which its method doesn't always tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing. It may be answered from a cache and be repeated.
    Read,
    /// It changes something. The host never repeats it unless it surely never left.
    Write,
    /// It asks how a change is getting on.
    OperationPoll,
}

/// Where a request says what its method and its path don't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The query parameter of this name.
    Query(String),
    /// The header of this name.
    Header(String),
    /// The field of this name in a form-encoded body.
    FormField(String),
    /// The top-level field of this name in a JSON body.
    JsonField(String),
}

/// The operation that a rule is about, in an API that has one path for everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Where the request names it.
    pub place: Place,
    /// Its name, or a pattern with one `*` that stands for any text.
    pub name: String,
}

/// What the requests of one kind mean. The first rule that matches holds; what no rule matches is a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The host, as in [`Endpoint::host`].
    pub host: String,
    /// The method, upper case, or `*` for any.
    pub method: String,
    /// The path as a pattern: `*` stands for one segment, `**` at the end for all that are left.
    pub path: String,
    /// The operation, where method and path don't tell.
    pub operation: Option<Operation>,
    /// What it does.
    pub effect: Effect,
    /// The keys of the limits that one such request counts against.
    pub limits: Vec<String>,
    /// The name of what it reads or changes as a whole, for the cache; `{n}` stands for the n-th segment that a `*`
    /// matched, from 1. None is the scope of everything that the provider reads.
    pub cache_scope: Option<String>,
    /// For a list that comes in pages: where a request names the page that it wants.
    pub page: Option<Place>,
    /// Whether the cloud takes two paths that differ only in case for the same.
    pub fold_case: bool,
}

impl Rule {
    /// A rule about requests of a method to a path of a host.
    /// [`BaseUrl::rule`](crate::http::BaseUrl::rule) fills the host in from the configuration.
    pub fn new(
        host: impl Into<String>,
        method: impl Into<String>,
        path: impl Into<String>,
        effect: Effect,
    ) -> Self {
        Self {
            host: host.into(),
            method: method.into(),
            path: path.into(),
            operation: None,
            effect,
            limits: Vec::new(),
            cache_scope: None,
            page: None,
            fold_case: false,
        }
    }

    /// Narrows it to an operation.
    #[must_use]
    pub fn operation(mut self, place: Place, name: impl Into<String>) -> Self {
        self.operation = Some(Operation { place, name: name.into() });
        self
    }

    /// Counts such a request against the limit of this key.
    #[must_use]
    pub fn limit(mut self, key: impl Into<String>) -> Self {
        self.limits.push(key.into());
        self
    }

    /// Names what it reads or changes, for the cache.
    #[must_use]
    pub fn cache_scope(mut self, scope: impl Into<String>) -> Self {
        self.cache_scope = Some(scope.into());
        self
    }

    /// Says that it is about a list that comes in pages, and where a request names the page that it wants. A request that
    /// names none wants the first one. The host keeps the pages of one sweep together or not at all, and lets one sweep at
    /// a time run for all who ask for the same list.
    #[must_use]
    pub fn page(mut self, place: Place) -> Self {
        self.page = Some(place);
        self
    }

    /// Says that the cloud takes two paths that differ only in case for the same.
    #[must_use]
    pub fn fold_case(mut self) -> Self {
        self.fold_case = true;
        self
    }
}

/// A limit of the cloud: a bucket that holds so many requests and fills at such a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name by which rules refer to it.
    pub key: String,
    /// How many requests a full bucket holds.
    pub capacity: u32,
    /// How many requests flow in each minute.
    pub per_minute: u32,
}

/// How many requests a cloud lets through, where an operator says so: a type for a field of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Quota {
    /// How many may come at once.
    pub burst: NonZeroU32,
    /// How many more each second.
    pub per_second: NonZeroU32,
}

/// What follows from a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Settings {
    /// The hosts that the provider needs.
    pub endpoints: Vec<Endpoint>,
    /// What its requests mean, the first match first.
    pub rules: Vec<Rule>,
    /// The cloud's limits as it publishes them.
    pub limits: Vec<Limit>,
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

    /// Adds a rule, after those that are there.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds rules, after those that are there.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules.extend(rules);
        self
    }

    /// Adds a limit that the operator knows of, where the configuration names one.
    pub fn quota(self, key: impl Into<String>, quota: Option<Quota>) -> Self {
        match quota {
            Some(Quota { burst, per_second }) => {
                self.limit(key, burst.get(), per_second.get().saturating_mul(60))
            }
            None => self,
        }
    }

    /// Has the host make no two calls of a capability at the same time, as where all Services share one object: they go
    /// together in one call instead.
    pub fn one_at_a_time(mut self, capability: Capability) -> Self {
        self.one_at_a_time.push(capability);
        self
    }

    /// Adds a limit that the cloud publishes.
    pub fn limit(mut self, key: impl Into<String>, capacity: u32, per_minute: u32) -> Self {
        self.limits.push(Limit { key: key.into(), capacity, per_minute });
        self
    }
}
