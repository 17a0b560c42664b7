//! An API server in memory, so that whole controllers can be tested without waiting. It has Nodes, Services and related
//! objects, watches, and events. Tests with a real API server cover everything else.

use std::collections::{BTreeMap, VecDeque};
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

use crate::informer::StoreHistory;
use crate::nodes::PatchTarget;
use crate::scenarios::{StoredNode, merge};

/// How often informers ask for the version in tests. They play hours, and would do little else if it were shorter.
pub(crate) const VERSION_PERIOD: Duration = Duration::from_mins(10);

/// The history that the watches of a test share.
pub(crate) fn history() -> StoreHistory {
    StoreHistory::asked_each(VERSION_PERIOD)
}

/// The duration of each request.
const LATENCY: Duration = Duration::from_millis(5);

/// The API server. Clones share it.
#[derive(Clone)]
pub(crate) struct ApiServer {
    state: Arc<Mutex<State>>,
    version: watch::Sender<u64>,
}

/// A resource, by its name in paths, and an object, by its name with the namespace if it has one.
type Key = (&'static str, String);

const NODES: &str = "nodes";
const SERVICES: &str = "services";

/// A former state of the API server.
pub(crate) struct Backup {
    objects: BTreeMap<Key, Value>,
    version: u64,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<Key, Value>,
    /// The watch events, by resourceVersion and resource.
    history: Vec<(u64, &'static str, String)>,
    /// The writes to objects, as `PATCH name`, `PATCH name/status` or `DELETE name`.
    writes: Vec<String>,
    /// The lists, by resource.
    lists: Vec<&'static str>,
    /// A resource whose lists take this time.
    slow: Option<(&'static str, Duration)>,
    /// Watches from before this version fail.
    compacted: u64,
    /// The status codes with which the next writes are rejected.
    refusals: VecDeque<u16>,
    /// The number of reads of single objects that fail from now on, by resource.
    failing_reads: BTreeMap<&'static str, usize>,
    /// The events, by name.
    posted: BTreeMap<String, Value>,
    /// The events, as `Reason name`.
    events: Vec<String>,
    /// The notes of the events, as `METHOD name: note`.
    notes: Vec<String>,
    /// The merge patch that an admission policy applies to each written object.
    policy: Option<Value>,
}

impl ApiServer {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), version: watch::Sender::new(0) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// The present state of a Node.
    pub(crate) fn get(&self, name: &str) -> StoredNode {
        StoredNode(self.find(NODES, name).unwrap())
    }

    /// Whether there is a Node of this name.
    pub(crate) fn has_node(&self, name: &str) -> bool {
        self.find(NODES, name).is_some()
    }

    /// The present state of a Service, by `namespace/name`.
    pub(crate) fn service(&self, name: &str) -> Option<Value> {
        self.find(SERVICES, name)
    }

    /// Takes the recorded writes to objects.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().writes)
    }

    /// Takes the recorded lists, by resource.
    pub(crate) fn lists(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().lists)
    }

    /// How many watches are open.
    pub(crate) fn open_watches(&self) -> usize {
        self.version.receiver_count()
    }

    /// Takes the recorded events.
    pub(crate) fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.state().events)
    }

    /// Deletes the events, as an operator may.
    pub(crate) fn forget_events(&self) {
        self.state().posted.clear();
    }

    /// The notes of all events so far.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.state().notes.clone()
    }

    /// Adds or changes a Node like another client. It gets the next resourceVersion.
    pub(crate) fn put(&self, node: &StoredNode) -> StoredNode {
        StoredNode(self.store(NODES, node.with(&json!({})).0))
    }

    /// Adds or replaces an object like another client. It gets the next resourceVersion.
    pub(crate) fn store(&self, resource: &'static str, mut object: Value) -> Value {
        let version = *self.version.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        // The real API server removes the ingress of a Service that changes to another type.
        if resource == SERVICES && object["spec"]["type"] != "LoadBalancer" {
            object["status"] = json!({"loadBalancer": {}});
        }
        let mut state = self.state();
        let is_new = state.objects.insert((resource, name(&object)), object.clone()).is_none();
        let kind = if is_new { "ADDED" } else { "MODIFIED" };
        state.history.push((version, resource, event(kind, &object)));
        self.version.send_replace(version);
        object
    }

    /// Changes an object by a merge patch like another client.
    pub(crate) fn change(&self, resource: &'static str, name: &str, change: &Value) {
        let mut object = self.find(resource, name).unwrap();
        merge(&mut object, change);
        self.store(resource, object);
    }

    /// Sends a watch event that an existing object is deleted, like a server whose own view is stale.
    pub(crate) fn report_deleted(&self, resource: &'static str, name: &str) {
        let mut object = self.find(resource, name).unwrap();
        let version = *self.version.borrow() + 1;
        // Bears the version of its deletion, as from a real API server, or the client would ask for this event for ever.
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        self.state().history.push((version, resource, event("DELETED", &object)));
        self.version.send_replace(version);
    }

    /// Deletes an object like another client. An object with finalizers is only marked as being deleted.
    pub(crate) fn delete(&self, resource: &'static str, name: &str) {
        let object = self.find(resource, name).unwrap();
        if has_finalizers(&object) {
            self.change(resource, name, &json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}));
        } else {
            self.remove(resource, object);
        }
    }

    fn remove(&self, resource: &'static str, mut object: Value) -> Value {
        let version = *self.version.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let mut state = self.state();
        state.objects.remove(&(resource, name(&object)));
        state.history.push((version, resource, event("DELETED", &object)));
        self.version.send_replace(version);
        object
    }

    /// Sets an admission policy that changes each written object by this merge patch.
    pub(crate) fn enforce(&self, policy: Value) {
        self.state().policy = Some(policy);
    }

    /// Fails the next reads of single objects of this resource.
    pub(crate) fn fail_reads(&self, resource: &'static str, reads: usize) {
        self.state().failing_reads.insert(resource, reads);
    }

    /// Rejects the next writes to objects with these status codes.
    pub(crate) fn refuse(&self, codes: &[u16]) {
        self.state().refusals.extend(codes);
    }

    /// Lets lists of this resource take this time.
    pub(crate) fn slow(&self, resource: &'static str, time: Duration) {
        self.state().slow = Some((resource, time));
    }

    /// The present state, for [`ApiServer::restore`].
    pub(crate) fn back_up(&self) -> Backup {
        Backup { objects: self.state().objects.clone(), version: *self.version.borrow() }
    }

    /// Goes back to an older state. As with the real one, watches that begin in the future stay silent.
    pub(crate) fn restore(&self, backup: Backup) {
        let mut state = self.state();
        state.objects = backup.objects;
        state.history.retain(|(version, _, _)| *version <= backup.version);
        self.version.send_replace(backup.version);
    }

    /// As [`ApiServer::restore`], with versions that are raised by a billion as etcd's documentation recommends: watches that begin
    /// before that fail.
    pub(crate) fn restore_raised(&self, backup: Backup) {
        let version = backup.version + 1_000_000_000;
        let mut state = self.state();
        state.objects = backup.objects;
        state.history.clear();
        state.compacted = version;
        self.version.send_replace(version);
    }

    fn find(&self, resource: &'static str, name: &str) -> Option<Value> {
        self.state().objects.get(&(resource, name.to_owned())).cloned()
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
        match route(head.uri.path()) {
            None => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let mut state = self.state();
                let own = text(&body["metadata"]["name"]);
                let repeated = head.uri.path().split_once("/events/").map(|(_, repeated)| repeated);
                if repeated.is_some_and(|repeated| !state.posted.contains_key(repeated)) {
                    return reply(404, &json!({"reason": "NotFound", "code": 404}));
                }
                let posted = state.posted.entry(repeated.map_or(own, str::to_owned)).or_default();
                merge(posted, &body);
                let body = posted.clone();
                let name = text(&body["regarding"]["name"]);
                let namespace = body["regarding"]["namespace"].as_str().unwrap_or("default");
                let path = format!("/namespaces/{namespace}/events");
                assert!(head.uri.path().contains(&path), "an event of {namespace}/{name} elsewhere");
                state.events.push(format!("{} {name}", text(&body["reason"])));
                state.notes.push(format!("{} {name}: {}", head.method, text(&body["note"])));
                drop(state);
                reply(201, &body)
            }
            Some((resource, None, _)) if query.contains("watch=true") => self.watch(resource, query).await,
            Some((resource, None, _)) => {
                let slow = self.state().slow.filter(|(of, _)| *of == resource);
                tokio::time::sleep(slow.map_or(Duration::ZERO, |(_, time)| time)).await;
                self.list(resource, query)
            }
            Some((resource, Some(name), target)) => self.one(&head.method, (resource, name), target, &body),
        }
    }

    fn list(&self, resource: &'static str, query: &str) -> Response<Body> {
        let mut state = self.state();
        // A list of one object only asks for the version.
        let asks_for_version = query.split('&').any(|part| part == "limit=1");
        if !asks_for_version {
            state.lists.push(resource);
        }
        let items = state.objects.iter().filter(|((of, _), _)| *of == resource);
        let most = if asks_for_version { 1 } else { usize::MAX };
        let items: Vec<_> = items.take(most).map(|(_, object)| object.clone()).collect();
        let metadata = json!({"resourceVersion": self.version.borrow().to_string()});
        reply(200, &json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}))
    }

    /// A watch that ends after its first events, so that the client asks for more.
    async fn watch(&self, resource: &'static str, query: &str) -> Response<Body> {
        let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")).unwrap();
        let since: u64 = since.parse().unwrap();
        let events = || {
            let state = self.state();
            // In the order of their versions.
            let begin = state.history.partition_point(|(version, _, _)| *version <= since);
            let events = state.history[begin..].iter().filter(|(_, of, _)| *of == resource);
            events.map(|(_, _, line)| line.as_str()).collect::<String>()
        };
        let (mut version, mut lines) = (self.version.subscribe(), String::new());
        let has_some = |_: &u64| {
            lines = events();
            !lines.is_empty() || self.state().compacted > since
        };
        version.wait_for(has_some).await.unwrap();
        if self.state().compacted > since {
            return failure(410, &json!({}));
        }
        Response::new(Body::from(lines.into_bytes()))
    }

    fn one(
        &self,
        method: &Method,
        (resource, name): Key,
        target: PatchTarget,
        body: &Value,
    ) -> Response<Body> {
        if *method == Method::GET
            && let Some(left @ 1..) = self.state().failing_reads.get_mut(resource)
        {
            *left -= 1;
            return failure(503, &json!({}));
        }
        let Some(mut object) = self.find(resource, &name) else { return failure(404, &json!({})) };
        if *method == Method::DELETE {
            self.state().writes.push(format!("DELETE {name}"));
            for precondition in ["uid", "resourceVersion"] {
                let expected = &body["preconditions"][precondition];
                if !expected.is_null() && *expected != object["metadata"][precondition] {
                    return failure(409, &json!({}));
                }
            }
            object = self.remove(resource, object);
        }
        if *method == Method::PATCH {
            let suffix = if target == PatchTarget::Status { "/status" } else { "" };
            self.state().writes.push(format!("PATCH {name}{suffix}"));
            let (version, uid) = (&body["metadata"]["resourceVersion"], &body["metadata"]["uid"]);
            if let Some(code) = self.state().refusals.pop_front() {
                return failure(code, &json!({}));
            }
            if *uid != object["metadata"]["uid"] {
                return failure(422, &json!({"causes": [{"field": "metadata.uid"}]}));
            }
            if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
                return failure(409, &json!({}));
            }
            let has_ingress = body["status"]["loadBalancer"]["ingress"].is_array();
            if has_ingress && object["spec"]["type"] != "LoadBalancer" {
                return failure(422, &json!({"causes": [{"field": "status.loadBalancer.ingress"}]}));
            }
            if resource == SERVICES {
                patch_service(&mut object, target, body);
            } else {
                let mut node = StoredNode(object);
                node.patch(target, body);
                object = node.0;
            }
            if let Some(policy) = self.state().policy.clone() {
                merge(&mut object, &policy);
            }
            let is_going = !object["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(&object);
            object = if is_going { self.remove(resource, object) } else { self.store(resource, object) };
        }
        reply(200, &object)
    }
}

/// The resource, the name of the object, and the patch target of a path. `None` for events.
fn route(path: &str) -> Option<(&'static str, Option<String>, PatchTarget)> {
    let (path, target) = match path.strip_suffix("/status") {
        Some(path) => (path, PatchTarget::Status),
        None => (path, PatchTarget::Object),
    };
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    match parts[..] {
        ["api", "v1", "nodes"] => Some((NODES, None, target)),
        ["api", "v1", "nodes", name] => Some((NODES, Some(name.to_owned()), target)),
        ["api", "v1", "services"] => Some((SERVICES, None, target)),
        ["api", "v1", "namespaces", namespace, "services", name] => {
            Some((SERVICES, Some(format!("{namespace}/{name}")), target))
        }
        ["api", "v1", "namespaces"] => Some(("namespaces", None, target)),
        ["api", "v1", "namespaces", name] => Some(("namespaces", Some(name.to_owned()), target)),
        ["apis", "discovery.k8s.io", "v1", "endpointslices"] => Some(("endpointslices", None, target)),
        _ => None,
    }
}

fn name(object: &Value) -> String {
    let [name, namespace] = ["name", "namespace"].map(|key| object["metadata"][key].as_str());
    namespace.map_or(name.unwrap().to_owned(), |namespace| format!("{namespace}/{}", name.unwrap()))
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

/// Applies a strategic merge patch to a Service, as far as the controller uses it.
pub(crate) fn patch_service(service: &mut Value, target: PatchTarget, patch: &Value) {
    assert!(target == PatchTarget::Status, "only the status of a Service is written");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let metadata = &patch["metadata"];
    let mut finalizers = list(&service["metadata"]["finalizers"]);
    finalizers
        .retain(|finalizer| !list(&metadata["$deleteFromPrimitiveList/finalizers"]).contains(finalizer));
    for finalizer in list(&metadata["finalizers"]) {
        if !finalizers.contains(&finalizer) {
            finalizers.push(finalizer);
        }
    }
    service["metadata"]["finalizers"] = json!(finalizers);
    if let Some(annotations) = metadata.get("annotations") {
        merge(&mut service["metadata"]["annotations"], annotations);
    }
    if let Some(status) = patch.get("status") {
        merge(&mut service["status"], status);
    }
}

fn failure(code: u16, details: &Value) -> Response<Body> {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "details": details});
    reply(code, &status)
}

/// A watch event.
fn event(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
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
