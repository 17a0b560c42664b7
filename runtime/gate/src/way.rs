//! The way of a request that was decided on: under its grant, over that grant's connections, to the head of the answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::{
    body::{self, Bounds},
    deadlines::Deadlines,
    dial::{Dialler, Patience},
    echo::Echo,
    error::{Error, Phase},
    fence::{Fence, Fenced},
    grants::Grant,
    headers,
    limits::Permit,
    network::Network,
    record::Record,
    request::{Host, Request},
};

/// A grant and the connections under it, which clones share.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    grant: Arc<Grant>,
    pub(crate) label: Arc<str>,
    dialler: Arc<Dialler>,
}

impl AsRef<Grant> for Way {
    fn as_ref(&self) -> &Grant {
        &self.grant
    }
}

/// The head of an answer, and what its body needs.
pub(crate) struct Answered {
    pub(crate) head: http::response::Parts,
    pub(crate) incoming: Incoming,
    pub(crate) bounds: Bounds,
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

/// The request behind a fence.
pub(crate) fn behind(fence: Fence, outgoing: http::Request<Bytes>) -> http::Request<Fenced<Full<Bytes>>> {
    // The HTTP library names no length for an empty body, and some clouds answer 411 then.
    let wants_length = matches!(*outgoing.method(), Method::POST | Method::PUT | Method::PATCH);
    outgoing.map(|body| {
        let fenced = Fenced::new(Full::new(body), fence);
        if wants_length { fenced.with_length() } else { fenced }
    })
}

impl Way {
    pub(crate) fn new(grant: Grant, network: Arc<Network>) -> Self {
        let (label, grant) = (grant.label().into(), Arc::new(grant));
        Self { dialler: Arc::new(Dialler::new(grant.clone(), network)), grant, label }
    }

    /// Sends what was decided on and waits for the head of the answer. Nothing of it is borrowed, so that it can outlive
    /// whoever asked for it.
    pub(crate) fn exchange(
        &self,
        host: &Host,
        outgoing: http::Request<Fenced<Full<Bytes>>>,
        deadlines: Deadlines,
        mut permit: Permit,
    ) -> impl Future<Output = Result<http::Response<Incoming>, Error>> + Send + use<> {
        let (dialler, host) = (self.dialler.clone(), host.clone());
        async move {
            let now = Instant::now();
            let patience = Patience {
                connect: deadlines.clamp(deadlines.connect, now),
                first_byte: deadlines.clamp(deadlines.first_byte, now),
            };
            permit.on_sending();
            let answer = timeout_at(deadlines.hard, dialler.send(&host, outgoing, patience)).await;
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

/// Takes the head of an answer.
pub(crate) fn answered(
    host: &Host,
    answer: http::Response<Incoming>,
    echo: Echo,
    deadlines: Deadlines,
    record: &mut Record,
) -> Result<Answered, Error> {
    let host = host.to_string();
    let (mut head, incoming) = answer.into_parts();
    if incoming.size_hint().lower() > body::MOST_RECEIVED {
        return Err(body::body_too_large(&host, body::MOST_RECEIVED));
    }
    let (headers, stripped) = headers::edit_response(head.headers);
    if echo.is_in(&headers) {
        return Err(Error::Echo { host });
    }
    head.headers = headers;
    // The HTTP library leaves handles of the connection here, which would outlive the body.
    head.extensions = http::Extensions::new();
    record.stripped += stripped;
    let between = deadlines.clamp(deadlines.between_bytes, Instant::now());
    let bounds = Bounds { host, bytes: body::MOST_RECEIVED, between, hard: deadlines.hard, echo };
    Ok(Answered { head, incoming, bounds })
}
