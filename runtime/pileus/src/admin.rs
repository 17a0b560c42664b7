//! The admin server: `/livez`, `/readyz` and `/metrics`, and `/debug/gate` on loopback. It has a thread of its own, so
//! that no provider, compiler or load makes a probe time out. `connections` bounds what its clients can take.

mod connections;
mod debug;

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
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cli;
use crate::error::Error;
use crate::leader::LeaderStatus;
use crate::providers::Gates;

/// The content type of the text that `encode` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the pages are made from.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) health: Health,
    /// None in a process that needs no lease.
    pub(crate) leader: Option<watch::Receiver<LeaderStatus>>,
    pub(crate) registry: Arc<Registry>,
    /// Of the providers that serve calls, by name.
    pub(crate) gates: watch::Receiver<Gates>,
}

/// The addresses that the server listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listening {
    pub(crate) admin: SocketAddr,
    /// The address of the debug pages, if they are served.
    pub(crate) debug: Option<SocketAddr>,
}

/// Starts the server. It listens when this returns, and serves until the process ends.
///
/// # Errors
/// [`Error::Admin`] if it can't listen.
pub(crate) fn start(flags: &cli::AdminServer, sources: Sources) -> Result<Listening, Error> {
    let cli::AdminServer { admin_address, debug_address } = *flags;
    let admin = bind(admin_address, "admin-address")?;
    let own = debug_address.map(|address| bind(address, "debug-address")).transpose()?;
    let has_debug_pages = own.is_none() && admin.1.ip().to_canonical().is_loopback();
    let debug = own.as_ref().or(has_debug_pages.then_some(&admin)).map(|(_, address)| *address);
    let listening = Listening { admin: admin.1, debug };
    tracing::info!(address = %listening.admin, "serving /livez, /readyz and /metrics");
    if let Some(address) = debug {
        tracing::info!(%address, "serving /debug/gate");
    }

    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Machine)?;
    let pages = debug::router(sources.gates.clone());
    let router = router(sources, has_debug_pages.then(|| pages.clone()));
    let serve = async move {
        let own = async {
            if let Some((listener, _)) = own {
                connections::serve(listener, pages).await;
            }
        };
        tokio::join!(connections::serve(admin.0, router), own);
    };
    let thread = thread::Builder::new().name("admin".to_owned());
    thread.spawn(move || runtime.block_on(serve)).map_err(Error::Machine)?;
    Ok(listening)
}

/// Binds without a runtime: the caller is in another one, and the server's own isn't running yet.
fn bind(address: SocketAddr, flag: &'static str) -> Result<(std::net::TcpListener, SocketAddr), Error> {
    let bind = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bind().map_err(|source| Error::Admin { flag, address, source })
}

fn router(sources: Sources, debug: Option<Router>) -> Router {
    let index = ["/livez\n/healthz\n/readyz\n/metrics\n", if debug.is_some() { "/debug/gate\n" } else { "" }]
        .concat();
    Router::new()
        .route("/", get(async move || index))
        .route("/livez", get(|| async { "ok\n" }))
        // The name by which upstream's probes ask.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(sources)
        .merge(debug.unwrap_or_default())
}

/// 200 if every condition holds, else 503. Each condition has a line in the format of Kubernetes' own endpoints, with a
/// reason if it fails or may fail soon. A replica that stands by is ready; a line names the leader.
async fn readyz(State(sources): State<Sources>) -> Response {
    let report = sources.health.report(Instant::now());
    let status = sources.leader.as_ref().map(|leader| leader.borrow().clone());
    let leads_well = status.as_ref().is_none_or(LeaderStatus::is_healthy);
    let passed = report.iter().all(|(_, state)| state.is_ok()) && leads_well;
    let line = |(name, state): &(String, Result<Option<String>, String>)| match state {
        Ok(None) => format!("[+]{name} ok\n"),
        Ok(Some(remark)) => format!("[+]{name} ok: {remark}\n"),
        Err(reason) => format!("[-]{name} failed: {reason}\n"),
    };
    let mut body: String = report.iter().map(line).collect();
    if let Some(status) = status {
        let (sign, state) = if leads_well { ("[+]", "ok") } else { ("[-]", "failed") };
        body.extend([sign, "leader-election ", state, ": ", &status.to_string(), "\n"]);
    }
    if passed {
        (StatusCode::OK, body + "readyz check passed\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, body + "readyz check failed\n").into_response()
    }
}

async fn metrics(State(sources): State<Sources>) -> Response {
    let mut body = String::new();
    match encode(&mut body, &sources.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    fn start_at(admin: &str, debug: Option<&str>) -> Listening {
        let sources = Sources {
            health: Health::default(),
            leader: Some(watch::channel(LeaderStatus::Starting).1),
            registry: Arc::default(),
            gates: watch::channel(Gates::new()).1,
        };
        let flags = cli::AdminServer {
            admin_address: admin.parse().unwrap(),
            debug_address: debug.map(|address| address.parse().unwrap()),
        };
        start(&flags, sources).unwrap()
    }

    fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", address.port())).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_debug_pages_are_served_on_loopback_only() {
        let shows = |address| ask(address, "/debug/gate").starts_with("HTTP/1.1 503 ");
        let names = |address| ask(address, "/").contains("/debug/gate");
        let both = start_at("127.0.0.1:0", None);
        assert_eq!(both.debug, Some(both.admin));
        assert!(shows(both.admin) && names(both.admin));

        let open = start_at("0.0.0.0:0", None);
        assert_eq!(open.debug, None);
        assert!(!shows(open.admin) && !names(open.admin));

        let separate = start_at("0.0.0.0:0", Some("127.0.0.1:0"));
        let debug = separate.debug.unwrap();
        assert!(debug.ip().is_loopback() && debug != separate.admin);
        assert!(shows(debug) && !shows(separate.admin) && !names(separate.admin));
        assert!(ask(separate.admin, "/livez").ends_with("ok\n"));
    }
}
