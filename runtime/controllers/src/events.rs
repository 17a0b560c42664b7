//! Events: what users see with `kubectl describe`. All that we ever send are in one list.
//!
//! Events are told, not promised: they are sent by a task of their own behind a bounded queue, so that a storm of them
//! delays no write that matters, and what doesn't fit is dropped and counted.

use k8s_openapi::api::core::v1::ObjectReference;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::facts::node::NodeFacts;
use crate::metrics::Metrics;

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
        }
    }

    const fn kind(self) -> EventType {
        match self {
            Self::Synced | Self::DeletingNode => EventType::Normal,
            Self::CloudInitializationFailed
            | Self::CloudRefreshFailed
            | Self::DeletingNodeFailed
            | Self::DeletionHeld => EventType::Warning,
        }
    }

    /// What was being done, as `events.k8s.io` wants to know.
    const fn action(self) -> &'static str {
        match self {
            Self::Synced | Self::CloudInitializationFailed => "Initialize",
            Self::DeletingNode | Self::DeletingNodeFailed | Self::DeletionHeld => "Delete",
            Self::CloudRefreshFailed => "Refresh",
        }
    }
}

/// The events that wait to be sent: one each for a thousand Nodes that join at once.
const QUEUE: usize = 1000;

/// How long the API server may take to accept one.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest note that the API server accepts, in bytes.
const NOTE: usize = 1024;

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
        let recorder = Recorder::new(client, reporter);
        let counted = metrics.clone();
        let sending = tokio::spawn(async move {
            while let Some((event, object)) = waiting.recv().await {
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
    pub(crate) fn about_node(&self, node: &NodeFacts, reason: Reason, mut note: String) {
        note.truncate(note.floor_char_boundary(NOTE));
        let event = Event {
            type_: reason.kind(),
            reason: reason.as_str().to_owned(),
            note: Some(note),
            action: reason.action().to_owned(),
            secondary: None,
        };
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.name.clone()),
            uid: Some(node.uid.clone()),
            ..ObjectReference::default()
        };
        if self.queue.try_send((event, object)).is_err() {
            self.metrics.event("dropped");
        }
    }
}
