//! Pileus in a separate process, and measurements from outside.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pileus_dev::Process;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Failure;
use crate::cluster::DEADLINE;
use crate::machine::field;

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
    /// Starts it.
    pub(crate) fn start(command: &Command) -> Result<Self, Failure> {
        let started = Timestamp::now();
        Ok(Self { process: Process::start("pileus", command)?, started })
    }

    /// Waits until it has said so in its log.
    pub(crate) async fn says(&self, text: &str) -> Result<(), Failure> {
        self.process.await_line(|line| line.contains(text), DEADLINE).await?;
        Ok(())
    }

    /// Waits until so many Nodes were initialised, and says when each was, by Pileus' own log.
    pub(crate) async fn initialised(&mut self, count: usize) -> Result<Vec<Timestamp>, Failure> {
        let waited = Instant::now();
        loop {
            // Not more often: to look costs the machine time that is being measured.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let lines = self.process.log();
            let done = lines.iter().filter(|line| is_initialised(line));
            if done.clone().count() >= count {
                return done.map(|line| time_of(line)).collect();
            }
            if waited.elapsed() > DEADLINE || self.process.ended().is_some() {
                let problem =
                    format!("has initialised {} of {count} nodes in {:?}", done.count(), waited.elapsed());
                return Err(self.process.failed(&problem).into());
            }
        }
    }

    /// Ends it as an upgrade does, and says when it initialised its last Node.
    pub(crate) async fn last_before_its_end(self) -> Result<Timestamp, Failure> {
        self.process.signal(Signal::TERM)?;
        self.says("\"stopped\"").await?;
        let last = self.process.log().into_iter().rfind(|line| is_initialised(line));
        self.stop().await?;
        time_of(&last.ok_or("it has initialised no node")?)
    }

    /// When it was started.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
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

    /// The lines of its log so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.process.log()
    }

    /// Its metrics.
    pub(crate) async fn metrics(&self) -> Result<String, Failure> {
        self.get("/metrics").await
    }

    /// Probes it as a kubelet does.
    pub(crate) async fn probe(&self) -> Result<(), Failure> {
        for path in ["/livez", "/readyz"] {
            let answer = self.get(path).await?;
            if !answer.starts_with("HTTP/1.1 200 ") {
                return Err(format!("{path} says: {answer}").into());
            }
        }
        Ok(())
    }

    /// The answer of its admin server.
    async fn get(&self, path: &str) -> Result<String, Failure> {
        let is_address = |line: &str| line.contains("serving /livez, /readyz and /metrics");
        let line: Value = serde_json::from_str(&self.process.await_line(is_address, DEADLINE).await?)?;
        let address = line.get("address").and_then(Value::as_str).ok_or("no address of the admin server")?;
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Ends it as an upgrade does.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        self.process.stop(DEADLINE).await?;
        Ok(())
    }
}

/// Whether a line of its log tells of a Node that it has initialised.
fn is_initialised(line: &str) -> bool {
    line.contains("\"node initialized\"")
}

fn time_of(line: &str) -> Result<Timestamp, Failure> {
    let line: Value = serde_json::from_str(line)?;
    Ok(line.get("timestamp").and_then(Value::as_str).unwrap_or_default().parse()?)
}

/// From one moment to a later one.
pub(crate) fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

/// The processor time of a process so far.
pub(crate) fn cpu(pid: u32) -> Result<Duration, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the name, which may hold anything: utime is the 12th and stime the 13th field, in ticks of 10 ms.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks = fields.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}
