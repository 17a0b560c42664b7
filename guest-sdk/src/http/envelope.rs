//! Reads the envelopes in which clouds put resources: `{"server": {…}}` around one, `{"servers": […], "meta": {…}}` around
//! a page of a list. The items are read directly into their type, without a copy of the page in between.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// A page of a list: its items, and what is at the path of the next page's place.
pub(super) struct PageBody<T> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<String>,
}

/// Where a page has its items and the place of the next one. Without a field for the items, the body is a list.
#[derive(Clone, Copy)]
pub(super) struct PageLayout<'a> {
    pub(super) items: Option<&'a str>,
    /// A path of names, separated by dots.
    pub(super) next: Option<&'a str>,
}

impl PageLayout<'_> {
    pub(super) fn read<T: DeserializeOwned>(self, bytes: &[u8]) -> serde_json::Result<PageBody<T>> {
        if self.items.is_none() {
            return Ok(PageBody { items: serde_json::from_slice(bytes)?, next: None });
        }
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let page = PageSeed(self, PhantomData).deserialize(&mut reader)?;
        reader.end().map(|()| page)
    }
}

/// Reads one resource, in the field of this name or without an envelope.
pub(super) fn read_one<T: DeserializeOwned>(bytes: &[u8], field: Option<&str>) -> serde_json::Result<T> {
    let Some(field) = field else { return serde_json::from_slice(bytes) };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let one = FieldSeed(field, PhantomData).deserialize(&mut reader)?;
    reader.end().map(|()| one)
}

struct PageSeed<'a, T>(PageLayout<'a>, PhantomData<T>);

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for PageSeed<'_, T> {
    type Value = PageBody<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PageBody<T>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for PageSeed<'_, T> {
    type Value = PageBody<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PageBody<T>, A::Error> {
        let PageLayout { items: field, next: path } = self.0;
        let field = field.unwrap_or_default();
        let mut path = path.into_iter().flat_map(|path| path.split('.'));
        let first = path.next();
        let (mut items, mut next) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            if key == field {
                // Some servers write an empty list as null.
                items = Some(map.next_value::<Option<Vec<T>>>()?.unwrap_or_default());
            } else if Some(&*key) == first {
                next = Some(map.next_value::<Value>()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let items = items.ok_or_else(|| A::Error::custom(format!("missing field `{field}`")))?;
        let next = next.and_then(|next| path.try_fold(next, |value, name| value.get(name).cloned()));
        Ok(PageBody { items, next: next.and_then(text).filter(|next| !next.is_empty()) })
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

struct FieldSeed<'a, T>(&'a str, PhantomData<T>);

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for FieldSeed<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for FieldSeed<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the field `{}`", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut one = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.0 {
                one = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        one.ok_or_else(|| A::Error::custom(format!("missing field `{}`", self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_items_and_the_place_of_the_next() {
        let layout = |items, next| PageLayout { items, next };
        let numbered = layout(Some("servers"), Some("meta.pagination.next_page"));
        let flat = layout(Some("servers"), Some("next"));
        let rows = [
            (layout(None, None), "[1, 2]", Some((vec![1, 2], None))),
            (flat, r#"{"x": {}, "servers": [1], "next": "a"}"#, Some((vec![1], Some("a")))),
            (flat, r#"{"servers": [1], "next": ""}"#, Some((vec![1], None))),
            (flat, r#"{"servers": null, "next": null}"#, Some((vec![], None))),
            (flat, r#"{"server": [1]}"#, None),
            (flat, r#"{"servers": [1]} x"#, None),
            (flat, "[1]", None),
            (
                numbered,
                r#"{"meta": {"pagination": {"next_page": 2}}, "servers": [1]}"#,
                Some((vec![1], Some("2"))),
            ),
            (
                numbered,
                r#"{"servers": [1], "meta": {"pagination": {"next_page": null}}}"#,
                Some((vec![1], None)),
            ),
            (numbered, r#"{"servers": [1], "meta": {}}"#, Some((vec![1], None))),
        ];
        for (layout, body, expected) in rows {
            let page = layout.read::<u32>(body.as_bytes()).ok();
            let page = page.map(|page| (page.items, page.next));
            assert_eq!(page, expected.map(|(items, next)| (items, next.map(str::to_owned))), "{body}");
        }
    }

    #[test]
    fn one_resource_is_read_with_or_without_an_envelope() {
        let rows = [
            (None, "7", Some(7)),
            (Some("server"), r#"{"action": {}, "server": 7}"#, Some(7)),
            (Some("server"), r#"{"servers": 7}"#, None),
            (Some("server"), "7", None),
        ];
        for (field, body, expected) in rows {
            assert_eq!(read_one::<u32>(body.as_bytes(), field).ok(), expected, "{body}");
        }
    }
}
