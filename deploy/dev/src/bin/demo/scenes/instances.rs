//! Instances change or are deleted in the cloud, and their Nodes follow.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use pileus_dev::Error;
use pileus_dev::nodes::{Ready, await_absence, set_ready};
use tokio::time::Instant;

use super::routes::pod_cidr;
use super::services::SERVICE;
use crate::cloud::{LoadBalancer, Route};
use crate::events;
use crate::nodes::{self, SOON, latest};
use crate::page::{self, Cell, Tone, format_duration, row};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::{Steps, wait_until};

/// Intervals that suit a demo; the defaults are 30 minutes and 10 seconds.
pub(crate) const INTERVALS: [&str; 2] = ["--node-status-update-frequency=10s", "--node-monitor-period=1s"];
/// The minimum age of a Node that Pileus may delete.
pub(crate) const MINIMUM_AGE: Duration = Duration::from_mins(1);

const ZONE: &str = "topology.kubernetes.io/zone";
const TYPE: &str = "node.kubernetes.io/instance-type";

/// Changes a Node in the cluster and another one's instance in the cloud.
pub(crate) async fn follow(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "Nodes follow their instances",
        "A user gives node-1 a wrong zone, and the instance of node-2 is resized. Pileus corrects both nodes.",
    );
    nodes::set_label(&stage.admin, "node-1", ZONE, "nowhere").await?;
    stage.cloud.resize_machine(&nodes::instance_id(&stage.admin, "node-2").await?, "huge-64").await?;
    let begun = Instant::now();
    let (zone, size) = tokio::try_join!(
        await_label(stage, "node-1", (ZONE, "sim-1a"), begun),
        await_label(stage, "node-2", (TYPE, "huge-64"), begun),
    )
    .map_err(|error| pileus.with_log(&error))?;
    let [zone_took, size_took] = [zone, size].map(format_duration);
    page::table(&[
        row("node-1", Tone::Good, format!("{ZONE}: nowhere → sim-1a after {zone_took}")),
        row("node-2", Tone::Good, format!("{TYPE}: large-8 → huge-64 after {size_took}")),
    ]);
    steps.end();
    let text = format!("corrected after {}", format_duration(zone.max(size)));
    steps.add_to_summary("2 wrong labels", text);
    Ok(())
}

/// Deletes an instance once all Nodes are old enough, and shows that its Node, route and load balancer target go.
pub(crate) async fn delete(
    steps: &mut Steps,
    stage: &Stage,
    pileus: &Pileus,
    old_enough: Instant,
) -> Result<(), Error> {
    steps.begin(
        "An instance is deleted",
        "Pileus deletes its node once the kubelet is silent and a direct read confirms that the instance is gone. Nodes \
         younger than a minute are never deleted, because a cloud may not show a new instance at once.",
    );
    wait_until(old_enough, "waiting until all nodes are a minute old").await;
    let name = "node-3";
    let id = nodes::instance_id(&stage.admin, name).await?;
    stage.cloud.delete_machine(&id).await?;
    silence_kubelets(stage, &[name.to_owned()]).await?;
    let begun = Instant::now();
    await_absence(&stage.admin, name, SOON).await.map_err(|error| pileus.with_log(&error))?;
    let took = format_duration(begun.elapsed());
    let event = events::about(&stage.admin, name, "does not exist in the cloud");
    let event = event.await.map_err(|error| pileus.with_log(&error))?;
    let mut rows = vec![
        row("cloud", Tone::Plain, format!("instance {id} deleted")),
        row("event", Tone::Plain, event),
        row(name, Tone::Good, format!("deleted {took} after its kubelet fell silent")),
    ];
    rows.extend(await_cleanup(stage, name, &id).await.map_err(|error| pileus.with_log(&error))?);
    page::table(&rows);
    steps.end();
    steps.add_to_summary(
        "1 deleted instance",
        format!("its node was deleted {took} after it became not ready"),
    );
    Ok(())
}

/// Waits until no route and no load balancer leads to the instance of a deleted Node.
async fn await_cleanup(stage: &Stage, name: &str, id: &str) -> Result<[Vec<Cell>; 3], Error> {
    let begun = Instant::now();
    let cidr = pod_cidr(name);
    let lacks_route = |routes: &[Route]| routes.iter().all(|route| route.destination != cidr);
    stage.cloud.await_routes("route table without this route", lacks_route).await?;
    let routed = format_duration(begun.elapsed());
    let lacks_target = |it: &LoadBalancer| !it.machines.iter().any(|target| target == id);
    let balancer =
        stage.cloud.await_load_balancer("load balancer without this instance", lacks_target).await?;
    let (left, balanced) = (balancer.machines.len(), format_duration(begun.elapsed()));
    let event = events::about(&stage.admin, SERVICE, "UpdatedLoadBalancer").await?;
    Ok([
        row("route", Tone::Good, format!("to {cidr} deleted {routed} later")),
        row("load balancer", Tone::Good, format!("{left} instances, without {id}, {balanced} later")),
        row("event", Tone::Plain, event),
    ])
}

/// Sets `Ready` to `Unknown`, as kube-controller-manager does about 50 s after a kubelet's last message.
pub(super) async fn silence_kubelets(stage: &Stage, names: &[String]) -> Result<(), Error> {
    set_ready(&stage.admin, names.iter().cloned(), Ready::Unknown).await
}

/// Waits until a Node has a label with this value. Returns the time since `begun`.
async fn await_label(
    stage: &Stage,
    name: &str,
    (key, value): (&str, &str),
    begun: Instant,
) -> Result<Duration, Error> {
    let is_labeled = |node: &Node| node.labels().get(key).is_some_and(|it| it == value);
    let wanted = format!("labeled {key}={value}");
    let seen = nodes::await_nodes(&stage.admin, &[name.to_owned()], begun, &wanted, is_labeled).await?;
    Ok(latest(&seen))
}
