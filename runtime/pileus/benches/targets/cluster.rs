//! A real API server and the program as separate processes, and what is read off them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use pileus_dev::kubernetes::User;
use pileus_dev::{Kubernetes, Process, nodes};
use serde_json::Value;

use crate::Failure;
use crate::cloud::Cloud;
use crate::machine::field;

/// For everything that is waited for.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);
/// Deletions side by side.
const DELETIONS: usize = 32;

/// The cluster that Pileus works in. It ends when this is dropped.
pub(crate) struct Cluster {
    pub(crate) kubernetes: Kubernetes,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts the API server and installs the role that Pileus is shipped with. Then starts Pileus once, which leaves
    /// compiled code behind: all other starts are like a restart.
    pub(crate) async fn start() -> Result<Self, Failure> {
        let kubernetes = Kubernetes::start().await?;
        kubernetes.apply_role().await?;
        let cluster = Self { kubernetes, folder: tempfile::tempdir()? };
        let pileus = cluster.pileus(&Cloud::start(0).await?)?;
        pileus.process.await_line(|line| line.contains("\"provider loaded\""), DEADLINE).await?;
        pileus.stop().await?;
        Ok(cluster)
    }

    /// Starts Pileus, with the folder for compiled code that it always gets here.
    pub(crate) fn pileus(&self, cloud: &Cloud) -> Result<Pileus, Failure> {
        let document = self.folder.path().join("provider.yaml");
        fs::write(&document, cloud.document()?.to_string())?;
        let mut command = Command::new(program());
        command
            .args(["run", "--log-format", "json", "--admin-address", "127.0.0.1:0"])
            .arg("--provider")
            .arg(document)
            .arg("--kubeconfig")
            .arg(self.kubernetes.kubeconfig(User::Pileus))
            .arg("--compiled-code")
            .arg(self.folder.path().join("compiled"));
        let started = Timestamp::now();
        Ok(Pileus { process: Process::start("pileus", &command)?, started })
    }

    /// Registers Nodes `node-1` to `node-COUNT`, tainted.
    pub(crate) async fn register(&self, count: usize) -> Result<Vec<Node>, Failure> {
        let kubelets = (1..=count).map(|number| nodes::node(&format!("node-{number}")));
        Ok(nodes::register(&self.kubernetes.admin(), kubelets).await?)
    }

    /// How many Nodes have a provider ID and no taint of an uninitialised one.
    pub(crate) async fn initialised(&self) -> Result<usize, Failure> {
        let nodes = Api::<Node>::all(self.kubernetes.admin()).list(&ListParams::default()).await?;
        let specs = nodes.items.into_iter().filter_map(|node| node.spec);
        let is_initialised = |spec: &k8s_openapi::api::core::v1::NodeSpec| {
            let mut taints = spec.taints.iter().flatten();
            spec.provider_id.is_some() && taints.all(|taint| taint.key != nodes::UNINITIALIZED)
        };
        Ok(specs.filter(is_initialised).count())
    }

    /// Deletes Nodes `node-1` to `node-COUNT`.
    pub(crate) async fn delete(&self, count: usize) -> Result<(), Failure> {
        let api = Api::<Node>::all(self.kubernetes.admin());
        stream::iter(1..=count)
            .map(|number| {
                let api = api.clone();
                async move { api.delete(&format!("node-{number}"), &DeleteParams::default()).await }
            })
            .buffer_unordered(DELETIONS)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        Ok(())
    }
}

/// The program as it is built beside this bench.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_pileus"))
}

/// Pileus while it runs.
pub(crate) struct Pileus {
    process: Process,
    started: Timestamp,
}

impl Pileus {
    /// Waits until so many Nodes were initialised, and says when each was, from the start, by Pileus' own log.
    pub(crate) async fn initialised(&mut self, count: usize) -> Result<Vec<Duration>, Failure> {
        let waited = Instant::now();
        loop {
            // Not more often: to look costs the machine time that is being measured.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let lines = self.process.log();
            let done = lines.iter().filter(|line| line.contains("\"node initialised\""));
            if done.clone().count() >= count {
                return done.map(|line| self.time_of(line)).collect();
            }
            if waited.elapsed() > DEADLINE || self.process.ended().is_some() {
                let problem =
                    format!("has initialised {} of {count} nodes in {:?}", done.count(), waited.elapsed());
                return Err(self.process.failed(&problem).into());
            }
        }
    }

    fn time_of(&self, line: &str) -> Result<Duration, Failure> {
        let line: Value = serde_json::from_str(line)?;
        let at = line.get("timestamp").and_then(Value::as_str).unwrap_or_default();
        let at: Timestamp = at.parse()?;
        Ok(Duration::try_from(at.duration_since(self.started))?)
    }

    /// Processor time so far.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        cpu(self.process.id())
    }

    /// Its memory, by the name that `/proc/PID/status` has for it, in bytes.
    pub(crate) fn memory(&self, name: &str) -> Result<u64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        Ok(field(&status, name).trim_end_matches(" kB").parse::<u64>()? << 10)
    }

    /// Ends it as an upgrade does.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        self.process.stop(DEADLINE).await?;
        Ok(())
    }
}

/// The processor time of a process so far.
pub(crate) fn cpu(pid: u32) -> Result<Duration, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the name, which may hold anything: utime is the 12th and stime the 13th field, in ticks of 10 ms.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks = fields.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}
