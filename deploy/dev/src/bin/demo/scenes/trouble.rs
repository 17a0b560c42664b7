//! Providers that mean harm, and one that wants what nobody has granted.

use std::collections::BTreeMap;
use std::time::Duration;

use pileus_dev::Error;

use super::{first, good, wishes};
use crate::document::Document;
use crate::events;
use crate::nodes;
use crate::page::{self, Cell, Tone, row, seconds};
use crate::pileus::Probes;
use crate::stage::Stage;
use crate::steps::Steps;

/// A provider that means harm, and what its call is counted as.
pub(crate) struct Villain {
    pub(crate) headline: &'static str,
    pub(crate) why: &'static str,
    pub(crate) name: &'static str,
    pub(crate) behaviour: &'static str,
    pub(crate) result: &'static str,
    pub(crate) shown: &'static str,
}

pub(crate) const LOOP: Villain = Villain {
    headline: "A provider that never returns",
    why: "Each call has a budget of processor time. A loop uses up its own, and nobody else notices.",
    name: "looping",
    behaviour: "loop",
    result: "cpu",
    shown: "1 endless loop",
};

pub(crate) const TRAP: Villain = Villain {
    headline: "A provider that crashes",
    why: "Each call gets a fresh sandbox. A crash ends that sandbox; the process around it doesn't notice.",
    name: "trapping",
    behaviour: "trap",
    result: "trap",
    shown: "1 crash",
};

/// Runs a provider that means harm, with nothing granted.
pub(crate) async fn suffer(steps: &mut Steps, stage: &Stage, villain: &Villain) -> Result<(), Error> {
    let Villain { headline, why, name, behaviour, result, shown } = villain;
    steps.begin(headline, why);
    let before = nodes::versions(&stage.admin, &first()).await?;
    let configuration = format!("behaviour: {behaviour}");
    let package = "hostile-provider";
    let document = Document { name, package, configuration: &configuration, granted: None };
    let mut pileus = stage.pileus(document, &[]).await?;
    let result = format!(r#"result="{result}""#);
    let labels = [r#"function="lookup""#, &result];
    let (metric, probes) = pileus.await_metric("pileus_provider_calls_total", &labels).await?;
    let warning = events::about(&stage.admin, "node-4", name).await.map_err(|error| pileus.blame(&error))?;
    pileus.stop().await?;
    page::table(&[
        row("on node-4", Tone::Bad, warning),
        row("metric", Tone::Plain, metric.to_string()),
        row("probes", Tone::Good, alive(&probes)),
        untouched(stage, &before).await?,
    ]);
    steps.end();
    let Probes { count, slowest } = probes;
    steps.shown(shown, format!("stopped; {count} of {count} probes answered, within {}", seconds(slowest)));
    Ok(())
}

/// Runs a provider that asks for the machine's own identity, though it was granted its cloud.
pub(crate) async fn refuse(steps: &mut Steps, stage: &Stage) -> Result<(), Error> {
    steps.begin(
        "A greedy provider",
        "It may ask its cloud, and asks the metadata service as well: there any program on a cloud's machine gets the \
         machine's own credentials, unless somebody stands in between.",
    );
    let document = Document {
        name: "greedy",
        package: "hostile-provider",
        configuration: "{behaviour: ask, cloud: \"http://169.254.169.254/metadata/identity/oauth2/token\"}",
        granted: Some(&stage.cloud.port()),
    };
    let mut pileus = stage.pileus(document, &[]).await?;
    let (metric, _) = pileus.await_metric("pileus_gate_requests_total", &[r#"result="denied""#]).await?;
    let warning = events::about(&stage.admin, "node-4", "169.254.169.254");
    let warning = warning.await.map_err(|error| pileus.blame(&error))?;
    pileus.stop().await?;
    page::table(&[row("on node-4", Tone::Bad, warning), row("metric", Tone::Good, metric.to_string())]);
    steps.end();
    steps.shown("1 greedy provider", "the metadata service was not asked");
    Ok(())
}

/// Runs the provider that is meant to run, but grants it nothing.
pub(crate) async fn deny(steps: &mut Steps, stage: &Stage, endpoint: &str) -> Result<(), Error> {
    steps.begin(
        "A provider without a grant",
        "It reaches what the operator has granted, nothing else: it has no socket, only the host's gate.",
    );
    let before = stage.cloud.reads().await?;
    let document = Document { name: "ungranted", granted: None, ..good(endpoint, "") };
    let report = stage.inspect(document).await?;
    let mut pileus = stage.pileus(document, &[]).await?;
    let (metric, _) = pileus.await_metric("pileus_gate_requests_total", &[r#"result="denied""#]).await?;
    let warning = events::about(&stage.admin, "node-4", "gate");
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
    steps.shown("1 missing grant", format!("{requests} requests reached the cloud"));
    Ok(())
}

fn alive(Probes { count, slowest }: &Probes) -> String {
    format!("/livez and /readyz said yes {count} of {count} times, within {}", seconds(*slowest))
}

/// Whether nothing was written to Nodes since these versions were read.
pub(super) async fn untouched(stage: &Stage, before: &BTreeMap<String, String>) -> Result<Vec<Cell>, Error> {
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
