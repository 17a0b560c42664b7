//! The scenes of the demo: each does something, and shows what came of it. Here are those before Pileus runs, and what
//! all share.

pub(crate) mod joining;
pub(crate) mod machines;
pub(crate) mod routes;
pub(crate) mod services;
pub(crate) mod throttled;
pub(crate) mod trouble;

use pileus_dev::Error;

use crate::document::Document;
use crate::page::{self, Tone, row, seconds};
use crate::stage::Stage;
use crate::steps::Steps;

/// The machines of the cloud: name, size and rack.
const MACHINES: [(&str, &str, &str); 5] = [
    ("node-1", "small-2", "r-07"),
    ("node-2", "large-8", "r-07"),
    ("node-3", "small-2", "r-12"),
    ("node-4", "large-8", "r-12"),
    ("node-5", "large-8", "r-31"),
];
/// Rights that Pileus has, and some that it needs for nothing.
const RIGHTS: [(&str, &str); 4] =
    [("patch", "nodes"), ("delete", "nodes"), ("create", "nodes"), ("get", "secrets")];
/// The lines of `pileus inspect` that say most in the least space.
const TELLING: [&str; 5] = ["digest", "size", "contract", "provider IDs", "configuration"];
/// And a line for each of its capabilities.
const CAN: &str = "can";

/// The provider that is meant to run.
pub(crate) fn good<'a>(endpoint: &'a str, port: &'a str) -> Document<'a> {
    Document {
        name: "simulated",
        package: "simulated-provider",
        configuration: endpoint,
        granted: Some(port),
    }
}

/// The first Nodes, which join while all is well.
pub(crate) fn first() -> Vec<String> {
    MACHINES.iter().take(3).map(|(name, ..)| (*name).to_owned()).collect()
}

/// The Nodes that join while all is not.
pub(crate) fn waiting() -> Vec<String> {
    MACHINES.iter().skip(3).map(|(name, ..)| (*name).to_owned()).collect()
}

/// Those Nodes whose machines have names of their own, which are all but the crowd.
pub(crate) fn named() -> Vec<String> {
    [first(), waiting()].concat()
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
    for (verb, resource) in RIGHTS {
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
    for name in TELLING {
        rows.extend(beside(&report, name).take(1).map(|text| row(name, Tone::Plain, text)));
    }
    let names = std::iter::once(CAN).chain(std::iter::repeat(""));
    rows.extend(beside(&report, CAN).zip(names).map(|(text, name)| row(name, Tone::Plain, text)));
    let imports = beside(&report, "imports").count();
    let text = format!("{imports} interfaces; a file, a socket or a variable is behind none of them");
    rows.push(row("imports", Tone::Plain, text));
    rows.extend(wishes(&report).map(|wish| row("wishes", Tone::Good, wish)));
    page::table(&rows);
    steps.end();
    Ok(())
}

/// Reads of the cloud, as people say it.
pub(crate) fn counted(reads: u64) -> String {
    if reads == 1 { "1 read of the cloud".to_owned() } else { format!("{reads} reads of the cloud") }
}

/// Writes to the cloud, as people say it.
pub(crate) fn written(writes: u64) -> String {
    if writes == 1 { "1 write to the cloud".to_owned() } else { format!("{writes} writes to the cloud") }
}

/// The lines beside a name in what `pileus inspect` shows.
fn beside<'a>(report: &'a [(String, String)], name: &'a str) -> impl Iterator<Item = &'a String> {
    let from = report.iter().skip_while(move |(it, _)| it != name);
    from.take_while(move |(it, _)| it == name || it.is_empty()).map(|(_, text)| text)
}

/// What a provider wishes to reach, as `pileus inspect` shows it.
fn wishes(report: &[(String, String)]) -> impl Iterator<Item = &String> {
    report.iter().filter(|(name, _)| name == "wishes").map(|(_, wish)| wish)
}
