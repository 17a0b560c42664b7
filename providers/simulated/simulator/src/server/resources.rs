//! The calls about load balancers: each reads its request, has the world do it, and shows the reply. Writes bring what they
//! say of the state before, and get their luck from the faults.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::answer::{self, Answer};
use super::machines::ListQuery;
use super::{Shared, Simulation};
use crate::refusal::Refusal;
use crate::world::{Deleted, Guard, Listing, NewLoadBalancer, Resource, World, Write, Written};

/// What the headers of a write say of the state before.
pub(super) struct Precondition(Guard);

impl<S: Send + Sync> FromRequestParts<S> for Precondition {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let given = |name| text(&parts.headers, &name);
        match (given(header::IF_MATCH)?, given(header::IF_NONE_MATCH)?) {
            (None, None) => Ok(Self(Guard::None)),
            (Some("*"), None) => Ok(Self(Guard::Present)),
            (Some(etag), None) => Ok(Self(Guard::Match(etag.trim_matches('"').to_owned()))),
            (None, Some("*")) => Ok(Self(Guard::Absent)),
            _ => Err(Refusal::Invalid("give If-Match with an etag, or If-None-Match: *".to_owned())),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Refusal::Invalid(format!("{name} is no text")))
}

pub(super) async fn list_load_balancers(
    State(shared): State<Shared>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Answer {
    let Query(query) = query.map_err(|error| Refusal::Invalid(error.body_text()))?;
    let listing = Listing::from(query);
    let page = shared.with(|simulation, now| {
        simulation.world.list_load_balancers(now, &listing, simulation.faults.lag.lists)
    })?;
    Ok(answer::json(StatusCode::OK, &page))
}

pub(super) async fn get_load_balancer(State(shared): State<Shared>, Path(name): Path<String>) -> Answer {
    Ok(show(StatusCode::OK, &*shared.with(|simulation, now| simulation.world.load_balancer(now, &name))?))
}

pub(super) async fn put_load_balancer(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Precondition(guard): Precondition,
    body: Bytes,
) -> Answer {
    let new: NewLoadBalancer = answer::read(&body)?;
    put(&shared, guard, |world, now, write| world.put_load_balancer(now, &name, new, write))
}

pub(super) async fn delete_load_balancer(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Precondition(guard): Precondition,
) -> Answer {
    delete(&shared, guard, |world, now, write| world.delete_load_balancer(now, &name, write))
}

/// Writes, with the luck that the faults have for it.
fn put<T: Serialize>(
    shared: &Shared,
    guard: Guard,
    write: impl FnOnce(&mut World, Duration, &Write) -> Result<Written<T>, Refusal>,
) -> Answer {
    let written = shared.with(|simulation, now| {
        let written = simulation.try_luck(guard, |world, with| write(world, now, with))?;
        if !matches!(written, Written::Same(_)) {
            simulation.faults.count_off_operation();
        }
        Ok::<_, Refusal>(written)
    })?;
    let resource = written.resource();
    Ok(match &written {
        Written::Made(_) => show(StatusCode::CREATED, resource),
        Written::Changed(it) if it.state.is_busy() => show(StatusCode::ACCEPTED, resource),
        Written::Changed(_) | Written::Same(_) => show(StatusCode::OK, resource),
    })
}

/// Removes, with the luck that the faults have for it.
fn delete<T: Serialize>(
    shared: &Shared,
    guard: Guard,
    delete: impl FnOnce(&mut World, Duration, &Write) -> Result<Deleted<T>, Refusal>,
) -> Answer {
    let deleted = shared.with(|simulation, now| {
        let deleted = simulation.try_luck(guard, |world, with| delete(world, now, with))?;
        simulation.faults.count_off_operation();
        Ok::<_, Refusal>(deleted)
    })?;
    Ok(match deleted {
        Deleted::Gone => StatusCode::NO_CONTENT.into_response(),
        Deleted::Begun(it) => show(StatusCode::ACCEPTED, &it),
    })
}

impl Simulation {
    fn try_luck<T>(
        &mut self,
        guard: Guard,
        write: impl FnOnce(&mut World, &Write) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let luck = self.faults.luck(&mut self.fortune);
        let done = write(&mut self.world, &Write { guard, luck });
        if let Err(Refusal::Disturbed(_)) = done {
            self.faults.count_off_disturbance();
        }
        done
    }
}

/// A thing, with its etag also where HTTP has it.
fn show<T: Serialize>(status: StatusCode, resource: &Resource<T>) -> Response {
    let mut response = answer::json(status, resource);
    if let Ok(etag) = HeaderValue::try_from(format!("\"{}\"", resource.etag)) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}
