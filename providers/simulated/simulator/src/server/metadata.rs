//! The metadata services of machines. A process on a machine reads there what the cloud knows about the machine, at an address that
//! only the machine reaches. Here each is a port of its own on an address of loopback that the cloud's API doesn't have, so that
//! a grant for one isn't a grant for the other.

use std::net::Ipv4Addr;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;

use super::response::{self, HandlerResult};
use super::{SharedCloud, call, middleware, tokens};
use crate::call::Kind;
use crate::refusal::Refusal;
use crate::world::Listing;

/// The address of all metadata services.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Where a metadata service is.
#[derive(Serialize)]
struct Service {
    url: String,
}

/// `PUT /admin/metadata/{machine}`: starts the metadata service of the machine of this name, at a free port. It runs as long as the
/// process.
pub(super) async fn start(State(shared): State<SharedCloud>, Path(machine): Path<String>) -> HandlerResult {
    let failed = |error: std::io::Error| Refusal::Conflict(format!("can't listen on {ADDRESS}: {error}"));
    let listener = TcpListener::bind((ADDRESS, 0)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tokio::spawn(super::serve_router(listener, router(&shared, &machine), std::future::pending()));
    Ok(response::json(StatusCode::CREATED, &Service { url: format!("http://{address}") }))
}

fn router(shared: &SharedCloud, machine: &str) -> Router {
    let machine = machine.to_owned();
    let instance = get(async move |State(shared): State<SharedCloud>, headers: HeaderMap| {
        instance(&shared, &headers, machine)
    });
    let router = Router::new()
        .route("/metadata/instance", call(shared, Kind::Metadata, instance))
        .route("/metadata/identity/oauth2/token", call(shared, Kind::Token, get(tokens::machine_identity)));
    middleware::with_fallbacks(router).with_state(shared.clone())
}

/// `GET /metadata/instance`
fn instance(shared: &SharedCloud, headers: &HeaderMap, machine: String) -> HandlerResult {
    check(headers).map_err(|why| Refusal::Invalid(why.to_owned()))?;
    let machine = shared.with(|simulation, now| {
        let name = simulation.traffic.faults.metadata.speaks_of.clone().unwrap_or(machine);
        let named = Listing { limit: None, cursor: None, name: Some(name.clone()) };
        let found = simulation.world.list(now, &named, std::time::Duration::ZERO)?;
        found.items.into_iter().next().ok_or(Refusal::NotFound(format!("machine {name}")))
    })?;
    Ok(response::json(StatusCode::OK, &machine))
}

/// Checks the proof that a request comes from a process of the machine. A forged request through a proxy or a web application lacks
/// one header, or has the proxy's.
///
/// # Errors
/// What is missing, in words.
pub(super) fn check(headers: &HeaderMap) -> Result<(), &'static str> {
    if headers.get("metadata").is_none_or(|value| !value.as_bytes().eq_ignore_ascii_case(b"true")) {
        return Err("the header Metadata: true is required");
    }
    if headers.contains_key("x-forwarded-for") {
        return Err("requests through a proxy are refused");
    }
    Ok(())
}
