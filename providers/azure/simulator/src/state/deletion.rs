//! Deletions of resources and of parts, and actions. Pure.

use simulated_cloud::world::WriteFaults;

use super::State;
use super::behavior::Style;
use super::operation::Purpose;
use super::provider::normalize_location;
use super::read::not_found;
use super::store::{Provisioning, Resource};
use crate::catalog::{Kind, Part, Provider, Type};
use crate::id::{Id, Path};
use crate::json::{at, items, set, text};
use crate::refusal::Refusal;
use crate::request::{Request, Response};
use crate::{compute, network};

impl State {
    pub(super) fn delete(
        &mut self,
        request: &Request,
        path: &Path,
        found: Type,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        self.check_group(path)?;
        match found {
            Type::Stored(kind) if !path.is_list() => {
                let id = self.resource_id(path);
                if kind == Kind::ScaleSetMachine {
                    compute::check_instance_id(id.name())?;
                }
                let Some(existing) = self.store.get(&id.key()).cloned() else {
                    return Ok(Response::empty(204));
                };
                self.check_lock(id.as_str(), true)?;
                self.check_preconditions(request, &id, kind, Some(&existing), faults)?;
                let superseded = self.check_idle(request, Some(&existing))?;
                let operation = self.next_guid();
                self.check_unused(&existing.id, kind)?;
                self.supersede(superseded.as_deref(), &operation);
                Ok(self.begin_delete(request, &existing, operation, faults))
            }
            Type::Part(kind, part) if part.is_writable && !path.is_list() => {
                self.delete_part(request, path, kind, part, faults)
            }
            _ => Err(super::group::method_not_allowed(request)),
        }
    }

    fn check_unused(&self, id: &Id, kind: Kind) -> Result<(), Refusal> {
        match kind.provider() {
            Provider::Network => network::check_unused(self, id, kind),
            Provider::Compute => compute::check_unused(self, id, kind),
        }
    }

    fn begin_delete(
        &mut self,
        request: &Request,
        existing: &Resource,
        operation: String,
        faults: WriteFaults,
    ) -> Response {
        let (key, kind) = (existing.id.key(), existing.kind);
        if kind == Kind::AvailabilitySet {
            self.remove(&key);
            return Response::empty(200);
        }
        if let Some(resource) = self.store.get_mut(&key) {
            resource.provisioning = Provisioning::Deleting;
        }
        let location = normalize_location(existing.location());
        let operation = self.operation(&key, kind, operation, location, Purpose::Delete, faults);
        // A deletion of an interface says 200 although its operation goes on.
        let with_ok = kind == Kind::Interface || self.behavior.operations.delete_with_ok;
        let mut response = Response::empty(if with_ok { 200 } else { 202 });
        if self.behavior.operations.style == Style::Azure {
            response = response
                .with("azure-asyncoperation", operation.status_url(request))
                .with("azure-asyncnotification", "Enabled");
        }
        response = response.with("location", operation.result_url(request));
        response = self.with_retry_after(response);
        self.begin(operation);
        response
    }

    fn delete_part(
        &mut self,
        request: &Request,
        path: &Path,
        kind: Kind,
        part: Part,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        let (id, existing) = self.whole_of_part(path, kind)?;
        let name = path.segments.last().map_or("", String::as_str);
        if super::named(at(&existing.body, "/properties"), part.field, name).is_none() {
            return Ok(Response::empty(204));
        }
        self.check_lock(id.as_str(), true)?;
        let superseded = self.check_idle(request, Some(&existing))?;
        let operation = self.next_guid();
        network::check_part_unused(self, &id, self.resource_id(path).as_str(), part)?;
        let mut body = existing.body.clone();
        let field = format!("/properties/{}", part.field);
        let left: Vec<_> = items(&body, &field)
            .iter()
            .filter(|it| !text(it, "/name").eq_ignore_ascii_case(name))
            .cloned()
            .collect();
        set(crate::json::object(&mut body, "properties"), part.field, left);
        let body = network::normalize(self, &id, kind, &body, Some(&existing))?;
        self.supersede(superseded.as_deref(), &operation);
        self.store_written(&id, kind, body, Some(existing));
        let written = self.written(request, &id.key(), operation, faults);
        let mut response = Response::empty(202);
        response.headers = written.headers.into_iter().filter(|(name, _)| name != "etag").collect();
        if let Some(status) = response.header("azure-asyncoperation") {
            let location = status.replace("/operations/", "/operationResults/");
            response = response.with("location", location);
        }
        Ok(response)
    }

    /// A `POST` of an action on a resource.
    pub(super) fn act(
        &mut self,
        request: &Request,
        path: &Path,
        action: &str,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        self.check_group(path)?;
        let id = self.resource_id(path);
        let resource = self.store.get(&id.key()).cloned().ok_or_else(|| not_found(id.as_str()))?;
        self.check_lock(id.as_str(), false)?;
        let superseded = self.check_idle(request, Some(&resource))?;
        let operation = self.next_guid();
        match resource.kind.provider() {
            Provider::Compute => compute::act(self, &resource, action, &request.body)?,
            Provider::Network => network::act(self, &resource, action, &request.body)?,
        }
        self.supersede(superseded.as_deref(), &operation);
        let location = normalize_location(resource.location());
        let operation = self.operation(&id.key(), resource.kind, operation, location, Purpose::Act, faults);
        let response = Response::empty(202)
            .with("azure-asyncoperation", operation.status_url(request))
            .with("location", operation.result_url(request));
        let response = self.with_retry_after(response);
        self.begin(operation);
        Ok(response)
    }
}
