//! Nodes join: first while all is well, then after a time without a provider that works, and at last many in a row.

use std::time::Duration;

use pileus_dev::Error;
use pileus_dev::nodes::register;
use tokio::time::{Instant, sleep};

use super::misbehaving::unchanged;
use super::{first, reads, swaps, waiting};
use crate::document::Document;
use crate::node_table::before_and_after;
use crate::nodes::{self, kubelet, latest};
use crate::page::{self, Tone, format_duration, row};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::Steps;

/// How many Nodes join last, and how many of them at the same time.
const LATE: usize = 20;
const TOGETHER: usize = 8;
/// The time between two of the others: long enough that Pileus looks up each by itself.
const PACE: Duration = Duration::from_millis(150);
/// The prefix of their names.
const LATE_PREFIX: &str = "late-";

/// Two processes with the same provider.
pub(crate) struct Replicas {
    pub(super) leader: Pileus,
    pub(super) standby: Pileus,
}

/// Starts two replicas and lets three Nodes join.
pub(crate) async fn join(
    steps: &mut Steps,
    stage: &Stage,
    document: Document<'_>,
) -> Result<Replicas, Error> {
    steps.begin(
        "Two replicas start, and three nodes join",
        "Pods can't run on a new node before Pileus has found its instance in the cloud. (The demo plays the kubelets \
         and kube-controller-manager.)",
    );
    let mut leader = stage.replica("replica-1", document, &[]).await?;
    let leads = leader.election_status("this replica leads").await?;
    let mut standby = stage.replica("replica-2", document, &[]).await?;
    let stands_by = standby.election_status("this replica stands by").await?;
    let before = stage.cloud.read_count().await?;
    let joined = nodes::join(&stage.admin, &first()).await.map_err(|error| leader.with_log(&error))?;
    let cost = reads(stage.cloud.read_count().await? - before);
    let count = joined.len();
    let mut rows = before_and_after(&joined);
    rows.push(row("cost", Tone::Good, format!("{cost} for {count} nodes")));
    let ready = |pileus: &Pileus| format!("ready after {}", format_duration(pileus.ready_after));
    rows.push(row("replica 1", Tone::Plain, format!("{}; /readyz: {leads}", ready(&leader))));
    rows.push(row("replica 2", Tone::Plain, format!("{}; /readyz: {stands_by}", ready(&standby))));
    page::table(&rows);
    steps.end();
    let took = format_duration(joined.iter().map(|it| it.took).max().unwrap_or_default());
    steps.add_to_summary(&format!("{count} nodes"), format!("initialized after {took}, with {cost}"));
    Ok(Replicas { leader, standby })
}

/// Registers Nodes while no provider works, so that they wait.
pub(crate) async fn leave_waiting(stage: &Stage, names: &[String]) -> Result<(), Error> {
    register(&stage.admin, names.iter().map(|name| kubelet(name))).await?;
    nodes::remove_not_ready_taint(&stage.admin, names).await.map(drop)
}

/// Starts the provider that works, for the Nodes that wait. From now on it is a resource of the cluster, whose component comes
/// from a registry.
pub(crate) async fn recover(
    steps: &mut Steps,
    stage: &Stage,
    document: Document<'_>,
    flags: &[&str],
) -> Result<Pileus, Error> {
    steps.begin(
        "The good provider is back, from a registry",
        "Two nodes have waited for it. They are initialized without any repair by hand. (The demo signs nothing, so the \
         CloudProvider says `insecure: true`. Otherwise Pileus demands signatures.)",
    );
    let applied = swaps::apply(stage, document).await?;
    let names = waiting();
    let versions = nodes::resource_versions(&stage.admin, &first()).await?;
    let begun = Instant::now();
    let pileus = stage.pileus_of_resources(document.name, flags).await?;
    let done = nodes::await_initialized(&stage.admin, &names, begun);
    let done = done.await.map_err(|error| pileus.with_log(&error))?;
    let (count, took) = (done.len(), format_duration(latest(&done)));
    let ready = format_duration(pileus.ready_after);
    page::table(&applied);
    page::table(&[
        Vec::new(),
        row("pileus", Tone::Plain, format!("ready after {ready}, with {}", flags.join(" "))),
        row("nodes", Tone::Good, format!("{} initialized after {took}", names.join(", "))),
        unchanged(stage, &versions).await?,
    ]);
    steps.end();
    let text = format!("initialized {took} after the start of the good provider");
    steps.add_to_summary(&format!("{count} nodes"), text);
    Ok(pileus)
}

/// Lets some Nodes join together and others one by one, and shows how few requests reach the cloud.
pub(crate) async fn trickle(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "Eight more nodes join together, and then twelve one by one",
        "One list answers for the eight, and most of the twelve are found in the host's cached copy of it.",
    );
    stage.cloud.create_machines(LATE, LATE_PREFIX).await?;
    let names: Vec<_> = (1..=LATE).map(|number| format!("{LATE_PREFIX}{number}")).collect();
    let (made, arrived) = (pileus.provider_requests().await?, stage.cloud.read_count().await?);
    let begun = Instant::now();
    let joining = async {
        let (together, one_by_one) = names.split_at(TOGETHER);
        register(&stage.admin, together.iter().map(|name| kubelet(name))).await?;
        for name in one_by_one {
            sleep(PACE).await;
            register(&stage.admin, [kubelet(name)]).await?;
        }
        Ok(())
    };
    let initialized = nodes::await_initialized(&stage.admin, &names, begun);
    let (done, ()) = tokio::try_join!(initialized, joining).map_err(|error| pileus.with_log(&error))?;
    nodes::remove_not_ready_taint(&stage.admin, &names).await?;
    let made = pileus.provider_requests().await? - made;
    let arrived = stage.cloud.read_count().await? - arrived;
    let (count, last) = (done.len(), format_duration(latest(&done)));
    page::table(&[
        row("nodes", Tone::Good, format!("all {count} initialized, the last after {last}")),
        row("provider", Tone::Plain, format!("made {made} requests, including those for all other nodes")),
        row("cloud", Tone::Good, format!("received {arrived} of them")),
    ]);
    steps.end();
    let text = format!("the provider made {made} requests, {arrived} reached the cloud");
    steps.add_to_summary(&format!("{count} late nodes"), text);
    Ok(())
}
