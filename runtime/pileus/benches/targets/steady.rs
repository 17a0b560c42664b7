//! 5,000 Nodes with a route each, and 1,000 Services, with the heartbeats of kubelets: the peak memory of Pileus, the
//! cost of a start with everything settled, and the cost of all controllers while nothing happens.

use std::process::Command;
use std::time::Duration;

use pileus_dev::Heartbeats;
use pileus_dev::kubernetes::Options;
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::cloud::{Calls, Cloud, Style};
use crate::cluster::{Cluster, DEADLINE};
use crate::ingress::{self, Watch};
use crate::pileus::Pileus;
use crate::quiet::{MEMORY, NODES, SETTLING, Used, Writes, all_have_leases, since, used, writes};
use crate::relay::Relay;
use crate::report::{figure, figures, note, seconds, size, time};
use crate::routes::{RANGES, with_range};

/// How many Services there are.
const SERVICES: usize = 1_000;
/// The list of all Services' load balancers is read this often at most, as are those of machines and of routes.
const AUDIT: Duration = Duration::from_mins(30);
/// What the design allows the controllers for routes and Services together for each audit, which makes 60 an hour.
const READS: u64 = 30;

/// Watches for so long.
pub(crate) async fn measure(window: Duration) -> Result<(), Failure> {
    let cluster = Cluster::start(Options { audit: true }).await?;
    let mut cloud = Cloud::start(NODES).await?;
    // A load balancer of its own for each Service would list its 5,000 machines in each: 60 MB in all.
    cloud.balance(Style::Shared);
    cluster.settle(&cloud, with_range).await?;
    let _heartbeats = Heartbeats::start(&cluster.kubernetes).await?;
    all_have_leases(&cluster).await?;
    let mut command = cluster.command(&cloud)?;
    command.arg(RANGES);
    make(&cluster, &cloud, &command).await?;

    let relay = Relay::start(cluster.port()?).await?;
    command.env("KUBECONFIG", cluster.kubeconfig_through(relay.port)?);
    let before = writes(&cluster)?;
    let pileus = Pileus::start(&command)?;
    pileus.says("\"starting controllers\"").await?;
    sleep(SETTLING).await;
    let begin = used(&cluster, &cloud, &relay, &pileus).await?;
    print_start(&before, &begin, &cloud.calls().await?);
    cloud.forget_calls().await?;
    sleep(window).await;
    let end = used(&cluster, &cloud, &relay, &pileus).await?;
    let calls = cloud.calls().await?;
    let asked = cloud.last_asked(calls.all).await?;
    let memory = [pileus.memory("VmRSS")?, pileus.memory("VmHWM")?];
    pileus.stop().await?;
    print_calls(window, &cloud, &calls, &asked);
    print_rest(&begin, end, memory);
    Ok(())
}

/// Lets Pileus make the routes and the load balancer, so that the next start finds them.
async fn make(cluster: &Cluster, cloud: &Cloud, command: &Command) -> Result<(), Failure> {
    let mut watch = Watch::begin(cluster.kubernetes.admin()).await?;
    let pileus = Pileus::start(command)?;
    let from = Instant::now();
    ingress::create(cluster.kubernetes.admin(), SERVICES).await?;
    watch.addressed(SERVICES).await?;
    while cloud.routes().await? < NODES {
        if from.elapsed() > DEADLINE {
            return Err(format!("{} of {NODES} routes are there", cloud.routes().await?).into());
        }
        sleep(Duration::from_millis(50)).await;
    }
    let took = from.elapsed();
    let peak = pileus.memory("VmHWM")?;
    // What is told on Nodes and Services comes after what is done for them.
    while !is_silent(cluster).await? {
        if from.elapsed() > DEADLINE {
            return Err(format!("Pileus still writes to the API server after {DEADLINE:?}").into());
        }
    }
    pileus.stop().await?;
    cloud.forget_calls().await?;
    figures(&format!("{NODES} nodes, as many routes, {SERVICES} services"));
    figure("all made, from the start of the process", &seconds(took), "", "");
    figure("peak memory", &size(peak), &size(MEMORY), "");
    Ok(())
}

/// Whether Pileus writes nothing to the API server for a while but renewals of its Lease.
async fn is_silent(cluster: &Cluster) -> Result<bool, Failure> {
    let before = writes(cluster)?;
    sleep(SETTLING).await;
    let [_, others] = since(&before, writes(cluster)?);
    Ok(others.is_empty())
}

fn print_start(before: &Writes, begin: &Used, calls: &Calls) {
    let [_, others] = since(before, begin.writes.clone());
    figures("A start that finds them");
    figure("reads of the cloud", &calls.reads().to_string(), "", "");
    figure("writes to the cloud", &calls.writes().to_string(), "0", "");
    // The event that it leads.
    figure("to the API server", &others.values().sum::<u64>().to_string(), "1", "");
    figure("processor time", &time(begin.cpu), "", "");
    figure("received from the API server", &size(begin.received), "", "");
    tell(&others);
}

fn print_calls(window: Duration, cloud: &Cloud, calls: &Calls, asked: &[String]) {
    let audits = window.as_secs().div_ceil(AUDIT.as_secs());
    let may = |reads: u64| (audits * reads).to_string();
    let count = |kinds: &[&str]| asked.iter().filter(|it| kinds.contains(&it.as_str())).count().to_string();
    let [machines, routes] = ["machines", "routes"].map(|kind| count(&[kind]));
    let balancers = count(&["addresses", "load-balancers", "shared-load-balancers"]);
    figures(&format!("Nothing happens for {window:?}"));
    figure("writes to the cloud", &calls.writes().to_string(), "0", "0");
    figure("reads of the cloud", &calls.reads().to_string(), &may(cloud.sweep() + READS), "");
    figure("of them of machines", &machines, &may(cloud.sweep()), "");
    figure("of routes", &routes, &may(cloud.sweep()), &upstream_lists(window));
    figure("of load balancers", &balancers, &may(READS - cloud.sweep()), "0");
}

fn print_rest(begin: &Used, end: Used, [steady, peak]: [u64; 2]) {
    let (cpu, received) = (end.cpu.saturating_sub(begin.cpu), end.received - begin.received);
    let [leases, others] = since(&begin.writes, end.writes);
    figure("writes other than Lease renewals", &others.values().sum::<u64>().to_string(), "0", "");
    figure("Lease renewals", &leases.values().sum::<u64>().to_string(), "", "");
    figure("processor time", &time(cpu), "", "");
    figure("received from the API server", &size(received), "", "");
    figure("memory, steady", &size(steady), &size(MEMORY), "");
    figure("memory, at most", &size(peak), &size(MEMORY), "");
    tell(&others);
}

/// Upstream lists all routes each 10 s.
fn upstream_lists(window: Duration) -> String {
    (window.as_secs() / 10).to_string()
}

/// Prints unnecessary writes.
fn tell(writes: &Writes) {
    for (what, count) in writes {
        note(&format!("{count} times: {what}"));
    }
}
