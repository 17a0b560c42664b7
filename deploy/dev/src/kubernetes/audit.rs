//! The requests that the API server has answered, read from its audit log.

use std::{fs, path::Path};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::Error;

/// One entry for each request. Writes by Pileus have their body, which is small and often what a test is about. Other
/// bodies, such as those of Nodes that register, are left out. Heartbeats have no entry, because there are thousands.
pub(super) const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
    "omitStages": ["RequestReceived"], "rules": [
        {"level": "None", "users": ["kubelets"]},
        {"level": "Request", "users": ["system:serviceaccount:kube-system:pileus"],
         "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "Metadata"}]}"#;

/// A request that the API server has answered, or a watch that it has begun to answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// The name of the user, such as `system:serviceaccount:kube-system:pileus`.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The resource with its subresource, such as `nodes/status`; empty for other paths, such as `/readyz`.
    pub resource: String,
    /// The object's name; empty for requests about several objects, and for names that the API server generates.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The time of the answer.
    pub at: Timestamp,
    /// The body of a write by Pileus; null for all other requests.
    pub body: Value,
}

impl Request {
    /// Whether the request changes something if it is allowed.
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&&*self.verb)
    }
}

/// The fields of a line of the log that are used here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: Status,
    #[serde(default)]
    request_object: Value,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: Option<String>,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
}

/// Reads the log at `path`, in the order of the answers.
pub(super) fn read(path: &Path) -> Result<Vec<Request>, Error> {
    let text = fs::read_to_string(path).map_err(Error::file(path))?;
    // The last line may be incomplete.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter_map(request).collect())
}

fn request(line: Line) -> Option<Request> {
    // A watch has two entries: one at its beginning, which tests need, and one at its end.
    let wanted = if line.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
    if line.stage != wanted {
        return None;
    }
    let ObjectRef { resource, subresource, name } = line.object_ref;
    Some(Request {
        user: line.user.username,
        verb: line.verb,
        resource: subresource.iter().fold(resource, |resource, part| format!("{resource}/{part}")),
        name,
        code: line.response_status.code,
        at: line.stage_timestamp,
        body: line.request_object,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_watch_counts_when_it_begins_and_other_requests_when_they_are_answered() {
        let line = |stage: &str, verb: &str| {
            json!({
                "kind": "Event", "level": "Metadata", "stage": stage, "verb": verb, "user": {"username": "pileus"},
                "objectRef": {"resource": "nodes", "subresource": "status", "name": "a", "apiVersion": "v1"},
                "responseStatus": {"metadata": {}, "code": 200}, "stageTimestamp": "2026-11-28T12:00:00.123456Z",
            })
        };
        let rows = [
            ("ResponseStarted", "watch", 1),
            ("ResponseComplete", "watch", 0),
            ("ResponseStarted", "patch", 0),
            ("ResponseComplete", "patch", 1),
            ("Panic", "patch", 0),
        ];
        for (stage, verb, count) in rows {
            let request = request(serde_json::from_value(line(stage, verb)).unwrap());
            assert_eq!(request.iter().count(), count, "{stage} {verb}");
            assert!(
                request.is_none_or(|it| it.resource == "nodes/status" && it.is_write() == (verb == "patch"))
            );
        }
    }

    #[test]
    fn a_request_without_an_object_is_read() {
        let line = json!({
            "stage": "ResponseComplete", "verb": "get", "user": {"username": "a"}, "requestURI": "/readyz",
            "responseStatus": {"code": 200}, "stageTimestamp": "2026-11-28T12:00:00Z",
        });
        let request = request(serde_json::from_value(line).unwrap()).unwrap();
        assert_eq!((&*request.resource, &*request.name, request.code), ("", "", 200));
    }
}
