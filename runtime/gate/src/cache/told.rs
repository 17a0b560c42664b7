//! What a read is answered with, and how that is counted.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Response, StatusCode};

use crate::cache::slot::Page;
use crate::cache::stored::Reply;
use crate::headers::OWN;
use crate::limits::HeldBack;
use crate::recent::Source;

// What became of a request that the cloud wasn't asked for, as the `result` label in metrics says it.
const CACHED: &str = "cached";
const SHARED: &str = "shared";
pub(super) const REVALIDATED: &str = "revalidated";
const NOT_CACHED: &str = "not_cached";

/// What a read is answered with.
#[derive(Debug)]
pub(crate) enum Told {
    /// With this; whose it is, and the `result` label in metrics.
    Response(Response<Bytes>, Source, &'static str),
    /// With the refusal that the exchange got.
    HeldBack(HeldBack),
}

impl Told {
    /// With what is kept, which was asked for so long ago.
    pub(super) fn kept(page: &Page, age: Duration) -> Self {
        Self::Response(response(&page.stored.unpack().aged(age)), Source::Cache, CACHED)
    }

    /// With what the cloud answered to several.
    pub(super) fn shared(reply: &Reply) -> Self {
        Self::Response(response(reply), Source::Shared, SHARED)
    }

    /// With nothing, since that is better than to ask the cloud.
    pub(crate) fn nothing() -> Self {
        Self::Response(not_cached(), Source::Gate, NOT_CACHED)
    }
}

fn response(reply: &Reply) -> Response<Bytes> {
    let Reply { status, headers, body } = reply;
    let mut response = Response::new(body.clone());
    *response.status_mut() = *status;
    *response.headers_mut() = headers.clone();
    response
}

/// What a provider is told that would rather have nothing than ask the cloud.
fn not_cached() -> Response<Bytes> {
    let body = "not sent to the cloud: it was asked for from the cache only, and isn't there\n";
    let mut response = Response::new(Bytes::from_static(body.as_bytes()));
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response.headers_mut().insert(CONTENT_LENGTH, body.len().into());
    response.headers_mut().insert(OWN, HeaderValue::from_static("reason=not_cached"));
    response
}
