//! Checks of a provider's description of itself.

use pileus_host::{Capability, Description};

use super::check::{Check, CheckResult, NotPassed, failed, not_run};
use super::facts::Facts;

const SENT: &str = "info.describe()";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "info.describe",
        claim: "describe returns a valid description",
        matters: "the host calls it at every load; without an answer the provider never starts",
        test: describes,
    },
    Check {
        id: "info.same-twice",
        claim: "describe returns the same each time",
        matters: "each call gets a fresh instance; with a changing description, Nodes could change their provider between \
                  restarts",
        test: same_twice,
    },
    Check {
        id: "info.version",
        claim: "the version is a semantic version",
        matters: "operators and upgrades distinguish versions by it",
        test: version,
    },
    Check {
        id: "info.schemes",
        claim: "the provider has a scheme of provider IDs",
        matters: "a Node belongs to the provider with the scheme of its provider ID; without a scheme, the host rejects \
                  every instance that the provider finds",
        test: schemes,
    },
    Check {
        id: "info.batch",
        claim: "the largest batch of each exported capability is at least 1",
        matters: "the host sends no more than that in a call, so 0 would allow nothing",
        test: batch,
    },
    Check {
        id: "info.schema",
        claim: "the schema of the configuration describes its fields",
        matters: "`pileus inspect` shows it to operators as the only documentation at hand",
        test: schema,
    },
];

fn description(facts: &Facts) -> Result<&Description, NotPassed> {
    facts.description().ok_or_else(|| not_run("info.describe has to pass first"))
}

fn describes(facts: &Facts) -> CheckResult {
    match &facts.described[0] {
        Ok(_) => Ok(()),
        Err(why) => {
            Err(failed(SENT, why, "fix what it names; describe must need neither configuration nor network"))
        }
    }
}

fn same_twice(facts: &Facts) -> CheckResult {
    let first = description(facts)?;
    let received = match &facts.described[1] {
        Ok(second) if first == second => return Ok(()),
        Ok(second) => changes(first, second),
        Err(why) => format!("first an answer, then: {why}"),
    };
    Err(failed(
        format!("{SENT}, twice"),
        received,
        "leave out what changes: times, random numbers, the iteration order of a hash map",
    ))
}

/// The differences between two descriptions.
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

fn version(facts: &Facts) -> CheckResult {
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

fn schemes(facts: &Facts) -> CheckResult {
    if description(facts)?.provider_id_schemes.is_empty() {
        return Err(failed(
            SENT,
            "no scheme",
            "declare the part before :// of its provider IDs, as in azure",
        ));
    }
    Ok(())
}

fn batch(facts: &Facts) -> CheckResult {
    let description = description(facts)?;
    let is_zero = |capability: &&Capability| description.call_shape(**capability).largest_batch == 0;
    match facts.capabilities.iter().find(is_zero) {
        None => Ok(()),
        Some(capability) => Err(failed(
            SENT,
            format!("a largest batch of 0 for {capability}"),
            "declare how many items a call may carry; 5000 if one list of the cloud covers a whole cluster",
        )),
    }
}

fn schema(facts: &Facts) -> CheckResult {
    description(facts)?;
    let schema = facts.schema();
    if schema.is_object()
        && ["properties", "$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| schema.get(key).is_some())
        || schema["type"] == "object"
    {
        return Ok(());
    }
    let text: String = schema.to_string().chars().take(200).collect();
    Err(failed(
        SENT,
        text,
        "return the JSON Schema (2020-12) of an object with its fields under `properties`",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::samples::{facts, outcomes};
    use super::*;

    /// Each row changes one thing of a valid description, and names the check that fails.
    #[test]
    fn each_mistake_fails_exactly_its_own_check() {
        type Mistake = fn(&mut Description);
        let rows: [(&str, Mistake); 5] = [
            ("info.version", |it| it.version = "1.4".to_owned()),
            ("info.version", |it| it.version = "01.4.0".to_owned()),
            ("info.schemes", |it| it.provider_id_schemes.clear()),
            ("info.batch", |it| it.call_shapes[0].largest_batch = 0),
            ("info.schema", |it| it.configuration_schema = json!(7)),
        ];
        for (expected, mistake) in rows {
            let mut facts = facts();
            facts.described.iter_mut().flatten().for_each(mistake);
            assert_eq!(outcomes(&facts, "failed"), [expected]);
        }
    }

    #[test]
    fn a_changing_or_missing_description_fails() {
        let mut changing = facts();
        changing.described[1].as_mut().unwrap().node_labels.push("a".to_owned());
        assert_eq!(outcomes(&changing, "failed"), ["info.same-twice"]);
        let Err(NotPassed::Failed(failure)) = same_twice(&changing) else { unreachable!() };
        assert_eq!(failure.received, "node labels: first , then a");
        let mut none = facts();
        none.described[0] = Err("trapped".to_owned());
        assert_eq!(outcomes(&none, "failed"), ["info.describe"]);
        assert_eq!(outcomes(&none, "not run").len(), CHECKS.len() - 1);
    }
}
