//! A request that a test expects, and the response to it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SentRequest;
use crate::Error;
use crate::http::Incoming;
use crate::http::status::GATE;

/// A request that a test expects, and the response to it. The default response is status 200 with an empty body.
#[must_use = "an exchange does nothing until it is part of a script"]
#[derive(Clone, Debug)]
pub struct Exchange {
    method: String,
    url: String,
    status: StatusCode,
    headers: HeaderMap,
    bytes: Vec<u8>,
    failure: Option<Error>,
    is_cached: bool,
    pub(super) hangs: bool,
    pub(super) delay: Duration,
    pub(super) left: Uses,
}

/// How often an exchange can still be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uses {
    Exactly(usize),
    Any,
}

/// Expects a `GET` of exactly this URL, with its query.
pub fn get(url: impl Into<String>) -> Exchange {
    Exchange::new("GET", url)
}

/// Expects a `POST` to exactly this URL, with its query.
pub fn post(url: impl Into<String>) -> Exchange {
    Exchange::new("POST", url)
}

/// Expects a `PUT` to exactly this URL, with its query.
pub fn put(url: impl Into<String>) -> Exchange {
    Exchange::new("PUT", url)
}

/// Expects a `PATCH` of exactly this URL, with its query.
pub fn patch(url: impl Into<String>) -> Exchange {
    Exchange::new("PATCH", url)
}

/// Expects a `DELETE` of exactly this URL, with its query.
pub fn delete(url: impl Into<String>) -> Exchange {
    Exchange::new("DELETE", url)
}

impl Exchange {
    /// Expects a request of any method, upper case, to exactly this URL, with its query.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            bytes: Vec::new(),
            failure: None,
            is_cached: false,
            hangs: false,
            delay: Duration::ZERO,
            left: Uses::Exactly(1),
        }
    }

    /// Sets the status.
    ///
    /// # Panics
    ///
    /// If it is not a valid status.
    pub fn status(mut self, status: u16) -> Self {
        self.status = StatusCode::from_u16(status).expect("a status is between 100 and 999");
        self
    }

    /// Adds a header to the response.
    ///
    /// # Panics
    ///
    /// If it is not a valid header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("the name of a header");
        self.headers.append(name, HeaderValue::try_from(value).expect("the value of a header"));
        self
    }

    /// Sets the body to a value as JSON.
    ///
    /// # Panics
    ///
    /// If the value can't be written as JSON.
    pub fn json(self, value: impl Serialize) -> Self {
        self.body(serde_json::to_vec(&value).expect("the answer of a test is JSON"))
    }

    /// Sets the body.
    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.bytes = bytes.into();
        self
    }

    /// Fails with an error instead of a response, as after a denial by the gate or on a broken connection.
    pub fn failing(mut self, error: Error) -> Self {
        self.failure = Some(error);
        self
    }

    /// Puts the response into the host's cache: it answers only
    /// [`send_if_cached`](crate::http::Request::send_if_cached). A response that isn't in the script isn't in the cache.
    pub fn cached(mut self) -> Self {
        self.is_cached = true;
        self
    }

    /// Never responds: the deadline of the call comes first.
    pub fn hanging(mut self) -> Self {
        self.hangs = true;
        self
    }

    /// Moves the clock on by this time before the response, which may pass the deadline. Exchanges that are in flight
    /// concurrently move it one after the other.
    pub fn delay(mut self, time: Duration) -> Self {
        self.delay = time;
        self
    }

    /// Expects this number of requests instead of one.
    pub fn times(mut self, times: usize) -> Self {
        self.left = Uses::Exactly(times);
        self
    }

    /// Expects any number of requests, including none.
    pub fn any_times(mut self) -> Self {
        self.left = Uses::Any;
        self
    }

    pub(super) fn is_unused(&self) -> bool {
        matches!(self.left, Uses::Exactly(left) if left > 0)
    }

    /// The host's response to a cache-only request if nothing is cached.
    pub(super) fn not_cached(method: &str, url: &str) -> Self {
        Self::new(method, url).status(504).header(GATE, "not-cached").cached()
    }

    pub(super) fn matches(&self, sent: &SentRequest) -> bool {
        self.left != Uses::Exactly(0)
            && self.method == sent.method
            && self.url == sent.url
            && self.is_cached == sent.is_cache_only()
    }

    pub(super) fn response(self) -> Result<Incoming, Error> {
        match self.failure {
            Some(error) => Err(error),
            None => Ok(Incoming { status: self.status, headers: self.headers, bytes: self.bytes }),
        }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    #[serde(default = "Record::method")]
    method: String,
    url: String,
    #[serde(default = "Record::status")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Value,
}

impl Record {
    fn method() -> String {
        "GET".to_owned()
    }

    fn status() -> u16 {
        200
    }
}

/// Exchanges from a recording.
pub(super) fn recorded(json: &str) -> Vec<Exchange> {
    let records: Vec<Record> = serde_json::from_str(json).expect("a recording is a list of exchanges");
    let exchange = |Record { method, url, status, headers, body }| {
        let exchange = Exchange::new(method, url).status(status);
        let exchange = headers.iter().fold(exchange, |exchange, (name, value)| exchange.header(name, value));
        match body {
            Value::Null => exchange,
            Value::String(text) => exchange.body(text),
            value => exchange.json(value),
        }
    };
    records.into_iter().map(exchange).collect()
}

#[cfg(test)]
mod tests {
    use crate::{http, testing};

    #[test]
    fn a_recording_is_played_back() {
        let recording = r#"[
            {"url": "http://cloud.test/a", "body": {"id": 1}},
            {"method": "POST", "url": "http://cloud.test/b", "status": 201, "headers": {"ETag": "x"}, "body": "text"}
        ]"#;
        let host = testing::Host::new().recorded(recording);
        let (read, written) = host.run(async {
            let read = http::get("http://cloud.test/a").send().await.unwrap();
            (
                read.json::<serde_json::Value>().unwrap(),
                http::post("http://cloud.test/b").send().await.unwrap(),
            )
        });
        assert_eq!(read["id"], 1);
        assert_eq!(
            (written.status.as_u16(), written.header("etag"), &written.bytes[..]),
            (201, Some("x"), &b"text"[..])
        );
    }

    #[test]
    fn equal_requests_are_answered_in_the_order_of_the_script() {
        let url = "http://cloud.test/a";
        let host = testing::Host::new()
            .exchange(testing::get(url).status(404))
            .exchange(testing::get(url).times(2))
            .exchange(testing::get(url).status(500).any_times());
        let statuses = host.run(async {
            let mut statuses = Vec::new();
            for _ in 0..4 {
                statuses.push(http::get(url).send().await.unwrap().status.as_u16());
            }
            statuses
        });
        assert_eq!(statuses, [404, 200, 200, 500]);
    }

    #[test]
    #[should_panic(expected = "1 exchanges were not used: GET http://cloud.test/")]
    fn an_unused_exchange_fails_the_test() {
        drop(testing::Host::new().exchange(testing::get("http://cloud.test/")));
    }

    #[test]
    #[should_panic(expected = "GET http://cloud.test/b is not in the script")]
    fn a_request_that_is_not_in_the_script_fails_the_test() {
        let host = testing::Host::new().exchange(testing::get("http://cloud.test/a"));
        let _ = host.run(http::get("http://cloud.test/b").send());
    }
}
