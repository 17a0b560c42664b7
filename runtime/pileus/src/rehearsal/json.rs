//! A plan for machines.
//!
//! ```json
//! {
//!   "provider": {"name": "…", "component": "…", "version": "…", "digest": "sha256:…"},
//!   "cluster": {"name": "kubernetes", "uid": "…"},
//!   "isSettled": false,
//!   "loadBalancers": {
//!     "state": "seen", "why": null,
//!     "summary": {"create": 1, "change": 0, "delete": 0, "other": 0, "settled": 12},
//!     "changes": [
//!       {
//!         "action": "create", "object": "default/web", "reason": "…", "result": "write", "problem": null,
//!         "writes": [{"method": "PUT", "url": "https://…", "bodySize": 217}]
//!       }
//!     ],
//!     "together": [{"method": "PUT", "url": "https://…", "bodySize": 5210, "for": ["default/a", "default/b"]}],
//!     "writesLeftOut": 0,
//!     "notes": ["…"]
//!   },
//!   "routes": {"state": "nothing", "why": "no routes are kept without --cluster-cidr"}
//! }
//! ```
//!
//! A state is `seen`, `nothing` or `unseen`. A result is `write`; `unclear`, a write that wasn't told apart from others';
//! `next`, one that follows another; `under-way`, where the cloud is at it; `elsewhere`; `failed` or `refused`, with the
//! problem. Bodies are there with -v, up to 8 KiB each. Fields and values may be added, none goes and none changes its
//! meaning.

use pileus_gate::WantedWrite;
use serde_json::{Map, Value, json};

use super::apart::Verdict;
use super::outlook::{Change, End, Findings, Identity, Outlook, Part, Shared, Verb};

/// The object.
pub(super) fn object(outlook: &Outlook, verbose: bool) -> Value {
    let Outlook { provider, cluster: (cluster, uid), load_balancers, routes } = outlook;
    let Identity { name, component, version, digest } = provider;
    json!({
        "provider": {"name": name, "component": component, "version": version, "digest": digest},
        "cluster": {"name": cluster, "uid": uid},
        "isSettled": outlook.is_settled(),
        "loadBalancers": part(load_balancers, verbose),
        "routes": part(routes, verbose),
    })
}

fn part(part: &Part, verbose: bool) -> Value {
    let findings = match part {
        Part::Nothing(why) => return json!({"state": "nothing", "why": why}),
        Part::Unseen(why) => return json!({"state": "unseen", "why": why}),
        Part::Seen(findings) => findings,
    };
    let Findings { settled, changes, together, left_out, notes } = findings;
    let shared = |Shared { write: wanted, by }: &Shared| {
        let mut object = write(wanted, verbose);
        object.insert("for".to_owned(), json!(by));
        object
    };
    json!({
        "state": "seen",
        "why": null,
        "summary": {
            "create": findings.count(Verb::Create),
            "change": findings.count(Verb::Change),
            "delete": findings.count(Verb::Delete),
            "other": findings.others(),
            "settled": settled,
        },
        "changes": changes.iter().map(|one| change(one, verbose)).collect::<Vec<_>>(),
        "together": together.iter().map(shared).collect::<Vec<_>>(),
        "writesLeftOut": left_out,
        "notes": notes,
    })
}

fn change(change: &Change, verbose: bool) -> Value {
    let Change { verb, object, reason, end } = change;
    let (result, problem) = match end {
        End::Told(Verdict::Settled | Verdict::Writes(_)) => ("write", None),
        End::Told(Verdict::Unclear) => ("unclear", None),
        End::Told(Verdict::UnderWay) => ("under-way", None),
        End::Told(Verdict::Elsewhere) => ("elsewhere", None),
        End::Told(Verdict::Failed(error)) => ("failed", Some(error)),
        End::Next => ("next", None),
        End::Refused(problem) => ("refused", Some(problem)),
    };
    let writes = if let End::Told(Verdict::Writes(writes)) = end { writes.as_slice() } else { &[] };
    json!({
        "action": verb.as_str(),
        "object": object,
        "reason": reason,
        "result": result,
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
    use super::super::samples::{outlook, settled};
    use super::*;

    #[test]
    fn machines_read_the_same_as_people() {
        let object = object(&outlook(), false);
        let summary = json!({"create": 1, "change": 1, "delete": 0, "other": 3, "settled": 12});
        assert_eq!(object["loadBalancers"]["summary"], summary);
        let changes = object["loadBalancers"]["changes"].as_array().unwrap();
        let results: Vec<_> = changes.iter().map(|change| change["result"].as_str().unwrap()).collect();
        assert_eq!(results, ["write", "write", "under-way", "refused", "failed"]);
        let write = json!({"method": "PUT", "url": "http://cloud.test/v1/a", "bodySize": 12});
        assert_eq!(changes[0]["writes"], json!([write]));
        assert_eq!(changes[4]["problem"], "no quota");
        assert_eq!(object["loadBalancers"]["together"][0]["for"], json!(["default/a", "default/b"]));
        assert_eq!(object["routes"]["changes"][1]["result"], "next");
        assert_eq!(object["isSettled"], false);
    }

    #[test]
    fn bodies_are_there_only_if_they_are_asked_for() {
        assert!(!object(&outlook(), false).to_string().contains("body\""));
        let verbose = object(&outlook(), true);
        assert_eq!(verbose["loadBalancers"]["changes"][0]["writes"][0]["body"], "{\"port\": 80}");
    }

    #[test]
    fn a_part_that_was_not_looked_at_says_why() {
        let object = object(&settled(), false);
        assert_eq!(object["routes"], json!({"state": "nothing", "why": "no routes are kept"}));
        assert_eq!(object["isSettled"], true);
    }
}
