//! Reads a configuration document into a provider. `info.configure` and every later call use the same code: the first
//! reports what is wrong with the document, the others read one that was accepted. Reading is strict, because a field that
//! is silently ignored is usually misspelled.

use schemars::generate::SchemaSettings;
use serde_ignored::Path;

use crate::{Error, Problem, Provider};

/// Makes the provider that a document describes, or lists what is wrong with the document.
pub(crate) fn read<P: Provider>(document: &str) -> Result<P, Vec<Problem>> {
    // Parse into a value first: a position in the host's JSON means nothing to the author of a YAML document.
    let value: serde_json::Value = serde_json::from_str(document)
        .map_err(|error| Problem::new("", format!("the configuration is not JSON: {error}")))?;
    if !value.is_object() {
        // Serde would accept a list as the fields in their order.
        return Err(Problem::new("", "the configuration must be an object with named fields").into());
    }
    let mut problems = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    let read = serde_ignored::deserialize(tracked, |path| {
        problems.push(Problem::new(to_text(&path), "there is no such field, remove it or correct its name"));
    });
    match read {
        Ok(configuration) if problems.is_empty() => P::configure(configuration),
        Ok(_) => Err(problems),
        Err(error) => {
            let path = match track.path().to_string() {
                root if root == "." => String::new(),
                path => path,
            };
            problems.push(Problem::new(path, error.to_string()));
            Err(problems)
        }
    }
}

/// The JSON Schema (2020-12) of a provider's configuration, as JSON text.
pub(crate) fn schema<P: Provider>() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<P::Configuration>();
    schema.as_value().to_string()
}

/// The error of a call whose configuration is invalid. The host has checked it before, so this is rare.
pub(crate) fn rejected(problems: &[Problem]) -> Error {
    let listed: Vec<String> =
        problems.iter().map(|Problem { path, message }| format!("{path}: {message}")).collect();
    Error::invalid(format!("the configuration of the provider is wrong: {}", listed.join("; ")))
}

/// A path in the notation of [`Problem::path`].
fn to_text(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", to_text(parent)),
        Path::Map { parent, key } => match to_text(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            to_text(parent)
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use crate::testing::{Host, schema};
    use crate::{Description, Problem, Provider, Settings};

    #[derive(Deserialize, JsonSchema)]
    struct Configuration {
        /// The zones that there are.
        zones: Vec<Zone>,
        region: Option<Wrapped>,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Zone {
        name: String,
        #[serde(default)]
        weight: u8,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Wrapped(Zone);

    struct Zoned;

    impl Provider for Zoned {
        type Configuration = Configuration;

        fn describe() -> Description {
            Description::new("zoned", "0.1.0")
        }

        fn configure(Configuration { zones, region }: Configuration) -> Result<Self, Vec<Problem>> {
            let zones = zones.iter().chain(region.as_ref().map(|Wrapped(zone)| zone));
            let heavy = zones.filter(|Zone { weight, .. }| *weight > 9);
            let problems: Vec<_> = heavy
                .map(|Zone { name, .. }| Problem::new("zones", format!("{name} is too heavy")))
                .collect();
            if problems.is_empty() { Ok(Self) } else { Err(problems) }
        }

        fn settings(&self) -> Settings {
            Settings::default()
        }
    }

    #[test]
    fn a_valid_document_becomes_a_provider() {
        let document = json!({"zones": [{"name": "a", "weight": 1}], "region": {"name": "b"}});
        assert!(Host::new().configuration(document).configure::<Zoned>().is_ok());
    }

    #[test]
    fn every_problem_names_its_path() {
        let unknown = "there is no such field, remove it or correct its name";
        let rows = [
            (json!([]), vec![("", "the configuration must be an object")]),
            (json!({}), vec![("", "missing field `zones`")]),
            (
                json!({"zones": [{"name": 1}]}),
                vec![("zones[0].name", "invalid type: integer `1`, expected a string")],
            ),
            (
                json!({"zones": [{"name": "a"}, {"name": "b", "wieght": 1}], "regoin": {}}),
                vec![("regoin", unknown), ("zones[1].wieght", unknown)],
            ),
            (json!({"region": {"name": "a", "x": 1}, "zones": [{"name": "a"}]}), vec![("region.x", unknown)]),
            (
                json!({"zones": [{"mane": "a"}]}),
                vec![("zones[0]", "missing field `name`"), ("zones[0].mane", unknown)],
            ),
            (
                json!({"zones": [{"name": "a", "weight": 10}, {"name": "b", "weight": 11}]}),
                vec![("zones", "a is too heavy"), ("zones", "b is too heavy")],
            ),
        ];
        for (document, expected) in rows {
            let Err(mut problems) = Host::new().configuration(&document).configure::<Zoned>() else {
                panic!("{document} is wrong")
            };
            problems.sort_by(|a, b| a.path.cmp(&b.path));
            let found: Vec<_> =
                problems.iter().map(|problem| (&problem.path[..], &problem.message[..])).collect();
            assert_eq!(found.len(), expected.len(), "{document}: {found:?}");
            for ((path, message), (expected_path, expected_message)) in found.into_iter().zip(expected) {
                assert_eq!(path, expected_path, "{document}");
                assert!(message.starts_with(expected_message), "{document}: {message}");
            }
        }
    }

    #[test]
    fn a_document_that_is_not_json_is_one_problem_of_the_whole() {
        let problems = super::read::<Zoned>("{").err().unwrap();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "");
    }

    #[test]
    fn the_schema_describes_the_configuration() {
        let schema = schema::<Zoned>();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["properties"]["zones"]["description"], "The zones that there are.");
    }
}
