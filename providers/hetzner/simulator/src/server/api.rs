//! The routes and handlers of the Hetzner Cloud API: each parses its path, applies the request to the world, and returns the
//! reply.

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse as _;
use axum::routing::{MethodRouter, get, post};
use simulated_cloud::call::Kind;
use simulated_cloud::server::middleware::{self, Classifier};
use simulated_cloud::world::WriteFaults;

use super::{HandlerResult, SharedCloud, Simulation, shown};
use crate::refusal::{Code, Refusal};
use crate::world::{Collection, ResourceType};

type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The parts of a path that are variable: IDs, and the name of an action at the end of some.
pub(super) struct PathParts(Vec<String>);

impl<S: Send + Sync> FromRequestParts<S> for PathParts {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::<Vec<String>>::from_request_parts(parts, state).await;
        path.map(|Path(found)| Self(found)).map_err(|_| unknown(parts.uri.path()))
    }
}

impl PathParts {
    pub(super) fn id(&self, index: usize) -> Result<u64, Refusal> {
        let part = self.0.get(index).map(String::as_str).unwrap_or_default();
        part.parse().map_err(|_| Refusal::invalid("id", format!("'{part}' is not a number")))
    }
}

fn unknown(path: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("path {path} not found"))
}

/// All routes below `/v1`.
pub(super) fn routes(shared: &SharedCloud) -> Router<SharedCloud> {
    let mut router = Router::new();
    for kind in Collection::ALL {
        let path = format!("/v1/{}", kind.name());
        let list = call(shared, Kind::List, get(move |state, query| async move { list(kind, state, query) }));
        let one = call(shared, Kind::Get, get(move |state, path| async move { one(kind, state, &path) }));
        router = router.merge(Router::new().route(&path, list).route(&format!("{path}/{{id}}"), one));
    }
    let create = call(shared, Kind::Create, post(create));
    let update = call(shared, Kind::Change, axum::routing::put(update));
    let delete = call(shared, Kind::Delete, axum::routing::delete(delete));
    router
        .route("/v1/load_balancers", create)
        .route("/v1/load_balancers/{id}", update.merge(delete))
        .merge(actions(shared, "/v1", None))
        .merge(actions(shared, "/v1/load_balancers", Some(ResourceType::LoadBalancer)))
        .merge(actions(shared, "/v1/networks", Some(ResourceType::Network)))
}

/// The routes of the actions of a type of resource.
fn actions(shared: &SharedCloud, path: &str, kind: Option<ResourceType>) -> Router<SharedCloud> {
    let all = move |state, query| async move { list_actions(kind, None, state, query) };
    let one = move |state, path: PathParts| async move { get_action(kind, None, state, path.id(0)) };
    let router = Router::new()
        .route(&format!("{path}/actions"), call(shared, Kind::List, get(all)))
        .route(&format!("{path}/actions/{{action}}"), call(shared, Kind::Get, get(one)));
    let Some(kind) = kind else { return router };
    let own = move |state, path: PathParts, query| async move {
        list_actions(Some(kind), Some(path.id(0)), state, query)
    };
    let own_one = move |state, path: PathParts| async move {
        get_action(Some(kind), Some(path.id(0)), state, path.id(1))
    };
    let begin = move |state, path, body| async move { act(kind, state, &path, &body) };
    router.route(&format!("{path}/{{id}}/actions"), call(shared, Kind::List, get(own))).route(
        &format!("{path}/{{id}}/actions/{{action}}"),
        call(shared, Kind::Get, get(own_one)).merge(call(shared, Kind::Change, post(begin))),
    )
}

fn call(shared: &SharedCloud, kind: Kind, route: MethodRouter<SharedCloud>) -> MethodRouter<SharedCloud> {
    middleware::call(shared, Classifier::Kind(kind), route)
}

fn pairs(query: Pairs) -> Result<Vec<(String, String)>, Refusal> {
    query.map(|Query(pairs)| pairs).map_err(|error| Refusal::invalid("query", error.body_text()))
}

fn list(kind: Collection, State(shared): State<SharedCloud>, query: Pairs) -> HandlerResult {
    let pairs = pairs(query)?;
    let page = shared.with(|simulation, now| simulation.world.list(now, kind, &pairs))?;
    Ok(shown(StatusCode::OK, &page))
}

fn one(kind: Collection, State(shared): State<SharedCloud>, path: &PathParts) -> HandlerResult {
    let id = path.id(0)?;
    let found = shared.with(|simulation, now| simulation.world.get(now, kind, id))?;
    Ok(shown(StatusCode::OK, &found))
}

fn list_actions(
    kind: Option<ResourceType>,
    id: Option<Result<u64, Refusal>>,
    State(shared): State<SharedCloud>,
    query: Pairs,
) -> HandlerResult {
    let (id, pairs) = (id.transpose()?, pairs(query)?);
    let page = shared.with(|simulation, now| simulation.world.actions(now, kind, id, &pairs))?;
    Ok(shown(StatusCode::OK, &page))
}

fn get_action(
    kind: Option<ResourceType>,
    id: Option<Result<u64, Refusal>>,
    State(shared): State<SharedCloud>,
    action: Result<u64, Refusal>,
) -> HandlerResult {
    let (id, action) = (id.transpose()?, action?);
    let found = shared.with(|simulation, now| simulation.world.action(now, kind, id, action))?;
    Ok(shown(StatusCode::OK, &found))
}

async fn create(State(shared): State<SharedCloud>, body: Bytes) -> HandlerResult {
    let created = shared.with(|simulation, now| {
        simulation.write(true, |world, faults| world.create_load_balancer(now, &body, faults))
    })?;
    Ok(shown(StatusCode::CREATED, &created))
}

async fn update(State(shared): State<SharedCloud>, path: PathParts, body: Bytes) -> HandlerResult {
    let id = path.id(0)?;
    let updated = shared.with(|simulation, now| {
        simulation.write(false, |world, faults| world.update_load_balancer(now, id, &body, faults))
    })?;
    Ok(shown(StatusCode::OK, &updated))
}

async fn delete(State(shared): State<SharedCloud>, path: PathParts) -> HandlerResult {
    let id = path.id(0)?;
    shared.with(|simulation, now| simulation.world.delete_load_balancer(now, id))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn act(
    kind: ResourceType,
    State(shared): State<SharedCloud>,
    path: &PathParts,
    body: &Bytes,
) -> HandlerResult {
    let resource = (kind, path.id(0)?);
    let command = path.0.get(1).map(String::as_str).unwrap_or_default();
    let action = shared.with(|simulation, now| {
        simulation.write(true, |world, faults| world.act(now, resource, command, body, faults))
    })?;
    Ok(shown(StatusCode::CREATED, &action))
}

impl Simulation {
    /// Makes a write with the faults that are configured for it, and counts down those that it met.
    fn write<T>(
        &mut self,
        begins_action: bool,
        write: impl FnOnce(&mut crate::world::World, WriteFaults) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let faults = self.traffic.write_faults();
        let written = write(&mut self.world, faults);
        match &written {
            Ok(_) if begins_action => self.traffic.faults.count_down_operation(),
            Err(refusal) if refusal.code == Code::Conflict && faults.is_preempted => {
                self.traffic.faults.count_down_preemption();
            }
            _ => {}
        }
        written
    }
}
