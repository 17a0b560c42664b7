//! The handlers for machines: each parses its request, applies it to the world, and returns the reply.

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse as _;
use serde::{Deserialize, Serialize};

use super::SharedCloud;
use super::response::{self, HandlerResult};
use crate::refusal::Refusal;
use crate::world::{Batch, Changes, Command, Listing, MachineId, NewMachine, Reply};

/// The machine that the path names.
pub(super) struct Id(MachineId);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        // A path that isn't text can't be a machine's ID.
        let Path(text) = path.map_err(|_| Refusal::NotFound(format!("path {}", parts.uri.path())))?;
        MachineId::parse(&text).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    name: Option<String>,
}

impl From<ListQuery> for Listing {
    fn from(ListQuery { limit, cursor, name }: ListQuery) -> Self {
        Self { limit, cursor, name }
    }
}

#[derive(Serialize)]
struct CreatedBatch {
    created: usize,
    names: Vec<String>,
}

#[derive(Serialize)]
struct DeletedBatch {
    deleted: usize,
    names: Vec<String>,
}

pub(super) async fn list(
    State(shared): State<SharedCloud>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> HandlerResult {
    let Query(query) = query.map_err(|error| Refusal::Invalid(error.body_text()))?;
    let listing = Listing::from(query);
    let page = shared.with(|simulation, now| {
        let mut page = simulation.world.list(now, &listing, simulation.traffic.faults.lag.lists)?;
        page.items.retain(|machine| !simulation.traffic.faults.hidden.lists.contains(machine));
        Ok::<_, Refusal>(page)
    })?;
    Ok(response::json(StatusCode::OK, &page))
}

pub(super) async fn get(State(shared): State<SharedCloud>, Id(id): Id) -> HandlerResult {
    let machine = shared.with(|simulation, now| {
        let machine = simulation.world.get(now, id)?;
        let is_denied = simulation.traffic.faults.hidden.gets.contains(&machine);
        if is_denied { Err(Refusal::NotFound(format!("machine {id}"))) } else { Ok(machine) }
    })?;
    Ok(response::json(StatusCode::OK, &machine))
}

pub(super) async fn create(State(shared): State<SharedCloud>, body: Bytes) -> HandlerResult {
    let machine: NewMachine = response::read(&body)?;
    let reply = shared.with(|simulation, now| {
        let takes = simulation.traffic.faults.creation.takes;
        simulation.world.apply(now, Command::Create { machine, takes })
    })?;
    Ok(show(StatusCode::CREATED, reply))
}

pub(super) async fn create_batch(State(shared): State<SharedCloud>, body: Bytes) -> HandlerResult {
    let batch: Batch = response::read(&body)?;
    let reply = shared.with(|simulation, now| {
        let takes = simulation.traffic.faults.creation.takes;
        simulation.world.apply(now, Command::CreateBatch { batch, takes })
    })?;
    Ok(show(StatusCode::CREATED, reply))
}

pub(super) async fn change(State(shared): State<SharedCloud>, Id(id): Id, body: Bytes) -> HandlerResult {
    let changes: Changes = response::read(&body)?;
    apply(&shared, Command::Change { id, changes })
}

pub(super) async fn stop(State(shared): State<SharedCloud>, Id(id): Id) -> HandlerResult {
    apply(&shared, Command::Stop(id))
}

pub(super) async fn start(State(shared): State<SharedCloud>, Id(id): Id) -> HandlerResult {
    apply(&shared, Command::Start(id))
}

pub(super) async fn delete(State(shared): State<SharedCloud>, Id(id): Id) -> HandlerResult {
    apply(&shared, Command::Delete(id))
}

pub(super) async fn delete_batch(State(shared): State<SharedCloud>, body: Bytes) -> HandlerResult {
    let batch: Batch = response::read(&body)?;
    match shared.with(|simulation, now| simulation.world.apply(now, Command::DeleteBatch(batch)))? {
        Reply::Batch(names) => {
            Ok(response::json(StatusCode::OK, &DeletedBatch { deleted: names.len(), names }))
        }
        other => Ok(show(StatusCode::OK, other)),
    }
}

fn apply(shared: &SharedCloud, command: Command) -> HandlerResult {
    let reply = shared.with(|simulation, now| simulation.world.apply(now, command))?;
    Ok(show(StatusCode::OK, reply))
}

fn show(status: StatusCode, reply: Reply) -> axum::response::Response {
    match reply {
        Reply::Machine(machine) => response::json(status, &machine),
        Reply::Batch(names) => response::json(status, &CreatedBatch { created: names.len(), names }),
        Reply::Deleted => StatusCode::NO_CONTENT.into_response(),
    }
}
