//! Invalid configurations, derived from the provider's schema and a valid configuration. Each has one mistake, so the
//! expected problem is known.

use serde_json::{Value, json};

use super::facts::Expected;

/// The size of a large field: 1 MiB, the largest document that fits into a ConfigMap.
const LARGE: usize = 1 << 20;

/// The most fields that are tried, and their longest name in bytes. The schema is untrusted, and each field takes a call.
const FIELDS: usize = 100;
/// See [`FIELDS`].
const LONGEST: usize = 100;

/// The types of JSON Schema.
const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "integer", "string"];

/// Invalid documents, each with a description of its mistake and the expected answer.
pub(super) fn wrong_documents(schema: &Value, right: Option<&str>) -> Vec<(String, String, Expected)> {
    let required = schema["required"].as_array().is_some_and(|required| !required.is_empty());
    let of_empty = if required { Expected::AnyProblem } else { Expected::AnyAnswer };
    let mut documents = vec![
        ("an empty document".to_owned(), "{}".to_owned(), of_empty),
        ("text that is not JSON".to_owned(), "{".to_owned(), Expected::AnyProblem),
        ("a list instead of fields".to_owned(), "[]".to_owned(), Expected::AnyProblem),
        ("null instead of fields".to_owned(), "null".to_owned(), Expected::AnyProblem),
    ];
    let right = right.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let right = right.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    let with = |name: &str, value: Value| {
        let mut changed = right.clone();
        changed.insert(name.to_owned(), value);
        Value::Object(changed).to_string()
    };
    // With a schema that allows unknown fields, none of them is a mistake.
    let additional = &schema["additionalProperties"];
    let of_unknown = |name: &str| match additional {
        Value::Bool(true) | Value::Object(_) => Expected::AnyAnswer,
        _ => Expected::ProblemOrNotice(name.to_owned()),
    };
    let unknown = "__unknown__";
    documents.push(("an unknown field".to_owned(), with(unknown, json!(1)), of_unknown(unknown)));
    let large = with("__large__", json!("x".repeat(LARGE)));
    documents.push(("an unknown field of 1 MiB".to_owned(), large, of_unknown("__large__")));
    let fields = schema["properties"].as_object().into_iter().flatten();
    for (name, field) in fields.filter(|(name, _)| name.len() <= LONGEST).take(FIELDS) {
        // Only a field with a single type; lists of types and references are not interpreted.
        let Some(kind) = field["type"].as_str().filter(|kind| TYPES.contains(kind)) else { continue };
        let wrong = if kind == "object" { json!(7) } else { json!({"__wrong__": [1]}) };
        let what = format!("a wrong type for {name} (the schema says {kind})");
        documents.push((what, with(name, wrong), Expected::Problem(name.clone())));
    }
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_has_one_mistake() {
        let schema = json!({
            "required": ["endpoint"],
            "properties": {"endpoint": {"type": "string"}, "tags": {"type": "object"}, "any": {}},
        });
        let documents = wrong_documents(&schema, Some(r#"{"endpoint":"x"}"#));
        let mistakes: Vec<_> =
            documents.iter().map(|(_, document, expected)| (document.as_str(), expected)).collect();
        let names = |name: &str| Expected::Problem(name.to_owned());
        assert!(mistakes.contains(&("{}", &Expected::AnyProblem)));
        let unknown = Expected::ProblemOrNotice("__unknown__".to_owned());
        assert!(mistakes.contains(&(r#"{"__unknown__":1,"endpoint":"x"}"#, &unknown)));
        assert!(mistakes.contains(&(r#"{"endpoint":{"__wrong__":[1]}}"#, &names("endpoint"))));
        assert!(mistakes.contains(&(r#"{"endpoint":"x","tags":7}"#, &names("tags"))));
        assert!(!mistakes.iter().any(|(document, _)| document.contains("any")));
    }

    #[test]
    fn the_number_of_documents_is_limited() {
        let fields = (0..1_000).map(|number| (format!("field-{number}"), json!({"type": "string"})));
        let strange =
            [("a".repeat(LONGEST + 1), json!({"type": "string"})), ("b".to_owned(), json!({"type": "x"}))];
        let properties: serde_json::Map<_, _> = fields.chain(strange).collect();
        let documents = wrong_documents(&json!({"properties": properties}), None);
        let of_fields = documents.iter().filter(|(what, _, _)| what.starts_with("a wrong type"));
        assert_eq!(of_fields.clone().count(), FIELDS - 1, "one of the first has an invalid type");
        assert!(of_fields.clone().all(|(what, _, _)| what.len() < 200));
    }

    #[test]
    fn allowed_unknown_fields_are_no_mistake() {
        let documents = wrong_documents(&json!({"additionalProperties": true}), None);
        let expected = |start: &str| {
            documents.iter().find(|(_, document, _)| document.starts_with(start)).unwrap().2.clone()
        };
        assert_eq!(
            (expected("{}"), expected(r#"{"__unknown__"#)),
            (Expected::AnyAnswer, Expected::AnyAnswer)
        );
    }
}
