//! Events: what users see with `kubectl describe`. All that we ever send are in one list.
//!
//! Events are told, not promised: they are sent by a task of their own behind a bounded queue, so that a storm of them
//! delays no write that matters, and what doesn't fit is dropped and counted, as is what is told again and again.

mod allowance;

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::facts::node::NodeFacts;
use crate::facts::service::ServiceFacts;
use crate::metrics::Metrics;
use allowance::Allowances;

/// Why an event is sent. Upstream's reasons where upstream has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A Node was initialised (upstream's).
    Synced,
    /// A Node can't be initialised. Upstream only logs that.
    CloudInitializationFailed,
    /// A Node is being deleted, as its machine is gone (upstream's).
    DeletingNode,
    /// It could not be deleted (upstream's).
    DeletingNodeFailed,
    /// A Node's machine is gone, but so many are that its deletion is held.
    DeletionHeld,
    /// A Node that takes part in the cluster can't follow its machine before somebody acts. Upstream only logs that.
    CloudRefreshFailed,
    /// A Node lacks a route for its Pods (upstream's).
    FailedToCreateRoute,
    /// A Service's load balancer is being made, or changed (upstream's).
    EnsuringLoadBalancer,
    /// It is as the Service wants (upstream's).
    EnsuredLoadBalancer,
    /// It can't be made so (upstream's).
    SyncLoadBalancerFailed,
    /// The cloud is at it. Upstream tells of that as of a failure.
    LoadBalancerPending,
    /// What the provider has to say about a Service although all is done.
    LoadBalancerWarning,
    /// A Service's load balancer is being deleted (upstream's).
    DeletingLoadBalancer,
    /// It is gone (upstream's).
    DeletedLoadBalancer,
    /// It can't be deleted (upstream's).
    DeleteLoadBalancerFailed,
    /// The Nodes behind a load balancer are the right ones again (upstream's).
    UpdatedLoadBalancer,
    /// They could not be changed (upstream's).
    UpdateLoadBalancerFailed,
    /// No Node can take a Service's traffic (upstream's).
    UnAvailableLoadBalancer,
    /// A credential for the cloud can't be acquired or renewed.
    CredentialFailed,
    /// It can be again.
    CredentialRestored,
}

impl Reason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "Synced",
            Self::CloudInitializationFailed => "CloudInitializationFailed",
            Self::DeletingNode => "DeletingNode",
            Self::DeletingNodeFailed => "DeletingNodeFailed",
            Self::DeletionHeld => "DeletionHeld",
            Self::CloudRefreshFailed => "CloudRefreshFailed",
            Self::FailedToCreateRoute => "FailedToCreateRoute",
            Self::EnsuringLoadBalancer => "EnsuringLoadBalancer",
            Self::EnsuredLoadBalancer => "EnsuredLoadBalancer",
            Self::SyncLoadBalancerFailed => "SyncLoadBalancerFailed",
            Self::LoadBalancerPending => "LoadBalancerPending",
            Self::LoadBalancerWarning => "LoadBalancerWarning",
            Self::DeletingLoadBalancer => "DeletingLoadBalancer",
            Self::DeletedLoadBalancer => "DeletedLoadBalancer",
            Self::DeleteLoadBalancerFailed => "DeleteLoadBalancerFailed",
            Self::UpdatedLoadBalancer => "UpdatedLoadBalancer",
            Self::UpdateLoadBalancerFailed => "UpdateLoadBalancerFailed",
            Self::UnAvailableLoadBalancer => "UnAvailableLoadBalancer",
            Self::CredentialFailed => "CredentialFailed",
            Self::CredentialRestored => "CredentialRestored",
        }
    }

    /// Whether a load balancer isn't as its Service wants.
    pub(crate) const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::SyncLoadBalancerFailed | Self::UpdateLoadBalancerFailed | Self::DeleteLoadBalancerFailed
        )
    }

    const fn kind(self) -> EventType {
        match self {
            Self::Synced
            | Self::DeletingNode
            | Self::EnsuringLoadBalancer
            | Self::EnsuredLoadBalancer
            | Self::LoadBalancerPending
            | Self::DeletingLoadBalancer
            | Self::DeletedLoadBalancer
            | Self::UpdatedLoadBalancer
            | Self::CredentialRestored => EventType::Normal,
            Self::CloudInitializationFailed
            | Self::CloudRefreshFailed
            | Self::DeletingNodeFailed
            | Self::DeletionHeld
            | Self::FailedToCreateRoute
            | Self::SyncLoadBalancerFailed
            | Self::LoadBalancerWarning
            | Self::DeleteLoadBalancerFailed
            | Self::UpdateLoadBalancerFailed
            | Self::UnAvailableLoadBalancer
            | Self::CredentialFailed => EventType::Warning,
        }
    }

    /// What was being done, as `events.k8s.io` wants to know.
    const fn action(self) -> &'static str {
        match self {
            Self::Synced | Self::CloudInitializationFailed => "Initialize",
            Self::DeletingNode | Self::DeletingNodeFailed | Self::DeletionHeld => "Delete",
            Self::CloudRefreshFailed => "Refresh",
            Self::FailedToCreateRoute => "CreateRoute",
            Self::EnsuringLoadBalancer
            | Self::EnsuredLoadBalancer
            | Self::SyncLoadBalancerFailed
            | Self::LoadBalancerPending
            | Self::LoadBalancerWarning
            | Self::UnAvailableLoadBalancer => "EnsureLoadBalancer",
            Self::DeletingLoadBalancer | Self::DeletedLoadBalancer | Self::DeleteLoadBalancerFailed => {
                "DeleteLoadBalancer"
            }
            Self::UpdatedLoadBalancer | Self::UpdateLoadBalancerFailed => "UpdateLoadBalancer",
            Self::CredentialFailed | Self::CredentialRestored => "Authenticate",
        }
    }
}

/// The events that wait to be sent: one each for a thousand Nodes that join at once.
const QUEUE: usize = 1000;

/// How long the API server may take to accept one.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest note that the API server accepts, in bytes.
const NOTE: usize = 1024;

/// How long a [`Recorder`] counts an event up that is told again (the `CACHE_TTL` of kube).
const COUNTED_UP: Duration = Duration::from_mins(6);

/// The recorders by what they tell. One alone would count up whatever has the same reason, and go on showing what it was
/// told first: a user would read why a Node failed before, not why it fails now.
struct Recorders {
    client: Client,
    reporter: Reporter,
    by_note: HashMap<Option<String>, (Recorder, Instant)>,
}

impl Recorders {
    /// That of what this event tells.
    fn of(&mut self, event: &Event, now: Instant) -> Recorder {
        self.by_note.retain(|_, (_, used)| now.duration_since(*used) <= COUNTED_UP);
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        let (recorder, used) = self.by_note.entry(event.note.clone()).or_insert_with(|| (new(), now));
        *used = now;
        recorder.clone()
    }
}

/// Sends events of one component.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<(Event, ObjectReference)>,
    metrics: Metrics,
}

impl Events {
    /// Starts the task that sends, which ends once everything has been sent and nobody is left to say more. `component`
    /// is what `kubectl` shows as the events' source, `instance` this process.
    pub fn start(
        client: Client,
        component: &str,
        instance: &str,
        metrics: Metrics,
    ) -> (Self, JoinHandle<()>) {
        let (queue, mut waiting) = mpsc::channel::<(Event, ObjectReference)>(QUEUE);
        let reporter = Reporter { controller: component.to_owned(), instance: Some(instance.to_owned()) };
        let mut recorders = Recorders { client, reporter, by_note: HashMap::new() };
        let counted = metrics.clone();
        let sending = tokio::spawn(async move {
            let mut allowances = Allowances::new(Instant::now());
            while let Some((event, object)) = waiting.recv().await {
                let now = Instant::now();
                let of = object.uid.as_ref().or(object.name.as_ref()).cloned().unwrap_or_default();
                if !allowances.take(of, event.reason.clone(), now) {
                    counted.event("withheld");
                    continue;
                }
                let recorder = recorders.of(&event, now);
                match tokio::time::timeout(PATIENCE, recorder.publish(&event, &object)).await {
                    Ok(Ok(())) => counted.event("sent"),
                    Err(_elapsed) => counted.event("failed"),
                    Ok(Err(error)) => {
                        counted.event("failed");
                        tracing::debug!(%error, reason = %event.reason, "event not sent");
                    }
                }
            }
        });
        (Self { queue, metrics }, sending)
    }

    /// Tells something about a Node.
    pub(crate) fn about_node(&self, node: &NodeFacts, reason: Reason, note: String) {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.name.clone()),
            uid: Some(node.uid.clone()),
            ..ObjectReference::default()
        };
        self.about(object, reason, note);
    }

    /// Tells something about a Service, in its namespace.
    pub(crate) fn about_service(&self, service: &ServiceFacts, reason: Reason, note: String) {
        let pileus_cloud::Service { namespace, name, uid, .. } = &service.service;
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        self.about(object, reason, note);
    }

    /// Tells something about a provider, by the name of its document. As an event about something that is in no namespace
    /// it is found in the namespace `default`.
    pub fn about_provider(&self, name: &str, reason: Reason, note: String) {
        let object = ObjectReference {
            api_version: Some("pileus.dev/v1alpha1".to_owned()),
            kind: Some("CloudProvider".to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.about(object, reason, note);
    }

    fn about(&self, object: ObjectReference, reason: Reason, mut note: String) {
        note.truncate(note.floor_char_boundary(NOTE));
        let event = Event {
            type_: reason.kind(),
            reason: reason.as_str().to_owned(),
            note: Some(note),
            action: reason.action().to_owned(),
            secondary: None,
        };
        if self.queue.try_send((event, object)).is_err() {
            self.metrics.event("dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_server::ApiServer;
    use prometheus_client::registry::Registry;

    #[tokio::test(start_paused = true)]
    async fn what_is_told_again_is_counted_up_and_what_is_new_is_told_in_its_own_words() {
        let api = ApiServer::new();
        let metrics = Metrics::register(&mut Registry::default());
        let (events, sending) = Events::start(api.client(), "test", "test", metrics);
        let tell = |name: &str, note: &str| {
            let node = NodeFacts::registered(name);
            events.about_node(&node, Reason::CloudInitializationFailed, note.to_owned());
        };
        for (name, note) in [("a", "no machine"), ("a", "no machine"), ("b", "no machine"), ("a", "denied")] {
            tell(name, note);
        }
        drop(events);
        sending.await.unwrap();
        assert_eq!(
            api.notes(),
            ["POST a: no machine", "PATCH a: no machine", "POST b: no machine", "POST a: denied"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_and_on_is_withheld_and_hides_nothing_else() {
        let api = ApiServer::new();
        let metrics = Metrics::register(&mut Registry::default());
        let (events, sending) = Events::start(api.client(), "test", "test", metrics);
        let node = NodeFacts::registered("a");
        for count in 0..40 {
            events.about_node(&node, Reason::CloudRefreshFailed, format!("the {count}th"));
        }
        events.about_node(&node, Reason::DeletingNode, "at last".to_owned());
        drop(events);
        sending.await.unwrap();
        let notes = api.notes();
        assert_eq!((notes.len(), notes.last().unwrap().as_str()), (26, "POST a: at last"));
    }

    #[tokio::test]
    async fn recorders_are_kept_as_long_as_they_count_up() {
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
            ("b", COUNTED_UP, 2),
            ("b", COUNTED_UP, 2),
            ("b", COUNTED_UP * 2, 1),
            ("c", COUNTED_UP * 9, 1),
        ] {
            recorders.of(&event(note), start + after);
            assert_eq!(recorders.by_note.len(), kept, "{note} after {after:?}");
        }
    }
}
