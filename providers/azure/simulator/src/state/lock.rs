//! Management locks of `Microsoft.Authorization/locks`: on subscriptions, resource groups and resources. Pure.

use axum::http::Method;
use serde_json::{Value, json};

use super::State;
use super::group::method_not_allowed;
use crate::id::{Key, Path};
use crate::json::text;
use crate::refusal::Refusal;
use crate::request::{Request, Response};

/// The path from a scope to its locks.
const SEGMENT: &str = "/providers/microsoft.authorization/locks";

/// A lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) scope: Key,
    pub(crate) scope_text: String,
    name: String,
    is_read_only: bool,
}

impl State {
    /// Answers a request about locks. `None` where the path is not about them.
    pub(super) fn locks(&mut self, request: &Request, path: &Path) -> Option<Result<Response, Refusal>> {
        let at = request.path.to_lowercase().rfind(SEGMENT)?;
        let (scope, rest) = request.path.split_at_checked(at)?;
        let name = rest.get(SEGMENT.len()..)?.trim_matches('/');
        Some(self.lock(request, path, scope, name))
    }

    fn lock(&mut self, request: &Request, path: &Path, scope: &str, name: &str) -> Result<Response, Refusal> {
        self.subscription(&path.subscription)?;
        let Some(subscription) = self.subscription_mut(&path.subscription) else {
            return Err(Refusal::group_not_found(path.group()));
        };
        let key = format!("{}/{}", Key::of(scope), name.to_lowercase());
        let missing = || Refusal::new(404, "LockNotFound", format!("The lock '{name}' could not be found."));
        match request.method {
            Method::GET if name.is_empty() => {
                let scope = Key::of(scope);
                let locks = subscription.locks.values().filter(|lock| lock.scope.is_within(&scope));
                Ok(Response::json(200, json!({"value": locks.map(view).collect::<Vec<_>>()})))
            }
            Method::GET => Ok(Response::json(200, view(subscription.locks.get(&key).ok_or_else(missing)?))),
            Method::PUT => {
                let body: Value = serde_json::from_slice(&request.body).map_err(Refusal::content)?;
                let is_read_only = match text(&body, "/properties/level") {
                    "ReadOnly" => true,
                    "CanNotDelete" => false,
                    level => {
                        let message = format!("The lock level '{level}' is invalid.");
                        return Err(Refusal::new(400, "InvalidLockLevel", message));
                    }
                };
                let (scope_text, name) = (scope.to_owned(), name.to_owned());
                let lock = Lock { scope: Key::of(scope), scope_text, name, is_read_only };
                let shown = view(&lock);
                let status = if subscription.locks.insert(key, lock).is_some() { 200 } else { 201 };
                Ok(Response::json(status, shown))
            }
            Method::DELETE => {
                let removed = subscription.locks.remove(&key);
                Ok(Response::empty(if removed.is_some() { 200 } else { 204 }))
            }
            _ => Err(method_not_allowed(request)),
        }
    }

    /// Refuses a write of a resource that a lock covers.
    pub(super) fn check_lock(&self, id: &str, is_deletion: bool) -> Result<(), Refusal> {
        let key = Key::of(id);
        let Some(path) = Path::parse(id) else { return Ok(()) };
        let subscription = self.subscription(&path.subscription)?;
        let covers = |lock: &&Lock| {
            let is_meant = key.is_within(&lock.scope) || (is_deletion && lock.scope.is_within(&key));
            is_meant && (lock.is_read_only || is_deletion)
        };
        let Some(lock) = subscription.locks.values().find(covers) else { return Ok(()) };
        let verb = if is_deletion { "delete" } else { "write" };
        let message = format!(
            "The scope '{id}' cannot perform {verb} operation because following scope(s) are locked: '{}'. Please remove the \
             lock and try again.",
            lock.scope_text
        );
        Err(Refusal::gateway(409, "ScopeLocked", message))
    }
}

fn view(lock: &Lock) -> Value {
    let Lock { scope_text, name, is_read_only, .. } = lock;
    json!({
        "id": format!("{scope_text}/providers/Microsoft.Authorization/locks/{name}"), "name": name,
        "type": "Microsoft.Authorization/locks",
        "properties": {"level": if *is_read_only { "ReadOnly" } else { "CanNotDelete" }},
    })
}
