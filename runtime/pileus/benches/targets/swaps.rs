//! A quiet run of some minutes in which 5,000 Nodes are settled, 50 Nodes a second join and are looked up, and 200 Services
//! are made; then 100 swaps in a row beside the same load. Each swap is to a build that differs from all others, so it is
//! fetched, compiled, compared in a dry run, tried on a half of the lookups, and observed. The quiet run is the first, so
//! that memory that the load takes isn't counted as that of swaps.
//!
//! The operator names another tag each time: that is noticed at once, while a tag that moves is resolved each 10 s at most,
//! which would make the run four times as long.

mod layer;
mod load;
mod log;
mod pause;
mod progress;
mod tables;

use std::time::Duration;

use jiff::Timestamp;
use pileus_dev::kubernetes::Options;
use pileus_dev::nodes;
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::cloud::{Calls, Cloud};
use crate::cluster::{Cluster, IMAGES};
use crate::image::{self, Image};
use crate::ingress::Watch;
use crate::pileus::Pileus;
use crate::quiet::SETTLING;
pub(crate) use layer::measure as serving;
use load::{EXCLUDE, Load, MACHINES};
use log::Line;
use pause::Answered;
use progress::Progress;

/// A lookup is due so often.
const PACE: Duration = Duration::from_millis(20);
/// Settled Nodes and Services for each swap.
const NODES: usize = 50;
const SERVICES: usize = 2;
/// Settled Nodes that load balancers send traffic to, as in the other measurements of Services.
const TARGETS: usize = 100;
/// How long the quiet run is for each swap that follows: about as long as a swap takes.
const QUIET_FOR_SWAP: Duration = Duration::from_secs(4);
/// How long the quiet run is at most. All Services are made by then.
const QUIET: Duration = Duration::from_mins(5);
/// The memory after these swaps is printed, in percent of all.
const MEMORY_AT: [usize; 3] = [10, 50, 100];

/// Measures so many swaps.
pub(crate) async fn measure(swaps: usize) -> Result<(), Failure> {
    Scene::set(swaps).await?.measure().await
}

/// What the swaps are made in.
struct Scene {
    swaps: usize,
    cluster: Cluster,
    cloud: Cloud,
    image: Image,
    /// The digests of the builds, of which the first runs.
    builds: Vec<String>,
    pileus: Pileus,
    progress: Progress,
    watch: Watch,
}

impl Scene {
    /// Settled Nodes, and Pileus with the first build.
    async fn set(swaps: usize) -> Result<Self, Failure> {
        let cluster = Cluster::without_code(Options::default()).await?;
        image::define(&cluster).await?;
        let cloud = Cloud::start(swaps * NODES + MACHINES).await?;
        let machines = cloud.machines().await?;
        let settled = machines.iter().take(swaps * NODES).enumerate().map(|(place, machine)| {
            let kubelet = nodes::settled(machine).images(IMAGES);
            if place < TARGETS { kubelet } else { kubelet.label(EXCLUDE, "") }
        });
        nodes::register(&cluster.kubernetes.admin(), settled).await?;
        let (image, mut builds) = (Image::start()?, Vec::new());
        for build in 0..=swaps {
            builds.push(image.push(build).await?);
        }
        let mut progress = Progress::watch(cluster.kubernetes.admin());
        image::apply(&cluster, &image.document(&cloud, 0)?).await?;
        let mut command = cluster.command_of_resources();
        command.args(["--log-filter", log::FILTER]);
        let pileus = Pileus::start(&command)?;
        pileus.says("\"starting controllers\"").await?;
        if let Some(digest) = builds.first() {
            progress.follow(digest).await?;
        }
        let watch = Watch::begin(cluster.kubernetes.admin()).await?;
        sleep(SETTLING).await;
        Ok(Self { swaps, cluster, cloud, image, builds, pileus, progress, watch })
    }

    async fn measure(mut self) -> Result<(), Failure> {
        let services = self.swaps * SERVICES;
        let mut memory = vec![("before the load".to_owned(), self.pileus.memory("VmRSS")?)];
        let load = self.begin_load(1).await?;
        sleep((QUIET_FOR_SWAP * u32::try_from(self.swaps)?).min(QUIET)).await;
        let quiet = self.end_load(load, services).await?;
        memory.push(("after the quiet run".to_owned(), self.pileus.memory("VmRSS")?));

        let load = self.begin_load(services + 1).await?;
        let started = Instant::now();
        let mut swaps = Vec::new();
        for build in 1..=self.swaps {
            image::apply(&self.cluster, &self.image.document(&self.cloud, build)?).await?;
            swaps.push(self.progress.follow(self.builds.get(build).ok_or("no such build")?).await?);
            if MEMORY_AT.iter().any(|percent| percent * self.swaps == build * 100) {
                memory.push((format!("after swap {build}"), self.pileus.memory("VmRSS")?));
            }
        }
        let length = started.elapsed();
        let beside = self.end_load(load, 2 * services).await?;
        memory.push(("after its load".to_owned(), self.pileus.memory("VmRSS")?));
        let peak = self.pileus.memory("VmHWM")?;
        self.pileus.stop().await?;
        tables::print_swaps(&swaps);
        tables::print_load((services, length), [&beside, &quiet]);
        tables::print_reads(self.cloud.sweep(), self.swaps, [&beside, &quiet]);
        tables::print_lookups(&swaps, &beside);
        tables::print_memory(&memory, peak);
        Ok(())
    }

    async fn begin_load(&self, first_service: usize) -> Result<Begun, Failure> {
        self.cloud.forget_calls().await?;
        let failed = failed_calls(&self.pileus.metrics().await?);
        let services = first_service..=first_service + self.swaps * SERVICES - 1;
        let at = Timestamp::now();
        Ok(Begun { at, failed, load: Load::begin(&self.cluster, self.swaps * NODES + 1, services) })
    }

    /// Waits until as many Services as there are now have ingress, too.
    async fn end_load(&mut self, begun: Begun, services: usize) -> Result<Run, Failure> {
        let Begun { at, failed, load } = begun;
        let joined = load.end().await?;
        self.watch.addressed(services).await?;
        let calls = self.cloud.calls().await?;
        let lines = log::lines(&self.pileus, [at, Timestamp::now()]);
        let failed = failed_calls(&self.pileus.metrics().await?).saturating_sub(failed);
        let missing = services.saturating_sub(self.cloud.load_balancers().await?.len());
        let (answered, unanswered) = load::initialised(at, &joined, &lines);
        Ok(Run { answered, unanswered, lines, calls, failed, missing })
    }
}

/// A load that goes on.
struct Begun {
    at: Timestamp,
    /// The calls that had failed before.
    failed: u64,
    load: Load,
}

/// What was observed of a load.
struct Run {
    /// The Nodes that joined and were initialized.
    answered: Vec<Answered>,
    /// How many were not.
    unanswered: usize,
    lines: Vec<Line>,
    calls: Calls,
    /// The provider's calls that failed.
    failed: u64,
    /// Load balancers that the cloud lacks at its end.
    missing: usize,
}

/// The calls of the provider that did not end well, by the metrics.
fn failed_calls(metrics: &str) -> u64 {
    let calls = metrics.lines().filter(|line| line.starts_with("pileus_provider_calls_total{"));
    let failed = calls.filter(|line| !line.contains("result=\"ok\""));
    failed.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
