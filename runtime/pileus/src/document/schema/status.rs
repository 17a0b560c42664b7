//! The schema of `status`: the record of a provider's releases (`pileus_host::swap::Status`), with conditions as Kubernetes
//! writes them. Pure.

use super::trust::digest;
use super::value::Schema;

/// The largest whole number that every reader of JSON keeps.
const MOST: u64 = (1 << 53) - 1;

pub(super) fn schema() -> Schema {
    Schema::object("What runs, and what is on its way. Only Pileus writes it.")
        .field("observedGeneration", count("The generation of the spec that was considered last."))
        .field("lastOrder", count("The number of the operator's order that was carried out last."))
        .field("paused", Schema::boolean("Whether the operator paused swaps."))
        .field(
            "swapNow",
            time("When the operator ordered a swap without window and canary, until it is done."),
        )
        .field("resolved", resolved())
        .field("active", version("What every replica runs."))
        .field("observing", observing())
        .field("previous", version("The release that a rollback returns to."))
        .field("candidate", candidate())
        .field(
            "rejected",
            Schema::list("Releases that are never activated until the spec changes.", version("A release.")),
        )
        .field(
            "conditions",
            Schema::list("The state in the form that Kubernetes tools read.", condition()).by("type"),
        )
        .field("lastError", last_error())
}

fn words(description: &str) -> Schema {
    Schema::any_text(description).longest(32 << 10)
}

/// A time as Pileus writes it, with fractions of a second.
fn time(description: &str) -> Schema {
    Schema::any_text(description).longest(64).date_time()
}

fn count(description: &str) -> Schema {
    Schema::whole(description, 0, MOST)
}

fn release() -> Schema {
    Schema::object("A component with the settings that it runs under.")
        .required("component", digest("The artifact in the registry, or the file."))
        .required("settings", digest("Configuration, grants, credential references and trust policy."))
}

fn version(description: &str) -> Schema {
    Schema::object(description)
        .required("release", release())
        .required("since", time("Since when."))
        .required("why", words("One sentence."))
        .field("version", component_version())
}

fn component_version() -> Schema {
    words("The version that the component names.")
}

fn resolved() -> Schema {
    let follow = Schema::object("What was resolved: one of these.")
        .field("digest", words("This digest."))
        .field("tag", words("This tag of this repository."))
        .field("range", words("The highest version of this repository within this range."));
    Schema::object("What the tag or range named when it was last resolved.")
        .required("follow", follow)
        .required("component", digest("What it names."))
}

fn observing() -> Schema {
    let rates = Schema::object("How the release before did.")
        .required("items", count("All lookups and changes."))
        .required("errors", count("Those that failed, apart from the next two."))
        .required(
            "traps",
            count("Those at which the provider trapped, ran out of time or violated the contract."),
        )
        .required("throttled", count("Those that the cloud throttled."))
        .required("lookups", count("How many calls made lookups."))
        .required("latency", words("The time within which half of these ended, in ISO 8601."));
    Schema::object("Present until the active release has proven itself.")
        .required("since", time("Since when."))
        .required("baseline", rates)
}

fn candidate() -> Schema {
    let phases = ["preparing", "dryRun", "held", "waiting", "canary"];
    let phase = Schema::object("How far it got.")
        .required("name", Schema::one_of("The phase.", &phases))
        .field("since", time("Of a canary: since when."))
        .field("share", Schema::whole("Of a canary: the percentage of nodes.", 0, 100));
    let differences = Schema::object("What the dry run found, once it has run.")
        .required("lookups", count("How many lookups were answered differently."))
        .required("writes", count("How many writes the candidate wanted."))
        .required("shown", Schema::list("The first of them in words.", words("A difference.")));
    Schema::object("The release that may become active.")
        .required("release", release())
        .required("since", time("When it was first seen."))
        .field("version", component_version())
        .required("phase", phase)
        .field("differences", differences.nullable())
        .field(
            "accepted",
            Schema::boolean("Whether the operator ordered the swap after the differences were shown."),
        )
}

fn condition() -> Schema {
    let kinds = ["Fetched", "Verified", "Compiled", "Compatible", "Ready", "Progressing", "Degraded"];
    Schema::object("A condition.")
        .required("type", Schema::one_of("Which one.", &kinds))
        .required("status", Schema::one_of("Whether it holds.", &["True", "False", "Unknown"]))
        .required("reason", words("Why, in one word."))
        .required("message", words("Why, in words."))
        .required("lastTransitionTime", time("Since when."))
        .field("observedGeneration", count("The generation of the spec that it is about."))
}

fn last_error() -> Schema {
    Schema::object("What went wrong last.")
        .required("message", words("In words."))
        .required("since", time("When it began."))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;
    use pileus_host::swap::{
        Candidate, Condition, ConditionKind, Differences, Follow, LastError, Observation, Phase, Rates,
        Release, Resolved, Status, Version,
    };
    use pileus_loader::Digest;
    use serde_json::{Value, json};

    use super::*;
    use crate::recorded::Recorded;
    use crate::resource_status::write;

    /// A status in which nothing is missing.
    fn full(phase: Phase) -> Status {
        let (component, settings, since) = (Digest::of(b"c"), Digest::of(b"s"), Timestamp::UNIX_EPOCH);
        let release = Release { component, settings };
        let version = Version { release, since, why: "the spec asks for it".to_owned() };
        let differences = Some(Differences { lookups: 1, writes: 2, shown: vec!["node a".to_owned()] });
        let message = "in words".to_owned();
        Status {
            observed_generation: 3,
            last_order: Some(7),
            paused: true,
            swap_now: Some(since),
            resolved: Some(Resolved { follow: Follow::Tag("ghcr.io/a/b:1.2".to_owned()), component }),
            active: Some(version.clone()),
            observing: Some(Observation { since, baseline: Rates::default() }),
            previous: Some(version.clone()),
            candidate: Some(Candidate { release, since, phase, differences, accepted: false }),
            rejected: vec![version],
            conditions: vec![Condition {
                kind: ConditionKind::Ready,
                holds: true,
                since,
                message: message.clone(),
            }],
            last_error: Some(LastError { message, since }),
        }
    }

    /// Checks that a schema has all of a value, and the value all that the schema requires. Adds the names of the fields.
    fn check(value: &Value, schema: &Value, path: &str, seen: &mut BTreeSet<String>) {
        let is_of_kind = match schema["type"].as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("integer") => value.is_u64(),
            Some("boolean") => value.is_boolean(),
            _ => value.is_string(),
        };
        assert!(is_of_kind, "{path}: {value} is not {}", schema["type"]);
        for item in value.as_array().into_iter().flatten() {
            check(item, &schema["items"], &format!("{path}[]"), seen);
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(value.get(name).is_some(), "{path}.{name} is required");
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == json!(true) {
            return;
        }
        for (name, value) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            assert!(schema["properties"][name].is_object(), "{path} would be pruned");
            check(value, &schema["properties"][name], &path, seen);
            seen.insert(path);
        }
    }

    #[test]
    fn what_is_written_fits_the_schema() {
        let (schema, mut seen) = (Value::from(schema()), BTreeSet::new());
        let since = Timestamp::UNIX_EPOCH;
        let phases = [
            Phase::Preparing,
            Phase::DryRun,
            Phase::Held,
            Phase::Waiting,
            Phase::Canary { since, share: 10 },
        ];
        let names = &schema["properties"]["candidate"]["properties"]["phase"]["properties"]["name"]["enum"];
        for phase in phases {
            let versions = [(Digest::of(b"c"), "1.2.3".to_owned())].into();
            let status = write(&Recorded { status: full(phase), versions, ..Recorded::default() });
            check(&status, &schema, "status", &mut seen);
            let name = &status["candidate"]["phase"]["name"];
            assert!(names.as_array().is_some_and(|names| names.contains(name)), "{name}");
        }
        for expected in ["status.observing.baseline.latency", "status.candidate.phase.share"] {
            assert!(seen.contains(expected), "{expected}: {seen:?}");
        }
        // Without the optional parts.
        let status = Status { candidate: None, ..Status::default() };
        check(&write(&Recorded { status, ..Recorded::default() }), &schema, "status", &mut seen);
    }
}
