//! The simulator of Azure as a process, and what a CloudProvider document needs for its metadata service.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Error, Process, artifact};

/// The simulator's first subscription, unless it is told otherwise.
pub const SUBSCRIPTION: &str = "11111111-1111-1111-1111-111111111111";

/// A running simulator. It ends when this is dropped.
pub struct AzureSimulator {
    /// The URL of the resource manager, and of the admin API where the resource manager has no TLS.
    pub manager: String,
    /// The URL of the metadata service, and of the admin API.
    pub metadata: String,
    _process: Process,
}

impl AzureSimulator {
    /// Starts the simulator with these flags, among which `--metadata` has to be. Returns when it listens.
    ///
    /// # Errors
    /// [`Error::ArtifactMissing`] before it is built; others where it ends, or doesn't listen within this time.
    pub async fn start(flags: &[&str], deadline: Duration) -> Result<Self, Error> {
        let name = "azure-simulator";
        let mut command = Command::new(artifact::program(name)?);
        let process = Process::start(name, command.args(flags))?;
        let log = process.await_line(|line| line.contains(" metadata on "), deadline).await?;
        let mut urls = log.split_whitespace().filter(|word| word.contains("://")).map(str::to_owned);
        let (Some(manager), Some(metadata)) = (urls.next(), urls.next()) else {
            let problem = "names no addresses".to_owned();
            return Err(Error::Process { name: name.to_owned(), problem, log });
        };
        Ok(Self { manager, metadata, _process: process })
    }

    /// Adds what a node manager needs to a CloudProvider document for the resource manager: the configuration, the grant and the
    /// credential for the metadata service, which must have an address of its own, as that of a machine has.
    pub fn add_metadata_service(&self, document: &mut Value) {
        let spec = &mut document["spec"];
        let configuration = &mut spec["configuration"];
        configuration["useInstanceMetadata"] = json!(true);
        configuration["metadataEndpoint"] = json!(self.metadata);
        let (host, port) = host_and_port(&self.metadata);
        spec["credentials"] = json!([{"name": "metadata", "hosts": [host], "metadata": {"flavor": "azure"}}]);
        if let Some(grants) = spec["grants"].as_array_mut() {
            grants.push(json!({
                "host": host, "port": port, "tls": false, "methods": ["GET"],
                "paths": ["/metadata/instance", "/metadata/loadbalancer"], "addresses": [host],
            }));
        }
    }
}

/// The host and the port of one of the simulator's URLs; port 0 where it has none.
pub fn host_and_port(url: &str) -> (&str, u16) {
    let authority = url.split_once("://").map_or(url, |(_, authority)| authority);
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
    (host, port.parse().unwrap_or_default())
}
