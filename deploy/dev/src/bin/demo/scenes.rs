//! The steps of the demo: each does something, and shows what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use pileus_dev::Error;
use pileus_dev::nodes::{node, register};
use tokio::time::Instant;

use crate::document::Document;
use crate::nodes;
use crate::page::{self, Cell, Steps, Tone, row, seconds};
use crate::pileus::{Pileus, Probes};
use crate::stage::Stage;
use crate::table::before_and_after;

/// The machines of the cloud: name, size and rack.
const MACHINES: [(&str, &str, &str); 5] = [
    ("node-1", "small-2", "r-07"),
    ("node-2", "large-8", "r-07"),
    ("node-3", "small-2", "r-12"),
    ("node-4", "large-8", "r-12"),
    ("node-5", "large-8", "r-31"),
];
/// The lines of `pileus inspect` that say most in the least space.
const TELLING: [&str; 6] = ["digest", "size", "contract", "can", "provider IDs", "configuration"];
/// As many as an autoscaler adds on a bad day, and few enough to be seen in a second.
const CROWD: usize = 100;

/// How long something took, and how many reads of the cloud it cost.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) nodes: usize,
    pub(crate) took: Duration,
    pub(crate) reads: u64,
}

/// The provider that is meant to run.
pub(crate) fn good<'a>(endpoint: &'a str, port: &'a str) -> Document<'a> {
    Document {
        name: "simulated",
        package: "simulated-provider",
        configuration: endpoint,
        granted: Some(port),
    }
}

/// A provider that means harm, and what its call is counted as.
pub(crate) struct Villain {
    pub(crate) headline: &'static str,
    pub(crate) why: &'static str,
    pub(crate) name: &'static str,
    pub(crate) behaviour: &'static str,
    pub(crate) result: &'static str,
}

/// The first Nodes, which join while all is well.
pub(crate) fn first() -> Vec<String> {
    MACHINES.iter().take(3).map(|(name, ..)| (*name).to_owned()).collect()
}

/// The Nodes that join while all is not.
pub(crate) fn waiting() -> Vec<String> {
    MACHINES.iter().skip(3).map(|(name, ..)| (*name).to_owned()).collect()
}

/// Starts what is needed.
pub(crate) async fn set_up(steps: &mut Steps) -> Result<Stage, Error> {
    steps.begin(
        "A cluster and a cloud",
        "Nothing below is mocked: a real API server with RBAC and a cloud behind HTTP, each a process.",
    );
    let stage = Stage::set_up().await?;
    for (name, size, rack) in MACHINES {
        stage.cloud.create(name, size, rack).await?;
    }
    let mut rights = Vec::new();
    for (verb, resource) in [("patch", "nodes"), ("delete", "nodes"), ("get", "secrets")] {
        let may = if stage.pileus_may(verb, resource).await? { "yes" } else { "no" };
        rights.push(format!("{verb} {resource}: {may}"));
    }
    page::table(&[
        row("API server", Tone::Plain, format!("with etcd, ready in {}", seconds(stage.kubernetes_took))),
        row("cloud", Tone::Plain, format!("{}, {} machines", stage.cloud.web.url("/"), MACHINES.len())),
        row("role", Tone::Plain, format!("deploy/rbac.yaml; may pileus … {}", rights.join(", "))),
    ]);
    steps.end();
    Ok(stage)
}

/// Shows what is about to be run.
pub(crate) async fn inspect(steps: &mut Steps, stage: &Stage, document: Document<'_>) -> Result<(), Error> {
    steps.begin(
        "What is this provider?",
        "Somebody else wrote it. `pileus inspect` says what it is and wishes before it runs anywhere.",
    );
    let report = stage.inspect(document).await?;
    let mut rows = Vec::new();
    for (name, value) in report.iter().filter(|(name, _)| TELLING.contains(&name.as_str())) {
        rows.push(row(name, Tone::Plain, value));
    }
    let imports = report.iter().skip_while(|(name, _)| name != "imports");
    let imports = imports.take_while(|(name, _)| name == "imports" || name.is_empty());
    let text =
        format!("{} interfaces; a file, a socket or a variable is behind none of them", imports.count());
    rows.push(row("imports", Tone::Plain, text));
    rows.extend(wishes(&report).map(|wish| row("wishes", Tone::Good, wish)));
    page::table(&rows);
    steps.end();
    Ok(())
}

/// Starts Pileus and lets three Nodes join.
pub(crate) async fn join(
    steps: &mut Steps,
    stage: &Stage,
    document: Document<'_>,
) -> Result<(Pileus, Cost), Error> {
    steps.begin(
        "Three nodes join",
        "A new node takes no pods until somebody says which machine it is. That is what Pileus is for. \
         (The demo stands in for the kubelets, and for kube-controller-manager, which lifts not-ready.)",
    );
    let pileus = stage.pileus(document).await?;
    let before = stage.cloud.reads().await?;
    let joined = nodes::join(&stage.admin, &first()).await.map_err(|error| pileus.blame(&error))?;
    let reads = stage.cloud.reads().await? - before;
    let mut rows = before_and_after(&joined);
    rows.push(row("cost", Tone::Good, format!("{} for {} nodes", counted(reads), joined.len())));
    let ready = format!("ready {} after its start, under the role above", seconds(pileus.ready_after));
    rows.push(row("pileus", Tone::Plain, ready));
    page::table(&rows);
    steps.end();
    let took = joined.iter().map(|it| it.took).max().unwrap_or_default();
    Ok((pileus, Cost { nodes: joined.len(), took, reads }))
}

/// Nodes register, and nobody is there to initialise them.
pub(crate) async fn leave_waiting(stage: &Stage, names: &[String]) -> Result<(), Error> {
    register(&stage.admin, names.iter().map(|name| node(name))).await?;
    nodes::lift_not_ready(&stage.admin, names).await.map(drop)
}

/// Runs a provider that means harm, with nothing granted.
pub(crate) async fn suffer(steps: &mut Steps, stage: &Stage, villain: &Villain) -> Result<Probes, Error> {
    let Villain { headline, why, name, behaviour, result } = villain;
    steps.begin(headline, why);
    let before = nodes::versions(&stage.admin, &first()).await?;
    let configuration = format!("behaviour: {behaviour}");
    let package = "hostile-provider";
    let document = Document { name, package, configuration: &configuration, granted: None };
    let mut pileus = stage.pileus(document).await?;
    let result = format!(r#"result="{result}""#);
    let labels = [r#"function="lookup""#, &result];
    let (metric, probes) = pileus.await_metric("pileus_provider_calls_total", &labels).await?;
    let warning = nodes::warning(&stage.admin, "node-4", name).await.map_err(|error| pileus.blame(&error))?;
    pileus.stop().await?;
    page::table(&[
        row("on node-4", Tone::Bad, warning),
        row("metric", Tone::Plain, metric.to_string()),
        row("probes", Tone::Good, alive(&probes)),
        untouched(stage, &before).await?,
    ]);
    steps.end();
    Ok(probes)
}

/// Runs the provider that is meant to run, but grants it nothing. How many requests the cloud saw.
pub(crate) async fn deny(steps: &mut Steps, stage: &Stage, endpoint: &str) -> Result<u64, Error> {
    steps.begin(
        "A provider without a grant",
        "It reaches what the operator has granted, nothing else: it has no socket, only the host's gate.",
    );
    let before = stage.cloud.reads().await?;
    let document = Document { name: "ungranted", granted: None, ..good(endpoint, "") };
    let report = stage.inspect(document).await?;
    let mut pileus = stage.pileus(document).await?;
    let (metric, _) = pileus.await_metric("pileus_gate_requests_total", &[r#"result="denied""#]).await?;
    let warning = nodes::warning(&stage.admin, "node-4", "gate");
    let warning = warning.await.map_err(|error| pileus.blame(&error))?;
    let requests = stage.cloud.reads().await? - before;
    if requests > 0 {
        return Err(pileus.failed("let requests through that nobody has granted"));
    }
    pileus.stop().await?;
    let mut rows: Vec<_> = wishes(&report).map(|wish| row("inspect", Tone::Bad, wish)).collect();
    rows.extend([
        row("on node-4", Tone::Bad, warning),
        row("metric", Tone::Plain, metric.to_string()),
        row("cloud", Tone::Good, format!("{requests} requests arrived")),
    ]);
    page::table(&rows);
    steps.end();
    Ok(requests)
}

/// Brings the good provider back, and meanwhile many more Nodes have registered.
pub(crate) async fn recover(
    steps: &mut Steps,
    stage: &Stage,
    document: Document<'_>,
) -> Result<(Pileus, Cost), Error> {
    steps.begin(
        "The good provider is back, and a hundred nodes more are waiting",
        "Nothing has to be repaired, and all nodes that are due are asked about in one call.",
    );
    let names = [waiting(), crowd(stage).await?].concat();
    let versions = nodes::versions(&stage.admin, &first()).await?;
    let before = stage.cloud.reads().await?;
    let begun = Instant::now();
    let pileus = stage.pileus(document).await?;
    let done = nodes::initialised(&stage.admin, &names, begun);
    let done = done.await.map_err(|error| pileus.blame(&error))?;
    let reads = stage.cloud.reads().await? - before;
    let [first, took] = [done.values().min(), done.values().max()].map(|it| it.copied().unwrap_or_default());
    let [ready, first, all] = [pileus.ready_after, first, took].map(seconds);
    let waited = format!("{} and {CROWD} more that registered meanwhile", waiting().join(", "));
    let text = format!("after {ready} pileus was ready, after {first} the first node, after {all} all");
    page::table(&[
        row("waiting", Tone::Plain, waited),
        row("initialised", Tone::Good, text),
        row("cost", Tone::Good, format!("{} for {} nodes", counted(reads), names.len())),
        untouched(stage, &versions).await?,
    ]);
    steps.end();
    Ok((pileus, Cost { nodes: names.len(), took, reads }))
}

/// Many machines and their Nodes, which wait.
async fn crowd(stage: &Stage) -> Result<Vec<String>, Error> {
    stage.cloud.create_many(CROWD, "worker-").await?;
    let names: Vec<_> = (1..=CROWD).map(|number| format!("worker-{number}")).collect();
    leave_waiting(stage, &names).await?;
    Ok(names)
}

/// Reads of the cloud, as people say it.
pub(crate) fn counted(reads: u64) -> String {
    if reads == 1 { "1 read of the cloud".to_owned() } else { format!("{reads} reads of the cloud") }
}

fn alive(Probes { count, slowest }: &Probes) -> String {
    format!("/livez and /readyz said yes {count} of {count} times, within {}", seconds(*slowest))
}

/// Whether nothing was written to Nodes since these versions were read.
async fn untouched(stage: &Stage, before: &BTreeMap<String, String>) -> Result<Vec<Cell>, Error> {
    let names: Vec<_> = before.keys().cloned().collect();
    if nodes::versions(&stage.admin, &names).await? == *before {
        let versions = before.values().cloned().collect::<Vec<_>>().join(", ");
        let text = format!("{} as they were: resource versions {versions}", names.join(", "));
        return Ok(row("first nodes", Tone::Good, text));
    }
    Err(Error::Deadline {
        object: format!("nodes {}, which nobody should have written to", names.join(", ")),
        deadline: Duration::ZERO,
        seen: "other resource versions than before".to_owned(),
    })
}

/// What a provider wishes to reach, as `pileus inspect` shows it.
fn wishes(report: &[(String, String)]) -> impl Iterator<Item = &String> {
    report.iter().filter(|(name, _)| name == "wishes").map(|(_, wish)| wish)
}
