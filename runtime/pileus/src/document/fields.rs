//! Reads a tree of values field by field and collects all problems, where serde would stop at the first.

use std::collections::BTreeSet;

use pileus_gate::Problem;
use serde_json::{Map, Value};

use super::value_kind::kind;

/// The fields of one object. After reading the known fields, the caller calls [`Fields::end`], which reports the others.
pub(super) struct Fields<'p> {
    path: String,
    values: Map<String, Value>,
    known: BTreeSet<&'static str>,
    problems: &'p mut Vec<Problem>,
}

impl<'p> Fields<'p> {
    /// The fields of a value, which must be an object; a missing value has none.
    pub(super) fn of(path: &str, value: Option<&Value>, problems: &'p mut Vec<Problem>) -> Self {
        let values = match value {
            Some(Value::Object(values)) => values.clone(),
            None => Map::new(),
            Some(other) => {
                problems.push(Problem::at(path, format!("expected fields, found {}", kind(other))));
                Map::new()
            }
        };
        Self { path: path.to_owned(), values, known: BTreeSet::new(), problems }
    }

    /// Reads a nested object. If it is missing, its required fields are reported.
    pub(super) fn object(&mut self, name: &'static str) -> Fields<'_> {
        let (path, value) = self.take(name);
        Fields::of(&path, value.as_ref(), self.problems)
    }

    /// Reads a list of objects with `read`, which doesn't call `end`.
    pub(super) fn objects<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&mut Fields<'_>) -> T,
    ) -> Vec<T> {
        let (path, items) = self.items(name);
        let each = items.iter().enumerate();
        each.filter_map(|(index, item)| self.item(&format!("{path}[{index}]"), item, &mut read)).collect()
    }

    /// Reads a required object; `expected` describes it in the problem about another value.
    pub(super) fn object_of<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&mut Fields<'_>) -> Option<T>,
    ) -> Option<T> {
        let (path, value) = self.take(name);
        match value {
            None => self.problem(path, "required field is missing"),
            Some(value) if !value.is_object() => {
                self.problem(path, format!("expected {expected}; found {}", kind(&value)))
            }
            Some(value) => {
                let mut fields = Fields::of(&path, Some(&value), self.problems);
                let result = read(&mut fields);
                fields.end();
                result
            }
        }
    }

    /// Reads a map of objects with `read`, which doesn't call `end`.
    pub(super) fn named<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&str, &mut Fields<'_>) -> T,
    ) -> Vec<T> {
        let (path, items) = self.map(name);
        let each = items.iter();
        each.filter_map(|(key, item)| {
            self.item(&format!("{path}.{key}"), item, &mut |fields: &mut Fields<'_>| read(key, fields))
        })
        .collect()
    }

    /// Reads a map of strings. `parse` gets the key and the string.
    pub(super) fn texts<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str, &str) -> Result<T, String>,
    ) -> Vec<T> {
        let (path, items) = self.map(name);
        let each = items.iter();
        each.filter_map(|(key, item)| self.text(format!("{path}.{key}"), item, &|text| parse(key, text)))
            .collect()
    }

    fn item<T>(
        &mut self,
        path: &str,
        item: &Value,
        read: &mut impl FnMut(&mut Fields<'_>) -> T,
    ) -> Option<T> {
        if !item.is_object() {
            return self.problem(path.to_owned(), format!("expected fields, found {}", kind(item)));
        }
        let mut fields = Fields::of(path, Some(item), self.problems);
        let result = read(&mut fields);
        fields.end();
        Some(result)
    }

    /// Reads a required number.
    pub(super) fn number<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let (path, value) = self.take(name);
        let Some(value) = value else { return self.problem(path, "required field is missing") };
        read(&value).or_else(|| self.problem(path, format!("expected {expected}, found {value}")))
    }

    /// How many problems the whole document has so far.
    pub(super) fn problems(&self) -> usize {
        self.problems.len()
    }

    /// Adds problems that have paths already.
    pub(super) fn report(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
    }

    /// Whether a field is present and not null.
    pub(super) fn has(&mut self, name: &'static str) -> bool {
        self.take(name).1.is_some()
    }

    /// Adds a problem with the object as a whole.
    pub(super) fn wrong(&mut self, message: impl Into<String>) {
        self.problems.push(Problem::at(self.path.clone(), message));
    }

    /// Adds a problem with a field, which may be a nested one.
    pub(super) fn wrong_at(&mut self, name: &str, message: impl Into<String>) {
        self.problems.push(Problem::at(self.path_of(name), message));
    }

    /// Adds a problem with the object as a whole, and returns none.
    pub(super) fn none<T>(&mut self, message: impl Into<String>) -> Option<T> {
        self.wrong(message);
        None
    }

    /// Reads a required string.
    pub(super) fn required<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (path, value) = self.take(name);
        match value {
            None => self.problem(path, "required field is missing"),
            Some(value) => self.text(path, &value, &parse),
        }
    }

    /// Reads an optional string.
    pub(super) fn optional<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (path, value) = self.take(name);
        self.text(path, &value?, &parse)
    }

    /// Reads a required string that has only one valid value.
    pub(super) fn constant(&mut self, name: &'static str, expected: &str) {
        let wrong = |text: &str| Err(format!("unknown value {text:?}; expected {expected:?}"));
        self.required(name, |text| if text == expected { Ok(()) } else { wrong(text) });
    }

    /// Reads a list of strings, which defaults to `default`. An empty list stays empty.
    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        default: &[&str],
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let (path, items) = if self.values.contains_key(name) {
            self.items(name)
        } else {
            (self.take(name).0, default.iter().map(|text| Value::from(*text)).collect())
        };
        let each = items.iter().enumerate();
        each.filter_map(|(index, item)| self.text(format!("{path}[{index}]"), item, &parse)).collect()
    }

    /// Reads a boolean.
    pub(super) fn boolean(&mut self, name: &'static str, default: bool) -> bool {
        let (path, value) = self.take(name);
        match value {
            None => default,
            Some(Value::Bool(value)) => value,
            Some(other) => {
                let found = format!("expected true or false, found {}", kind(&other));
                self.problem(path, found).unwrap_or(default)
            }
        }
    }

    /// Reads a TCP port.
    pub(super) fn port(&mut self, name: &'static str, default: u16) -> u16 {
        let (path, value) = self.take(name);
        let Some(value) = value else { return default };
        let port = value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
        port.or_else(|| self.problem(path, format!("expected a port from 1 to 65535, found {value}")))
            .unwrap_or(default)
    }

    /// Reads an object without interpreting it, as JSON text; `{}` if it is missing.
    pub(super) fn json_object(&mut self, name: &'static str) -> String {
        Value::Object(self.map(name).1).to_string()
    }

    /// Reports unknown fields.
    pub(super) fn end(&mut self) {
        let unknown: Vec<_> =
            self.values.keys().filter(|name| !self.known.contains(name.as_str())).cloned().collect();
        let known = self.known.iter().copied().collect::<Vec<_>>().join(", ");
        for name in unknown {
            let path = self.path_of(&name);
            self.problems.push(Problem::at(path, format!("unknown field; known fields are {known}")));
        }
    }

    fn map(&mut self, name: &'static str) -> (String, Map<String, Value>) {
        let (path, value) = self.take(name);
        let items = match value {
            None => Map::new(),
            Some(Value::Object(items)) => items,
            Some(other) => {
                let found = format!("expected fields, found {}", kind(&other));
                self.problem(path.clone(), found).unwrap_or_default()
            }
        };
        (path, items)
    }

    fn items(&mut self, name: &'static str) -> (String, Vec<Value>) {
        let (path, value) = self.take(name);
        match value {
            None => (path, Vec::new()),
            Some(Value::Array(items)) => (path, items),
            Some(other) => {
                let found = format!("expected a list, found {}", kind(&other));
                self.problems.push(Problem::at(path.clone(), found));
                (path, Vec::new())
            }
        }
    }

    fn text<T>(
        &mut self,
        path: String,
        value: &Value,
        parse: &impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        match value {
            Value::String(text) => match parse(text) {
                Ok(parsed) => Some(parsed),
                Err(problem) => self.problem(path, problem),
            },
            other => self.problem(path, format!("expected a string, found {}", kind(other))),
        }
    }

    /// The path and value of a field. A null field counts as missing.
    fn take(&mut self, name: &'static str) -> (String, Option<Value>) {
        self.known.insert(name);
        (self.path_of(name), self.values.get(name).filter(|value| !value.is_null()).cloned())
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn problem<T>(&mut self, path: String, message: impl Into<String>) -> Option<T> {
        self.problems.push(Problem::at(path, message));
        None
    }
}
