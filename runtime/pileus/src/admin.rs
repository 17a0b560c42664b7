//! `/livez`, `/readyz` and `/metrics`, served by a thread of its own: no provider, compiler or storm of work can make a
//! probe time out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use pileus_controllers::Health;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::Error;
use crate::leader::Standing;

/// What Prometheus calls the format that `encode` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the server shows.
#[derive(Clone)]
struct Shown {
    health: Health,
    leader: watch::Receiver<Standing>,
    registry: Arc<Registry>,
}

/// Starts the server. It listens when this returns, and serves until the process ends.
///
/// # Errors
/// [`Error::Admin`] where it can't listen.
pub(crate) fn start(
    address: SocketAddr,
    health: Health,
    leader: watch::Receiver<Standing>,
    registry: Registry,
) -> Result<SocketAddr, Error> {
    let failed = |source| Error::Admin { address, source };
    // Bound without a runtime: the caller is inside one already, and the server's own isn't running yet.
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let router = router(Shown { health, leader, registry: Arc::new(registry) });
    let serve = async move {
        let served = match TcpListener::from_std(listener) {
            Ok(listener) => axum::serve(listener, router).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::error!(%error, "the admin server has ended");
        }
    };
    thread::Builder::new().name("admin".to_owned()).spawn(move || runtime.block_on(serve)).map_err(failed)?;
    Ok(bound)
}

fn router(shown: Shown) -> Router {
    Router::new()
        .route("/", get(|| async { "/livez\n/readyz\n/metrics\n" }))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shown)
}

/// 200 where every condition holds, else 503; each condition on a line in the form that Kubernetes' own endpoints
/// have, and with the reason where it fails or may soon. A replica that stands by is ready; a line tells who leads.
async fn readyz(State(shown): State<Shown>) -> Response {
    let report = shown.health.report(Instant::now());
    let standing = shown.leader.borrow().clone();
    let passed = report.iter().all(|(_, state)| state.is_ok()) && standing.is_well();
    let line = |(name, state): &(String, Result<Option<String>, String>)| match state {
        Ok(None) => format!("[+]{name} ok\n"),
        Ok(Some(remark)) => format!("[+]{name} ok: {remark}\n"),
        Err(reason) => format!("[-]{name} failed: {reason}\n"),
    };
    let mut body: String = report.iter().map(line).collect();
    let (sign, state) = if standing.is_well() { ("[+]", "ok") } else { ("[-]", "failed") };
    body.extend([sign, "leader-election ", state, ": ", &standing.to_string(), "\n"]);
    if passed {
        (StatusCode::OK, body + "readyz check passed\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, body + "readyz check failed\n").into_response()
    }
}

async fn metrics(State(shown): State<Shown>) -> Response {
    let mut body = String::new();
    match encode(&mut body, &shown.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
