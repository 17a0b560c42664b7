//! Requests to the cloud. Plain HTTP from the author's view: the host's gate, which every request passes, attaches
//! credentials, waits for the cloud's limits and answers from its cache, so there is nothing to sign and nothing to
//! retry here.
//!
//! At most [`IN_FLIGHT`] requests are under way at the same time, others wait for a turn. Once the soft deadline of the
//! call has passed no request is sent; what is in flight then gets a little longer. An author needs no code for either:
//! the error says so ([`Error::is_deadline`]) and the SDK answers for the Node that it is not known yet.
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

mod base_url;
pub(crate) mod failure;
mod response;
mod slots;
mod status;

pub use ::http::{HeaderMap, Method, StatusCode};
use ::http::{HeaderName, HeaderValue, Uri, header};
pub use base_url::BaseUrl;
pub use response::Response;
use serde::Serialize;

use crate::{Error, deadline, host};

/// The most requests in flight. The host gives a call a connection for each, and past this a faster provider would only
/// fill the gate's queue.
pub const IN_FLIGHT: usize = 64;

/// A request as it leaves the SDK.
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
}

/// An answer as it reaches the SDK.
pub(crate) struct Incoming {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Outgoing {
    /// What messages call the request: without its query, which may hold what no log should.
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

/// A request that is being put together. What is wrong with it shows when it is sent.
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
    mistake: Option<String>,
}

impl Request {
    /// A request of any method.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: HeaderMap::new(), body: None, mistake: None }
    }

    /// Adds a parameter to the query.
    pub fn query(mut self, name: &str, value: impl AsRef<str>) -> Self {
        self.url.push(if self.url.contains('?') { '&' } else { '?' });
        base_url::escape(name, &mut self.url);
        self.url.push('=');
        base_url::escape(value.as_ref(), &mut self.url);
        self
    }

    /// Adds parameters to the query: a list, or an `Option` of one.
    pub fn queries<'a, V: AsRef<str>>(self, parameters: impl IntoIterator<Item = (&'a str, V)>) -> Self {
        parameters.into_iter().fold(self, |request, (name, value)| request.query(name, value))
    }

    /// Adds a header. The host strips `Authorization` and its like: credentials are its own to add.
    pub fn header(mut self, name: &str, value: impl AsRef<str>) -> Self {
        match (HeaderName::try_from(name), HeaderValue::try_from(value.as_ref())) {
            (Ok(name), Ok(value)) => drop(self.headers.append(name, value)),
            _ => self.mistake = Some(format!("the header {name} is not valid")),
        }
        self
    }

    /// Sets the body to a value as JSON.
    pub fn json(mut self, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.body("application/json", bytes),
            Err(error) => {
                self.mistake = Some(format!("its body is no JSON: {error}"));
                self
            }
        }
    }

    /// Sets the body to fields as a form.
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

    /// Sends the request and reads the whole answer, whatever its status.
    ///
    /// # Errors
    ///
    /// `denied` where the gate refuses the request, `unavailable` where no answer came, `broken` where the request or
    /// the answer is no HTTP, and an error that [is the deadline](Error::is_deadline).
    pub async fn send(self) -> Result<Response, Error> {
        let outgoing = self.build()?;
        let subject = outgoing.subject();
        let _slot = slots::take().await;
        if deadline::has_passed() {
            return Err(Error::deadline(&subject));
        }
        let Incoming { status, headers, bytes } = host::exchange(outgoing).await?;
        Ok(Response { status, headers, bytes, subject })
    }

    fn build(self) -> Result<Outgoing, Error> {
        let Self { method, url, headers, body, mistake } = self;
        if let Some(mistake) = mistake {
            return Err(Error::broken(format!("{method} {url} was not sent: {mistake}")));
        }
        let uri: Uri = url.parse().map_err(|error| Error::broken(format!("{url} is not a URL: {error}")))?;
        if uri.scheme().is_none() {
            return Err(Error::broken(format!("{url} is not a URL: it names no host")));
        }
        Ok(Outgoing { method, uri, headers, body })
    }
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
    fn a_request_that_is_no_http_is_the_providers_mistake() {
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
    fn no_request_leaves_after_the_soft_deadline() {
        let host = testing::Host::new().remaining(std::time::Duration::ZERO);
        let error = host.run(get("http://cloud.test/").send()).err().unwrap();
        assert!(error.is_deadline());
        assert!(host.requests().is_empty());
    }

    #[test]
    fn a_request_that_gets_no_answer_ends_with_the_deadline() {
        let host = testing::Host::new().exchange(testing::get("http://cloud.test/").hanging());
        let error = host.run(get("http://cloud.test/").send()).err().unwrap();
        assert!(error.is_deadline());
    }
}
