//! A Service gets an address from the cloud, changes, and goes.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::runtime::wait::await_condition;
use pileus_dev::Error;
use tokio::time::{Instant, timeout};

use super::written;
use crate::cloud::{Listener, LoadBalancer};
use crate::events;
use crate::page::{self, Cell, Tone, row, seconds};
use crate::pileus::Pileus;
use crate::stage::Stage;
use crate::steps::Steps;

/// What the cloud takes for whatever it does to a load balancer.
const OPERATION: Duration = Duration::from_secs(2);
/// An address takes one of them; a busy machine may need longer.
const SOON: Duration = Duration::from_mins(1);
/// Its name.
pub(crate) const SERVICE: &str = "web";
/// The file that it is created from, in the folder of the demo.
pub(crate) const FILE: &str = "web.yaml";

/// As an operator writes it.
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

/// What an operator makes of it later.
const NARROWED: &str =
    r#"{"spec": {"externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["192.0.2.0/24"]}}"#;

/// A Service of type LoadBalancer is created.
pub(crate) async fn publish(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "A service gets an address",
        "The cloud puts a load balancer in front of all nodes. That takes it 2 s here, and nobody sits and waits: the \
         provider's call has ended, and it is asked again when the time is over.",
    );
    stage.cloud.operations_take(OPERATION).await?;
    let path = stage.folder().join(FILE);
    fs::write(&path, MANIFEST).map_err(|source| Error::File { path: path.clone(), source })?;
    let before = stage.cloud.writes().await?;
    let begun = Instant::now();
    let path = path.display().to_string();
    stage.kubectl(&["create", "-f", &path]).await?;
    let blame = |error| pileus.blame(&error);
    let address = addressed(stage).await.map_err(blame)?;
    let took = seconds(begun.elapsed());
    let made = stage.cloud.balances("load balancer", |_| true).await.map_err(blame)?;
    let writes = stage.cloud.writes().await? - before;
    events::about(&stage.admin, SERVICE, "EnsuredLoadBalancer").await.map_err(blame)?;

    say(stage, &["get", "service", SERVICE]).await?;
    page::table(&told(stage, 0).await?);
    let node_port = |it: &Listener| it.node_port.unwrap_or(it.port);
    let ports = made.ports.iter().map(|it| format!("{} {} to {}", it.protocol, it.port, node_port(it)));
    let ports = ports.collect::<Vec<_>>().join(", ");
    let count = made.machines.len();
    page::table(&[
        row("cloud", Tone::Good, format!("{}: {ports} of {count} machines", made.name)),
        row("cost", Tone::Good, written(writes)),
        row(
            "page",
            Tone::Plain,
            format!("{} shows it, and all else that the cloud has", stage.cloud.web.url("/")),
        ),
    ]);
    steps.end();
    steps.shown(
        "1 service",
        format!("{address} after {took}, of which the cloud took 2 s; {}", written(writes)),
    );
    Ok(())
}

/// Its policy changes.
pub(crate) async fn narrow(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "Its policy changes",
        "Only nodes that run its pods shall take its traffic, which the cloud finds out by a health check, and only one \
         network shall reach it. All of that is one write, and the address stays.",
    );
    let blame = |error| pileus.blame(&error);
    let before = stage.cloud.balances("load balancer", |_| true).await?;
    let writes = stage.cloud.writes().await?;
    let begun = Instant::now();
    say(stage, &["patch", "service", SERVICE, "-p", NARROWED]).await?;
    let is_so = |it: &LoadBalancer| !it.source_ranges.is_empty() && it.health_check_port.is_some();
    let after = stage.cloud.balances("narrowed load balancer", is_so).await.map_err(blame)?;
    let took = seconds(begun.elapsed());
    let writes = written(stage.cloud.writes().await? - writes);
    page::table(
        &[
            before_and_after(&before, &after),
            vec![row("cost", Tone::Good, format!("{writes}, done {took} after the change"))],
        ]
        .concat(),
    );
    steps.end();
    steps.shown("1 change", format!("in the cloud {took} later, by {writes}"));
    Ok(())
}

/// It is deleted.
pub(crate) async fn remove(steps: &mut Steps, stage: &Stage, pileus: &Pileus) -> Result<(), Error> {
    steps.begin(
        "The service is deleted",
        "Its finalizer keeps it until nothing is left of it in the cloud; kubectl waits for that.",
    );
    let told_before = events::all_about(&stage.admin, SERVICE).await?.len();
    let begun = Instant::now();
    let deleting = say(stage, &["delete", "service", SERVICE]);
    let deleting = timeout(SOON, deleting).await.map_err(|_| pileus.failed("keeps a deleted service"))?;
    deleting?;
    let took = seconds(begun.elapsed());
    let left = stage.cloud.load_balancers().await?.len();
    if left > 0 {
        return Err(pileus.failed(&format!("has left {left} load balancers behind")));
    }
    let blame = |error| pileus.blame(&error);
    events::about(&stage.admin, SERVICE, "DeletedLoadBalancer").await.map_err(blame)?;
    page::table(
        &[
            told(stage, told_before).await?,
            vec![row("cloud", Tone::Good, format!("{left} load balancers, {took} after it was asked"))],
        ]
        .concat(),
    );
    steps.end();
    steps.shown("1 deletion", format!("the cloud was empty {took} later, and only then the service went"));
    Ok(())
}

/// Shows what kubectl says to this.
async fn say(stage: &Stage, arguments: &[&str]) -> Result<(), Error> {
    let said = stage.kubectl(arguments).await?;
    let quoted = |it: &&str| if it.contains(' ') { format!("'{it}'") } else { (*it).to_owned() };
    let command = arguments.iter().map(quoted).collect::<Vec<_>>().join(" ");
    let mut rows = vec![vec![Tone::Strong.cell(format!("$ kubectl {command}"))]];
    rows.extend(said.lines().map(|line| vec![Tone::Plain.cell(line)]));
    rows.push(Vec::new());
    page::table(&rows);
    Ok(())
}

/// The events about the Service but for the first ones.
async fn told(stage: &Stage, but: usize) -> Result<Vec<Vec<Cell>>, Error> {
    let told = events::all_about(&stage.admin, SERVICE).await?;
    Ok(told.into_iter().skip(but).map(|text| row("event", Tone::Plain, text)).collect())
}

/// What the cloud had and has of it.
fn before_and_after(before: &LoadBalancer, after: &LoadBalancer) -> Vec<Vec<Cell>> {
    type Fact = fn(&LoadBalancer) -> String;
    let facts: [(&str, Fact); 4] = [
        ("address", |it| it.addresses.join(", ")),
        ("from", |it| {
            if it.source_ranges.is_empty() { "everywhere".to_owned() } else { it.source_ranges.join(", ") }
        }),
        ("health check", |it| it.health_check_port.map_or("none".to_owned(), |port| format!("port {port}"))),
        ("machines", |it| it.machines.len().to_string()),
    ];
    let mut rows = vec![["cloud", "before", "after"].map(|text| Tone::Quiet.cell(text)).to_vec()];
    for (name, fact) in facts {
        let [had, has] = [before, after].map(fact);
        let tone = if had == has { Tone::Plain } else { Tone::Good };
        rows.push(vec![Tone::Quiet.cell(name), Tone::Plain.cell(had), tone.cell(has)]);
    }
    rows
}

/// Waits until it has a way in: an address or a host name.
async fn addressed(stage: &Stage) -> Result<String, Error> {
    let services: Api<Service> = Api::default_namespaced(stage.admin.clone());
    let is_so = |service: Option<&Service>| service.and_then(ingress).is_some();
    let failed = |seen: String| {
        let object = format!("service {SERVICE}, which should get an address");
        Error::Deadline { object, deadline: SOON, seen }
    };
    let service = timeout(SOON, await_condition(services, SERVICE, is_so)).await;
    let service =
        service.map_err(|_| failed("none".to_owned()))?.map_err(|error| failed(error.to_string()))?;
    Ok(service.as_ref().and_then(ingress).unwrap_or_default())
}

fn ingress(service: &Service) -> Option<String> {
    let first = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
    first.ip.clone().or_else(|| first.hostname.clone())
}
