//! One request and its answer, on a connection of its own: a fetch needs a handful, so a pool would keep connections that
//! were checked under other settings for little. Every wait is bounded, and so is what is read.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::Error;
use crate::progress::Progress;
use crate::registry::network::Stream;
use crate::registry::settings::Timeouts;
use crate::registry::target::Target;
use crate::registry::upload::Upload;

/// The head of an answer.
const MAX_HEAD: usize = 32 << 10;
/// An error's body, of which the message shows a part.
const MAX_ERROR: u64 = 16 << 10;
const MAX_SHOWN: usize = 200;

/// What is sent, besides where to.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Is told how much of the body is sent.
    pub(super) progress: Option<Progress>,
}

impl Call {
    pub(super) fn new(method: Method) -> Self {
        Self { method, headers: HeaderMap::new(), body: Bytes::new(), progress: None }
    }

    /// Adds a header.
    pub(super) fn with(mut self, name: http::HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// An answer, whose body still comes.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    /// Drives the connection, and ends with this value.
    _driver: Driver,
    registry: String,
    between_bytes: Duration,
}

struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request on a connection, and waits for the head of the answer.
pub(super) async fn exchange(
    stream: Box<dyn Stream>,
    target: &Target,
    call: Call,
    timeouts: Timeouts,
) -> Result<Answer, Error> {
    let registry = target.origin.authority();
    let broke = |error: hyper::Error| broken(&registry, &error);
    let Call { method, headers, body, progress } = call;
    let upload = Upload::new(body, progress);
    let sent = upload.sent();
    let invalid =
        |_| Error::Protocol { registry: registry.clone(), cause: format!("{target} can't be requested") };
    let host = HeaderValue::from_str(&registry);
    let mut request = Request::builder().method(method).uri(&*target.path).body(upload).map_err(invalid)?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(HOST, host.unwrap_or(HeaderValue::from_static("invalid")));
    request
        .headers_mut()
        .insert(USER_AGENT, HeaderValue::from_static(concat!("pileus/", env!("CARGO_PKG_VERSION"))));
    let builder = http1::Builder::new().max_buf_size(MAX_HEAD).clone();
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let driver = Driver(tokio::spawn(async move {
        // Its error is also that of the request or of the body.
        let _ended = connection.await;
    }));
    let mut answering = pin!(sender.send_request(request));
    let mut before = 0;
    let answer = loop {
        match timeout(timeouts.first_byte, answering.as_mut()).await {
            Ok(answer) => break answer.map_err(broke)?,
            // An answer isn't due while the request is still being sent.
            Err(_) if sent.bytes() > before => before = sent.bytes(),
            Err(_) => {
                let after = timeouts.first_byte;
                return Err(Error::Timeout { registry: registry.clone(), phase: "to answer", after });
            }
        }
    };
    let (head, body) = answer.into_parts();
    let (status, headers) = (head.status, head.headers);
    Ok(Answer { status, headers, body, _driver: driver, registry, between_bytes: timeouts.between_bytes })
}

fn broken(registry: &str, error: &hyper::Error) -> Error {
    if error.is_parse() {
        return Error::Protocol {
            registry: registry.to_owned(),
            cause: format!("its answer is not HTTP: {error}"),
        };
    }
    let cause = std::error::Error::source(error).map_or(String::new(), |source| format!(": {source}"));
    Error::Unreachable { registry: registry.to_owned(), cause: format!("{error}{cause}") }
}

impl Answer {
    /// The next part of the body; `None` at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(frame) = self.frame().await? else { return Ok(None) };
            match frame.into_data() {
                // An empty part is no progress.
                Ok(data) if !data.is_empty() => return Ok(Some(data)),
                _ => {}
            }
        }
    }

    async fn frame(&mut self) -> Result<Option<hyper::body::Frame<Bytes>>, Error> {
        let after = self.between_bytes;
        let late =
            |_| Error::Timeout { registry: self.registry.clone(), phase: "to continue its answer", after };
        let frame = timeout(after, self.body.frame()).await.map_err(late)?;
        frame.transpose().map_err(|error| broken(&self.registry, &error))
    }

    /// The whole body, of at most `limit` bytes.
    pub(super) async fn bytes(mut self, limit: u64, what: &str) -> Result<Vec<u8>, Error> {
        let too_large = || Error::TooLarge { place: format!("{what} of {}", self.registry), limit };
        if self.length().is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > limit {
                return Err(Error::TooLarge { place: format!("{what} of {}", self.registry), limit });
            }
        }
        Ok(bytes)
    }

    /// The announced length of the body.
    pub(super) fn length(&self) -> Option<u64> {
        self.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// A header as text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Turns an answer with an error into one of ours. `request` is method and path.
    pub(super) async fn into_error(self, request: String) -> Error {
        let (status, after) = (self.status.as_u16(), self.retry_after());
        let registry = self.registry.clone();
        Error::Answer { registry, status, request, said: self.said().await, after }
    }

    /// The registry's own words about an error.
    pub(super) async fn said(self) -> Option<String> {
        let bytes = self.bytes(MAX_ERROR, "the error").await.ok()?;
        said(&bytes)
    }

    fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?;
        text.trim().parse().ok().map(Duration::from_secs)
    }
}

/// The first message in an error document of a registry or of a token service.
fn said(bytes: &[u8]) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let first = document.get("errors").and_then(|errors| errors.get(0));
    let text =
        |value: Option<&serde_json::Value>| value.and_then(serde_json::Value::as_str).map(str::to_owned);
    let message = first.and_then(|first| text(first.get("message")).or_else(|| text(first.get("code"))));
    let message = message
        .or_else(|| text(document.get("error_description")))
        .or_else(|| text(document.get("details")))?;
    let shown = message.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(MAX_SHOWN);
    Some(shown.collect())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::registry::target::Origin;

    const PART: u64 = 64 << 10;
    const PARTS: u64 = 16;

    /// Uploads to a registry that reads a part of the body each 20 s, and stops after this many. Returns the answer's status,
    /// and the bytes of which the upload has reported progress.
    async fn upload_slowly(read: u64) -> (Result<u16, Error>, Vec<u64>) {
        let (near, mut far) = tokio::io::duplex(4096);
        tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(far.read_u8().await.unwrap());
            }
            assert!(
                String::from_utf8_lossy(&head).contains(&format!("content-length: {}\r\n", PARTS * PART))
            );
            for _ in 0..read {
                tokio::time::sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut vec![7; 64 << 10]).await.unwrap();
            }
            if read < PARTS {
                std::future::pending::<()>().await;
            }
            far.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        });
        let reported = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&reported);
        let mut call = Call::new(Method::PUT);
        call.body = vec![7; 16 * (64 << 10)].into();
        call.progress = Some(Progress::new(move |done, total| {
            assert_eq!(total, PARTS * PART);
            log.lock().unwrap().push(done);
        }));
        let target = Origin::of_registry("r.example", None).unwrap().at("/v2/p/blobs/uploads/1");
        let answer = exchange(Box::new(near), &target, call, Timeouts::default()).await;
        let reported = reported.lock().unwrap().clone();
        (answer.map(|answer| answer.status.as_u16()), reported)
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_may_take_long_as_long_as_it_goes_on() {
        let (answer, reported) = upload_slowly(PARTS).await;
        assert_eq!(answer.unwrap(), 201);
        assert_eq!(reported, (1..=PARTS).map(|part| part * PART).collect::<Vec<_>>());

        let (answer, reported) = upload_slowly(5).await;
        assert!(matches!(answer, Err(Error::Timeout { phase: "to answer", .. })));
        assert!(reported.len() < 16, "{reported:?}");
    }

    #[test]
    fn the_registrys_own_words_are_found_and_harmless() {
        for (body, expected) in [
            (r#"{"errors":[{"code":"DENIED","message":"no\nway"}]}"#, Some("no way")),
            (r#"{"errors":[{"code":"DENIED"}]}"#, Some("DENIED")),
            (r#"{"error":"invalid_grant","error_description":"expired"}"#, Some("expired")),
            (r#"{"details":"incorrect password"}"#, Some("incorrect password")),
            (r#"{"errors":[]}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(said(body.as_bytes()).as_deref(), expected, "{body}");
        }
        let long = format!(r#"{{"errors":[{{"message":"{}"}}]}}"#, "x".repeat(500));
        assert_eq!(said(long.as_bytes()).unwrap().len(), MAX_SHOWN);
    }
}
