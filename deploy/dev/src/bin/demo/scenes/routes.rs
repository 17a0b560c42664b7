//! Nodes are assigned Pod CIDRs, and the cloud's route table follows.

use k8s_openapi::api::core::v1::Node;
use pileus_dev::Error;
use tokio::time::Instant;

use super::{named, writes};
use crate::cloud::Route;
use crate::nodes::{self, condition, latest};
use crate::page::{self, Cell, Tone, format_duration, row};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::Steps;

/// Routes within this range are managed by Pileus.
pub(crate) const CLUSTER_CIDR: &str = "--cluster-cidr=10.244.0.0/16";
/// The destination of a route outside that range.
const OTHER_DESTINATION: &str = "192.168.0.0/24";
/// The condition that is `False` once the cloud has the route to a Node's Pods.
const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// The Pod CIDR of a Node, by the number in its name.
pub(crate) fn pod_cidr(name: &str) -> String {
    format!("10.244.{}.0/24", name.trim_start_matches("node-"))
}

/// Assigns Pod CIDRs to some Nodes and shows their routes, beside one that is not Pileus' own.
pub(crate) async fn create(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "Routes follow nodes",
        "Each node gets a route to its Pods. Routes outside --cluster-cidr stay as they are. (The demo plays \
         kube-controller-manager, which assigns Pod CIDRs.)",
    );
    let names = named();
    let instance = nodes::instance_id(&stage.admin, "node-1").await?;
    stage.cloud.put_route("office", OTHER_DESTINATION, &instance).await?;
    let before = stage.cloud.write_count().await?;
    let begun = Instant::now();
    for name in &names {
        nodes::set_pod_cidr(&stage.admin, name, &pod_cidr(name)).await?;
    }
    let with_log = |error| pileus.with_log(&error);
    let routed = nodes::await_nodes(&stage.admin, &names, begun, "routed", has_route).await;
    let took = format_duration(latest(&routed.map_err(with_log)?));
    let is_complete = |routes: &[Route]| routes.len() == names.len() + 1;
    let routes = stage.cloud.await_routes("route for each node", is_complete).await.map_err(with_log)?;
    let cost = writes(stage.cloud.write_count().await? - before);

    let head = ["NODE", "POD CIDR", "ROUTE IN THE CLOUD", NETWORK_UNAVAILABLE];
    let mut rows = vec![head.map(|text| Tone::Quiet.cell(text)).to_vec()];
    let nodes = nodes::list(&stage.admin).await?;
    rows.extend(nodes.iter().filter(|node| has_route(node)).map(|node| node_row(node, &routes)));
    page::table(&rows);
    page::table(&[
        Vec::new(),
        row("cost", Tone::Good, format!("{cost}; the last node had its route after {took}")),
        row("other route", Tone::Good, format!("{OTHER_DESTINATION} unchanged")),
    ]);
    steps.end();
    steps.add_to_summary(&format!("{} routes", names.len()), format!("created within {took}, with {cost}"));
    Ok(())
}

/// A Node's Pod CIDR, its route, and its condition.
fn node_row(node: &Node, routes: &[Route]) -> Vec<Cell> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let cidr = node.spec.as_ref().and_then(|spec| spec.pod_cidr.clone()).unwrap_or_default();
    let route = routes.iter().find(|route| route.destination == cidr);
    let route = route.map_or_else(|| "none".to_owned(), |it| format!("to {}", it.machine));
    let condition = condition(node, NETWORK_UNAVAILABLE);
    let condition =
        condition.map(|it| format!("{}, {}", it.status, it.reason.as_deref().unwrap_or_default()));
    vec![
        Tone::Plain.cell(name),
        Tone::Plain.cell(cidr),
        Tone::Good.cell(route),
        Tone::Good.cell(condition.unwrap_or_default()),
    ]
}

/// Whether a Node's condition says that its route exists.
fn has_route(node: &Node) -> bool {
    condition(node, NETWORK_UNAVAILABLE).is_some_and(|it| it.status == "False")
}
