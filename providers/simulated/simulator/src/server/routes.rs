//! The calls about routes: each reads its request, has the world do it, and shows the reply.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse as _;

use super::Shared;
use super::answer::{self, Answer};
use super::machines::ListQuery;
use crate::refusal::Refusal;
use crate::world::{Listing, NewRoute};

pub(super) async fn list(
    State(shared): State<Shared>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Answer {
    let Query(query) = query.map_err(|error| Refusal::Invalid(error.body_text()))?;
    let listing = Listing::from(query);
    let page = shared
        .with(|simulation, now| simulation.world.list_routes(now, &listing, simulation.faults.lag.lists))?;
    Ok(answer::json(StatusCode::OK, &page))
}

pub(super) async fn put(State(shared): State<Shared>, Path(name): Path<String>, body: Bytes) -> Answer {
    let route: NewRoute = answer::read(&body)?;
    let route = shared.with(|simulation, now| simulation.world.put_route(now, &name, route))?;
    Ok(answer::json(StatusCode::OK, &route))
}

pub(super) async fn delete(State(shared): State<Shared>, Path(name): Path<String>) -> Answer {
    shared.with(|simulation, now| simulation.world.delete_route(now, &name))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
