//! The simulated cloud as a process, and a gate to it whose provider declares wrong quotas.

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use pileus_dev::{Process, artifact};
use pileus_gate::{Config, Connection, Effect, Fence, Gate, Grant, Limit, Metrics, Rule};
use prometheus_client::registry::Registry;
use serde_json::Value;

/// How long a program may take to start on a busy machine.
const SOON: Duration = Duration::from_mins(3);

/// A quota as a provider declares it or the cloud has it: requests at once, and each second in the long run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    pub(crate) burst: u32,
    pub(crate) per_second: u32,
}

/// The calls of one kind that a cloud received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) all: u64,
    pub(crate) throttled: u64,
}

/// A running cloud. Stops when dropped.
pub(crate) struct Cloud {
    base: String,
    _process: Process,
}

impl Cloud {
    /// Starts a cloud with this many instances and these quotas, with the latency of a real one. `silent` says whether
    /// its answers omit the remaining quota.
    pub(crate) async fn start(machines: usize, reads: Quota, writes: Quota, silent: bool) -> Self {
        let quota = |Quota { burst, per_second }| format!(r#"{{"burst":{burst},"perSecond":{per_second}}}"#);
        let quotas = format!(r#"{{"read":{},"write":{},"silent":{silent}}}"#, quota(reads), quota(writes));
        let mut command = Command::new(artifact::program("simulated-cloud").unwrap());
        command.args(["--machines", &machines.to_string(), "--quotas", &quotas]);
        let process = Process::start("simulated-cloud", &command).unwrap();
        let line = process.await_line(|line| line.contains("http://"), SOON).await.unwrap();
        let cloud = Self { base: line.rsplit(' ').next().unwrap().to_owned(), _process: process };
        cloud.admin("PUT", "/admin/faults", r#"{"latency":{"fixedMs":10,"jitterMs":20}}"#).await;
        cloud
    }

    /// A gate of a provider that declares these limits.
    pub(crate) fn gate(&self, reads: Quota, writes: Quota) -> Gate {
        let host = "127.0.0.1";
        let limit = |key, Quota { burst, per_second }| Limit::new(key, burst, per_second.into()).unwrap();
        let rule = |method: &str, effect, key: &str| Rule {
            host: host.parse().unwrap(),
            method: method.parse().unwrap(),
            path: "/v1/**".parse().unwrap(),
            operation: None,
            effect,
            limits: vec![key.parse().unwrap()],
            cache_scope: None,
            fold_case: false,
            page: None,
        };
        let grant = Grant {
            tls: false,
            host: host.parse().unwrap(),
            port: self.base.rsplit(':').next().unwrap().parse().unwrap(),
            methods: vec!["*".parse().unwrap()],
            paths: vec!["/v1/".parse().unwrap()],
            addresses: vec!["127.0.0.0/8".parse().unwrap()],
        };
        let config = Config {
            provider: "test".to_owned(),
            grants: vec![grant],
            rules: vec![rule("GET", Effect::Read, "reads"), rule("*", Effect::Write, "writes")],
            refusals: Vec::new(),
            limits: vec![limit("reads", reads), limit("writes", writes)],
            tightened: Vec::new(),
            credentials: Vec::new(),
            denied_ranges: Vec::new(),
            fence: Fence::default(),
            connection: Connection::default(),
        };
        Gate::new(config, &Metrics::register(&mut Registry::default())).unwrap()
    }

    /// A request to this cloud.
    pub(crate) fn request(&self, method: &str, path: &str, body: &'static str) -> Request<Full<Bytes>> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        request.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
    }

    /// The cloud's counts of these kinds of call.
    pub(crate) async fn calls(&self, kinds: &[&str]) -> Calls {
        let counters: Value =
            serde_json::from_slice(&self.admin("GET", "/admin/counters", "").await).unwrap();
        let count =
            |outcome: &str| kinds.iter().map(|kind| counters["calls"][kind][outcome].as_u64().unwrap()).sum();
        let others: u64 = ["ok", "not-found", "error", "lost"].into_iter().map(count).sum();
        Calls { all: others + count("throttled"), throttled: count("throttled") }
    }

    async fn admin(&self, method: &str, path: &str, body: &'static str) -> Bytes {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer: Response<_> = client.request(self.request(method, path, body)).await.unwrap();
        assert!(answer.status().is_success(), "{method} {path}: {answer:?}");
        answer.into_body().collect().await.unwrap().to_bytes()
    }
}
