//! Reads of one resource and of lists. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use super::State;
use super::provider::normalize_location;
use super::reference::named;
use super::store::Resource;
use crate::catalog::{Kind, Part, Type};
use crate::compute;
use crate::id::{Id, Key, Path};
use crate::json::{at, text};
use crate::network;
use crate::refusal::Refusal;
use crate::request::{Request, Response};

impl State {
    pub(super) fn read(&self, request: &Request, path: &Path, found: Type) -> Result<Response, Refusal> {
        let subscription = self.subscription(&path.subscription)?;
        if path.group.is_some() {
            self.group(path)?;
        }
        match found {
            Type::Stored(kind) if path.is_list() => self.list(request, path, kind),
            Type::Stored(kind) => {
                let id = self.resource_id(path);
                if kind == Kind::ScaleSetMachine {
                    compute::check_instance_id(path.segments.last().map_or("", String::as_str))?;
                }
                let resource = self.visible(&id.key()).ok_or_else(|| self.missing(&id, kind))?;
                let with_view = expands_instance_view(request)?;
                Ok(with_etag(Response::json(200, self.view(resource, with_view)), resource))
            }
            Type::Part(kind, part) => self.read_part(request, path, kind, part),
            Type::ScaleSetInterfaces | Type::ScaleSetAddresses => {
                self.check_parent(path)?;
                let elements = compute::interface::read(self, path, found)?;
                if path.is_list() {
                    return self.page(request, elements);
                }
                let name = path.segments.last().map_or("", String::as_str);
                let found = elements.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                let (_, view) = found.ok_or_else(|| not_found(&request.path))?;
                Ok(Response::json(200, view))
            }
            Type::InstanceView(kind) => {
                let whole = path.first(path.segments.len() - 1);
                let id = self.resource_id(&whole);
                let resource = self.store.get(&id.key()).ok_or_else(|| self.missing(&id, kind))?;
                Ok(Response::json(200, compute::instance_view(self, resource)))
            }
            Type::Operations => Err(not_found(&subscription.id)),
        }
    }

    /// The ID that a path stands for.
    pub(crate) fn resource_id(&self, path: &Path) -> Id {
        let subscription =
            self.subscription(&path.subscription).map_or(path.subscription.as_str(), |it| it.id.as_str());
        let group = self.group(path).map_or(path.group(), |group| group.name.as_str());
        let namespace = path.namespace.as_deref().unwrap_or_default();
        let namespace =
            crate::catalog::Provider::of(namespace).map_or(namespace, |provider| provider.namespace());
        let rest = path.segments.join("/");
        let text =
            format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}/{rest}");
        Id::parse(&text).unwrap_or_else(|| unreachable!("a path of pairs is an ID"))
    }

    /// The refusal for a resource that doesn't exist, which depends on whether its parent does.
    pub(super) fn missing(&self, id: &Id, kind: Kind) -> Refusal {
        match id.parent() {
            Some(parent) if kind == Kind::ScaleSetMachine => {
                if self.store.get(&parent.key()).is_none() {
                    return parent_not_found(kind, &parent);
                }
                let message = format!(
                    "The instanceId {} provided in the request is not an active Virtual Machine Scale Set VM instanceId.",
                    id.name()
                );
                Refusal::new(404, "InvalidInstanceId", message).with_target("instanceId")
            }
            _ => Refusal::resource_not_found(&kind.full_name(), id.name(), id.group()),
        }
    }

    /// Refuses a request below a resource that doesn't exist.
    pub(super) fn check_parent(&self, path: &Path) -> Result<(), Refusal> {
        let parent = path.first(2);
        if path.segments.len() < 3 {
            return Ok(());
        }
        let parent = self.resource_id(&parent);
        if self.visible(&parent.key()).is_some() {
            return Ok(());
        }
        let kind = path.types();
        let message =
            parent_message(&format!("{}/{kind}", path.namespace.as_deref().unwrap_or_default()), &parent);
        Err(Refusal::gateway(404, "ParentResourceNotFound", message))
    }

    /// A resource as eventual consistency shows it.
    pub(crate) fn visible(&self, key: &Key) -> Option<&Resource> {
        let current = self.store.get(key);
        if self.behavior.lag_lists_only {
            return current;
        }
        let since = self.lag_since();
        match current {
            Some(resource) => as_of(resource, since),
            None if since < self.now => self.store.deleted(key, since),
            None => None,
        }
    }

    /// The time whose state reads show.
    fn lag_since(&self) -> Duration {
        self.now.saturating_sub(Duration::from_millis(self.behavior.lag_ms))
    }

    fn list(&self, request: &Request, path: &Path, kind: Kind) -> Result<Response, Refusal> {
        self.check_parent(path)?;
        let with_view = expands_instance_view(request)?;
        let subscription = &self.subscription(&path.subscription)?.id;
        let prefix = if path.group.is_some() {
            let name = self.group(path)?.name.as_str();
            let parent = match (kind, path.segments.get(1)) {
                (Kind::ScaleSetMachine, Some(set)) => {
                    format!("virtualmachinescalesets/{set}/virtualmachines/")
                }
                _ => format!("{}/", kind.name()),
            };
            let namespace = kind.provider().namespace();
            format!("/subscriptions/{subscription}/resourcegroups/{name}/providers/{namespace}/{parent}")
        } else {
            format!("/subscriptions/{subscription}/")
        };
        let prefix = prefix.to_lowercase();
        if kind == Kind::ScaleSetMachine {
            compute::scale_set::check_uniform(self, &self.resource_id(&path.first(2)))?;
        }
        let filter = compute::filter(request, kind)?;
        let since = self.lag_since();
        let is_meant = |resource: &&Resource| {
            resource.kind == kind && filter.as_ref().is_none_or(|filter| filter.admits(resource))
        };
        let mut all: Vec<&Resource> = self
            .store
            .below(&prefix)
            .filter_map(|resource| as_of(resource, since))
            .chain(self.store.deleted_since(since, &prefix).filter(|_| since < self.now))
            .filter(is_meant)
            .collect();
        all.sort_by_cached_key(|resource| resource.id.key());
        let (page, next) = self.cut(request, &all, |resource| resource.id.key().to_string())?;
        let value: Vec<_> = page.iter().map(|resource| self.view(resource, with_view)).collect();
        Ok(paged(&value, next))
    }

    /// Cuts a page from elements with their names.
    fn page(&self, request: &Request, elements: Vec<(String, Value)>) -> Result<Response, Refusal> {
        let numbered: Vec<_> = elements.into_iter().enumerate().collect();
        let (page, next) = self.cut(request, &numbered, |(number, _)| format!("{number:08}"))?;
        let value: Vec<_> = page.iter().map(|(_, (_, view))| view.clone()).collect();
        Ok(paged(&value, next))
    }

    fn read_part(&self, request: &Request, path: &Path, kind: Kind, part: Part) -> Result<Response, Refusal> {
        let whole = path.first(2);
        let id = self.resource_id(&whole);
        let resource = self.visible(&id.key()).ok_or_else(|| self.missing(&id, kind))?;
        let view = self.view(resource, false);
        let properties = at(&view, "/properties");
        if path.is_list() {
            let elements = crate::json::items(properties, &format!("/{}", part.field)).iter();
            let elements = elements.map(|element| (text(element, "/name").to_owned(), element.clone()));
            return self.page(request, elements.collect());
        }
        let name = path.segments.last().map_or("", String::as_str);
        let found =
            named(properties, part.field, name).ok_or_else(|| not_found(self.resource_id(path).as_str()))?;
        Ok(with_etag(Response::json(200, found.clone()), resource))
    }

    /// Whether two names mean the same region.
    pub(crate) fn is_same_location(one: &str, other: &str) -> bool {
        normalize_location(one) == normalize_location(other)
    }
}

/// Whether a request asks for instance views.
fn expands_instance_view(request: &Request) -> Result<bool, Refusal> {
    match request.parameter("$expand") {
        None | Some("") => Ok(false),
        Some(expand) if expand.eq_ignore_ascii_case("instanceView") => Ok(true),
        Some(expand) if expand.contains('/') || expand.eq_ignore_ascii_case("ipConfigurations") => Ok(false),
        Some(other) => {
            let message = format!("The value '{other}' of parameter '$expand' is invalid.");
            Err(Refusal::new(400, "InvalidParameter", message).with_target("$expand"))
        }
    }
}

/// A resource as it was at a time; `None` where it didn't exist yet.
fn as_of(resource: &Resource, since: Duration) -> Option<&Resource> {
    if resource.changed <= since {
        return Some(resource);
    }
    resource.before.as_deref()
}

fn parent_not_found(kind: Kind, parent: &Id) -> Refusal {
    Refusal::gateway(404, "ParentResourceNotFound", parent_message(&kind.full_name(), parent))
}

fn parent_message(kind: &str, parent: &Id) -> String {
    format!(
        "Failed to perform 'read' on resource(s) of type '{kind}', because the parent resource '{parent}' could not be found."
    )
}

/// As the network provider refuses a part that doesn't exist.
pub(super) fn not_found(id: &str) -> Refusal {
    Refusal::network(404, "NotFound", format!("Resource {id} not found."))
}

/// The header that reads of one resource have.
pub(super) fn with_etag(response: Response, resource: &Resource) -> Response {
    if resource.kind == Kind::AvailabilitySet {
        response
    } else {
        response.with("etag", resource.etag.clone())
    }
}

fn paged(value: &[Value], next: Option<String>) -> Response {
    let mut body = json!({"value": value});
    if let Some(next) = next {
        crate::json::set(&mut body, "nextLink", next);
    }
    Response::json(200, body)
}

/// A part of a network resource as responses show it.
pub(super) fn part_view(state: &State, resource: &Resource, part: Part, name: &str) -> Value {
    let view = network::view(state, resource);
    named(at(&view, "/properties"), part.field, name).cloned().unwrap_or_default()
}
