//! The one way out of a sandbox: every `wasi:http` request of a guest is handed to the gate.
//!
//! The client that wasmtime could bring is not compiled in, so there is none that could pass the gate by.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use http::{StatusCode, Uri};
use http_body_util::BodyExt as _;
use pileus_gate::{Deadlines, Error, Gate, Phase};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;
use wasmtime_wasi_http::{Error as WasiError, RequestOptions, WasiBody, WasiHttpHooks};

use crate::limits::{BODY_CHUNK, REQUESTS};
use crate::one_line::one_line;
use crate::sandbox::Call;

/// What a call was refused, for the error that the operator sees: the guest gets to see no more than a code, so this is how
/// the gate's sentence about what to grant reaches it. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Denial(Arc<Refusals>);

#[derive(Default)]
struct Refusals {
    first: OnceLock<Denied>,
    /// The cloud refused something too.
    by_cloud: AtomicBool,
}

/// A request that was denied here.
struct Denied {
    url: String,
    reason: String,
}

impl Denial {
    /// What was denied first, and why.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.0.first.get().map(|denied| denied.reason.as_str())
    }

    /// The same as an explanation of a provider's error that something was denied: none where that may have been the
    /// cloud's doing.
    pub(crate) fn explains(&self, message: &str) -> Option<&str> {
        let is_ours = |url: &str| message.contains(url) || !self.0.by_cloud.load(Ordering::Relaxed);
        self.0.first.get().filter(|denied| is_ours(&denied.url)).map(|denied| denied.reason.as_str())
    }

    /// Notes a denial. Says whether it is the first.
    fn denied(&self, url: String, reason: String) -> bool {
        self.0.first.set(Denied { url, reason }).is_ok()
    }

    fn answered(&self, status: StatusCode) {
        if matches!(status.as_u16(), 401 | 403 | 407) {
            self.0.by_cloud.store(true, Ordering::Relaxed);
        }
    }
}

/// A guest's requests, on their way to the gate.
pub(crate) struct Egress {
    /// None where the function has no business with the network; then every request is denied.
    gate: Option<Gate>,
    denial: Denial,
    /// The function that is called, for the log.
    function: &'static str,
    /// What the host holds for a guest is bounded by what it has under way, not by how many handles it opens.
    under_way: Arc<Semaphore>,
    /// Past it nothing new is sent.
    soft: Instant,
    /// Past it no answer is waited for. Halfway between the deadlines of the call: what was asked in time has its chance,
    /// and the guest has time left to say what it knows, whatever its library does about deadlines.
    cut: Instant,
}

impl Egress {
    pub(crate) fn new(gate: Option<Gate>, denial: Denial, function: &'static str, call: &Call) -> Self {
        let under_way = Arc::new(Semaphore::new(REQUESTS));
        let cut = call.soft + call.hard.saturating_duration_since(call.soft) / 2;
        Self { gate, denial, function, under_way, soft: call.soft, cut }
    }

    fn deadlines(&self, options: Option<RequestOptions>) -> Deadlines {
        let options = options.unwrap_or_default();
        Deadlines {
            soft: self.soft,
            hard: self.cut,
            connect: options.connect_timeout,
            first_byte: options.first_byte_timeout,
            between_bytes: options.between_bytes_timeout,
        }
    }
}

type Finished = Box<dyn Future<Output = Result<(), WasiError>> + Send>;

impl WasiHttpHooks for Egress {
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Finished, // for WASI 0.3, where a guest reports how it fared with the response
    ) -> Box<dyn Future<Output = Result<(http::Response<WasiBody>, Finished), WasiError>> + Send> {
        let (gate, denial) = (self.gate.clone(), self.denial.clone());
        let under_way = Arc::clone(&self.under_way);
        let (function, deadlines) = (self.function, self.deadlines(options));
        let send = async move {
            let url = shown(request.uri());
            let Some(gate) = gate else {
                let method = request.method().as_str();
                let method = method.get(..method.floor_char_boundary(LONGEST_SHOWN)).unwrap_or_default();
                let reason = format!("{method} {url} is denied: {function} has no network");
                // Once a call: a guest that goes on asking would fill the log.
                if denial.denied(url, reason.clone()) {
                    tracing::warn!(%reason, "the provider asks for what the contract rules out");
                }
                return Err(WasiError::HttpRequestDenied);
            };
            let turn = timeout_at(deadlines.soft, under_way.acquire_owned()).await;
            let turn = turn.map_err(|_| to_wasi(&Error::DeadlinePassed))?;
            let turn = turn.map_err(|_| WasiError::ConnectionLimitReached)?;
            let response = gate.send(request, deadlines).await.map_err(|error| {
                if matches!(error, Error::Denied { .. } | Error::AddressBlocked { .. }) {
                    denial.denied(url, error.to_string());
                }
                to_wasi(&error)
            })?;
            denial.answered(response.status());
            let response = response.map(|body| {
                let body = body.map_err(move |error| {
                    let _until_the_body_is_dropped = &turn;
                    to_wasi(&error)
                });
                body.boxed_unsync()
            });
            // Hyper drives the connection in its own task, so nothing is left to do here.
            Ok((response, Box::new(std::future::ready(Ok(()))) as Finished))
        };
        // It is run by a task of wasmtime's.
        Box::new(send.in_current_span())
    }
}

/// The longest URL and the longest method that are shown, in bytes: a guest may send 64 KiB.
const LONGEST_SHOWN: usize = 512;

/// The beginning of a URL without a user name and its query, which may hold a secret, on one line.
fn shown(uri: &Uri) -> String {
    let (scheme, authority) = (uri.scheme_str().unwrap_or_default(), uri.authority());
    let place = authority.and_then(|authority| authority.as_str().rsplit('@').next()).unwrap_or_default();
    let mut url = format!("{scheme}://{place}{}", uri.path());
    url.truncate(url.floor_char_boundary(LONGEST_SHOWN));
    one_line(&url)
}

/// What the guest gets to see of an error. The operator sees all of it in the gate's log and metrics.
fn to_wasi(error: &Error) -> WasiError {
    match error {
        Error::Malformed { .. } => WasiError::HttpRequestUriInvalid,
        Error::Denied { .. } => WasiError::HttpRequestDenied,
        Error::AddressBlocked { .. } => WasiError::DestinationIpProhibited,
        Error::HeadersTooLarge { .. } => WasiError::HttpRequestHeaderSectionSize(None),
        Error::BodyTooLarge { .. } => WasiError::HttpRequestBodySize(None),
        Error::Timeout { phase: Phase::Connect, .. } => WasiError::ConnectionTimeout,
        // The soft deadline and the end of this process, too: to the guest, time is up.
        Error::DeadlinePassed | Error::Fenced | Error::Closed | Error::Timeout { .. } => {
            WasiError::HttpResponseTimeout
        }
        Error::Dns { .. } => WasiError::DnsError { rcode: None, info_code: None },
        Error::Connect { .. } => WasiError::ConnectionRefused,
        Error::Proxy { .. } => WasiError::DestinationUnavailable,
        Error::Tls { .. } => WasiError::TlsCertificateError,
        Error::ResponseTooLarge { .. } => WasiError::HttpResponseBodySize(None),
        Error::Echo { .. } | Error::Protocol { .. } => WasiError::HttpProtocolError,
        // The first is the host's affair, and passes; the others end a load, and no request brings them.
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
    fn a_denial_explains_its_own_error_and_none_that_may_be_the_clouds() {
        let denial = Denial::default();
        assert_eq!(denial.explains("GET http://a.example/x was refused"), None);
        assert!(denial.denied("http://a.example/x".to_owned(), "add a grant".to_owned()));
        assert!(!denial.denied("http://b.example/".to_owned(), "add another".to_owned()));
        for message in ["GET http://a.example/x was refused", "it was denied"] {
            assert_eq!(denial.explains(message), Some("add a grant"), "{message}");
        }
        denial.answered(StatusCode::NOT_FOUND);
        assert_eq!(denial.explains("it was denied"), Some("add a grant"));
        denial.answered(StatusCode::FORBIDDEN);
        for (message, expected) in [
            ("GET http://a.example/x was refused", Some("add a grant")),
            ("GET http://c.example/ answered 403 Forbidden", None),
            ("it was denied", None),
        ] {
            assert_eq!(denial.explains(message), expected, "{message}");
        }
    }

    #[test]
    fn a_url_is_shown_without_its_query() {
        let uri: Uri = "https://cloud.example:8443/v1/x?token=secret".parse().unwrap();
        assert_eq!(shown(&uri), "https://cloud.example:8443/v1/x");
    }

    #[test]
    fn a_url_is_shown_without_a_password_and_no_longer_than_a_log_line_may_be() {
        let uri: Uri = "https://user:secret@cloud.example/v1".parse().unwrap();
        assert_eq!(shown(&uri), "https://cloud.example/v1");
        let uri: Uri = format!("https://cloud.example/{}", "x".repeat(60_000)).parse().unwrap();
        let shown = shown(&uri);
        assert!(shown.len() == LONGEST_SHOWN && uri.to_string().starts_with(&shown), "{}", shown.len());
    }
}
