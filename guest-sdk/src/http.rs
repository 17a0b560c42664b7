//! HTTP requests to the cloud. Every request passes the host's gate, which attaches credentials, waits for the cloud's
//! limits and answers from its cache. So a provider signs nothing and retries nothing.
//!
//! At most [`MAX_IN_FLIGHT`] requests are in flight at a time; others wait. Once the soft deadline of the call has passed,
//! no request is sent, and requests in flight get a little longer. An author needs no code for either: the error
//! [says so](Error::is_past_deadline), and the SDK answers that the item is not known yet.
//!
//! ```no_run
//! # async fn example() -> Result<(), pileus_guest::Error> {
//! # #[derive(serde::Deserialize)] struct Machine { id: String }
//! use pileus_guest::http;
//!
//! let response = http::get("https://cloud.example/v1/machines/m-1").send().await?;
//! let machine: Option<Machine> = match response.or_absent()? {
//!     Some(response) => Some(response.json()?),
//!     None => None,
//! };
//! # Ok(())
//! # }
//! ```
//!
//! # The host's cache
//!
//! If a rule of the provider says that a request is a read, its response may come from the host's cache. The purpose of
//! the call limits its age: 30 s for Nodes that join, 5 s for refreshes, and never older than the call where a deletion is
//! confirmed. A provider needs no code for that. It can ask for newer responses with [`Request::max_age`] or
//! [`Request::no_cache`]. With [`Request::send_if_cached`] it uses a cached response if there is one, and can send another request otherwise:
//!
//! ```no_run
//! # async fn example(id: &str) -> Result<(), pileus_guest::Error> {
//! # #[derive(serde::Deserialize)] struct Machine { id: String }
//! use pileus_guest::http;
//!
//! let all = http::get("https://cloud.example/v1/machines");
//! let listed = match all.send_if_cached().await? {
//!     Some(response) => response.json::<Vec<Machine>>()?.into_iter().find(|machine| machine.id == id),
//!     None => None,
//! };
//! let machine = match listed {
//!     Some(machine) => machine,
//!     None => http::get(format!("https://cloud.example/v1/machines/{id}")).send().await?.json()?,
//! };
//! # drop(machine);
//! # Ok(())
//! # }
//! ```

mod base_url;
pub(crate) mod codes;
mod collection;
mod document;
mod envelope;
pub(crate) mod failure;
mod members;
mod numeric_id;
mod pages;
mod raw;
mod response;
mod slots;
pub(crate) mod status;

use std::time::Duration;

pub use ::http::{HeaderMap, Method, StatusCode};
use ::http::{HeaderName, HeaderValue, Uri, header};
pub use base_url::BaseUrl;
pub use codes::{CodePlace, Codes, Meaning};
pub use collection::{Collection, MAX_SINGLE_READS};
pub use document::{Document, Edit};
pub use members::{MemberDigest, MemberSet};
pub use numeric_id::NumericId;
pub use pages::read_pages;
pub use raw::Raw;
pub use response::Response;
use serde::Serialize;

use crate::{Error, deadline, host};

/// The maximum number of requests in flight. The host gives a call a connection for each. More requests would only fill
/// the gate's queue.
pub const MAX_IN_FLIGHT: usize = 64;

/// The `Cache-Control` directive of a request that only the host's cache may answer.
pub(crate) const ONLY_IF_CACHED: &str = "only-if-cached";

/// Where a response may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the cloud, or from the host's cache if it has one that is new enough.
    Cloud,
    /// From the host's cache only, without a request to the cloud.
    Cache,
}

/// A request, as the SDK sends it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
}

/// A response, as the SDK receives it.
pub(crate) struct Incoming {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Outgoing {
    /// The request's name in messages. It leaves out the query, which may hold a secret.
    pub(crate) fn subject(&self) -> String {
        let Self { method, uri, .. } = self;
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        format!("{method} {scheme}://{authority}{}", uri.path())
    }
}

/// A `GET` of a URL.
pub fn get(url: impl Into<String>) -> Request {
    Request::new(Method::GET, url)
}

/// A `POST` to a URL.
pub fn post(url: impl Into<String>) -> Request {
    Request::new(Method::POST, url)
}

/// A `PUT` to a URL.
pub fn put(url: impl Into<String>) -> Request {
    Request::new(Method::PUT, url)
}

/// A `PATCH` of a URL.
pub fn patch(url: impl Into<String>) -> Request {
    Request::new(Method::PATCH, url)
}

/// A `DELETE` of a URL.
pub fn delete(url: impl Into<String>) -> Request {
    Request::new(Method::DELETE, url)
}

/// A request builder. Mistakes are reported when the request is sent.
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
    problem: Option<String>,
    is_page: bool,
}

impl Request {
    /// A request of any method.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: HeaderMap::new(), body: None, problem: None, is_page: false }
    }

    /// Adds a query parameter.
    pub fn query(mut self, name: &str, value: impl AsRef<str>) -> Self {
        self.url.push(if self.url.contains('?') { '&' } else { '?' });
        base_url::escape(name, &mut self.url);
        self.url.push('=');
        base_url::escape(value.as_ref(), &mut self.url);
        self
    }

    /// Adds query parameters: a list, or an `Option` of one.
    pub fn queries<'a, V: AsRef<str>>(self, parameters: impl IntoIterator<Item = (&'a str, V)>) -> Self {
        parameters.into_iter().fold(self, |request, (name, value)| request.query(name, value))
    }

    /// Adds a header. The host strips `Authorization` and similar headers, because only the host adds credentials.
    pub fn header(mut self, name: &str, value: impl AsRef<str>) -> Self {
        match (HeaderName::try_from(name), HeaderValue::try_from(value.as_ref())) {
            (Ok(name), Ok(value)) => drop(self.headers.append(name, value)),
            _ => self.problem = Some(format!("the header {name} is not valid")),
        }
        self
    }

    /// Accepts a cached response only if its request is not older than this, in whole seconds.
    pub fn max_age(self, age: Duration) -> Self {
        self.cache_control(&format!("max-age={}", age.as_secs()))
    }

    /// Accepts no cached response from before this request.
    pub fn no_cache(self) -> Self {
        self.cache_control("no-cache")
    }

    /// Adds a `Cache-Control` directive. All directives are in one header line.
    fn cache_control(mut self, directive: &str) -> Self {
        let given = self.headers.get(header::CACHE_CONTROL).and_then(|given| given.to_str().ok());
        let all = given.map_or_else(|| directive.to_owned(), |given| format!("{given}, {directive}"));
        match HeaderValue::try_from(all) {
            Ok(value) => drop(self.headers.insert(header::CACHE_CONTROL, value)),
            Err(_) => self.problem = Some("the header cache-control is not valid".to_owned()),
        }
        self
    }

    /// Makes the response take its turn among all pages of the call, by its size. It must be read before another page is
    /// waited for.
    fn as_page(self) -> Self {
        Self { is_page: true, ..self }
    }

    /// Sets the body to a value as JSON.
    pub fn json(self, value: &impl Serialize) -> Self {
        self.json_of_size(value, 128)
    }

    /// The same, with room for a body of this size, so that a large one isn't copied while it grows.
    fn json_of_size(mut self, value: &impl Serialize, size: usize) -> Self {
        let mut bytes = Vec::with_capacity(size);
        match serde_json::to_writer(&mut bytes, value) {
            Ok(()) => self.body("application/json", bytes),
            Err(error) => {
                self.problem = Some(format!("its body can't be written as JSON: {error}"));
                self
            }
        }
    }

    /// Sets the body to a form with these fields.
    pub fn form<'a, V: AsRef<str>>(self, fields: impl IntoIterator<Item = (&'a str, V)>) -> Self {
        let mut text = String::new();
        for (name, value) in fields {
            if !text.is_empty() {
                text.push('&');
            }
            base_url::escape(name, &mut text);
            text.push('=');
            base_url::escape(value.as_ref(), &mut text);
        }
        self.body("application/x-www-form-urlencoded", text)
    }

    /// Sets the body.
    pub fn body(mut self, content_type: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        self.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.body = Some(bytes.into());
        self
    }

    /// Sends the request and reads the whole response, for every status.
    ///
    /// # Errors
    ///
    /// `denied` if the gate denies the request, `unavailable` if there is no response, `broken` if the request or the
    /// response is not valid HTTP, and an error that [says](Error::is_past_deadline) that the deadline has passed.
    pub async fn send(self) -> Result<Response, Error> {
        let is_page = self.is_page;
        let outgoing = self.build()?;
        let subject = outgoing.subject();
        let _slot = slots::acquire().await;
        if deadline::has_passed() {
            return Err(Error::deadline(&subject));
        }
        let host = outgoing.uri.host().unwrap_or_default().to_owned();
        let before_body = async |size| if is_page { Some(slots::acquire_page(size).await) } else { None };
        let (incoming, mut turn) = host::exchange(outgoing, before_body).await?;
        if let Some(turn) = turn.as_mut().filter(|_| incoming.status.is_success()) {
            turn.set_amount(incoming.bytes.len());
        }
        Ok(Response::new(incoming, subject, &host, turn))
    }

    /// Reads the response from the host's cache. None if the cache has none that is new enough. Nothing is sent to the
    /// cloud, nothing waits, and no limit is used. A resource that a cached list lacks may exist by now, so read it.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn send_if_cached(self) -> Result<Option<Response>, Error> {
        let response = self.cache_control(ONLY_IF_CACHED).send().await?;
        Ok(Some(response).filter(|response| !status::is_not_cached(response.status, &response.headers)))
    }

    /// Reads the response from this source.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and `unavailable` if the source is the cache and it has no response that is new enough.
    pub async fn send_from(self, source: Source) -> Result<Response, Error> {
        if source == Source::Cloud {
            return self.send().await;
        }
        let subject = without_query(&self.url).to_owned();
        let cached = self.send_if_cached().await?;
        cached.ok_or_else(|| Error::unavailable(format!("the host's cache has no response for {subject}")))
    }

    fn build(self) -> Result<Outgoing, Error> {
        let Self { method, url, headers, body, problem, is_page: _ } = self;
        if let Some(problem) = problem {
            return Err(Error::broken(format!("{method} {url} was not sent: {problem}")));
        }
        let uri: Uri = url.parse().map_err(|error| Error::broken(format!("{url} is not a URL: {error}")))?;
        if uri.scheme().is_none() {
            return Err(Error::broken(format!("{url} is not a URL: it names no host")));
        }
        Ok(Outgoing { method, uri, headers, body })
    }
}

/// A URL for messages, without the query, which may hold a secret.
fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, testing};

    #[test]
    fn parameters_are_escaped_and_appended_to_the_query() {
        let request = get("http://cloud.test/v1/machines?limit=10")
            .query("name", "a b&c=d/ü")
            .queries(Some(("cursor", "x+y")))
            .queries(None::<(&str, &str)>);
        let url = request.build().unwrap().uri.to_string();
        assert_eq!(url, "http://cloud.test/v1/machines?limit=10&name=a%20b%26c%3Dd%2F%C3%BC&cursor=x%2By");
    }

    #[test]
    fn a_subject_has_no_query() {
        let outgoing = get("https://cloud.test:8443/v1/x").query("token", "secret").build().unwrap();
        assert_eq!(outgoing.subject(), "GET https://cloud.test:8443/v1/x");
    }

    #[test]
    fn an_invalid_request_is_broken() {
        let rows = [
            ("no host", get("/v1/machines")),
            ("no URL", get("http://cloud test/")),
            ("header name", get("http://cloud.test/").header("a b", "c")),
            ("header value", get("http://cloud.test/").header("a", "b\nc")),
        ];
        for (name, request) in rows {
            let error = request.build().err().unwrap();
            assert_eq!(error.kind, ErrorKind::Broken, "{name}: {error}");
        }
    }

    #[test]
    fn a_body_carries_its_type() {
        let host = testing::Host::new()
            .exchange(testing::post("http://cloud.test/a"))
            .exchange(testing::post("http://cloud.test/b"));
        host.run(async {
            post("http://cloud.test/a").json(&["x"]).send().await.unwrap();
            post("http://cloud.test/b").form([("a", "1 2"), ("b", "3")]).send().await.unwrap();
        });
        let [json, form] = host.requests().try_into().unwrap();
        assert_eq!(
            (json.header("content-type"), &json.body[..]),
            (Some("application/json"), &b"[\"x\"]"[..])
        );
        assert_eq!(form.header("content-type"), Some("application/x-www-form-urlencoded"));
        assert_eq!(form.body, b"a=1%202&b=3");
    }

    #[test]
    fn cache_directives_are_in_one_header() {
        let url = "http://cloud.test/";
        let cache_control = |request: Request| {
            let outgoing = request.build().unwrap();
            outgoing.headers.get("cache-control").map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(cache_control(get(url)), None);
        assert_eq!(cache_control(get(url).no_cache()).as_deref(), Some("no-cache"));
        let both = get(url).header("cache-control", "no-store").max_age(Duration::from_millis(5_900));
        assert_eq!(cache_control(both).as_deref(), Some("no-store, max-age=5"));
    }

    #[test]
    fn a_cache_only_request_returns_nothing_if_nothing_is_cached() {
        let url = "http://cloud.test/a";
        let host = testing::Host::new()
            .exchange(testing::get(url).body("from the cloud"))
            .exchange(testing::get(url).body("from the cache").cached());
        let ask = || get(url).max_age(Duration::from_secs(7)).send_if_cached();
        let bytes = |response: Option<Response>| response.map(|response| response.bytes);
        let cached = host.run(ask()).unwrap();
        assert_eq!(bytes(cached).as_deref(), Some(&b"from the cache"[..]));
        assert_eq!(bytes(host.run(ask()).unwrap()), None);
        assert_eq!(bytes(host.run(get(url).send()).ok()).as_deref(), Some(&b"from the cloud"[..]));
        assert_eq!(host.requests()[0].header("cache-control"), Some("max-age=7, only-if-cached"));
    }

    #[test]
    fn a_gateway_timeout_of_the_cloud_is_not_an_empty_cache() {
        let url = "http://cloud.test/a";
        let host = testing::Host::new().exchange(testing::get(url).status(504).cached());
        let answered = host.run(async {
            let response = get(url).send_if_cached().await.unwrap();
            response.map(|response| response.error_for_status().map_err(|error| error.kind).err())
        });
        assert_eq!(answered, Some(Some(ErrorKind::Unavailable(None))));
    }

    #[test]
    fn no_request_leaves_after_the_soft_deadline() {
        let host = testing::Host::new().remaining(Duration::ZERO);
        let error = host.run(get("http://cloud.test/").send()).err().unwrap();
        assert!(error.is_past_deadline());
        assert!(host.requests().is_empty());
    }

    #[test]
    fn a_request_without_a_response_ends_with_the_deadline() {
        let host = testing::Host::new().exchange(testing::get("http://cloud.test/").hanging());
        let error = host.run(get("http://cloud.test/").send()).err().unwrap();
        assert!(error.is_past_deadline());
    }
}
