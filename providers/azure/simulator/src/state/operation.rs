//! Operations that go on after their request was answered: what clients poll, and what happens at the end. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use super::State;
use super::store::Provisioning;
use crate::catalog::{Kind, Provider};
use crate::compute::{self, Power};
use crate::id::Key;
use crate::refusal::Refusal;
use crate::request::{Request, Response};

/// How long the result of an operation can be read after its end.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// How an operation ends, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Succeeded,
    Failed { code: String, message: String },
    Canceled { code: String, message: String },
}

/// What an operation does at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Put,
    /// An action has been carried out already.
    Act,
    Reimage,
    Delete,
    DeleteGroup,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) provider: Option<Provider>,
    pub(crate) location: String,
    pub(crate) subscription: String,
    pub(crate) purpose: Purpose,
    pub(crate) kind: Option<Kind>,
    pub(crate) target: Key,
    pub(crate) began: Duration,
    pub(crate) ends: Duration,
    pub(crate) outcome: Outcome,
}

impl Operation {
    /// The name that the network provider gives it in messages.
    pub(crate) fn name(&self) -> String {
        let verb = if self.purpose == Purpose::Delete { "Delete" } else { "Put" };
        format!("{verb}{}Operation", self.kind.map_or("ResourceGroup", Kind::operation))
    }

    /// The address at which the status of an operation is read.
    pub(super) fn status_url(&self, request: &Request) -> String {
        self.url(request, "operations", "")
    }

    /// The address at which the result of an operation is read.
    pub(super) fn result_url(&self, request: &Request) -> String {
        match self.provider {
            Some(Provider::Compute) => self.url(request, "operations", "&monitor=true"),
            _ => self.url(request, "operationResults", ""),
        }
    }

    fn url(&self, request: &Request, segment: &str, more: &str) -> String {
        let Self { id, provider, location, subscription, .. } = self;
        let version = request.parameter("api-version").unwrap_or_default();
        let origin = &request.origin;
        // Real addresses are signed, and clients have to keep the signature.
        let signature = format!("t=639&c={}&s={}&h={}", &id[..4], &id[4..8], &id[9..13]);
        match provider {
            Some(provider) => format!(
                "{origin}/subscriptions/{subscription}/providers/{}/locations/{location}/{segment}/{id}\
                 ?api-version={version}{more}&{signature}",
                provider.namespace()
            ),
            None => format!(
                "{origin}/subscriptions/{subscription}/operationresults/{id}?api-version={version}&{signature}"
            ),
        }
    }
}

impl State {
    /// Begins an operation, and ends it at once where it takes no time.
    pub(super) fn begin(&mut self, operation: Operation) {
        let (key, id, ends) = (operation.target.clone(), operation.id.clone(), operation.ends);
        if let Some(resource) = self.store.get_mut(&key) {
            resource.operation = Some(id.clone());
        }
        self.operations.insert(id.clone(), operation);
        self.due.insert((ends, id));
        self.advance(self.now);
    }

    /// Advances the time: operations end when they are due.
    pub(super) fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while let Some((ends, id)) = self.due.first().cloned().filter(|(ends, _)| *ends <= self.now) {
            self.due.remove(&(ends, id.clone()));
            self.finish(&id);
        }
        let oldest = self.now.saturating_sub(KEPT_FOR);
        self.operations.retain(|_, operation| operation.ends >= oldest);
        self.store.sweep(self.now.saturating_sub(super::behavior::MAX_LAG));
    }

    fn finish(&mut self, id: &str) {
        let Some(Operation { purpose, target, outcome, kind, .. }) = self.operations.get(id).cloned() else {
            return;
        };
        match purpose {
            Purpose::DeleteGroup => self.remove_group(&target),
            Purpose::Delete if outcome == Outcome::Succeeded => self.remove(&target),
            Purpose::Put | Purpose::Act | Purpose::Reimage | Purpose::Delete => {
                if let Some(resource) = self.store.get_mut(&target)
                    && resource.operation.as_deref() == Some(id)
                {
                    resource.operation = None;
                    if let Some(machine) = resource.machine.as_mut().filter(|_| purpose == Purpose::Reimage) {
                        machine.power = Power::Running;
                    }
                    resource.provisioning = match outcome {
                        Outcome::Succeeded => Provisioning::Succeeded,
                        Outcome::Failed { .. } => Provisioning::Failed,
                        Outcome::Canceled { .. } => Provisioning::Canceled,
                    };
                }
                if kind == Some(Kind::ScaleSet) && purpose == Purpose::Put && outcome == Outcome::Succeeded {
                    compute::scale_set::settle(self, &target);
                }
            }
        }
    }

    /// Ends a running operation early, because a later one takes its place.
    pub(super) fn supersede(&mut self, id: Option<&str>, by: &str) {
        let Some(id) = id else { return };
        let now = self.now;
        let Some(operation) = self.operations.get_mut(id) else { return };
        self.due.remove(&(operation.ends, id.to_owned()));
        operation.ends = now;
        let (code, message) = if operation.provider == Some(Provider::Network) {
            let name = operation.name();
            let message =
                format!("Operation {name} ({id}) was canceled and superseded by operation {name} ({by}).");
            ("CanceledAndSupersededDueToAnotherOperation", message)
        } else {
            (
                "OperationPreempted",
                "Operation execution has been preempted by a more recent operation.".to_owned(),
            )
        };
        operation.outcome = Outcome::Canceled { code: code.to_owned(), message };
    }

    /// Answers a poll.
    pub(super) fn poll(&self, request: &Request, id: &str, is_result: bool) -> Result<Response, Refusal> {
        let unknown =
            || Refusal::new(404, "OperationNotFound", format!("The operation '{id}' could not be found."));
        let operation = self.operations.get(id).ok_or_else(unknown)?;
        let signature = request.parameter("h").unwrap_or_default();
        if operation.id.get(9..13) != Some(signature) {
            return Err(Refusal::new(
                400,
                "InvalidOperationId",
                "The signature of the operation is missing or invalid.",
            ));
        }
        let is_running = operation.ends > self.now;
        if is_result || operation.provider.is_none() {
            return Ok(self.poll_result(request, operation, is_running));
        }
        let status = match (&operation.outcome, is_running) {
            (_, true) => "InProgress",
            (Outcome::Succeeded, _) => "Succeeded",
            (Outcome::Failed { .. }, _) => "Failed",
            (Outcome::Canceled { .. }, _) => "Canceled",
        };
        let mut body = json!({"status": status});
        if operation.provider == Some(Provider::Compute) {
            crate::json::set(&mut body, "name", operation.id.clone());
            crate::json::set(&mut body, "startTime", self.time(operation.began));
            if !is_running {
                crate::json::set(&mut body, "endTime", self.time(operation.ends));
            }
        }
        if let (Outcome::Failed { code, message } | Outcome::Canceled { code, message }, false) =
            (&operation.outcome, is_running)
        {
            crate::json::set(&mut body, "error", json!({"code": code, "message": message, "details": []}));
        }
        let response = Response::json(200, body);
        Ok(if is_running { self.with_retry_after(response) } else { response })
    }

    fn poll_result(&self, request: &Request, operation: &Operation, is_running: bool) -> Response {
        if is_running {
            let response = Response::empty(202).with("location", operation.result_url(request));
            return self.with_retry_after(response);
        }
        match (&operation.outcome, operation.purpose) {
            (Outcome::Failed { code, message }, _) => Refusal::network(400, code, message.clone()).response(),
            (Outcome::Canceled { code, message }, _) => {
                Refusal::network(409, code, message.clone()).response()
            }
            (Outcome::Succeeded, Purpose::Put | Purpose::Act | Purpose::Reimage) => {
                match self.store.get(&operation.target) {
                    Some(resource) => Response::json(200, self.view(resource, false)),
                    None => Response::json(200, Value::Null),
                }
            }
            (Outcome::Succeeded, Purpose::Delete) => Response::empty(204),
            (Outcome::Succeeded, Purpose::DeleteGroup) => Response::empty(200),
        }
    }

    pub(super) fn with_retry_after(&self, response: Response) -> Response {
        match self.behavior.operations.retry_after_seconds {
            Some(seconds) => response.with("retry-after", seconds.to_string()),
            None => response,
        }
    }
}
