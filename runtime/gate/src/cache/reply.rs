//! The responses that come from the cache.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, StatusCode};

use crate::cache::slot::Page;
use crate::cache::stored::WholeResponse;
use crate::headers::GATE_HEADER;
use crate::recent::Source;
use crate::response::Response;

/// A response from the cache that was requested this long ago.
pub(super) fn cached(page: &Page, age: Duration) -> Response {
    from_reply(Source::Cache, &page.stored.unpack().aged(age))
}

/// A response that several requests get.
pub(super) fn from_reply(from: Source, reply: &WholeResponse) -> Response {
    let WholeResponse { status, headers, body, meaning } = reply;
    let mut response = http::Response::new(body.clone());
    *response.status_mut() = *status;
    *response.headers_mut() = headers.clone();
    Response { meaning: *meaning, ..Response::whole(from, response) }
}

/// The response to a request that wants a cached response only, if the cache has no answer.
pub(crate) fn not_cached() -> Response {
    let body = "not sent to the cloud: the request has only-if-cached and its answer is not in the cache\n";
    let mut response = http::Response::new(Bytes::from_static(body.as_bytes()));
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response.headers_mut().insert(CONTENT_LENGTH, body.len().into());
    response.headers_mut().insert(GATE_HEADER, HeaderValue::from_static("reason=not_cached"));
    Response::whole(Source::NotCached, response)
}
