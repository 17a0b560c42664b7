//! The part of the admin API that is independent of the cloud's API: faults, quotas, credentials, counters and recent requests.
//! It is not part of the simulated cloud, so its requests are not counted or recorded, and no fault affects them.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{delete, get};
use serde::Serialize;

use super::middleware::Cloud;
use super::response::{self, HandlerResult};
use crate::counters::Counters;
use crate::credentials::{Credentials, TokenOverview};
use crate::faults::Faults;
use crate::quotas::{Buckets, Quotas};
use crate::requests::Entry;
use crate::traffic::Traffic;

/// What `/admin/state` shows of the traffic.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficView {
    /// How long the cloud has run, in milliseconds.
    uptime_ms: u64,
    faults: Faults,
    quotas: Quotas,
    credentials: TokenOverview,
    counters: Counters,
}

impl TrafficView {
    /// What there is to show now.
    pub fn of(traffic: &Traffic, now: std::time::Duration) -> Self {
        Self {
            uptime_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            faults: traffic.faults.clone(),
            quotas: traffic.buckets.quotas().clone(),
            credentials: traffic.tokens.overview(now),
            counters: traffic.counters.clone(),
        }
    }
}

#[derive(Serialize)]
struct RequestList {
    requests: Vec<Entry>,
}

/// The routes below `/admin` of faults, counters and recent requests, which are independent of how a cloud limits requests and
/// issues tokens.
pub fn traffic_routes<C: Cloud>() -> Router<C> {
    Router::new()
        .route("/admin/faults", get(faults::<C>).put(set_faults::<C>).delete(reset_faults::<C>))
        .route("/admin/counters", get(counters::<C>).delete(reset_counters::<C>))
        .route("/admin/requests", get(requests::<C>))
}

/// The routes below `/admin` of a cloud with the common quotas and credentials.
pub fn routes<C: Cloud>() -> Router<C> {
    traffic_routes()
        .route("/admin/quotas", get(quotas::<C>).put(set_quotas::<C>).delete(reset_quotas::<C>))
        .route(
            "/admin/credentials",
            get(credentials::<C>).put(set_credentials::<C>).delete(reset_credentials::<C>),
        )
        .route("/admin/tokens", delete(revoke_tokens::<C>))
}

async fn faults<C: Cloud>(State(cloud): State<C>) -> Response {
    response::json(StatusCode::OK, &cloud.traffic(|traffic, _| traffic.faults.clone()))
}

async fn set_faults<C: Cloud>(State(cloud): State<C>, body: Bytes) -> HandlerResult {
    let faults = Faults::parse(&body)?;
    C::check_faults(&faults)?;
    cloud.traffic(|traffic, _| traffic.faults = faults.clone());
    Ok(response::json(StatusCode::OK, &faults))
}

async fn reset_faults<C: Cloud>(State(cloud): State<C>) -> StatusCode {
    cloud.traffic(|traffic, _| traffic.faults = Faults::default());
    StatusCode::NO_CONTENT
}

async fn quotas<C: Cloud>(State(cloud): State<C>) -> Response {
    response::json(StatusCode::OK, &cloud.traffic(|traffic, _| traffic.buckets.quotas().clone()))
}

async fn set_quotas<C: Cloud>(State(cloud): State<C>, body: String) -> HandlerResult {
    let quotas: Quotas = body.parse()?;
    cloud.traffic(|traffic, _| traffic.buckets = Buckets::new(quotas.clone()));
    Ok(response::json(StatusCode::OK, &quotas))
}

async fn reset_quotas<C: Cloud>(State(cloud): State<C>) -> StatusCode {
    cloud.traffic(|traffic, _| traffic.buckets = Buckets::default());
    StatusCode::NO_CONTENT
}

async fn credentials<C: Cloud>(State(cloud): State<C>) -> Response {
    response::json(StatusCode::OK, &cloud.traffic(|traffic, now| traffic.tokens.overview(now)))
}

async fn set_credentials<C: Cloud>(State(cloud): State<C>, body: String) -> HandlerResult {
    let credentials: Credentials = body.parse()?;
    cloud.traffic(|traffic, _| traffic.tokens.replace(Some(credentials)));
    Ok(self::credentials(State(cloud)).await)
}

async fn reset_credentials<C: Cloud>(State(cloud): State<C>) -> StatusCode {
    cloud.traffic(|traffic, _| traffic.tokens.replace(None));
    StatusCode::NO_CONTENT
}

async fn revoke_tokens<C: Cloud>(State(cloud): State<C>) -> StatusCode {
    cloud.traffic(|traffic, _| traffic.tokens.revoke());
    StatusCode::NO_CONTENT
}

async fn counters<C: Cloud>(State(cloud): State<C>) -> Response {
    response::json(StatusCode::OK, &cloud.traffic(|traffic, _| traffic.counters.clone()))
}

async fn reset_counters<C: Cloud>(State(cloud): State<C>) -> StatusCode {
    cloud.traffic(|traffic, _| traffic.counters.reset());
    StatusCode::NO_CONTENT
}

async fn requests<C: Cloud>(State(cloud): State<C>) -> Response {
    let requests = cloud.traffic(|traffic, _| traffic.requests.entries().cloned().collect());
    response::json(StatusCode::OK, &RequestList { requests })
}
