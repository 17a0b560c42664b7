//! Objects of JSON whose members stay text until they are read. A document of megabytes is split into members in milliseconds, and
//! what a provider doesn't know survives when it is written.

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::Error;

/// An object of JSON whose members stay text until they are read, in their order.
///
/// ```
/// use pileus_guest::http::Raw;
///
/// let mut rule: Raw = serde_json::from_str(r#"{"name": "web", "port": 80, "made": {"by": ["x"]}}"#)?;
/// assert_eq!(rule.get::<u16>("port")?, Some(80));
/// rule.set("port", &443)?;
/// assert_eq!(serde_json::to_string(&rule)?, r#"{"name":"web","port":443,"made":{"by": ["x"]}}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Raw(Vec<(Box<str>, Box<RawValue>)>);

impl Raw {
    /// The value of a member. None without such a member, or if it is null.
    ///
    /// # Errors
    ///
    /// `broken` if the value doesn't match the type.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let Some((_, text)) = self.0.iter().find(|(member, _)| **member == *name) else { return Ok(None) };
        serde_json::from_str(text.get())
            .map_err(|error| Error::broken(format!("the cloud sent an unexpected `{name}`: {error}")))
    }

    /// The same, and removes the member, so that its text takes no memory beside the value.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Error> {
        let value = self.get(name)?;
        self.remove(name);
        Ok(value)
    }

    /// Sets the value of a member, in its place or after the others.
    ///
    /// # Errors
    ///
    /// `broken` if the value can't be written as JSON.
    pub fn set(&mut self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let text = to_raw_value(value)
            .map_err(|error| Error::broken(format!("`{name}` can't be written as JSON: {error}")))?;
        match self.0.iter_mut().find(|(member, _)| **member == *name) {
            Some((_, place)) => *place = text,
            None => self.0.push((name.into(), text)),
        }
        Ok(())
    }

    /// Removes a member, for example one that only the cloud decides.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(member, _)| **member != *name);
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Raw(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, text) in &self.0 {
            map.serialize_entry(name, text).map_err(S::Error::custom)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_changed_and_removed_and_others_keep_their_text() {
        let text = r#"{"b":1.50,"a":{"x": [1e3]},"etag":"e","n":null}"#;
        let mut raw: Raw = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&raw).unwrap(), text);
        assert_eq!(raw.get::<Vec<u8>>("c"), Ok(None));
        assert_eq!(raw.get::<u8>("n"), Ok(None));
        assert!(raw.get::<u8>("etag").unwrap_err().message.contains("`etag`"));
        assert_eq!(raw.take::<String>("etag"), Ok(Some("e".to_owned())));
        raw.set("b", &2).unwrap();
        raw.set("c", &["d"]).unwrap();
        raw.remove("n");
        assert_eq!(serde_json::to_string(&raw).unwrap(), r#"{"b":2,"a":{"x": [1e3]},"c":["d"]}"#);
        assert!(serde_json::from_str::<Raw>("[1]").is_err());
    }
}
