//! 5,000 settled Nodes with the heartbeats of their kubelets: the cost of Pileus while nothing happens.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;
use pileus_dev::Heartbeats;
use pileus_dev::kubernetes::{Options, Request};
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::cloud::Cloud;
use crate::cluster::{Cluster, DEADLINE};
use crate::pileus::Pileus;
use crate::relay::Relay;
use crate::report::{figure, figures, note, size, time};

/// How many Nodes, each of a real one's weight of 12 kB.
pub(crate) const NODES: usize = 5_000;
/// How long Pileus has to take everything in before the watching begins.
pub(crate) const SETTLING: Duration = Duration::from_secs(10);
/// What the design allows.
pub(crate) const MEMORY: u64 = 100 << 20;

/// What was used up to a moment.
pub(crate) struct Used {
    pub(crate) reads: u64,
    pub(crate) cpu: Duration,
    pub(crate) received: u64,
    /// What Pileus has written, as `VERB RESOURCE`.
    pub(crate) writes: Writes,
}

/// How often Pileus has written what, as `VERB RESOURCE`.
pub(crate) type Writes = BTreeMap<String, u64>;

/// Watches for so long.
pub(crate) async fn measure(window: Duration) -> Result<(), Failure> {
    let cluster = Cluster::start(Options { audit: true }).await?;
    let cloud = Cloud::start(NODES).await?;
    cluster.settle(&cloud, |kubelet| kubelet).await?;
    let _heartbeats = Heartbeats::start(&cluster.kubernetes).await?;
    all_have_leases(&cluster).await?;

    let relay = Relay::start(cluster.port()?).await?;
    let mut command = cluster.command(&cloud)?;
    command.env("KUBECONFIG", cluster.kubeconfig_through(relay.port)?);
    let pileus = Pileus::start(&command)?;
    pileus.says("\"starting controllers\"").await?;
    sleep(SETTLING).await;
    let begin = used(&cluster, &cloud, &relay, &pileus).await?;
    sleep(window).await;
    let end = used(&cluster, &cloud, &relay, &pileus).await?;
    let memory = [pileus.memory("VmRSS")?, pileus.memory("VmHWM")?];
    pileus.stop().await?;
    print(window, &cloud, &begin, end, memory);
    Ok(())
}

/// What was used until now.
pub(crate) async fn used(
    cluster: &Cluster,
    cloud: &Cloud,
    relay: &Relay,
    pileus: &Pileus,
) -> Result<Used, Failure> {
    // The processor time first: to read the audit log takes a while.
    let (cpu, received) = (pileus.cpu()?, relay.received());
    let reads = cloud.calls().await?.all;
    Ok(Used { reads, cpu, received, writes: writes(cluster)? })
}

/// What Pileus has written to the API server until now.
pub(crate) fn writes(cluster: &Cluster) -> Result<Writes, Failure> {
    let is_ours = |it: &Request| it.user.ends_with(":pileus") && it.is_write();
    let mut writes = Writes::new();
    for Request { verb, resource, .. } in cluster.kubernetes.requests()?.into_iter().filter(is_ours) {
        *writes.entry(format!("{verb} {resource}")).or_default() += 1;
    }
    Ok(writes)
}

/// What was written since then: renewals of the Lease, and all else.
pub(crate) fn since(begin: &Writes, mut end: Writes) -> [Writes; 2] {
    for (what, count) in begin {
        end.entry(what.clone()).and_modify(|all| *all -= count);
    }
    let (leases, others) =
        end.into_iter().filter(|(_, count)| *count > 0).partition(|(what, _)| what.ends_with(" leases"));
    [leases, others]
}

fn print(window: Duration, cloud: &Cloud, begin: &Used, end: Used, [steady, peak]: [u64; 2]) {
    let cpu = end.cpu.saturating_sub(begin.cpu);
    let [leases, others] = since(&begin.writes, end.writes);

    let reads = (end.reads - begin.reads).to_string();
    figures(&format!("{NODES} nodes, nothing happens for {window:?}"));
    figure("reads of the cloud in that time", &reads, &sweeps(cloud, window), &upstream_reads(window));
    figure("writes other than Lease renewals", &others.values().sum::<u64>().to_string(), "0", "");
    figure("Lease renewals", &leases.values().sum::<u64>().to_string(), "", "");
    figure("processor time", &time(cpu), "", &time(upstream_cpu(window)));
    figure("received from the API server", &size(end.received - begin.received), "", "");
    figure("memory, steady", &size(steady), &size(MEMORY), "");
    figure("memory, at most", &size(peak), &size(MEMORY), "231 MiB");
    let Used { reads, cpu, received, .. } = begin;
    let (cpu, received) = (time(*cpu), size(*received));
    note(&format!(
        "until {SETTLING:?} after the start: {received} received, {reads} reads of the cloud, {cpu} of processor time"
    ));
    note("upstream was measured without heartbeats and with nodes of half that weight");
    for (what, count) in others {
        note(&format!("{count} times: {what}"));
    }
}

/// Waits until each Node has its Lease: to create them takes the API server's time.
pub(crate) async fn all_have_leases(cluster: &Cluster) -> Result<(), Failure> {
    let leases = Api::<Lease>::namespaced(cluster.kubernetes.admin(), "kube-node-lease");
    let started = Instant::now();
    loop {
        let found = leases.list_metadata(&ListParams::default()).await?.items.len();
        if found >= NODES {
            return Ok(());
        }
        if started.elapsed() > DEADLINE {
            return Err(format!("{found} of {NODES} nodes have a Lease after {DEADLINE:?}").into());
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// The reads of a sweep each half hour.
fn sweeps(cloud: &Cloud, window: Duration) -> String {
    (window.as_secs().div_ceil(30 * 60) * cloud.sweep()).to_string()
}

/// Upstream's 59,000 reads an hour, which came in rounds of 5,000.
fn upstream_reads(window: Duration) -> String {
    format!("{:.0}", 59_000.0 * window.as_secs_f64() / 3_600.0)
}

/// Upstream's 4.6 s in 5 minutes.
fn upstream_cpu(window: Duration) -> Duration {
    Duration::from_millis(4_600).mul_f64(window.as_secs_f64() / 300.0)
}
