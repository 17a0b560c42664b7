//! A Service gets a load balancer, changes, and is deleted.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::runtime::wait::await_condition;
use pileus_dev::Error;
use tokio::time::{Instant, timeout};

use super::writes;
use crate::cloud::{Listener, LoadBalancer};
use crate::events;
use crate::page::{self, Cell, Tone, format_duration, row};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::Steps;

/// How long the cloud takes for each operation on a load balancer.
const OPERATION: Duration = Duration::from_secs(2);
/// How long an address may take: one operation, and longer on a busy machine.
const SOON: Duration = Duration::from_mins(1);
/// The name of the Service.
pub(crate) const SERVICE: &str = "web";
/// The file of its manifest, in the folder of the demo.
pub(crate) const FILE: &str = "web.yaml";

const MANIFEST: &str = "\
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  type: LoadBalancer
  selector: {app: web}
  ports:
    - {name: http, port: 80, targetPort: 8080}
    - {name: https, port: 443, targetPort: 8443}
";

/// A later change to the Service.
const PATCH: &str =
    r#"{"spec": {"externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["192.0.2.0/24"]}}"#;

/// Creates a Service of type LoadBalancer.
pub(crate) async fn create(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "A Service gets an address",
        "The cloud takes 2 s to create a load balancer. No call waits for that: the provider answers that the change is \
         in progress, and is called again later.",
    );
    stage.cloud.set_operation_time(OPERATION).await?;
    let manifest = stage.write(FILE, MANIFEST)?;
    let before = stage.cloud.write_count().await?;
    let begun = Instant::now();
    stage.kubectl(&["create", "-f", &manifest]).await?;
    let with_log = |error| pileus.with_log(&error);
    let address = await_address(stage).await.map_err(with_log)?;
    let took = format_duration(begun.elapsed());
    let created = stage.cloud.await_load_balancer("load balancer", |_| true).await.map_err(with_log)?;
    let cost = writes(stage.cloud.write_count().await? - before);
    events::about(&stage.admin, SERVICE, "EnsuredLoadBalancer").await.map_err(with_log)?;

    run_kubectl(stage, &["get", "service", SERVICE]).await?;
    page::table(&event_rows(stage, 0).await?);
    let node_port = |it: &Listener| it.node_port.unwrap_or(it.port);
    let ports = created.ports.iter().map(|it| format!("{} {} → {}", it.protocol, it.port, node_port(it)));
    let ports = ports.collect::<Vec<_>>().join(", ");
    let count = created.machines.len();
    page::table(&[
        row("cloud", Tone::Good, format!("{}: {ports} on {count} instances", created.name)),
        row("cost", Tone::Good, &*cost),
        row("web page", Tone::Plain, format!("{} shows all that the cloud has", stage.cloud.http.url("/"))),
    ]);
    steps.end();
    steps.add_to_summary("1 Service", format!("{address} after {took}, 2 s of it the cloud's own; {cost}"));
    Ok(())
}

/// Changes the Service.
pub(crate) async fn change(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "The Service changes",
        "A new traffic policy and new source ranges reach the cloud in one write, and the address stays.",
    );
    let with_log = |error| pileus.with_log(&error);
    let before = stage.cloud.await_load_balancer("load balancer", |_| true).await?;
    let written = stage.cloud.write_count().await?;
    let begun = Instant::now();
    run_kubectl(stage, &["patch", "service", SERVICE, "-p", PATCH]).await?;
    let is_changed = |it: &LoadBalancer| !it.source_ranges.is_empty() && it.health_check_port.is_some();
    let after = stage.cloud.await_load_balancer("changed load balancer", is_changed).await;
    let after = after.map_err(with_log)?;
    let took = format_duration(begun.elapsed());
    let cost = writes(stage.cloud.write_count().await? - written);
    let mut rows = before_and_after(&before, &after);
    rows.push(row("cost", Tone::Good, format!("{cost}, done after {took}")));
    page::table(&rows);
    steps.end();
    steps.add_to_summary("1 changed Service", format!("in the cloud after {took}, with {cost}"));
    Ok(())
}

/// Deletes the Service.
pub(crate) async fn delete(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "The Service is deleted",
        "Its finalizer keeps the Service until its load balancer is gone, and kubectl waits for that.",
    );
    let events_before = events::all_about(&stage.admin, SERVICE).await?.len();
    let begun = Instant::now();
    let deleting = timeout(SOON, run_kubectl(stage, &["delete", "service", SERVICE])).await;
    deleting.map_err(|_| pileus.failed("keeps a deleted Service"))??;
    let took = format_duration(begun.elapsed());
    let left = stage.cloud.load_balancers().await?.len();
    if left > 0 {
        return Err(pileus.failed(&format!("has left {left} load balancers behind")));
    }
    let with_log = |error| pileus.with_log(&error);
    events::about(&stage.admin, SERVICE, "DeletedLoadBalancer").await.map_err(with_log)?;
    let mut rows = event_rows(stage, events_before).await?;
    rows.push(row("cloud", Tone::Good, format!("{left} load balancers after {took}")));
    page::table(&rows);
    steps.end();
    let text = format!("deleted after {took}, once its load balancer was gone");
    steps.add_to_summary("1 deleted Service", text);
    Ok(())
}

/// Runs kubectl, and shows the command and its output.
async fn run_kubectl(stage: &Stage, arguments: &[&str]) -> Result<(), Error> {
    let output = stage.kubectl(arguments).await?;
    let quoted = |it: &&str| if it.contains(' ') { format!("'{it}'") } else { (*it).to_owned() };
    let command = arguments.iter().map(quoted).collect::<Vec<_>>().join(" ");
    let mut rows = vec![vec![Tone::Strong.cell(format!("$ kubectl {command}"))]];
    rows.extend(output.lines().map(|line| vec![Tone::Plain.cell(line)]));
    rows.push(Vec::new());
    page::table(&rows);
    Ok(())
}

/// Rows with the events about the Service, without the first `skipped` ones.
async fn event_rows(stage: &Stage, skipped: usize) -> Result<Vec<Vec<Cell>>, Error> {
    let events = events::all_about(&stage.admin, SERVICE).await?;
    Ok(events.into_iter().skip(skipped).map(|text| row("event", Tone::Plain, text)).collect())
}

/// A table of the load balancer before and after a change.
fn before_and_after(before: &LoadBalancer, after: &LoadBalancer) -> Vec<Vec<Cell>> {
    type Fact = fn(&LoadBalancer) -> String;
    let facts: [(&str, Fact); 4] = [
        ("address", |it| it.addresses.join(", ")),
        ("open to", |it| {
            if it.source_ranges.is_empty() { "everywhere".to_owned() } else { it.source_ranges.join(", ") }
        }),
        ("health check", |it| it.health_check_port.map_or("none".to_owned(), |port| format!("port {port}"))),
        ("instances", |it| it.machines.len().to_string()),
    ];
    let mut rows = vec![["in the cloud", "before", "after"].map(|text| Tone::Quiet.cell(text)).to_vec()];
    for (label, fact) in facts {
        let [old, new] = [before, after].map(fact);
        let tone = if old == new { Tone::Plain } else { Tone::Good };
        rows.push(vec![Tone::Quiet.cell(label), Tone::Plain.cell(old), tone.cell(new)]);
    }
    rows
}

/// Waits until the Service has an address or a host name.
async fn await_address(stage: &Stage) -> Result<String, Error> {
    let services: Api<Service> = Api::default_namespaced(stage.admin.clone());
    let has_ingress = |service: Option<&Service>| service.and_then(ingress).is_some();
    let failed = |seen: String| {
        let object = format!("service {SERVICE}, which should get an address");
        Error::Deadline { object, deadline: SOON, seen }
    };
    let service = timeout(SOON, await_condition(services, SERVICE, has_ingress)).await;
    let service =
        service.map_err(|_| failed("none".to_owned()))?.map_err(|error| failed(error.to_string()))?;
    Ok(service.as_ref().and_then(ingress).unwrap_or_default())
}

fn ingress(service: &Service) -> Option<String> {
    let first = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
    first.ip.clone().or_else(|| first.hostname.clone())
}
