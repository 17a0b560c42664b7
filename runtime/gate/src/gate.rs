//! The gate of one provider: how it is made, what it shows of itself, and how it ends. `pipeline` carries a request
//! through all stages in order, after `prepare` has given it the form that the stages work on.
//!
//! # The end of a gate
//!
//! At SIGTERM the process closes its gates ([`Gate::close`]) and waits for their writes ([`Gate::wait_for_writes`]):
//!
//! - A new request is refused with [`Error::Closed`].
//! - A read that waits, for a limit or for the cloud, ends with [`Error::Closed`].
//! - A write that hasn't sent its first byte ends with [`Error::Closed`]; it never leaves.
//! - A write that is in flight is finished by a task of its own, for at most a minute. The process itself
//!   waits 25 s, see `pileus/src/providers.rs`. Its response still teaches the
//!   limits and drops the cache, and its caller gets it if the caller still waits. See `writes`.

mod config;
mod family;
mod in_force;
mod pipeline;
mod prepare;
mod present;
mod reads;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::budget::MemoryBudget;
use crate::cache::{Cache, CacheState, View};
use crate::connection::Connection;
use crate::cpu_account::CpuAccount;
use crate::credentials::{CredentialState, Credentials, OnReplaced};
use crate::error::Error;
use crate::interceptor::Interceptor;
use crate::limits::{Limiter, LimitsState, Urgency};
use crate::metrics::Metrics;
use crate::network::{self, Network, Resolve};
use crate::recent::RecentRequest;
use crate::refusals::Refusals;
use crate::replies::Replies;
use crate::rules::Rules;
use crate::trust;
use crate::upstream::Upstream;
pub use config::Config;
pub use family::GateFamily;
use in_force::RuledLimits;
use present::PresentAccess;

/// The only path from one provider to its cloud. Cheap to clone; clones share connections, limits and the cache.
#[derive(Debug, Clone)]
pub struct Gate {
    inner: Arc<Inner>,
    urgency: Urgency,
    view: Option<View>,
    replies: Option<Replies>,
    budget: Option<MemoryBudget>,
    interceptor: Option<Arc<dyn Interceptor>>,
    account: Option<CpuAccount>,
    /// The function that is called, if it may only read.
    reader: Option<&'static str>,
    /// What a POST does by the rules of another gate, where the own ones don't suffice.
    other_rules: Option<Arc<Rules>>,
}

/// The stages, and what they share.
#[derive(Debug)]
struct Inner {
    provider: Arc<str>,
    upstreams: Vec<Upstream>,
    present: PresentAccess,
    rules: Arc<Rules>,
    refusals: Arc<Refusals>,
    /// One body of a request at a time is read, if it is long, so that a provider never has more than one thread for that.
    reading: Arc<Semaphore>,
    cache: Cache,
    /// Its own, which are in force from [`Gate::take_over`].
    limits: Arc<RuledLimits>,
    credentials: Credentials,
    family: GateFamily,
}

impl Gate {
    /// Makes the only gate of a provider, with connections that it shares with no other gate. A gate with credentials needs a
    /// tokio runtime, because it starts to acquire them at once.
    ///
    /// # Errors
    /// [`Error::Config`] with every mistake in the config; [`Error::Roots`] and [`Error::ExtraRoots`] without trust roots.
    pub fn new(config: Config, metrics: &Metrics) -> Result<Self, Error> {
        Self::with_resolver(config, metrics, Arc::new(network::System))
    }

    /// Makes the only gate of a provider that resolves names with this resolver.
    ///
    /// # Errors
    /// As [`Gate::new`].
    pub fn with_resolver(
        config: Config,
        metrics: &Metrics,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, Error> {
        GateFamily::with_resolver(&config.provider, config.fence.clone(), metrics, resolver)
            .gate(config, metrics)
    }

    /// Makes a gate of a family.
    ///
    /// # Errors
    /// As [`Gate::new`].
    fn build(config: Config, metrics: &Metrics, family: GateFamily) -> Result<Self, Error> {
        config.check()?;
        let tls = trust::tls(config.speaks_tls(), config.connection.extra_roots.as_deref())?;
        let Config {
            provider,
            grants,
            rules,
            refusals,
            limits,
            tightened,
            credentials,
            denied_ranges,
            fence: _,
            connection: Connection { proxy, .. },
        } = config;
        let (provider, connections): (Arc<str>, _) = (provider.into(), metrics.connections.clone());
        let network = Network {
            denied: denied_ranges,
            resolver: Arc::clone(&family.resolver),
            tls,
            proxy,
            provider: Arc::clone(&provider),
            connections,
        };
        let network = Arc::new(network);
        let upstreams: Vec<_> =
            grants.into_iter().map(|grant| Upstream::new(grant, Arc::clone(&network))).collect();
        let rules = Arc::new(Rules::new(rules)?);
        let (refusals, reading) = (Arc::new(Refusals::new(refusals)), Arc::new(Semaphore::new(1)));
        let cache = Cache::new(Arc::clone(&provider), metrics.cache.clone());
        let limiter = Limiter::new(Arc::clone(&provider), &rules, limits, tightened, metrics.limits.clone());
        let limits = Arc::new(RuledLimits { rules: Arc::clone(&rules), limiter });
        family.in_force.begin_with(&limits);
        // Cached responses belong to the identity that requested them.
        let replaced: OnReplaced = Arc::new({
            let cache = cache.clone();
            move || cache.forget()
        });
        let credentials =
            Credentials::new(credentials, &upstreams, &network, &metrics.credentials, &replaced);
        Ok(Self::of(Inner {
            provider,
            upstreams,
            present: PresentAccess::default(),
            rules,
            refusals,
            reading,
            cache,
            limits,
            credentials,
            family,
        }))
    }

    fn of(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
            urgency: Urgency::default(),
            view: None,
            replies: None,
            budget: None,
            interceptor: None,
            account: None,
            reader: None,
            other_rules: None,
        }
    }

    /// The same gate for a call of this urgency. Without it a call has the lowest.
    #[must_use]
    pub fn with_urgency(self, urgency: Urgency) -> Self {
        Self { urgency, ..self }
    }

    /// The same gate for a call that may be answered from the cache within the bounds of this view. A gate without a view
    /// neither reads its cache nor fills it; a change drops cached responses in any case.
    #[must_use]
    pub fn with_view(self, view: View) -> Self {
        Self { view: Some(view), ..self }
    }

    /// The same gate for a call that is charged the CPU time of what the gate does for it in tasks and threads of its own. What
    /// the future of [`Gate::send`] and the body of its response do themselves is for their caller to measure.
    #[must_use]
    pub fn with_account(self, account: CpuAccount) -> Self {
        Self { account: Some(account), ..self }
    }

    /// The same gate for a call whose answers are recorded here.
    #[must_use]
    pub fn with_replies(self, replies: Replies) -> Self {
        Self { replies: Some(replies), ..self }
    }

    /// The same gate for a call that may hold this much memory: the bodies of its requests and of cached responses.
    #[must_use]
    pub fn with_budget(self, budget: MemoryBudget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// The same gate with an interceptor, which sees each request before it is sent and may answer it.
    #[must_use]
    pub fn with_interceptor(self, interceptor: Arc<dyn Interceptor>) -> Self {
        Self { interceptor: Some(interceptor), ..self }
    }

    /// Takes no more requests, and ends the reads and the writes that haven't been sent. Writes in flight are finished.
    pub fn close(&self) {
        self.inner.family.shutdown.close();
    }

    /// How many writes may have been sent and are unanswered.
    pub fn writes_in_flight(&self) -> usize {
        self.inner.family.writes.count()
    }

    /// Waits until no write is in flight.
    pub async fn wait_for_writes(&self) {
        self.inner.family.writes.wait_until_none().await;
    }

    /// Lets all limits hold what has filled since a predecessor sent its last request, this long ago. The limits of a new gate
    /// are empty. For a leader, whose predecessor may have used them up.
    pub fn refill_limits(&self, idle: Duration) {
        self.inner.family.in_force.get(&self.inner.limits).limiter.refill(idle);
    }

    /// Puts the limits of this gate in force for its family. They take over what those before have learned, what the cloud has
    /// closed, and what their buckets hold. For the moment at which a release begins to serve calls.
    pub fn take_over(&self) {
        self.inner.family.in_force.hand_over(&self.inner.limits);
    }

    /// Whether both are clones of one gate, perhaps for different calls.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The operator's name for the provider.
    pub fn provider(&self) -> &str {
        &self.inner.provider
    }

    /// The state of the cache.
    pub fn cache(&self) -> CacheState {
        self.inner.cache.state()
    }

    /// The state of the limits in force.
    pub fn limits(&self) -> LimitsState {
        self.inner.family.in_force.get(&self.inner.limits).limiter.state()
    }

    /// The state of the credentials, in the order of the document.
    pub fn credentials(&self) -> Vec<CredentialState> {
        self.inner.credentials.state()
    }

    /// The last requests, the one that ended last first. They hold no secret.
    pub fn recent(&self) -> Vec<RecentRequest> {
        self.inner.family.records.recent.list()
    }
}
