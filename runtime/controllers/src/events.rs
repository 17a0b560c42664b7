//! Events, which users see with `kubectl describe`. [`Reason`] lists all that Pileus records.
//!
//! Events are best effort. A task of their own sends them from bounded queues, so that many events never delay a write that
//! matters. Problems have a queue of their own, and are sent first and without pauses: those of one Node don't wait for the
//! normal events of a thousand others. Events that don't fit into their queue, and events that repeat too often, are dropped
//! and counted.

mod reason;
mod series;
mod spam_filter;

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::describe;
use crate::facts::node::NodeFacts;
use crate::facts::service::ServiceFacts;
use crate::metrics::Metrics;
pub use reason::Reason;
use series::{Series, SeriesTable};
use spam_filter::SpamFilter;

/// The length of each queue: one event each for so many Nodes that join at once.
const QUEUE: usize = 5000;

/// How many times as long as the last event took the sender waits before the next one, if that reports no problem. An event costs
/// the API server nearly as much as a write that a user waits for, so events leave it most of its time.
const PAUSE_FACTOR: u32 = 4;

/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// How long the API server may take to accept an event.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest note that the API server accepts, in bytes.
const MAX_NOTE: usize = 1024;

/// The namespace of events about objects that have none.
const DEFAULT_NAMESPACE: &str = "default";

/// What an event is about.
#[derive(Debug, Hash)]
struct Object {
    api_version: &'static str,
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    uid: Option<String>,
}

impl Object {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }

    /// The name of the first event of a series about it.
    fn event_name(&self, first: Timestamp) -> String {
        format!("{}.{:x}", self.name, first.as_nanosecond())
    }

    fn reference(self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.to_owned()),
            kind: Some(self.kind.to_owned()),
            namespace: self.namespace,
            name: Some(self.name),
            uid: self.uid,
            ..ObjectReference::default()
        }
    }
}

/// An event that waits to be sent.
struct Waiting {
    object: Object,
    reason: Reason,
    note: String,
}

/// Records the events of one component. Clones share the queues.
#[derive(Clone)]
pub struct Events {
    problems: mpsc::Sender<Waiting>,
    normal: mpsc::Sender<Waiting>,
    metrics: Metrics,
}

/// Sends the events of one component.
struct Sender {
    client: Client,
    /// The component, and the name of this process.
    reporter: (String, String),
    problems: mpsc::Receiver<Waiting>,
    normal: mpsc::Receiver<Waiting>,
    filter: SpamFilter,
    series: SeriesTable,
    /// Makes the keys of `filter` and `series`.
    hashes: RandomState,
    metrics: Metrics,
    /// No normal event is sent before.
    pause_ends: Instant,
}

impl Sender {
    /// Sends events until both queues are closed and empty.
    async fn run(mut self) {
        while let Some(waiting) = self.next().await {
            self.send(waiting).await;
        }
    }

    /// The next event: a problem if there is one, else a normal one after the pause. A process that ends doesn't wait.
    async fn next(&mut self) -> Option<Waiting> {
        loop {
            let is_paused = Instant::now() < self.pause_ends && !self.normal.is_closed();
            tokio::select! {
                biased;
                Some(waiting) = self.problems.recv() => return Some(waiting),
                Some(waiting) = self.normal.recv(), if !is_paused => return Some(waiting),
                () = tokio::time::sleep_until(self.pause_ends), if is_paused => {}
                else => return None,
            }
        }
    }

    async fn send(&mut self, event: Waiting) {
        let Waiting { object, reason, .. } = &event;
        let (started, reason) = (Instant::now(), reason.clone());
        if !self.filter.allow(self.hashes.hash_one((object, reason.limit())), started) {
            return self.metrics.count_event("withheld");
        }
        match tokio::time::timeout(SEND_TIMEOUT, self.publish(event, started)).await {
            Ok(Ok(())) => self.metrics.count_event("sent"),
            Err(_elapsed) => self.metrics.count_event("failed"),
            Ok(Err(error)) => {
                self.metrics.count_event("failed");
                let error = describe(&error);
                tracing::debug!(%error, reason = %reason.as_str(), "event not sent");
            }
        }
        if !reason.is_warning() {
            let now = Instant::now();
            self.pause_ends = now + ((now - started) * PAUSE_FACTOR).min(MAX_PAUSE);
        }
    }

    /// Makes an event, or counts it in the series of the one that said the same before. Another note is another event: a user
    /// reads why a Node fails now, and not why it failed at first.
    async fn publish(&mut self, event: Waiting, now: Instant) -> kube::Result<()> {
        let Waiting { object, reason, note } = &event;
        let (key, time) = (self.hashes.hash_one((object, reason.as_str(), note)), Timestamp::now());
        let api = Api::<Event>::namespaced(self.client.clone(), object.namespace());
        if let Some(series) = self.series.open(key, now) {
            let series = series.again(now);
            let patch = json!({"series": {"count": series.count, "lastObservedTime": MicroTime(time)}});
            let name = object.event_name(series.first);
            match api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {
                    self.series.set(key, series);
                    return Ok(());
                }
                // An operator may have deleted it.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        api.create(&PostParams::default(), &self.event(event, time)).await?;
        self.series.set(key, Series::begin(time, now));
        Ok(())
    }

    fn event(&self, Waiting { object, reason, note }: Waiting, time: Timestamp) -> Event {
        let (component, instance) = self.reporter.clone();
        Event {
            metadata: ObjectMeta {
                name: Some(object.event_name(time)),
                namespace: object.namespace.clone(),
                ..ObjectMeta::default()
            },
            action: Some(reason.action().to_owned()),
            event_time: Some(MicroTime(time)),
            note: Some(note),
            reason: Some(reason.as_str().to_owned()),
            regarding: Some(object.reference()),
            reporting_controller: Some(component),
            reporting_instance: Some(instance),
            type_: Some(if reason.is_warning() { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        }
    }
}

impl Events {
    /// Starts the task that sends the events. It ends once all clones are dropped and all events have been sent. `component` is
    /// the events' source in `kubectl`; `instance` names this process.
    pub fn start(
        client: Client,
        component: &str,
        instance: &str,
        metrics: Metrics,
    ) -> (Self, JoinHandle<()>) {
        let ((problems, waiting_problems), (normal, waiting)) = (mpsc::channel(QUEUE), mpsc::channel(QUEUE));
        let now = Instant::now();
        let sender = Sender {
            client,
            reporter: (component.to_owned(), instance.to_owned()),
            problems: waiting_problems,
            normal: waiting,
            filter: SpamFilter::new(now),
            series: SeriesTable::new(now),
            hashes: RandomState::new(),
            metrics: metrics.clone(),
            pause_ends: now,
        };
        (Self { problems, normal, metrics }, tokio::spawn(sender.run()))
    }

    /// Records an event about a Node.
    pub(crate) fn record_for_node(&self, node: &NodeFacts, reason: Reason, note: String) {
        let NodeFacts { name, uid, .. } = node;
        let object = Object {
            api_version: "v1",
            kind: "Node",
            namespace: None,
            name: name.clone(),
            uid: Some(uid.clone()),
        };
        self.record(object, reason, note);
    }

    /// Records an event about a Service, in its namespace.
    pub(crate) fn record_for_service(&self, service: &ServiceFacts, reason: Reason, note: String) {
        let pileus_cloud::Service { namespace, name, uid, .. } = &service.service;
        let object = Object {
            api_version: "v1",
            kind: "Service",
            namespace: Some(namespace.clone()),
            name: name.clone(),
            uid: Some(uid.clone()),
        };
        self.record(object, reason, note);
    }

    /// Records an event about a provider, by the name of its document and, for a resource, its UID, without which
    /// `kubectl describe` doesn't show the event. The object has no namespace, so the event is in the namespace `default`.
    pub fn record_for_provider(&self, name: &str, uid: Option<String>, reason: Reason, note: String) {
        let (api_version, kind) = ("pileus.dev/v1alpha1", "CloudProvider");
        self.record(Object { api_version, kind, namespace: None, name: name.to_owned(), uid }, reason, note);
    }

    fn record(&self, object: Object, reason: Reason, mut note: String) {
        note.truncate(note.floor_char_boundary(MAX_NOTE));
        let queue = if reason.is_warning() { &self.problems } else { &self.normal };
        if queue.try_send(Waiting { object, reason, note }).is_err() {
            self.metrics.count_event("dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server::ApiServer;
    use prometheus_client::registry::Registry;

    #[tokio::test(start_paused = true)]
    async fn a_repeated_note_joins_its_series_and_a_new_note_is_a_new_event() {
        let api = ApiServer::new();
        let metrics = Metrics::register(&mut Registry::default());
        let (events, sending) = Events::start(api.client(), "test", "test", metrics);
        let record = |name: &str, note: &str| {
            let node = NodeFacts::registered(name);
            events.record_for_node(&node, Reason::CloudInitializationFailed, note.to_owned());
        };
        for (name, note) in [("a", "no machine"), ("a", "no machine"), ("b", "no machine"), ("a", "denied")] {
            record(name, note);
        }
        drop(events);
        sending.await.unwrap();
        assert_eq!(
            api.notes(),
            ["POST a: no machine", "PATCH a: no machine", "POST b: no machine", "POST a: denied"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_whose_event_is_gone_begins_again() {
        let api = ApiServer::new();
        let metrics = Metrics::register(&mut Registry::default());
        let (events, sending) = Events::start(api.client(), "test", "test", metrics);
        let record = async || {
            let node = NodeFacts::registered("a");
            events.record_for_node(&node, Reason::CloudInitializationFailed, "denied".to_owned());
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        record().await;
        record().await;
        api.forget_events();
        record().await;
        record().await;
        drop(events);
        sending.await.unwrap();
        assert_eq!(api.notes(), ["POST a: denied", "PATCH a: denied", "POST a: denied", "PATCH a: denied"]);
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_repeat_too_often_are_withheld_and_others_still_sent() {
        let api = ApiServer::new();
        let metrics = Metrics::register(&mut Registry::default());
        let (events, sending) = Events::start(api.client(), "test", "test", metrics);
        let node = NodeFacts::registered("a");
        for count in 0..40 {
            events.record_for_node(&node, Reason::CloudRefreshFailed, format!("the {count}th"));
        }
        events.record_for_node(&node, Reason::DeletingNode, "at last".to_owned());
        drop(events);
        sending.await.unwrap();
        let notes = api.notes();
        assert_eq!((notes.len(), notes.last().unwrap().as_str()), (26, "POST a: at last"));
    }

    #[tokio::test(start_paused = true)]
    async fn reasons_that_a_provider_invents_share_the_limit_of_its_warnings_or_notices() {
        let api = ApiServer::new();
        let metrics = Metrics::register(&mut Registry::default());
        let (events, sending) = Events::start(api.client(), "test", "test", metrics);
        let service = ServiceFacts::balanced("a");
        for count in 0..40 {
            let reason = Reason::OfProvider { reason: format!("Invented{count}"), is_warning: count < 30 };
            events.record_for_service(&service, reason, "why".to_owned());
        }
        events.record_for_service(&service, Reason::SyncLoadBalancerFailed, "at last".to_owned());
        drop(events);
        sending.await.unwrap();
        let notes = api.notes();
        // It is a problem too, so it passes the notices.
        assert_eq!((notes.len(), notes.contains(&"POST a: at last".to_owned())), (36, true));
    }

    #[tokio::test(start_paused = true)]
    async fn events_leave_the_api_server_most_of_its_time_until_the_process_ends() {
        let api = ApiServer::new();
        let metrics = Metrics::register(&mut Registry::default());
        let (events, sending) = Events::start(api.client(), "test", "test", metrics);
        let record = |from: usize, count: usize, reason: Reason| {
            for n in from..from + count {
                let node = NodeFacts::registered(&n.to_string());
                events.record_for_node(&node, reason.clone(), "why".to_owned());
            }
        };
        // A request takes 5 ms.
        record(0, 300, Reason::Synced);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let sent = api.notes().len();
        assert!((35..=41).contains(&sent), "{sent}");
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(api.notes().len(), 300, "none is dropped");
        record(0, 100, Reason::CloudInitializationFailed);
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!(api.notes().len(), 400, "a problem is reported without a pause");
        record(1000, 300, Reason::Synced);
        let last = Instant::now();
        drop(events);
        sending.await.unwrap();
        assert!(last.elapsed() < Duration::from_millis(1600), "{:?}", last.elapsed());
        assert_eq!(api.notes().len(), 700);
    }

    #[tokio::test(start_paused = true)]
    async fn a_problem_is_sent_before_the_normal_events_that_wait_and_in_their_pauses() {
        let api = ApiServer::new();
        let metrics = Metrics::register(&mut Registry::default());
        let (events, _) = Events::start(api.client(), "test", "test", metrics);
        let record = |name: &str, reason| {
            events.record_for_node(&NodeFacts::registered(name), reason, "why".to_owned());
        };
        for n in 0..100 {
            record(&n.to_string(), Reason::Synced);
        }
        record("first", Reason::CloudInitializationFailed);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(api.notes().is_empty(), "a request takes 5 ms");
        tokio::time::sleep(Duration::from_millis(14)).await;
        assert_eq!(api.notes(), ["POST first: why", "POST 0: why"]);
        record("second", Reason::CloudRefreshFailed);
        tokio::time::sleep(Duration::from_millis(6)).await;
        assert_eq!(api.notes()[2..], ["POST second: why"]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(api.notes().len(), 102);
    }
}
