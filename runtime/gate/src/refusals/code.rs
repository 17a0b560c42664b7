//! Finds the error code in the beginning of a body. The rest may be missing, so what comes before the cut counts. Pure.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The text or whole number at a path of a JSON text: names and positions, separated by dots.
pub(super) fn in_json(body: &[u8], path: &str) -> Option<String> {
    // Some servers begin with a byte order mark.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let mut found = None;
    let at = At { path: Some(path), found: &mut found };
    let _cut_or_broken = at.deserialize(&mut serde_json::Deserializer::from_slice(body));
    found
}

/// Takes the value at a path below here; without a path this value.
struct At<'a> {
    path: Option<&'a str>,
    found: &'a mut Option<String>,
}

/// The next name or position of a path, and the path below it.
fn step(path: Option<&str>) -> Option<(&str, Option<&str>)> {
    let path = path?;
    Some(path.split_once('.').map_or((path, None), |(next, rest)| (next, Some(rest))))
}

impl At<'_> {
    fn take(self, value: &impl ToString) {
        if self.path.is_none() && self.found.is_none() {
            *self.found = Some(value.to_string());
        }
    }
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.take(&value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.take(&value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.take(&value);
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let (name, below) = step(self.path).map_or((None, None), |(name, below)| (Some(name), below));
        while let Some(is_next) = fields.next_key_seed(NameIs(name))? {
            if is_next {
                fields.next_value_seed(At { path: below, found: &mut *self.found })?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let wanted =
            step(self.path).and_then(|(position, below)| Some((position.parse::<usize>().ok()?, below)));
        for position in 0.. {
            let is_over = match wanted {
                Some((wanted, below)) if wanted == position => {
                    items.next_element_seed(At { path: below, found: &mut *self.found })?.is_none()
                }
                _ => items.next_element::<IgnoredAny>()?.is_none(),
            };
            if is_over {
                break;
            }
        }
        Ok(())
    }
}

/// Reads whether a name is this one.
struct NameIs<'a>(Option<&'a str>);

impl<'de> DeserializeSeed<'de> for NameIs<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<bool, D::Error> {
        let name = Cow::<'de, str>::deserialize(name)?;
        Ok(self.0 == Some(&*name))
    }
}

/// Whether a text can be the name of an element.
pub(super) fn is_element_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "<>/&'\"=!?".contains(c))
}

/// The text of the first element of this name that has one, without entities undone: a code has none.
pub(super) fn in_xml<'a>(body: &'a [u8], element: &str) -> Option<&'a str> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        // It may be cut in the middle of a letter.
        Err(error) => std::str::from_utf8(body.get(..error.valid_up_to())?).ok()?,
    };
    let mut left = text;
    while let Some((_, after)) = left.split_once('<') {
        left = if let Some(comment) = after.strip_prefix("!--") {
            comment.split_once("-->")?.1
        } else if let Some(data) = after.strip_prefix("![CDATA[") {
            data.split_once("]]>")?.1
        } else {
            let (tag, rest) = after.split_at_checked(tag_end(after)?)?;
            let rest = rest.strip_prefix('>')?;
            if is_named(tag, element) && !tag.ends_with('/') {
                return content(rest);
            }
            rest
        };
    }
    None
}

/// Where a tag ends: at the first `>` outside of quotes.
fn tag_end(tag: &str) -> Option<usize> {
    let mut quote = None;
    tag.char_indices().find_map(|(at, letter)| {
        match quote {
            Some(open) if open == letter => quote = None,
            None if letter == '>' => return Some(at),
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            _ => {}
        }
        None
    })
}

fn is_named(tag: &str, element: &str) -> bool {
    let name = tag.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or_default();
    let local = name.rsplit(':').next().unwrap_or_default();
    name == element || local == element
}

/// The text up to the next tag.
fn content(rest: &str) -> Option<&str> {
    match rest.trim_start().strip_prefix("<![CDATA[") {
        Some(data) => data.split_once("]]>").map(|(text, _)| text.trim()),
        None => rest.split_once('<').map(|(text, _)| text.trim()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_in_json_is_found_by_names_and_positions() {
        let rows = [
            (r#"{"code": "a"}"#, "code", Some("a")),
            (r#"{"error": {"code": "a"}}"#, "error.code", Some("a")),
            (
                r#"{"error": {"errors": [{"reason": "a"}, {"reason": "b"}]}}"#,
                "error.errors.0.reason",
                Some("a"),
            ),
            (
                r#"{"error": {"errors": [{"reason": "a"}, {"reason": "b"}]}}"#,
                "error.errors.1.reason",
                Some("b"),
            ),
            (r#"[{"code": "a"}]"#, "0.code", Some("a")),
            (r#"{"0": "a"}"#, "0", Some("a")),
            (r#"{"errors": [{"code": 10000}]}"#, "errors.0.code", Some("10000")),
            (r#"{"code": -1}"#, "code", Some("-1")),
            (r#"{"code": "a\u0062\"c"}"#, "code", Some("ab\"c")),
            (r#"{"c\u006fde": "a"}"#, "code", Some("a")),
            (r#"{"code": "a", "code": "b"}"#, "code", Some("a")),
            (r#"{"x": {"code": "a"}, "y": [1, {"code": "b"}], "code": "c"}"#, "code", Some("c")),
            ("\u{feff}{\"code\": \"a\"}", "code", Some("a")),
            // Cut off after the code, and before its end.
            (r#"{"error": {"code": "a"}, "message": "abc"#, "error.code", Some("a")),
            (r#"{"error": {"code": "a"#, "error.code", None),
            (r#"{"error": "code"}"#, "error.code", None),
            (r#"{"error": {"code": {"code": "a"}}}"#, "error.code", None),
            (r#"{"error": {"code": ["a"]}}"#, "error.code", None),
            (r#"{"code": null}"#, "code", None),
            (r#"{"code": 1.5}"#, "code", None),
            (r#"{"errors": []}"#, "errors.0", None),
            (r#"["a"]"#, "code", None),
            (r#""a""#, "code", None),
            ("", "code", None),
            ("<code>a</code>", "code", None),
        ];
        for (body, path, expected) in rows {
            assert_eq!(in_json(body.as_bytes(), path).as_deref(), expected, "{body} {path}");
        }
    }

    #[test]
    fn a_code_in_xml_is_the_text_of_the_first_element_of_its_name() {
        let rows = [
            ("<Code>a</Code>", Some("a")),
            ("<?xml version=\"1.0\"?><E><Error><Code>\n a </Code></Error></E>", Some("a")),
            ("<e:Code xmlns:e='x>y'>a</e:Code>", Some("a")),
            ("<Code lang=\"a>b\" >a</Code>", Some("a")),
            ("<Codes>b</Codes><Code>a</Code>", Some("a")),
            ("<!-- <Code>b</Code> --><Code>a</Code>", Some("a")),
            ("<x><![CDATA[<Code>b</Code>]]></x><Code>a</Code>", Some("a")),
            ("<Code><![CDATA[a]]></Code>", Some("a")),
            ("<Code/><Code>a</Code>", Some("a")),
            ("<Code>a</Code><Code>b</Code>", Some("a")),
            ("<Code>a</Code><cut", Some("a")),
            ("<Code>a", None),
            ("<Code", None),
            ("<code>a</code>", None),
            ("</Code>a<", None),
            ("Code", None),
            ("", None),
        ];
        for (body, expected) in rows {
            assert_eq!(in_xml(body.as_bytes(), "Code"), expected, "{body}");
        }
        assert_eq!(in_xml("<b:Code>b</b:Code><a:Code>a</a:Code>".as_bytes(), "a:Code"), Some("a"));
        assert_eq!(in_xml(b"<Code>a</Code>\xc3", "Code"), Some("a"), "cut in a letter");
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_are_read_without_panic(body in r#"[<>!\-\[\]CDATAode{}":,.0/'é]{0,60}"#, path in "[code.0]{0,8}") {
            let _found = (in_json(body.as_bytes(), &path), in_xml(body.as_bytes(), "Code"));
        }
    }
}
