//! Raw WASI requests that bypass the SDK, and their outcomes.

use pileus_guest::http::BaseUrl;
use schemars::JsonSchema;
use serde::Deserialize;
use wasip2::clocks::monotonic_clock::subscribe_duration;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingBody, IncomingResponse, Method, OutgoingBody,
    OutgoingRequest, RequestOptions, Scheme,
};
use wasip2::io::streams::StreamError;

/// A request to try.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Attempt {
    method: String,
    scheme: String,
    authority: String,
    path: String,
    /// Names and values. Those that WASI rejects are left out.
    headers: Vec<(String, String)>,
    /// How often each header is added.
    times: u32,
    /// The chunks of the body.
    body: Vec<String>,
    /// Whether the chunks are sent repeatedly without end.
    endless: bool,
    /// Whether the body ends with trailers.
    trailers: bool,
    /// The timeout of each stage, in nanoseconds.
    timeout: Option<u64>,
    /// The name of the only Node that the request is for. None means all.
    only: Option<String>,
    /// How many bytes of the response's body are read. None means all.
    reads: Option<u64>,
    /// Whether the request is left in flight, instead of waiting for its response.
    leaves: bool,
}

impl Default for Attempt {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            scheme: "http".to_owned(),
            authority: String::new(),
            path: "/".to_owned(),
            headers: Vec::new(),
            times: 1,
            body: Vec::new(),
            endless: false,
            trailers: false,
            timeout: None,
            only: None,
            reads: None,
            leaves: false,
        }
    }
}

/// A request that was handed to the host, and its body.
pub(crate) struct StartedRequest {
    answer: FutureIncomingResponse,
    pub(crate) body: Option<OutgoingBody>,
}

impl Attempt {
    /// A `POST` to a cloud. Only its body matters.
    pub(crate) fn post(cloud: &BaseUrl, name: &str) -> Self {
        let url = cloud.join([name]);
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let [method, scheme, authority, path] = ["POST", scheme, authority, path].map(str::to_owned);
        Self { method, scheme, authority, path, ..Self::default() }
    }

    /// The request for a Node: `NAME` in its path is replaced. A request for another Node isn't sent.
    pub(crate) fn about(&self, name: &str) -> Option<Self> {
        let is_about = self.only.as_ref().is_none_or(|only| only == name);
        is_about.then(|| Self { path: self.path.replace("NAME", name), ..self.clone() })
    }

    /// Tries the request, and returns its status and body, or the error that refused it.
    pub(crate) fn outcome(&self) -> String {
        let begun = match self.begin() {
            Ok(begun) => begun,
            Err(refusal) => return refusal,
        };
        if self.leaves {
            std::mem::forget(begun);
            return "left in flight".to_owned();
        }
        if let Some(body) = begun.body {
            self.send(body);
        }
        match answer(&begun.answer) {
            Ok(response) => match self.read(&response) {
                Ok(bytes) => format!("{} {}", response.status(), String::from_utf8_lossy(&bytes)),
                Err(code) => format!("{code:?}"),
            },
            Err(code) => format!("{code:?}"),
        }
    }

    /// Reads as much of a body as configured.
    fn read(&self, response: &IncomingResponse) -> Result<Vec<u8>, ErrorCode> {
        let Some(wanted) = self.reads else { return read(response) };
        let broken = |()| ErrorCode::InternalError(None);
        let body: IncomingBody = response.consume().map_err(broken)?;
        let stream = body.stream().map_err(broken)?;
        let mut bytes = Vec::new();
        while let Some(left) = wanted.checked_sub(bytes.len() as u64).filter(|left| *left > 0) {
            let Ok(chunk) = stream.blocking_read(left) else { break };
            bytes.extend(chunk);
        }
        Ok(bytes)
    }

    /// Hands the request to the host, without waiting.
    pub(crate) fn begin(&self) -> Result<StartedRequest, String> {
        let fields = Fields::new();
        for (name, value) in self.headers.iter().flat_map(|header| (0..self.times).map(move |_| header)) {
            // A rejected header isn't sent. The test checks what the cloud received.
            let _ignored = fields.append(name, value.as_bytes());
        }
        let head = OutgoingRequest::new(fields);
        let method = match self.method.as_str() {
            "GET" => Method::Get,
            "PUT" => Method::Put,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            other => Method::Other(other.to_owned()),
        };
        let scheme = match self.scheme.as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => Scheme::Other(other.to_owned()),
        };
        head.set_method(&method).map_err(|()| "no such method")?;
        head.set_scheme(Some(&scheme)).map_err(|()| "no such scheme")?;
        head.set_authority(Some(&self.authority)).map_err(|()| "no such authority")?;
        head.set_path_with_query(Some(&self.path)).map_err(|()| "no such path")?;
        let options = self.timeout.map(|timeout| {
            let options = RequestOptions::new();
            let timeout = Some(timeout);
            let _ignored = options.set_connect_timeout(timeout);
            let _ignored = options.set_first_byte_timeout(timeout);
            let _ignored = options.set_between_bytes_timeout(timeout);
            options
        });
        let has_body = !self.body.is_empty() || self.method != "GET";
        let body = has_body.then(|| head.body()).transpose().map_err(|()| "no body")?;
        let answer = outgoing_handler::handle(head, options).map_err(|code| format!("{code:?}"))?;
        Ok(StartedRequest { answer, body })
    }

    /// Writes the body for as long as the host accepts it.
    fn send(&self, body: OutgoingBody) {
        let Ok(stream) = body.write() else { return };
        let mut is_accepted = true;
        while is_accepted {
            is_accepted =
                self.body.iter().all(|chunk| stream.blocking_write_and_flush(chunk.as_bytes()).is_ok());
            if !self.endless {
                break;
            }
        }
        drop(stream);
        let trailers = self.trailers.then(|| {
            let trailers = Fields::new();
            let _ignored = trailers.append("authorization", b"Bearer smuggled");
            trailers
        });
        // If the host rejects the body, the response says why.
        let _ignored = OutgoingBody::finish(body, trailers);
    }

    /// Sends bytes, in chunks that WASI accepts at once.
    pub(crate) fn send_bytes(&self, bytes: &[u8]) -> Result<IncomingResponse, String> {
        let begun = self.begin()?;
        if let Some(body) = begun.body {
            if let Ok(stream) = body.write() {
                let _ignored = bytes.chunks(4096).all(|chunk| stream.blocking_write_and_flush(chunk).is_ok());
            }
            let _ignored = OutgoingBody::finish(body, None);
        }
        answer(&begun.answer).map_err(|code| format!("{code:?}"))
    }
}

/// Opens this number of responses without reading them. Returns how many came.
pub(crate) fn hoard(attempt: &Attempt, wanted: usize) -> usize {
    let begun: Vec<_> = (0..wanted).filter_map(|_| attempt.begin().ok()).collect();
    let answers: Vec<_> = begun.iter().map(|begun| answer(&begun.answer)).collect();
    answers.iter().filter(|answer| answer.is_ok()).count()
}

/// Starts requests, gives them time to leave, and abandons them.
pub(crate) fn abandon(attempts: &[Attempt]) {
    let begun: Vec<_> = attempts.iter().filter_map(|attempt| attempt.begin().ok()).collect();
    let begun: Vec<_> = begun
        .into_iter()
        .map(|StartedRequest { answer, body }| (answer, body.map(|body| OutgoingBody::finish(body, None))))
        .collect();
    subscribe_duration(300_000_000).block();
    drop(begun);
}

fn answer(answer: &FutureIncomingResponse) -> Result<IncomingResponse, ErrorCode> {
    loop {
        match answer.get() {
            Some(Ok(response)) => return response,
            Some(Err(())) => return Err(ErrorCode::InternalError(None)),
            None => answer.subscribe().block(),
        }
    }
}

/// The whole body of a response.
pub(crate) fn read(response: &IncomingResponse) -> Result<Vec<u8>, ErrorCode> {
    let broken = |()| ErrorCode::InternalError(None);
    let body: IncomingBody = response.consume().map_err(broken)?;
    let stream = body.stream().map_err(broken)?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(chunk) => bytes.extend(chunk),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                return Err(code.unwrap_or(ErrorCode::InternalError(None)));
            }
        }
    }
}
