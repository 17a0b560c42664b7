//! Subscriptions and resource groups. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::State;
use super::lock::Lock;
use super::operation::{Operation, Outcome, Purpose};
use super::provider::{check_location, normalize_location};
use crate::id::{Key, Path};
use crate::json::{at, text};
use crate::refusal::Refusal;
use crate::request::{Request, Response};
use axum::http::Method;
use simulated_cloud::world::WriteFaults;

/// A subscription.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) id: String,
    pub(crate) tenant: String,
    /// The resource groups, by their names in lower case.
    pub(crate) groups: BTreeMap<String, Group>,
    pub(crate) locks: BTreeMap<String, Lock>,
}

/// A resource group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    location: String,
    tags: Map<String, Value>,
    is_deleting: bool,
}

impl State {
    /// Adds a subscription of a tenant.
    pub fn add_subscription(&mut self, id: &str, tenant: &str) {
        let (groups, locks) = (BTreeMap::new(), BTreeMap::new());
        let subscription = Subscription { id: id.to_owned(), tenant: tenant.to_owned(), groups, locks };
        self.subscriptions.entry(id.to_lowercase()).or_insert(subscription);
    }

    /// Creates a resource group where it doesn't exist.
    pub fn add_group(&mut self, subscription: &str, name: &str, location: &str) {
        let group = Group {
            name: name.to_owned(),
            location: normalize_location(location),
            tags: Map::new(),
            is_deleting: false,
        };
        if let Some(subscription) = self.subscriptions.get_mut(&subscription.to_lowercase()) {
            subscription.groups.entry(name.to_lowercase()).or_insert(group);
        }
    }

    pub(super) fn subscription(&self, id: &str) -> Result<&Subscription, Refusal> {
        self.subscriptions.get(&id.to_lowercase()).ok_or_else(|| {
            Refusal::new(404, "SubscriptionNotFound", format!("The subscription '{id}' could not be found."))
        })
    }

    pub(super) fn subscriptions(&self) -> impl Iterator<Item = &Subscription> {
        self.subscriptions.values()
    }

    pub(crate) fn tenant_of(&self, subscription: &str) -> Option<String> {
        self.subscription(subscription).ok().map(|it| it.tenant.clone())
    }

    pub(super) fn group(&self, path: &Path) -> Result<&Group, Refusal> {
        let name = path.group();
        let found = self.subscription(&path.subscription)?.groups.get(&name.to_lowercase());
        found.ok_or_else(|| Refusal::group_not_found(name))
    }

    /// Answers requests about subscriptions and resource groups themselves.
    pub(super) fn subscription_or_group(
        &mut self,
        request: &Request,
        path: &Path,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        let Some(group) = &path.group else {
            let subscription = self.subscription(&path.subscription)?;
            return Ok(Response::json(200, subscription_view(subscription)));
        };
        match request.method {
            Method::GET if group.is_empty() => {
                let subscription = self.subscription(&path.subscription)?;
                let groups: Vec<_> =
                    subscription.groups.values().map(|group| group_view(&subscription.id, group)).collect();
                Ok(Response::json(200, json!({"value": groups})))
            }
            Method::GET => {
                let group = self.group(path)?;
                Ok(Response::json(200, group_view(&self.subscription(&path.subscription)?.id, group)))
            }
            Method::HEAD => Ok(Response::empty(if self.group(path).is_ok() { 204 } else { 404 })),
            Method::PUT => self.put_group(request, path),
            Method::DELETE => self.delete_group(request, path, faults),
            _ => Err(method_not_allowed(request)),
        }
    }

    fn put_group(&mut self, request: &Request, path: &Path) -> Result<Response, Refusal> {
        let body: Value = serde_json::from_slice(&request.body).map_err(Refusal::content)?;
        let location = text(&body, "/location");
        if location.is_empty() {
            return Err(location_required());
        }
        check_location(location, "resourceGroups")?;
        let name = path.group().to_owned();
        let id = self.subscription(&path.subscription)?.id.clone();
        let Some(subscription) = self.subscriptions.get_mut(&id.to_lowercase()) else {
            return Err(Refusal::group_not_found(&name));
        };
        let tags = at(&body, "/tags").as_object().cloned().unwrap_or_default();
        let known = subscription.groups.get_mut(&name.to_lowercase());
        let status = if known.is_some() { 200 } else { 201 };
        if let Some(known) = known {
            if known.location != normalize_location(location) {
                let message = format!(
                    "Invalid resource group location '{location}'. The Resource group already exists in location '{}'.",
                    known.location
                );
                return Err(Refusal::new(409, "InvalidResourceGroupLocation", message));
            }
            if known.is_deleting {
                return Err(being_deleted(&known.name));
            }
            known.tags = tags;
        } else {
            let group = Group {
                name: name.clone(),
                location: normalize_location(location),
                tags,
                is_deleting: false,
            };
            subscription.groups.insert(name.to_lowercase(), group);
        }
        let group = self.group(path)?;
        Ok(Response::json(status, group_view(&id, group)))
    }

    fn delete_group(
        &mut self,
        request: &Request,
        path: &Path,
        faults: WriteFaults,
    ) -> Result<Response, Refusal> {
        self.group(path)?;
        let subscription = self.subscription(&path.subscription)?.id.clone();
        let id = format!("/subscriptions/{subscription}/resourceGroups/{}", path.group());
        self.check_lock(&id, true)?;
        let group = self.subscriptions.get_mut(&subscription.to_lowercase());
        if let Some(group) = group.and_then(|it| it.groups.get_mut(&path.group().to_lowercase())) {
            group.is_deleting = true;
        }
        let operation = Operation {
            id: self.next_guid(),
            provider: None,
            location: String::new(),
            subscription,
            purpose: Purpose::DeleteGroup,
            kind: None,
            target: Key::of(&id),
            began: self.now,
            ends: self.now + faults.takes,
            outcome: Outcome::Succeeded,
        };
        let response = Response::empty(202).with("location", operation.result_url(request));
        let response = self.with_retry_after(response);
        self.begin(operation);
        Ok(response)
    }

    /// Removes a resource group with everything in it.
    pub(super) fn remove_group(&mut self, key: &Key) {
        let Some(path) = Path::parse(key.as_str()) else { return };
        self.remove(key);
        if let Some(subscription) = self.subscriptions.get_mut(&path.subscription.to_lowercase()) {
            subscription.groups.remove(&path.group().to_lowercase());
            subscription.locks.retain(|_, lock| !lock.scope.is_within(key));
        }
    }

    /// Refuses a write into a resource group that is being deleted.
    pub(super) fn check_group(&self, path: &Path) -> Result<(), Refusal> {
        let group = self.group(path)?;
        if group.is_deleting { Err(being_deleted(&group.name)) } else { Ok(()) }
    }

    pub(super) fn subscription_mut(&mut self, id: &str) -> Option<&mut Subscription> {
        self.subscriptions.get_mut(&id.to_lowercase())
    }
}

pub(super) fn subscription_view(subscription: &Subscription) -> Value {
    let Subscription { id, tenant, .. } = subscription;
    json!({
        "id": format!("/subscriptions/{id}"), "subscriptionId": id, "tenantId": tenant, "displayName": "simulated",
        "state": "Enabled", "authorizationSource": "RoleBased",
    })
}

fn group_view(subscription: &str, group: &Group) -> Value {
    let Group { name, location, tags, is_deleting } = group;
    let mut view = json!({
        "id": format!("/subscriptions/{subscription}/resourceGroups/{name}"), "name": name,
        "type": "Microsoft.Resources/resourceGroups", "location": location,
        "properties": {"provisioningState": if *is_deleting { "Deleting" } else { "Succeeded" }},
    });
    if !tags.is_empty() {
        crate::json::set(&mut view, "tags", tags.clone());
    }
    view
}

fn being_deleted(name: &str) -> Refusal {
    let message =
        format!("The resource group '{name}' is in deprovisioning state and cannot perform this operation.");
    Refusal::gateway(409, "ResourceGroupBeingDeleted", message)
}

pub(super) fn location_required() -> Refusal {
    Refusal::gateway(400, "LocationRequired", "The location property is required for this definition.")
}

pub(super) fn method_not_allowed(request: &Request) -> Refusal {
    let message = format!("The requested resource does not support http method '{}'.", request.method);
    Refusal::gateway(405, "MethodNotAllowed", message)
}
