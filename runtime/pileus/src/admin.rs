//! `/livez`, `/readyz` and `/metrics`, and on loopback `/debug/gate`, served by a thread of its own: no provider, compiler
//! or storm of work can make a probe time out.

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
use pileus_gate::Gate;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cli;
use crate::error::Error;
use crate::leader::Standing;

/// What Prometheus calls the format that `encode` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the server shows.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) health: Health,
    pub(crate) leader: watch::Receiver<Standing>,
    pub(crate) registry: Arc<Registry>,
    /// None until the provider is loaded.
    pub(crate) gate: watch::Receiver<Option<Gate>>,
}

/// Where the server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listening {
    pub(crate) admin: SocketAddr,
    /// Where the debug pages are, if anywhere.
    pub(crate) debug: Option<SocketAddr>,
}

/// Starts the server. It listens when this returns, and serves until the process ends.
///
/// # Errors
/// [`Error::Admin`] where it can't listen.
pub(crate) fn start(flags: &cli::AdminServer, shown: Shown) -> Result<Listening, Error> {
    let cli::AdminServer { admin_address, debug_address } = *flags;
    let admin = bind(admin_address, "admin-address")?;
    let own = debug_address.map(|address| bind(address, "debug-address")).transpose()?;
    let is_debugged = own.is_none() && admin.1.ip().to_canonical().is_loopback();
    let debug = own.as_ref().or(is_debugged.then_some(&admin)).map(|(_, address)| *address);
    let listening = Listening { admin: admin.1, debug };
    tracing::info!(address = %listening.admin, "serving /livez, /readyz and /metrics");
    if let Some(address) = debug {
        tracing::info!(%address, "serving /debug/gate");
    }

    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Machine)?;
    let pages = debug::router(shown.gate.clone());
    let router = router(shown, is_debugged.then(|| pages.clone()));
    let serve = async move {
        let own = async {
            if let Some((listener, _)) = own {
                serve(listener, pages).await;
            }
        };
        tokio::join!(serve(admin.0, router), own);
    };
    let thread = thread::Builder::new().name("admin".to_owned());
    thread.spawn(move || runtime.block_on(serve)).map_err(Error::Machine)?;
    Ok(listening)
}

/// Bound without a runtime: the caller is inside one already, and the server's own isn't running yet.
fn bind(address: SocketAddr, flag: &'static str) -> Result<(std::net::TcpListener, SocketAddr), Error> {
    let bind = || {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bind().map_err(|source| Error::Admin { flag, address, source })
}

async fn serve(listener: std::net::TcpListener, router: Router) {
    let served = match TcpListener::from_std(listener) {
        Ok(listener) => axum::serve(listener, router).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        tracing::error!(%error, "the admin server has ended");
    }
}

fn router(shown: Shown, debug: Option<Router>) -> Router {
    let index = ["/livez\n/readyz\n/metrics\n", if debug.is_some() { "/debug/gate\n" } else { "" }].concat();
    Router::new()
        .route("/", get(async move || index))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shown)
        .merge(debug.unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    fn start_at(admin: &str, debug: Option<&str>) -> Listening {
        let shown = Shown {
            health: Health::default(),
            leader: watch::channel(Standing::Starting).1,
            registry: Arc::default(),
            gate: watch::channel(None).1,
        };
        let flags = cli::AdminServer {
            admin_address: admin.parse().unwrap(),
            debug_address: debug.map(|address| address.parse().unwrap()),
        };
        start(&flags, shown).unwrap()
    }

    fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", address.port())).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_debug_pages_are_on_loopback_or_nowhere() {
        let shows = |address| ask(address, "/debug/gate").starts_with("HTTP/1.1 503 ");
        let names = |address| ask(address, "/").contains("/debug/gate");
        let both = start_at("127.0.0.1:0", None);
        assert_eq!(both.debug, Some(both.admin));
        assert!(shows(both.admin) && names(both.admin));

        let open = start_at("0.0.0.0:0", None);
        assert_eq!(open.debug, None);
        assert!(!shows(open.admin) && !names(open.admin));

        let apart = start_at("0.0.0.0:0", Some("127.0.0.1:0"));
        let own = apart.debug.unwrap();
        assert!(own.ip().is_loopback() && own != apart.admin);
        assert!(shows(own) && !shows(apart.admin) && !names(apart.admin));
        assert!(ask(apart.admin, "/livez").ends_with("ok\n"));
    }
}
