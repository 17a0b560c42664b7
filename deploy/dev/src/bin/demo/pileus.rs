//! A Pileus process, seen as an operator sees it: log, probes and metrics.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pileus_dev::{Error, Process, artifact};
use tokio::time::sleep;

use crate::http_client::HttpClient;

/// How long a start may take: a second in a debug build, most of it to compile the provider, and longer on a busy machine.
const START: Duration = Duration::from_mins(1);
/// How long an expected change may take. The longest is the two seconds of an endless loop.
const SOON: Duration = Duration::from_mins(1);
/// How long a stop may take: Pileus first finishes the calls that are in flight.
const GRACE: Duration = Duration::from_secs(10);
/// The time between two reads while waiting for a change.
const PAUSE: Duration = Duration::from_millis(20);

/// The minimum number of probes, so that some follow the event that was waited for.
const PROBES: u32 = 20;

/// How to start a process.
pub(crate) struct Options<'a> {
    /// The CloudProvider document. None where Pileus follows the resources of the cluster.
    pub(crate) document: Option<&'a Path>,
    /// The kubeconfig of Pileus' service account.
    pub(crate) kubeconfig: &'a Path,
    /// The folder where processes keep compiled code.
    pub(crate) compiled: &'a Path,
    /// The folder where processes keep components from registries.
    pub(crate) store: &'a Path,
    /// The file for the log.
    pub(crate) log: &'a Path,
    /// Further flags.
    pub(crate) flags: &'a [&'a str],
}

/// A running Pileus. It ends when this is dropped.
pub(crate) struct Pileus {
    process: Process,
    pub(crate) http: HttpClient,
    /// The time from the start of the process until `/readyz` succeeded: the provider is loaded and all Nodes are known.
    pub(crate) ready_after: Duration,
}

/// One line of `/metrics`.
pub(crate) struct Metric {
    /// The name with its labels.
    series: String,
    /// Its value.
    value: u64,
}

/// With spaces between the labels, where a long line can be broken.
impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.series.replace("\",", "\", "), self.value)
    }
}

/// The results of probing `/livez` and `/readyz`, all of which succeeded.
pub(crate) struct ProbeResults {
    /// The number of probes.
    pub(crate) count: u32,
    /// The duration of the slowest probe.
    pub(crate) slowest: Duration,
}

impl Pileus {
    /// Starts Pileus and waits until it is ready.
    pub(crate) async fn start(name: &str, options: Options<'_>) -> Result<Self, Error> {
        let Options { document, kubeconfig, compiled, store, log, flags } = options;
        let begun = Instant::now();
        let mut command = Command::new(artifact::program("pileus")?);
        command.arg("run").arg("--kubeconfig").arg(kubeconfig).arg("--store").arg(store);
        match document {
            Some(document) => command.arg("--provider").arg(document),
            // Its registry and its cloud are on this machine.
            None => command.arg("--provider-node-access"),
        };
        command.arg("--compiled-code").arg(compiled).args(["--admin-address", "127.0.0.1:0"]);
        command.args(flags).env_remove("PILEUS_LOG");
        let process = Process::start(&format!("pileus {name}"), &command)?;
        process.copy_log(log)?;
        let serving = process.await_line(|line| line.contains("serving /livez"), START).await?;
        let address = serving.rsplit("address=").next().unwrap_or_default();
        let http = HttpClient::new(&format!("http://{address}"));
        let mut pileus = Self { process, http, ready_after: Duration::ZERO };
        while !pileus.is_ok("/readyz").await? {
            pileus.wait(begun, "is not ready").await?;
        }
        pileus.ready_after = begun.elapsed();
        Ok(pileus)
    }

    /// Waits until the process is the leader, as its log says.
    pub(crate) async fn await_leadership(&self) -> Result<(), Error> {
        self.process.await_line(|line| line.contains("became leader"), SOON).await.map(drop)
    }

    /// Waits until the line about leader election at `/readyz` has this part, and returns the line.
    pub(crate) async fn election_status(&mut self, part: &str) -> Result<String, Error> {
        let begun = Instant::now();
        loop {
            let answer = self.http.get("/readyz").await.map_err(|problem| self.failed(&problem))?;
            let line = answer.body.lines().find(|line| line.contains("leader-election"));
            if let Some(line) = line.filter(|line| answer.status == 200 && line.contains(part)) {
                return Ok(line.to_owned());
            }
            self.wait(begun, &format!("lacks \"{part}\" at /readyz")).await?;
        }
    }

    /// Waits until a series of this metric with these labels is above 0, and probes the process meanwhile.
    pub(crate) async fn await_metric(
        &mut self,
        name: &str,
        labels: &[&str],
    ) -> Result<(Metric, ProbeResults), Error> {
        let begun = Instant::now();
        let mut probes = ProbeResults { count: 0, slowest: Duration::ZERO };
        loop {
            for path in ["/livez", "/readyz"] {
                let sent = Instant::now();
                if !self.is_ok(path).await? {
                    return Err(self.failed(&format!("fails at {path}")));
                }
                probes.count += 1;
                probes.slowest = probes.slowest.max(sent.elapsed());
            }
            let metric = self.metric(name, labels).await?.filter(|metric| metric.value > 0);
            if let Some(metric) = metric.filter(|_| probes.count >= PROBES) {
                return Ok((metric, probes));
            }
            self.wait(begun, &format!("has no metric {name} with {labels:?}")).await?;
        }
    }

    /// How many requests the provider has made, from the cache or from the cloud.
    pub(crate) async fn provider_requests(&self) -> Result<u64, Error> {
        let answer = self.http.get("/metrics").await.map_err(|problem| self.failed(&problem))?;
        Ok(sum(&answer.body, "pileus_gate_requests_total"))
    }

    /// Stops the process with SIGTERM and waits for its end.
    pub(crate) async fn stop(self) -> Result<(), Error> {
        let gone = self.failed("failed when it was stopped");
        let status = self.process.stop(GRACE).await?;
        if status.success() { Ok(()) } else { Err(gone) }
    }

    /// An error about something that Pileus has not done, with the end of its log.
    pub(crate) fn with_log(&self, error: &Error) -> Error {
        self.failed(&format!("has not done what was expected: {error}"))
    }

    /// An error about this process, with the end of its log.
    pub(crate) fn failed(&self, problem: &str) -> Error {
        self.process.failed(problem)
    }

    async fn is_ok(&self, path: &str) -> Result<bool, Error> {
        let answer = self.http.get(path).await.map_err(|problem| self.failed(&problem))?;
        Ok(answer.status == 200)
    }

    async fn metric(&self, name: &str, labels: &[&str]) -> Result<Option<Metric>, Error> {
        let answer = self.http.get("/metrics").await.map_err(|problem| self.failed(&problem))?;
        Ok(find(&answer.body, name, labels))
    }

    async fn wait(&mut self, begun: Instant, problem: &str) -> Result<(), Error> {
        if self.process.ended().is_some() {
            return Err(self.failed("ended early"));
        }
        if begun.elapsed() > SOON {
            return Err(self.failed(&format!("{problem} after {SOON:?}")));
        }
        sleep(PAUSE).await;
        Ok(())
    }
}

/// The first series of this name that has all of these labels, each as `name="value"`.
fn find(metrics: &str, name: &str, labels: &[&str]) -> Option<Metric> {
    let is_wanted = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'))
            && labels.iter().all(|label| line.contains(label))
    };
    let (series, value) = metrics.lines().find(is_wanted)?.rsplit_once(' ')?;
    Some(Metric { series: series.to_owned(), value: value.parse().ok()? })
}

/// The sum of all series of this name.
fn sum(metrics: &str, name: &str) -> u64 {
    let values =
        metrics.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')));
    values.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_found_by_its_whole_name_and_all_labels() {
        let text = "# TYPE calls counter\n\
            calls_total_more{result=\"cpu\",function=\"lookup\"} 7\n\
            calls_total{result=\"ok\",function=\"lookup\"} 3\n\
            calls_total{result=\"cpu\",function=\"lookup\"} 1\n";
        let value = |labels: &[&str]| find(text, "calls_total", labels).map(|metric| metric.value);
        assert_eq!(value(&[r#"result="cpu""#, r#"function="lookup""#]), Some(1));
        assert_eq!(value(&[r#"function="lookup""#]), Some(3));
        assert_eq!(value(&[r#"result="trap""#]), None);
        assert_eq!(sum(text, "calls_total"), 4);
    }
}
