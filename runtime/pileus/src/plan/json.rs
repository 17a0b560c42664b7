//! A preview as one JSON object.
//!
//! ```json
//! {
//!   "provider": {"name": "…", "component": "…", "version": "…", "digest": "sha256:…"},
//!   "cluster": {"name": "kubernetes", "uid": "…"},
//!   "isSettled": false,
//!   "loadBalancers": {
//!     "state": "planned", "why": null,
//!     "summary": {"create": 1, "change": 0, "delete": 0, "other": 0, "settled": 12},
//!     "changes": [
//!       {
//!         "action": "create", "object": "default/web", "reason": "…", "result": "write", "problem": null,
//!         "writes": [{"method": "PUT", "url": "https://…", "bodySize": 217}]
//!       }
//!     ],
//!     "sharedWrites": [{"method": "PUT", "url": "https://…", "bodySize": 5210, "for": ["default/a", "default/b"]}],
//!     "writesLeftOut": 0,
//!     "notes": ["…"]
//!   },
//!   "routes": {"state": "not-applicable", "why": "routes are managed only with --cluster-cidr"}
//! }
//! ```
//!
//! `state` is `planned`, `not-applicable`, or `unknown` where the cloud could not be read. `result` is one of:
//!
//! - `write`: the provider wants these writes;
//! - `unattributed`: it wants writes that could not be told from those for other objects in time;
//! - `follows`: the change follows once another is done;
//! - `in-progress`: the cloud is working on it;
//! - `elsewhere`: another controller serves it;
//! - `failed` or `rejected`: it can't be done, with the `problem`.
//!
//! Bodies, up to 8 KiB each, are included with -v. Fields and values may be added; existing ones keep their meaning.

use pileus_gate::WantedWrite;
use serde_json::{Map, Value, json};

use super::attribution::{DryRunResult, SharedWrite};
use super::preview::{Action, ChangeResult, Findings, Identity, Preview, PreviewedChange, Section};

/// The object for a preview; `verbose` includes bodies.
pub(super) fn object(preview: &Preview, verbose: bool) -> Value {
    let Preview { provider, cluster: (cluster, uid), load_balancers, routes } = preview;
    let Identity { name, component, version, digest } = provider;
    json!({
        "provider": {"name": name, "component": component, "version": version, "digest": digest},
        "cluster": {"name": cluster, "uid": uid},
        "isSettled": preview.is_settled(),
        "loadBalancers": section(load_balancers, verbose),
        "routes": section(routes, verbose),
    })
}

fn section(section: &Section, verbose: bool) -> Value {
    let findings = match section {
        Section::NotApplicable(why) => return json!({"state": "not-applicable", "why": why}),
        Section::Unknown(why) => return json!({"state": "unknown", "why": why}),
        Section::Planned(findings) => findings,
    };
    let Findings { settled, changes, shared_writes, left_out, notes } = findings;
    let shared = |SharedWrite { write: wanted, items }: &SharedWrite<String>| {
        let mut object = write(wanted, verbose);
        object.insert("for".to_owned(), json!(items));
        object
    };
    json!({
        "state": "planned",
        "why": null,
        "summary": {
            "create": findings.count(Action::Create),
            "change": findings.count(Action::Change),
            "delete": findings.count(Action::Delete),
            "other": findings.others(),
            "settled": settled,
        },
        "changes": changes.iter().map(|one| change(one, verbose)).collect::<Vec<_>>(),
        "sharedWrites": shared_writes.iter().map(shared).collect::<Vec<_>>(),
        "writesLeftOut": left_out,
        "notes": notes,
    })
}

fn change(change: &PreviewedChange, verbose: bool) -> Value {
    let PreviewedChange { action, object, reason, result } = change;
    let (label, problem) = match result {
        ChangeResult::DryRun(DryRunResult::Settled | DryRunResult::Writes(_)) => ("write", None),
        ChangeResult::DryRun(DryRunResult::Unattributed) => ("unattributed", None),
        ChangeResult::DryRun(DryRunResult::InProgress) => ("in-progress", None),
        ChangeResult::DryRun(DryRunResult::Elsewhere) => ("elsewhere", None),
        ChangeResult::DryRun(DryRunResult::Failed(error)) => ("failed", Some(error)),
        ChangeResult::Follows => ("follows", None),
        ChangeResult::Rejected(problem) => ("rejected", Some(problem)),
    };
    let writes =
        if let ChangeResult::DryRun(DryRunResult::Writes(writes)) = result { writes.as_slice() } else { &[] };
    json!({
        "action": action.as_str(),
        "object": object,
        "reason": reason,
        "result": label,
        "problem": problem,
        "writes": writes.iter().map(|one| write(one, verbose)).collect::<Vec<_>>(),
    })
}

fn write(write: &WantedWrite, verbose: bool) -> Map<String, Value> {
    let WantedWrite { method, url, body, body_size } = write;
    let fields = [("method", json!(method)), ("url", json!(url)), ("bodySize", json!(body_size))];
    let body = verbose.then(|| ("body", json!(String::from_utf8_lossy(body))));
    fields.into_iter().chain(body).map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{preview, settled};
    use super::*;

    #[test]
    fn the_object_has_every_change_of_the_preview() {
        let object = object(&preview(), false);
        let summary = json!({"create": 1, "change": 1, "delete": 0, "other": 3, "settled": 12});
        assert_eq!(object["loadBalancers"]["summary"], summary);
        let changes = object["loadBalancers"]["changes"].as_array().unwrap();
        let results: Vec<_> = changes.iter().map(|change| change["result"].as_str().unwrap()).collect();
        assert_eq!(results, ["write", "write", "in-progress", "rejected", "failed"]);
        let write = json!({"method": "PUT", "url": "http://cloud.test/v1/a", "bodySize": 12});
        assert_eq!(changes[0]["writes"], json!([write]));
        assert_eq!(changes[4]["problem"], "no quota");
        assert_eq!(object["loadBalancers"]["sharedWrites"][0]["for"], json!(["default/a", "default/b"]));
        assert_eq!(object["routes"]["changes"][1]["result"], "follows");
        assert_eq!(object["isSettled"], false);
    }

    #[test]
    fn bodies_are_included_only_on_request() {
        assert!(!object(&preview(), false).to_string().contains("body\""));
        let verbose = object(&preview(), true);
        assert_eq!(verbose["loadBalancers"]["changes"][0]["writes"][0]["body"], "{\"port\": 80}");
    }

    #[test]
    fn a_section_without_a_plan_says_why() {
        let object = object(&settled(), false);
        assert_eq!(
            object["routes"],
            json!({"state": "not-applicable", "why": "routes are managed only with --cluster-cidr"})
        );
        assert_eq!(object["isSettled"], true);
    }
}
