//! The simulated cloud as a process: its machines, its faults, and the requests that it got.

use std::process::Command;

use http::Method;
use pileus_dev::{Process, artifact};
use serde_json::{Value, json};

use crate::SOON;
use crate::web::{Answer, Web};

/// Something that the cloud makes for Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    /// A load balancer of one Service.
    LoadBalancer,
    /// An address that a shared one uses.
    Address,
    /// One that many share.
    SharedLoadBalancer,
}

impl Object {
    /// Its path, and what a list calls them.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::LoadBalancer => ("/v1/load-balancers", "loadBalancers"),
            Self::Address => ("/v1/addresses", "addresses"),
            Self::SharedLoadBalancer => ("/v1/shared-load-balancers", "sharedLoadBalancers"),
        }
    }
}

/// A running cloud. Ends when dropped.
pub(crate) struct Cloud {
    web: Web,
    pub(crate) port: u16,
    _process: Process,
}

impl Cloud {
    /// A cloud without machines and faults.
    pub(crate) async fn start() -> Self {
        let program = artifact::program("simulated-cloud").unwrap();
        let process = Process::start("simulated-cloud", &Command::new(program)).unwrap();
        let line = process.await_line(|line| line.contains("http://"), SOON).await.unwrap();
        let base = line.rsplit(' ').next().unwrap();
        Self {
            web: Web::new(base),
            port: base.rsplit(':').next().unwrap().parse().unwrap(),
            _process: process,
        }
    }

    /// Creates a machine, and tells its ID.
    pub(crate) async fn create(&self, machine: Value) -> String {
        self.post("/v1/machines", &machine).await["id"].as_str().unwrap().to_owned()
    }

    /// Creates so many machines, and tells their names.
    pub(crate) async fn create_many(&self, count: usize) -> Vec<String> {
        let created = self.post("/v1/machines:batch", &json!({"count": count, "prefix": "node-"})).await;
        created["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    /// Deletes a machine.
    pub(crate) async fn delete(&self, id: &str) {
        self.order(Method::DELETE, &format!("/v1/machines/{id}"), &json!(null), 204).await;
    }

    /// Changes what a machine is.
    pub(crate) async fn change(&self, id: &str, change: Value) {
        self.order(Method::PATCH, &format!("/v1/machines/{id}"), &change, 200).await;
    }

    /// Shuts a machine down.
    pub(crate) async fn stop(&self, id: &str) {
        self.order(Method::POST, &format!("/v1/machines/{id}/stop"), &json!(null), 200).await;
    }

    /// Starts a machine that was shut down.
    pub(crate) async fn start_machine(&self, id: &str) {
        self.order(Method::POST, &format!("/v1/machines/{id}/start"), &json!(null), 200).await;
    }

    /// All machines; fewer than a page holds.
    pub(crate) async fn machines(&self) -> Vec<Value> {
        let page = self.web.get("/v1/machines?limit=1000").await.json();
        page["machines"].as_array().unwrap().clone()
    }

    /// All routes; fewer than a page holds.
    pub(crate) async fn routes(&self) -> Vec<Value> {
        let answer = self.web.get("/v1/routes?limit=1000").await;
        // A fault may be meant for another request, and hit this one.
        if answer.status == 200 { answer.json()["routes"].as_array().unwrap().clone() } else { Vec::new() }
    }

    /// All objects of one kind, fewer than a page holds; an error where a fault has hit the question.
    pub(crate) async fn all(&self, kind: Object) -> Result<Vec<Value>, String> {
        let (path, plural) = kind.names();
        let answer = self.web.send_freely(Method::GET, &format!("{path}?limit=1000"), "").await;
        let answer =
            answer.filter(|answer| answer.status == 200).ok_or("the cloud does not answer the test")?;
        Ok(answer.json()[plural].as_array().unwrap().clone())
    }

    /// Makes something for Services, or replaces it.
    pub(crate) async fn put(&self, kind: Object, name: &str, object: &Value) {
        let path = format!("{}/{name}", kind.names().0);
        let answer = self.web.send(Method::PUT, &path, &object.to_string()).await;
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
    }

    /// How many writes it was asked for, by whomever, once no call is under way: what one does can be seen before it is
    /// counted.
    pub(crate) async fn writes(&self) -> u64 {
        let is_idle = |answer: &Answer| answer.json()["concurrent"]["now"] == 0;
        let counters = self.web.until("/admin/counters", is_idle).await.json();
        calls(&counters, &["create", "change", "delete"], |_| true)
    }

    /// How many calls of any kind ended so.
    pub(crate) async fn ended(&self, outcome: &str) -> u64 {
        ended(&self.web.get("/admin/counters").await.json(), outcome)
    }

    /// Creates a route that doesn't belong to Pileus.
    pub(crate) async fn put_route(&self, name: &str, destination: &str, machine: &str) {
        let route = json!({"destination": destination, "machine": machine});
        self.order(Method::PUT, &format!("/v1/routes/{name}"), &route, 200).await;
    }

    /// Replaces all faults.
    pub(crate) async fn set_faults(&self, faults: Value) {
        let answer = self.web.send(Method::PUT, "/admin/faults", &faults.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Starts the metadata service of the machine of this name, and tells its port.
    pub(crate) async fn metadata_service(&self, machine: &str) -> u16 {
        let path = format!("/admin/metadata/{machine}");
        let started = self.order(Method::PUT, &path, &json!(null), 201).await.json();
        started["url"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap()
    }

    /// How many calls of this kind it was asked for.
    pub(crate) async fn calls(&self, kind: &str) -> u64 {
        calls(&self.web.get("/admin/counters").await.json(), &[kind], |_| true)
    }

    /// Replaces what it knows of its only client: from now on each request needs a token.
    pub(crate) async fn set_credentials(&self, credentials: Value) {
        self.order(Method::PUT, "/admin/credentials", &credentials, 200).await;
    }

    /// How many lists it was asked for that ended so.
    pub(crate) async fn lists(&self, outcome: &str) -> u64 {
        lists(&self.web.get("/admin/counters").await.json(), outcome)
    }

    /// Waits until it was asked for a list that ended so.
    pub(crate) async fn await_list(&self, outcome: &str) {
        self.web.until("/admin/counters", |answer| lists(&answer.json(), outcome) > 0).await;
    }

    /// Waits until a request is under way.
    pub(crate) async fn await_request(&self) {
        self.web.until("/admin/counters", |answer| answer.json()["concurrent"]["now"] != 0).await;
    }

    /// The last requests, the oldest first.
    pub(crate) async fn requests(&self) -> Vec<Value> {
        self.web.get("/admin/requests").await.json()["requests"].as_array().unwrap().clone()
    }

    /// The last requests that weren't the test's own, the oldest first.
    pub(crate) async fn reads(&self) -> Vec<Value> {
        self.requests().await.into_iter().filter(|request| request["kind"] != "create").collect()
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        self.order(Method::POST, path, body, 201).await.json()
    }

    async fn order(&self, method: Method, path: &str, body: &Value, expected: u16) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.web.send(method, path, &body).await;
        assert_eq!(answer.status, expected, "{path}: {answer:?}");
        answer
    }
}

fn ended(counters: &Value, outcome: &str) -> u64 {
    calls(counters, &["list", "get", "create", "change", "delete"], |ended| ended == outcome)
}

/// How many calls of these kinds there were with such outcomes.
fn calls(counters: &Value, kinds: &[&str], counts: impl Fn(&str) -> bool) -> u64 {
    let outcomes = kinds.iter().flat_map(|kind| counters["calls"][*kind].as_object().unwrap());
    outcomes.filter(|(outcome, _)| counts(outcome)).map(|(_, count)| count.as_u64().unwrap()).sum()
}

fn lists(counters: &Value, outcome: &str) -> u64 {
    counters["calls"]["list"][outcome].as_u64().unwrap()
}
