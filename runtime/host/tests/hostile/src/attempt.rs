//! Requests as raw as WASI lets a guest make them, behind the SDK's back, and what became of them.

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

/// A request that is tried.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Attempt {
    method: String,
    scheme: String,
    authority: String,
    path: String,
    /// Names and values; one that WASI refuses is left out.
    headers: Vec<(String, String)>,
    /// How often each header is added.
    times: u32,
    /// A body of these pieces.
    body: Vec<String>,
    /// Whether the pieces are sent again and again.
    endless: bool,
    /// Whether the body ends with trailers.
    trailers: bool,
    /// How long each stage may take, in nanoseconds.
    timeout: Option<u64>,
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
        }
    }
}

/// A request that was handed over, and the body that goes with it.
pub(crate) struct Begun {
    answer: FutureIncomingResponse,
    body: Option<OutgoingBody>,
}

impl Attempt {
    /// A `PUT` of bytes to a cloud, where the body is all that counts.
    pub(crate) fn put(cloud: &BaseUrl, name: &str) -> Self {
        let url = cloud.join([name]);
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let [method, scheme, authority, path] = ["PUT", scheme, authority, path].map(str::to_owned);
        Self { method, scheme, authority, path, ..Self::default() }
    }

    /// Tries it, and says how it ended: with a status, or with what refused it.
    pub(crate) fn outcome(&self) -> String {
        let begun = match self.begin() {
            Ok(begun) => begun,
            Err(refusal) => return refusal,
        };
        if let Some(body) = begun.body {
            self.send(body);
        }
        match answer(&begun.answer) {
            Ok(response) => match read(&response) {
                Ok(bytes) => format!("{} {}", response.status(), String::from_utf8_lossy(&bytes)),
                Err(code) => format!("{code:?}"),
            },
            Err(code) => format!("{code:?}"),
        }
    }

    /// Hands it over, and waits for nothing.
    pub(crate) fn begin(&self) -> Result<Begun, String> {
        let fields = Fields::new();
        for (name, value) in self.headers.iter().flat_map(|header| (0..self.times).map(move |_| header)) {
            // What isn't there can't be sent; the cloud sees what was.
            let _refusal = fields.append(name, value.as_bytes());
        }
        let head = OutgoingRequest::new(fields);
        let method = match self.method.as_str() {
            "GET" => Method::Get,
            "PUT" => Method::Put,
            "POST" => Method::Post,
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
            let wish = Some(timeout);
            let _taken = options.set_connect_timeout(wish);
            let _taken = options.set_first_byte_timeout(wish);
            let _taken = options.set_between_bytes_timeout(wish);
            options
        });
        let has_body = !self.body.is_empty() || self.method != "GET";
        let body = has_body.then(|| head.body()).transpose().map_err(|()| "no body")?;
        let answer = outgoing_handler::handle(head, options).map_err(|code| format!("{code:?}"))?;
        Ok(Begun { answer, body })
    }

    /// Writes the body as long as anybody takes it.
    fn send(&self, body: OutgoingBody) {
        let Ok(stream) = body.write() else { return };
        let mut is_taken = true;
        while is_taken {
            is_taken =
                self.body.iter().all(|piece| stream.blocking_write_and_flush(piece.as_bytes()).is_ok());
            if !self.endless {
                break;
            }
        }
        drop(stream);
        let trailers = self.trailers.then(|| {
            let trailers = Fields::new();
            let _refusal = trailers.append("authorization", b"Bearer smuggled");
            trailers
        });
        // Why it isn't taken stands in the answer.
        let _taken = OutgoingBody::finish(body, trailers);
    }

    /// Sends bytes, in pieces that WASI takes at once.
    pub(crate) fn send_bytes(&self, bytes: &[u8]) -> Result<IncomingResponse, String> {
        let begun = self.begin()?;
        if let Some(body) = begun.body {
            if let Ok(stream) = body.write() {
                let _taken = bytes.chunks(4096).all(|piece| stream.blocking_write_and_flush(piece).is_ok());
            }
            let _taken = OutgoingBody::finish(body, None);
        }
        answer(&begun.answer).map_err(|code| format!("{code:?}"))
    }
}

/// Opens answers, so many of them, and reads none. The number that came.
pub(crate) fn hoard(attempt: &Attempt, wanted: usize) -> usize {
    let begun: Vec<_> = (0..wanted).filter_map(|_| attempt.begin().ok()).collect();
    let answers: Vec<_> = begun.iter().map(|begun| answer(&begun.answer)).collect();
    answers.iter().filter(|answer| answer.is_ok()).count()
}

/// Begins requests and leaves them alone, once they had the time to leave.
pub(crate) fn abandon(attempts: &[Attempt]) {
    let begun: Vec<_> = attempts.iter().filter_map(|attempt| attempt.begin().ok()).collect();
    let begun: Vec<_> = begun
        .into_iter()
        .map(|Begun { answer, body }| (answer, body.map(|body| OutgoingBody::finish(body, None))))
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

/// The whole body of an answer.
pub(crate) fn read(response: &IncomingResponse) -> Result<Vec<u8>, ErrorCode> {
    let broken = |()| ErrorCode::InternalError(None);
    let body: IncomingBody = response.consume().map_err(broken)?;
    let stream = body.stream().map_err(broken)?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(piece) => bytes.extend(piece),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                return Err(code.unwrap_or(ErrorCode::InternalError(None)));
            }
        }
    }
}
