//! The leader is stopped while many Nodes join.

use std::time::Duration;

use pileus_dev::Error;
use pileus_dev::nodes::{await_node, register};
use tokio::time::Instant;

use super::joining::Replicas;
use super::reads;
use crate::nodes::{self, SOON, kubelet, latest};
use crate::page::{self, Tone, format_duration, row};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::Steps;

/// As many as an autoscaler adds on a busy day, and few enough to be initialized within a second or two.
const CROWD: usize = 100;
/// The prefix of their names.
const WORKER: &str = "worker-";
/// The leader is stopped when this Node is initialized: some are done by then, and most are not.
const MIDDLE: &str = "worker-20";

/// Stops the leader while a hundred Nodes join. The standby goes on alone, and is returned.
pub(crate) async fn hand_over(steps: &mut Steps, stage: &Stage, replicas: Replicas) -> Result<Pileus, Error> {
    steps.begin(
        "The leader is stopped while a hundred nodes join",
        "A leader that stops releases its lease, so that the standby takes over at once.",
    );
    let Replicas { leader, mut standby } = replicas;
    stage.cloud.create_machines(CROWD, WORKER).await?;
    let names = crowd();
    let before = stage.cloud.read_count().await?;
    let begun = Instant::now();
    let change = stop_leader(stage, leader, &standby);
    let joining = register(&stage.admin, names.iter().map(|name| kubelet(name)));
    let initialized = nodes::await_initialized(&stage.admin, &names, begun);
    let (change, _, done) = tokio::try_join!(change, joining, initialized)?;
    nodes::remove_not_ready_taint(&stage.admin, &names).await?;
    let status = standby.election_status("this replica leads").await?;
    let cost = reads(stage.cloud.read_count().await? - before);
    let [ended, led] = change.map(format_duration);
    let (count, last) = (done.len(), format_duration(latest(&done)));
    let stopped = format!("SIGTERM when {MIDDLE} was initialized; ended after {ended}");
    page::table(&[
        row("replica 1", Tone::Plain, stopped),
        row("replica 2", Tone::Good, format!("leads {led} after the SIGTERM; /readyz: {status}")),
        row("nodes", Tone::Good, format!("all {count} initialized, the last after {last}")),
        row("cost", Tone::Good, format!("{cost} for {count} nodes")),
    ]);
    steps.end();
    let text = format!("the second led {led} after the first was stopped; all {count} nodes initialized");
    steps.add_to_summary("2 replicas", text);
    Ok(standby)
}

/// Stops the leader in the middle of its work. Returns the time until it has ended, and until the standby leads.
async fn stop_leader(stage: &Stage, leader: Pileus, standby: &Pileus) -> Result<[Duration; 2], Error> {
    await_node(&stage.admin, MIDDLE, nodes::is_initialized, SOON).await?;
    let sent = Instant::now();
    let stopping = async { leader.stop().await.map(|()| sent.elapsed()) };
    let leading = async { standby.await_leadership().await.map(|()| sent.elapsed()) };
    let (ended, led) = tokio::try_join!(stopping, leading)?;
    Ok([ended, led])
}

/// The names of these Nodes.
pub(crate) fn crowd() -> Vec<String> {
    (1..=CROWD).map(|number| format!("{WORKER}{number}")).collect()
}
