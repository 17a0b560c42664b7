//! A limit as it is declared and as it is shown: plain data.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::HeaderName;

use crate::effect::{self, Effect};
use crate::error::Error;
use crate::limits::urgency::Urgency;
use crate::path::{KeyPattern, PathPattern};
use crate::pattern::HostPattern;
use crate::request::Request;

/// How many requests a limit lets through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests at once, after a pause.
    pub burst: f64,
    /// Requests per second in the long run.
    pub per_second: f64,
}

impl Rate {
    /// The rate of a limit without declared numbers: so high that it holds nothing back until the cloud refuses.
    pub(crate) const UNDECLARED: Self = Self { burst: 10_000.0, per_second: 10_000.0 };

    /// The lower of both, number by number.
    pub(crate) fn least(self, other: Self) -> Self {
        let Self { burst, per_second } = other;
        Self { burst: self.burst.min(burst), per_second: self.per_second.min(per_second) }
    }
}

/// A limit with its numbers, as a provider declares it or an operator sets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub(super) key: KeyPattern,
    pub(super) rate: Rate,
    /// The requests that count against it; `None` where the provider's rules say it, by the key.
    pub(super) scope: Option<LimitScope>,
    pub(super) told_by: Option<ToldBy>,
}

/// Where answers tell how many requests are left of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldBy {
    pub(crate) header: HeaderName,
    /// What precedes the number and a semicolon, without regard to case; empty where the number is all of the value.
    pub(crate) name: String,
}

/// The requests that count against a limit of an operator, regardless of what the provider declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitScope {
    /// By what they do.
    pub kind: RequestKind,
    /// By their host; `None` for all.
    pub host: Option<HostPattern>,
    /// By their path, without regard to case, since some clouds have none; `None` for all.
    pub path: Option<PathPattern>,
}

/// Requests by what they do. A request counts as both where its method and the provider's rule differ, so no rule takes it out
/// of a limit: a POST that a rule calls a read is a read and a write here, and so is a GET that a rule calls a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// All of them.
    #[default]
    All,
    /// GET, HEAD and OPTIONS, and what a rule calls a read or a poll.
    Reads,
    /// All other methods, and what is a write by a rule or without one.
    Writes,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::All, Self::Reads, Self::Writes];

    /// Its name in a document.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Reads => "reads",
            Self::Writes => "writes",
        }
    }
}

impl LimitScope {
    /// Whether a request with this effect counts.
    pub(crate) fn holds(&self, request: &Request, effect: Effect) -> bool {
        let is_kind = match self.kind {
            RequestKind::All => true,
            RequestKind::Reads => effect::is_safe(&request.method) || effect != Effect::Write,
            RequestKind::Writes => !request.is_safe() || effect == Effect::Write,
        };
        is_kind
            && self.host.as_ref().is_none_or(|host| host.matches(&request.host))
            && self.path.as_ref().is_none_or(|path| path.matches(&request.path, true).is_some())
    }
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            RequestKind::All => "all requests",
            kind => kind.as_str(),
        })?;
        if let Some(host) = &self.host {
            write!(f, " to {host}")?;
        }
        if let Some(path) = &self.path {
            write!(f, " at {path}")?;
        }
        Ok(())
    }
}

impl Limit {
    /// The valid bursts.
    pub const BURSTS: RangeInclusive<u32> = 1..=1_000_000;
    /// The valid rates, in requests per second.
    pub const RATES: RangeInclusive<f64> = 0.001..=100_000.0;

    /// A limit with this key, this many requests at once and this many per second in the long run.
    ///
    /// # Errors
    /// [`Error::Syntax`] for a key that is not valid, and for numbers outside [`Self::BURSTS`] and [`Self::RATES`].
    pub fn new(key: &str, burst: u32, per_second: f64) -> Result<Self, Error> {
        let wrong = |cause| Error::Syntax {
            kind: "limit",
            text: key.to_owned(),
            cause,
            example: "a burst of 200 and 10 per second",
        };
        if !Self::BURSTS.contains(&burst) {
            return Err(wrong("has a burst that isn't in 1 to 1000000"));
        }
        if !Self::RATES.contains(&per_second) {
            return Err(wrong("has a rate that isn't in 0.001 to 100000 per second"));
        }
        let rate = Rate { burst: f64::from(burst), per_second };
        Ok(Self { key: key.parse()?, rate, scope: None, told_by: None })
    }

    /// The same limit, with the header by which answers tell how many requests are left of it, and the name under which the
    /// header's value has the number: as in `x-ms-ratelimit-remaining-resource` and `Microsoft.Compute/HighCostGetVMScaleSet`,
    /// where the value is pairs `NAME;NUMBER` separated by commas. With an empty name the value is the number. What is told
    /// so adjusts the bucket of this limit alone, and no other header adjusts that bucket.
    ///
    /// # Errors
    /// [`Error::Syntax`] for what can't be the name of a header.
    pub fn with_told_by(self, header: &str, name: &str) -> Result<Self, Error> {
        let invalid = |_| Error::Syntax {
            kind: "header",
            text: header.to_owned(),
            cause: "isn't the name of a header",
            example: "x-ms-ratelimit-remaining-resource",
        };
        let told_by = ToldBy { header: header.parse().map_err(invalid)?, name: name.trim().to_owned() };
        Ok(Self { told_by: Some(told_by), ..self })
    }

    /// The same limit for these requests instead of those that the provider's rules count by the key. The key is its name.
    ///
    /// # Errors
    /// [`Error::Syntax`] for a key with a `{n}`, which only a rule can fill.
    pub fn of_requests(self, scope: LimitScope) -> Result<Self, Error> {
        if self.key.is_plain() {
            return Ok(Self { scope: Some(scope), ..self });
        }
        let (text, cause) = (self.key.to_string(), "has a {n}, which only a rule of the provider can fill");
        Err(Error::Syntax { kind: "limit", text, cause, example: "all-requests" })
    }

    /// The requests that count against it; `None` where the provider's rules say it.
    pub fn scope(&self) -> Option<&LimitScope> {
        self.scope.as_ref()
    }

    /// Its key.
    pub fn key(&self) -> &KeyPattern {
        &self.key
    }

    /// How many requests it lets through.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Whether both are for the same requests: the numbers in a key refer to the path of a rule, and do not tell limits
    /// apart.
    pub fn is_the_same_as(&self, other: &Self) -> bool {
        self.key.name() == other.key.name()
    }
}

/// The state of one limit at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitState {
    /// Its key.
    pub key: String,
    /// The rate that the provider declares.
    pub declared: Option<Rate>,
    /// The rate that the operator allows.
    pub configured: Option<Rate>,
    /// The rate that the cloud has shown to take, if it is lower; of several buckets the slowest.
    pub learned: Option<Rate>,
    /// The rate in force: the lowest of these, or so high that it holds nothing back.
    pub rate: Rate,
    /// The requests that it would let through at once if it were not paused; of several buckets the emptiest.
    pub tokens: f64,
    /// The number of its buckets.
    pub buckets: usize,
    /// The remaining pause after a refusal of the cloud; of several buckets the longest.
    pub paused_for: Option<Duration>,
}

/// The state of all limits of a provider at some time.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitsState {
    /// Each limit.
    pub limits: Vec<LimitState>,
    /// The number of resources that are paused on their own.
    pub paused_resources: usize,
    /// The number of requests that wait, the most urgent first.
    pub waiting: [(Urgency, usize); 3],
    /// The memory that these take, in bytes.
    pub waiting_bytes: usize,
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn no_rule_takes_a_request_out_of_a_limit_of_the_operator() {
        use RequestKind::{All, Reads, Writes};
        // By method and effect, the kinds that it counts as.
        for (method, effect, kinds) in [
            (Method::GET, Effect::Read, &[All, Reads][..]),
            (Method::GET, Effect::OperationPoll, &[All, Reads]),
            (Method::GET, Effect::Write, &[All, Reads, Writes]),
            (Method::POST, Effect::Read, &[All, Reads, Writes]),
            (Method::POST, Effect::OperationPoll, &[All, Reads, Writes]),
            (Method::POST, Effect::Write, &[All, Writes]),
            (Method::DELETE, Effect::Write, &[All, Writes]),
        ] {
            let request = Request::parse(&method, &"https://a.example/b".parse().unwrap()).unwrap();
            let counts = |kind: &RequestKind| {
                LimitScope { kind: *kind, ..LimitScope::default() }.holds(&request, effect)
            };
            let found: Vec<_> = RequestKind::ALL.into_iter().filter(counts).collect();
            assert_eq!(found, kinds, "{method} {effect:?}");
        }
    }

    #[test]
    fn a_scope_holds_requests_by_host_and_path_whatever_their_case() {
        let scope = |host: &str, path: &str| LimitScope {
            host: (!host.is_empty()).then(|| host.parse().unwrap()),
            path: (!path.is_empty()).then(|| path.parse().unwrap()),
            ..LimitScope::default()
        };
        let holds = |scope: &LimitScope, uri: &str| {
            scope.holds(&Request::parse(&Method::GET, &uri.parse().unwrap()).unwrap(), Effect::Read)
        };
        for (host, path, uri, expected) in [
            ("", "", "https://a.example/b", true),
            ("a.example", "", "https://A.example:8443/b", true),
            ("*.example", "/b/*/c", "https://a.example/b/1/c", true),
            ("", "/vms/**", "https://a.example/VMs/1/%73tart", true),
            ("", "/vms/**", "https://a.example/vms", true),
            ("b.example", "", "https://a.example/b", false),
            ("", "/vms/*", "https://a.example/vms/1/start", false),
            ("a.example", "/vms/**", "https://b.example/vms/1", false),
        ] {
            assert_eq!(holds(&scope(host, path), uri), expected, "{host} {path} {uri}");
        }
        let all = scope("*.example", "/vms/**");
        assert_eq!(all.to_string(), "all requests to *.example at /vms/**");
        let limit = |key| Limit::new(key, 1, 1.0).unwrap().of_requests(all.clone());
        assert!(limit("vms").is_ok() && limit("vms/{1}").is_err());
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        for (burst, per_second) in
            [(0, 1.0), (1_000_001, 1.0), (1, 0.0), (1, -1.0), (1, f64::NAN), (1, f64::INFINITY), (1, 1e6)]
        {
            assert!(Limit::new("reads", burst, per_second).is_err(), "{burst} {per_second}");
        }
        assert!(Limit::new("reads/{", 1, 1.0).is_err());
        let limit = || Limit::new("reads", 1, 1.0).unwrap();
        assert!(limit().with_told_by("X-Left", "a").is_ok() && limit().with_told_by("x left", "a").is_err());
        assert!(Limit::new("reads", 1, 0.001).is_ok());
    }
}
