//! A cloud for tests, with short forms of requests.

use serde_json::{Value, json};

use super::super::*;
use crate::seed::{NewNodes, Seed};

pub(super) const COMPUTE: &str = "2025-04-01";
pub(super) const NETWORK: &str = "2025-05-01";
pub(super) const GROUP: &str = "/subscriptions/sub/resourceGroups/nodes";

pub(super) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) struct Fixture {
    pub(super) state: State,
    pub(super) now: Duration,
    pub(super) faults: WriteFaults,
}

impl Fixture {
    /// A subscription with the group `nodes`, without quotas and tokens.
    pub(super) fn new() -> Self {
        Self::with(Settings {
            started_at: Timestamp::UNIX_EPOCH,
            seed: 1,
            subscription: "sub".to_owned(),
            tenant: "tenant".to_owned(),
            quotas: Quotas::unlimited(),
            directory: None,
        })
    }

    pub(super) fn with(settings: Settings) -> Self {
        let mut state = State::new(settings);
        state.add_group("sub", "nodes", "eastus");
        Self { state, now: Duration::ZERO, faults: WriteFaults::default() }
    }

    /// A cloud with node machines, and their computer names.
    pub(super) fn nodes(nodes: NewNodes) -> (Self, Vec<String>) {
        let mut it = Self::new();
        let names = it.state.sow(&Seed { nodes: vec![nodes], ..Seed::default() }).unwrap();
        (it, names)
    }

    pub(super) fn send(&mut self, request: &Request) -> Response {
        self.state.apply(self.now, request, self.faults)
    }

    pub(super) fn call(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &Value,
    ) -> Response {
        let path = if path.starts_with('/') { path.to_owned() } else { full(path) };
        let mut request = Request::new(method, "https://arm", &path);
        for (name, value) in headers {
            request.headers.insert(*name, value.parse().unwrap());
        }
        if !body.is_null() {
            request.body = body.to_string().into_bytes();
        }
        self.send(&request)
    }

    /// `GET` of a path of a provider in the group, such as `virtualNetworks/v`, with the newest API version.
    pub(super) fn get(&mut self, path: &str) -> Response {
        self.call(Method::GET, path, &[], &Value::Null)
    }

    pub(super) fn put(&mut self, path: &str, body: &Value) -> Response {
        self.call(Method::PUT, path, &[], body)
    }

    pub(super) fn delete(&mut self, path: &str) -> Response {
        self.call(Method::DELETE, path, &[], &Value::Null)
    }

    /// All elements of a list over its pages, and the number of pages.
    pub(super) fn list(&mut self, path: &str) -> (Vec<Value>, usize) {
        let (mut all, mut pages) = (Vec::new(), 0);
        let mut next = if path.starts_with('/') { path.to_owned() } else { full(path) };
        loop {
            let response = self.get(&next);
            assert_eq!(response.status, 200, "{next}: {:?}", response.body);
            let body = response.body.unwrap();
            all.extend(body["value"].as_array().unwrap().iter().cloned());
            pages += 1;
            match body["nextLink"].as_str() {
                Some(link) => next = link.strip_prefix("https://arm").unwrap().to_owned(),
                None => return (all, pages),
            }
        }
    }

    /// A virtual network with the subnet `a` of 10.0.0.0/24.
    pub(super) fn network(&mut self) -> String {
        let body = json!({"location": "eastus", "properties": {
            "addressSpace": {"addressPrefixes": ["10.0.0.0/16", "fd00::/48"]},
            "subnets": [{"name": "a", "properties": {"addressPrefixes": ["10.0.0.0/24", "fd00::/64"]}}],
        }});
        assert_eq!(self.put("virtualNetworks/v", &body).status, 201);
        id("virtualNetworks/v/subnets/a")
    }
}

/// The ID of a resource in the group.
pub(super) fn id(path: &str) -> String {
    let namespace = if is_compute(path) { "Microsoft.Compute" } else { "Microsoft.Network" };
    format!("{GROUP}/providers/{namespace}/{path}")
}

fn is_compute(path: &str) -> bool {
    path.starts_with("virtualMachine") || path.starts_with("availabilitySets")
}

fn full(path: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let version = if is_compute(path) { COMPUTE } else { NETWORK };
    let version =
        if query.contains("api-version") { String::new() } else { format!("api-version={version}&") };
    format!("{}?{version}{query}", id(path))
}

/// The status and the code of a response; details in parentheses.
pub(super) fn code(response: &Response) -> String {
    let status = response.status;
    let Some(body) = &response.body else { return status.to_string() };
    let error = body.get("error").unwrap_or(body);
    let Some(code) = error.get("code").and_then(Value::as_str) else { return status.to_string() };
    match error.pointer("/details/0/code").and_then(Value::as_str) {
        Some(detail) => format!("{status} {code} ({detail})"),
        None => format!("{status} {code}"),
    }
}
