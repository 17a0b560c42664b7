//! The keys of answers: all of a request that may decide its answer. The cache is of one provider and one identity, so
//! the answers of others are never near.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use crate::request::Request;
use crate::rules::{Classification, Page, Place};

/// The key of an answer or a list. A digest without collisions that can be computed, so that neither a provider nor a
/// user who names a resource in the cloud can make one answer pass for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(pub(crate) [u8; 32]);

/// The key of the answer to a request, and the list that it is a page of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) answer: Key,
    pub(crate) list: Option<List>,
}

/// A list, and whether it is its first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) key: Key,
    pub(crate) is_first: bool,
}

/// Headers that only describe a request: an equal request has other values.
pub(crate) const DESCRIBING: &[&str] = &[
    "cache-control",
    "pragma",
    "user-agent",
    "date",
    "traceparent",
    "tracestate",
    "x-request-id",
    "x-correlation-id",
    "x-ms-client-request-id",
    "x-ms-correlation-request-id",
    "x-ms-date",
    "x-amz-date",
    "x-amzn-trace-id",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "x-cloud-trace-context",
    "x-openstack-request-id",
];

impl Keys {
    /// The keys of a request with these headers and this body.
    pub(crate) fn of(
        request: &Request,
        headers: &HeaderMap,
        body: &[u8],
        classification: &Classification,
    ) -> Self {
        let query = request.query.as_deref();
        let mut answer = Digested::new("answer", request, classification.fold_case);
        answer.headers(headers, None);
        // An empty query differs from none.
        answer.part(if query.is_some() { "?" } else { "" });
        answer.part(query.unwrap_or_default());
        answer.part(body);
        let list = classification.page.as_deref().map(|Page { place, is_first }| {
            let mut list = Digested::new("list", request, classification.fold_case);
            list.list(query.unwrap_or_default(), headers, body, place);
            List { key: list.key(), is_first: *is_first }
        });
        Self { answer: answer.key(), list }
    }
}

struct Digested(Sha256);

impl Digested {
    fn new(what: &str, request: &Request, fold_case: bool) -> Self {
        let Request { method, tls, host, port, path, query: _ } = request;
        let mut digested = Self(Sha256::new());
        digested.part(what);
        digested.part(method.as_str());
        digested.part(if *tls { "https" } else { "http" });
        digested.part(host.to_string());
        digested.part(port.to_string());
        if fold_case {
            digested.part(path.to_ascii_lowercase());
        } else {
            digested.part(path);
        }
        digested
    }

    /// Each part with its length, so that no text can move from one part to the next unnoticed.
    fn part(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        self.0.update(part);
    }

    /// The order of headers with different names does not matter.
    fn headers(&mut self, headers: &HeaderMap, without: Option<&HeaderName>) {
        let mut lines: Vec<_> = headers
            .iter()
            .filter(|(name, _)| Some(*name) != without && !DESCRIBING.contains(&name.as_str()))
            .collect();
        lines.sort_by_key(|(name, _)| name.as_str());
        self.part(lines.len().to_string());
        for (name, value) in lines {
            self.part(name);
            self.part(value);
        }
    }

    /// Digests what all pages of a list have in common. Clouds write the address of the next page anew, so order and
    /// encoding of the parameters may differ from those of the first page.
    fn list(&mut self, query: &str, headers: &HeaderMap, body: &[u8], page: &Place) {
        let (mut in_query, mut in_header, mut in_form, mut in_json) = (None, None, None, None);
        match page {
            Place::Query(name) => in_query = Some(name),
            Place::Header(name) => in_header = Some(name),
            Place::FormField(name) => in_form = Some(name),
            Place::JsonField(name) => in_json = Some(name),
        }
        self.headers(headers, in_header);
        self.fields(query.as_bytes(), in_query);
        match (in_form, in_json) {
            (Some(name), _) => self.fields(body, Some(name)),
            (_, Some(name)) => self.json(body, name),
            _ => self.part(body),
        }
    }

    fn fields(&mut self, encoded: &[u8], without: Option<&String>) {
        let mut fields: Vec<_> = form_urlencoded::parse(encoded)
            .filter(|(name, _)| without.is_none_or(|without| name != without))
            .collect();
        fields.sort();
        self.part(fields.len().to_string());
        for (name, value) in fields {
            self.part(name.as_bytes());
            self.part(value.as_bytes());
        }
    }

    fn json(&mut self, body: &[u8], without: &str) {
        // A body that is not an object has no field to leave out. An empty body is an object without fields.
        let body = if body.is_empty() { b"{}" } else { body };
        match serde_json::from_slice::<BTreeMap<String, Value>>(body) {
            Ok(mut fields) => {
                fields.remove(without);
                for (name, value) in fields {
                    self.part(name);
                    self.part(value.to_string());
                }
            }
            Err(_) => self.part(body),
        }
    }

    fn key(self) -> Key {
        Key(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Method};
    use proptest::prelude::*;

    use super::*;
    use crate::effect::Effect;
    use crate::rules::Limits;

    fn classification(fold_case: bool, page: Option<Page>) -> Classification {
        let page = page.map(Box::new);
        Classification { effect: Effect::Read, limits: Limits::AllOfHost, cache_scope: None, fold_case, page }
    }

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    type Asked<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);

    fn keys((method, uri, lines, body): Asked<'_>, classification: &Classification) -> Keys {
        let request = Request::parse(&method.parse::<Method>().unwrap(), &uri.parse().unwrap()).unwrap();
        Keys::of(&request, &headers(lines), body.as_bytes(), classification)
    }

    #[test]
    fn the_key_has_all_that_may_decide_the_answer_and_nothing_else() {
        let base: Asked<'_> =
            ("GET", "https://a.example/b/C?d=e&f=g", &[("accept", "x"), ("range-unit", "y")], "");
        let rows: [(&str, Asked<'_>, bool, bool); 16] = [
            ("spelling", ("GET", "https://A.example.:443/%62/C?d=e&f=g", base.2, ""), false, true),
            ("order of headers", ("GET", base.1, &[("range-unit", "y"), ("accept", "x")], ""), false, true),
            (
                "user agent",
                ("GET", base.1, &[("accept", "x"), ("range-unit", "y"), ("user-agent", "z")], ""),
                false,
                true,
            ),
            (
                "ids",
                (
                    "GET",
                    base.1,
                    &[
                        ("accept", "x"),
                        ("range-unit", "y"),
                        ("X-MS-Client-Request-Id", "1"),
                        ("date", "2"),
                        ("traceparent", "3"),
                        ("cache-control", "no-cache"),
                    ],
                    "",
                ),
                false,
                true,
            ),
            ("case where it counts", ("GET", "https://a.example/B/c?d=e&f=g", base.2, ""), false, false),
            ("case where it doesn't", ("GET", "https://a.example/B/c?d=e&f=g", base.2, ""), true, true),
            ("case of the query", ("GET", "https://a.example/b/C?D=e&f=g", base.2, ""), true, false),
            ("method", ("HEAD", base.1, base.2, ""), false, false),
            ("scheme", ("GET", "http://a.example:443/b/C?d=e&f=g", base.2, ""), false, false),
            ("port", ("GET", "https://a.example:444/b/C?d=e&f=g", base.2, ""), false, false),
            ("host", ("GET", "https://b.example/b/C?d=e&f=g", base.2, ""), false, false),
            ("order of the query", ("GET", "https://a.example/b/C?f=g&d=e", base.2, ""), false, false),
            ("no query", ("GET", "https://a.example/b/C", base.2, ""), false, false),
            ("value of a header", ("GET", base.1, &[("accept", "z"), ("range-unit", "y")], ""), false, false),
            (
                "parts moved",
                ("GET", base.1, &[("accept", "x"), ("range-unit", "y"), ("a", "")], ""),
                false,
                false,
            ),
            ("body", ("GET", base.1, base.2, "{}"), false, false),
        ];
        for (name, other, fold_case, is_equal) in rows {
            let classification = classification(fold_case, None);
            assert_eq!(keys(base, &classification) == keys(other, &classification), is_equal, "{name}");
        }
        let classification = classification(false, None);
        let (with, without) = ("https://a.example/?", "https://a.example/");
        assert_ne!(
            keys(("GET", with, &[], ""), &classification),
            keys(("GET", without, &[], ""), &classification)
        );
        let (one, other) = (
            ("GET", without, &[("a", "1"), ("a", "2")][..], ""),
            ("GET", without, &[("a", "2"), ("a", "1")][..], ""),
        );
        assert_ne!(keys(one, &classification), keys(other, &classification), "of one name the order counts");
    }

    #[test]
    fn pages_of_one_list_have_one_list_key() {
        let token = || "token".to_owned();
        let (query, form, json) =
            (Place::Query(token()), Place::FormField(token()), Place::JsonField(token()));
        let header = Place::Header(HeaderName::from_static("x-token"));
        let (a, b) = ("https://a.example/l", "https://a.example/l?a=1&b=%40");
        let rows: [(&str, &Place, Asked<'_>, Asked<'_>, bool); 12] = [
            (
                "token",
                &query,
                ("GET", b, &[], ""),
                ("GET", "https://a.example/l?a=1&b=%40&token=x", &[], ""),
                true,
            ),
            ("alone", &query, ("GET", a, &[], ""), ("GET", "https://a.example/l?token=x", &[], ""), true),
            (
                "written anew",
                &query,
                ("GET", b, &[], ""),
                ("GET", "https://a.example/l?b=@&%74oken=x&a=1", &[], ""),
                true,
            ),
            (
                "other filter",
                &query,
                ("GET", b, &[], ""),
                ("GET", "https://a.example/l?a=2&b=%40&token=x", &[], ""),
                false,
            ),
            (
                "other list",
                &query,
                ("GET", b, &[], ""),
                ("GET", "https://a.example/m?a=1&b=%40&token=x", &[], ""),
                false,
            ),
            (
                "header",
                &header,
                ("GET", a, &[("a", "1")], ""),
                ("GET", a, &[("a", "1"), ("x-token", "x")], ""),
                true,
            ),
            (
                "other header",
                &header,
                ("GET", a, &[("a", "1")], ""),
                ("GET", a, &[("a", "2"), ("x-token", "x")], ""),
                false,
            ),
            ("form", &form, ("POST", a, &[], "a=1"), ("POST", a, &[], "token=2&a=1"), true),
            ("other form", &form, ("POST", a, &[], "a=1"), ("POST", a, &[], "token=2&a=2"), false),
            (
                "json",
                &json,
                ("POST", a, &[], r#"{"a": 1, "b": {}}"#),
                ("POST", a, &[], r#"{"b":{},"token":"x","a":1}"#),
                true,
            ),
            (
                "other json",
                &json,
                ("POST", a, &[], r#"{"a": 1}"#),
                ("POST", a, &[], r#"{"token":"x","a":2}"#),
                false,
            ),
            ("no json", &json, ("POST", a, &[], ""), ("POST", a, &[], r#"{"token":"x"}"#), true),
        ];
        for (name, place, first, later, is_one) in rows {
            let of = |asked, is_first| {
                keys(asked, &classification(false, Some(Page { place: place.clone(), is_first })))
            };
            let (first, later) = (of(first, true), of(later, false));
            assert_eq!(first.list.unwrap().key == later.list.unwrap().key, is_one, "{name}");
            assert_ne!(first.answer, later.answer, "{name}");
            assert_ne!(first.answer, first.list.unwrap().key, "{name}");
        }
    }

    proptest! {
        #[test]
        fn requests_that_differ_in_any_part_have_different_keys(
            one in ("[a-z/]{0,6}", proptest::option::of("[a-z=&]{0,6}"), "[a-z]{0,6}", "[a-z=&]{0,6}"),
            other in ("[a-z/]{0,6}", proptest::option::of("[a-z=&]{0,6}"), "[a-z]{0,6}", "[a-z=&]{0,6}"),
        ) {
            let of = |(path, query, value, body): &(String, Option<String>, String, String)| {
                let query = query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
                let uri = format!("https://a.example/x{path}{query}");
                keys(("POST", &uri, &[("accept", value)], body), &classification(false, None))
            };
            prop_assert_eq!(one == other, of(&one) == of(&other));
        }
    }
}
