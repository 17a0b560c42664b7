//! The one way out of a sandbox: every `wasi:http` request of a guest is handed to the gate.
//!
//! The client that wasmtime could bring is not compiled in, so there is none that could pass the gate by.

use std::sync::{Arc, OnceLock};

use http_body_util::BodyExt as _;
use pileus_gate::{Deadlines, Error, Gate, Phase};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use wasmtime_wasi_http::{Error as WasiError, RequestOptions, WasiBody, WasiHttpHooks};

use crate::limits::{BODY_CHUNK, REQUESTS};
use crate::sandbox::Call;

/// The first request of a call that was denied, in the gate's words: what the operator should grant. The guest gets to
/// see no more than a code, so this is how the sentence reaches the error that the operator sees.
#[derive(Clone, Default)]
pub(crate) struct Denial(Arc<OnceLock<String>>);

impl Denial {
    pub(crate) fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// A guest's requests, on their way to the gate.
pub(crate) struct Egress {
    /// None where the function has no business with the network; then every request is denied.
    gate: Option<Gate>,
    denial: Denial,
    /// What the host holds for a guest is bounded by what it has under way, not by how many handles it opens.
    under_way: Arc<Semaphore>,
    /// Past it nothing new is sent.
    soft: Instant,
    /// Past it no answer is waited for. Halfway between the deadlines of the call: what was asked in time has its chance,
    /// and the guest has time left to say what it knows, whatever its library does about deadlines.
    cut: Instant,
}

impl Egress {
    pub(crate) fn new(gate: Option<Gate>, denial: Denial, call: &Call) -> Self {
        let under_way = Arc::new(Semaphore::new(REQUESTS));
        let cut = call.soft + call.hard.saturating_duration_since(call.soft) / 2;
        Self { gate, denial, under_way, soft: call.soft, cut }
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
        let deadlines = self.deadlines(options);
        Box::new(async move {
            let gate = gate.ok_or(WasiError::HttpRequestDenied)?;
            let turn = timeout_at(deadlines.soft, under_way.acquire_owned()).await;
            let turn = turn.map_err(|_| to_wasi(&Error::DeadlinePassed))?;
            let turn = turn.map_err(|_| WasiError::ConnectionLimitReached)?;
            let response = gate.send(request, deadlines).await.map_err(|error| {
                if matches!(error, Error::Denied { .. } | Error::AddressBlocked { .. }) {
                    let _first = denial.0.set(error.to_string());
                }
                to_wasi(&error)
            })?;
            let response = response.map(|body| {
                let body = body.map_err(move |error| {
                    let _until_the_body_is_dropped = &turn;
                    to_wasi(&error)
                });
                body.boxed_unsync()
            });
            // Hyper drives the connection in its own task, so nothing is left to do here.
            Ok((response, Box::new(std::future::ready(Ok(()))) as Finished))
        })
    }
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
        Error::Tls { .. } => WasiError::TlsCertificateError,
        Error::ResponseTooLarge { .. } => WasiError::HttpResponseBodySize(None),
        Error::Protocol { .. } => WasiError::HttpProtocolError,
        // Both end a load; no request brings them.
        Error::Syntax { .. } | Error::Roots { .. } => WasiError::ConfigurationError,
    }
}
