//! A rehearsal: what a provider would change, found out by letting it try. Reads and polls of operations go the way that
//! they always go, and whatever may change something is answered here, in the cloud's place, and written down.
//!
//! What is a read is the provider's own word, but for the methods by which no cloud reads. A `POST` that its rules call a read
//! is carried, as many clouds list by it.
//!
//! A provider can't tell a rehearsal from a cloud that is out of order for writes, so what it does is what it would do up to
//! its first write; what it would make of the answer stays unknown. What is kept is bounded and holds no secret: no header,
//! no value of a query whose name sounds like one, and of a body the beginning. Credentials are attached later in the
//! chain, so none of them is in a body.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use url::form_urlencoded;

use crate::{
    headers::OWN,
    request::Request,
    rules::{Effect, Meaning},
    stand_in::{Course, StandIn},
};

/// What is kept of a body: a load balancer of a few ports and a page of targets.
const LONGEST_BODY: usize = 8 << 10;
/// What is kept of a query; clouds refuse URLs over 8 KiB.
const LONGEST_QUERY: usize = 2 << 10;
/// A longer value of a query is no name, and may be a signature.
const LONGEST_VALUE: usize = 128;
/// What is kept of all writes together: a batch of 1,000 with whole bodies.
const MOST_BYTES: usize = 8 << 20;
/// What a write takes beside its texts.
const OVERHEAD: usize = size_of::<WantedWrite>();

/// What parts of names say that a value is a secret, in lower case.
const SENSITIVE: [&str; 10] =
    ["auth", "code", "cookie", "credential", "key", "pass", "secret", "session", "sig", "token"];

/// What the provider is answered.
const ANSWER: &str = "not sent to the cloud: this is a rehearsal, which changes nothing\n";

/// A write that a provider wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedWrite {
    /// The method.
    pub method: String,
    /// Scheme, host, port, path and query. Parts that may be a secret are cut, and so is what is too long.
    pub url: String,
    /// The beginning of its body, 8 KiB at most.
    pub body: Bytes,
    /// How many bytes the whole body has.
    pub body_size: usize,
}

/// The writes that were wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedWrites {
    /// In the order in which they came.
    pub list: Vec<WantedWrite>,
    /// How many more there were than could be kept.
    pub left_out: usize,
}

/// Writes down what the providers of a gate wanted to change. Clones share it. See
/// [`Gate::rehearsing`](crate::Gate::rehearsing).
#[derive(Debug, Clone, Default)]
pub struct Rehearsal(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    writes: WantedWrites,
    bytes: usize,
}

impl Rehearsal {
    /// What was wanted since this was last asked.
    pub fn take(&self) -> WantedWrites {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).writes
    }

    fn note(&self, request: &Request, body: &[u8]) {
        let write = wanted(request, body);
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = noted.bytes + OVERHEAD + write.method.len() + write.url.len() + write.body.len();
        if bytes > MOST_BYTES {
            noted.writes.left_out += 1;
        } else {
            noted.bytes = bytes;
            noted.writes.list.push(write);
        }
    }
}

impl StandIn for Rehearsal {
    fn decide(&self, request: &Request, body: &[u8], meaning: &Meaning) -> Course {
        match meaning.effect {
            // The rules are the provider's own word, and that is what is rehearsed.
            Effect::Read | Effect::OperationPoll if request.can_be_a_read() => Course::Carry,
            _ => {
                self.note(request, body);
                Course::Answer(answer())
            }
        }
    }
}

/// What is kept of a write.
fn wanted(request: &Request, body: &[u8]) -> WantedWrite {
    let mut url = request.shown_url();
    if let Some(query) = &request.query {
        url = format!("{url}?{}", shown_query(query));
    }
    let kept = body.get(..LONGEST_BODY).unwrap_or(body);
    let (body, body_size) = (Bytes::copy_from_slice(kept), body.len());
    WantedWrite { method: request.method.to_string(), url, body, body_size }
}

/// A query without what may be a secret.
fn shown_query(query: &str) -> String {
    let mut shown = query.split('&').map(shown_pair).collect::<Vec<_>>().join("&");
    if shown.len() > LONGEST_QUERY {
        shown.truncate(shown.floor_char_boundary(LONGEST_QUERY));
        shown.push('…');
    }
    shown
}

/// A pair of a query. One without a name may be a secret as a whole.
fn shown_pair(pair: &str) -> Cow<'_, str> {
    let Some((name, value)) = pair.split_once('=') else {
        return if pair.len() > LONGEST_VALUE { "…".into() } else { pair.into() };
    };
    let read = form_urlencoded::parse(name.as_bytes()).next().map(|(name, _)| name.to_lowercase());
    let is_sensitive = |name: String| SENSITIVE.iter().any(|part| name.contains(part));
    if value.len() > LONGEST_VALUE || name.len() > LONGEST_VALUE || read.is_none_or(is_sensitive) {
        let name = if name.len() > LONGEST_VALUE { "" } else { name };
        return format!("{name}=…").into();
    }
    pair.into()
}

fn answer() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(ANSWER.as_bytes()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(OWN, HeaderValue::from_static("rehearsal"));
    headers.insert(CONTENT_LENGTH, ANSWER.len().into());
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
    fn a_url_is_kept_without_what_may_be_a_secret() {
        let long = "x".repeat(LONGEST_VALUE + 1);
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
        assert!(url.len() < LONGEST_QUERY + 600 && url.ends_with('…'), "{}", url.len());
    }

    #[test]
    fn of_a_body_the_beginning_is_kept_and_of_many_writes_as_many_as_fit() {
        let rehearsal = Rehearsal::default();
        let (request, body) = (request("https://a.example/b"), vec![b'x'; LONGEST_BODY + 1]);
        for _ in 0..2_000 {
            rehearsal.note(&request, &body);
        }
        let WantedWrites { list, left_out } = rehearsal.take();
        assert_eq!(list.len() + left_out, 2_000);
        assert!((900..1_100).contains(&list.len()), "{}", list.len());
        assert_eq!((list[0].body.len(), list[0].body_size), (LONGEST_BODY, LONGEST_BODY + 1));
        assert_eq!(rehearsal.take(), WantedWrites::default());
        rehearsal.note(&request, b"");
        assert_eq!(rehearsal.take().list.len(), 1, "there is room again");
    }
}
