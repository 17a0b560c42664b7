//! The upstream of a request: the grant that allows it, and the connections under that grant.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::deadlines::Deadlines;
use crate::dial::{Dialer, Timeouts};
use crate::error::{Error, Phase};
use crate::fence::{Fence, FencedBody};
use crate::grants::Grant;
use crate::limits::Permit;
use crate::network::Network;
use crate::request::{Host, Request};

/// A grant and the connections under it, which clones share.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    grant: Arc<Grant>,
    pub(crate) label: Arc<str>,
    dialer: Arc<Dialer>,
}

impl AsRef<Grant> for Upstream {
    fn as_ref(&self) -> &Grant {
        &self.grant
    }
}

/// The request as it is sent.
pub(crate) fn outgoing(
    request: &Request,
    headers: HeaderMap,
    body: Bytes,
) -> Result<http::Request<Bytes>, Error> {
    let mut outgoing = http::Request::new(body);
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = request.uri()?;
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}

/// Puts the request behind a fence.
pub(crate) fn behind(fence: Fence, outgoing: http::Request<Bytes>) -> http::Request<FencedBody<Full<Bytes>>> {
    // The HTTP library announces no length for an empty body, and some clouds answer that with 411.
    let wants_length = matches!(*outgoing.method(), Method::POST | Method::PUT | Method::PATCH);
    outgoing.map(|body| {
        let fenced = FencedBody::new(Full::new(body), fence);
        if wants_length { fenced.with_length() } else { fenced }
    })
}

impl Upstream {
    pub(crate) fn new(grant: Grant, network: Arc<Network>) -> Self {
        let (label, grant) = (grant.label().into(), Arc::new(grant));
        Self { dialer: Arc::new(Dialer::new(Arc::clone(&grant), network)), grant, label }
    }

    /// Sends a request and waits for the head of the response, which teaches the limits. The future borrows nothing, so that
    /// it can outlive the caller.
    pub(crate) fn exchange(
        &self,
        host: &Host,
        outgoing: http::Request<FencedBody<Full<Bytes>>>,
        deadlines: Deadlines,
        mut permit: Permit,
    ) -> impl Future<Output = Result<http::Response<Incoming>, Error>> + Send + use<> {
        let (dialer, host) = (Arc::clone(&self.dialer), host.clone());
        async move {
            let now = Instant::now();
            let timeouts = Timeouts {
                connect: deadlines.clamp(deadlines.connect, now),
                first_byte: deadlines.clamp(deadlines.first_byte, now),
            };
            permit.on_sending();
            let answer = timeout_at(deadlines.hard, dialer.send(&host, outgoing, timeouts)).await;
            let after = deadlines.hard.saturating_duration_since(now);
            let late = |_| Error::Timeout { phase: Phase::Call, host: host.to_string(), after };
            let answer = answer.map_err(late).flatten();
            match &answer {
                Ok(answer) => permit.on_answer(answer.status(), answer.headers()),
                Err(error) => permit.on_failure(error),
            }
            answer
        }
    }
}
