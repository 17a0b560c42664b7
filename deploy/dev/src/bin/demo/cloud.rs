//! The simulated cloud: a process with an HTTP API that counts its requests. The demo changes machines in it, makes it
//! fail on purpose, and reads what Pileus has made. A machine, in the words of its API, is an instance in those of Pileus.

mod objects;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use http::Method;
use pileus_dev::{Error, Process, artifact};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::http_client::{HttpClient, Response};
pub(crate) use objects::{Listener, LoadBalancer, Route};

/// How long the process may take to listen: milliseconds, and longer on a busy machine.
const START: Duration = Duration::from_mins(1);

/// The cloud's counters of requests that change nothing.
const READS: [&str; 2] = ["list", "get"];
/// The counter of changes to existing machines.
const CHANGES: [&str; 1] = ["change"];
/// The counters of requests that change something.
const WRITES: [&str; 3] = ["create", "change", "delete"];

/// How long an operation of the cloud may take: seconds, and longer on a busy machine.
const SOON: Duration = Duration::from_mins(1);
/// The time between two reads while waiting for a change.
const PAUSE: Duration = Duration::from_millis(20);

/// A running cloud. It ends when this is dropped.
pub(crate) struct Cloud {
    process: Process,
    pub(crate) http: HttpClient,
}

impl Cloud {
    /// Starts a cloud without machines that logs to a file.
    pub(crate) async fn start(log: &Path) -> Result<Self, Error> {
        let process =
            Process::start("simulated-cloud", &Command::new(artifact::program("simulated-cloud")?))?;
        process.copy_log(log)?;
        let line = process.await_line(|line| line.contains("http://"), START).await?;
        let base = line.rsplit(' ').next().unwrap_or_default();
        let http = HttpClient::new(base);
        Ok(Self { process, http })
    }

    /// The port of the API.
    pub(crate) fn port(&self) -> String {
        self.http.url("").rsplit(':').next().unwrap_or_default().to_owned()
    }

    /// Creates a machine.
    pub(crate) async fn create_machine(&self, name: &str, size: &str, rack: &str) -> Result<(), Error> {
        let machine = json!({"name": name, "type": size, "labels": {"example.com/rack": rack}});
        self.send(Method::POST, "/v1/machines", &machine, 201).await
    }

    /// Creates many machines with one request. Their names are PREFIX1, PREFIX2 and so on.
    pub(crate) async fn create_machines(&self, count: usize, prefix: &str) -> Result<(), Error> {
        let machines = json!({"count": count, "prefix": prefix});
        self.send(Method::POST, "/v1/machines:batch", &machines, 201).await
    }

    /// Changes the type of a machine.
    pub(crate) async fn resize_machine(&self, id: &str, size: &str) -> Result<(), Error> {
        self.send(Method::PATCH, &format!("/v1/machines/{id}"), &json!({"type": size}), 200).await
    }

    /// Deletes a machine.
    pub(crate) async fn delete_machine(&self, id: &str) -> Result<(), Error> {
        self.send(Method::DELETE, &format!("/v1/machines/{id}"), &Value::Null, 204).await
    }

    /// Makes the cloud answer that the machines of these names don't exist, and only those.
    pub(crate) async fn hide_machines(&self, names: &[String]) -> Result<(), Error> {
        let hidden = json!({"lists": {"names": names}, "gets": {"names": names}});
        self.send(Method::PUT, "/admin/faults", &json!({"hidden": hidden}), 200).await
    }

    /// Creates a route that is not Pileus' own, as another user of the same route table.
    pub(crate) async fn put_route(&self, name: &str, range: &str, machine: &str) -> Result<(), Error> {
        let route = json!({"destination": range, "machine": machine});
        self.send(Method::PUT, &format!("/v1/routes/{name}"), &route, 200).await
    }

    /// Sets how long operations on load balancers take from now on.
    pub(crate) async fn set_operation_time(&self, time: Duration) -> Result<(), Error> {
        let operations = json!({"takesMs": u64::try_from(time.as_millis()).unwrap_or_default()});
        self.send(Method::PUT, "/admin/faults", &json!({"operations": operations}), 200).await
    }

    /// Lists all routes.
    pub(crate) async fn routes(&self) -> Result<Vec<Route>, Error> {
        self.list("routes", "routes").await
    }

    /// Lists all load balancers.
    pub(crate) async fn load_balancers(&self) -> Result<Vec<LoadBalancer>, Error> {
        self.list("load-balancers", "loadBalancers").await
    }

    /// Waits until the cloud's only load balancer fulfills a condition with no operation in progress, and returns it.
    pub(crate) async fn await_load_balancer(
        &self,
        wanted: &str,
        condition: impl Fn(&LoadBalancer) -> bool,
    ) -> Result<LoadBalancer, Error> {
        let read = async || {
            let all = self.load_balancers().await?;
            let is_wanted = |it: &LoadBalancer| it.state == "active" && condition(it);
            Ok(if let [one] = all.as_slice() { Some(one.clone()).filter(is_wanted) } else { None })
        };
        self.poll_until(wanted, read).await
    }

    /// Waits until the routes fulfill a condition, and returns them.
    pub(crate) async fn await_routes(
        &self,
        wanted: &str,
        condition: impl Fn(&[Route]) -> bool,
    ) -> Result<Vec<Route>, Error> {
        self.poll_until(wanted, async || Ok(Some(self.routes().await?).filter(|all| condition(all)))).await
    }

    /// Limits changes to a burst and a rate, without announcing the limit in answers.
    pub(crate) async fn limit_writes(&self, burst: u32, per_second: u32) -> Result<(), Error> {
        let quotas = json!({"write": {"burst": burst, "perSecond": per_second}, "silent": true});
        self.send(Method::PUT, "/admin/quotas", &quotas, 200).await
    }

    /// Removes all limits.
    pub(crate) async fn lift_write_limit(&self) -> Result<(), Error> {
        self.send(Method::DELETE, "/admin/quotas", &Value::Null, 204).await
    }

    /// How many reads the cloud has received since its start, regardless of their outcome.
    pub(crate) async fn read_count(&self) -> Result<u64, Error> {
        self.count_calls(&READS, |_| true).await
    }

    /// How many writes the cloud has received since its start, regardless of their outcome.
    pub(crate) async fn write_count(&self) -> Result<u64, Error> {
        self.count_calls(&WRITES, |_| true).await
    }

    /// How many changes the cloud has refused since its start because of its limits.
    pub(crate) async fn throttled_count(&self) -> Result<u64, Error> {
        self.count_calls(&CHANGES, |outcome| outcome == "throttled").await
    }

    /// An error about this process, with the end of its log.
    pub(crate) fn failed(&self, problem: &str) -> Error {
        self.process.failed(problem)
    }

    /// Lists all objects of a kind. The demo has few enough for one page.
    async fn list<T: DeserializeOwned>(&self, path: &str, field: &str) -> Result<Vec<T>, Error> {
        let response = self.http.get(&format!("/v1/{path}?limit=1000")).await.and_then(expect(200));
        let response = response.map_err(|problem| self.process.failed(&problem))?;
        let page: Value = serde_json::from_str(&response.body).unwrap_or_default();
        let listed = page.get(field).cloned().unwrap_or_default();
        serde_json::from_value(listed)
            .map_err(|error| self.process.failed(&format!("answered with invalid {path}: {error}")))
    }

    /// Reads repeatedly until there is a result.
    async fn poll_until<T>(
        &self,
        wanted: &str,
        read: impl AsyncFn() -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            if let Some(found) = read().await? {
                return Ok(found);
            }
            sleep(PAUSE).await;
        }
        Err(self.failed(&format!("has no {wanted} after {SOON:?}")))
    }

    async fn count_calls(&self, kinds: &[&str], is_counted: impl Fn(&str) -> bool) -> Result<u64, Error> {
        let response = self.http.get("/admin/counters").await.and_then(expect(200));
        let response = response.map_err(|problem| self.process.failed(&problem))?;
        let counters: Value = serde_json::from_str(&response.body).unwrap_or_default();
        let calls = counters.get("calls").ok_or_else(|| self.process.failed("answered without counters"))?;
        let outcomes = kinds.iter().filter_map(|kind| calls.get(kind)?.as_object()).flatten();
        Ok(outcomes.filter(|(outcome, _)| is_counted(outcome)).filter_map(|(_, count)| count.as_u64()).sum())
    }

    async fn send(&self, method: Method, path: &str, body: &Value, status: u16) -> Result<(), Error> {
        let response = self.http.send(method, path, body).await.and_then(expect(status));
        response.map(drop).map_err(|problem| self.process.failed(&problem))
    }
}

fn expect(status: u16) -> impl Fn(Response) -> Result<Response, String> {
    move |response| {
        if response.status == status {
            Ok(response)
        } else {
            Err(format!("answered {} instead of {status}: {}", response.status, response.body))
        }
    }
}
