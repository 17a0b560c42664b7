//! The credentials of requests to the cloud. A provider never sees a credential: the operator names it and its hosts,
//! the gate acquires and renews it, and attaches it to requests after all other decisions.
//!
//! `spec` is what the operator declares and `problems` what is wrong with it, `renewer` calls `acquire` at the times
//! that `decide` computes. `oauth`, `assertion`, `token` and `endpoint` deal with token endpoints, `sigv4` signs,
//! `value` is what is attached, `metadata` what the machine's own metadata service wants, `metrics` what is counted.

mod acquire;
mod assertion;
mod decide;
mod endpoint;
mod metadata;
mod metrics;
mod oauth;
mod problems;
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

use crate::echo::NeedleSet;
use crate::error::{Error, MissingGrant};
use crate::grants::Grant;
use crate::headers;
use crate::network::Network;
use crate::path::PathPrefix;
use crate::pattern::HostPattern;
use crate::request::{Request, default_port};
use crate::upstream::Upstream;
use acquire::Acquirer;
use metrics::CredentialLabels;
pub(crate) use metrics::CredentialMetrics;
pub use problems::problems;
use renewer::{AttachedValue, Renewer};
pub use spec::{Credential, CredentialKind, IdentityId, MetadataFlavor, OAuthClient, TokenTarget};
pub use token_url::TokenUrl;
use value::CredentialValue;

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
    paths: Vec<PathPrefix>,
    plain: bool,
    is_metadata: bool,
    /// The positions of those that are sent along.
    auxiliary: Vec<usize>,
    renewer: Renewer,
}

impl fmt::Debug for HostCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostCredential").field(&self.renewer.state()).finish()
    }
}

impl HostCredential {
    /// Whether it is for requests to this host, and may be attached to them.
    fn is_for(&self, request: &Request) -> bool {
        let is_open = if self.is_metadata { !request.tls } else { request.tls || self.plain };
        is_open && self.hosts.iter().any(|host| host.matches(&request.host))
    }

    /// How closely its paths name that of the request: the length of the longest, and 0 without paths. `None` if it is for other
    /// paths.
    fn closeness(&self, request: &Request) -> Result<Option<usize>, Error> {
        if self.paths.is_empty() {
            return Ok(Some(0));
        }
        let mut longest = None;
        for prefix in &self.paths {
            // A prefix of `/` has no letters and names a path nonetheless.
            let length = prefix.covers_in_any_case(&request.path).map_err(|cause| Error::Credential {
                credential: self.renewer.name(),
                cause: format!(
                    "the path {cause}, so some servers might see one that the credential isn't for"
                ),
            })?;
            longest = longest.max(length.map(|length| length + 1));
        }
        Ok(longest)
    }
}

impl Credentials {
    /// Starts to acquire these credentials, which must have no problems. Needs a tokio runtime if there are any.
    pub(crate) fn new(
        credentials: Vec<Credential>,
        upstreams: &[Upstream],
        network: &Arc<Network>,
        metrics: &CredentialMetrics,
        replaced: &OnReplaced,
    ) -> Self {
        let names: Vec<_> = credentials.iter().map(|credential| credential.name.clone()).collect();
        let kept = |credential: Credential| {
            let Credential { hosts, paths, plain, kind, auxiliary, name, .. } = &credential;
            let (hosts, paths, plain, label) = (hosts.clone(), paths.clone(), *plain, kind.label());
            let is_metadata = matches!(kind, CredentialKind::Metadata { .. });
            let place = |name: &String| names.iter().position(|other| other == name);
            let auxiliary = auxiliary.iter().filter_map(place).collect();
            let labels =
                CredentialLabels { provider: network.provider.clone(), credential: name.as_str().into() };
            let acquirer = Acquirer::new(credential, network, plain_port(&hosts, upstreams));
            let renewer = Renewer::new(label, labels, acquirer, metrics.clone(), replaced.clone());
            HostCredential { hosts, paths, plain, is_metadata, auxiliary, renewer }
        };
        Self(credentials.into_iter().map(kept).collect())
    }

    pub(crate) fn state(&self) -> Vec<CredentialState> {
        self.0.iter().map(|kept| kept.renewer.state()).collect()
    }

    /// Checks that a request doesn't ask a metadata service for an identity of this machine, whose header the gate would
    /// attach.
    ///
    /// # Errors
    /// [`MissingGrant::Identity`].
    pub(crate) fn check(&self, request: &Request) -> Result<(), MissingGrant> {
        for kept in self.0.iter().filter(|kept| kept.is_metadata && kept.is_for(request)) {
            let refused = |cause| MissingGrant::Identity { credential: kept.renewer.name(), cause };
            metadata::check_path(&request.path).map_err(refused)?;
        }
        Ok(())
    }

    /// The credential for a request: the one that names its path most closely, and of those the first.
    fn chosen(&self, request: &Request) -> Result<Option<&HostCredential>, Error> {
        let mut chosen = None;
        for kept in self.0.iter().filter(|kept| kept.is_for(request)) {
            if let Some(closeness) = kept.closeness(request)?
                && chosen.is_none_or(|(closest, _)| closeness > closest)
            {
                chosen = Some((closeness, kept));
            }
        }
        Ok(chosen.map(|(_, kept)| kept))
    }

    /// The name of the credential for a request, and of those that are sent along.
    ///
    /// # Errors
    /// [`Error::Credential`].
    pub(crate) fn names_for(&self, request: &Request) -> Result<Option<(String, Vec<String>)>, Error> {
        let names = |kept: &HostCredential| {
            let auxiliary = kept.auxiliary.iter().filter_map(|place| self.0.get(*place));
            (kept.renewer.name(), auxiliary.map(|other| other.renewer.name()).collect())
        };
        Ok(self.chosen(request)?.map(names))
    }

    /// Attaches the credential for this request, if there is one, and those that are sent along. Waits for them until the soft
    /// deadline at most.
    ///
    /// # Errors
    /// [`Error::Credential`]: a request is not sent without its credential.
    pub(crate) async fn attach(
        &self,
        request: &Request,
        mut outgoing: http::Request<Bytes>,
        soft: Instant,
    ) -> Result<(http::Request<Bytes>, Option<Attached<'_>>), Error> {
        let Some(HostCredential { renewer, auxiliary, .. }) = self.chosen(request)? else {
            return Ok((outgoing, None));
        };
        let main = Part::new(renewer, soft).await?;
        let mut others = Vec::new();
        for HostCredential { renewer, .. } in auxiliary.iter().filter_map(|place| self.0.get(*place)) {
            others.push(Part::new(renewer, soft).await?);
        }
        headers::make_searchable(outgoing.headers_mut());
        let attached = Attached { main, auxiliary: others, bare: outgoing.clone() };
        attached.put_on(&mut outgoing).await;
        Ok((outgoing, Some(attached)))
    }
}

/// The port at which the grants open a host without TLS.
fn plain_port(hosts: &[HostPattern], upstreams: &[Upstream]) -> u16 {
    let is_of = |grant: &&Grant| !grant.tls && hosts.contains(&grant.host);
    upstreams.iter().map(AsRef::as_ref).find(is_of).map_or(default_port(false), |grant| grant.port)
}

/// The credential that was attached to a request, in case the cloud refuses it.
pub(crate) struct Attached<'a> {
    main: Part<'a>,
    auxiliary: Vec<Part<'a>>,
    /// The request without the credential.
    bare: http::Request<Bytes>,
}

/// One of the values that a request carries.
struct Part<'a> {
    renewer: &'a Renewer,
    number: u64,
    attached: AttachedValue,
}

impl<'a> Part<'a> {
    async fn new(renewer: &'a Renewer, soft: Instant) -> Result<Self, Error> {
        let (number, attached) = renewer.value(soft).await?;
        Ok(Self { renewer, number, attached })
    }

    /// Takes a newer value, if there is one before the soft deadline.
    async fn renew(&mut self, soft: Instant) -> bool {
        let newer = self.renewer.newer(self.number, soft).await;
        let is_newer = newer.is_some();
        if let Some((number, attached)) = newer {
            (self.number, self.attached) = (number, attached);
        }
        is_newer
    }
}

impl Attached<'_> {
    /// Find the credentials in the response.
    pub(crate) fn needles(&self) -> NeedleSet {
        let auxiliary = self.auxiliary.iter().map(|part| part.attached.needles.clone()).collect();
        NeedleSet { main: self.main.attached.needles.clone(), auxiliary }
    }

    async fn put_on(&self, outgoing: &mut http::Request<Bytes>) {
        let now = SystemTime::now();
        if !self.auxiliary.is_empty()
            && let Some(others) =
                CredentialValue::auxiliary(self.auxiliary.iter().map(|part| &part.attached.value))
        {
            others.attach(outgoing, now).await;
        }
        // Last, since a signature is over the whole request.
        self.main.attached.value.attach(outgoing, now).await;
    }

    /// The request with a newer credential than the refused one. None if the answer is not about the credential, or no
    /// other is available before the soft deadline.
    ///
    /// A 401 shows that nothing was done, so a change may be sent again as well.
    pub(crate) async fn again(
        mut self,
        status: StatusCode,
        soft: Instant,
    ) -> Option<(http::Request<Bytes>, NeedleSet)> {
        if status != StatusCode::UNAUTHORIZED || Instant::now() >= soft {
            return None;
        }
        // It isn't known which of them the cloud refused.
        let mut is_newer = self.main.renew(soft).await;
        for part in &mut self.auxiliary {
            is_newer |= part.renew(soft).await;
        }
        if !is_newer {
            return None;
        }
        let mut outgoing = std::mem::take(&mut self.bare);
        self.put_on(&mut outgoing).await;
        Some((outgoing, self.needles()))
    }
}
