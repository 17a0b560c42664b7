//! 1,000 Services of type LoadBalancer with a cloud that limits writes and takes 5 s for an operation. All are created
//! at once, then a Node joins, one leaves, and all are deleted; with a load balancer for each Service, or with a shared
//! one. Upstream was measured with the same work and cloud.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes;
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::cloud::{Calls, Cloud, LoadBalancer, Style};
use crate::cluster::{Cluster, DEADLINE, IMAGES};
use crate::ingress::{self, Watch};
use crate::report::{figure, figures, note, seconds, size};

/// How many Services there are.
const SERVICES: usize = 1_000;
/// How many Nodes there are at first.
const NODES: usize = 100;
/// What the cloud takes for an operation.
const OPERATION: Duration = Duration::from_secs(5);
/// The writes that the cloud lets through at once, and in each second after that.
const WRITES: (u64, f64) = (200, 10.0);
/// A bucket of 200 that gains 10 a second is full after 20 s; a new process takes it for empty, and the work before
/// leaves it so.
const FULL: Duration = Duration::from_secs(25);
/// How long calls are counted after all is done, as with upstream: unnecessary calls may still come.
const AFTERWARDS: Duration = Duration::from_secs(10);
/// Between two looks at what the cloud has.
const PAUSE: Duration = Duration::from_millis(250);
/// The target until all have ingress, and until all are gone: within 10 % of what the limit allows.
const ALL: Duration = Duration::from_secs(95);
/// And until a Node is in all load balancers.
const FOLLOWING: Duration = Duration::from_secs(85);
/// Reads and writes that it may take.
const READS: u64 = 200;
const MAKING: u64 = 1_100;
/// The design's 100 MiB are meant for 5,000 Nodes.
const MEMORY: u64 = 100 << 20;

/// Measures one of both ways.
pub(crate) async fn measure(style: Style) -> Result<(), Failure> {
    let cluster = Cluster::start(Options::default()).await?;
    let mut cloud = Cloud::start(NODES).await?;
    cloud.balance(style);
    cluster.settle(&cloud, |kubelet| kubelet.images(IMAGES)).await?;
    cloud.limit().await?;
    cloud.operations_take(OPERATION).await?;
    let pileus = cluster.pileus(&cloud)?;
    pileus.says("\"starting controllers\"").await?;
    let mut watch = Watch::begin(cluster.kubernetes.admin()).await?;

    sleep(FULL).await;
    let made = make(&cluster, &cloud, &mut watch).await?;
    print_made(style, &made, pileus.memory("VmHWM")?);
    sleep(FULL).await;
    print_targets(Targets::Join, style, &join(&cluster, &cloud, style).await?);
    sleep(FULL).await;
    print_targets(Targets::Leave, style, &leave(&cluster, &cloud, style).await?);
    sleep(FULL).await;
    print_deleted(style, &delete(&cluster, &cloud, &mut watch).await?);
    pileus.stop().await
}

/// Services that were created.
struct Made {
    /// Until the API server had all of them.
    created: Duration,
    /// First, half and all of them with ingress.
    times: [Duration; 3],
    calls: Calls,
}

async fn make(cluster: &Cluster, cloud: &Cloud, watch: &mut Watch) -> Result<Made, Failure> {
    cloud.forget_calls().await?;
    let from = Instant::now();
    ingress::create(cluster.kubernetes.admin(), SERVICES).await?;
    let created = from.elapsed();
    let times = watch.addressed(SERVICES).await?;
    let calls = cloud.calls().await?;
    if cloud.load_balancers().await?.iter().any(|it| it.machines.len() != NODES) {
        return Err(format!("a load balancer was told of without {NODES} machines").into());
    }
    let at = |percent: usize| times.get((times.len() - 1) * percent / 100).map_or(from, |time| *time);
    let times = [0, 50, 100].map(|percent| at(percent).saturating_duration_since(from));
    Ok(Made { created, times, calls })
}

/// The result for the load balancers of one phase.
struct Change {
    took: Duration,
    calls: Calls,
    /// What is left in the cloud.
    left: usize,
}

/// A Node registers, as all do: uninitialised.
async fn join(cluster: &Cluster, cloud: &Cloud, style: Style) -> Result<Change, Failure> {
    let name = format!("node-{}", NODES + 1);
    let machine = cloud.create(&name).await?;
    cloud.forget_calls().await?;
    let from = Instant::now();
    nodes::register(&cluster.kubernetes.admin(), [nodes::node(&name).images(IMAGES)]).await?;
    until(cloud, from, style, |it| it.machines.contains(&machine)).await
}

/// A Node is deleted, and its machine stays.
async fn leave(cluster: &Cluster, cloud: &Cloud, style: Style) -> Result<Change, Failure> {
    let machine = "m-000001".to_owned();
    cloud.forget_calls().await?;
    let from = Instant::now();
    let nodes: Api<Node> = Api::all(cluster.kubernetes.admin());
    nodes.delete("node-1", &DeleteParams::default()).await?;
    until(cloud, from, style, |it| !it.machines.contains(&machine)).await
}

/// Waits until all load balancers are so. To look takes of the quota that is being measured, so that is done once there
/// were as many writes as it takes.
async fn until(
    cloud: &Cloud,
    from: Instant,
    style: Style,
    is_so: impl Fn(&LoadBalancer) -> bool,
) -> Result<Change, Failure> {
    loop {
        let may_be_done = cloud.calls().await?.admitted_writes() >= needed(style);
        let all = if may_be_done { cloud.load_balancers().await? } else { Vec::new() };
        if !all.is_empty() && all.iter().all(&is_so) {
            let took = from.elapsed();
            sleep(AFTERWARDS).await;
            return Ok(Change { took, calls: cloud.calls().await?, left: all.len() });
        }
        if from.elapsed() > DEADLINE {
            let done = all.iter().filter(|it| is_so(it)).count();
            return Err(format!("{done} of {} load balancers are as they should be", all.len()).into());
        }
        sleep(PAUSE).await;
    }
}

async fn delete(cluster: &Cluster, cloud: &Cloud, watch: &mut Watch) -> Result<Change, Failure> {
    cloud.forget_calls().await?;
    let from = Instant::now();
    ingress::delete(cluster.kubernetes.admin(), SERVICES).await?;
    watch.gone(SERVICES).await?;
    let (took, calls) = (from.elapsed(), cloud.calls().await?);
    Ok(Change { took, calls, left: cloud.load_balancers().await?.len() + cloud.addresses().await? })
}

fn print_made(style: Style, made: &Made, peak: u64) {
    let Made { created, times: [first, half, all], calls } = made;
    let title = match style {
        Style::PerService => "services, a load balancer for each",
        Style::Shared => "services that share a load balancer",
    };
    figures(&format!("{SERVICES} {title}"));
    figure("first addressed", &seconds(*first), "", "5.20 s");
    figure("half of them", &seconds(*half), "", "88.00 s");
    figure("all of them", &seconds(*all), &seconds(ALL), "164.40 s");
    figure("writes", &calls.writes().to_string(), &MAKING.to_string(), "1000");
    figure("reads", &calls.reads().to_string(), &READS.to_string(), "14018");
    refused(calls, "10146");
    figure("peak memory", &size(peak), &size(MEMORY), "96.0 MiB");
    note(&format!(
        "the API server took {} to create them; the limit allows {}",
        seconds(*created),
        allowed(style, calls)
    ));
}

/// A change of the targets of all load balancers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Targets {
    Join,
    Leave,
}

fn print_targets(targets: Targets, style: Style, change: &Change) {
    let Change { took, calls, .. } = change;
    // Upstream was measured with a Node that joins alone.
    let (title, done, [all, writes, reads, throttled]) = match targets {
        Targets::Join => ("A node joins", "in all load balancers", ["88.10 s", "2650", "297", "1611"]),
        Targets::Leave => ("A node leaves", "in none any more", [""; 4]),
    };
    figures(title);
    figure(done, &seconds(*took), &seconds(FOLLOWING), all);
    figure("writes", &calls.writes().to_string(), &needed(style).to_string(), writes);
    figure("reads", &calls.reads().to_string(), "", reads);
    refused(calls, throttled);
    note(&format!("the limit allows {} of writes", seconds(writing(calls))));
}

fn print_deleted(style: Style, change: &Change) {
    let Change { took, calls, left } = change;
    figures("All services are deleted");
    figure("the last is gone", &seconds(*took), &seconds(ALL), "");
    figure("writes", &calls.writes().to_string(), &MAKING.to_string(), "");
    figure("reads", &calls.reads().to_string(), &READS.to_string(), "");
    refused(calls, "");
    figure("left in the cloud", &left.to_string(), "0", "");
    note(&format!("the limit allows {}", allowed(style, calls)));
}

/// The writes that other targets take.
fn needed(style: Style) -> u64 {
    match style {
        Style::PerService => SERVICES as u64,
        Style::Shared => 1,
    }
}

/// The design allows one in a hundred.
fn refused(calls: &Calls, upstream: &str) {
    let target = calls.all / 100;
    figure("of all these refused with 429", &calls.throttled.to_string(), &target.to_string(), upstream);
}

/// What the limit lets these calls be done in: that of the writes, and the operation that the last one begins. An address
/// takes one of its own before it can be used in a shared load balancer, and after it has been.
fn allowed(style: Style, calls: &Calls) -> String {
    let operations = match style {
        Style::PerService => 1,
        Style::Shared => 2,
    };
    let (writing, last) = (writing(calls), OPERATION * operations);
    format!(
        "{}: {} of writes and the last operation's {}",
        seconds(writing + last),
        seconds(writing),
        seconds(last)
    )
}

/// What a bucket that is full at the start allows so many writes in.
#[expect(clippy::cast_precision_loss, reason = "calls are below 2^52")]
fn writing(calls: &Calls) -> Duration {
    let (burst, per_second) = WRITES;
    Duration::from_secs_f64(calls.admitted_writes().saturating_sub(burst) as f64 / per_second)
}
