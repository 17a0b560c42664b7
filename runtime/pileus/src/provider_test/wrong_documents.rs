//! Documents that no provider should accept, made from its schema and from the one that is right: each has one mistake, so
//! that what it should say about it is known.

use serde_json::{Value, json};

use super::facts::Expected;

/// A document of 1 MiB: the largest that fits into a ConfigMap, and so the largest that an operator can have.
const LARGE: usize = 1 << 20;

/// The most fields that are tried, and the longest name of one, in bytes. The schema is the provider's, and each takes a
/// call.
const FIELDS: usize = 100;
/// See [`FIELDS`].
const LONGEST: usize = 100;

/// The types that JSON Schema has.
const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "integer", "string"];

/// What should not be accepted, with what is wrong with it and what is expected.
pub(super) fn wrong_documents(schema: &Value, right: Option<&str>) -> Vec<(String, String, Expected)> {
    let required = schema["required"].as_array().is_some_and(|required| !required.is_empty());
    let of_empty = if required { Expected::AnyProblem } else { Expected::AnyAnswer };
    let mut documents = vec![
        ("an empty document".to_owned(), "{}".to_owned(), of_empty),
        ("text that is not JSON".to_owned(), "{".to_owned(), Expected::AnyProblem),
        ("a list instead of fields".to_owned(), "[]".to_owned(), Expected::AnyProblem),
        ("nothing instead of fields".to_owned(), "null".to_owned(), Expected::AnyProblem),
    ];
    let right = right.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let right = right.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    let with = |name: &str, value: Value| {
        let mut changed = right.clone();
        changed.insert(name.to_owned(), value);
        Value::Object(changed).to_string()
    };
    // A schema that welcomes unknown fields makes none of them a mistake.
    let welcomes = &schema["additionalProperties"];
    let of_unknown = |name: &str| match welcomes {
        Value::Bool(true) | Value::Object(_) => Expected::AnyAnswer,
        _ => Expected::Problem(name.to_owned()),
    };
    let unknown = "__unknown__";
    documents.push(("a field that nobody knows".to_owned(), with(unknown, json!(1)), of_unknown(unknown)));
    let large = with("__large__", json!("x".repeat(LARGE)));
    documents.push(("1 MiB in a field that nobody knows".to_owned(), large, of_unknown("__large__")));
    let fields = schema["properties"].as_object().into_iter().flatten();
    for (name, field) in fields.filter(|(name, _)| name.len() <= LONGEST).take(FIELDS) {
        // Of a type that is a name; what is a list of types or a reference can't be told to be wrong from here.
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
    fn wrong_documents_are_the_right_one_with_one_mistake_each() {
        let schema = json!({
            "required": ["endpoint"],
            "properties": {"endpoint": {"type": "string"}, "tags": {"type": "object"}, "any": {}},
        });
        let documents = wrong_documents(&schema, Some(r#"{"endpoint":"x"}"#));
        let mistakes: Vec<_> =
            documents.iter().map(|(_, document, expected)| (document.as_str(), expected)).collect();
        let names = |name: &str| Expected::Problem(name.to_owned());
        assert!(mistakes.contains(&("{}", &Expected::AnyProblem)));
        assert!(mistakes.contains(&(r#"{"__unknown__":1,"endpoint":"x"}"#, &names("__unknown__"))));
        assert!(mistakes.contains(&(r#"{"endpoint":{"__wrong__":[1]}}"#, &names("endpoint"))));
        assert!(mistakes.contains(&(r#"{"endpoint":"x","tags":7}"#, &names("tags"))));
        assert!(!mistakes.iter().any(|(document, _)| document.contains("any")));
    }

    #[test]
    fn a_schema_makes_no_more_documents_than_can_be_tried() {
        let fields = (0..1_000).map(|number| (format!("field-{number}"), json!({"type": "string"})));
        let strange =
            [("a".repeat(LONGEST + 1), json!({"type": "string"})), ("b".to_owned(), json!({"type": "x"}))];
        let properties: serde_json::Map<_, _> = fields.chain(strange).collect();
        let documents = wrong_documents(&json!({"properties": properties}), None);
        let of_fields = documents.iter().filter(|(what, _, _)| what.starts_with("a wrong type"));
        assert_eq!(of_fields.clone().count(), FIELDS - 1, "one of the first has a type that is none");
        assert!(of_fields.clone().all(|(what, _, _)| what.len() < 200));
    }

    #[test]
    fn what_a_schema_welcomes_is_no_mistake() {
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
