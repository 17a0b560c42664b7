//! Writes values as YAML with comments, which no serializer keeps. Pure.
//!
//! Every text that some reader of YAML could take for something else is quoted as JSON, which all of them read in the same way:
//! in Kubernetes' YAML 1.1 `off` is a boolean.

use pileus_host::sanitize;
use serde_json::{Map, Value};

/// The longest line of a comment, in characters, where its words allow it.
const LINE: usize = 110;

/// A YAML document in the making.
#[derive(Default)]
pub(super) struct Yaml {
    text: String,
}

impl Yaml {
    /// The document.
    pub(super) fn text(self) -> String {
        self.text
    }

    /// Adds a comment. Third-party text in it can't end it.
    pub(super) fn comment(&mut self, indent: usize, text: &str) {
        let (mut line, text) = (String::new(), sanitize(text));
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + word.chars().count() >= LINE {
                self.line(indent, &format!("# {line}"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(indent, &format!("# {line}"));
    }

    /// Adds a line.
    pub(super) fn line(&mut self, indent: usize, text: &str) {
        self.text.extend([&" ".repeat(indent), text, "\n"]);
    }

    /// Adds a field with its value.
    pub(super) fn field(&mut self, indent: usize, name: &str, value: &Value) {
        let name = scalar(name);
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                self.line(indent, &format!("{name}:"));
                self.fields(indent + 2, fields);
            }
            Value::Array(items) if !items.is_empty() && !items.iter().all(is_short) => {
                self.line(indent, &format!("{name}:"));
                for item in items {
                    self.item(indent + 2, item);
                }
            }
            value => self.line(indent, &format!("{name}: {}", flow(value))),
        }
    }

    /// Adds an item of a list.
    pub(super) fn item(&mut self, indent: usize, value: &Value) {
        let Value::Object(fields) = value else { return self.line(indent, &format!("- {}", flow(value))) };
        if fields.is_empty() {
            return self.line(indent, "- {}");
        }
        let start = self.text.len();
        self.fields(indent + 2, fields);
        // The first field stands behind the dash.
        self.text.replace_range(start + indent..=start + indent, "-");
    }

    fn fields(&mut self, indent: usize, fields: &Map<String, Value>) {
        for (name, value) in fields {
            self.field(indent, name, value);
        }
    }
}

/// Whether a value fits into a list on one line.
const fn is_short(value: &Value) -> bool {
    !matches!(value, Value::Object(_) | Value::Array(_))
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{}: {}", scalar(name), flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// A text, plain where every reader takes it for a text.
pub(super) fn scalar(text: &str) -> String {
    const OTHERS: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan"];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "./_-".contains(c);
    let begins_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let is_other = OTHERS.iter().any(|other| text.eq_ignore_ascii_case(other));
    if begins_plain && text.chars().all(is_plain) && !is_other {
        return text.to_owned();
    }
    // Some readers take these for the end of a line, and terminals act on the others.
    let escape = |c: char| match c {
        c if pileus_host::is_control(c) && c >= ' ' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    Value::String(text.to_owned()).to_string().chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn written(value: &Value) -> String {
        let mut yaml = Yaml::default();
        yaml.field(0, "it", value);
        yaml.text()
    }

    #[test]
    fn values_are_written_in_blocks_and_short_lists_on_a_line() {
        let value = json!({
            "empty": {}, "list": ["GET", "off", "1e3", "10.0.0.0/8", true, 1.5, null],
            "objects": [{"a": 1, "b": {"c": []}}, {}, "x"], "two words": "a: b # c",
        });
        let expected = r#"it:
  empty: {}
  list: [GET, "off", "1e3", "10.0.0.0/8", true, 1.5, null]
  objects:
    - a: 1
      b:
        c: []
    - {}
    - x
  "two words": "a: b # c"
"#;
        assert_eq!(written(&value), expected);
    }

    #[test]
    fn a_comment_is_wrapped_and_no_text_ends_it() {
        let mut yaml = Yaml::default();
        yaml.comment(2, "a\nkind: \u{85}b\u{2028}c");
        yaml.comment(0, &"word ".repeat(40));
        let text = yaml.text();
        assert!(text.starts_with("  # a kind: b c\n# word"), "{text}");
        assert!(
            text.lines().count() == 3 && text.lines().all(|line| line.trim_start().starts_with("# ")),
            "{text}"
        );
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            Just("no".to_owned()),
            Just("~".to_owned()),
            Just("0x1f".to_owned()),
            Just("12:30:00".to_owned()),
            Just("a\u{85}\u{2028}\tb\n- c".to_owned()),
            "[ -~]{0,8}",
            ".{0,8}",
        ];
        let leaf = prop_oneof![
            text.clone().prop_map(Value::String),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(3, 24, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map(text.clone(), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same_value(value in any_value()) {
            let text = written(&value);
            let read: Value = serde_saphyr::from_str(&text).unwrap();
            prop_assert_eq!(&read["it"], &value, "{}", text);
        }
    }
}
