//! Machines change and go, and their Nodes follow; but not when the cloud says that half of them are gone.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use pileus_dev::Error;
use pileus_dev::nodes::{Ready, await_absence, set_ready};
use tokio::time::Instant;

use super::joining::crowd;
use super::routes::range;
use super::services::SERVICE;
use crate::cloud::{LoadBalancer, Route};
use crate::events;
use crate::nodes::{self, SOON, condition, latest};
use crate::page::{self, Cell, Tone, row, seconds};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::{Steps, wait_until};
use crate::table::{MACHINE_ABSENT, standing};

/// What makes Pileus look often enough for a demo; the defaults are 30 minutes and 10 seconds.
pub(crate) const OFTEN: [&str; 2] = ["--node-status-update-frequency=10s", "--node-monitor-period=1s"];
/// From a Node's registration until its machine's absence counts.
pub(crate) const AGE: Duration = Duration::from_mins(1);

/// The Node whose machine really is gone when the cloud denies that of many: the first of the crowd.
const GONE: &str = "worker-1";
const ZONE: &str = "topology.kubernetes.io/zone";
const TYPE: &str = "node.kubernetes.io/instance-type";

/// Somebody changes a Node, and the cloud changes another one's machine.
pub(crate) async fn follow(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "Nodes follow their machines",
        "Somebody gives a node a wrong zone, and a machine gets another size. A node that was changed is \
         compared with its machine at once, or 10 s after the last such look; all are each 10 s here.",
    );
    nodes::label(&stage.admin, "node-1", ZONE, "nowhere").await?;
    stage.cloud.resize(&nodes::machine(&stage.admin, "node-2").await?, "huge-64").await?;
    let begun = Instant::now();
    let (zone, size) = tokio::try_join!(
        labelled(stage, "node-1", (ZONE, "sim-1a"), begun),
        labelled(stage, "node-2", (TYPE, "huge-64"), begun),
    )
    .map_err(|error| pileus.blame(&error))?;
    page::table(&[
        row("node-1", Tone::Good, format!("{ZONE}: nowhere, and {} later sim-1a again", seconds(zone))),
        row("node-2", Tone::Good, format!("{TYPE}: large-8, and {} later huge-64", seconds(size))),
    ]);
    steps.end();
    steps.shown("2 changes", format!("put right within {}", seconds(zone.max(size))));
    Ok(())
}

/// One machine is deleted, once all Nodes are old enough, and its Node goes.
pub(crate) async fn go(
    steps: &mut Steps,
    stage: &Stage,
    pileus: &Pileus,
    grown_up: Instant,
) -> Result<(), Error> {
    steps.begin(
        "A machine goes",
        "Its node goes, too: once its kubelet is silent, and a direct read confirms what the list says. But not \
         in the node's first minute, as a cloud may not show a new machine at once. Route and load balancer follow.",
    );
    wait_until(grown_up, "waiting until all nodes are a minute old").await;
    let name = "node-3";
    let machine = nodes::machine(&stage.admin, name).await?;
    stage.cloud.delete(&machine).await?;
    fall_silent(stage, &[name.to_owned()]).await?;
    let begun = Instant::now();
    await_absence(&stage.admin, name, SOON).await.map_err(|error| pileus.blame(&error))?;
    let took = seconds(begun.elapsed());
    let event = events::about(&stage.admin, name, "does not exist in the cloud");
    let event = event.await.map_err(|error| pileus.blame(&error))?;
    let gone = format!("gone {took} after kube-controller-manager (here: the demo) saw its kubelet silent");
    let mut rows = vec![
        row("cloud", Tone::Plain, format!("machine {machine} deleted")),
        row("event", Tone::Plain, event),
        row(name, Tone::Good, gone),
    ];
    rows.extend(forgotten(stage, name, &machine).await.map_err(|error| pileus.blame(&error))?);
    page::table(&rows);
    steps.end();
    steps.shown("1 deleted machine", format!("its node went {took} after it had become not ready"));
    Ok(())
}

/// Waits until no route and no load balancer leads to a machine whose Node is gone.
async fn forgotten(stage: &Stage, name: &str, machine: &str) -> Result<[Vec<Cell>; 3], Error> {
    let begun = Instant::now();
    let range = range(name);
    let is_gone = |routes: &[Route]| routes.iter().all(|route| route.destination != range);
    stage.cloud.carries("table without its route", is_gone).await?;
    let routed = seconds(begun.elapsed());
    let is_left = |it: &LoadBalancer| !it.machines.iter().any(|target| target == machine);
    let left = stage.cloud.balances("load balancer without it", is_left).await?.machines.len();
    let balanced = seconds(begun.elapsed());
    let told = events::about(&stage.admin, SERVICE, "UpdatedLoadBalancer").await?;
    Ok([
        row("route", Tone::Good, format!("to {range} gone {routed} later")),
        row("targets", Tone::Good, format!("{left} machines without {machine}, all done {balanced} later")),
        row("event", Tone::Plain, told),
    ])
}

/// The cloud denies half of the machines, though only the first of them is gone. The names of their Nodes.
pub(crate) async fn vanish(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<Vec<String>, Error> {
    steps.begin(
        "Half of the machines vanish at once",
        "A cloud that lies, or credentials that see too little, are likelier than that. Pileus holds these \
         nodes until their machines are back, or until somebody who has looked lets them go.",
    );
    let all = nodes::all(&stage.admin).await?.len();
    let vanished: Vec<_> = crowd().into_iter().take(all / 2).collect();
    // First the kubelets, then all machines in one moment: of a few that go before the others nobody would know that they
    // are many, and their nodes would be deleted.
    fall_silent(stage, &vanished).await?;
    let begun = Instant::now();
    stage.cloud.hide(&vanished).await?;
    stage.cloud.delete(&nodes::machine(&stage.admin, GONE).await?).await?;
    let blame = |error| pileus.blame(&error);
    let held = nodes::until(&stage.admin, &vanished, begun, "held", is_held).await.map_err(blame)?;
    let event = events::about(&stage.admin, GONE, "release-deletion").await.map_err(blame)?;
    page::table(&standing(&exactly(all, stage, pileus).await?));
    let text = format!("{} nodes, the last after {}; none is deleted", held.len(), seconds(latest(&held)));
    page::table(&[Vec::new(), row("held", Tone::Good, text), row("event", Tone::Bad, event)]);
    steps.end();
    steps.shown(&format!("{} lost machines", held.len()), "their nodes were held, none was deleted");
    Ok(vanished)
}

/// An operator lets the one Node go whose machine is gone, and the cloud tells the truth about the others.
pub(crate) async fn release(
    steps: &mut Steps,
    stage: &Stage,
    pileus: &Pileus,
    vanished: &[String],
) -> Result<(), Error> {
    steps.begin(
        "One of them really is gone, and the others come back",
        "An operator has looked, and lets that one go; about the others the cloud tells the truth again.",
    );
    let others: Vec<_> = vanished.iter().filter(|name| *name != GONE).cloned().collect();
    let blame = |error| pileus.blame(&error);
    let all = nodes::all(&stage.admin).await?.len();
    let said = stage.release(GONE).await?;
    let begun = Instant::now();
    await_absence(&stage.admin, GONE, SOON).await.map_err(blame)?;
    let went = seconds(begun.elapsed());
    stage.cloud.hide(&[]).await?;
    let begun = Instant::now();
    let is_free = |node: &Node| !is_held(node);
    let free = nodes::until(&stage.admin, &others, begun, "let go", is_free).await.map_err(blame)?;
    let count = free.len();
    let free = format!("let go by themselves {} after the cloud had found them", seconds(latest(&free)));
    set_ready(&stage.admin, others, Ready::True).await?;
    page::table(&[
        vec![Tone::Strong.cell(format!("$ pileus release-deletion {GONE}"))],
        vec![Tone::Plain.cell(said)],
        Vec::new(),
        row(GONE, Tone::Good, format!("gone {went} later")),
        row("the others", Tone::Good, free),
        Vec::new(),
    ]);
    page::table(&standing(&exactly(all - 1, stage, pileus).await?));
    steps.end();
    steps.shown(
        "1 release",
        format!("that node went after {went}; the {count} others stay, and none is held"),
    );
    Ok(())
}

/// All Nodes, which are to be so many.
async fn exactly(count: usize, stage: &Stage, pileus: &Pileus) -> Result<Vec<Node>, Error> {
    let all = nodes::all(&stage.admin).await?;
    if all.len() == count {
        Ok(all)
    } else {
        Err(pileus.failed(&format!("has left {} nodes of {count}", all.len())))
    }
}

fn is_held(node: &Node) -> bool {
    condition(node, MACHINE_ABSENT).is_some()
}

/// Stands in for kube-controller-manager, which notices after some 50 s that a kubelet has fallen silent.
async fn fall_silent(stage: &Stage, names: &[String]) -> Result<(), Error> {
    set_ready(&stage.admin, names.iter().cloned(), Ready::Unknown).await
}

/// Waits for a Node's label: when it was seen, counted from `begun`.
async fn labelled(
    stage: &Stage,
    name: &str,
    (key, value): (&str, &str),
    begun: Instant,
) -> Result<Duration, Error> {
    let is_so = |node: &Node| node.labels().get(key).is_some_and(|it| it == value);
    let wanted = format!("labelled {key}={value}");
    let seen = nodes::until(&stage.admin, &[name.to_owned()], begun, &wanted, is_so).await?;
    Ok(latest(&seen))
}
