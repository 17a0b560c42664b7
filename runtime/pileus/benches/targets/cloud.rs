//! The simulated cloud as a process of its own, with a latency like a real one's.

use std::process::Command;

use pileus_dev::{Process, artifact};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Failure;
use crate::cluster::DEADLINE;

/// What each answer takes.
const LATENCY_MS: u64 = 20;

/// The largest page of a list, which is what the provider asks for.
const PAGE: usize = 1_000;

/// A cloud. It ends when this is dropped.
pub(crate) struct Cloud {
    _process: Process,
    address: String,
    machines: usize,
}

impl Cloud {
    /// Starts a cloud with machines `node-1` to `node-MACHINES`.
    pub(crate) async fn start(machines: usize) -> Result<Self, Failure> {
        let mut command = Command::new(artifact::program("simulated-cloud")?);
        command.args(["--machines", &machines.to_string()]);
        let process = Process::start("simulated-cloud", &command)?;
        let line = process.await_line(|line| line.contains("http://"), DEADLINE).await?;
        let address = line.rsplit("http://").next().unwrap_or_default().to_owned();
        let cloud = Self { _process: process, address, machines };
        let faults = json!({"latency": {"fixedMs": LATENCY_MS}});
        cloud.ask("PUT", "/admin/faults", &faults.to_string()).await?;
        Ok(cloud)
    }

    /// The calls that a list of all machines takes.
    pub(crate) fn sweep(&self) -> usize {
        self.machines.div_ceil(PAGE)
    }

    /// The calls that it was sent.
    pub(crate) async fn calls(&self) -> Result<u64, Failure> {
        let counters: Value = serde_json::from_str(&self.ask("GET", "/admin/counters", "").await?)?;
        let kinds = counters.get("calls").and_then(Value::as_object).into_iter();
        let outcomes = kinds.flat_map(|kinds| kinds.values()).filter_map(Value::as_object);
        Ok(outcomes.flat_map(|outcomes| outcomes.values()).filter_map(Value::as_u64).sum())
    }

    /// The CloudProvider document for it.
    pub(crate) fn document(&self) -> Result<Value, Failure> {
        let (host, port) = self.address.rsplit_once(':').ok_or("no port")?;
        let port: u16 = port.parse()?;
        Ok(json!({
            "apiVersion": "pileus.dev/v1alpha1",
            "kind": "CloudProvider",
            "metadata": {"name": "simulated"},
            "spec": {
                "source": {"file": artifact::component("simulated-provider")?},
                "configuration": {"endpoint": format!("http://{}", self.address)},
                "grants": [{"host": host, "port": port, "tls": false, "addresses": ["127.0.0.0/8"]}],
            },
        }))
    }

    /// A request of its operator; the body of the answer.
    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let (host, length) = (&self.address, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 2") => Ok(body.to_owned()),
            _ => Err(format!("the simulated cloud answered {method} {path} with {answer}").into()),
        }
    }
}
