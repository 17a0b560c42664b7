//! Routes, named by the host's name hint.

use std::collections::BTreeMap;

use pileus_guest::{
    Cluster, Error, ListedRoute, Route, RouteAction, RouteChange, RouteOutcome, RouteProgress, Routes,
    change_each_route, http,
};
use serde::Deserialize;
use serde_json::json;

use crate::{Breaks, Unruly};

/// The label with the name of the Node.
const NODE: &str = "node";

#[derive(Deserialize)]
struct Page {
    routes: Vec<TableRoute>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct TableRoute {
    name: String,
    destination: String,
    machine: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl Routes for Unruly {
    async fn list_routes(&self, _: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        let mut all = Vec::new();
        let mut from = None;
        loop {
            let page = self.get(&["v1", "routes"], from).await.and_then(http::Response::json);
            let Page { routes, next } = match page {
                Err(_) if self.breaks == Breaks::ErrorsAreEmptyLists => return Ok(Vec::new()),
                page => page?,
            };
            let visible = |text: String| (self.breaks != Breaks::ListsRoutesWithoutNodes).then_some(text);
            all.extend(routes.into_iter().map(|TableRoute { name, destination, machine, mut labels }| {
                ListedRoute {
                    name,
                    node: labels.remove(NODE).and_then(visible),
                    target: visible(format!("unruly://{machine}")),
                    destination,
                    ..ListedRoute::default()
                }
            }));
            match next {
                Some(next) => from = Some(next),
                None => return Ok(all),
            }
        }
    }

    async fn create_route(&self, _: &Cluster, route: &Route, _: Option<&str>) -> RouteOutcome {
        let machine = route.target.as_deref().and_then(|id| id.strip_prefix("unruly://"));
        let route_body = json!({
            "destination": route.destination, "machine": machine, "labels": {NODE: route.node},
        });
        let request = http::put(self.cloud.join(["v1", "routes", &route.name_hint])).json(&route_body);
        let answer = request.send().await.and_then(http::Response::error_for_status);
        self.hide_route_error(answer.map(|_| RouteProgress::Done))
    }

    async fn delete_route(&self, _: &Cluster, route: &ListedRoute, _: Option<&str>) -> RouteOutcome {
        let answer = http::delete(self.cloud.join(["v1", "routes", &route.name])).send().await?;
        if self.breaks == Breaks::GoneIsAnError && answer.status.as_u16() == 404 {
            return Err(Error::broken(format!("there is no {}", route.name)));
        }
        answer.or_absent().map(|_| RouteProgress::Done)
    }

    async fn change_routes(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Vec<RouteOutcome>, Error> {
        if self.breaks == Breaks::CreatesBeforeItDeletes {
            let mut outcomes = Vec::new();
            for creates in [true, false] {
                let is_now =
                    |change: &&RouteChange| matches!(change.action, RouteAction::Create(_)) == creates;
                for change in changes.iter().filter(is_now) {
                    outcomes.extend(change_each_route(self, cluster, std::slice::from_ref(change)).await);
                }
            }
            return Ok(outcomes);
        }
        let mut outcomes = change_each_route(self, cluster, changes).await;
        if self.breaks == Breaks::OneTooFew && outcomes.len() > 1 {
            outcomes.pop();
        }
        Ok(outcomes)
    }
}

impl Unruly {
    fn hide_route_error(&self, outcome: RouteOutcome) -> RouteOutcome {
        match outcome {
            Err(_) if self.breaks == Breaks::ErrorsAreDone => Ok(RouteProgress::Done),
            outcome => outcome,
        }
    }
}
