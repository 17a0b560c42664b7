//! What is checked before a write: names, regions, etags, and whether an operation runs on the resource. Pure.

use serde_json::Value;
use simulated_cloud::world::WriteFaults;

use super::State;
use super::behavior::Concurrent;
use super::group::location_required;
use super::operation::{Operation, Purpose};
use super::provider::{check_location, normalize_location};
use super::store::Resource;
use crate::catalog::{Kind, Provider};
use crate::id::Id;
use crate::json::text;
use crate::refusal::Refusal;
use crate::request::Request;

/// The longest name of a resource.
const MAX_NAME: usize = 80;

impl State {
    /// Refuses a write whose precondition doesn't hold.
    pub(super) fn check_preconditions(
        &mut self,
        request: &Request,
        id: &Id,
        kind: Kind,
        existing: Option<&Resource>,
        faults: WriteFaults,
    ) -> Result<(), Refusal> {
        let (wanted, none) = (request.header("if-match"), request.header("if-none-match"));
        let is_ignored = self.behavior.ignore_if_none_match;
        let current = existing.map(|existing| existing.etag.clone());
        if none == "*"
            && !is_ignored
            && let Some(current) = &current
        {
            return Err(etag_mismatch(id, none, current, kind));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let Some(current) = current else { return Err(etag_mismatch(id, wanted, "null", kind)) };
        if faults.is_preempted {
            let etag = self.next_etag(kind, Some(&current));
            if let Some(resource) = self.store.get_mut(&id.key()) {
                resource.etag.clone_from(&etag);
            }
            return Err(etag_mismatch(id, wanted, &etag, kind));
        }
        if wanted == "*" || opaque(wanted) == opaque(&current) {
            Ok(())
        } else {
            Err(etag_mismatch(id, wanted, &current, kind))
        }
    }

    /// Decides what a write meets while an operation runs on the same resource. Returns the operation that it supersedes.
    pub(super) fn check_idle(
        &self,
        request: &Request,
        existing: Option<&Resource>,
    ) -> Result<Option<String>, Refusal> {
        let Some(resource) = existing else { return Ok(None) };
        let Some(running) = resource.operation.as_deref().and_then(|id| self.operations.get(id)) else {
            return Ok(None);
        };
        if running.purpose == Purpose::Put && self.behavior.concurrent == Concurrent::Supersede {
            return Ok(Some(running.id.clone()));
        }
        Err(self.busy(request, running, &resource.id))
    }

    fn busy(&self, request: &Request, running: &Operation, id: &Id) -> Refusal {
        if running.provider == Some(Provider::Compute) && self.behavior.concurrent == Concurrent::Conflict {
            let message = "The request failed due to conflict with a concurrent request. To resolve it, please refer to \
                           https://aka.ms/activitylog to get more details on the conflicting requests.";
            return Refusal::new(409, "Conflict", message);
        }
        let name = running.name();
        if self.behavior.concurrent == Concurrent::Retryable {
            let message = format!(
                "Operation {name} ({}) on resource {id} is in progress and the request is retryable because of it.",
                running.id
            );
            return Refusal::network(429, "RetryableError", "A retryable error occurred.")
                .with_detail("RetryableErrorDueToAnotherOperation", message)
                .with_header("retry-after", "10");
        }
        let url = running.status_url(request);
        let message = format!(
            "Another operation on this or dependent resource is in progress. To retrieve status of the operation use uri: {url}."
        );
        let status = if self.behavior.concurrent == Concurrent::Busy { 429 } else { 409 };
        let refusal = Refusal::network(status, "AnotherOperationInProgress", message);
        if status == 429 { refusal.with_header("retry-after", "10") } else { refusal }
    }
}

/// Refuses a name that no resource can have.
pub(super) fn check_name(id: &Id) -> Result<(), Refusal> {
    let name = id.name();
    let is_valid = !name.is_empty()
        && name.len() <= MAX_NAME
        && name.chars().all(|it| it.is_alphanumeric() || "-_.".contains(it))
        && name.starts_with(char::is_alphanumeric)
        && !name.ends_with(['.', '-']);
    if is_valid {
        return Ok(());
    }
    let message = format!(
        "Resource name {name} is invalid. The name can be up to {MAX_NAME} characters long. It must begin with a word character, and \
         it must end with a word character or with '_'. The name may contain word characters or '.', '-', '_'."
    );
    Err(Refusal::network(400, "InvalidResourceName", message))
}

/// Refuses a body without a region, or with another one than the resource has.
pub(super) fn check_body_location(
    kind: Kind,
    id: &Id,
    body: &Value,
    existing: Option<&Resource>,
) -> Result<(), Refusal> {
    let location = text(body, "/location");
    if location.is_empty() {
        // The machines of a scale set have the region of the scale set.
        return if kind == Kind::ScaleSetMachine { Ok(()) } else { Err(location_required()) };
    }
    check_location(location, &kind.full_name())?;
    let Some(existing) = existing else { return Ok(()) };
    if normalize_location(existing.location()) == normalize_location(location) {
        return Ok(());
    }
    let message = format!(
        "The resource '{}' already exists in location '{}' in resource group '{}'. A resource with the same name cannot be created \
         in location '{location}'. Please select a new resource name.",
        id.name(),
        existing.location(),
        id.group()
    );
    Err(Refusal::gateway(409, "InvalidResourceLocation", message))
}

fn etag_mismatch(id: &Id, wanted: &str, current: &str, kind: Kind) -> Refusal {
    if kind.provider() == Provider::Compute {
        let message =
            format!("Etag provided in if-match header {wanted} does not match etag {current} of resource.");
        return Refusal::new(412, "PreconditionFailed", message);
    }
    let message = format!(
        "Etag provided in if-match header {wanted} does not match etag {current} of resource {id} in NRP data store."
    );
    Refusal::new(412, "PreconditionFailed", "Precondition failed.")
        .with_detail("PreconditionFailedEtagMismatch", message)
}

/// An etag without its quotes and the mark of a weak one, as Azure compares them.
fn opaque(etag: &str) -> &str {
    etag.trim_start_matches("W/").trim_matches('"')
}
