//! Writes of resources: who may write, what is checked first, and what a response says before the operation has ended. Pure.

use serde_json::Value;
use simulated_cloud::world::WriteFaults;

use super::State;
use super::behavior::Style;
use super::operation::{Operation, Outcome, Purpose};
use super::precondition::{check_body_location, check_name};
use super::provider::normalize_location;
use super::read::part_view;
use super::store::{Provisioning, Resource};
use crate::catalog::{Kind, Part, Provider, Type};
use crate::id::{Id, Key, Path};
use crate::json::{at, items, set, text};
use crate::refusal::Refusal;
use crate::request::{Request, Response};
use crate::{compute, network};

impl State {
    pub(super) fn put(
        &mut self,
        request: &Request,
        path: &Path,
        found: Type,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        self.check_group(path)?;
        let body: Value = serde_json::from_slice(&request.body).map_err(Refusal::content)?;
        if !body.is_object() {
            return Err(Refusal::content("the body is not an object"));
        }
        match found {
            Type::Stored(kind) if !path.is_list() => {
                self.check_parent(path)?;
                self.put_whole(request, self.resource_id(path), kind, &body, faults)
            }
            Type::Part(kind, part) if part.is_writable && !path.is_list() => {
                self.put_part(request, path, kind, part, body, faults)
            }
            _ => Err(super::group::method_not_allowed(request)),
        }
    }

    /// `PATCH`: of the compute provider any fields, of the network provider only tags.
    pub(super) fn patch(
        &mut self,
        request: &Request,
        path: &Path,
        found: Type,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        self.check_group(path)?;
        let Type::Stored(kind) = found else { return Err(super::group::method_not_allowed(request)) };
        let patch: Value = serde_json::from_slice(&request.body).map_err(Refusal::content)?;
        let id = self.resource_id(path);
        let resource = self.store.get(&id.key()).ok_or_else(|| self.missing(&id, kind))?;
        let mut body = resource.body.clone();
        if kind.provider() == Provider::Network {
            set(&mut body, "tags", at(&patch, "/tags").clone());
        } else {
            merge(&mut body, &patch);
        }
        let id = resource.id.clone();
        self.put_whole(request, id, kind, &body, faults)
    }

    fn put_whole(
        &mut self,
        request: &Request,
        id: Id,
        kind: Kind,
        body: &Value,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        let key = id.key();
        let existing = self.store.get(&key).cloned();
        check_name(&id)?;
        check_body_location(kind, &id, body, existing.as_ref())?;
        self.check_lock(id.as_str(), false)?;
        self.check_preconditions(request, &id, kind, existing.as_ref(), faults)?;
        let superseded = self.check_idle(request, existing.as_ref())?;
        let operation = self.next_guid();
        let id = existing.as_ref().map_or(id, |existing| existing.id.clone());
        let body = match kind.provider() {
            Provider::Network => network::normalize(self, &id, kind, body, existing.as_ref())?,
            Provider::Compute => compute::normalize(self, &id, kind, body, existing.as_ref())?,
        };
        self.supersede(superseded.as_deref(), &operation);
        self.store_written(&id, kind, body, existing);
        Ok(self.written(request, &key, operation, faults))
    }

    fn put_part(
        &mut self,
        request: &Request,
        path: &Path,
        kind: Kind,
        part: Part,
        element: Value,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        let (id, existing) = self.whole_of_part(path, kind)?;
        let name = path.segments.last().map_or("", String::as_str);
        self.check_lock(id.as_str(), false)?;
        let known = super::named(at(&existing.body, "/properties"), part.field, name).is_some();
        let of_part = known.then_some(&existing);
        self.check_preconditions(request, &id, kind, of_part, faults)?;
        let superseded = self.check_idle(request, Some(&existing))?;
        let operation = self.next_guid();
        let mut body = existing.body.clone();
        let mut elements = items(&body, &format!("/properties/{}", part.field)).to_vec();
        let mut element = element;
        set(&mut element, "name", name);
        match elements.iter_mut().find(|it| text(it, "/name").eq_ignore_ascii_case(name)) {
            Some(place) => *place = element,
            None => elements.push(element),
        }
        set(crate::json::object(&mut body, "properties"), part.field, elements);
        let body = network::normalize(self, &id, kind, &body, Some(&existing))?;
        self.supersede(superseded.as_deref(), &operation);
        self.store_written(&id, kind, body, Some(existing));
        let mut response = self.written(request, &id.key(), operation, faults);
        response.status = match response.status {
            202 => 202,
            _ if known => 200,
            _ => 201,
        };
        if let Some(resource) = self.store.get(&id.key()) {
            response.body = response.body.map(|_| part_view(self, resource, part, name));
        }
        Ok(response)
    }

    pub(super) fn whole_of_part(&self, path: &Path, kind: Kind) -> Result<(Id, Resource), Refusal> {
        let whole = path.first(2);
        let id = self.resource_id(&whole);
        let existing = self.store.get(&id.key()).cloned().ok_or_else(|| {
            let message = format!(
                "Can not perform requested operation on nested resource. Parent resource '{}' not found.",
                id.name()
            );
            Refusal::gateway(404, "ParentResourceNotFound", message)
        })?;
        debug_assert_eq!(existing.kind, kind);
        Ok((existing.id.clone(), existing))
    }

    /// Stores a written body, with a new etag.
    pub(crate) fn store_written(&mut self, id: &Id, kind: Kind, body: Value, existing: Option<Resource>) {
        let etag = self.next_etag(kind, existing.as_ref().map(|it| it.etag.as_str()));
        let guid = existing.as_ref().map_or_else(|| self.next_guid(), |it| it.guid.clone());
        let provisioning = if existing.is_some() { Provisioning::Updating } else { initial(kind) };
        let machine = existing
            .as_ref()
            .and_then(|it| it.machine.clone())
            .or_else(|| compute::new_machine(self, kind, &body));
        let created = existing.as_ref().map_or(self.now, |it| it.created);
        let before = existing.map(|it| Box::new(Resource { before: None, ..it }));
        self.store.insert(Resource {
            id: id.clone(),
            kind,
            body,
            etag,
            guid,
            provisioning,
            operation: None,
            created,
            changed: self.now,
            before,
            machine,
        });
        if kind.provider() == Provider::Network {
            network::touch_addresses(self, id);
        }
    }

    /// Begins the operation of a write, and makes the response, which shows the state before its end.
    pub(super) fn written(
        &mut self,
        request: &Request,
        key: &Key,
        operation: String,
        faults: WriteFaults,
    ) -> Response {
        let Some(resource) = self.store.get_mut(key) else { return Response::empty(404) };
        let (kind, is_new) = (resource.kind, resource.before.is_none());
        let takes_part = kind != Kind::Interface && kind != Kind::AvailabilitySet;
        // These answer as if all were done although an operation goes on.
        if matches!(kind, Kind::LoadBalancer | Kind::Interface | Kind::AvailabilitySet)
            || (!is_new && faults.takes.is_zero() && kind.provider() == Provider::Network)
        {
            resource.provisioning = Provisioning::Succeeded;
        }
        let status = if is_new && kind != Kind::AvailabilitySet { 201 } else { 200 };
        let (etag, location) = (resource.etag.clone(), normalize_location(resource.location()));
        let body = self.store.get(key).map(|resource| self.view(resource, false)).unwrap_or_default();
        let mut response = Response::json(status, body);
        if kind.provider() == Provider::Compute && kind != Kind::AvailabilitySet {
            response = response.with("etag", etag);
        }
        if !takes_part {
            return response;
        }
        let operation = self.operation(key, kind, operation, location, Purpose::Put, faults);
        if self.behavior.operations.style == Style::Location {
            response.status = 202;
            response.body = None;
            response = response.with("location", operation.result_url(request));
        } else {
            response = response
                .with("azure-asyncoperation", operation.status_url(request))
                .with("azure-asyncnotification", "Enabled");
        }
        response = self.with_retry_after(response);
        self.begin(operation);
        response
    }

    pub(super) fn operation(
        &self,
        key: &Key,
        kind: Kind,
        id: String,
        location: String,
        purpose: Purpose,
        faults: WriteFaults,
    ) -> Operation {
        let settings = &self.behavior.operations;
        let (code, message) = settings.failure.clone();
        let outcome = match (faults.fails, settings.cancel) {
            (false, _) => Outcome::Succeeded,
            (true, false) => Outcome::Failed { code, message },
            (true, true) => Outcome::Canceled {
                code: "Canceled".to_owned(),
                message: "Operation was canceled.".to_owned(),
            },
        };
        let subscription = Path::parse(key.as_str()).map(|path| path.subscription).unwrap_or_default();
        Operation {
            id,
            provider: Some(kind.provider()),
            location,
            subscription,
            purpose,
            kind: Some(kind),
            target: key.clone(),
            began: self.now,
            ends: self.now + faults.takes,
            outcome,
        }
    }
}

/// The state in which a new resource is shown first.
fn initial(kind: Kind) -> Provisioning {
    if kind.provider() == Provider::Compute { Provisioning::Creating } else { Provisioning::Updating }
}

/// Merges a patch into a document, as RFC 7386 says.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let fields = crate::json::fields(target);
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
