//! The data of the status page: the first resources of each kind, the traffic, and what is configured.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::SharedCloud;
use super::admin::TrafficView;
use super::response;
use crate::world::{Inventory, Place};

/// How many of each kind of resource are shown: enough for a reader, and few enough to be sent every second.
const MAX_SHOWN: usize = 200;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StateView {
    place: Place,
    #[serde(flatten)]
    inventory: Inventory,
    #[serde(flatten)]
    traffic: TrafficView,
}

pub(super) async fn state(State(shared): State<SharedCloud>) -> Response {
    let overview = shared.with(|simulation, now| StateView {
        place: simulation.world.place().clone(),
        inventory: simulation.world.inventory(now, MAX_SHOWN),
        traffic: TrafficView::of(&simulation.traffic, now),
    });
    response::json(StatusCode::OK, &overview)
}
