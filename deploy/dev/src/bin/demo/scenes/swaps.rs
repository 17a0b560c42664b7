//! The provider moves to another release while it works: to a good one, and not to one that would do harm.

#![expect(clippy::indexing_slicing, reason = "a field that a JSON value lacks reads as null")]

use std::collections::BTreeMap;
use std::fs;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use pileus_dev::{Error, artifact};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::good;
use crate::cloud::Cloud;
use crate::document::{Document, grant};
use crate::nodes;
use crate::page::{self, Cell, Tone, format_duration, row};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::Steps;

/// How long a swap may take: seconds, and longer on a busy machine.
const SOON: Duration = Duration::from_mins(1);
/// The time between two attempts to apply a resource whose definition was just applied.
const PAUSE: Duration = Duration::from_millis(100);
/// The provider.
const NAME: &str = "simulated";
/// The tags of the release that runs first, and of the next one.
const TAGS: [&str; 2] = ["1.0", "1.1"];
const CRD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crd.yaml");
/// The file of the resource, in the folder of the demo.
const FILE: &str = "cloudprovider.yaml";

/// Pushes the component of the provider that works, and applies the resource that names it.
pub(crate) async fn apply(stage: &Stage, document: Document<'_>) -> Result<Vec<Vec<Cell>>, Error> {
    let component = artifact::component(document.package)?;
    stage.push(&component, TAGS[0]).await?;
    stage.kubernetes.apply(CRD).await?;
    let path = stage.write(FILE, &document.of_image(&stage.image(TAGS[0])))?;
    let begun = Instant::now();
    while let Err(error) = stage.kubernetes.apply(&path).await {
        if begun.elapsed() > SOON {
            return Err(error);
        }
        sleep(PAUSE).await;
    }
    Ok(vec![command(&push_command(stage, TAGS[0])), command(&format!("$ kubectl apply -f {FILE}"))])
}

/// Names the next release, and shows how the provider moves to it.
pub(crate) async fn swap(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "The provider is swapped for its next release",
        "Pileus compares both releases in a dry run against the live cluster. Then the new one answers half of the lookups, \
         and becomes active if it does no worse. No call fails, and controllers go on.",
    );
    stage.push(&rebuilt(stage)?, TAGS[1]).await?;
    let (versions, written) = (versions(stage).await?, stage.cloud.write_count().await?);
    let patch = stage.write(
        "next-release.yaml",
        &format!("spec: {{source: {{image: \"{}\"}}}}\n", stage.image(TAGS[1])),
    )?;
    let next = stage.image(TAGS[1]);
    let is_over = |status: &Value| {
        let follows = status["resolved"]["follow"]["tag"].as_str().is_some_and(|tag| next.ends_with(tag));
        follows && status["candidate"].is_null()
    };
    let phases = patch_and_follow(stage, &patch, is_over).await.map_err(|error| pileus.with_log(&error))?;
    let mut rows = vec![command(&push_command(stage, TAGS[1])), command(&patch_command("next-release.yaml"))];
    rows.extend(
        phases.iter().map(|(phase, at)| row(&format!("after {}", format_duration(*at)), Tone::Good, phase)),
    );
    page::table(&rows);
    show_provider(stage).await?;
    let cost = super::writes(stage.cloud.write_count().await? - written);
    page::table(&[Vec::new(), unchanged(stage, pileus, &versions).await?, row("cost", Tone::Good, &*cost)]);
    steps.end();
    let took = phases.last().map(|(_, at)| format_duration(*at)).unwrap_or_default();
    steps.add_to_summary("1 swapped provider", format!("active after {took}, 3 s of it as canary; {cost}"));
    Ok(())
}

/// Gives the provider the API of another account, and shows what the dry run says about that.
pub(crate) async fn hold(
    steps: &mut Steps,
    stage: &Stage,
    pileus: &Pileus,
    endpoint: &str,
) -> Result<(), Error> {
    steps.begin(
        "A mistake in its configuration is held",
        "The new endpoint is the API of another account, which has no instance. All nodes would lose theirs. The dry run \
         shows that, and nothing changes until an operator decides.",
    );
    let other = Cloud::start(&stage.folder().join("other-cloud.log")).await?;
    let versions = versions(stage).await?;
    let (port, url) = (other.port(), other.http.url(""));
    let both = configuration(&format!("endpoint: {url}"), &port) + &granted(&stage.cloud.port());
    // The release that runs keeps its access: what a document doesn't grant ends at once.
    let patch = stage.write("other-account.yaml", &both)?;
    let is_held = |status: &Value| status["candidate"]["phase"]["name"] == "held";
    let phases = patch_and_follow(stage, &patch, is_held).await.map_err(|error| pileus.with_log(&error))?;
    let mut rows = vec![command(&patch_command("other-account.yaml"))];
    rows.extend(
        phases.iter().map(|(phase, at)| row(&format!("after {}", format_duration(*at)), Tone::Good, phase)),
    );
    page::table(&rows);
    show_provider(stage).await?;
    page::table(&[Vec::new(), command(&format!("$ kubectl describe cloudprovider {NAME} | tail"))]);
    let described = stage.kubectl(&["describe", "cloudprovider", NAME]).await?;
    page::table(&event_rows(&described));
    let cost = super::writes(other.write_count().await?);
    page::table(&[
        Vec::new(),
        unchanged(stage, pileus, &versions).await?,
        row("other account", Tone::Good, &*cost),
    ]);

    let patch = stage.write("own-account.yaml", &configuration(endpoint, &stage.cloud.port()))?;
    let is_gone = |status: &Value| status["candidate"].is_null();
    patch_and_follow(stage, &patch, is_gone).await.map_err(|error| pileus.with_log(&error))?;
    page::table(&[Vec::new(), command(&patch_command("own-account.yaml"))]);
    page::table(&[row("candidate", Tone::Good, "dropped")]);
    steps.end();
    let count = versions.len();
    steps.add_to_summary("1 wrong account", format!("held by the dry run; {count} nodes unchanged, {cost}"));
    Ok(())
}

/// The component as another build would be: with other bytes, and the same behavior.
fn rebuilt(stage: &Stage) -> Result<std::path::PathBuf, Error> {
    let bytes = artifact::rebuilt(good("", "").package, "build")?;
    let path = stage.folder().join("simulated_provider.wasm");
    fs::write(&path, bytes).map_err(|source| Error::File { path: path.clone(), source })?;
    Ok(path)
}

fn configuration(endpoint: &str, port: &str) -> String {
    format!("spec:\n  configuration:\n    {endpoint}\n{}", grant(port))
}

/// The grant of one more port, as an item of the list.
fn granted(port: &str) -> String {
    grant(port).lines().skip(1).fold(String::new(), |items, line| items + line + "\n")
}

fn push_command(stage: &Stage, tag: &str) -> String {
    format!("$ pileus push simulated_provider.wasm {}", stage.image(tag))
}

fn patch_command(file: &str) -> String {
    format!("$ kubectl patch cloudprovider {NAME} --type=merge --patch-file {file}")
}

fn command(text: &str) -> Vec<Cell> {
    vec![Tone::Strong.cell(text)]
}

/// Patches the resource, and returns the phases that its status went through until its end, each with the time since the patch.
async fn patch_and_follow(
    stage: &Stage,
    patch: &str,
    is_end: impl Fn(&Value) -> bool,
) -> Result<Vec<(String, Duration)>, Error> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("pileus.dev", "v1alpha1", "CloudProvider"));
    let api: Api<DynamicObject> = Api::all_with(stage.admin.clone(), &kind);
    let failed =
        |source| Error::Api { action: format!("get cloudprovider {NAME}"), source: Box::new(source) };
    let before = api.get(NAME).await.map_err(failed)?.metadata.generation;
    let config = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let mut changes = pin!(watcher(api, config).default_backoff().applied_objects());
    let begun = Instant::now();
    stage.kubectl(&["patch", "cloudprovider", NAME, "--type=merge", "--patch-file", patch]).await?;
    let follow = async {
        let mut phases: Vec<(String, Duration)> = Vec::new();
        while let Some(change) = changes.next().await {
            let Ok(provider) = change else { continue };
            let status = &provider.data["status"];
            let observed = status["observedGeneration"].as_i64();
            if observed <= before {
                continue;
            }
            let is_end = is_end(status);
            let phase = match &status["candidate"] {
                Value::Null if !is_end => "resolving: what the tag names".to_owned(),
                _ => phase(status),
            };
            if phases.last().is_none_or(|(last, _)| *last != phase) {
                phases.push((phase, begun.elapsed()));
            }
            if is_end {
                break;
            }
        }
        phases
    };
    let late = |_| Error::Deadline {
        object: format!("cloudprovider {NAME}, which should reach the end of a swap"),
        deadline: SOON,
        seen: "another phase".to_owned(),
    };
    timeout(SOON, follow).await.map_err(late)
}

/// What a status says about the swap.
fn phase(status: &Value) -> String {
    let candidate = &status["candidate"];
    let found = &candidate["differences"];
    let words = match candidate["phase"]["name"].as_str() {
        Some("preparing") => "preparing: fetched, verified, compiled, checked",
        Some("dryRun") => "dry run: both releases look up nodes and plan changes",
        Some("held") => {
            return format!(
                "held: {} lookups differ, and {} writes are wanted",
                found["lookups"], found["writes"]
            );
        }
        Some("waiting") => "waiting",
        Some("canary") => "canary: answers half of the lookups",
        Some(other) => other,
        None => "active: answers all calls",
    };
    words.to_owned()
}

/// Shows what `kubectl get cloudproviders` prints, with short digests.
async fn show_provider(stage: &Stage) -> Result<(), Error> {
    let output = stage.kubectl(&["get", "cloudproviders"]).await?;
    let cell = |text: &str| {
        let is_digest = text.starts_with("sha256:");
        Tone::Plain.cell(if is_digest {
            format!("{}…", text.get(..19).unwrap_or(text))
        } else {
            text.to_owned()
        })
    };
    page::table(&[Vec::new(), command("$ kubectl get cloudproviders")]);
    let rows: Vec<Vec<Cell>> =
        output.lines().map(|line| line.split_whitespace().map(cell).collect()).collect();
    page::table(&rows);
    Ok(())
}

/// The warnings in the output of `kubectl describe`: reason and message.
fn event_rows(described: &str) -> Vec<Vec<Cell>> {
    let mut lines = described.lines().skip_while(|line| !line.starts_with("Events:")).skip(1);
    let head = lines.next().unwrap_or_default();
    let [reason, age, message] =
        ["Reason", "Age", "Message"].map(|column| head.find(column).unwrap_or_default());
    let event = |line: &str| {
        let reason = line.get(reason..age)?.trim().to_owned();
        Some(vec![Tone::Quiet.cell(reason), Tone::Good.cell(line.get(message..)?.trim())])
    };
    lines.filter(|line| line.trim_start().starts_with("Warning")).filter_map(event).collect()
}

/// The resource versions of all Nodes.
async fn versions(stage: &Stage) -> Result<BTreeMap<String, String>, Error> {
    let nodes = nodes::list(&stage.admin).await?;
    Ok(nodes.into_iter().map(|node| (node.name_any(), node.resource_version().unwrap_or_default())).collect())
}

/// A row that says that no Node was written, or an error.
async fn unchanged(
    stage: &Stage,
    pileus: &Pileus,
    before: &BTreeMap<String, String>,
) -> Result<Vec<Cell>, Error> {
    if versions(stage).await? == *before {
        Ok(row("nodes", Tone::Good, format!("all {} unchanged", before.len())))
    } else {
        Err(pileus.failed("has changed nodes in a swap"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_found_in_what_kubectl_describes() {
        let described = "\
Name:  simulated
Events:
  Type     Reason           Age   From    Message
  ----     ------           ----  ----    -------
  Normal   ProviderSwapped  10s   pileus  release a is active
  Warning  ProviderHeld     2s    pileus  release b is held: c
";
        let rows = event_rows(described);
        let texts: Vec<Vec<_>> =
            rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect()).collect();
        assert_eq!(texts, [["ProviderHeld", "release b is held: c"]]);
    }
}
