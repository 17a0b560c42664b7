//! Who a request is from, to its cloud. A provider never sees a credential: the operator names it and the hosts that it
//! is for, the gate acquires and renews it, and puts it into requests after everything else was decided.
//!
//! `declared` is what the operator writes, `source` where secrets lie; `keeper` acquires in time what `acquire` knows to
//! acquire, by the clock of `decide`. `oauth`, `assertion`, `token` and `endpoint` speak with token endpoints, `sigv4`
//! signs, `value` is what is attached, `metrics` what is counted.

mod acquire;
mod assertion;
mod decide;
mod declared;
mod endpoint;
mod keeper;
mod metrics;
mod oauth;
mod sigv4;
mod token;
mod value;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::StatusCode;
use http::header::ACCEPT_ENCODING;
use tokio::time::Instant;

use crate::error::Error;
use crate::network::Network;
use crate::pattern::HostPattern;
use crate::request::Request;
use acquire::Acquirer;
pub use declared::{Credential, CredentialKind, OAuthClient, TokenUrl};
use keeper::Keeper;
use metrics::CredentialLabels;
pub(crate) use metrics::CredentialMetrics;

/// What a credential is like now. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialState {
    /// Its name in the document.
    pub name: String,
    /// Its kind in the document, as in `clientSecret`.
    pub kind: &'static str,
    /// Whether there is something valid to attach. Requests to its hosts fail where there isn't.
    pub is_ready: bool,
    /// Until when that is valid, or was; none where it has no expiry, or where nothing was acquired yet.
    pub until: Option<SystemTime>,
    /// Since when acquiring it fails, where the last attempt did. It may be ready nonetheless.
    pub failing: Option<Failing>,
}

/// Acquiring a credential fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Since when.
    pub since: SystemTime,
    /// Why, the last time.
    pub cause: String,
}

/// Told when a value that is used as it is has another in its place, which may be another's. A token that is renewed is
/// not: it is for whom the last one was.
pub(crate) type Replaced = Arc<dyn Fn() + Send + Sync>;

/// The credentials of a gate.
#[derive(Debug)]
pub(crate) struct Credentials(Vec<Kept>);

struct Kept {
    hosts: Vec<HostPattern>,
    plain: bool,
    keeper: Keeper,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.keeper.state()).finish()
    }
}

impl Credentials {
    /// Begins to acquire credentials without [`Credential::mistakes`], at once. Needs a tokio runtime if there are any.
    pub(crate) fn new(
        credentials: Vec<Credential>,
        provider: &Arc<str>,
        network: &Arc<Network>,
        metrics: &CredentialMetrics,
        replaced: &Replaced,
    ) -> Self {
        let kept = |credential: Credential| {
            let (hosts, plain, kind) = (credential.hosts.clone(), credential.plain, credential.kind.label());
            let labels =
                CredentialLabels { provider: provider.clone(), credential: credential.name.as_str().into() };
            let acquirer = Acquirer::new(credential, network);
            let keeper = Keeper::new(kind, labels, acquirer, metrics.clone(), replaced.clone());
            Kept { hosts, plain, keeper }
        };
        Self(credentials.into_iter().map(kept).collect())
    }

    pub(crate) fn state(&self) -> Vec<CredentialState> {
        self.0.iter().map(|kept| kept.keeper.state()).collect()
    }

    /// Puts the credential for this request into it, if there is one. It may take until then to have it.
    ///
    /// Errors: [`Error::Credential`]; a request isn't sent without what belongs into it.
    pub(crate) async fn attach(
        &self,
        request: &Request,
        mut outgoing: http::Request<Bytes>,
        soft: Instant,
    ) -> Result<(http::Request<Bytes>, Option<Attached<'_>>), Error> {
        let fits = |kept: &&Kept| {
            (request.tls || kept.plain) && kept.hosts.iter().any(|host| host.matches(&request.host))
        };
        let Some(Kept { keeper, .. }) = self.0.iter().find(fits) else { return Ok((outgoing, None)) };
        let (number, value) = keeper.value(soft).await?;
        // A compressed answer couldn't be searched for the credential.
        outgoing.headers_mut().remove(ACCEPT_ENCODING);
        let bare = outgoing.clone();
        value.attach(&mut outgoing, SystemTime::now());
        Ok((outgoing, Some(Attached { keeper, number, bare })))
    }
}

/// What was attached to a request, for the case that the cloud refuses it.
pub(crate) struct Attached<'a> {
    keeper: &'a Keeper,
    number: u64,
    /// The request without it.
    bare: http::Request<Bytes>,
}

impl Attached<'_> {
    /// The request once more, with a credential that is newer than the one that was answered so. None where the answer
    /// isn't about the credential, or where there is no other until then.
    ///
    /// A 401 says that nothing was done, so a change may be sent again as well.
    pub(crate) async fn again(self, status: StatusCode, soft: Instant) -> Option<http::Request<Bytes>> {
        let Self { keeper, number, bare: mut outgoing } = self;
        if status != StatusCode::UNAUTHORIZED || Instant::now() >= soft {
            return None;
        }
        let (_, value) = keeper.newer(number, soft).await?;
        value.attach(&mut outgoing, SystemTime::now());
        Some(outgoing)
    }
}
