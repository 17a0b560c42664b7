//! The Azure provider with a simulator of Azure, which has the quotas that Azure publishes: 5,000 Nodes in 10 scale sets join
//! and are refreshed, some of them are not ready, and 400 get routes; then the node manager of one machine, and the time of a
//! call in the sandbox.

mod cloud;
mod node_manager;
mod sandbox;

use std::time::Duration;

use jiff::Timestamp;
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes::{self, Ready, set_ready};
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::cluster::{Cluster, DEADLINE, IMAGES};
use crate::pileus::{Pileus, between};
use crate::quiet::SETTLING;
use crate::report::{figure, figures, note, seconds, size};
use crate::routes::RANGES;
use crate::vanishing::{Departures, GRACE};
use cloud::{Cloud, Requests};

/// Scale sets, which share the machines.
const SETS: usize = 10;
/// What the design allows until all Nodes are initialized, from the moment at which the last of them is there.
const JOINING: Duration = Duration::from_mins(1);
/// How many periods of refreshes are watched. An hour has as many by default.
const PERIODS: u32 = 2;
/// How long Nodes that are not ready are watched.
const WINDOW: Duration = Duration::from_mins(1);
/// The most routes of a table.
const ROUTES: usize = 400;
/// How long a write of a route table takes in the cloud.
const OPERATION: Duration = Duration::from_secs(3);
/// What the design allows until an instance that is gone is noticed.
const NOTICED: Duration = Duration::from_secs(15);

/// Measures it with so many Nodes. Refreshes are watched for so long.
pub(crate) async fn measure(count: usize, window: Duration) -> Result<(), Failure> {
    let bench = Bench {
        cluster: Cluster::without_code(Options::default()).await?,
        cloud: Cloud::start(count).await?,
    };
    // Leaves compiled code behind.
    let pileus = bench.start(&[]).await?;
    pileus.stop().await?;
    bench.join(count).await?;
    bench.refresh(window).await?;
    bench.not_ready(count / SETS).await?;
    // One of them is gone by now.
    bench.routes(ROUTES.min(count - 1)).await?;
    node_manager::measure(&bench).await?;
    sandbox::measure(&bench.cloud).await
}

struct Bench {
    cluster: Cluster,
    cloud: Cloud,
}

impl Bench {
    async fn start(&self, flags: &[&str]) -> Result<Pileus, Failure> {
        let mut command = self.cluster.command_with(&self.cloud.document()?)?;
        let pileus = Pileus::start(command.args(flags))?;
        pileus.says("\"starting controllers\"").await?;
        Ok(pileus)
    }

    async fn join(&self, count: usize) -> Result<(), Failure> {
        let mut pileus = self.start(&[]).await?;
        self.cloud.forget_requests().await?;
        let kubelets = self.cloud.names.iter().enumerate().map(|(place, name)| {
            let kubelet = nodes::node(name).images(IMAGES);
            if place < ROUTES { kubelet.pod_cidrs(&[range(place)]) } else { kubelet }
        });
        let begin = Timestamp::now();
        nodes::register(&self.cluster.kubernetes.admin(), kubelets).await?;
        let registered = Timestamp::now();
        let last = pileus.initialised(count).await?.into_iter().max().unwrap_or(registered);
        let (requests, memory) = (self.cloud.requests().await?, pileus.memory("VmHWM")?);
        self.cluster.are_initialised(count).await?;
        pileus.stop().await?;
        figures(&format!("Azure: {count} nodes in {SETS} scale sets join, quotas"));
        figure("registered within", &seconds(between(begin, registered)), "", "");
        figure(
            "all initialised, from the last's creation",
            &seconds(between(registered, last)),
            &seconds(JOINING),
            "",
        );
        print(&requests, Some(2 * self.cloud.sweep()));
        figure("peak memory", &size(memory), &size(crate::quiet::MEMORY), "");
        print_kinds(&requests);
        Ok(())
    }

    async fn refresh(&self, window: Duration) -> Result<(), Failure> {
        let period = format!("{}s", (window / PERIODS).as_secs());
        let pileus = self.start(&["--node-status-update-frequency", &period]).await?;
        // The sweep of the start waits for what the quotas of the process before it have left.
        let began = Instant::now();
        while refreshed(&pileus.metrics().await?) < self.cloud.names.len() {
            if began.elapsed() > DEADLINE {
                return Err(format!("not all nodes are refreshed after {DEADLINE:?}").into());
            }
            sleep(Duration::from_millis(200)).await;
        }
        self.cloud.forget_requests().await?;
        sleep(window).await;
        let requests = self.cloud.requests().await?;
        pileus.stop().await?;
        figures(&format!("Azure: nothing happens for {PERIODS} refresh periods"));
        print(&requests, Some(u64::from(PERIODS) * self.cloud.sweep()));
        note(&format!("the period is {period} here and 30m by default: an hour has {PERIODS} sweeps"));
        print_kinds(&requests);
        Ok(())
    }

    async fn not_ready(&self, count: usize) -> Result<(), Failure> {
        let silent: Vec<_> = self.cloud.names.iter().rev().take(count).cloned().collect();
        let client = self.cluster.kubernetes.admin();
        set_ready(&client, silent.iter().cloned(), Ready::False).await?;
        let pileus = self.start(&[]).await?;
        sleep(GRACE).await;
        self.cloud.forget_requests().await?;
        sleep(WINDOW).await;
        let requests = self.cloud.requests().await?;

        let departures = Departures::watch(&self.cluster).await?;
        let from = Instant::now();
        self.cloud.delete(silent.first().ok_or("no node is silent")?).await?;
        let gone = departures.wait_for(1).await?;
        let noticed = gone.last().map(|at| at.saturating_duration_since(from)).unwrap_or_default();
        pileus.stop().await?;
        figures(&format!("Azure: {count} nodes not ready for {WINDOW:?}, their machines run"));
        print(&requests, None);
        figure("of them reads of one machine", &requests.single_reads().to_string(), "0", "");
        figure("from a machine's end to its node's", &seconds(noticed), &seconds(NOTICED), "");
        print_kinds(&requests);
        set_ready(&client, silent.into_iter().skip(1), Ready::True).await?;
        Ok(())
    }

    async fn routes(&self, count: usize) -> Result<(), Failure> {
        self.cloud.operations_take(OPERATION).await?;
        self.cloud.forget_requests().await?;
        let pileus = self.start(&[RANGES]).await?;
        let from = Instant::now();
        while created_routes(&pileus.metrics().await?) < count {
            if from.elapsed() > DEADLINE {
                return Err(format!("not all of {count} routes are there after {DEADLINE:?}").into());
            }
            sleep(Duration::from_millis(200)).await;
        }
        let took = from.elapsed();
        // The operation of the last write is over, and what comes after it would show.
        sleep(SETTLING).await;
        let requests = self.cloud.requests().await?;
        pileus.stop().await?;
        figures(&format!("Azure: routes for {count} nodes, writes take {OPERATION:?}"));
        figure("all there, from the start", &seconds(took), "", "");
        figure("writes of the table", &requests.writes().to_string(), "1", "");
        figure("of all requests refused with 429", &requests.throttled().to_string(), "0", "");
        print_kinds(&requests);
        Ok(())
    }
}

/// The Pod CIDR of a Node.
fn range(place: usize) -> String {
    format!("10.{}.{}.0/24", 128 + place / 256, place % 256)
}

/// The routes that were created, by the metrics.
fn created_routes(metrics: &str) -> usize {
    sum(metrics, |line| {
        let is_change = line.starts_with("pileus_route_changes_total{");
        is_change && line.contains("action=\"create\"") && line.contains("result=\"done\"")
    })
}

/// How often a Node was refreshed, by the metrics.
fn refreshed(metrics: &str) -> usize {
    sum(metrics, |line| line.starts_with("pileus_node_refreshes_total{"))
}

/// The sum of the samples in these lines.
fn sum(metrics: &str, is_counted: impl Fn(&str) -> bool) -> usize {
    let lines = metrics.lines().filter(|line| is_counted(line));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum()
}

fn print(requests: &Requests, reads: Option<u64>) {
    let target = reads.map(|reads| reads.to_string()).unwrap_or_default();
    figure("reads of the cloud", &requests.reads().to_string(), &target, "");
    figure("writes to the cloud", &requests.writes().to_string(), "0", "");
    figure("of all these refused with 429", &requests.throttled().to_string(), "0", "");
}

fn print_kinds(requests: &Requests) {
    for (kind, count) in requests.by_kind() {
        note(&format!("{count} times {kind}"));
    }
}
