//! What was asked of the API server and by whom, read from its audit log.

use std::{fs, path::Path};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::Error;

/// Who did what to which object, once a request. What Pileus writes is there with its body, as it is small and often
/// what a test is about; a Node that registers is not. Heartbeats are left out altogether: they come by the thousand.
pub(super) const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
    "omitStages": ["RequestReceived"], "rules": [
        {"level": "None", "users": ["kubelets"]},
        {"level": "Request", "users": ["system:serviceaccount:kube-system:pileus"],
         "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "Metadata"}]}"#;

/// A request that the API server has answered, or, where it is a watch, has begun to answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who asked, as in `system:serviceaccount:kube-system:pileus`.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// What it was about, with the subresource, as in `nodes/status`; empty where it was no object, as for `/readyz`.
    pub resource: String,
    /// The object's name; empty where it was about several, or not known yet.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// When it was answered.
    pub at: Timestamp,
    /// What Pileus asked to write; null for everybody else's and for reads.
    pub body: Value,
}

impl Request {
    /// Whether it changes something, where it is allowed.
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&&*self.verb)
    }
}

/// A line of the log, as far as it matters here.
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

/// Reads the log at `path`, in the order in which requests were answered.
pub(super) fn read(path: &Path) -> Result<Vec<Request>, Error> {
    let text = fs::read_to_string(path).map_err(Error::file(path))?;
    // The last line may be in the writing.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter_map(request).collect())
}

fn request(line: Line) -> Option<Request> {
    // A watch is told twice: when it begins, which is when a test wants to know of it, and when it ends.
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
    fn a_watch_counts_once_when_it_begins_and_all_else_when_it_is_answered() {
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
    fn what_is_about_no_object_is_a_request_all_the_same() {
        let line = json!({
            "stage": "ResponseComplete", "verb": "get", "user": {"username": "a"}, "requestURI": "/readyz",
            "responseStatus": {"code": 200}, "stageTimestamp": "2026-11-28T12:00:00Z",
        });
        let request = request(serde_json::from_value(line).unwrap()).unwrap();
        assert_eq!((&*request.resource, &*request.name, request.code), ("", "", 200));
    }
}
