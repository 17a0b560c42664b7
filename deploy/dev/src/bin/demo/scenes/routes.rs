//! Nodes are given ranges of Pod addresses, and the cloud's route table follows.

use k8s_openapi::api::core::v1::Node;
use pileus_dev::Error;
use tokio::time::Instant;

use super::{named, written};
use crate::cloud::Route;
use crate::nodes::{self, condition, latest};
use crate::page::{self, Cell, Tone, row, seconds};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::Steps;

/// Routes within this range are Pileus'.
pub(crate) const RANGES: &str = "--cluster-cidr=10.244.0.0/16";
/// One that is outside.
const ELSEWHERE: &str = "192.168.0.0/24";
/// What tells that packets to a Node's Pods arrive, once it is False.
const NETWORK: &str = "NetworkUnavailable";

/// The range of a Node's Pods, by the number in its name.
pub(crate) fn range(name: &str) -> String {
    format!("10.244.{}.0/24", name.trim_start_matches("node-"))
}

/// Some Nodes are given ranges, and somebody else has a route in the same table.
pub(crate) async fn carry(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "Routes follow nodes",
        "Somebody must tell the cloud which machine to carry packets for pods to. Routes outside --cluster-cidr are \
         somebody else's. (The demo stands in for kube-controller-manager, which gives each node its range.)",
    );
    let names = named();
    let machine = nodes::machine(&stage.admin, "node-1").await?;
    stage.cloud.put_route("office", ELSEWHERE, &machine).await?;
    let before = stage.cloud.writes().await?;
    let begun = Instant::now();
    for name in &names {
        nodes::give_range(&stage.admin, name, &range(name)).await?;
    }
    let blame = |error| pileus.blame(&error);
    let told = nodes::until(&stage.admin, &names, begun, "told of its route", is_carried).await;
    let took = seconds(latest(&told.map_err(blame)?));
    let is_there = |table: &[Route]| table.len() == names.len() + 1;
    let table = stage.cloud.carries("route for each node", is_there).await.map_err(blame)?;
    let writes = stage.cloud.writes().await? - before;

    let mut rows = vec![
        ["NODE", "RANGE OF ITS PODS", "ROUTE IN THE CLOUD", NETWORK]
            .map(|text| Tone::Quiet.cell(text))
            .to_vec(),
    ];
    for node in nodes::all(&stage.admin).await?.iter().filter(|node| is_carried(node)) {
        rows.push(line(node, &table));
    }
    page::table(&rows);
    let count = names.len();
    page::table(&[
        Vec::new(),
        row("cost", Tone::Good, format!("{}, {took} after the first node got its range", written(writes))),
        row("elsewhere", Tone::Plain, format!("{ELSEWHERE}, which somebody else carries: untouched")),
    ]);
    steps.end();
    steps.shown(
        &format!("{count} routes"),
        format!("there {took} after the nodes' ranges, by {writes} writes"),
    );
    Ok(())
}

/// A Node's range beside the route to it.
fn line(node: &Node, table: &[Route]) -> Vec<Cell> {
    let name = node.metadata.name.clone().unwrap_or_default();
    let range = node.spec.as_ref().and_then(|spec| spec.pod_cidr.clone()).unwrap_or_default();
    let route = table.iter().find(|route| route.destination == range);
    let route = route.map_or_else(|| "none".to_owned(), |it| format!("to {}", it.machine));
    let told = condition(node, NETWORK);
    let told = told.map(|it| format!("{}, {}", it.status, it.reason.as_deref().unwrap_or_default()));
    vec![
        Tone::Plain.cell(name),
        Tone::Plain.cell(range),
        Tone::Good.cell(route),
        Tone::Good.cell(told.unwrap_or_default()),
    ]
}

/// Whether a Node was told that the cloud carries packets to its Pods.
fn is_carried(node: &Node) -> bool {
    condition(node, NETWORK).is_some_and(|it| it.status == "False")
}
