//! The admin API: sets faults, reads counters and recent requests. It is not part of the simulated cloud, so its requests are
//! not counted or recorded, and no fault affects them.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::SharedCloud;
use super::response::{self, HandlerResult};
use crate::counters::Counters;
use crate::credentials::{self, Credentials};
use crate::faults::Faults;
use crate::quotas::{Buckets, Quotas};
use crate::requests::Entry;
use crate::world::{Inventory, Place};

/// How many of each kind of resource are shown: enough for a reader, and few enough to be sent every second.
const MAX_SHOWN: usize = 200;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StateView {
    place: Place,
    uptime_ms: u64,
    #[serde(flatten)]
    inventory: Inventory,
    faults: Faults,
    quotas: Quotas,
    credentials: credentials::TokenOverview,
    counters: Counters,
}

#[derive(Serialize)]
struct RequestList {
    requests: Vec<Entry>,
}

pub(super) async fn faults(State(shared): State<SharedCloud>) -> Response {
    response::json(StatusCode::OK, &shared.with(|simulation, _| simulation.faults.clone()))
}

pub(super) async fn set_faults(State(shared): State<SharedCloud>, body: Bytes) -> HandlerResult {
    let faults = Faults::parse(&body)?;
    shared.with(|simulation, _| simulation.faults = faults.clone());
    Ok(response::json(StatusCode::OK, &faults))
}

pub(super) async fn reset_faults(State(shared): State<SharedCloud>) -> StatusCode {
    shared.with(|simulation, _| simulation.faults = Faults::default());
    StatusCode::NO_CONTENT
}

pub(super) async fn quotas(State(shared): State<SharedCloud>) -> Response {
    response::json(StatusCode::OK, &shared.with(|simulation, _| simulation.buckets.quotas().clone()))
}

pub(super) async fn set_quotas(State(shared): State<SharedCloud>, body: String) -> HandlerResult {
    let quotas: Quotas = body.parse()?;
    shared.with(|simulation, _| simulation.buckets = Buckets::new(quotas.clone()));
    Ok(response::json(StatusCode::OK, &quotas))
}

pub(super) async fn reset_quotas(State(shared): State<SharedCloud>) -> StatusCode {
    shared.with(|simulation, _| simulation.buckets = Buckets::default());
    StatusCode::NO_CONTENT
}

pub(super) async fn credentials(State(shared): State<SharedCloud>) -> Response {
    response::json(StatusCode::OK, &shared.with(|simulation, now| simulation.tokens.overview(now)))
}

pub(super) async fn set_credentials(State(shared): State<SharedCloud>, body: String) -> HandlerResult {
    let credentials: Credentials = body.parse()?;
    shared.with(|simulation, _| simulation.tokens.replace(Some(credentials)));
    Ok(self::credentials(State(shared)).await)
}

pub(super) async fn reset_credentials(State(shared): State<SharedCloud>) -> StatusCode {
    shared.with(|simulation, _| simulation.tokens.replace(None));
    StatusCode::NO_CONTENT
}

pub(super) async fn revoke_tokens(State(shared): State<SharedCloud>) -> StatusCode {
    shared.with(|simulation, _| simulation.tokens.revoke());
    StatusCode::NO_CONTENT
}

pub(super) async fn counters(State(shared): State<SharedCloud>) -> Response {
    response::json(StatusCode::OK, &shared.with(|simulation, _| simulation.counters.clone()))
}

pub(super) async fn reset_counters(State(shared): State<SharedCloud>) -> StatusCode {
    shared.with(|simulation, _| simulation.counters.reset());
    StatusCode::NO_CONTENT
}

pub(super) async fn requests(State(shared): State<SharedCloud>) -> Response {
    let requests = shared.with(|simulation, _| simulation.requests.entries().cloned().collect());
    response::json(StatusCode::OK, &RequestList { requests })
}

pub(super) async fn state(State(shared): State<SharedCloud>) -> Response {
    let overview = shared.with(|simulation, now| StateView {
        place: simulation.world.place().clone(),
        uptime_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        inventory: simulation.world.inventory(now, MAX_SHOWN),
        faults: simulation.faults.clone(),
        quotas: simulation.buckets.quotas().clone(),
        credentials: simulation.tokens.overview(now),
        counters: simulation.counters.clone(),
    });
    response::json(StatusCode::OK, &overview)
}
