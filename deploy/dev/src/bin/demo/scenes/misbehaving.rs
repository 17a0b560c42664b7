//! Providers that misbehave: they loop, crash, or ask for hosts that the operator has not granted. Each is stopped, and
//! nothing else is affected.

use std::collections::BTreeMap;
use std::time::Duration;

use pileus_dev::Error;

use super::{first, good};
use crate::document::Document;
use crate::events;
use crate::nodes;
use crate::page::{self, Cell, Tone, format_duration, row};
use crate::pileus::ProbeResults;
use crate::stage::Stage;
use crate::steps::Steps;

/// The label of a row about something that Pileus has stopped.
const BLOCKED: &str = "blocked ✓";
/// The counter of a provider's requests.
const REQUESTS: &str = "pileus_gate_requests_total";
/// The package of the provider that misbehaves in a way that its configuration chooses.
const HOSTILE: &str = "hostile-provider";
/// The URL where a cloud gives each of its instances a token of the instance's own identity.
const METADATA_SERVICE: &str = "http://169.254.169.254/metadata/identity/oauth2/token";

/// A way to misbehave within a call.
pub(crate) struct Misbehavior {
    headline: &'static str,
    caption: &'static str,
    /// The name of the CloudProvider document.
    name: &'static str,
    /// The value in the provider's configuration.
    behavior: &'static str,
    /// The result that the metric counts for such a call.
    result: &'static str,
    /// The label in the summary.
    summary: &'static str,
}

/// An endless loop.
pub(crate) const LOOP: Misbehavior = Misbehavior {
    headline: "A provider never returns",
    caption: "Each call has a budget of two seconds of CPU time, and ends when that is used up.",
    name: "looping",
    behavior: "loop",
    result: "cpu",
    summary: "1 endless loop",
};

/// A crash.
pub(crate) const TRAP: Misbehavior = Misbehavior {
    headline: "A provider crashes",
    caption: "Each call runs in a fresh sandbox, and a crash ends nothing but this sandbox.",
    name: "trapping",
    behavior: "trap",
    result: "trap",
    summary: "1 crash",
};

/// Runs a provider that misbehaves within its calls.
pub(crate) async fn contain(
    steps: &mut Steps,
    stage: &Stage,
    misbehavior: &Misbehavior,
) -> Result<(), Error> {
    let Misbehavior { headline, caption, name, behavior, result, summary } = misbehavior;
    steps.begin(headline, caption);
    let before = nodes::resource_versions(&stage.admin, &first()).await?;
    let configuration = format!("behaviour: {behavior}");
    let document = Document { name, package: HOSTILE, configuration: &configuration, granted: None };
    let mut pileus = stage.pileus(document, &[]).await?;
    let result = format!(r#"result="{result}""#);
    let labels = [r#"function="lookup""#, &result];
    let (metric, probes) = pileus.await_metric("pileus_provider_calls_total", &labels).await?;
    let event = events::about(&stage.admin, "node-4", name).await.map_err(|error| pileus.with_log(&error))?;
    pileus.stop().await?;
    let ProbeResults { count, slowest } = probes;
    let probes = format!("all {count} probes succeeded, the slowest after {}", format_duration(slowest));
    page::table(&[
        row(BLOCKED, Tone::Good, event),
        row("metric", Tone::Plain, metric.to_string()),
        row("probes", Tone::Good, format!("/livez and /readyz: {probes}")),
        unchanged(stage, &before).await?,
    ]);
    steps.end();
    steps.add_to_summary(summary, format!("stopped; {probes}"));
    Ok(())
}

/// Runs the good provider without a grant.
pub(crate) async fn deny(steps: &mut Steps, stage: &Stage, endpoint: &str) -> Result<(), Error> {
    steps.begin(
        "A provider without a grant",
        "A provider has no sockets. Its requests pass the host's gate, which denies what the operator has not granted.",
    );
    let before = stage.cloud.read_count().await?;
    let document = Document { name: "ungranted", granted: None, ..good(endpoint, "") };
    let inspection = stage.inspect(document).await?;
    let mut pileus = stage.pileus(document, &[]).await?;
    let (metric, _) = pileus.await_metric(REQUESTS, &[r#"result="denied""#]).await?;
    let event = events::about(&stage.admin, "node-4", "gate");
    let event = event.await.map_err(|error| pileus.with_log(&error))?;
    let arrived = stage.cloud.read_count().await? - before;
    if arrived > 0 {
        return Err(pileus.failed("let requests through that the operator has not granted"));
    }
    pileus.stop().await?;
    let hosts = inspection.requested_hosts.iter();
    let mut rows: Vec<_> = hosts.map(|host| row("wants to reach", Tone::Plain, host.to_string())).collect();
    rows.extend([
        row(BLOCKED, Tone::Good, event),
        row("metric", Tone::Plain, metric.to_string()),
        row("cloud", Tone::Good, format!("received {arrived} requests")),
    ]);
    page::table(&rows);
    steps.end();
    steps.add_to_summary("1 missing grant", format!("{arrived} requests reached the cloud"));
    Ok(())
}

/// Runs a provider that asks for the credentials of the instance that Pileus runs on.
pub(crate) async fn protect_identity(steps: &mut Steps, stage: &Stage) -> Result<(), Error> {
    steps.begin(
        "A provider asks for the instance's own credentials",
        "A cloud's metadata service gives them to any program on the instance. A provider can't reach it.",
    );
    let document = Document {
        name: "greedy",
        package: HOSTILE,
        configuration: &format!("{{behaviour: ask, cloud: \"{METADATA_SERVICE}\"}}"),
        granted: Some(&stage.cloud.port()),
    };
    let mut pileus = stage.pileus(document, &[]).await?;
    let (metric, _) = pileus.await_metric(REQUESTS, &[r#"result="denied""#]).await?;
    let event = events::about(&stage.admin, "node-4", "169.254.169.254");
    let event = event.await.map_err(|error| pileus.with_log(&error))?;
    pileus.stop().await?;
    page::table(&[row(BLOCKED, Tone::Good, event), row("metric", Tone::Plain, metric.to_string())]);
    steps.end();
    steps.add_to_summary("1 metadata request", "blocked; the metadata service did not receive it");
    Ok(())
}

/// A row that says that Nodes were not written since `before`, or an error.
pub(super) async fn unchanged(stage: &Stage, before: &BTreeMap<String, String>) -> Result<Vec<Cell>, Error> {
    let names: Vec<_> = before.keys().cloned().collect();
    let joined = names.join(", ");
    if nodes::resource_versions(&stage.admin, &names).await? == *before {
        return Ok(row("other nodes", Tone::Good, format!("{joined} unchanged")));
    }
    Err(Error::Deadline {
        object: format!("nodes {joined}, which no provider should change"),
        deadline: Duration::ZERO,
        seen: "other resource versions than before".to_owned(),
    })
}
