//! Serves the cloud over HTTP or TLS: sockets, the clock and the lock. [`crate::state`] decides what a request means.

mod admin;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State as Shared;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use jiff::Timestamp;
use serde_json::Value;
use simulated_cloud::call::Kind;
use simulated_cloud::faults::Faults;
use simulated_cloud::quotas::{QuotaStatus, Quotas};
use simulated_cloud::server::middleware::{self, Classifier, Cloud, Denial, with_fallbacks};
use simulated_cloud::server::{listen, serve_router, serve_streams};
use simulated_cloud::traffic::Traffic;
use simulated_cloud::world::WriteFaults;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::arguments::Arguments;
use crate::id::is_list;
use crate::page;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::state::{Settings, State};

/// Why the cloud can't start.
#[derive(Debug, Error)]
pub enum Error {
    /// It can't listen.
    #[error(transparent)]
    Listen(#[from] simulated_cloud::server::Error),
    /// The resources of the command line can't be created.
    #[error("can't create the resources at the start: {0}; correct the arguments")]
    Resources(#[from] Refusal),
    /// The certificate can't be issued.
    #[error("can't issue a certificate: {0}; correct --names")]
    Certificate(#[from] rcgen::Error),
    /// TLS can't use the certificate.
    #[error("can't serve TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The certificate of the authority can't be written.
    #[error("can't write {path}: {source}; choose another folder for --tls")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

struct Simulation {
    state: State,
    traffic: Traffic,
}

/// The simulator as all connections share it.
#[derive(Clone)]
struct SharedCloud {
    shared: Arc<(Instant, Mutex<Simulation>)>,
    scheme: &'static str,
}

impl SharedCloud {
    /// Runs `act` under the lock. It gets the time since the start.
    fn with<T>(&self, act: impl FnOnce(&mut Simulation, Duration) -> T) -> T {
        let (start, simulation) = &*self.shared;
        // A panic doesn't poison the state, because no write in it is done halfway.
        let mut simulation = simulation.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut simulation, start.elapsed())
    }
}

impl Cloud for SharedCloud {
    /// What the resource manager accepts.
    const MAX_BODY_BYTES: usize = 4 << 20;

    fn traffic<T>(&self, act: impl FnOnce(&mut Traffic, Duration) -> T) -> T {
        self.with(|simulation, now| act(&mut simulation.traffic, now))
    }

    fn refuse(denial: Denial) -> Response {
        let refusal = match denial {
            Denial::Unauthorized => {
                Refusal::gateway(401, "InvalidAuthenticationToken", "The access token is invalid.")
            }
            Denial::Throttled { retry_after_seconds } => {
                let message = "The request is being throttled.";
                Refusal::gateway(429, "TooManyRequests", message)
                    .with_header("retry-after", retry_after_seconds.to_string())
            }
            Denial::Failed { status } => failed(status),
            Denial::TooLarge { limit } => {
                let message = format!("The request content size exceeds the maximum size of {limit} bytes.");
                Refusal::gateway(413, "RequestContentTooLarge", message)
            }
            Denial::UnknownPath(path) => {
                Refusal::gateway(404, "NotFound", format!("The path {path} was not found."))
            }
            Denial::WrongMethod { method, path } => {
                Refusal::gateway(405, "MethodNotAllowed", format!("{path} has no method {method}."))
            }
            Denial::Broken => {
                Refusal::gateway(500, "InternalServerError", "Internal error of the simulator.")
            }
        };
        shown(refusal.response())
    }

    fn check_faults(faults: &Faults) -> Result<(), simulated_cloud::Refusal> {
        let Faults { lag, creation, hidden, operations, .. } = faults;
        let none = Faults::default();
        if *lag != none.lag || *creation != none.creation || *hidden != none.hidden || operations.overtake {
            let message =
                "this cloud has no faults lag, creation, hidden and operations.overtake; use /admin/behavior";
            return Err(simulated_cloud::Refusal::Invalid(message.to_owned()));
        }
        Ok(())
    }

    fn show_quota(_: &mut Response, _: Kind, _: QuotaStatus) {}
}

/// The error of a request that fails by a fault.
fn failed(status: u16) -> Refusal {
    let (code, message) = match status {
        502 => ("BadGateway", "The gateway did not receive a response."),
        503 => ("ServiceUnavailable", "The service is unavailable."),
        504 => (
            "GatewayTimeout",
            "The gateway did not receive a response from the provider within the specified time period.",
        ),
        _ => ("InternalServerError", "An error occurred."),
    };
    Refusal::gateway(status, code, message)
}

/// A response of the state machine as HTTP has it. A body that is a string is plain text.
fn shown(response: crate::Response) -> Response {
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut built = match response.body {
        None => status.into_response(),
        Some(Value::String(text)) => (status, text).into_response(),
        Some(body) => {
            let kind = HeaderValue::from_static("application/json; charset=utf-8");
            (status, [(header::CONTENT_TYPE, kind)], body.to_string()).into_response()
        }
    };
    for (name, value) in response.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            built.headers_mut().append(name, value);
        }
    }
    built
}

/// A cloud that listens.
pub struct Server {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    metadata: Option<TcpListener>,
    cloud: SharedCloud,
}

impl Server {
    /// Creates the resources, and listens.
    pub async fn start(arguments: &Arguments) -> Result<Self, Error> {
        let settings = Settings {
            started_at: Timestamp::now(),
            seed: arguments.seed,
            subscription: arguments.subscription.clone(),
            tenant: arguments.tenant.clone(),
            quotas: arguments.quotas.clone(),
            directory: arguments.credentials.clone(),
        };
        let mut state = State::new(settings);
        state.sow(&arguments.resources())?;
        let traffic = Traffic::new(Quotas::default(), None, arguments.seed);
        let shared = Arc::new((Instant::now(), Mutex::new(Simulation { state, traffic })));
        let listener = listen(arguments.listen).await?;
        let tls = match &arguments.tls {
            Some(folder) => Some(tls::acceptor(folder, arguments.listen.ip(), &arguments.names)?),
            None => None,
        };
        let metadata = match arguments.metadata {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        Ok(Self { listener, tls, metadata, cloud: SharedCloud { shared, scheme } })
    }

    /// The address of the resource manager.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// The line that the process prints.
    pub fn greeting(&self) -> String {
        let address =
            |listener: &TcpListener| listener.local_addr().map(|it| it.to_string()).unwrap_or_default();
        let manager = format!("azure on {}://{}", self.cloud.scheme, address(&self.listener));
        match &self.metadata {
            Some(metadata) => format!("{manager} metadata on http://{}", address(metadata)),
            None => manager,
        }
    }

    /// Serves until `stop` resolves, and then for a second at most until requests in flight are done.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let Self { listener, tls, metadata, cloud } = self;
        let metadata = metadata.map(|metadata| {
            let cloud = SharedCloud { scheme: "http", ..cloud.clone() };
            tokio::spawn(serve_router(metadata, router(cloud), std::future::pending()))
        });
        match tls {
            None => serve_router(listener, router(cloud), stop).await,
            Some(tls) => {
                let secure = move |stream| {
                    let tls = tls.clone();
                    async move { tls.accept(stream).await }
                };
                serve_streams(listener, secure, router(cloud), stop).await;
            }
        }
        if let Some(metadata) = metadata {
            metadata.abort();
        }
    }
}

fn router(cloud: SharedCloud) -> Router {
    let all = get(answer).put(answer).patch(answer).post(answer).delete(answer);
    let arm = middleware::call(&cloud, Classifier::By(kind), all);
    let router = Router::new()
        .merge(admin::routes())
        .merge(simulated_cloud::server::admin::traffic_routes())
        .route("/", get(page::show))
        .route("/{*path}", arm);
    with_fallbacks(router).with_state(cloud)
}

/// The kind of a call, by which faults are chosen.
fn kind(cloud: &SharedCloud, request: &axum::extract::Request) -> Kind {
    let path = request.uri().path();
    if path.contains("oauth2") {
        return Kind::Token;
    }
    match *request.method() {
        Method::GET | Method::HEAD if is_list(path) => Kind::List,
        Method::GET | Method::HEAD => Kind::Get,
        Method::DELETE => Kind::Delete,
        Method::PUT if cloud.with(|simulation, _| !simulation.state.exists(path)) => Kind::Create,
        _ => Kind::Change,
    }
}

async fn answer(Shared(cloud): Shared<SharedCloud>, request: axum::extract::Request) -> Response {
    let (parts, body) = request.into_parts();
    // The middleware has read it, so it is in memory.
    let body = to_bytes(Body::new(body), usize::MAX).await.unwrap_or_default();
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let origin = format!("{}://{host}", cloud.scheme);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(parts.method, &origin, path);
    request.headers = parts.headers;
    request.body = body.into();
    if request.path.starts_with("/metadata/") && request.path != "/metadata/endpoints" {
        let delay = cloud.with(|simulation, _| simulation.state.metadata_settings().delay_ms);
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    shown(cloud.with(|simulation, now| simulation.answer(now, &request)))
}

impl Simulation {
    /// Answers a request with the faults of writes, and counts down those that it met.
    fn answer(&mut self, now: Duration, request: &Request) -> crate::Response {
        let is_write = !matches!(request.method, Method::GET | Method::HEAD);
        let faults = if is_write { self.traffic.write_faults() } else { WriteFaults::default() };
        let response = self.state.apply(now, request, faults);
        if response.header("azure-asyncoperation").is_some() || response.status == 202 {
            self.traffic.faults.count_down_operation();
        }
        if response.status == 412 && faults.is_preempted {
            self.traffic.faults.count_down_preemption();
        }
        response
    }
}
