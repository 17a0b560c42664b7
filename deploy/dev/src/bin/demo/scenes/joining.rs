//! Nodes join, while all is well, while one replica hands over to another, and after trouble.

use std::time::Duration;

use pileus_dev::Error;
use pileus_dev::nodes::{await_node, register};
use tokio::time::{Instant, sleep};

use super::trouble::untouched;
use super::{counted, first, waiting};
use crate::document::Document;
use crate::nodes::{self, SOON, kubelet, latest};
use crate::page::{self, Tone, row, seconds};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::Steps;
use crate::table::before_and_after;

/// As many as an autoscaler adds on a bad day, and few enough to be seen in a second.
pub(crate) const CROWD: usize = 100;
/// Those that join last: so many together, and the others one by one, so far apart that no two are looked up together.
const TRICKLE: usize = 20;
const TOGETHER: usize = 8;
const PACE: Duration = Duration::from_millis(150);
/// What the names of their machines begin with.
const LATE: &str = "late-";
/// What the names of the machines of a crowd begin with.
pub(crate) const WORKER: &str = "worker-";

/// When this one is initialised, the leader is stopped: some are done by then, and most are not.
const MIDDLE: &str = "worker-20";

/// Two processes with the same provider, of which one works.
pub(crate) struct Replicas {
    leader: Pileus,
    standby: Pileus,
}

/// Starts two replicas and lets three Nodes join.
pub(crate) async fn join(
    steps: &mut Steps,
    stage: &Stage,
    document: Document<'_>,
) -> Result<Replicas, Error> {
    steps.begin(
        "Two replicas start, and three nodes join",
        "A new node takes no pods until somebody says which machine it is. That is what Pileus is for. \
         (The demo stands in for the kubelets, and for kube-controller-manager, which lifts not-ready.)",
    );
    let mut leader = stage.replica("replica-1", document, &[]).await?;
    let leads = leader.standing("this replica leads").await?;
    let mut standby = stage.replica("replica-2", document, &[]).await?;
    let stands_by = standby.standing("this replica stands by").await?;
    let before = stage.cloud.reads().await?;
    let joined = nodes::join(&stage.admin, &first()).await.map_err(|error| leader.blame(&error))?;
    let reads = stage.cloud.reads().await? - before;
    let mut rows = before_and_after(&joined);
    rows.push(row("cost", Tone::Good, format!("{} for {} nodes", counted(reads), joined.len())));
    let ready = |pileus: &Pileus| format!("ready {} after its start", seconds(pileus.ready_after));
    rows.push(row("replica 1", Tone::Plain, format!("{}; /readyz: {leads}", ready(&leader))));
    rows.push(row("replica 2", Tone::Plain, format!("{}; /readyz: {stands_by}", ready(&standby))));
    page::table(&rows);
    steps.end();
    let took = joined.iter().map(|it| it.took).max().unwrap_or_default();
    let text = format!("initialised within {} by {}", seconds(took), counted(reads));
    steps.shown(&format!("{} nodes", joined.len()), text);
    Ok(Replicas { leader, standby })
}

/// Stops the replica that leads while many Nodes join. The other one goes on alone.
pub(crate) async fn hand_over(steps: &mut Steps, stage: &Stage, replicas: Replicas) -> Result<Pileus, Error> {
    steps.begin(
        "The leader is stopped while a hundred nodes join",
        "As in every update. It ends what it has begun and releases its lease; the other replica, which has \
         watched all nodes meanwhile, goes on. Nodes that join together are looked up together.",
    );
    let Replicas { leader, mut standby } = replicas;
    stage.cloud.create_many(CROWD, WORKER).await?;
    let names = crowd();
    let before = stage.cloud.reads().await?;
    let begun = Instant::now();
    let change = change_of_leader(stage, leader, &standby);
    let joining = register(&stage.admin, names.iter().map(|name| kubelet(name)));
    let initialised = nodes::initialised(&stage.admin, &names, begun);
    let (change, _, done) = tokio::try_join!(change, joining, initialised)?;
    nodes::lift_not_ready(&stage.admin, &names).await?;
    let leads = standby.standing("this replica leads").await?;
    let reads = stage.cloud.reads().await? - before;
    let [ended, led] = change.map(seconds);
    let (count, last) = (done.len(), seconds(latest(&done)));
    let first = format!("SIGTERM in the middle of it, as {MIDDLE} was initialised; ended {ended} later");
    page::table(&[
        row("replica 1", Tone::Plain, first),
        row("replica 2", Tone::Good, format!("leads {led} after the SIGTERM; /readyz: {leads}")),
        row("nodes", Tone::Good, format!("all {count} initialised, none left out; the last after {last}")),
        row("cost", Tone::Good, format!("{} for {count} nodes", counted(reads))),
    ]);
    steps.end();
    let text = format!("one stopped, the other led {led} later; none of {count} nodes was left out");
    steps.shown("2 replicas", text);
    Ok(standby)
}

/// Stops the replica that leads, in the middle of its work: how long it took to end, and the other one to lead.
async fn change_of_leader(stage: &Stage, leader: Pileus, standby: &Pileus) -> Result<[Duration; 2], Error> {
    await_node(&stage.admin, MIDDLE, nodes::is_initialised, SOON).await?;
    let asked = Instant::now();
    let stopping = async { leader.stop().await.map(|()| asked.elapsed()) };
    let leading = async { standby.leads().await.map(|()| asked.elapsed()) };
    let (ended, led) = tokio::try_join!(stopping, leading)?;
    Ok([ended, led])
}

/// Nodes register, and are not initialised before a Pileus is there that can.
pub(crate) async fn leave_waiting(stage: &Stage, names: &[String]) -> Result<(), Error> {
    register(&stage.admin, names.iter().map(|name| kubelet(name))).await?;
    nodes::lift_not_ready(&stage.admin, names).await.map(drop)
}

/// Brings the good provider back, for the Nodes that have waited meanwhile.
pub(crate) async fn recover(
    steps: &mut Steps,
    stage: &Stage,
    document: Document<'_>,
    flags: &[&str],
) -> Result<Pileus, Error> {
    steps.begin(
        "The good provider is back",
        "Two nodes have waited through all of this. Nothing has to be repaired.",
    );
    let names = waiting();
    let versions = nodes::versions(&stage.admin, &first()).await?;
    let begun = Instant::now();
    let pileus = stage.pileus(document, flags).await?;
    let done = nodes::initialised(&stage.admin, &names, begun);
    let done = done.await.map_err(|error| pileus.blame(&error))?;
    let took = seconds(latest(&done));
    page::table(&[
        row(
            "pileus",
            Tone::Plain,
            format!("ready {} after its start, with {}", seconds(pileus.ready_after), flags.join(" ")),
        ),
        row("nodes", Tone::Good, format!("{} initialised {took} after its start", names.join(", "))),
        untouched(stage, &versions).await?,
    ]);
    steps.end();
    steps.shown(
        &format!("{} nodes", done.len()),
        format!("initialised {took} after the good provider's return"),
    );
    Ok(pileus)
}

/// Some Nodes join together and some one by one: what the provider asks for, and what of that the cloud sees.
pub(crate) async fn trickle(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "Eight more nodes join, and then twelve one by one",
        "The eight are looked up together, in a list. Each of the others is looked up by itself as it comes, and found \
         in the list that the host still has. Found may be old; whoever is absent there is asked for anew.",
    );
    stage.cloud.create_many(TRICKLE, LATE).await?;
    let names: Vec<_> = (1..=TRICKLE).map(|number| format!("{LATE}{number}")).collect();
    let (asked, seen) = (pileus.requests().await?, stage.cloud.reads().await?);
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
    let initialised = nodes::initialised(&stage.admin, &names, begun);
    let (done, ()) = tokio::try_join!(initialised, joining).map_err(|error| pileus.blame(&error))?;
    nodes::lift_not_ready(&stage.admin, &names).await?;
    let (asked, seen) = (pileus.requests().await? - asked, stage.cloud.reads().await? - seen);
    let count = done.len();
    page::table(&[
        row(
            "nodes",
            Tone::Good,
            format!("all {count} initialised; the last after {}", seconds(latest(&done))),
        ),
        row("provider", Tone::Plain, format!("made {asked} requests, those for all other nodes among them")),
        row("cloud", Tone::Good, format!("saw {seen} of them")),
    ]);
    steps.end();
    let text = format!("the provider made {asked} requests, the cloud saw {seen}");
    steps.shown(&format!("{count} late nodes"), text);
    Ok(())
}

/// The names of the crowd's Nodes.
pub(crate) fn crowd() -> Vec<String> {
    (1..=CROWD).map(|number| format!("{WORKER}{number}")).collect()
}
