//! A Pileus process, seen from outside as an operator sees it: a log, probes and metrics.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use pileus_dev::{Error, Process, artifact};
use tokio::time::sleep;

use crate::web::Web;

/// Loading a provider takes a second in a debug build, most of it compilation; a busy machine may need longer.
const START: Duration = Duration::from_mins(1);
/// How long a provider may be stopped or an answer take that is waited for: the longest is a loop's two seconds.
const SOON: Duration = Duration::from_mins(1);
/// How long the end may take: what is under way is finished first.
const GRACE: Duration = Duration::from_secs(10);
/// Between two looks: a loop of two seconds is looked at some 60 times.
const PAUSE: Duration = Duration::from_millis(20);

/// At least so many probes, so that there are some after what was waited for, too.
const PROBES: u32 = 20;

/// What a process is started with.
pub(crate) struct Setting<'a> {
    /// The CloudProvider document.
    pub(crate) document: &'a Path,
    /// The kubeconfig of Pileus' service account.
    pub(crate) kubeconfig: &'a Path,
    /// Where compiled code is kept between the processes.
    pub(crate) compiled: &'a Path,
    /// Where its log goes.
    pub(crate) log: &'a Path,
    /// What else is on its command line.
    pub(crate) flags: &'a [&'a str],
}

/// A running Pileus. Ends when dropped.
pub(crate) struct Pileus {
    process: Process,
    pub(crate) web: Web,
    /// From the start of the process until `/readyz` said yes: the provider is loaded and the Nodes are known.
    pub(crate) ready_after: Duration,
}

/// One line of `/metrics`.
pub(crate) struct Metric {
    /// The series, as it stands there.
    series: String,
    /// Its value.
    value: u64,
}

/// With spaces between the labels, where a long line may break.
impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.series.replace("\",", "\", "), self.value)
    }
}

/// How `/readyz` and `/livez` answered while something was waited for.
pub(crate) struct Probes {
    /// How many there were; all said yes.
    pub(crate) count: u32,
    /// The longest that one took.
    pub(crate) slowest: Duration,
}

impl Pileus {
    /// Starts Pileus and waits until it is ready.
    pub(crate) async fn start(name: &str, setting: Setting<'_>) -> Result<Self, Error> {
        let Setting { document, kubeconfig, compiled, log, flags } = setting;
        let begun = Instant::now();
        let mut command = Command::new(artifact::program("pileus")?);
        command.arg("run").arg("--provider").arg(document).arg("--kubeconfig").arg(kubeconfig);
        command.arg("--compiled-code").arg(compiled).args(["--admin-address", "127.0.0.1:0"]);
        command.args(flags).env_remove("PILEUS_LOG");
        let process = Process::start(&format!("pileus {name}"), &command)?;
        process.copy_log(log)?;
        let serving = process.await_line(|line| line.contains("serving /livez"), START).await?;
        let address = serving.rsplit("address=").next().unwrap_or_default();
        let web = Web::new(&format!("http://{address}"));
        let mut pileus = Self { process, web, ready_after: Duration::ZERO };
        while !pileus.says_yes("/readyz").await? {
            pileus.wait(begun, "is not ready").await?;
        }
        pileus.ready_after = begun.elapsed();
        Ok(pileus)
    }

    /// Waits until it leads, as its log says.
    pub(crate) async fn leads(&self) -> Result<(), Error> {
        self.process.await_line(|line| line.contains("became leader"), SOON).await.map(drop)
    }

    /// Waits until `/readyz` says this of the election, and returns that line.
    pub(crate) async fn standing(&mut self, part: &str) -> Result<String, Error> {
        let begun = Instant::now();
        loop {
            let answer = self.web.get("/readyz").await.map_err(|problem| self.failed(&problem))?;
            let line = answer.body.lines().find(|line| line.contains("leader-election"));
            if let Some(line) = line.filter(|line| answer.status == 200 && line.contains(part)) {
                return Ok(line.to_owned());
            }
            self.wait(begun, &format!("does not say \"{part}\" at /readyz")).await?;
        }
    }

    /// Waits until a series of this metric with these labels is above 0, and probes it meanwhile.
    pub(crate) async fn await_metric(
        &mut self,
        name: &str,
        labels: &[&str],
    ) -> Result<(Metric, Probes), Error> {
        let begun = Instant::now();
        let mut probes = Probes { count: 0, slowest: Duration::ZERO };
        loop {
            for path in ["/livez", "/readyz"] {
                let asked = Instant::now();
                if !self.says_yes(path).await? {
                    return Err(self.failed(&format!("does not say yes to {path}")));
                }
                probes.count += 1;
                probes.slowest = probes.slowest.max(asked.elapsed());
            }
            let metric = self.metric(name, labels).await?.filter(|metric| metric.value > 0);
            if let Some(metric) = metric.filter(|_| probes.count >= PROBES) {
                return Ok((metric, probes));
            }
            self.wait(begun, &format!("shows no {name} of {labels:?}")).await?;
        }
    }

    /// How many requests its provider has made, whoever answered them.
    pub(crate) async fn requests(&self) -> Result<u64, Error> {
        let answer = self.web.get("/metrics").await.map_err(|problem| self.failed(&problem))?;
        Ok(sum(&answer.body, "pileus_gate_requests_total"))
    }

    /// Asks it to end and waits until it has.
    pub(crate) async fn stop(self) -> Result<(), Error> {
        let gone = self.failed("did not end well when it was asked to");
        let status = self.process.stop(GRACE).await?;
        if status.success() { Ok(()) } else { Err(gone) }
    }

    /// An error about something that Pileus should have done, with the end of its log.
    pub(crate) fn blame(&self, error: &Error) -> Error {
        self.failed(&format!("did not do what was waited for: {error}"))
    }

    /// An error about this process, with the end of its log.
    pub(crate) fn failed(&self, problem: &str) -> Error {
        self.process.failed(problem)
    }

    async fn says_yes(&self, path: &str) -> Result<bool, Error> {
        let answer = self.web.get(path).await.map_err(|problem| self.failed(&problem))?;
        Ok(answer.status == 200)
    }

    async fn metric(&self, name: &str, labels: &[&str]) -> Result<Option<Metric>, Error> {
        let answer = self.web.get("/metrics").await.map_err(|problem| self.failed(&problem))?;
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

/// The first series of that name that has all of the labels, each as `name="value"`.
fn find(metrics: &str, name: &str, labels: &[&str]) -> Option<Metric> {
    let ours = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'))
            && labels.iter().all(|label| line.contains(label))
    };
    let (series, value) = metrics.lines().find(ours)?.rsplit_once(' ')?;
    Some(Metric { series: series.to_owned(), value: value.parse().ok()? })
}

/// What all series of that name come to.
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
