//! The admin API of this cloud: an operator creates and changes what clients only read. Faults, quotas and counters are those
//! of every simulated cloud.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, patch, post};
use serde_json::{Value, json};
use simulated_cloud::server::admin::TrafficView;

use super::api::PathParts;
use super::{HandlerResult, SharedCloud, shown};
use crate::refusal::Refusal;
use crate::world::{Collection, Project};

pub(super) fn routes() -> Router<SharedCloud> {
    Router::new()
        .route("/admin/servers", post(create_servers))
        .route("/admin/servers/{id}", patch(change_server).delete(delete_server))
        .route("/admin/networks", post(create_network))
        .route("/admin/networks/{id}", delete(delete_network))
        .route("/admin/certificates", post(create_certificate))
        .route("/admin/project", get(project).put(set_project))
        .route("/admin/state", get(state))
}

async fn create_servers(State(shared): State<SharedCloud>, body: Bytes) -> HandlerResult {
    let new = serde_json::from_slice(&body)?;
    let ids = shared.with(|simulation, now| simulation.world.create_servers(now, &new))?;
    Ok(shown(StatusCode::CREATED, &json!({"created": ids.len(), "ids": ids})))
}

async fn change_server(State(shared): State<SharedCloud>, path: PathParts, body: Bytes) -> HandlerResult {
    let (id, changes) = (path.id(0)?, serde_json::from_slice(&body)?);
    let changed = shared.with(|simulation, now| {
        simulation.world.change_server(now, id, changes)?;
        simulation.world.get(now, Collection::Servers, id)
    })?;
    Ok(shown(StatusCode::OK, &changed))
}

async fn delete_server(State(shared): State<SharedCloud>, path: PathParts) -> HandlerResult {
    let id = path.id(0)?;
    shared.with(|simulation, now| simulation.world.delete_server(now, id))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn create_network(State(shared): State<SharedCloud>, body: Bytes) -> HandlerResult {
    let new = serde_json::from_slice(&body)?;
    let id = shared.with(|simulation, now| simulation.world.create_network(now, new))?;
    Ok(shown(StatusCode::CREATED, &json!({"id": id})))
}

async fn delete_network(State(shared): State<SharedCloud>, path: PathParts) -> HandlerResult {
    let id = path.id(0)?;
    shared.with(|simulation, now| simulation.world.delete_network(now, id))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn create_certificate(State(shared): State<SharedCloud>, body: Bytes) -> HandlerResult {
    let new = serde_json::from_slice(&body)?;
    let id = shared.with(|simulation, now| simulation.world.create_certificate(now, new))?;
    Ok(shown(StatusCode::CREATED, &json!({"id": id})))
}

async fn project(State(shared): State<SharedCloud>) -> Response {
    let project = shared.with(|simulation, _| simulation.world.project().clone());
    shown(StatusCode::OK, &json!(project))
}

async fn set_project(State(shared): State<SharedCloud>, body: Bytes) -> HandlerResult {
    let project: Project = serde_json::from_slice(&body)?;
    shared.with(|simulation, _| simulation.world.set_project(project.clone()));
    Ok(shown(StatusCode::OK, &json!(project)))
}

/// The data of the status page: the first page of each list, the latest actions, and the traffic.
async fn state(State(shared): State<SharedCloud>) -> HandlerResult {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let view = shared.with(|simulation, now| {
        let mut view = json!(TrafficView::of(&simulation.traffic, now));
        let world = &mut simulation.world;
        let first = [pair("per_page", "50")];
        for kind in
            [Collection::Servers, Collection::Networks, Collection::LoadBalancers, Collection::Certificates]
        {
            insert(&mut view, kind.name(), excerpt(&world.list(now, kind, &first)?, kind.name()));
        }
        insert(&mut view, "actions", json!(world.latest_actions(now, 20)));
        insert(&mut view, "project", json!(world.project()));
        Ok::<_, Refusal>(view)
    })?;
    Ok(shown(StatusCode::OK, &view))
}

/// The entries of a list, and how many there are on all pages.
fn excerpt(page: &Value, name: &str) -> Value {
    let field = |path: &str| page.pointer(path).cloned().unwrap_or_default();
    json!({"total": field("/meta/pagination/total_entries"), "first": field(&format!("/{name}"))})
}

fn insert(view: &mut Value, name: &str, value: Value) {
    if let Some(fields) = view.as_object_mut() {
        fields.insert(name.to_owned(), value);
    }
}
