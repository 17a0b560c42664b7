//! The handlers for resources with long operations, the same for each kind: each parses its request, applies it to the world,
//! and returns the reply. Writes carry their precondition and their faults.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::machines::ListQuery;
use super::response::{self, HandlerResult};
use super::{SharedCloud, Simulation};
use crate::refusal::Refusal;
use crate::world::{DeleteResult, Listing, Managed, Precondition, Resource, World, Write, WriteResult};

/// The precondition in the headers of a write.
pub(super) struct ConditionalHeaders(Precondition);

impl<S: Send + Sync> FromRequestParts<S> for ConditionalHeaders {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let given = |name| header_text(&parts.headers, &name);
        match (given(header::IF_MATCH)?, given(header::IF_NONE_MATCH)?) {
            (None, None) => Ok(Self(Precondition::None)),
            (Some("*"), None) => Ok(Self(Precondition::Present)),
            (Some(etag), None) => Ok(Self(Precondition::Match(etag.trim_matches('"').to_owned()))),
            (None, Some("*")) => Ok(Self(Precondition::Absent)),
            _ => Err(Refusal::Invalid("give If-Match with an etag, or If-None-Match: *".to_owned())),
        }
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| Refusal::Invalid(format!("invalid header {name}: not text")))
}

pub(super) async fn list<T: Managed + Serialize>(
    State(shared): State<SharedCloud>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> HandlerResult {
    let Query(query) = query.map_err(|error| Refusal::Invalid(error.body_text()))?;
    let listing = Listing::from(query);
    let page = shared.with(|simulation, now| {
        let mut page = simulation.world.page::<T>(now, &listing, simulation.traffic.faults.lag.lists)?;
        page.items.retain(|it| !simulation.traffic.faults.hidden.lists.has(&it.name));
        Ok::<_, Refusal>(page)
    })?;
    Ok(response::json(StatusCode::OK, &page))
}

pub(super) async fn get<T: Managed + Serialize>(
    State(shared): State<SharedCloud>,
    Path(name): Path<String>,
) -> HandlerResult {
    let resource = shared.with(|simulation, now| {
        let it = simulation.world.read::<T>(now, &name)?;
        let is_denied = simulation.traffic.faults.hidden.gets.has(&name);
        if is_denied { Err(Refusal::NotFound(format!("{} {name}", T::NOUN))) } else { Ok(it) }
    })?;
    Ok(show(StatusCode::OK, &resource))
}

pub(super) async fn put<T: Managed<New: DeserializeOwned> + Serialize>(
    State(shared): State<SharedCloud>,
    Path(name): Path<String>,
    ConditionalHeaders(precondition): ConditionalHeaders,
    body: Bytes,
) -> HandlerResult {
    let new: T::New = response::read(&body)?;
    let written = shared.with(|simulation, now| {
        let write = |world: &mut World, with: &Write| world.write::<T>(now, &name, new, with);
        let written = simulation.write_with_faults(precondition, write)?;
        if !matches!(written, WriteResult::Unchanged(_)) {
            simulation.traffic.faults.count_down_operation();
        }
        Ok::<_, Refusal>(written)
    })?;
    let status = match &written {
        WriteResult::Created(_) => StatusCode::CREATED,
        WriteResult::Updated(it) if it.state.is_busy() => StatusCode::ACCEPTED,
        WriteResult::Updated(_) | WriteResult::Unchanged(_) => StatusCode::OK,
    };
    Ok(show(status, written.resource()))
}

pub(super) async fn delete<T: Managed + Serialize>(
    State(shared): State<SharedCloud>,
    Path(name): Path<String>,
    ConditionalHeaders(precondition): ConditionalHeaders,
) -> HandlerResult {
    let deleted = shared.with(|simulation, now| {
        let remove = |world: &mut World, with: &Write| world.remove::<T>(now, &name, with);
        let deleted = simulation.write_with_faults(precondition, remove)?;
        simulation.traffic.faults.count_down_operation();
        Ok::<_, Refusal>(deleted)
    })?;
    Ok(match deleted {
        DeleteResult::Deleted => StatusCode::NO_CONTENT.into_response(),
        DeleteResult::Started(it) => show(StatusCode::ACCEPTED, &it),
    })
}

impl Simulation {
    /// Makes a write with the faults that are configured for it.
    fn write_with_faults<T>(
        &mut self,
        precondition: Precondition,
        write: impl FnOnce(&mut World, &Write) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let write_faults = self.traffic.write_faults();
        let done = write(&mut self.world, &Write { precondition, write_faults });
        if let Err(Refusal::Preempted(_)) = done {
            self.traffic.faults.count_down_preemption();
        }
        done
    }
}

/// A resource, with its etag also in the header.
fn show<T: Serialize>(status: StatusCode, resource: &Resource<T>) -> Response {
    let mut response = response::json(status, resource);
    if let Ok(etag) = HeaderValue::try_from(format!("\"{}\"", resource.etag)) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}
