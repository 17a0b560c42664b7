//! The record of a provider's releases as the status of its resource: in the form that Kubernetes tools read, and back. It names
//! settings by digest, and holds none: who may write only the status must not choose them. Pure.

use std::collections::BTreeMap;

use pileus_host::swap::{Condition, ConditionKind, Status};
use pileus_loader::Digest;
use serde_json::{Map, Value, json};

use crate::recorded::Recorded;

/// Reads the record in a status.
///
/// # Errors
/// Where the status isn't one, as after an edit by hand.
pub(crate) fn read(mut status: Map<String, Value>) -> Result<Recorded, serde_json::Error> {
    let version = |release: &mut Map<String, Value>| {
        Some((component(release)?, release.get("version")?.as_str()?.to_owned()))
    };
    let versions = releases(&mut status).filter_map(version).collect();
    let conditions = status.remove("conditions").unwrap_or_else(|| json!([]));
    let conditions: Vec<Written> = serde_json::from_value(conditions)?;
    let status: Status = serde_json::from_value(Value::Object(status))?;
    let conditions = conditions.into_iter().filter_map(Written::condition).collect();
    Ok(Recorded { status: Status { conditions, ..status }, versions, ..Recorded::default() })
}

/// The status to be applied to a resource.
pub(crate) fn write(recorded: &Recorded) -> Value {
    let mut status = serde_json::to_value(&recorded.status).unwrap_or_default();
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        let conditions = recorded.status.conditions.iter().map(|condition| Written::of(condition, recorded));
        fields.insert("conditions".to_owned(), json!(conditions.collect::<Vec<_>>()));
        for release in releases(fields) {
            add_version(release, &recorded.versions);
        }
    }
    status
}

/// What the status says about releases: the active one, the one before, the candidate, and those that are rejected.
fn releases(status: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    status
        .iter_mut()
        .flat_map(|(name, value)| match (name.as_str(), value) {
            ("active" | "previous" | "candidate", value) => vec![value],
            ("rejected", Value::Array(rejected)) => rejected.iter_mut().collect(),
            _ => Vec::new(),
        })
        .filter_map(Value::as_object_mut)
}

fn component(release: &Map<String, Value>) -> Option<Digest> {
    release.get("release")?.get("component")?.as_str()?.parse().ok()
}

fn add_version(release: &mut Map<String, Value>, versions: &BTreeMap<Digest, String>) {
    if let Some(version) = component(release).and_then(|digest| versions.get(&digest)) {
        release.insert("version".to_owned(), json!(version));
    }
}

/// A condition as Kubernetes writes it.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    r#type: String,
    status: String,
    reason: String,
    message: String,
    last_transition_time: jiff::Timestamp,
    #[serde(default)]
    observed_generation: u64,
}

impl Written {
    fn of(condition: &Condition, recorded: &Recorded) -> Self {
        let Condition { kind, holds, since, message } = condition;
        let (name, reason) = words(*kind, *holds);
        Self {
            r#type: name.to_owned(),
            status: if *holds { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message: message.clone(),
            last_transition_time: *since,
            observed_generation: recorded.status.observed_generation,
        }
    }

    fn condition(self) -> Option<Condition> {
        let kind = KINDS.into_iter().find(|kind| words(*kind, true).0 == self.r#type)?;
        let holds = self.status == "True";
        Some(Condition { kind, holds, since: self.last_transition_time, message: self.message })
    }
}

const KINDS: [ConditionKind; 7] = [
    ConditionKind::Fetched,
    ConditionKind::Verified,
    ConditionKind::Compiled,
    ConditionKind::Compatible,
    ConditionKind::Ready,
    ConditionKind::Progressing,
    ConditionKind::Degraded,
];

/// The type of a condition, and its reason.
fn words(kind: ConditionKind, holds: bool) -> (&'static str, &'static str) {
    match (kind, holds) {
        (ConditionKind::Fetched, true) => ("Fetched", "InStore"),
        (ConditionKind::Fetched, false) => ("Fetched", "NotFetched"),
        (ConditionKind::Verified, true) => ("Verified", "Trusted"),
        (ConditionKind::Verified, false) => ("Verified", "NotTrusted"),
        (ConditionKind::Compiled, true) => ("Compiled", "CodeIsReady"),
        (ConditionKind::Compiled, false) => ("Compiled", "NotCompiled"),
        (ConditionKind::Compatible, true) => ("Compatible", "Fits"),
        (ConditionKind::Compatible, false) => ("Compatible", "DoesNotFit"),
        (ConditionKind::Ready, true) => ("Ready", "ServesCalls"),
        (ConditionKind::Ready, false) => ("Ready", "NotServing"),
        (ConditionKind::Progressing, true) => ("Progressing", "SwapGoesOn"),
        (ConditionKind::Progressing, false) => ("Progressing", "NoSwap"),
        (ConditionKind::Degraded, true) => ("Degraded", "NeedsAttention"),
        (ConditionKind::Degraded, false) => ("Degraded", "AsWanted"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pileus_host::swap::{Candidate, Differences, Phase, Release, Version};

    use super::*;

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let release = Release { component: Digest::of(b"c"), settings: Digest::of(b"s") };
        let since = Timestamp::from_second(1_700_000_000).unwrap();
        let version = Version { release, since, why: "the spec asks for it".to_owned() };
        let candidate = Candidate {
            release,
            since,
            phase: Phase::Canary { since, share: 10 },
            differences: Some(Differences { lookups: 1, writes: 0, shown: vec!["node a: …".to_owned()] }),
            accepted: false,
        };
        let condition =
            |kind| Condition { kind, holds: kind != ConditionKind::Degraded, since, message: "m".to_owned() };
        let status = Status {
            observed_generation: 3,
            active: Some(version.clone()),
            candidate: Some(candidate),
            rejected: vec![version],
            conditions: KINDS.map(condition).to_vec(),
            ..Status::default()
        };
        let versions = [(release.component, "1.2.3".to_owned())].into();
        let recorded = Recorded { status, versions, ..Recorded::default() };
        let settings = [(release.settings, json!({"configuration": {"a": 1}}))].into();
        let mut written = write(&Recorded { settings, ..recorded.clone() });
        assert_eq!(written.get("settings"), None);
        // Settings that another hand adds are not read.
        let planted = json!([{"digest": Digest::of(b"p"), "spec": {"trust": {"insecure": true}}}]);
        written["settings"] = planted;
        assert_eq!(written["active"]["version"], "1.2.3");
        assert_eq!(written["conditions"][4]["type"], "Ready");
        assert_eq!(written["conditions"][4]["status"], "True");
        assert_eq!(read(written.as_object().unwrap().clone()).unwrap(), recorded);
    }
}
