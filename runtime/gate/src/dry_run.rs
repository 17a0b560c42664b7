//! A dry run: what a provider would change, found out by letting it try. Reads and polls of operations are carried as
//! usual; a request that may change something is answered here, instead of the cloud, and recorded.
//!
//! What is a read is decided as for any other request (`effect`). So a `POST` that the provider's rules call a read is carried,
//! since many clouds list by it: a dry run is a preview, and no control over a provider that lies.
//!
//! A provider can't tell a dry run from a cloud that refuses writes. So it does what it would do up to its first write;
//! what it would do with the response stays unknown. What is kept is bounded and holds no secret: no header, no query value
//! whose name sounds like one, and only the beginning of a body. Credentials are attached later, so no body holds one.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use url::form_urlencoded;

use crate::effect::Effect;
use crate::headers::GATE_HEADER;
use crate::interceptor::{Interception, Interceptor};
use crate::request::Request;
use crate::rules::Classification;

/// How much of a body is kept: a load balancer with a few ports and a page of targets.
const MAX_BODY: usize = 8 << 10;
/// How much of a query is kept; clouds refuse URLs over 8 KiB.
const MAX_QUERY: usize = 2 << 10;
/// A longer query value isn't a name, and may be a signature.
const MAX_VALUE: usize = 128;
/// How much is kept of all writes together: a batch of 1,000 with whole bodies.
const MAX_BYTES: usize = 8 << 20;
/// The size of a write without its texts.
const OVERHEAD: usize = size_of::<WantedWrite>();

/// A query value is a secret if its name contains one of these, in lower case.
const SENSITIVE: [&str; 10] =
    ["auth", "code", "cookie", "credential", "key", "pass", "secret", "session", "sig", "token"];

/// The body of the response to a write.
const BODY_TEXT: &str = "not sent to the cloud: this is a dry run, which changes nothing\n";

/// A write that a provider wanted to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedWrite {
    /// The method.
    pub method: String,
    /// Scheme, host, port, path and query. Parts that may be a secret or are too long are cut.
    pub url: String,
    /// The beginning of its body, 8 KiB at most.
    pub body: Bytes,
    /// The length of the whole body in bytes.
    pub body_size: usize,
}

/// The writes that a provider wanted to make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedWrites {
    /// In the order in which they came.
    pub list: Vec<WantedWrite>,
    /// How many more there were than could be kept.
    pub left_out: usize,
}

/// Records the writes that the provider of a gate wanted to make. Clones share it. See
/// [`Gate::dry_run`](crate::Gate::dry_run).
#[derive(Debug, Clone, Default)]
pub struct DryRun(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    writes: WantedWrites,
    bytes: usize,
}

impl DryRun {
    /// Takes the writes that were recorded since the last call.
    pub fn take(&self) -> WantedWrites {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).writes
    }

    fn record(&self, request: &Request, body: &[u8]) {
        let write = wanted(request, body);
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = recorded.bytes + OVERHEAD + write.method.len() + write.url.len() + write.body.len();
        if bytes > MAX_BYTES {
            recorded.writes.left_out += 1;
        } else {
            recorded.bytes = bytes;
            recorded.writes.list.push(write);
        }
    }
}

impl Interceptor for DryRun {
    fn intercept(&self, request: &Request, body: &[u8], classification: &Classification) -> Interception {
        match classification.effect {
            Effect::Read | Effect::OperationPoll => Interception::Forward,
            Effect::Write => {
                self.record(request, body);
                Interception::Respond(response())
            }
        }
    }
}

/// The part of a write that is kept.
fn wanted(request: &Request, body: &[u8]) -> WantedWrite {
    let mut url = request.shown_url();
    if let Some(query) = &request.query {
        url = format!("{url}?{}", shown_query(query));
    }
    let kept = body.get(..MAX_BODY).unwrap_or(body);
    let (body, body_size) = (Bytes::copy_from_slice(kept), body.len());
    WantedWrite { method: request.method.to_string(), url, body, body_size }
}

/// A query without values that may be secrets.
fn shown_query(query: &str) -> String {
    let mut shown = query.split('&').map(shown_pair).collect::<Vec<_>>().join("&");
    if shown.len() > MAX_QUERY {
        shown.truncate(shown.floor_char_boundary(MAX_QUERY));
        shown.push('…');
    }
    shown
}

/// A pair of a query. A pair without a name may be a secret as a whole.
fn shown_pair(pair: &str) -> Cow<'_, str> {
    let Some((name, value)) = pair.split_once('=') else {
        return if pair.len() > MAX_VALUE { "…".into() } else { pair.into() };
    };
    let read = form_urlencoded::parse(name.as_bytes()).next().map(|(name, _)| name.to_lowercase());
    let is_sensitive = |name: String| SENSITIVE.iter().any(|part| name.contains(part));
    if value.len() > MAX_VALUE || name.len() > MAX_VALUE || read.is_none_or(is_sensitive) {
        let name = if name.len() > MAX_VALUE { "" } else { name };
        return format!("{name}=…").into();
    }
    pair.into()
}

fn response() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(BODY_TEXT.as_bytes()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(GATE_HEADER, HeaderValue::from_static("dry-run"));
    headers.insert(CONTENT_LENGTH, BODY_TEXT.len().into());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn request(url: &str) -> Request {
        Request::parse(&Method::PUT, &url.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_url_is_kept_without_values_that_may_be_secrets() {
        let long = "x".repeat(MAX_VALUE + 1);
        let rows = [
            (String::new(), ""),
            ("?Action=CreateLoadBalancer&Name=a".to_owned(), "?Action=CreateLoadBalancer&Name=a"),
            ("?api-version=2024-05-01&force".to_owned(), "?api-version=2024-05-01&force"),
            ("?X-Amz-Signature=hunter2&a=b".to_owned(), "?X-Amz-Signature=…&a=b"),
            ("?X-Amz-Credential=hunter2".to_owned(), "?X-Amz-Credential=…"),
            ("?se=2026&sig=hunter2&sr=b".to_owned(), "?se=2026&sig=…&sr=b"),
            ("?ACCESS_TOKEN=hunter2".to_owned(), "?ACCESS_TOKEN=…"),
            ("?acces%73_%74oken=hunter2".to_owned(), "?acces%73_%74oken=…"),
            ("?apiKey=hunter2&password=hunter2".to_owned(), "?apiKey=…&password=…"),
            ("?=hunter2".to_owned(), "?=…"),
            (format!("?a={long}&{long}=b&{long}"), "?a=…&=…&…"),
        ];
        for (query, shown) in rows {
            let url = wanted(&request(&format!("https://a.example/b{query}")), b"").url;
            assert_eq!(url, format!("https://a.example/b{shown}"), "{query}");
        }
        let query = vec!["a=b"; 2_000].join("&");
        let url = wanted(&request(&format!("https://a.example/{query}?{query}")), b"").url;
        assert!(url.len() < MAX_QUERY + 600 && url.ends_with('…'), "{}", url.len());
    }

    #[test]
    fn the_beginning_of_a_body_is_kept_and_as_many_writes_as_fit() {
        let dry_run = DryRun::default();
        let (request, body) = (request("https://a.example/b"), vec![b'x'; MAX_BODY + 1]);
        for _ in 0..2_000 {
            dry_run.record(&request, &body);
        }
        let WantedWrites { list, left_out } = dry_run.take();
        assert_eq!(list.len() + left_out, 2_000);
        assert!((900..1_100).contains(&list.len()), "{}", list.len());
        assert_eq!((list[0].body.len(), list[0].body_size), (MAX_BODY, MAX_BODY + 1));
        assert_eq!(dry_run.take(), WantedWrites::default());
        dry_run.record(&request, b"");
        assert_eq!(dry_run.take().list.len(), 1, "there is room again");
    }
}
