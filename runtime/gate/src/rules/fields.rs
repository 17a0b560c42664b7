//! The fields of queries and bodies that name operations and pages. Pure. A text is read once for all names that any rule
//! asks for, since a body may be megabytes and a provider may have a thousand rules.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use url::form_urlencoded;

use super::{Place, Rule};

/// The longest name of an operation that is compared with those of rules, in bytes. Real ones have some 50.
const MAX_OPERATION: usize = 1 << 10;

/// The names of the fields that rules ask for.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    query: Vec<String>,
    form: Vec<String>,
    json: Vec<String>,
}

impl Wanted {
    pub(super) fn of(rules: &[Rule]) -> Self {
        let mut wanted = Self::default();
        let operations = rules.iter().filter_map(|rule| Some(&rule.operation.as_ref()?.place));
        for place in operations.chain(rules.iter().filter_map(|rule| rule.page.as_ref())) {
            let (names, name) = match place {
                Place::Query(name) => (&mut wanted.query, name),
                Place::FormField(name) => (&mut wanted.form, name),
                Place::JsonField(name) => (&mut wanted.json, name),
                Place::Header(_) => continue,
            };
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        wanted
    }

    pub(super) fn in_query(&self, query: &str) -> Fields {
        Fields::of_form(query.as_bytes(), &self.query)
    }

    pub(super) fn in_form(&self, body: &[u8]) -> Fields {
        Fields::of_form(body, &self.form)
    }

    pub(super) fn in_json(&self, body: &[u8]) -> Fields {
        if body.is_empty() { Fields::default() } else { Fields::of_json(body, &self.json) }
    }
}

/// What a text says in the fields that rules ask for.
#[derive(Debug, Default)]
pub(super) struct Fields {
    found: HashMap<String, Option<String>>,
    /// It can't be read, so it might say anything.
    is_broken: bool,
}

impl Fields {
    /// The value of a field, if the text has it once and it is a short text. It can't be known which of two the cloud would
    /// use.
    pub(super) fn only(&self, name: &str) -> Option<&str> {
        if self.is_broken { None } else { self.found.get(name)?.as_deref() }
    }

    /// Whether the text may have this field.
    pub(super) fn has(&self, name: &str) -> bool {
        self.is_broken || self.found.contains_key(name)
    }

    fn of_form(encoded: &[u8], wanted: &[String]) -> Self {
        let mut fields = Self::default();
        if wanted.is_empty() {
            return fields;
        }
        for (name, value) in form_urlencoded::parse(encoded) {
            if wanted.iter().any(|wanted| *wanted == name) {
                fields.add(name.into_owned(), short(&value));
            }
        }
        fields
    }

    fn of_json(body: &[u8], wanted: &[String]) -> Self {
        let mut fields = Self::default();
        let mut reader = serde_json::Deserializer::from_slice(body);
        let read = reader.deserialize_map(Object { wanted, fields: &mut fields });
        fields.is_broken = read.and_then(|()| reader.end()).is_err();
        fields
    }

    fn add(&mut self, name: String, value: Option<String>) {
        let is_first = !self.found.contains_key(&name);
        self.found.insert(name, value.filter(|_| is_first));
    }
}

/// The value of a field or header, unless it is too long for the name of an operation.
pub(super) fn short(value: &str) -> Option<String> {
    (value.len() <= MAX_OPERATION).then(|| value.to_owned())
}

struct Object<'a> {
    wanted: &'a [String],
    fields: &'a mut Fields,
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if self.wanted.contains(&name) {
                let Text(value) = map.next_value()?;
                self.fields.add(name, value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// A value, if it is a short text.
struct Text(Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Self)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(short(value))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_longer_than_that_of_any_operation_is_none() {
        let wanted = ["a".to_owned()];
        for (length, expected) in [(MAX_OPERATION, true), (MAX_OPERATION + 1, false)] {
            let value = "x".repeat(length);
            let (form, json) = (format!("a={value}"), format!("{{\"a\": \"{value}\"}}"));
            for fields in
                [Fields::of_form(form.as_bytes(), &wanted), Fields::of_json(json.as_bytes(), &wanted)]
            {
                assert_eq!((fields.only("a").is_some(), fields.has("a")), (expected, true), "{length}");
            }
        }
    }

    proptest! {
        /// As reading the text for one field alone.
        #[test]
        fn reading_for_many_fields_finds_the_same_as_for_one(
            pairs in proptest::collection::vec(("[ab]{1,2}", prop_oneof!["\"[a-c]{0,2}\"", "[0-9]", "\\[1\\]", "null"]), 0..6),
        ) {
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
            let body = format!("{{{}}}", pairs.join(", "));
            let wanted = ["a", "b", "ab", "c"].map(str::to_owned);
            let all = Fields::of_json(body.as_bytes(), &wanted);
            for name in &wanted {
                let one = Fields::of_json(body.as_bytes(), std::slice::from_ref(name));
                prop_assert_eq!((all.only(name), all.has(name)), (one.only(name), one.has(name)), "{}", body);
            }
        }
    }
}
