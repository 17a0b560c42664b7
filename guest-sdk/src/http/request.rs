//! Builds a request and sends it.

use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use serde::Serialize;

use super::{ONLY_IF_CACHED, Outgoing, Response, Source, base_url, slots, status};
use crate::{Error, deadline, host};

/// A request builder. Mistakes are reported when the request is sent.
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    method: Method,
    pub(super) url: String,
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
    pub(super) fn page_turn(self) -> Self {
        Self { is_page: true, ..self }
    }

    /// Sets the body to a value as JSON.
    pub fn json(self, value: &impl Serialize) -> Self {
        self.json_of_size(value, 128)
    }

    /// The same, with room for a body of this size, so that a large one isn't copied while it grows.
    pub(super) fn json_of_size(mut self, value: &impl Serialize, size: usize) -> Self {
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
pub(super) fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{get, post};
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
