//! The simulated cloud: a process with an HTTP API, which counts what is asked of it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use http::Method;
use pileus_dev::{Error, Process, artifact};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::web::{Answer, Web};

/// It listens within milliseconds; a busy machine may need longer.
const START: Duration = Duration::from_mins(1);

/// What is asked of the cloud without changing anything.
const READS: [&str; 2] = ["list", "get"];
/// What changes machines that are there.
const CHANGES: [&str; 1] = ["change"];
/// What changes anything.
const WRITES: [&str; 3] = ["create", "change", "delete"];

/// An operation takes seconds; a busy machine may need longer.
const SOON: Duration = Duration::from_mins(1);
/// Between two looks at what it has.
const PAUSE: Duration = Duration::from_millis(20);

/// A route, as its API shows it.
#[derive(Clone, Deserialize)]
pub(crate) struct Route {
    pub(crate) destination: String,
    pub(crate) machine: String,
}

/// A load balancer, as its API shows it.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadBalancer {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) addresses: Vec<String>,
    pub(crate) ports: Vec<Listener>,
    pub(crate) machines: Vec<String>,
    pub(crate) source_ranges: Vec<String>,
    pub(crate) health_check_port: Option<u16>,
}

/// A port that leads to one of each machine.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listener {
    pub(crate) protocol: String,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
}

/// A running cloud. Ends when dropped.
pub(crate) struct Cloud {
    process: Process,
    pub(crate) web: Web,
}

impl Cloud {
    /// Starts a cloud without machines, which logs to a file.
    pub(crate) async fn start(log: &Path) -> Result<Self, Error> {
        let process =
            Process::start("simulated-cloud", &Command::new(artifact::program("simulated-cloud")?))?;
        process.copy_log(log)?;
        let line = process.await_line(|line| line.contains("http://"), START).await?;
        let base = line.rsplit(' ').next().unwrap_or_default();
        let web = Web::new(base);
        Ok(Self { process, web })
    }

    /// The port of its API.
    pub(crate) fn port(&self) -> String {
        self.web.url("").rsplit(':').next().unwrap_or_default().to_owned()
    }

    /// Creates a machine.
    pub(crate) async fn create(&self, name: &str, size: &str, rack: &str) -> Result<(), Error> {
        let machine = json!({"name": name, "type": size, "labels": {"example.com/rack": rack}});
        self.order(Method::POST, "/v1/machines", &machine, 201).await
    }

    /// Creates many machines at once, PREFIX1 and so on.
    pub(crate) async fn create_many(&self, count: usize, prefix: &str) -> Result<(), Error> {
        let machines = json!({"count": count, "prefix": prefix});
        self.order(Method::POST, "/v1/machines:batch", &machines, 201).await
    }

    /// Gives a machine another size.
    pub(crate) async fn resize(&self, id: &str, size: &str) -> Result<(), Error> {
        self.order(Method::PATCH, &format!("/v1/machines/{id}"), &json!({"type": size}), 200).await
    }

    /// Deletes a machine.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Error> {
        self.order(Method::DELETE, &format!("/v1/machines/{id}"), &Value::Null, 204).await
    }

    /// Denies from now on that the machines of these names exist, and of no others.
    pub(crate) async fn hide(&self, names: &[String]) -> Result<(), Error> {
        let hidden = json!({"lists": {"names": names}, "gets": {"names": names}});
        self.order(Method::PUT, "/admin/faults", &json!({"hidden": hidden}), 200).await
    }

    /// Makes a route, as somebody else who uses the same table.
    pub(crate) async fn put_route(&self, name: &str, range: &str, machine: &str) -> Result<(), Error> {
        let route = json!({"destination": range, "machine": machine});
        self.order(Method::PUT, &format!("/v1/routes/{name}"), &route, 200).await
    }

    /// Lets what is done to load balancers from now on take so long.
    pub(crate) async fn operations_take(&self, time: Duration) -> Result<(), Error> {
        let operations = json!({"takesMs": u64::try_from(time.as_millis()).unwrap_or_default()});
        self.order(Method::PUT, "/admin/faults", &json!({"operations": operations}), 200).await
    }

    /// All its routes.
    pub(crate) async fn routes(&self) -> Result<Vec<Route>, Error> {
        self.list("routes", "routes").await
    }

    /// All its load balancers.
    pub(crate) async fn load_balancers(&self) -> Result<Vec<LoadBalancer>, Error> {
        self.list("load-balancers", "loadBalancers").await
    }

    /// Waits until its one load balancer is so, with nothing under way, and returns it.
    pub(crate) async fn balances(
        &self,
        wanted: &str,
        is_so: impl Fn(&LoadBalancer) -> bool,
    ) -> Result<LoadBalancer, Error> {
        let look = async || {
            let all = self.load_balancers().await?;
            let is_so = |it: &LoadBalancer| it.state == "active" && is_so(it);
            Ok(if let [one] = all.as_slice() { Some(one.clone()).filter(is_so) } else { None })
        };
        self.until(wanted, look).await
    }

    /// Waits until its routes are so, and returns them.
    pub(crate) async fn carries(
        &self,
        wanted: &str,
        are_so: impl Fn(&[Route]) -> bool,
    ) -> Result<Vec<Route>, Error> {
        self.until(wanted, async || Ok(Some(self.routes().await?).filter(|all| are_so(all)))).await
    }

    /// Takes no more than so many changes at once, and so many each second, and tells nobody.
    pub(crate) async fn limit_writes(&self, burst: u32, per_second: u32) -> Result<(), Error> {
        let quotas = json!({"write": {"burst": burst, "perSecond": per_second}, "silent": true});
        self.order(Method::PUT, "/admin/quotas", &quotas, 200).await
    }

    /// Takes whatever comes.
    pub(crate) async fn unlimit(&self) -> Result<(), Error> {
        self.order(Method::DELETE, "/admin/quotas", &Value::Null, 204).await
    }

    /// How often something was read from it since its start, whatever came of it.
    pub(crate) async fn reads(&self) -> Result<u64, Error> {
        self.calls(&READS, |_| true).await
    }

    /// How often something was written to it since its start, whatever came of it.
    pub(crate) async fn writes(&self) -> Result<u64, Error> {
        self.calls(&WRITES, |_| true).await
    }

    /// How many changes it has refused since its start, as it takes no more of them.
    pub(crate) async fn refused(&self) -> Result<u64, Error> {
        self.calls(&CHANGES, |outcome| outcome == "throttled").await
    }

    /// An error about this process, with the end of its log.
    pub(crate) fn failed(&self, problem: &str) -> Error {
        self.process.failed(problem)
    }

    /// All things of a kind, of which there are few enough for a page.
    async fn list<T: DeserializeOwned>(&self, path: &str, field: &str) -> Result<Vec<T>, Error> {
        let answer = self.web.get(&format!("/v1/{path}?limit=1000")).await.and_then(expect(200));
        let answer = answer.map_err(|problem| self.process.failed(&problem))?;
        let page: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let listed = page.get(field).cloned().unwrap_or_default();
        serde_json::from_value(listed)
            .map_err(|error| self.process.failed(&format!("shows no {path}: {error}")))
    }

    /// Looks until there is what is wanted.
    async fn until<T>(
        &self,
        wanted: &str,
        look: impl AsyncFn() -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            sleep(PAUSE).await;
        }
        Err(self.failed(&format!("has no {wanted} after {SOON:?}")))
    }

    async fn calls(&self, kinds: &[&str], of: impl Fn(&str) -> bool) -> Result<u64, Error> {
        let answer = self.web.get("/admin/counters").await.and_then(expect(200));
        let answer = answer.map_err(|problem| self.process.failed(&problem))?;
        let counters: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let calls = counters.get("calls").ok_or_else(|| self.process.failed("shows no counters"))?;
        let outcomes = kinds.iter().filter_map(|kind| calls.get(kind)?.as_object()).flatten();
        Ok(outcomes.filter(|(outcome, _)| of(outcome)).filter_map(|(_, count)| count.as_u64()).sum())
    }

    async fn order(&self, method: Method, path: &str, body: &Value, status: u16) -> Result<(), Error> {
        let answer = self.web.send(method, path, body).await.and_then(expect(status));
        answer.map(drop).map_err(|problem| self.process.failed(&problem))
    }
}

fn expect(status: u16) -> impl Fn(Answer) -> Result<Answer, String> {
    move |answer| {
        if answer.status == status {
            Ok(answer)
        } else {
            Err(format!("answered {} where {status} was expected: {}", answer.status, answer.body))
        }
    }
}
