//! What calls of controllers reach: the release that serves them, as the state machine of the swap decides. Each call begins
//! with one release and ends with it, so a swap is atomic for calls: they go on while releases change.
//!
//! It also measures how each release does, and knows when the last call of a replaced release has ended.

mod tally;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
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
use crate::swap::{Call, Rates, Release, Roles};
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
    aborted: CancellationToken,
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
            aborted: CancellationToken::new(),
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
    /// releases are measured from now on.
    pub fn assign(&self, roles: Roles) {
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
            loaded.aborted.cancel();
        }
    }

    /// The provider as controllers see it, with what a release declares.
    pub fn provider(&self, declaration: &Declaration) -> Provider {
        let Declaration {
            schemes,
            node_labels,
            largest_lookup_batch,
            service_requirements,
            largest_route_batch,
        } = declaration.clone();
        Provider {
            name: self.shared.provider.clone(),
            schemes,
            node_labels,
            instances: largest_lookup_batch.map(|_| Arc::new(self.clone()) as Arc<dyn Instances>),
            largest_lookup_batch: largest_lookup_batch.unwrap_or(1),
            load_balancers: service_requirements
                .as_ref()
                .map(|_| Arc::new(self.clone()) as Arc<dyn LoadBalancers>),
            service_requirements: service_requirements.unwrap_or_default(),
            routes: largest_route_batch.map(|_| Arc::new(self.clone()) as Arc<dyn Routes>),
            largest_route_batch: largest_route_batch.unwrap_or(1),
        }
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
            Some(Begun { release, loaded })
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
        begun.run(&self.shared.provider, make(Arc::clone(&begun.loaded)), tally).await
    }
}

/// A call that counts as in flight as long as this exists.
struct Begun {
    release: Release,
    loaded: Arc<Loaded>,
}

impl Begun {
    async fn run<T>(
        &self,
        provider: &str,
        call: impl Future<Output = Result<T, Error>>,
        tally: impl FnOnce(&Tally, &Result<T, Error>),
    ) -> Result<T, Error> {
        let started = Instant::now();
        let result = tokio::select! {
            biased;
            () = self.loaded.aborted.cancelled() => {
                let message =
                    format!("provider {provider}: the call took longer than a replaced release may take");
                Err(Error::new(ErrorKind::Unavailable(Some(RETRY)), message))
            }
            result = call => result,
        };
        tally(&self.loaded.tally, &result);
        self.loaded.tally.took(started.elapsed());
        result
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
            let call = begun.loaded.guest.lookup(purpose, &of_part);
            let answers = begun.run(&self.shared.provider, call, |tally, answers| {
                tally.items(of_part.len(), answers);
            });
            let answers = match answers.await {
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
