//! The configuration of a gate, and the check that its parts are consistent.

use ipnet::IpNet;

use crate::connection::Connection;
use crate::credentials::{self, Credential};
use crate::error::Error;
use crate::fence::Fence;
use crate::grants::Grant;
use crate::limits::{self, Limit};
use crate::refusals::{self, Refusal};
use crate::rules::{self, Rule};

/// The configuration of a gate. It comes from the operator's document; rules, refusals and declared limits come from the
/// provider's settings.
#[derive(Debug)]
pub struct Config {
    /// The provider's name, for metrics, logs and messages.
    pub provider: String,
    /// What the operator allows. An empty list allows nothing.
    pub grants: Vec<Grant>,
    /// The provider's rules; the first match applies.
    pub rules: Vec<Rule>,
    /// What the cloud's refusals mean, as the provider declares it; the first match applies.
    pub refusals: Vec<Refusal>,
    /// The limits of the cloud, as the provider declares them.
    pub limits: Vec<Limit>,
    /// The operator's limits: stricter ones with the same keys, and those with a scope of their own.
    pub tightened: Vec<Limit>,
    /// The credentials. The one that names host and path of a request most closely is attached to it.
    pub credentials: Vec<Credential>,
    /// Addresses that are never dialed, regardless of grants: the API server's own.
    pub denied_ranges: Vec<IpNet>,
    /// While it is closed, no write is sent, and no POST.
    pub fence: Fence,
    /// How the gate reaches the cloud.
    pub connection: Connection,
}

impl Config {
    /// A configuration that allows nothing, for the provider of this name.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            grants: Vec::new(),
            rules: Vec::new(),
            refusals: Vec::new(),
            limits: Vec::new(),
            tightened: Vec::new(),
            credentials: Vec::new(),
            denied_ranges: Vec::new(),
            fence: Fence::default(),
            connection: Connection::default(),
        }
    }

    /// Whether any connection uses TLS.
    pub(super) fn speaks_tls(&self) -> bool {
        self.grants.iter().any(|grant| grant.tls) || self.credentials.iter().any(Credential::speaks_tls)
    }

    /// Checks that parts which are each valid are consistent.
    ///
    /// # Errors
    /// [`Error::Config`] with every mistake.
    pub fn check(&self) -> Result<(), Error> {
        let Self { rules, refusals, limits, tightened, credentials, .. } = self;
        let of_limits = limits::problems(rules, limits, tightened);
        let of_credentials = credentials::problems(credentials);
        let of_provider = rules::problems(rules).chain(refusals::problems(refusals));
        let problems: Vec<_> = of_provider.chain(of_limits).chain(of_credentials).collect();
        if problems.is_empty() { Ok(()) } else { Err(Error::Config { problems }) }
    }
}
