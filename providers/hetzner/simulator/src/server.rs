//! Serves the project over HTTP: sockets, the clock and the lock. [`crate::world`] decides what a request means.

mod admin;
mod api;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ipnet::Ipv4Net;
use jiff::Timestamp;
use serde_json::Value;
use simulated_cloud::call::Kind;
use simulated_cloud::credentials::Credentials;
use simulated_cloud::faults::Faults;
use simulated_cloud::quotas::{QuotaStatus, Quotas};
use simulated_cloud::server::middleware::{Cloud, Denial, with_fallbacks};
use simulated_cloud::server::{response, serve_router};
use simulated_cloud::traffic::Traffic;
use thiserror::Error;
use tokio::net::TcpListener;

use crate::page;
use crate::refusal::{Code, Refusal};
use crate::world::{NewNetwork, NewServers, Subnet, SubnetType, World};

/// The prefix length of the first subnet, unless the network is smaller.
const SUBNET_PREFIX: u8 = 16;

/// Why the cloud can't start.
#[derive(Debug, Error)]
pub enum Error {
    /// It can't listen.
    #[error(transparent)]
    Listen(#[from] simulated_cloud::server::Error),
    /// The servers or the network of the command line can't be created.
    #[error("can't create what the project has at the start: {0}; correct the arguments")]
    Project(#[from] Refusal),
}

/// What the cloud is like at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of servers.
    pub servers: u32,
    /// The range of a network.
    pub network: Option<Ipv4Net>,
    /// The location of the servers.
    pub location: String,
    /// The seed of random faults.
    pub seed: u64,
    /// The rate limit.
    pub quotas: Quotas,
    /// The tokens that are valid. `None` where requests need no token.
    pub credentials: Option<Credentials>,
}

struct Simulation {
    world: World,
    traffic: Traffic,
}

/// The simulator as all connections share it.
#[derive(Clone)]
struct SharedCloud(Arc<(Instant, Mutex<Simulation>)>);

impl SharedCloud {
    fn new(settings: Settings) -> Result<Self, Refusal> {
        let Settings { servers, network, location, seed, quotas, credentials } = settings;
        let mut world = World::new(Timestamp::now());
        let network = network.map(|range| first_network(&mut world, range)).transpose()?;
        if servers > 0 {
            let new =
                NewServers { count: servers, network, location: location.into(), ..NewServers::default() };
            world.create_servers(Duration::ZERO, &new)?;
        }
        let traffic = Traffic::new(quotas, credentials, seed);
        Ok(Self(Arc::new((Instant::now(), Mutex::new(Simulation { world, traffic })))))
    }

    /// Runs `act` under the lock. It gets the time since the start.
    fn with<T>(&self, act: impl FnOnce(&mut Simulation, Duration) -> T) -> T {
        let (start, simulation) = &*self.0;
        // A panic doesn't poison the state, because no write in it is done halfway.
        let mut simulation = simulation.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut simulation, start.elapsed())
    }
}

fn first_network(world: &mut World, range: Ipv4Net) -> Result<u64, Refusal> {
    let prefix = SUBNET_PREFIX.max(range.prefix_len());
    let subnet = Ipv4Net::new(range.network(), prefix).unwrap_or(range);
    let subnet = Subnet { ip_range: subnet, network_zone: "eu-central".to_owned(), kind: SubnetType::Cloud };
    let name = "network".to_owned();
    let new =
        NewNetwork { name, ip_range: range, subnets: vec![subnet], labels: crate::world::Labels::new() };
    world.create_network(Duration::ZERO, new)
}

impl Cloud for SharedCloud {
    fn traffic<T>(&self, act: impl FnOnce(&mut Traffic, Duration) -> T) -> T {
        self.with(|simulation, now| act(&mut simulation.traffic, now))
    }

    fn refuse(denial: Denial) -> Response {
        let (code, message) = match denial {
            Denial::Unauthorized => (Code::Unauthorized, "unable to authenticate".to_owned()),
            Denial::Throttled { .. } => (Code::RateLimitExceeded, "limit of requests exceeded".to_owned()),
            Denial::Failed { status } => return failed(status).into_response(),
            Denial::TooLarge { limit } => {
                (Code::InvalidInput, format!("the body is larger than {limit} bytes"))
            }
            Denial::UnknownPath(path) => (Code::NotFound, format!("path {path} not found")),
            Denial::WrongMethod { method, path } => {
                (Code::MethodNotAllowed, format!("{path} has no method {method}"))
            }
            Denial::Broken => (Code::ServerError, "internal error of the simulator".to_owned()),
        };
        Refusal::new(code, message).into_response()
    }

    fn check_faults(faults: &Faults) -> Result<(), simulated_cloud::Refusal> {
        let Faults { lag, creation, hidden, operations, .. } = faults;
        let none = Faults::default();
        if *lag != none.lag || *creation != none.creation || *hidden != none.hidden || operations.overtake {
            let message = "this cloud has no faults lag, creation, hidden and operations.overtake";
            return Err(simulated_cloud::Refusal::Invalid(message.to_owned()));
        }
        Ok(())
    }

    fn show_quota(response: &mut Response, _: Kind, status: QuotaStatus) {
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        let reset = now + status.full_in.as_secs() + u64::from(status.full_in.subsec_nanos() > 0);
        // A fault may throttle a request although the quota has more.
        let is_throttled = response.status() == StatusCode::TOO_MANY_REQUESTS;
        let remaining = if is_throttled { 0 } else { status.remaining };
        let headers = response.headers_mut();
        headers.insert("ratelimit-limit", HeaderValue::from(status.burst));
        headers.insert("ratelimit-remaining", HeaderValue::from(remaining));
        headers.insert("ratelimit-reset", HeaderValue::from(reset));
    }
}

/// The error of a request that fails by a fault.
fn failed(status: u16) -> Refusal {
    let code = match status {
        500 => Code::ServerError,
        502 => Code::BadGateway,
        503 => Code::Unavailable,
        504 => Code::Timeout,
        _ => Code::ServiceError,
    };
    Refusal { status, ..Refusal::new(code, "the cloud has a problem, try again later") }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response::json(status, &self.body())
    }
}

/// The result of a handler.
type HandlerResult = Result<Response, Refusal>;

fn shown(status: StatusCode, view: &Value) -> Response {
    response::json(status, view)
}

/// Serves the cloud until `stop` resolves, and then for a second at most until requests in flight are done.
///
/// # Errors
/// Where the servers or the network of the settings can't be created.
pub async fn serve(
    listener: TcpListener,
    settings: Settings,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let shared = SharedCloud::new(settings)?;
    let router = Router::new()
        .merge(api::routes(&shared))
        .merge(admin::routes())
        .merge(simulated_cloud::server::admin::routes())
        .route("/", axum::routing::get(page::show));
    serve_router(listener, with_fallbacks(router).with_state(shared), stop).await;
    Ok(())
}
