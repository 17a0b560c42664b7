//! The calls about everything whose writes take their time, the same for each kind: each reads its request, has the world
//! do it, and shows the reply. Writes bring what they say of the state before, and get their luck from the faults.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer::{self, Answer};
use super::machines::ListQuery;
use super::{Shared, Simulation};
use crate::refusal::Refusal;
use crate::world::{Deleted, Guard, Listing, Managed, Resource, World, Write, Written};

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

pub(super) async fn list<T: Managed + Serialize>(
    State(shared): State<Shared>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Answer {
    let Query(query) = query.map_err(|error| Refusal::Invalid(error.body_text()))?;
    let listing = Listing::from(query);
    let page = shared.with(|simulation, now| {
        let mut page = simulation.world.page::<T>(now, &listing, simulation.faults.lag.lists)?;
        page.items.retain(|it| !simulation.faults.hidden.lists.has(&it.name));
        Ok::<_, Refusal>(page)
    })?;
    Ok(answer::json(StatusCode::OK, &page))
}

pub(super) async fn get<T: Managed + Serialize>(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Answer {
    let resource = shared.with(|simulation, now| {
        let it = simulation.world.read::<T>(now, &name)?;
        let is_denied = simulation.faults.hidden.gets.has(&name);
        if is_denied { Err(Refusal::NotFound(format!("{} {name}", T::NOUN))) } else { Ok(it) }
    })?;
    Ok(show(StatusCode::OK, &resource))
}

pub(super) async fn put<T: Managed<New: DeserializeOwned> + Serialize>(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Precondition(guard): Precondition,
    body: Bytes,
) -> Answer {
    let new: T::New = answer::read(&body)?;
    let written = shared.with(|simulation, now| {
        let write = |world: &mut World, with: &Write| world.write::<T>(now, &name, new, with);
        let written = simulation.try_luck(guard, write)?;
        if !matches!(written, Written::Same(_)) {
            simulation.faults.count_off_operation();
        }
        Ok::<_, Refusal>(written)
    })?;
    let status = match &written {
        Written::Made(_) => StatusCode::CREATED,
        Written::Changed(it) if it.state.is_busy() => StatusCode::ACCEPTED,
        Written::Changed(_) | Written::Same(_) => StatusCode::OK,
    };
    Ok(show(status, written.resource()))
}

pub(super) async fn delete<T: Managed + Serialize>(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Precondition(guard): Precondition,
) -> Answer {
    let deleted = shared.with(|simulation, now| {
        let remove = |world: &mut World, with: &Write| world.remove::<T>(now, &name, with);
        let deleted = simulation.try_luck(guard, remove)?;
        simulation.faults.count_off_operation();
        Ok::<_, Refusal>(deleted)
    })?;
    Ok(match deleted {
        Deleted::Gone => StatusCode::NO_CONTENT.into_response(),
        Deleted::Begun(it) => show(StatusCode::ACCEPTED, &it),
    })
}

impl Simulation {
    /// Does a write with the luck that the faults have for it.
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
