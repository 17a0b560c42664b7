//! Serves the cloud over HTTP: sockets, the clock and the lock. Other modules decide what a request means; this one has the
//! routes and the connections. Connections are served by hyper directly, because a lost response must close the connection,
//! which an axum handler can't do.

pub mod admin;
mod machines;
mod metadata;
pub mod middleware;
mod overview;
mod resources;
pub mod response;
mod routes;
mod tokens;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

use self::middleware::{Classifier, Cloud, Denial};
use crate::call::Kind;
use crate::credentials::Credentials;
use crate::page;
use crate::quotas::{QuotaStatus, Quotas};
use crate::refusal::Refusal;
use crate::traffic::Traffic;
use crate::world::{LoadBalancer, Managed, Place, ReservedAddress, SharedLoadBalancer, World};

/// How long requests in flight may take to finish at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// How long to wait when a connection can't be accepted, mostly for lack of file descriptors: some may close meanwhile.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Why the cloud can't start.
#[derive(Debug, Error)]
pub enum Error {
    /// The address can't be used.
    #[error("can't listen on {address}: {source}; try another address")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The operating system refused a resource that the process needs.
    #[error("can't start: {0}")]
    Start(#[source] std::io::Error),
}

/// What the cloud is like.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its region and zones.
    pub place: Place,
    /// The number of machines at the start.
    pub machines: u32,
    /// The seed of random faults.
    pub seed: u64,
    /// The rate limits.
    pub quotas: Quotas,
    /// The only client that may call it. `None` where requests need no token.
    pub credentials: Option<Credentials>,
}

/// The whole state of the simulator.
struct Simulation {
    world: World,
    traffic: Traffic,
}

/// The simulator as all connections share it.
#[derive(Clone)]
struct SharedCloud(Arc<(Instant, Mutex<Simulation>)>);

impl SharedCloud {
    fn new(settings: Settings) -> Self {
        let Settings { place, machines, seed, quotas, credentials } = settings;
        let simulation = Simulation {
            world: World::new(place, Timestamp::now(), machines),
            traffic: Traffic::new(quotas, credentials, seed),
        };
        Self(Arc::new((Instant::now(), Mutex::new(simulation))))
    }

    /// Runs `act` under the lock. It gets the time since the start.
    fn with<T>(&self, act: impl FnOnce(&mut Simulation, Duration) -> T) -> T {
        let (start, simulation) = &*self.0;
        // A panic doesn't poison the state, because no write in it is done halfway.
        let mut simulation = simulation.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut simulation, start.elapsed())
    }
}

impl Cloud for SharedCloud {
    fn traffic<T>(&self, act: impl FnOnce(&mut Traffic, Duration) -> T) -> T {
        self.with(|simulation, now| act(&mut simulation.traffic, now))
    }

    fn refuse(denial: Denial) -> Response {
        match denial {
            Denial::Unauthorized => {
                Refusal::Unauthorized("a valid token is needed: Authorization: Bearer TOKEN".to_owned())
                    .into_response()
            }
            Denial::Throttled { retry_after_seconds } => {
                let mut response =
                    response::error(429, "throttled", "too many requests, wait as Retry-After says");
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after_seconds));
                response
            }
            Denial::Failed { status } => {
                response::error(status, "unavailable", "the cloud has a problem, try again later")
            }
            Denial::TooLarge { limit } => Refusal::TooLarge { limit }.into_response(),
            Denial::UnknownPath(path) => Refusal::NotFound(format!("path {path}")).into_response(),
            Denial::WrongMethod { method, path } => {
                Refusal::WrongMethod(format!("{path} has no method {method}")).into_response()
            }
            Denial::Broken => response::error(500, "broken", "internal error of the simulated cloud"),
        }
    }

    /// Headers like Azure's `x-ms-ratelimit-remaining-subscription-reads` and `-writes`. A client that respects them never
    /// gets a 429.
    fn show_quota(response: &mut Response, kind: Kind, status: QuotaStatus) {
        let name =
            if kind.is_write() { "x-ratelimit-remaining-writes" } else { "x-ratelimit-remaining-reads" };
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(status.remaining));
    }
}

/// Listens on an address.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })
}

/// A future that resolves at SIGTERM or SIGINT. After this call, these signals don't kill the process.
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

/// Serves the cloud until `stop` resolves, and then for a second at most until requests in flight are done.
pub async fn serve(listener: TcpListener, settings: Settings, stop: impl Future<Output = ()>) {
    serve_router(listener, router(SharedCloud::new(settings)), stop).await;
}

/// Serves any simulated cloud until `stop` resolves, and then for a second at most until requests in flight are done. A
/// response that the [`middleware`] drops ends its connection.
pub async fn serve_router(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    serve_streams(listener, |stream| std::future::ready(Ok(stream)), router, stop).await;
}

/// As [`serve_router`], over what `secure` makes of each connection, such as a TLS session. A connection of which it makes
/// nothing is closed.
pub async fn serve_streams<S, F>(
    listener: TcpListener,
    secure: impl Fn(TcpStream) -> F,
    router: Router,
    stop: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = std::io::Result<S>> + Send + 'static,
{
    let connections = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // Responses are small: one that waits for the acknowledgment of another would show as latency that isn't
                    // configured.
                    let _ = stream.set_nodelay(true);
                    connect(secure(stream), router.clone(), connections.watcher());
                }
                Err(_) => tokio::time::sleep(ACCEPT_BACKOFF).await,
            },
        }
    }
    drop(listener);
    // Connections that are still open after that end with the process.
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, connections.shutdown()).await;
}

fn connect<S>(
    stream: impl Future<Output = std::io::Result<S>> + Send + 'static,
    router: Router,
    watcher: Watcher,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answer = router.call(request);
        async move {
            let Ok(response): Result<Response, _> = answer.await;
            middleware::unless_dropped(response)
        }
    });
    tokio::spawn(async move {
        let Ok(stream) = stream.await else { return };
        let connection =
            http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
        // An error is normal: the client has gone away, or the response was lost on purpose.
        let _ = watcher.watch(connection).await;
    });
}

fn router(shared: SharedCloud) -> Router {
    let router = Router::new()
        .merge(machines_and_routes(&shared))
        .merge(resources::<LoadBalancer>(&shared, "/v1/load-balancers"))
        .merge(resources::<ReservedAddress>(&shared, "/v1/addresses"))
        .merge(resources::<SharedLoadBalancer>(&shared, "/v1/shared-load-balancers"))
        .merge(admin::routes())
        .route("/admin/state", get(overview::state))
        .route("/admin/metadata/{machine}", put(metadata::start))
        .route("/oauth2/token", call(&shared, Kind::Token, post(tokens::client_credentials)))
        .route("/metadata/identity/oauth2/token", call(&shared, Kind::Token, get(tokens::machine_identity)))
        .route("/", get(page::show));
    middleware::with_fallbacks(router).with_state(shared)
}

/// A route of the cloud's API, behind the middleware.
fn call(shared: &SharedCloud, kind: Kind, route: MethodRouter<SharedCloud>) -> MethodRouter<SharedCloud> {
    middleware::call(shared, Classifier::Kind(kind), route)
}

fn machines_and_routes(shared: &SharedCloud) -> Router<SharedCloud> {
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

/// The routes of one kind of resources with long operations.
fn resources<T>(shared: &SharedCloud, path: &str) -> Router<SharedCloud>
where
    T: Managed<New: DeserializeOwned + Send> + Serialize + Send + Sync + 'static,
{
    let put =
        middleware::call(shared, Classifier::By(middleware::kind_of_put::<T>), put(resources::put::<T>));
    let one = call(shared, Kind::Get, get(resources::get::<T>)).merge(put).merge(call(
        shared,
        Kind::Delete,
        delete(resources::delete::<T>),
    ));
    Router::new()
        .route(path, call(shared, Kind::List, get(resources::list::<T>)))
        .route(&format!("{path}/{{name}}"), one)
}
