//! Names the kinds of YAML values in messages about a document.

use serde_json::Value;

/// What a value is, for a reader of YAML.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "fields",
    }
}
