//! An API server in memory, of which whole controllers are tested without waiting: it has Nodes, a watch of them, and
//! takes events. What the real one does beyond that is shown by the tests with the real one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower_service::Service;

use crate::nodes::Part;
use crate::scenarios::Stored;

/// How long each request takes.
const LATENCY: Duration = Duration::from_millis(5);

/// The API server. Clones share it.
#[derive(Clone)]
pub(crate) struct ApiServer {
    state: Arc<Mutex<State>>,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Stored>,
    /// What a watch tells, by resourceVersion.
    history: Vec<(u64, String)>,
    /// The writes to Nodes, as `PATCH name` or `PATCH name/status`.
    writes: Vec<String>,
    /// The events, as `Reason name`.
    events: Vec<String>,
    /// What the events say, as `METHOD name: note`.
    notes: Vec<String>,
    /// What an admission policy changes about each Node that is written, as a merge patch.
    policy: Option<Value>,
}

impl ApiServer {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), version: watch::Sender::new(0) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// A Node as it is now.
    pub(crate) fn get(&self, name: &str) -> Stored {
        self.state().nodes[name].clone()
    }

    /// The writes to Nodes up to now, which are forgotten.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().writes)
    }

    /// The events up to now, which are forgotten.
    pub(crate) fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.state().events)
    }

    /// What the events up to now say.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.state().notes.clone()
    }

    /// Adds a Node, or changes it, as somebody else does. It gets the next resourceVersion.
    pub(crate) fn put(&self, node: &Stored) -> Stored {
        let version = *self.version.borrow() + 1;
        let node = node.with(&json!({"metadata": {"resourceVersion": version.to_string()}}));
        let mut state = self.state();
        let name = node.0["metadata"]["name"].as_str().unwrap().to_owned();
        let is_new = state.nodes.insert(name, node.clone()).is_none();
        let kind = if is_new { "ADDED" } else { "MODIFIED" };
        state.history.push((version, format!("{}\n", json!({"type": kind, "object": node.0}))));
        self.version.send_replace(version);
        node
    }

    /// Has an admission policy change each Node that is written by this merge patch.
    pub(crate) fn enforce(&self, policy: Value) {
        self.state().policy = Some(policy);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        tokio::time::sleep(LATENCY).await;
        let query = head.uri.query().unwrap_or_default();
        match head.uri.path().strip_prefix("/api/v1/nodes") {
            None => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let name = text(&body["regarding"]["name"]);
                let mut state = self.state();
                state.events.push(format!("{} {name}", text(&body["reason"])));
                state.notes.push(format!("{} {name}: {}", head.method, text(&body["note"])));
                drop(state);
                reply(201, &body)
            }
            Some("") if query.contains("watch=true") => self.news(query).await,
            Some("") => self.list(),
            Some(path) => self.one(&head.method, path.trim_start_matches('/'), &body),
        }
    }

    fn list(&self) -> Response<Body> {
        let items: Vec<_> = self.state().nodes.values().map(|node| node.0.clone()).collect();
        let metadata = json!({"resourceVersion": self.version.borrow().to_string()});
        reply(200, &json!({"apiVersion": "v1", "kind": "NodeList", "metadata": metadata, "items": items}))
    }

    /// A watch, which ends as soon as it has told something: the client then asks for what follows.
    async fn news(&self, query: &str) -> Response<Body> {
        let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")).unwrap();
        let since: u64 = since.parse().unwrap();
        let mut version = self.version.subscribe();
        version.wait_for(|version| *version > since).await.unwrap();
        let state = self.state();
        let news = state.history.iter().filter(|(version, _)| *version > since);
        Response::new(Body::from(news.map(|(_, line)| line.as_str()).collect::<String>().into_bytes()))
    }

    fn one(&self, method: &Method, path: &str, body: &Value) -> Response<Body> {
        let (name, part) = match path.strip_suffix("/status") {
            Some(name) => (name, Part::Status),
            None => (path, Part::Whole),
        };
        let mut node = self.get(name);
        if *method == Method::PATCH {
            self.state().writes.push(format!("PATCH {path}"));
            let version = &body["metadata"]["resourceVersion"];
            if !version.is_null() && *version != node.0["metadata"]["resourceVersion"] {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409});
                return reply(409, &status);
            }
            node.patch(part, body);
            let policy = self.state().policy.clone();
            node = self.put(&policy.map_or(node.clone(), |policy| node.with(&policy)));
        }
        reply(200, &node.0)
    }
}

fn reply(status: u16, body: &Value) -> Response<Body> {
    Response::builder().status(status).body(Body::from(body.to_string().into_bytes())).unwrap()
}

impl Service<Request<Body>> for ApiServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(request).await) })
    }
}
