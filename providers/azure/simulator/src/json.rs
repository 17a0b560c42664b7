//! Short forms for reading and building JSON documents, which is what all resources are. Pure.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// What a pointer such as `/properties/subnets` leads to; null where that is missing.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&NULL)
}

/// The text at a pointer; empty where that is not a string.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).as_str().unwrap_or_default()
}

/// The elements of the array at a pointer.
pub(crate) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    at(value, pointer).as_array().map_or(&[], Vec::as_slice)
}

/// The fields of an object. Anything else becomes an empty object first.
pub(crate) fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}

/// Sets a field of an object.
pub(crate) fn set(value: &mut Value, name: &str, new: impl Into<Value>) {
    fields(value).insert(name.to_owned(), new.into());
}

/// Sets a field that is missing or null.
pub(crate) fn default(value: &mut Value, name: &str, new: impl Into<Value>) {
    let fields = fields(value);
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), new.into());
    }
}

/// The field of an object that is itself an object; it is created where it is missing.
pub(crate) fn object<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    fields(value).entry(name.to_owned()).or_insert_with(|| Value::Object(Map::new()))
}

/// The elements of an array field, to change them.
pub(crate) fn items_mut<'a>(value: &'a mut Value, pointer: &str) -> &'a mut [Value] {
    value.pointer_mut(pointer).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}
