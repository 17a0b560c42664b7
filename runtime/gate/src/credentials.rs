//! The credentials of requests to the cloud. A provider never sees a credential: the operator names it and its hosts,
//! the gate acquires and renews it, and attaches it to requests after all other decisions.
//!
//! `spec` is what the operator declares, `renewer` calls `acquire` at the times
//! that `decide` computes. `oauth`, `assertion`, `token` and `endpoint` deal with token endpoints, `sigv4` signs,
//! `value` is what is attached, `metrics` what is counted.

mod acquire;
mod assertion;
mod decide;
mod endpoint;
mod metrics;
mod oauth;
mod renewer;
mod sigv4;
mod spec;
mod token;
mod token_url;
mod value;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;

use crate::echo::Needles;
use crate::error::Error;
use crate::headers;
use crate::network::Network;
use crate::pattern::HostPattern;
use crate::request::Request;
use acquire::Acquirer;
use metrics::CredentialLabels;
pub(crate) use metrics::CredentialMetrics;
use renewer::{AttachedValue, Renewer};
pub use spec::{Credential, CredentialKind, OAuthClient};
pub use token_url::TokenUrl;

/// The present state of a credential. Contains no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialState {
    /// Its name in the document.
    pub name: String,
    /// Its kind in the document, as in `clientSecret`.
    pub kind: &'static str,
    /// Whether there is a valid value to attach. Without one, requests to its hosts fail.
    pub is_ready: bool,
    /// Until when the value is or was valid. None if it does not expire, or before the first one is acquired.
    pub until: Option<SystemTime>,
    /// The failure, if the last attempt to acquire it failed. The credential may be ready nonetheless.
    pub failing: Option<Failing>,
}

/// A failure to acquire a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// When it began.
    pub since: SystemTime,
    /// The cause of the last failed attempt.
    pub cause: String,
}

/// Called when a static value was replaced by another, which may be of another identity. A renewed token is not: it is
/// of the same identity.
pub(crate) type OnReplaced = Arc<dyn Fn() + Send + Sync>;

/// The credentials of a gate.
#[derive(Debug)]
pub(crate) struct Credentials(Vec<HostCredential>);

struct HostCredential {
    hosts: Vec<HostPattern>,
    plain: bool,
    renewer: Renewer,
}

impl fmt::Debug for HostCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostCredential").field(&self.renewer.state()).finish()
    }
}

impl Credentials {
    /// Starts to acquire these credentials, which must have no [`Credential::problems`]. Needs a tokio runtime if there
    /// are any.
    pub(crate) fn new(
        credentials: Vec<Credential>,
        provider: &Arc<str>,
        network: &Arc<Network>,
        metrics: &CredentialMetrics,
        replaced: &OnReplaced,
    ) -> Self {
        let kept = |credential: Credential| {
            let (hosts, plain, kind) = (credential.hosts.clone(), credential.plain, credential.kind.label());
            let labels =
                CredentialLabels { provider: provider.clone(), credential: credential.name.as_str().into() };
            let acquirer = Acquirer::new(credential, network);
            let renewer = Renewer::new(kind, labels, acquirer, metrics.clone(), replaced.clone());
            HostCredential { hosts, plain, renewer }
        };
        Self(credentials.into_iter().map(kept).collect())
    }

    pub(crate) fn state(&self) -> Vec<CredentialState> {
        self.0.iter().map(|kept| kept.renewer.state()).collect()
    }

    /// Attaches the credential for this request, if there is one. Waits for it until the soft deadline at most.
    ///
    /// # Errors
    /// [`Error::Credential`]: a request is not sent without its credential.
    pub(crate) async fn attach(
        &self,
        request: &Request,
        mut outgoing: http::Request<Bytes>,
        soft: Instant,
    ) -> Result<(http::Request<Bytes>, Option<Attached<'_>>), Error> {
        let fits = |kept: &&HostCredential| {
            (request.tls || kept.plain) && kept.hosts.iter().any(|host| host.matches(&request.host))
        };
        let Some(HostCredential { renewer, .. }) = self.0.iter().find(fits) else {
            return Ok((outgoing, None));
        };
        let (number, AttachedValue { value, needles }) = renewer.value(soft).await?;
        headers::make_searchable(outgoing.headers_mut());
        let bare = outgoing.clone();
        value.attach(&mut outgoing, SystemTime::now()).await;
        Ok((outgoing, Some(Attached { renewer, number, bare, needles })))
    }
}

/// The credential that was attached to a request, in case the cloud refuses it.
pub(crate) struct Attached<'a> {
    renewer: &'a Renewer,
    number: u64,
    /// The request without the credential.
    bare: http::Request<Bytes>,
    /// Find the credential in the response.
    pub(crate) needles: Needles,
}

impl Attached<'_> {
    /// The request with a newer credential than the refused one. None if the answer is not about the credential, or no
    /// other is available before the soft deadline.
    ///
    /// A 401 shows that nothing was done, so a change may be sent again as well.
    pub(crate) async fn again(
        self,
        status: StatusCode,
        soft: Instant,
    ) -> Option<(http::Request<Bytes>, Needles)> {
        let Self { renewer, number, bare: mut outgoing, needles: _ } = self;
        if status != StatusCode::UNAUTHORIZED || Instant::now() >= soft {
            return None;
        }
        let (_, AttachedValue { value, needles }) = renewer.newer(number, soft).await?;
        value.attach(&mut outgoing, SystemTime::now()).await;
        Some((outgoing, needles))
    }
}
