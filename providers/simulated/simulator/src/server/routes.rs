//! The handlers for routes: each parses its request, applies it to the world, and returns the reply.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;

use super::SharedCloud;
use super::machines::ListQuery;
use super::response::{self, HandlerResult};
use crate::refusal::Refusal;
use crate::world::{Listing, NewRoute};

pub(super) async fn list(
    State(shared): State<SharedCloud>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> HandlerResult {
    let Query(query) = query.map_err(|error| Refusal::Invalid(error.body_text()))?;
    let listing = Listing::from(query);
    let page = shared.with(|simulation, now| {
        simulation.world.list_routes(now, &listing, simulation.traffic.faults.lag.lists)
    })?;
    Ok(response::json(StatusCode::OK, &page))
}

pub(super) async fn put(
    State(shared): State<SharedCloud>,
    Path(name): Path<String>,
    body: Bytes,
) -> HandlerResult {
    let route: NewRoute = response::read(&body)?;
    let route = shared.with(|simulation, now| simulation.world.put_route(now, &name, route))?;
    Ok(response::json(StatusCode::OK, &route))
}

pub(super) async fn delete(State(shared): State<SharedCloud>, Path(name): Path<String>) -> HandlerResult {
    shared.with(|simulation, now| simulation.world.delete_route(now, &name))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
