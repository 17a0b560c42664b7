//! The simulated cloud in a separate process, with a realistic latency.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pileus_dev::nodes::Machine;
use pileus_dev::{Process, artifact};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Failure;
use crate::cluster::DEADLINE;

/// What each answer takes.
pub(crate) const LATENCY_MS: u64 = 20;

/// The name of its provider.
pub(crate) const PROVIDER: &str = "simulated";

/// The largest page of a list, which is what the provider asks for.
const PAGE: usize = 1_000;

/// A cloud. It ends when this is dropped.
pub(crate) struct Cloud {
    _process: Process,
    address: String,
    machines: usize,
    /// What it was limited to; null where it wasn't.
    quotas: Value,
    /// How its provider balances loads.
    style: Style,
    /// The bench's own lists since the counters began, which are not those of Pileus.
    own_lists: AtomicU64,
}

/// How the provider of a cloud gives Services their load balancers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Each has one of its own.
    PerService,
    /// All share one, in which each has an address.
    Shared,
}

impl Style {
    /// As the provider's configuration says it.
    fn name(self) -> &'static str {
        match self {
            Self::PerService => "perService",
            Self::Shared => "shared",
        }
    }

    /// Where the cloud lists its load balancers: the path, and the field of the answer.
    fn list(self) -> (&'static str, &'static str) {
        match self {
            Self::PerService => ("load-balancers", "loadBalancers"),
            Self::Shared => ("shared-load-balancers", "sharedLoadBalancers"),
        }
    }
}

/// A load balancer, as far as it matters here.
pub(crate) struct LoadBalancer {
    /// The ids of the machines that it sends traffic to.
    pub(crate) machines: Vec<String>,
}

/// The calls that a cloud was sent.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    /// Pages of lists.
    pub(crate) lists: u64,
    /// Reads of one machine.
    pub(crate) gets: u64,
    /// Things that were made.
    pub(crate) creates: u64,
    /// Things that were changed.
    pub(crate) changes: u64,
    /// Things that were deleted.
    pub(crate) deletes: u64,
    /// All, also those that were refused.
    pub(crate) all: u64,
    /// Those that were refused with 429.
    pub(crate) throttled: u64,
    /// Those of them that would have changed something.
    throttled_writes: u64,
}

impl Calls {
    /// What changes nothing.
    pub(crate) fn reads(&self) -> u64 {
        self.lists + self.gets
    }

    /// What changes something.
    pub(crate) fn writes(&self) -> u64 {
        self.creates + self.changes + self.deletes
    }

    /// Writes that used the quota, regardless of their result.
    pub(crate) fn admitted_writes(&self) -> u64 {
        self.writes() - self.throttled_writes
    }
}

impl Cloud {
    /// Starts a cloud with machines `node-1` to `node-MACHINES` and no limits.
    pub(crate) async fn start(machines: usize) -> Result<Self, Failure> {
        let mut command = Command::new(artifact::program("simulated-cloud")?);
        command.args(["--machines", &machines.to_string()]);
        let process = Process::start("simulated-cloud", &command)?;
        let line = process.await_line(|line| line.contains("http://"), DEADLINE).await?;
        let address = line.rsplit("http://").next().unwrap_or_default().to_owned();
        let (quotas, style, own_lists) = (Value::Null, Style::PerService, AtomicU64::new(0));
        let cloud = Self { _process: process, address, machines, quotas, style, own_lists };
        let faults = json!({"latency": {"fixedMs": LATENCY_MS}});
        cloud.ask("PUT", "/admin/faults", &faults.to_string()).await?;
        Ok(cloud)
    }

    /// Limits it to what upstream was measured with: reads 250 and 25 a second, writes 200 and 10 a second. Providers
    /// know that, as a cloud publishes its quotas.
    pub(crate) async fn limit(&mut self) -> Result<(), Failure> {
        let quota = |burst, per_second| json!({"burst": burst, "perSecond": per_second});
        self.limit_to(&json!({"read": quota(250, 25), "write": quota(200, 10)})).await
    }

    /// Limits it to other quotas, in the simulated cloud's own form. Providers know that, too.
    pub(crate) async fn limit_to(&mut self, quotas: &Value) -> Result<(), Failure> {
        self.ask("PUT", "/admin/quotas", &quotas.to_string()).await?;
        self.quotas = quotas.clone();
        Ok(())
    }

    /// Lets its provider balance loads in this way.
    pub(crate) fn balance(&mut self, style: Style) {
        self.style = style;
    }

    /// Lets operations, which writes to load balancers and addresses begin, take so long.
    pub(crate) async fn operations_take(&self, time: Duration) -> Result<(), Failure> {
        let operations = json!({"takesMs": u64::try_from(time.as_millis())?});
        let faults = json!({"latency": {"fixedMs": LATENCY_MS}, "operations": operations});
        self.ask("PUT", "/admin/faults", &faults.to_string()).await.map(drop)
    }

    /// Creates a machine of this name: its id. Not counted among the calls.
    pub(crate) async fn create(&self, name: &str) -> Result<String, Failure> {
        let machine = self.ask("POST", "/v1/machines", &json!({"name": name}).to_string()).await?;
        self.forget_calls().await?;
        Ok(serde_json::from_str::<Machine>(&machine)?.id)
    }

    /// All its load balancers. Not counted among the calls.
    pub(crate) async fn load_balancers(&self) -> Result<Vec<LoadBalancer>, Failure> {
        let (path, field) = self.style.list();
        let machines = |mut it: Value| it.get_mut("machines").map(Value::take).ok_or("no machines");
        let mut all = Vec::new();
        for listed in self.list(path, field).await? {
            all.push(LoadBalancer { machines: serde_json::from_value(machines(listed)?)? });
        }
        Ok(all)
    }

    /// How many addresses it has that are no load balancer's own. Not counted among the calls.
    pub(crate) async fn addresses(&self) -> Result<usize, Failure> {
        Ok(self.list("addresses", "addresses").await?.len())
    }

    /// How many routes there are. No call.
    pub(crate) async fn routes(&self) -> Result<usize, Failure> {
        let state: Value = serde_json::from_str(&self.ask("GET", "/admin/state", "").await?)?;
        let count = state.pointer("/routes/total").and_then(Value::as_u64).unwrap_or_default();
        Ok(usize::try_from(count)?)
    }

    /// The calls that a list of all machines takes.
    pub(crate) fn sweep(&self) -> u64 {
        u64::try_from(self.machines.div_ceil(PAGE)).unwrap_or(u64::MAX)
    }

    /// All its machines. Not counted among the calls.
    pub(crate) async fn machines(&self) -> Result<Vec<Machine>, Failure> {
        Ok(serde_json::from_value(Value::Array(self.list("machines", "machines").await?))?)
    }

    /// Lets machines `node-1` to `node-COUNT` vanish. Not counted among the calls.
    pub(crate) async fn vanish(&self, count: usize) -> Result<(), Failure> {
        let batch = json!({"count": count, "prefix": "node-"});
        self.ask("DELETE", "/v1/machines:batch", &batch.to_string()).await?;
        self.forget_calls().await
    }

    /// Counts from 0 again.
    pub(crate) async fn forget_calls(&self) -> Result<(), Failure> {
        self.ask("DELETE", "/admin/counters", "").await?;
        self.own_lists.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// The calls that it was sent.
    pub(crate) async fn calls(&self) -> Result<Calls, Failure> {
        let counters: Value = serde_json::from_str(&self.ask("GET", "/admin/counters", "").await?)?;
        let kinds = counters.get("calls").and_then(Value::as_object).ok_or("no calls among the counters")?;
        // All with these words in kind and outcome.
        let sum = |kind: &str, outcome: &str| {
            let kinds = kinds.iter().filter(|(name, _)| kind.is_empty() || *name == kind);
            let outcomes = kinds.filter_map(|(_, outcomes)| outcomes.as_object()).flatten();
            let outcomes = outcomes.filter(|(name, _)| outcome.is_empty() || *name == outcome);
            outcomes.filter_map(|(_, count)| count.as_u64()).sum()
        };
        let own = self.own_lists.load(Ordering::Relaxed);
        Ok(Calls {
            lists: sum("list", "") - own,
            gets: sum("get", ""),
            creates: sum("create", ""),
            changes: sum("change", ""),
            deletes: sum("delete", ""),
            all: sum("", "") - own,
            throttled: sum("", "throttled"),
            throttled_writes: ["create", "change", "delete"].iter().map(|kind| sum(kind, "throttled")).sum(),
        })
    }

    /// What its last calls were about, as in `machines` or `routes`: up to a hundred.
    pub(crate) async fn last_asked(&self, count: u64) -> Result<Vec<String>, Failure> {
        let state: Value = serde_json::from_str(&self.ask("GET", "/admin/requests", "").await?)?;
        let requests = state.get("requests").and_then(Value::as_array).ok_or("no requests")?;
        let paths = requests.iter().rev().filter_map(|it| it.get("path")?.as_str());
        let kind = |path: &str| path.split(['/', '?']).nth(2).unwrap_or_default().to_owned();
        Ok(paths.take(usize::try_from(count)?).map(kind).collect())
    }

    /// The port that it listens at.
    pub(crate) fn port(&self) -> Result<u16, Failure> {
        Ok(self.address.rsplit_once(':').ok_or("no port")?.1.parse()?)
    }

    /// What its provider has to know.
    pub(crate) fn configuration(&self) -> Value {
        let mut fields = serde_json::Map::new();
        fields.insert("endpoint".to_owned(), json!(format!("http://{}", self.address)));
        fields.insert("loadBalancers".to_owned(), json!(self.style.name()));
        for (field, kind) in [("reads", "read"), ("writes", "write")] {
            if let Some(quota) = self.quotas.get(kind) {
                fields.insert(field.to_owned(), quota.clone());
            }
        }
        Value::Object(fields)
    }

    /// The CloudProvider document for it, with a provider from this source.
    pub(crate) fn document(&self, source: &Value) -> Result<Value, Failure> {
        let (host, port) = (self.address.rsplit_once(':').ok_or("no port")?.0, self.port()?);
        Ok(json!({
            "apiVersion": "pileus.dev/v1alpha1",
            "kind": "CloudProvider",
            "metadata": {"name": PROVIDER},
            "spec": {
                "source": source,
                "configuration": self.configuration(),
                "grants": [{"host": host, "port": port, "tls": false, "addresses": ["127.0.0.0/8"]}],
            },
        }))
    }

    /// All things of a kind, which come in a field of each page.
    async fn list(&self, path: &str, field: &str) -> Result<Vec<Value>, Failure> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.ask("GET", &format!("/v1/{path}?limit={PAGE}{cursor}"), "").await?;
            self.own_lists.fetch_add(1, Ordering::Relaxed);
            let mut page: Value = serde_json::from_str(&page)?;
            let things =
                page.get_mut(field).map(Value::take).ok_or_else(|| format!("no {field} in {path}"))?;
            all.extend(serde_json::from_value::<Vec<Value>>(things)?);
            let Some(next) = page.get("next").and_then(Value::as_str) else { return Ok(all) };
            cursor = format!("&cursor={next}");
        }
    }

    /// A request of its operator; the body of the answer.
    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<String, Failure> {
        ask(&self.address, method, path, body).await
    }
}

/// A request to a cloud at this address; the body of the answer.
pub(crate) async fn ask(host: &str, method: &str, path: &str, body: &str) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(host).await?;
    let length = body.len();
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
