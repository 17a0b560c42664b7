//! The cloud reports half of the instances as absent. Pileus holds their Nodes until the instances are back or an operator
//! releases the Nodes.

use k8s_openapi::api::core::v1::Node;
use pileus_dev::Error;
use pileus_dev::nodes::{Ready, await_absence, set_ready};
use tokio::time::Instant;

use super::hand_over::crowd;
use super::instances::silence_kubelets;
use crate::events;
use crate::node_table::{MACHINE_ABSENT, by_status};
use crate::nodes::{self, SOON, condition, latest};
use crate::page::{self, Tone, format_duration, row};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::Steps;

/// The only Node of these whose instance is deleted. The cloud only hides the others.
const DELETED: &str = "worker-1";

/// Makes the cloud hide half of the instances, of which one is deleted. Returns the names of their Nodes.
pub(crate) async fn vanish(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<Vec<String>, Error> {
    steps.begin(
        "Half of the instances vanish at once",
        "This is more likely an error of the cloud than the truth, so Pileus deletes no node and waits for an operator.",
    );
    let all = nodes::list(&stage.admin).await?.len();
    let vanished: Vec<_> = crowd().into_iter().take(all / 2).collect();
    // The kubelets first, then all instances in one request: a few instances that vanish earlier than the others would be
    // too few to be suspicious, and Pileus would delete their Nodes.
    silence_kubelets(stage, &vanished).await?;
    let begun = Instant::now();
    stage.cloud.hide_machines(&vanished).await?;
    stage.cloud.delete_machine(&nodes::instance_id(&stage.admin, DELETED).await?).await?;
    let with_log = |error| pileus.with_log(&error);
    let held = nodes::await_nodes(&stage.admin, &vanished, begun, "held", is_held).await.map_err(with_log)?;
    let event = events::about(&stage.admin, DELETED, "release-deletion").await.map_err(with_log)?;
    page::table(&by_status(&exactly(all, stage, pileus).await?));
    let (count, last) = (held.len(), format_duration(latest(&held)));
    page::table(&[
        Vec::new(),
        row("held ✓", Tone::Good, format!("{count} nodes, the last after {last}; none is deleted")),
        row("event", Tone::Plain, event),
    ]);
    steps.end();
    steps.add_to_summary(&format!("{count} missing instances"), "their nodes were held, none was deleted");
    Ok(vanished)
}

/// Releases the one Node whose instance is deleted, as an operator would, and makes the cloud show the others again.
pub(crate) async fn release(
    steps: &mut Steps,
    stage: &Stage,
    pileus: &Pileus,
    vanished: &[String],
) -> Result<(), Error> {
    steps.begin(
        "An operator releases one node, and the other instances come back",
        "Only a release by an operator, or the return of the instance, ends the hold of a node.",
    );
    let others: Vec<_> = vanished.iter().filter(|name| *name != DELETED).cloned().collect();
    let with_log = |error| pileus.with_log(&error);
    let all = nodes::list(&stage.admin).await?.len();
    let output = stage.release(DELETED).await?;
    let begun = Instant::now();
    await_absence(&stage.admin, DELETED, SOON).await.map_err(with_log)?;
    let deleted = format_duration(begun.elapsed());
    stage.cloud.hide_machines(&[]).await?;
    let begun = Instant::now();
    let is_not_held = |node: &Node| !is_held(node);
    let free = nodes::await_nodes(&stage.admin, &others, begun, "no longer held", is_not_held).await;
    let free = free.map_err(with_log)?;
    let (count, last) = (free.len(), format_duration(latest(&free)));
    set_ready(&stage.admin, others, Ready::True).await?;
    page::table(&[
        vec![Tone::Strong.cell(format!("$ pileus release-deletion {DELETED}"))],
        vec![Tone::Plain.cell(output)],
        Vec::new(),
        row(DELETED, Tone::Good, format!("deleted after {deleted}")),
        row("the others", Tone::Good, format!("no longer held {last} after the cloud shows them again")),
        Vec::new(),
    ]);
    page::table(&by_status(&exactly(all - 1, stage, pileus).await?));
    steps.end();
    let text = format!("its node was deleted after {deleted}; the {count} others stay, and none is held");
    steps.add_to_summary("1 released node", text);
    Ok(())
}

/// Lists all Nodes, and fails if their number is not `count`.
async fn exactly(count: usize, stage: &Stage, pileus: &Pileus) -> Result<Vec<Node>, Error> {
    let all = nodes::list(&stage.admin).await?;
    if all.len() == count {
        Ok(all)
    } else {
        Err(pileus.failed(&format!("has left {} nodes instead of {count}", all.len())))
    }
}

fn is_held(node: &Node) -> bool {
    condition(node, MACHINE_ABSENT).is_some()
}
