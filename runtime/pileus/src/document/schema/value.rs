//! Builds the parts of a schema: the subset of OpenAPI that the API server calls structural, with its rules in CEL. Every text
//! and every list has a bound, so that the API server can tell what a rule costs at most. Pure.

use serde_json::{Map, Value, json};

use super::{MAX_ADDRESSES, MAX_ITEMS, MAX_TEXT};

/// The durations of Go, as `cli::duration` reads them. The bounds are a rule.
const DURATION: &str = r"^\+?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// What a field can have.
#[derive(Debug, Clone)]
pub(super) struct Schema(Map<String, Value>);

impl Schema {
    fn new(kind: &str, description: &str) -> Self {
        Self(Map::new()).with("type", kind).with("description", description)
    }

    /// An object, whose fields follow by [`Schema::field`] and [`Schema::required`].
    pub(super) fn object(description: &str) -> Self {
        Self::new("object", description).with("properties", json!({}))
    }

    /// An object with any fields.
    pub(super) fn any_object(description: &str) -> Self {
        Self::new("object", description).with("x-kubernetes-preserve-unknown-fields", true)
    }

    /// An object with values by name.
    pub(super) fn map(description: &str, item: Self) -> Self {
        Self::new("object", description).with("additionalProperties", item.0).with("maxProperties", MAX_ITEMS)
    }

    pub(super) fn list(description: &str, item: Self) -> Self {
        Self::new("array", description).with("items", item.0).with("maxItems", MAX_ITEMS)
    }

    /// A text that is not blank.
    pub(super) fn text(description: &str) -> Self {
        Self::any_text(description).matching(r"\S")
    }

    /// A text that may be blank.
    pub(super) fn any_text(description: &str) -> Self {
        Self::new("string", description).longest(MAX_TEXT)
    }

    pub(super) fn one_of(description: &str, values: &[&str]) -> Self {
        Self::new("string", description).with("enum", values)
    }

    pub(super) fn boolean(description: &str) -> Self {
        Self::new("boolean", description)
    }

    /// A whole number from `least` to `most`.
    pub(super) fn whole(description: &str, least: u64, most: u64) -> Self {
        let bounded = Self::new("integer", description).with("format", "int64");
        bounded.with("minimum", least).with("maximum", most)
    }

    /// A number from `least` to `most`.
    pub(super) fn number(description: &str, least: f64, most: f64) -> Self {
        // The API server rounds a bound where a number is written without a fraction, so that it is a rule as well.
        let rule = format!("self >= {least:?} && self <= {most:?}");
        let bounded = Self::new("number", description).with("minimum", least).with("maximum", most);
        bounded.rule(&rule, &format!("choose a number from {least} to {most}"))
    }

    /// A duration from `least` to `most`, as in `1m30s`.
    pub(super) fn duration(description: &str, least: &str, most: &str) -> Self {
        let rule = format!("duration(self) >= duration('{least}') && duration(self) <= duration('{most}')");
        let message = format!("choose a time from {least} to {most}");
        Self::new("string", description).longest(32).matching(DURATION).rule(&rule, &message)
    }

    /// A quantity of bytes, which may be a number.
    pub(super) fn quantity(description: &str) -> Self {
        Self(Map::new()).with("description", description).with("x-kubernetes-int-or-string", true).longest(32)
    }

    /// A time in UTC.
    pub(super) fn time(description: &str) -> Self {
        Self::new("string", description)
            .longest(20)
            .matching(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")
            .date_time()
    }

    /// A file of the folder that the operator gives by a flag.
    pub(super) fn file(description: &str) -> Self {
        Self::text(description).rule(
            "!self.matches('(^|/)[.][.](/|$)')",
            "the path must not lead out of the folder of --provider-files; leave out ..",
        )
    }

    /// Ranges of addresses.
    pub(super) fn addresses(description: &str) -> Self {
        let item = Self::text("A range, as in 10.0.0.0/8, or an address.").longest(64);
        let item = item.rule("isCIDR(self) || isIP(self)", "write it as in 10.0.0.0/8");
        Self::list(description, item).at_most(MAX_ADDRESSES)
    }

    pub(super) fn field(mut self, name: &str, field: Self) -> Self {
        if let Some(Value::Object(fields)) = self.0.get_mut("properties") {
            fields.insert(name.to_owned(), Value::Object(field.0));
        }
        self
    }

    pub(super) fn required(mut self, name: &str, field: Self) -> Self {
        if let Value::Array(names) = self.0.entry("required").or_insert_with(|| json!([])) {
            names.push(json!(name));
        }
        self.field(name, field)
    }

    /// Adds a rule in CEL, with what to do where it does not hold.
    pub(super) fn rule(self, rule: &str, message: &str) -> Self {
        self.validation(json!({"rule": rule, "message": message}))
    }

    /// As [`Schema::rule`], about one of the fields.
    pub(super) fn rule_of(self, field: &str, rule: &str, message: &str) -> Self {
        self.validation(json!({"rule": rule, "message": message, "fieldPath": format!(".{field}")}))
    }

    fn validation(mut self, validation: Value) -> Self {
        if let Value::Array(all) = self.0.entry("x-kubernetes-validations").or_insert_with(|| json!([])) {
            all.push(validation);
        }
        self
    }

    /// The value of a field that is left out.
    pub(super) fn default(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    /// An object that is left out has the fields that have values of their own. The API server checks the rules with these.
    pub(super) fn with_defaults(self) -> Self {
        let fields = self.0.get("properties").and_then(Value::as_object).into_iter().flatten();
        let defaults = fields.filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone())));
        let defaults: Map<_, _> = defaults.collect();
        self.default(defaults)
    }

    pub(super) fn matching(self, pattern: &str) -> Self {
        self.with("pattern", pattern)
    }

    /// The most characters.
    pub(super) fn longest(self, most: usize) -> Self {
        self.with("maxLength", most)
    }

    /// The most items of a list.
    pub(super) fn at_most(self, most: usize) -> Self {
        let name = if self.0.contains_key("items") { "maxItems" } else { "maxProperties" };
        self.with(name, most)
    }

    /// Each item of a list has its own value of this field.
    pub(super) fn by(self, key: &str) -> Self {
        self.with("x-kubernetes-list-type", "map").with("x-kubernetes-list-map-keys", json!([key]))
    }

    /// No item of a list is repeated.
    pub(super) fn set(self) -> Self {
        self.with("x-kubernetes-list-type", "set")
    }

    pub(super) fn date_time(self) -> Self {
        self.with("format", "date-time")
    }

    /// Null is a value.
    pub(super) fn nullable(self) -> Self {
        self.with("nullable", true)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }
}

impl From<Schema> for Value {
    fn from(Schema(fields): Schema) -> Self {
        Self::Object(fields)
    }
}
