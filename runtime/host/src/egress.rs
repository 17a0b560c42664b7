//! The only network egress of a sandbox: sends each `wasi:http` request of a guest through the gate.
//!
//! The HTTP client that wasmtime could provide is not compiled in, so no request can bypass the gate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::{StatusCode, Uri};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use pileus_gate::{CpuAccount, Deadlines, Error, Gate, MemoryCharge, MemoryExcess, Phase, Replies};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use wasmtime_wasi_http::{Error as WasiError, RequestOptions, WasiBody, WasiHttpHooks};

use crate::limits::{BODY_CHUNK_BYTES, HEAD_OVERHEAD, MAX_REQUESTS_IN_FLIGHT};
use crate::sanitize::{sanitize, truncate};
use crate::unanswered::UnansweredRequests;

/// The requests that a call was denied, for the error that the operator sees. The guest sees only an error code, so the
/// gate's message, which says what to grant, takes this way. Clones share one record.
#[derive(Clone, Default)]
pub(crate) struct Denials {
    denied: Arc<DenialRecord>,
    /// The requests without an answer in time, of which the guest sees only that its time is up.
    pub(crate) unanswered: UnansweredRequests,
}

#[derive(Default)]
struct DenialRecord {
    first: OnceLock<DeniedRequest>,
    /// The cloud refused a request too.
    by_cloud: AtomicBool,
    /// A request whose method may change something was answered.
    has_answered_change: AtomicBool,
}

/// A request that the gate or the host denied.
struct DeniedRequest {
    url: String,
    reason: String,
}

impl Denials {
    /// Which request was denied first, and why.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.denied.first.get().map(|denied| denied.reason.as_str())
    }

    /// The same as an explanation of a provider's error with this message. `None` where the error may come from the cloud.
    pub(crate) fn explain(&self, message: &str) -> Option<&str> {
        let is_ours = |url: &str| message.contains(url) || !self.denied.by_cloud.load(Ordering::Relaxed);
        self.denied.first.get().filter(|denied| is_ours(&denied.url)).map(|denied| denied.reason.as_str())
    }

    /// Records a denial. Returns whether it is the first.
    fn record_denied(&self, url: String, reason: String) -> bool {
        self.denied.first.set(DeniedRequest { url, reason }).is_ok()
    }

    /// Records a response. `is_safe` says that the method of the request changes nothing.
    fn record_response(&self, is_safe: bool, status: StatusCode) {
        self.denied.has_answered_change.fetch_or(!is_safe, Ordering::Relaxed);
        if matches!(status.as_u16(), 401 | 403 | 407) {
            self.denied.by_cloud.store(true, Ordering::Relaxed);
        }
    }
}

/// Sends the requests of one call to the gate.
pub(crate) struct Egress {
    /// `None` for a function that must not use the network: all its requests are denied.
    gate: Option<Gate>,
    denials: Denials,
    replies: Replies,
    /// What the guest has built of requests that it hasn't sent: heads, and the buffers of bodies.
    unsent: MemoryCharge,
    /// The heads of responses, which the guest may keep longer than their bodies.
    received: Arc<Mutex<MemoryCharge>>,
    /// The function that is called, for the log.
    function: &'static str,
    /// Bounds what the host holds for a guest by its requests in flight, not by the handles that it opens.
    in_flight: Arc<Semaphore>,
    /// After it, no new request is sent.
    soft_deadline: Instant,
    /// After it, no response is waited for. It is halfway between the deadlines of the call. So a request that was sent in
    /// time has its chance, and the guest has time left to answer, regardless of how its library handles deadlines.
    response_deadline: Instant,
    /// Is charged for what the host does for the requests.
    account: CpuAccount,
}

impl Egress {
    /// `deadlines` are the soft and the hard deadline of the call.
    pub(crate) fn new(
        gate: Option<Gate>,
        (denials, replies): (Denials, Replies),
        unsent: MemoryCharge,
        function: &'static str,
        deadlines: [Instant; 2],
        account: CpuAccount,
    ) -> Self {
        let [soft, hard] = deadlines;
        let response_deadline = soft + hard.saturating_duration_since(soft) / 2;
        let in_flight = Arc::new(Semaphore::new(MAX_REQUESTS_IN_FLIGHT));
        let gate = gate.map(|gate| gate.with_account(account.clone()));
        let mut unsent = unsent;
        let received = Arc::new(Mutex::new(unsent.split(0)));
        Self {
            gate,
            denials,
            replies,
            unsent,
            received,
            function,
            in_flight,
            soft_deadline: soft,
            response_deadline,
            account,
        }
    }

    /// Counts a part of a request that the guest builds, until it is sent or the call ends.
    ///
    /// # Errors
    /// [`MemoryExcess`], and the call ends.
    pub(crate) fn charge_head(&mut self, bytes: usize) -> Result<(), MemoryExcess> {
        self.unsent.grow(bytes)
    }

    /// Whether the cloud has changed something for the call. A poll of an operation or a POST that reads alone hasn't.
    pub(crate) fn has_written(&self) -> bool {
        self.denials.denied.has_answered_change.load(Ordering::Relaxed) && self.replies.counts().changed > 0
    }

    fn deadlines(&self, options: Option<RequestOptions>) -> Deadlines {
        let options = options.unwrap_or_default();
        Deadlines {
            soft: self.soft_deadline,
            hard: self.response_deadline,
            connect: options.connect_timeout,
            first_byte: options.first_byte_timeout,
            between_bytes: options.between_bytes_timeout,
        }
    }
}

/// Resolves when a request is processed, as wasmtime wants it for WASI 0.3.
type Processed = Box<dyn Future<Output = Result<(), WasiError>> + Send>;

impl WasiHttpHooks for Egress {
    /// Called for each body that the guest opens. A refused charge ends the call.
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        let _ends_the_call = self.charge_head(BODY_BUFFER_BYTES);
        BODY_CHUNK_BYTES
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Processed, // for WASI 0.3, where a guest reports how it processed the response
    ) -> Box<dyn Future<Output = Result<(http::Response<WasiBody>, Processed), WasiError>> + Send> {
        let (gate, denials) = (self.gate.clone(), self.denials.clone());
        // Now, since the task that sends it may not have run when the call ends.
        let expected = self.replies.expect();
        let (sent, received) = (self.unsent.split(head_bytes(&request)), Arc::clone(&self.received));
        let in_flight = Arc::clone(&self.in_flight);
        let (function, deadlines) = (self.function, self.deadlines(options));
        let send = async move {
            let sent = sent;
            let url = redacted(request.uri());
            let Some(gate) = gate else {
                let method = truncate(request.method().as_str(), MAX_SHOWN_BYTES);
                let reason = format!("{method} {url} is denied: {function} has no network");
                // Once a call: a guest that keeps sending requests would fill the log.
                if denials.record_denied(url, reason.clone()) {
                    tracing::warn!(%reason, "request of a function that has no network denied");
                }
                return Err(WasiError::HttpRequestDenied);
            };
            let permit = timeout_at(deadlines.soft, in_flight.acquire_owned()).await;
            let permit = permit.map_err(|_| to_wasi(&Error::DeadlinePassed))?;
            let permit = permit.map_err(|_| WasiError::ConnectionLimitReached)?;
            expected.arrive();
            let unanswered = denials.unanswered.clone();
            let line = format!("{} {url}", truncate(request.method().as_str(), MAX_SHOWN_BYTES));
            let (begun, is_safe) = (Instant::now(), request.method().is_safe());
            let waits = unanswered.wait_for(line.clone());
            let response = gate.send(request, deadlines).await;
            waits.end();
            let response = response.map_err(|error| {
                unanswered.on_error(&line, begun, &error);
                if is_denial(&error) {
                    denials.record_denied(url, error.to_string());
                }
                to_wasi(&error)
            })?;
            denials.record_response(is_safe, response.status());
            drop(sent);
            // Those of usual size are bounded by the handles. A refused charge ends the call.
            let head = fields_bytes(response.headers()).saturating_sub(USUAL_HEAD_BYTES);
            let _ends_the_call = received.lock().unwrap_or_else(PoisonError::into_inner).grow(head);
            let response = response.map(|body| {
                let body = body.map_err(move |error| {
                    let _until_the_body_is_dropped = &permit;
                    unanswered.on_error(&line, begun, &error);
                    to_wasi(&error)
                });
                body.boxed_unsync()
            });
            // Hyper drives the connection in a task of its own, so nothing is left to do here.
            Ok((response, Box::new(std::future::ready(Ok(()))) as Processed))
        };
        // A task of wasmtime's runs it, so it carries the span of its call along.
        Box::new(self.account.clone().measure(send.in_current_span()))
    }
}

/// Whether the gate denied a request, so that its message says what to change.
fn is_denial(error: &Error) -> bool {
    matches!(error, Error::Denied { .. } | Error::ReadOnly { .. } | Error::AddressBlocked { .. })
}

/// The buffer of a request's body: a chunk that waits, and one that is on its way.
const BODY_BUFFER_BYTES: usize = 2 * BODY_CHUNK_BYTES;

/// The size of a response's head below which it isn't counted, in bytes.
const USUAL_HEAD_BYTES: usize = 4 << 10;

/// What a request was charged when the guest built it, as [`crate::imports`] counts it.
fn head_bytes(request: &http::Request<WasiBody>) -> usize {
    let uri = request.uri();
    let line = request.method().as_str().len()
        + uri.authority().map_or(0, |authority| authority.as_str().len())
        + uri.path_and_query().map_or(0, |path| path.as_str().len());
    let body = if request.body().is_end_stream() { 0 } else { BODY_BUFFER_BYTES };
    line + fields_bytes(request.headers()) + body
}

/// The memory of headers, in bytes.
pub(crate) fn fields_bytes(headers: &http::HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + HEAD_OVERHEAD).sum()
}

/// The longest URL and the longest method that are shown, in bytes: a guest may send 64 KiB.
const MAX_SHOWN_BYTES: usize = 512;

/// The beginning of a URL, sanitized, without a user name and without the query, which may hold a secret.
fn redacted(uri: &Uri) -> String {
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    // Cut before it is read: a guest may name a host of megabytes. The gate refuses such a request.
    let is_short = authority.len() <= MAX_SHOWN_BYTES;
    let host = if is_short { authority.rsplit('@').next().unwrap_or_default() } else { "…" };
    let (scheme, path) = (uri.scheme_str().unwrap_or_default(), truncate(uri.path(), MAX_SHOWN_BYTES));
    sanitize(truncate(&format!("{scheme}://{host}{path}"), MAX_SHOWN_BYTES))
}

/// The error code that the guest sees. The operator sees the whole error in the gate's log and metrics.
fn to_wasi(error: &Error) -> WasiError {
    match error {
        Error::Malformed { .. } => WasiError::HttpRequestUriInvalid,
        Error::Denied { .. } | Error::ReadOnly { .. } => WasiError::HttpRequestDenied,
        Error::AddressBlocked { .. } => WasiError::DestinationIpProhibited,
        Error::HeadersTooLarge { .. } => WasiError::HttpRequestHeaderSectionSize(None),
        Error::BodyTooLarge { .. } => WasiError::HttpRequestBodySize(None),
        Error::Timeout { phase: Phase::Connect, .. } => WasiError::ConnectionTimeout,
        // The guest is also out of time after the soft deadline and while this process shuts down.
        Error::DeadlinePassed | Error::Fenced | Error::Closed | Error::Timeout { .. } => {
            WasiError::HttpResponseTimeout
        }
        Error::Dns { .. } => WasiError::DnsError { rcode: None, info_code: None },
        Error::Connect { .. } => WasiError::ConnectionRefused,
        Error::Proxy { .. } => WasiError::DestinationUnavailable,
        Error::Tls { .. } => WasiError::TlsCertificateError,
        Error::ResponseTooLarge { .. } => WasiError::HttpResponseBodySize(None),
        Error::CredentialEchoed { .. } | Error::Unsearchable { .. } | Error::Protocol { .. } => {
            WasiError::HttpProtocolError
        }
        // A credential fails for reasons of the host's that pass. The others fail a load, and no request returns them.
        Error::Credential { .. }
        | Error::Syntax { .. }
        | Error::Config { .. }
        | Error::Roots { .. }
        | Error::ExtraRoots { .. } => WasiError::ConfigurationError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_explains_its_own_error_and_no_error_that_may_be_the_clouds() {
        let denials = Denials::default();
        assert_eq!(denials.explain("GET http://a.example/x was refused"), None);
        assert!(denials.record_denied("http://a.example/x".to_owned(), "add a grant".to_owned()));
        assert!(!denials.record_denied("http://b.example/".to_owned(), "add another".to_owned()));
        for message in ["GET http://a.example/x was refused", "it was denied"] {
            assert_eq!(denials.explain(message), Some("add a grant"), "{message}");
        }
        denials.record_response(true, StatusCode::NOT_FOUND);
        assert_eq!(denials.explain("it was denied"), Some("add a grant"));
        denials.record_response(true, StatusCode::FORBIDDEN);
        for (message, expected) in [
            ("GET http://a.example/x was refused", Some("add a grant")),
            ("GET http://c.example/ answered 403 Forbidden", None),
            ("it was denied", None),
        ] {
            assert_eq!(denials.explain(message), expected, "{message}");
        }
    }

    #[test]
    fn a_url_is_shown_without_its_query() {
        let uri: Uri = "https://cloud.example:8443/v1/x?token=secret".parse().unwrap();
        assert_eq!(redacted(&uri), "https://cloud.example:8443/v1/x");
    }

    #[test]
    fn a_url_is_shown_without_its_user_and_no_longer_than_the_limit() {
        let uri: Uri = "https://user:secret@cloud.example/v1".parse().unwrap();
        assert_eq!(redacted(&uri), "https://cloud.example/v1");
        let uri: Uri = format!("https://cloud.example/{}", "x".repeat(60_000)).parse().unwrap();
        let shown = redacted(&uri);
        assert!(shown.len() == MAX_SHOWN_BYTES && uri.to_string().starts_with(&shown), "{}", shown.len());
        let authority =
            http::uri::Authority::try_from(format!("user:secret@{}", "x".repeat(16 << 20))).unwrap();
        let uri = Uri::builder().scheme("https").authority(authority).path_and_query("/v1").build().unwrap();
        assert_eq!(redacted(&uri), "https://…/v1");
    }
}
