//! The cloud behind HTTP: sockets, the clock and the lock. What a request means is decided elsewhere; here are only the
//! routes, and the connections, which are served by hyper directly because a lost answer must end the connection, and
//! an axum handler can't.

mod admin;
mod answer;
mod machines;
mod passage;
mod resources;
mod routes;
mod tokens;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

use self::passage::{IsThere, Telling};
use crate::call::Kind;
use crate::counters::Counters;
use crate::credentials::{Credentials, Tokens};
use crate::faults::{Faults, Random};
use crate::page;
use crate::quotas::{Buckets, Quotas};
use crate::requests::Requests;
use crate::world::{LoadBalancer, Managed, Place, ReservedAddress, SharedLoadBalancer, World};

/// How long requests that are under way may take to finish when the cloud is told to stop.
const GRACE: Duration = Duration::from_secs(1);

/// How long to wait when no connection can be accepted, mostly for want of file descriptors: time for some to close.
const BREATH: Duration = Duration::from_millis(50);

/// Why there is no cloud. The caller can only give up; the message says what to change.
#[derive(Debug, Error)]
pub enum Error {
    /// It can't listen there.
    #[error("can't listen on {address}: {source}, try another address")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The system refused something that every process needs.
    #[error("can't start: {0}")]
    Start(#[source] std::io::Error),
}

/// Which cloud to play.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its region and zones.
    pub place: Place,
    /// How many machines there are from the start.
    pub machines: u32,
    /// The seed of the dice.
    pub seed: u64,
    /// How many requests it lets through.
    pub quotas: Quotas,
    /// Who may call it; everybody, where nobody is named.
    pub credentials: Option<Credentials>,
}

/// All that the cloud is made of.
struct Simulation {
    world: World,
    faults: Faults,
    buckets: Buckets,
    tokens: Tokens,
    random: Random,
    /// The dice of the faults that meet writes of things that take their time.
    fortune: Random,
    counters: Counters,
    requests: Requests,
}

/// The cloud as all connections share it.
#[derive(Clone)]
struct Shared(Arc<(Instant, Mutex<Simulation>)>);

impl Shared {
    fn new(settings: Settings) -> Self {
        let Settings { place, machines, seed, quotas, credentials } = settings;
        let simulation = Simulation {
            world: World::new(place, Timestamp::now(), machines),
            faults: Faults::default(),
            buckets: Buckets::new(quotas),
            tokens: Tokens::new(credentials, seed),
            random: Random::seeded(seed),
            fortune: Random::seeded(!seed),
            counters: Counters::default(),
            requests: Requests::default(),
        };
        Self(Arc::new((Instant::now(), Mutex::new(simulation))))
    }

    /// Does something with the cloud that happens all at once, at the time since its start that is passed along.
    fn with<T>(&self, act: impl FnOnce(&mut Simulation, Duration) -> T) -> T {
        let (start, simulation) = &*self.0;
        // Each act leaves the cloud whole, also one that panicked: nothing in it is written halfway.
        let mut simulation = simulation.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut simulation, start.elapsed())
    }
}

/// Listens on an address.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// What resolves when the process is told to stop, by SIGTERM or SIGINT. From this call on they don't kill it.
pub fn stop_signal() -> Result<impl Future<Output = ()>, Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Start)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Start)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Plays the cloud until `stop` resolves, and then for a second at most, until what is under way is done.
pub async fn serve(listener: TcpListener, settings: Settings, stop: impl Future<Output = ()>) {
    let router = router(Shared::new(settings));
    let connections = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => connect(stream, router.clone(), &connections),
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    drop(listener);
    // Whoever still waits after that has had its time; the connections end with the process.
    let _ = tokio::time::timeout(GRACE, connections.shutdown()).await;
}

fn connect(stream: TcpStream, router: Router, connections: &GracefulShutdown) {
    // Answers are small: one that waits for the acknowledgement of another would show as latency that nobody set.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answer = router.call(request);
        async move {
            let Ok(response): Result<Response, _> = answer.await;
            passage::unless_lost(response)
        }
    });
    let connection =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        // It ends with an error where the client went away or the answer was lost: both are everyday life here.
        let _ = connection.await;
    });
}

fn router(shared: Shared) -> Router {
    Router::new()
        .merge(machines_and_routes(&shared))
        .merge(resources::<LoadBalancer>(&shared, "/v1/load-balancers"))
        .merge(resources::<ReservedAddress>(&shared, "/v1/addresses"))
        .merge(resources::<SharedLoadBalancer>(&shared, "/v1/shared-load-balancers"))
        .merge(operator())
        .route("/oauth2/token", call(&shared, Kind::Token, post(tokens::by_grant)))
        .route("/metadata/identity/oauth2/token", call(&shared, Kind::Token, get(tokens::by_machine)))
        .route("/", get(page::show))
        .fallback(passage::unknown)
        .method_not_allowed_fallback(passage::wrong_method)
        .with_state(shared)
}

/// A call to the cloud, with all that it goes through.
fn call(shared: &Shared, kind: Kind, route: MethodRouter<Shared>) -> MethodRouter<Shared> {
    tell(shared, Telling::Kind(kind), route)
}

fn tell(shared: &Shared, telling: Telling, route: MethodRouter<Shared>) -> MethodRouter<Shared> {
    route.route_layer(from_fn_with_state((shared.clone(), telling), passage::pass))
}

fn machines_and_routes(shared: &Shared) -> Router<Shared> {
    let call = |kind, route| call(shared, kind, route);
    let one = call(Kind::Get, get(machines::get))
        .merge(call(Kind::Change, patch(machines::change)))
        .merge(call(Kind::Delete, delete(machines::delete)));
    Router::new()
        .route(
            "/v1/machines",
            call(Kind::List, get(machines::list)).merge(call(Kind::Create, post(machines::create))),
        )
        .route(
            "/v1/machines:batch",
            call(Kind::Create, post(machines::create_batch))
                .merge(call(Kind::Delete, delete(machines::delete_batch))),
        )
        .route("/v1/machines/{id}", one)
        .route("/v1/machines/{id}/stop", call(Kind::Change, post(machines::stop)))
        .route("/v1/machines/{id}/start", call(Kind::Change, post(machines::start)))
        .route("/v1/routes", call(Kind::List, get(routes::list)))
        .route(
            "/v1/routes/{name}",
            call(Kind::Create, put(routes::put)).merge(call(Kind::Delete, delete(routes::delete))),
        )
}

/// The calls about one kind of things whose writes take their time.
fn resources<T>(shared: &Shared, path: &str) -> Router<Shared>
where
    T: Managed<New: DeserializeOwned + Send> + Serialize + Send + Sync + 'static,
{
    let is_there: IsThere = |world, now, name| world.read::<T>(now, name).is_ok();
    let one = call(shared, Kind::Get, get(resources::get::<T>))
        .merge(tell(shared, Telling::Put(is_there), put(resources::put::<T>)))
        .merge(call(shared, Kind::Delete, delete(resources::delete::<T>)));
    Router::new()
        .route(path, call(shared, Kind::List, get(resources::list::<T>)))
        .route(&format!("{path}/{{name}}"), one)
}

fn operator() -> Router<Shared> {
    Router::new()
        .route("/admin/faults", get(admin::faults).put(admin::set_faults).delete(admin::reset_faults))
        .route("/admin/quotas", get(admin::quotas).put(admin::set_quotas).delete(admin::reset_quotas))
        .route(
            "/admin/credentials",
            get(admin::credentials).put(admin::set_credentials).delete(admin::reset_credentials),
        )
        .route("/admin/tokens", delete(admin::revoke_tokens))
        .route("/admin/counters", get(admin::counters).delete(admin::reset_counters))
        .route("/admin/requests", get(admin::requests))
        .route("/admin/state", get(admin::state))
}
