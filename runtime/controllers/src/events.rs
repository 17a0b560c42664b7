//! Events, which users see with `kubectl describe`. [`Reason`] lists all that Pileus records.
//!
//! Events are best effort. A task of their own sends them from bounded queues, so that many events never delay a write that
//! matters. Problems have a queue of their own, and are sent first and without pauses: those of one Node don't wait for the
//! normal events of a thousand others. Events that don't fit into their queue, and events that repeat too often, are dropped
//! and counted.

mod reason;
mod spam_filter;

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::describe;
use crate::facts::node::NodeFacts;
use crate::facts::service::ServiceFacts;
use crate::metrics::Metrics;
pub use reason::Reason;
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

/// How long a [`Recorder`] counts repetitions of an event in its series (kube's `CACHE_TTL`).
const SERIES_TTL: Duration = Duration::from_mins(6);

/// A recorder for each note. A single recorder would merge all events of one object and reason into a series that shows the
/// first note: a user would read why a Node failed at first, not why it fails now.
struct Recorders {
    client: Client,
    reporter: Reporter,
    by_note: HashMap<Option<String>, (Recorder, Instant)>,
}

impl Recorders {
    /// The recorder for this event's note.
    fn recorder(&mut self, event: &Event, now: Instant) -> Recorder {
        self.by_note.retain(|_, (_, used)| now.duration_since(*used) <= SERIES_TTL);
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        let (recorder, used) = self.by_note.entry(event.note.clone()).or_insert_with(|| (new(), now));
        *used = now;
        recorder.clone()
    }
}

/// An event, the object that it is about, and its reason.
type Waiting = (Event, ObjectReference, Reason);

/// Records the events of one component. Clones share the queues.
#[derive(Clone)]
pub struct Events {
    problems: mpsc::Sender<Waiting>,
    normal: mpsc::Sender<Waiting>,
    metrics: Metrics,
}

/// Sends the events of one component.
struct Sender {
    problems: mpsc::Receiver<Waiting>,
    normal: mpsc::Receiver<Waiting>,
    filter: SpamFilter,
    recorders: Recorders,
    metrics: Metrics,
    /// No normal event is sent before.
    pause_ends: Instant,
}

impl Sender {
    /// Sends events until both queues are closed and empty.
    async fn run(mut self) {
        while let Some((event, object, reason)) = self.next().await {
            self.send(event, object, &reason).await;
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

    async fn send(&mut self, event: Event, object: ObjectReference, reason: &Reason) {
        let (started, metrics) = (Instant::now(), &self.metrics);
        let of = object.uid.as_ref().or(object.name.as_ref()).cloned().unwrap_or_default();
        if !self.filter.allow(of, reason.limit().to_owned(), started) {
            return metrics.count_event("withheld");
        }
        let recorder = self.recorders.recorder(&event, started);
        match tokio::time::timeout(SEND_TIMEOUT, recorder.publish(&event, &object)).await {
            Ok(Ok(())) => metrics.count_event("sent"),
            Err(_elapsed) => metrics.count_event("failed"),
            Ok(Err(error)) => {
                metrics.count_event("failed");
                let error = describe(&error);
                tracing::debug!(%error, reason = %event.reason, "event not sent");
            }
        }
        if matches!(event.type_, EventType::Normal) {
            let now = Instant::now();
            self.pause_ends = now + ((now - started) * PAUSE_FACTOR).min(MAX_PAUSE);
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
        let reporter = Reporter { controller: component.to_owned(), instance: Some(instance.to_owned()) };
        let now = Instant::now();
        let sender = Sender {
            problems: waiting_problems,
            normal: waiting,
            filter: SpamFilter::new(now),
            recorders: Recorders { client, reporter, by_note: HashMap::new() },
            metrics: metrics.clone(),
            pause_ends: now,
        };
        (Self { problems, normal, metrics }, tokio::spawn(sender.run()))
    }

    /// Records an event about a Node.
    pub(crate) fn record_for_node(&self, node: &NodeFacts, reason: Reason, note: String) {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.name.clone()),
            uid: Some(node.uid.clone()),
            ..ObjectReference::default()
        };
        self.record(object, reason, note);
    }

    /// Records an event about a Service, in its namespace.
    pub(crate) fn record_for_service(&self, service: &ServiceFacts, reason: Reason, note: String) {
        let pileus_cloud::Service { namespace, name, uid, .. } = &service.service;
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        self.record(object, reason, note);
    }

    /// Records an event about a provider, by the name of its document and, for a resource, its UID, without which
    /// `kubectl describe` doesn't show the event. The object has no namespace, so the event is in the namespace `default`.
    pub fn record_for_provider(&self, name: &str, uid: Option<String>, reason: Reason, note: String) {
        let object = ObjectReference {
            api_version: Some("pileus.dev/v1alpha1".to_owned()),
            kind: Some("CloudProvider".to_owned()),
            name: Some(name.to_owned()),
            uid,
            ..ObjectReference::default()
        };
        self.record(object, reason, note);
    }

    fn record(&self, object: ObjectReference, reason: Reason, mut note: String) {
        note.truncate(note.floor_char_boundary(MAX_NOTE));
        let event = Event {
            type_: reason.kind(),
            reason: reason.as_str().to_owned(),
            note: Some(note),
            action: reason.action().to_owned(),
            secondary: None,
        };
        let queue = match event.type_ {
            EventType::Normal => &self.normal,
            EventType::Warning => &self.problems,
        };
        if queue.try_send((event, object, reason)).is_err() {
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

    #[tokio::test]
    async fn recorders_are_kept_as_long_as_their_series() {
        let api = ApiServer::new();
        let reporter = Reporter::from("test".to_owned());
        let mut recorders = Recorders { client: api.client(), reporter, by_note: HashMap::new() };
        let event = |note: &str| Event {
            type_: EventType::Normal,
            reason: String::new(),
            note: Some(note.to_owned()),
            action: String::new(),
            secondary: None,
        };
        let start = Instant::now();
        for (note, after, kept) in [
            ("a", Duration::ZERO, 1),
            ("b", SERIES_TTL, 2),
            ("b", SERIES_TTL, 2),
            ("b", SERIES_TTL * 2, 1),
            ("c", SERIES_TTL * 9, 1),
        ] {
            recorders.recorder(&event(note), start + after);
            assert_eq!(recorders.by_note.len(), kept, "{note} after {after:?}");
        }
    }
}
