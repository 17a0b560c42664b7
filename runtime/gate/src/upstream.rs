//! The upstream of a request: the grant that allows it, and the connections under that grant. What the cloud answers teaches
//! the limits before its caller sees it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::body::CloudBody;
use crate::cpu_account::CpuAccount;
use crate::deadlines::Deadlines;
use crate::dial::{Dialer, Timeouts};
use crate::echo::{EchoDetector, NeedleSet};
use crate::error::{Error, Phase};
use crate::fence::{Fence, FencedBody};
use crate::grants::Grant;
use crate::limits::Permit;
use crate::network::Network;
use crate::refusals::{HeadReading, MAX_SEARCHED, RefusalMeaning, Refusals, ResponseHead};
use crate::request::{Host, Request};

/// How long the beginning of a refusal's body is waited for. Servers send it together with the head; the response of one that
/// doesn't is passed on then, and its status alone counts.
const MAX_READ_AHEAD: Duration = Duration::from_millis(250);

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

/// A response of the cloud, whose body still comes.
#[derive(Debug)]
pub(crate) struct CloudResponse {
    pub(crate) head: http::response::Parts,
    pub(crate) body: CloudBody,
    /// What it means, if it is a refusal whose meaning the provider declares.
    pub(crate) meaning: Option<RefusalMeaning>,
}

/// Finds out what refusals mean.
#[derive(Debug)]
pub(crate) struct RefusalReader {
    pub(crate) refusals: Arc<Refusals>,
    /// Find the credentials of the request.
    pub(crate) needles: Option<NeedleSet>,
    /// Whom the reading of bodies is charged to, unless its caller measures the exchange.
    pub(crate) account: Option<CpuAccount>,
}

impl RefusalReader {
    /// Finds out what a response means. Where the body may have the code, it waits a moment for the beginning.
    async fn read(
        &self,
        host: &Host,
        response: http::Response<Incoming>,
        deadlines: &Deadlines,
    ) -> CloudResponse {
        let (head, incoming) = response.into_parts();
        let mut body = CloudBody::new(incoming);
        let shown = ResponseHead { host, status: head.status, headers: &head.headers };
        let meaning = match self.refusals.by_head(shown) {
            HeadReading::Known(meaning) => self.checked(meaning, &head.headers, &[]),
            HeadReading::InBody => {
                let now = Instant::now();
                let until = now + deadlines.clamp(Some(MAX_READ_AHEAD), now);
                // Boxed, since hardly any response has to be read.
                Box::pin(body.read_ahead(MAX_SEARCHED, until)).await;
                let search = || {
                    let begin = body.begin();
                    self.checked(self.refusals.by_body(shown, &begin), &head.headers, &begin)
                };
                self.account.as_ref().map_or_else(search, |account| account.run(search))
            }
        };
        CloudResponse { head, body, meaning }
    }

    /// The meaning, unless the response shows a credential: the provider chose the codes, and what closes tells it which one
    /// fits.
    fn checked(
        &self,
        meaning: Option<RefusalMeaning>,
        headers: &HeaderMap,
        begin: &[u8],
    ) -> Option<RefusalMeaning> {
        meaning.filter(|_| {
            let mut echo = EchoDetector::new(self.needles.clone());
            !echo.is_in(headers) && !echo.shows(Some(begin)) && !echo.shows(None)
        })
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

    /// Sends a request and waits for the head of the response and for what it means, which teaches the limits. The future
    /// borrows nothing, so that it can outlive the caller.
    pub(crate) fn exchange(
        &self,
        host: &Host,
        outgoing: http::Request<FencedBody<Full<Bytes>>>,
        deadlines: Deadlines,
        mut permit: Permit,
        reader: RefusalReader,
    ) -> impl Future<Output = Result<CloudResponse, Error>> + Send + use<> {
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
            match answer.map_err(late).flatten() {
                Ok(answer) => {
                    let response = reader.read(&host, answer, &deadlines).await;
                    permit.on_answer(response.head.status, &response.head.headers, response.meaning);
                    Ok(response)
                }
                Err(error) => {
                    permit.on_failure(&error);
                    Err(error)
                }
            }
        }
    }
}
