//! The layer through which every call of a controller goes, in this process and without controllers: a client looks up a
//! machine each 20 ms, while builds are compiled, loaded, tried on a half of the lookups and switched to. Here each
//! lookup has a time of its own, so that a pause shows to the millisecond. Controllers look up all Nodes together that
//! have come within 100 ms.

use std::collections::BTreeMap;
use std::time::Duration;

use pileus_cloud::{Answer, Instances as _, NodeReference, Purpose};
use pileus_gate::{Config, Gate, Grant};
use pileus_host::swap::{CanaryShare, Release, Roles};
use pileus_host::{CodeCache, Compiler, Component, Engine, Guest, Limits, Metrics, Serving};
use pileus_loader::{Digest, Verified};
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::PACE;
use super::pause::{Answered, longest_pause, waits};
use crate::Failure;
use crate::calls;
use crate::cloud::{Cloud, PROVIDER};
use crate::image;
use crate::pileus::program;
use crate::report::{heading, note, row, time};

/// Machines of the cloud, which are looked up in turn.
const MACHINES: usize = 1_000;
/// How long a build is a canary, and how long it serves all calls before the next.
const CANARY: Duration = Duration::from_millis(200);
const SERVES: Duration = Duration::from_millis(200);
/// How long the compiler may take.
const COMPILING: Duration = Duration::from_mins(2);
/// The target for the longest pause.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// What the releases have in common.
struct Layer {
    serving: Serving,
    engine: Engine,
    gate: Gate,
    configuration: String,
    metrics: Metrics,
    limits: Limits,
}

/// Measures so many swaps.
pub(crate) async fn measure(swaps: usize) -> Result<(), Failure> {
    let cloud = Cloud::start(MACHINES).await?;
    let folder = tempfile::tempdir()?;
    let layer = Layer::new(&cloud, CodeCache::open(folder.path())?).await?;
    let first = layer.add(0).await?;
    layer.serving.assign(Roles { serving: Some(first), canary: None, is_active: true });

    let (stop, started) = (CancellationToken::new(), Instant::now());
    let looking_up = tokio::spawn(look_up(layer.serving.clone(), stop.clone()));
    let mut serving = first;
    for build in 1..=swaps {
        serving = layer.swap(serving, build).await?;
    }
    stop.cancel();
    let length = started.elapsed();
    let beside = looking_up.await?;

    let stop = CancellationToken::new();
    let looking_up = tokio::spawn(look_up(layer.serving.clone(), stop.clone()));
    sleep(length).await;
    stop.cancel();
    let quiet = looking_up.await?;
    print(swaps, length, &beside, &quiet);
    Ok(())
}

impl Layer {
    async fn new(cloud: &Cloud, compiled: CodeCache) -> Result<Self, Failure> {
        let compiler = Compiler::Child {
            program: program().to_owned(),
            arguments: vec![pileus::cli::COMPILE.into()],
            timeout: COMPILING,
        };
        let engine = Engine::start(Some(compiled), compiler)?;
        let mut registry = Registry::default();
        let (metrics, limits) = (Metrics::register(&mut registry), Limits::default());
        let configuration = cloud.configuration().to_string();
        let component = Component::load(&engine, verified(0)?).await?;
        let settings = component.configure(&configuration, &limits, &metrics).await?;
        let grant = Grant {
            tls: false,
            host: "127.0.0.1".parse()?,
            port: cloud.port()?,
            methods: vec!["*".parse()?],
            paths: vec!["/".parse()?],
            addresses: vec!["127.0.0.0/8".parse()?],
        };
        let config = Config { grants: vec![grant], rules: settings.rules, ..Config::new(PROVIDER) };
        let gate = Gate::new(config, &pileus_gate::Metrics::register(&mut registry))?;
        Ok(Self { serving: Serving::new(PROVIDER), engine, gate, configuration, metrics, limits })
    }

    /// Gets a build ready to serve, as a replica does.
    async fn add(&self, build: usize) -> Result<Release, Failure> {
        let verified = verified(build)?;
        let release = Release { component: verified.digest(), settings: Digest::of(&[]) };
        let component = Component::load(&self.engine, verified).await?;
        let Self { gate, configuration, metrics, limits, .. } = self;
        let description = component.describe(limits, metrics).await?;
        component.configure(configuration, limits, metrics).await?;
        let guest = Guest::new(component, PROVIDER, description, configuration, gate.clone(), metrics);
        self.serving.add(release, guest.with_limits(limits.clone()));
        Ok(release)
    }

    /// Goes over to a build, and returns its release.
    async fn swap(&self, serving: Release, build: usize) -> Result<Release, Failure> {
        let release = self.add(build).await?;
        let canary = CanaryShare { release, share: 50 };
        self.serving.assign(Roles { serving: Some(serving), canary: Some(canary), is_active: true });
        sleep(CANARY).await;
        self.serving.assign(Roles { serving: Some(release), canary: None, is_active: true });
        self.serving.drained(serving).await;
        self.serving.remove(serving);
        sleep(SERVES).await;
        Ok(release)
    }
}

fn verified(build: usize) -> Result<Verified, Failure> {
    Ok(Verified::from_operator(image::bytes(build)?, &format!("build {build}")))
}

/// The lookups of a client.
#[derive(Default)]
struct Lookups {
    answered: Vec<Answered>,
    /// How often a lookup failed with this error.
    failures: BTreeMap<String, usize>,
}

/// Looks up a machine each 20 ms until the stop, regardless of how long each takes.
async fn look_up(serving: Serving, stop: CancellationToken) -> Lookups {
    let nodes = calls::nodes(MACHINES);
    let (begin, mut pace, mut lookups) = (Instant::now(), interval(PACE), JoinSet::new());
    for node in nodes.into_iter().cycle() {
        let due = tokio::select! {
            () = stop.cancelled() => break,
            due = pace.tick() => due,
        };
        let (serving, due) = (serving.clone(), due.saturating_duration_since(begin));
        lookups.spawn(async move {
            look_up_one(&serving, node).await.map(|()| Answered { due, at: begin.elapsed() })
        });
    }
    let mut all = Lookups::default();
    for lookup in lookups.join_all().await {
        match lookup {
            Ok(answered) => all.answered.push(answered),
            Err(failure) => *all.failures.entry(failure).or_default() += 1,
        }
    }
    all
}

async fn look_up_one(serving: &Serving, node: NodeReference) -> Result<(), String> {
    let answers = serving.lookup(Purpose::Refresh, std::slice::from_ref(&node)).await;
    match answers.map_err(|error| error.message)?.pop() {
        Some(Ok(Answer::Found(_))) => Ok(()),
        Some(Err(error)) => Err(error.message),
        other => Err(format!("{other:?}")),
    }
}

fn print(swaps: usize, length: Duration, beside: &Lookups, quiet: &Lookups) {
    let columns = ["swaps", "quiet", "target"];
    heading(&format!("{swaps} swaps below a client, 50 lookups/s"), &columns);
    let both = [beside, quiet];
    let [of_swaps, of_quiet] = both.map(|lookups| waits(&lookups.answered));
    let line = |label: &str, percent: usize, target: &str| {
        let times = [&of_swaps, &of_quiet].map(|samples| time(samples.percentile(percent)));
        row(label, &[&times[..], &[target.to_owned()]].concat());
    };
    line("a lookup, median", 50, "");
    line("a lookup, p99", 99, &time(of_quiet.percentile(99) * 2));
    line("a lookup, the longest", 100, "");
    let pauses = both.map(|lookups| time(longest_pause(&lookups.answered)));
    row("the longest pause", &[&pauses[..], &[time(PAUSE)]].concat());
    let failures = both.map(|lookups| lookups.failures.values().sum::<usize>().to_string());
    row("lookups that failed", &[&failures[..], &["0".to_owned()]].concat());
    note(&format!(
        "{} lookups beside swaps, in {}; a quiet run as long",
        beside.answered.len(),
        time(length)
    ));
    for (failure, count) in beside.failures.iter().chain(&quiet.failures) {
        note(&format!("{count} times: {failure}"));
    }
}
