//! A request and a response without the connection that carries them. Pure.

use axum::http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, decoded.
    pub path: String,
    /// The parameters of the query, decoded, in their order.
    pub query: Vec<(String, String)>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// Scheme, host and port under which the client reached the simulator, such as `https://localhost:4443`.
    pub origin: String,
}

impl Request {
    /// A request for a path with its query, without headers and a body.
    pub fn new(method: Method, origin: &str, path_and_query: &str) -> Self {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        Self {
            method,
            path: percent_decode_str(path).decode_utf8_lossy().into_owned(),
            query: pairs(query),
            headers: HeaderMap::new(),
            body: Vec::new(),
            origin: origin.to_owned(),
        }
    }

    /// The first parameter of a name, which is compared without case as Azure does.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The text of a header; empty where it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The fields of a form in the body.
    pub(crate) fn form(&self) -> Vec<(String, String)> {
        pairs(&String::from_utf8_lossy(&self.body))
    }
}

/// The pairs of a query or a form, in which `+` is a blank.
fn pairs(text: &str) -> Vec<(String, String)> {
    let decode = |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
    let parts = text.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(key, value)| (decode(key), decode(value)))
        .collect()
}

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, which is empty where it is `None`.
    pub body: Option<Value>,
}

impl Response {
    /// A response with a body.
    pub fn json(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), body: Some(body) }
    }

    /// A response without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: None }
    }

    /// The same with another header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}
