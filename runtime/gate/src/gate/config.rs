//! What a gate is made from, and whether that goes together.

use ipnet::IpNet;

use crate::{
    connection::Connection,
    credentials::Credential,
    error::Error,
    fence::Fence,
    grants::Grant,
    limits::{self, Limit},
    problem::Problem,
    rules::{self, Rule},
};

/// What a gate is made from. All of it comes from the operator's document and, for the rules, from the provider's
/// settings.
#[derive(Debug)]
pub struct Config {
    /// The provider's name, for metrics, logs and messages.
    pub provider: String,
    /// What the operator allows. None allows nothing.
    pub grants: Vec<Grant>,
    /// What requests mean, the first match first.
    pub rules: Vec<Rule>,
    /// What the provider says that its cloud lets through.
    pub limits: Vec<Limit>,
    /// What the operator allows at most, by the same keys.
    pub tightened: Vec<Limit>,
    /// Who the requests are from. The first that is for a host is attached to its requests.
    pub credentials: Vec<Credential>,
    /// Addresses that are never dialled, whatever a grant says: the API server's own.
    pub denied_ranges: Vec<IpNet>,
    /// While it is closed, nothing is sent that may change something.
    pub fence: Fence,
    /// How the cloud is reached.
    pub connection: Connection,
}

impl Config {
    /// Refuses parts that are each written as they must be, but don't go together.
    ///
    /// Errors: [`Error::Config`] with all that is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let Self { rules, limits, tightened, credentials, .. } = self;
        let of_limits = limits::problems(rules, limits, tightened);
        let of_credentials = credentials.iter().enumerate().flat_map(|(index, credential)| {
            let at = move |(field, error): (&str, Error)| {
                Problem::at(format!("spec.credentials[{index}].{field}"), error.to_string())
            };
            credential.mistakes().into_iter().map(at)
        });
        let problems: Vec<_> = rules::problems(rules).chain(of_limits).chain(of_credentials).collect();
        if problems.is_empty() { Ok(()) } else { Err(Error::Config { problems }) }
    }
}
