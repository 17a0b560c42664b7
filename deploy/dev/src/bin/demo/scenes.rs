//! The scenes of the demo. Each does something and shows the result. This file has what comes before Pileus runs, and what
//! all scenes share.

pub(crate) mod breaker;
pub(crate) mod hand_over;
pub(crate) mod instances;
pub(crate) mod joining;
pub(crate) mod misbehaving;
pub(crate) mod routes;
pub(crate) mod services;
pub(crate) mod swaps;
pub(crate) mod throttled;

use pileus_dev::Error;

use crate::document::Document;
use crate::inspection::Inspection;
use crate::page::{self, Tone, format_duration, row};
use crate::stage::Stage;
use crate::steps::Steps;

/// The first instances of the cloud: name, type and rack. A Node has the name of its instance.
const INSTANCES: [(&str, &str, &str); 5] = [
    ("node-1", "small-2", "r-07"),
    ("node-2", "large-8", "r-07"),
    ("node-3", "small-2", "r-12"),
    ("node-4", "large-8", "r-12"),
    ("node-5", "large-8", "r-31"),
];
/// Permissions that Pileus has, and some that it does not have.
const PERMISSIONS: [(&str, &str); 4] =
    [("patch", "nodes"), ("delete", "nodes"), ("create", "nodes"), ("get", "secrets")];

/// The document of the provider that works.
pub(crate) fn good<'a>(endpoint: &'a str, port: &'a str) -> Document<'a> {
    Document {
        name: "simulated",
        package: "simulated-provider",
        configuration: endpoint,
        granted: Some(port),
    }
}

/// The Nodes that join first.
pub(crate) fn first() -> Vec<String> {
    INSTANCES.iter().take(3).map(|(name, ..)| (*name).to_owned()).collect()
}

/// The Nodes that join while only misbehaving providers run.
pub(crate) fn waiting() -> Vec<String> {
    INSTANCES.iter().skip(3).map(|(name, ..)| (*name).to_owned()).collect()
}

/// The Nodes of the first instances.
pub(crate) fn named() -> Vec<String> {
    [first(), waiting()].concat()
}

/// Starts the cluster and the cloud.
pub(crate) async fn set_up(steps: &mut Steps) -> Result<Stage, Error> {
    steps.begin(
        "A cluster and a cloud start",
        "kube-apiserver and etcd are the real programs, and the cloud is a simulator that speaks HTTP.",
    );
    let stage = Stage::set_up().await?;
    for (name, size, rack) in INSTANCES {
        stage.cloud.create_machine(name, size, rack).await?;
    }
    let mut permissions = Vec::new();
    for (verb, resource) in PERMISSIONS {
        let allowed = if stage.pileus_may(verb, resource).await? { "yes" } else { "no" };
        permissions.push(format!("{verb} {resource}: {allowed}"));
    }
    let count = INSTANCES.len();
    page::table(&[
        row("API server", Tone::Plain, format!("ready after {}", format_duration(stage.kubernetes_took))),
        row("cloud", Tone::Plain, format!("{}, with {count} instances", stage.cloud.http.url("/"))),
        row("Pileus may", Tone::Plain, format!("{} (deploy/rbac.yaml)", permissions.join(", "))),
    ]);
    steps.end();
    Ok(stage)
}

/// Shows what `pileus inspect` knows about the provider.
pub(crate) async fn inspect(steps: &mut Steps, stage: &Stage, document: Document<'_>) -> Result<(), Error> {
    steps.begin(
        "The provider is inspected before it runs",
        "`pileus inspect` shows what a component can do, and which hosts it wants to reach.",
    );
    let Inspection { digest, size, contract, provider, capabilities, imports, requested_hosts } =
        stage.inspect(document).await?;
    let mut rows = vec![
        row("component", Tone::Plain, format!("{provider}, {} kB, for contract {contract}", size / 1000)),
        row("digest", Tone::Plain, digest),
        row("capabilities", Tone::Plain, capabilities.join(", ")),
        row("imports", Tone::Plain, format!("{imports} interfaces; none gives it a file or a socket")),
    ];
    rows.extend(requested_hosts.iter().map(|host| row("wants to reach", Tone::Good, host.to_string())));
    page::table(&rows);
    steps.end();
    Ok(())
}

/// A number of reads, for people.
pub(crate) fn reads(count: u64) -> String {
    if count == 1 { "1 read of the cloud".to_owned() } else { format!("{count} reads of the cloud") }
}

/// A number of writes, for people.
pub(crate) fn writes(count: u64) -> String {
    if count == 1 { "1 write to the cloud".to_owned() } else { format!("{count} writes to the cloud") }
}
