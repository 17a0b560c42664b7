//! Actions: changes of load balancers and networks that take time. Pure.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::change::{Change, RouteChange};
use super::listing::Listed;

/// A type of resource that an action can concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceType {
    /// A server. Actions don't lock it.
    Server,
    /// A load balancer.
    LoadBalancer,
    /// A network.
    Network,
}

impl ResourceType {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::LoadBalancer => "load_balancer",
            Self::Network => "network",
        }
    }
}

/// A resource that an action concerns.
pub type Reference = (ResourceType, u64);

/// What an action does when it ends.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// The load balancer exists already. It is removed if the action fails.
    Create,
    Change(Change),
    Route(RouteChange),
}

/// The state of an action.
#[derive(Clone, Debug)]
pub(super) enum Status {
    Running { pending: Pending, fails: bool },
    Success,
    Error { code: String, message: String },
}

/// An action.
#[derive(Clone, Debug)]
pub(super) struct Action {
    pub(super) id: u64,
    pub(super) command: String,
    pub(super) started: Duration,
    /// When it ends, or has ended.
    pub(super) due: Duration,
    pub(super) status: Status,
    pub(super) resources: Vec<Reference>,
}

impl Action {
    pub(super) fn is_running(&self) -> bool {
        matches!(self.status, Status::Running { .. })
    }

    /// Whether it keeps others from changing this resource.
    pub(super) fn locks(&self, resource: Reference) -> bool {
        self.is_running() && resource.0 != ResourceType::Server && self.resources.contains(&resource)
    }

    pub(super) fn view(&self, now: Duration, started_at: Timestamp) -> Value {
        let progress = if self.is_running() {
            let millis = |until: Duration| until.saturating_sub(self.started).as_millis();
            let share = millis(now) * 100 / millis(self.due).max(1);
            u64::try_from(share).unwrap_or_default().min(99)
        } else {
            100
        };
        let error = match &self.status {
            Status::Error { code, message } => json!({"code": code, "message": message}),
            _ => Value::Null,
        };
        let resources: Vec<_> =
            self.resources.iter().map(|(kind, id)| json!({"id": id, "type": kind.name()})).collect();
        json!({
            "id": self.id, "command": self.command, "status": self.status(), "progress": progress,
            "started": (started_at + self.started).to_string(),
            "finished": (!self.is_running()).then(|| (started_at + self.due).to_string()),
            "resources": resources, "error": error,
        })
    }
}

impl Listed for Action {
    const FILTERS: &'static [&'static str] = &["id", "status"];
    const SORTS: &'static [&'static str] = &["id", "command", "status", "started", "finished"];

    fn id(&self) -> u64 {
        self.id
    }
    fn status(&self) -> &'static str {
        match self.status {
            Status::Running { .. } => "running",
            Status::Success => "success",
            Status::Error { .. } => "error",
        }
    }
    fn order(&self, field: &str) -> (u64, String) {
        match field {
            "command" => (0, self.command.clone()),
            "status" => (0, self.status().to_owned()),
            "finished" => (u64::try_from(self.due.as_millis()).unwrap_or(u64::MAX), String::new()),
            _ => (self.id, String::new()),
        }
    }
}
