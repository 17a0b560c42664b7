//! What a cloud's error codes mean, where the status alone misleads. A provider gives one table, in its settings. From it
//! come the error kinds of its own responses and what the host's gate learns from them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde_json::Value;

use super::StatusCode;

/// The part of a response that has the cloud's error code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodePlace {
    /// The header of this name.
    Header(String),
    /// The text at this path of a JSON body: names and positions, separated by dots, as in `error.errors.0.reason`.
    Json(String),
    /// The text of the first element of this name in an XML body.
    Xml(String),
}

/// What a code means. The first four are for the host too; to it the others mean that nothing closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The cloud throttles. Reported as `throttled`; the host closes the limits of the request for a while.
    Throttled,
    /// The object is locked, for example by an operation in progress. Reported as `conflict`; the host closes the path of
    /// the request for a while, and no limit.
    Locked,
    /// The object doesn't exist, as after a 404. [`Response::or_absent`](super::Response::or_absent) returns None.
    Absent,
    /// Not yet: another object has to change first. Reported as `conflict`.
    Later,
    /// Reported as `invalid`.
    Invalid,
    /// Reported as `denied`.
    Denied,
    /// Reported as `unavailable`.
    Unavailable,
}

/// The codes of one host, see [`BaseUrl::codes`](super::BaseUrl::codes).
///
/// ```
/// use pileus_guest::http::{BaseUrl, CodePlace, Meaning};
///
/// # fn settings(cloud: &BaseUrl) -> pileus_guest::Settings {
/// let codes = cloud
///     .codes(CodePlace::Json("error.code".to_owned()))
///     .code(429, "ReferencedResourceNotProvisioned", Meaning::Locked)
///     .code(400, "*CannotBeDeleted", Meaning::Later)
///     .code(409, "ScopeLocked", Meaning::Denied);
/// pileus_guest::Settings::default().codes(codes)
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Codes {
    /// The host, as in [`Endpoint::host`](crate::Endpoint::host).
    pub host: String,
    /// Where the code is.
    pub place: CodePlace,
    /// The status, the code or a pattern with one `*` that stands for any text, and the meaning. The first matching row
    /// applies.
    pub rows: Vec<(u16, String, Meaning)>,
}

impl Codes {
    /// A table without rows for a host, which may be `*.` and a DNS name.
    pub fn new(host: impl Into<String>, place: CodePlace) -> Self {
        Self { host: host.into(), place, rows: Vec::new() }
    }

    /// Says what responses of this status with this code mean. The code may have one `*` that stands for any text.
    pub fn code(mut self, status: u16, code: impl Into<String>, meaning: Meaning) -> Self {
        self.rows.push((status, code.into(), meaning));
        self
    }

    fn is_about(&self, host: &str) -> bool {
        match self.host.strip_prefix('*') {
            Some(domain) => host.len() > domain.len() && host.ends_with(domain),
            None => self.host == host,
        }
    }
}

/// The code of a failed response, and what it means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) text: Option<String>,
    pub(super) meaning: Option<Meaning>,
}

/// Reads the code of a failed response by the tables of its host, or else in the places where most APIs have it.
pub(super) fn read(
    tables: &[Codes],
    host: &str,
    status: StatusCode,
    header: impl Fn(&str) -> Option<String>,
    body: &[u8],
) -> Code {
    let json = serde_json::from_slice::<Value>(body).ok();
    let text_at = |place: &CodePlace| match place {
        CodePlace::Header(name) => header(name),
        CodePlace::Json(path) => json.as_ref().and_then(|body| json_text(body, path)),
        CodePlace::Xml(element) => xml_text(body, element),
    };
    let mut found = None;
    for table in tables.iter().filter(|table| table.is_about(host)) {
        let Some(text) = text_at(&table.place) else { continue };
        let row = table.rows.iter().find(|(of, pattern, _)| *of == status && matches(pattern, &text));
        if let Some((_, _, meaning)) = row {
            return Code { text: Some(text), meaning: Some(*meaning) };
        }
        found.get_or_insert(text);
    }
    let usual = || {
        let body = json.as_ref();
        ["error.code", "code", "error.errors.0.reason"].iter().find_map(|path| json_text(body?, path))
    };
    Code { text: found.or_else(usual).or_else(|| xml_text(body, "Code")), meaning: None }
}

fn json_text(body: &Value, path: &str) -> Option<String> {
    let value = path.split('.').try_fold(body, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        value => value.get(name),
    });
    value?.as_str().map(str::to_owned)
}

/// The text of the first element of this name, with any namespace prefix.
pub(super) fn xml_text(body: &[u8], element: &str) -> Option<String> {
    let body = std::str::from_utf8(body).ok()?;
    let text = body.split('<').find_map(|tag| {
        let (head, text) = tag.split_once('>')?;
        let name = head.split_whitespace().next()?;
        (name.rsplit(':').next() == Some(element)).then_some(text)
    })?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
        None => pattern == text,
    }
}

thread_local! {
    static SOURCE: Cell<fn() -> Vec<Codes>> = const { Cell::new(Vec::new) };
    static TABLES: RefCell<Option<Rc<[Codes]>>> = const { RefCell::new(None) };
}

/// Sets the function that makes the tables of this call. It runs at the first failed response, so that calls without one
/// don't pay for it.
pub(crate) fn install(source: fn() -> Vec<Codes>) {
    SOURCE.set(source);
    TABLES.take();
}

/// The tables of this call.
pub(super) fn tables() -> Rc<[Codes]> {
    let known = TABLES.with_borrow(Clone::clone);
    known.unwrap_or_else(|| {
        let tables: Rc<[Codes]> = SOURCE.get()().into();
        TABLES.replace(Some(Rc::clone(&tables)));
        tables
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(path: &str) -> Codes {
        Codes::new("cloud.test", CodePlace::Json(path.to_owned()))
    }

    #[test]
    fn a_code_is_found_in_its_place_and_has_its_meaning() {
        let reason = json("error.errors.0.reason").code(403, "rateLimitExceeded", Meaning::Throttled);
        let xml = Codes::new("*.cloud.test", CodePlace::Xml("Code".to_owned()))
            .code(400, "Throttling", Meaning::Throttled)
            .code(400, "*NotFound", Meaning::Absent);
        let header = Codes::new("cloud.test", CodePlace::Header("x-code".to_owned()))
            .code(409, "Locked*ByName", Meaning::Denied)
            .code(409, "Locked*", Meaning::Locked);
        let gcp = r#"{"error": {"code": 403, "errors": [{"reason": "rateLimitExceeded"}]}}"#;
        let aws =
            "<?xml version=\"1.0\"?><r:ErrorResponse a=\"b\"><Error><r:Code>Group.NotFound</r:Code></Error>";
        let tables = [reason, xml, header];
        let rows = [
            ("cloud.test", 403, "", gcp, Some("rateLimitExceeded"), Some(Meaning::Throttled)),
            ("cloud.test", 429, "", gcp, Some("rateLimitExceeded"), None),
            ("other.test", 403, "", gcp, Some("rateLimitExceeded"), None),
            ("eu.cloud.test", 400, "", aws, Some("Group.NotFound"), Some(Meaning::Absent)),
            ("cloud.test", 400, "", aws, Some("Group.NotFound"), None),
            ("cloud.test", 409, "LockedX", "", Some("LockedX"), Some(Meaning::Locked)),
            ("cloud.test", 409, "LockedXByName", "", Some("LockedXByName"), Some(Meaning::Denied)),
            ("cloud.test", 400, "", r#"{"code": "no"}"#, Some("no"), None),
            ("cloud.test", 400, "", "<html>", None, None),
        ];
        for (host, status, code, body, text, meaning) in rows {
            let header = |name: &str| (name == "x-code" && !code.is_empty()).then(|| code.to_owned());
            let found = read(&tables, host, StatusCode::from_u16(status).unwrap(), header, body.as_bytes());
            assert_eq!((found.text.as_deref(), found.meaning), (text, meaning), "{host} {status} {body}");
        }
    }

    #[test]
    fn a_pattern_has_one_star_for_any_text() {
        let rows = [
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("ab*bc", "abc", false),
            ("*", "", true),
            ("a", "ab", false),
        ];
        for (pattern, text, expected) in rows {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
