//! What calls of controllers reach: the release that serves them, as the state machine of the swap decides. Each call begins
//! with one release and ends with it, so a swap is atomic for calls: they go on while releases change.
//!
//! It also measures how each release does, and knows when the last call of a replaced release has ended.

mod tally;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use pileus_cloud::{
    Answer, Cluster, Error, ErrorKind, Instances, ListedRoute, LoadBalancers, NodeReference,
    OwnedLoadBalancer, Provider, Purpose, RouteChange, RouteProgress, Routes, ServiceCall, ServiceProgress,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::declaration::Declaration;
use crate::guest::Guest;
use crate::swap::{Call, CanaryShare, Rates, Release, Roles};
use tally::Tally;

/// When a call is made again that no release may serve at present.
const RETRY: Duration = Duration::from_secs(2);

/// The releases of one provider on this replica, and which of them serves which call. Clones share them.
#[derive(Clone)]
pub struct Serving {
    shared: Arc<Shared>,
}

struct Shared {
    /// The operator's name for the provider.
    provider: String,
    releases: RwLock<Releases>,
}

#[derive(Default)]
struct Releases {
    roles: Roles,
    loaded: BTreeMap<Release, Arc<Loaded>>,
}

impl Releases {
    /// Shows the release that serves calls in the metrics, in place of another.
    fn show_served(&self, before: Option<Release>) {
        let guest = |release: Option<Release>| Some(&self.loaded.get(&release?)?.guest);
        let (before, now) = (guest(before), guest(self.roles.serving));
        if let Some(guest) = now.or(before) {
            let (before, now) = (before.map(Guest::info), now.map(Guest::info));
            guest.metrics().show_served(before.as_ref(), now.as_ref());
        }
    }
}

/// A release that can serve calls.
struct Loaded {
    guest: Guest,
    tally: Tally,
    in_flight: watch::Sender<usize>,
    /// Ends the calls that are in flight. A release may serve again later, so that later calls have another token.
    aborted: Mutex<CancellationToken>,
}

/// Outcomes of the items of a call.
type Outcomes<T> = Result<Vec<Result<T, Error>>, Error>;

impl Serving {
    /// No release yet: calls are answered with an error until [`Serving::assign`] names one.
    pub fn new(provider: &str) -> Self {
        let releases = RwLock::default();
        Self { shared: Arc::new(Shared { provider: provider.to_owned(), releases }) }
    }

    /// Adds a release, which serves nothing yet.
    pub fn add(&self, release: Release, guest: Guest) {
        let loaded = Loaded {
            guest,
            tally: Tally::default(),
            in_flight: watch::Sender::new(0),
            aborted: Mutex::default(),
        };
        self.change(|releases| releases.loaded.insert(release, Arc::new(loaded)));
    }

    /// Forgets a release. Its calls in flight go on.
    pub fn remove(&self, release: Release) {
        self.change(|releases| releases.loaded.remove(&release));
    }

    /// What a release that was added declares.
    pub fn declaration(&self, release: Release) -> Option<Declaration> {
        Some(self.loaded(release)?.guest.declaration())
    }

    /// Lets new calls follow these roles, and shows which release serves them in the metrics. Where the roles change, all
    /// releases are measured from now on. A canary that reads other labels of Nodes or takes smaller batches than the release
    /// that serves gets no lookup: they are made as that release declares it.
    pub fn assign(&self, roles: Roles) {
        let roles = self.read().without_misfit(roles);
        if self.read().roles == roles {
            return;
        }
        self.change(|releases| {
            let before = std::mem::replace(&mut releases.roles, roles);
            if (before.serving, before.canary) != (roles.serving, roles.canary) {
                releases.loaded.values().for_each(|loaded| loaded.tally.reset());
            }
            if before.serving != roles.serving {
                releases.show_served(before.serving);
            }
        });
    }

    /// How each release that serves calls has done since the roles changed last.
    pub fn rates(&self) -> Vec<(Release, Rates)> {
        let releases = self.read();
        let Roles { serving, canary, .. } = releases.roles;
        let serving = serving.into_iter().chain(canary.map(|canary| canary.release));
        serving.filter_map(|release| Some((release, releases.loaded.get(&release)?.tally.rates()))).collect()
    }

    /// Waits until no call of a release is in flight.
    pub async fn drained(&self, release: Release) {
        if let Some(loaded) = self.loaded(release) {
            let mut in_flight = loaded.in_flight.subscribe();
            let _ended = in_flight.wait_for(|calls| *calls == 0).await;
        }
    }

    /// Ends the calls of a release that are in flight, with an error.
    pub fn abort(&self, release: Release) {
        if let Some(loaded) = self.loaded(release) {
            let mut aborted = loaded.aborted.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *aborted).cancel();
        }
    }

    /// The provider as controllers see it, with what a release declares.
    pub fn provider(&self, declaration: &Declaration) -> Provider {
        declaration.clone().provider(&self.shared.provider, &Arc::new(self.clone()))
    }

    fn read(&self) -> RwLockReadGuard<'_, Releases> {
        self.shared.releases.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Releases) -> T) -> T {
        // No code that holds the lock can panic halfway through a change.
        change(&mut self.shared.releases.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn loaded(&self, release: Release) -> Option<Arc<Loaded>> {
        self.read().loaded.get(&release).cloned()
    }

    /// Begins a call with the release that serves it, so that [`Serving::drained`] waits for its end.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where none may serve it at present.
    fn begin(&self, call: Call<'_>) -> Result<Begun, Error> {
        let releases = self.read();
        let release = releases.roles.release_for(call);
        let begun = release.and_then(|release| {
            let loaded = Arc::clone(releases.loaded.get(&release)?);
            loaded.in_flight.send_modify(|calls| *calls += 1);
            let aborted = loaded.aborted.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Some(Begun { release, loaded, aborted })
        });
        begun.ok_or_else(|| {
            let provider = &self.shared.provider;
            let message = format!("provider {provider}: the active release isn't ready on this replica yet");
            Error::new(ErrorKind::Unavailable(Some(RETRY)), message)
        })
    }

    /// Makes a call about one list, or about items that one release serves together.
    async fn call<T, F: Future<Output = Result<T, Error>>>(
        &self,
        call: Call<'_>,
        make: impl FnOnce(Arc<Loaded>) -> F,
        tally: impl FnOnce(&Tally, &Result<T, Error>),
    ) -> Result<T, Error> {
        let begun = self.begin(call)?;
        let result = begun.run(&self.shared.provider, make(Arc::clone(&begun.loaded))).await;
        tally(&begun.loaded.tally, &result);
        result
    }
}

impl Releases {
    /// These roles, without a canary that can't answer lookups that are made for the release that serves.
    fn without_misfit(&self, roles: Roles) -> Roles {
        let lookups = |release: Release| {
            let declaration = self.loaded.get(&release)?.guest.declaration();
            Some((declaration.node_labels, declaration.largest_lookup_batch))
        };
        let fits = |canary: &CanaryShare| match (roles.serving.and_then(lookups), lookups(canary.release)) {
            (Some((labels, batch)), Some((wanted, largest))) => labels == wanted && batch <= largest,
            _ => false,
        };
        Roles { canary: roles.canary.filter(fits), ..roles }
    }
}

/// A call that counts as in flight as long as this exists.
struct Begun {
    release: Release,
    loaded: Arc<Loaded>,
    aborted: CancellationToken,
}

impl Begun {
    async fn run<T>(&self, provider: &str, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.aborted.cancelled() => {
                let message =
                    format!("provider {provider}: the call took longer than a replaced release may take");
                Err(Error::new(ErrorKind::Unavailable(Some(RETRY)), message))
            }
            result = call => result,
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.loaded.in_flight.send_modify(|calls| *calls -= 1);
    }
}

#[async_trait]
impl Instances for Serving {
    async fn lookup(&self, purpose: Purpose, nodes: &[NodeReference]) -> Outcomes<Answer> {
        let call = |node| match purpose {
            Purpose::Confirm => Call::Confirm,
            Purpose::Initialise | Purpose::Refresh => Call::Lookup { node },
        };
        // The parts of a batch, by release. With few exceptions there is one.
        let mut parts: Vec<(Begun, Vec<usize>)> = Vec::new();
        for (place, node) in nodes.iter().enumerate() {
            let begun = self.begin(call(&node.name))?;
            match parts.iter_mut().find(|(part, _)| part.release == begun.release) {
                Some((_, places)) => places.push(place),
                None => parts.push((begun, vec![place])),
            }
        }
        let look_up = |(begun, places): (Begun, Vec<usize>)| async move {
            let of_part: Vec<_> = places.iter().filter_map(|place| nodes.get(*place)).cloned().collect();
            let (call, started) = (begun.loaded.guest.lookup(purpose, &of_part), Instant::now());
            let answers = begun.run(&self.shared.provider, call).await;
            begun.loaded.tally.items(of_part.len(), &answers);
            begun.loaded.tally.looked_up(started.elapsed());
            let answers = match answers {
                Ok(answers) => answers,
                Err(error) => of_part.iter().map(|_| Err(error.clone())).collect(),
            };
            places.into_iter().zip(answers).collect::<Vec<_>>()
        };
        let mut answers: Vec<_> = join_all(parts.into_iter().map(look_up)).await.concat();
        answers.sort_by_key(|(place, _)| *place);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }
}

#[async_trait]
impl LoadBalancers for Serving {
    async fn change(&self, call: ServiceCall<'_>) -> Outcomes<ServiceProgress> {
        let make = |loaded: Arc<Loaded>| async move { LoadBalancers::change(&loaded.guest, call).await };
        self.call(Call::Change, make, |tally, outcomes| tally.items(call.changes.len(), outcomes)).await
    }

    async fn list_owned(&self, cluster: &Cluster) -> Result<Vec<OwnedLoadBalancer>, Error> {
        let make = |loaded: Arc<Loaded>| async move { loaded.guest.list_owned(cluster).await };
        self.call(Call::List, make, |tally, list| tally.item(list.as_ref().err())).await
    }
}

#[async_trait]
impl Routes for Serving {
    async fn list(&self, cluster: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        let make = |loaded: Arc<Loaded>| async move { loaded.guest.list(cluster).await };
        self.call(Call::List, make, |tally, list| tally.item(list.as_ref().err())).await
    }

    async fn change(&self, cluster: &Cluster, changes: &[RouteChange]) -> Outcomes<RouteProgress> {
        let make = |loaded: Arc<Loaded>| async move { Routes::change(&loaded.guest, cluster, changes).await };
        self.call(Call::Change, make, |tally, outcomes| tally.items(changes.len(), outcomes)).await
    }
}
