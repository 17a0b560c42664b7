//! Many Nodes that become initialized: Nodes that wait when Pileus starts, and Nodes that join while it runs; with an
//! unlimited cloud, and with Azure's quotas.

use std::time::Duration;

use jiff::Timestamp;
use pileus_dev::kubernetes::Options;

use crate::Failure;
use crate::cloud::{Calls, Cloud};
use crate::cluster::Cluster;
use crate::pileus::{Pileus, between};
use crate::report::{figure, figures, note, seconds, size};
use crate::server::{self, Floor, WRITERS};

/// How many Nodes.
const NODES: [usize; 2] = [1_000, 5_000];
/// How much longer than the API server's own time it may take.
const FACTOR: f64 = 1.5;
/// What the design allows at 5,000 Nodes.
const MEMORY: u64 = 100 << 20;

/// A variant of the bench.
#[derive(Clone, Copy)]
struct Case {
    count: usize,
    /// Whether Pileus runs already.
    is_running: bool,
    /// Whether the cloud has quotas.
    is_limited: bool,
}

/// What upstream took: all Nodes, calls, 429s, processor time, memory. Empty where it wasn't measured.
type Upstream = [&'static str; 5];

impl Case {
    /// With its flags tuned; where Nodes wait, without any limit of its own towards the API server.
    fn upstream(self) -> Upstream {
        match (self.count, self.is_running, self.is_limited) {
            (1_000, false, false) => ["3.0 s", "1000", "0", "1.4 s", "100 MiB"],
            (1_000, true, false) => ["4.0 s", "1000", "0", "", ""],
            (5_000, false, false) => ["15.6 s", "5000", "0", "6.5 s", "245 MiB"],
            (5_000, true, false) => ["24.3 s", "5000", "0", "", ""],
            (5_000, false, true) => ["191.0 s", "8489", "3489", "10.9 s", "218 MiB"],
            (5_000, true, true) => ["191.0 s", "8439", "3439", "", ""],
            _ => ["", "", "", "", ""],
        }
    }

    fn title(self) -> String {
        let when = if self.is_running { "join while it runs" } else { "wait when it starts" };
        let limits = if self.is_limited { ", quotas" } else { "" };
        format!("{} nodes {when}{limits}", self.count)
    }
}

/// What one run took.
struct Run {
    /// First, half and all of the Nodes.
    times: [Duration; 3],
    calls: Calls,
    cpu: Duration,
    server_cpu: Duration,
    memory: u64,
}

/// Measures all cases.
pub(crate) async fn measure() -> Result<(), Failure> {
    let cluster = Cluster::start(Options::default()).await?;
    for count in NODES {
        let floor = server::measure(&cluster, count).await?;
        for (is_limited, is_running) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = Case { count, is_running, is_limited };
            let mut cloud = Cloud::start(count).await?;
            if is_limited {
                cloud.limit().await?;
            }
            let run = run(&cluster, &cloud, case).await?;
            cluster.delete(count).await?;
            print(case, &floor, &cloud, &run);
        }
    }
    Ok(())
}

/// Pileus and the Nodes together, and what had been used before.
struct Begun {
    pileus: Pileus,
    from: Timestamp,
    cpu: Duration,
    server_cpu: Duration,
}

async fn begin(cluster: &Cluster, cloud: &Cloud, case: Case) -> Result<Begun, Failure> {
    if case.is_running {
        let pileus = cluster.pileus(cloud)?;
        pileus.says("\"starting controllers\"").await?;
        let (from, cpu, server_cpu) = (Timestamp::now(), pileus.cpu()?, cluster.cpu()?);
        cluster.register(case.count).await?;
        return Ok(Begun { pileus, from, cpu, server_cpu });
    }
    cluster.register(case.count).await?;
    let server_cpu = cluster.cpu()?;
    let pileus = cluster.pileus(cloud)?;
    Ok(Begun { from: pileus.started(), pileus, cpu: Duration::ZERO, server_cpu })
}

async fn run(cluster: &Cluster, cloud: &Cloud, case: Case) -> Result<Run, Failure> {
    let Begun { mut pileus, from, cpu, server_cpu } = begin(cluster, cloud, case).await?;
    let count = case.count;
    let mut times = pileus.initialised(count).await?;
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len() - 1) * percent / 100).map_or(from, |time| *time);
    let run = Run {
        times: [0, 50, 100].map(|percent| between(from, at(percent))),
        calls: cloud.calls().await?,
        cpu: pileus.cpu()?.saturating_sub(cpu),
        server_cpu: cluster.cpu()?.saturating_sub(server_cpu),
        memory: pileus.memory("VmHWM")?,
    };
    cluster.are_initialised(count).await?;
    pileus.stop().await?;
    Ok(run)
}

fn print(case: Case, floor: &Floor, cloud: &Cloud, run: &Run) {
    let [all, calls, throttled, cpu, memory] = case.upstream();
    let Run { times: [first, half, last], calls: ours, .. } = run;
    // Those that join while it runs have to be created first.
    let own = floor.patching + if case.is_running { floor.creating } else { Duration::ZERO };
    figures(&case.title());
    figure("first node initialised", &seconds(*first), "", "");
    figure("half of them", &seconds(*half), "", "");
    figure("all of them", &seconds(*last), &seconds(own.mul_f64(FACTOR)), all);
    figure("calls to the cloud", &ours.all.to_string(), &(2 * cloud.sweep()).to_string(), calls);
    figure("of them refused with 429", &ours.throttled.to_string(), "0", throttled);
    figure("processor time", &seconds(run.cpu), "", cpu);
    figure("most memory", &size(run.memory), &size(MEMORY), memory);
    let ratio = last.as_secs_f64() / own.as_secs_f64();
    note(&format!(
        "API server and etcd: {} of processor time, {} for the same patches by a plain client with {WRITERS} writers",
        seconds(run.server_cpu),
        seconds(floor.cpu)
    ));
    note(&format!("{ratio:.2} times the {} that such a client takes; target {FACTOR}", seconds(own)));
}
