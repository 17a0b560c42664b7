//! What a provider says of itself.

use pileus_host::{Capability, Description};

use super::check::{Check, Shortfall, Verdict, failed, not_run};
use super::facts::Facts;

const SENT: &str = "info.describe()";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "info.describe",
        claim: "describe answers, and what it says can be",
        matters: "the host asks it at every load; a provider that doesn't answer is never started",
        judge: describes,
    },
    Check {
        id: "info.same-twice",
        claim: "describe answers the same each time",
        matters: "each call gets a fresh instance; a description that changes means that Nodes change their owner between \
                  restarts",
        judge: same_twice,
    },
    Check {
        id: "info.version",
        claim: "the version is a semantic version",
        matters: "operators and the swap to a new version tell versions apart by it",
        judge: version,
    },
    Check {
        id: "info.schemes",
        claim: "there is a scheme of provider IDs",
        matters: "a Node belongs to the provider that owns the scheme of its provider ID; without one, no machine that it \
                  finds is believed",
        judge: schemes,
    },
    Check {
        id: "info.batch",
        claim: "the largest batch of each capability that it exports is at least 1",
        matters: "the host sends no more than that in a call, so with 0 nothing could be sent at all",
        judge: batch,
    },
    Check {
        id: "info.schema",
        claim: "the schema of the configuration says which fields there are",
        matters: "`pileus inspect` shows it to operators, who have nothing else to go by",
        judge: schema,
    },
];

fn description(facts: &Facts) -> Result<&Description, Shortfall> {
    facts.description().ok_or_else(|| not_run("info.describe has to pass first"))
}

fn describes(facts: &Facts) -> Verdict {
    match &facts.described[0] {
        Ok(_) => Ok(()),
        Err(why) => Err(failed(
            SENT,
            why,
            "correct what it names; describe computes its answer from nothing, without configuration and network",
        )),
    }
}

fn same_twice(facts: &Facts) -> Verdict {
    let first = description(facts)?;
    let came = match &facts.described[1] {
        Ok(second) if first == second => return Ok(()),
        Ok(second) => changes(first, second),
        Err(why) => format!("an answer at first, and then: {why}"),
    };
    Err(failed(
        format!("{SENT}, twice"),
        came,
        "leave out what changes: times, random numbers, the order of a hash map",
    ))
}

/// What differs between two descriptions.
fn changes(first: &Description, second: &Description) -> String {
    let parts = |description: &Description| {
        let Description {
            name,
            version,
            provider_id_schemes,
            configuration_schema,
            service_annotations,
            service_facts,
            node_labels,
            call_shapes,
        } = description;
        [
            ("name", name.clone()),
            ("version", version.clone()),
            ("provider ID schemes", provider_id_schemes.join(", ")),
            ("configuration schema", configuration_schema.to_string()),
            ("service annotations", format!("{service_annotations:?}")),
            ("service facts", service_facts.names().collect::<Vec<_>>().join(", ")),
            ("node labels", node_labels.join(", ")),
            ("call shapes", format!("{call_shapes:?}")),
        ]
    };
    let both = parts(first).into_iter().zip(parts(second));
    let change = |((part, first), (_, second)): ((&str, String), (&str, String))| {
        (first != second).then(|| format!("{part}: first {first}, then {second}"))
    };
    both.filter_map(change).collect::<Vec<_>>().join("; ")
}

fn version(facts: &Facts) -> Verdict {
    let Description { version, .. } = description(facts)?;
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let parts: Vec<_> = core.split('.').collect();
    if parts.len() == 3 && parts.into_iter().all(is_number) {
        return Ok(());
    }
    Err(failed(SENT, format!("version {version:?}"), "use MAJOR.MINOR.PATCH, as in 1.4.0"))
}

fn schemes(facts: &Facts) -> Verdict {
    if description(facts)?.provider_id_schemes.is_empty() {
        return Err(failed(
            SENT,
            "no scheme",
            "name the part before :// of the provider IDs that it gives, as in azure",
        ));
    }
    Ok(())
}

fn batch(facts: &Facts) -> Verdict {
    let description = description(facts)?;
    let of_none = |capability: &&Capability| description.call_shape(**capability).largest_batch == 0;
    match facts.capabilities.iter().find(of_none) {
        None => Ok(()),
        Some(capability) => Err(failed(
            SENT,
            format!("a largest batch of 0 for {capability}"),
            "say how many items a call may carry; 5000 where one list of the cloud answers for all of a cluster",
        )),
    }
}

fn schema(facts: &Facts) -> Verdict {
    description(facts)?;
    let schema = facts.schema();
    if schema.is_object()
        && ["properties", "$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.get(key).is_some())
        || schema["type"] == "object"
    {
        return Ok(());
    }
    let text: String = schema.to_string().chars().take(200).collect();
    Err(failed(SENT, text, "give the JSON Schema (2020-12) of an object with its fields under `properties`"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::samples::{facts, outcomes};
    use super::*;

    /// Each row changes one thing of a description that is right, and names the check that sees it.
    #[test]
    fn each_check_sees_its_own_mistake_and_no_other_does() {
        type Change = fn(&mut Description);
        let rows: [(&str, Change); 5] = [
            ("info.version", |it| it.version = "1.4".to_owned()),
            ("info.version", |it| it.version = "01.4.0".to_owned()),
            ("info.schemes", |it| it.provider_id_schemes.clear()),
            ("info.batch", |it| it.call_shapes[0].largest_batch = 0),
            ("info.schema", |it| it.configuration_schema = json!(7)),
        ];
        for (expected, change) in rows {
            let mut facts = facts();
            facts.described.iter_mut().flatten().for_each(change);
            assert_eq!(outcomes(&facts, "failed"), [expected]);
        }
    }

    #[test]
    fn a_description_that_changes_or_is_none_is_seen() {
        let mut changing = facts();
        changing.described[1].as_mut().unwrap().node_labels.push("a".to_owned());
        assert_eq!(outcomes(&changing, "failed"), ["info.same-twice"]);
        let Err(Shortfall::Failed(failure)) = same_twice(&changing) else { unreachable!() };
        assert_eq!(failure.came, "node labels: first , then a");
        let mut none = facts();
        none.described[0] = Err("trapped".to_owned());
        assert_eq!(outcomes(&none, "failed"), ["info.describe"]);
        assert_eq!(outcomes(&none, "not run").len(), CHECKS.len() - 1);
    }
}
