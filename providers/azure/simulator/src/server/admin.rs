//! The admin API of this cloud: an operator creates and changes machines, and sets how the cloud behaves. It is not part of the
//! simulated cloud, so no fault and no limit affects it. Faults and counters are those of every simulated cloud.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use simulated_cloud::server::admin::TrafficView;
use simulated_cloud::server::response;

use super::{SharedCloud, shown};
use crate::refusal::Refusal;
use crate::seed::{NewNodes, Seed};
use crate::state::{Behavior, MachineCommand, Metadata, Script};

type Handled = Result<Response, Refusal>;

impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> Response {
        shown(self.response())
    }
}

pub(super) fn routes() -> Router<SharedCloud> {
    Router::new()
        .route("/admin/nodes", post(create_nodes))
        .route("/admin/resources", post(create_resources))
        .route("/admin/machines", post(change_machines))
        .route("/admin/behavior", get(behavior).put(set_behavior).delete(reset_behavior))
        .route("/admin/scripts", get(scripts).put(set_scripts).delete(reset_scripts))
        .route("/admin/metadata", get(metadata).put(set_metadata))
        .route("/admin/quotas", get(quotas).put(set_quotas))
        .route("/admin/credentials", axum::routing::put(set_credentials).delete(reset_credentials))
        .route("/admin/tokens", delete(revoke_tokens))
        .route("/admin/journal", get(journal))
        .route("/admin/state", get(state))
}

fn ok(body: &Value) -> Response {
    response::json(StatusCode::OK, body)
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(Refusal::content)
}

async fn create_nodes(Shared(cloud): Shared<SharedCloud>, body: Bytes) -> Handled {
    let seed = Seed { nodes: vec![parse::<NewNodes>(&body)?], ..Seed::default() };
    let names = cloud.with(|simulation, _| simulation.state.sow(&seed))?;
    Ok(response::json(StatusCode::CREATED, &json!({"created": names.len(), "names": names})))
}

async fn create_resources(Shared(cloud): Shared<SharedCloud>, body: Bytes) -> Handled {
    let seed: Seed = parse(&body)?;
    let names = cloud.with(|simulation, _| simulation.state.sow(&seed))?;
    let created = names.len() + seed.resources.len();
    Ok(response::json(StatusCode::CREATED, &json!({"created": created, "names": names})))
}

async fn change_machines(Shared(cloud): Shared<SharedCloud>, body: Bytes) -> Handled {
    let command: MachineCommand = parse(&body)?;
    let changed = cloud.with(|simulation, now| simulation.state.command(now, &command))?;
    Ok(ok(&json!({"changed": changed})))
}

async fn behavior(Shared(cloud): Shared<SharedCloud>) -> Response {
    ok(&cloud.with(|simulation, _| json!(simulation.state.behavior())))
}

async fn set_behavior(Shared(cloud): Shared<SharedCloud>, body: Bytes) -> Handled {
    let behavior: Behavior = parse(&body)?;
    cloud.with(|simulation, _| simulation.state.set_behavior(behavior.clone()))?;
    Ok(ok(&json!(behavior)))
}

async fn reset_behavior(Shared(cloud): Shared<SharedCloud>) -> Handled {
    cloud.with(|simulation, _| simulation.state.set_behavior(Behavior::default()))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn scripts(Shared(cloud): Shared<SharedCloud>) -> Response {
    ok(&cloud.with(|simulation, _| json!(simulation.state.scripts())))
}

async fn set_scripts(Shared(cloud): Shared<SharedCloud>, body: Bytes) -> Handled {
    let scripts: Vec<Script> = parse(&body)?;
    cloud.with(|simulation, _| simulation.state.set_scripts(scripts.clone()));
    Ok(ok(&json!(scripts)))
}

async fn reset_scripts(Shared(cloud): Shared<SharedCloud>) -> StatusCode {
    cloud.with(|simulation, _| simulation.state.set_scripts(Vec::new()));
    StatusCode::NO_CONTENT
}

async fn metadata(Shared(cloud): Shared<SharedCloud>) -> Response {
    ok(&cloud.with(|simulation, _| json!(simulation.state.metadata_settings())))
}

async fn set_metadata(Shared(cloud): Shared<SharedCloud>, body: Bytes) -> Handled {
    let metadata: Metadata = parse(&body)?;
    cloud.with(|simulation, _| simulation.state.set_metadata(metadata.clone()));
    Ok(ok(&json!(metadata)))
}

async fn quotas(Shared(cloud): Shared<SharedCloud>) -> Response {
    ok(&cloud.with(|simulation, _| json!(simulation.state.quotas())))
}

async fn set_quotas(Shared(cloud): Shared<SharedCloud>, body: String) -> Handled {
    let quotas: crate::state::Quotas =
        body.trim().parse().map_err(|message: String| Refusal::new(400, "InvalidParameter", message))?;
    cloud.with(|simulation, _| simulation.state.set_quotas(quotas.clone()));
    Ok(ok(&json!(quotas)))
}

async fn set_credentials(Shared(cloud): Shared<SharedCloud>, body: Bytes) -> Handled {
    // The error of the parser could show a part of a secret.
    let directory = serde_json::from_slice(&body)
        .map_err(|error| Refusal::content(format!("line {}, column {}", error.line(), error.column())))?;
    cloud.with(|simulation, _| simulation.state.set_directory(Some(directory)));
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn reset_credentials(Shared(cloud): Shared<SharedCloud>) -> StatusCode {
    cloud.with(|simulation, _| simulation.state.set_directory(None));
    StatusCode::NO_CONTENT
}

async fn revoke_tokens(Shared(cloud): Shared<SharedCloud>) -> StatusCode {
    cloud.with(|simulation, _| simulation.state.revoke_tokens());
    StatusCode::NO_CONTENT
}

#[derive(Deserialize)]
struct JournalQuery {
    #[serde(default)]
    after: u64,
}

async fn journal(Shared(cloud): Shared<SharedCloud>, Query(query): Query<JournalQuery>) -> Response {
    let entries =
        cloud.with(|simulation, _| json!(simulation.state.journal(query.after).collect::<Vec<_>>()));
    ok(&json!({"requests": entries}))
}

/// The data of the status page.
async fn state(Shared(cloud): Shared<SharedCloud>) -> Response {
    ok(&cloud.with(|simulation, now| {
        let mut view = simulation.state.overview(now);
        let traffic = json!(TrafficView::of(&simulation.traffic, now));
        for name in ["uptimeMs", "faults", "counters"] {
            crate::json::set(&mut view, name, traffic.get(name).cloned().unwrap_or_default());
        }
        view
    }))
}
