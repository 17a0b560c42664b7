//! The simulator of Azure in a separate process, with a realistic latency and the quotas that Azure publishes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pileus_dev::artifact;
use pileus_dev::azure::{AzureSimulator, SUBSCRIPTION, host_and_port};
use serde::Deserialize;
use serde_json::{Value, json};

use super::SETS;
use crate::Failure;
use crate::cloud::{LATENCY_MS, ask};
use crate::cluster::DEADLINE;

/// The resource group of the machines.
const GROUP: &str = "nodes";
/// The address of the metadata service, which is that of no other service, as on a machine.
const METADATA: &str = "127.0.0.2:0";
/// The most elements of a page, unless it is told otherwise.
const PAGE: usize = 100;

/// A cloud. It ends when this is dropped.
pub(super) struct Cloud {
    simulator: AzureSimulator,
    /// The names of its machines, which are those of the Nodes.
    pub(super) names: Vec<String>,
    /// The number of the last request that isn't counted any more.
    forgotten: AtomicU64,
}

/// The requests that it was sent.
pub(super) struct Requests(Vec<Entry>);

/// A request in the journal.
#[derive(Deserialize)]
struct Entry {
    number: u64,
    method: String,
    path: String,
    status: u16,
}

#[derive(Deserialize)]
struct Journal {
    requests: Vec<Entry>,
}

#[derive(Deserialize)]
struct Created {
    names: Vec<String>,
}

impl Cloud {
    /// Starts a cloud with so many machines.
    pub(super) async fn start(count: usize) -> Result<Self, Failure> {
        let simulator = AzureSimulator::start(&["--metadata", METADATA], DEADLINE).await?;
        let nodes = json!({"count": count, "sets": SETS, "group": GROUP}).to_string();
        let mut cloud = Self { simulator, names: Vec::new(), forgotten: AtomicU64::new(0) };
        let created: Created = serde_json::from_str(&cloud.ask("POST", "/admin/nodes", &nodes).await?)?;
        cloud.names = created.names;
        cloud.operations_take(Duration::ZERO).await?;
        Ok(cloud)
    }

    /// Lets operations take so long.
    pub(super) async fn operations_take(&self, time: Duration) -> Result<(), Failure> {
        let operations = json!({"takesMs": u64::try_from(time.as_millis())?});
        let faults = json!({"latency": {"fixedMs": LATENCY_MS}, "operations": operations});
        self.ask("PUT", "/admin/faults", &faults.to_string()).await.map(drop)
    }

    /// Sets the most elements of a page.
    pub(super) async fn set_page_size(&self, size: usize) -> Result<(), Failure> {
        self.ask("PUT", "/admin/behavior", &json!({"pageSize": size}).to_string()).await.map(drop)
    }

    /// Lets a machine vanish.
    pub(super) async fn delete(&self, name: &str) -> Result<(), Failure> {
        let command = json!({"machines": [name], "action": "delete"});
        self.ask("POST", "/admin/machines", &command.to_string()).await.map(drop)
    }

    /// Lets the metadata service describe a machine, whose firmware has the UUID that its Node tells.
    pub(super) async fn describe(&self, machine: &str) -> Result<(), Failure> {
        let instance = json!({"compute": {"vmId": format!("system-{machine}")}});
        let metadata = json!({"machine": machine, "instance": instance});
        self.ask("PUT", "/admin/metadata", &metadata.to_string()).await.map(drop)
    }

    /// Removes all quotas.
    pub(super) async fn unlimit(&self) -> Result<(), Failure> {
        self.ask("PUT", "/admin/quotas", "none").await.map(drop)
    }

    /// The requests that a list of all machines takes: of the scale sets, of other machines, and for each scale set those of
    /// machines and of network interfaces.
    pub(super) fn sweep(&self) -> u64 {
        let pages = 2 + 2 * SETS * self.names.len().div_ceil(SETS).div_ceil(PAGE);
        u64::try_from(pages).unwrap_or(u64::MAX)
    }

    /// Counts from 0 again.
    pub(super) async fn forget_requests(&self) -> Result<(), Failure> {
        let last = self.requests().await?.0.last().map(|entry| entry.number);
        self.forgotten.fetch_max(last.unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }

    /// The requests since then.
    pub(super) async fn requests(&self) -> Result<Requests, Failure> {
        let path = format!("/admin/journal?after={}", self.forgotten.load(Ordering::Relaxed));
        let journal: Journal = serde_json::from_str(&self.ask("GET", &path, "").await?)?;
        Ok(Requests(journal.requests))
    }

    /// What its provider has to know.
    pub(super) fn configuration(&self) -> Value {
        json!({
            "subscriptionId": SUBSCRIPTION, "resourceGroup": GROUP, "location": "eastus", "routeTableName": "routes",
            "resourceManagerEndpoint": self.endpoint(),
        })
    }

    /// Its URL.
    pub(super) fn endpoint(&self) -> &str {
        &self.simulator.manager
    }

    /// The port that it listens at.
    pub(super) fn port(&self) -> u16 {
        host_and_port(self.endpoint()).1
    }

    /// The CloudProvider document for it.
    pub(super) fn document(&self) -> Result<Value, Failure> {
        Ok(json!({
            "apiVersion": "pileus.dev/v1alpha1",
            "kind": "CloudProvider",
            "metadata": {"name": "azure"},
            "spec": {
                "source": {"file": artifact::component("azure-provider")?},
                "configuration": self.configuration(),
                "grants": [{
                    "host": "127.0.0.1", "port": self.port(), "tls": false, "addresses": ["127.0.0.0/8"],
                    "methods": ["GET", "PUT"],
                }],
            },
        }))
    }

    /// The CloudProvider document for it and for the metadata service.
    pub(super) fn document_of_node_managers(&self) -> Result<Value, Failure> {
        let mut document = self.document()?;
        self.simulator.add_metadata_service(&mut document);
        Ok(document)
    }

    /// A request; the body of the answer.
    pub(super) async fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        ask(self.endpoint().trim_start_matches("http://"), method, path, body).await
    }
}

impl Requests {
    /// What changes nothing.
    pub(super) fn reads(&self) -> usize {
        self.0.iter().filter(|entry| entry.method == "GET").count()
    }

    /// What changes something.
    pub(super) fn writes(&self) -> usize {
        self.0.len() - self.reads()
    }

    /// Those that were refused with 429.
    pub(super) fn throttled(&self) -> usize {
        self.0.iter().filter(|entry| entry.status == 429).count()
    }

    /// Reads of one machine or of what belongs to it.
    pub(super) fn single_reads(&self) -> usize {
        self.0
            .iter()
            .filter(|entry| entry.method == "GET" && entry.kind().ends_with("/virtualMachines/*"))
            .count()
    }

    /// Those that the metadata service answers, which costs no quota.
    pub(super) fn of_metadata_service(&self) -> usize {
        self.0.iter().filter(|entry| entry.path.starts_with("/metadata/")).count()
    }

    /// All of them.
    pub(super) fn all(&self) -> usize {
        self.0.len()
    }

    /// How many there are of each kind.
    pub(super) fn by_kind(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for entry in &self.0 {
            *kinds.entry(entry.kind()).or_default() += 1;
        }
        kinds
    }
}

impl Entry {
    /// What it is about, with `*` for each name, as in `GET virtualMachineScaleSets/*/virtualMachines`.
    fn kind(&self) -> String {
        let below = self.path.split("/providers/").last().unwrap_or_default();
        let segments = below.split('/').skip(1).enumerate();
        let types: Vec<_> =
            segments.map(|(place, segment)| if place % 2 == 1 { "*" } else { segment }).collect();
        format!("{} {}", self.method, types.join("/"))
    }
}
