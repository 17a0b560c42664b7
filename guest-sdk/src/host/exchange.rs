//! One HTTP exchange over `wasi:http`, on wstd's reactor.
//!
//! It doesn't use wstd's HTTP client, for two reasons. That client gives up on the first error of either direction, so a
//! request with a body that the gate refuses would end in "connection reset" instead of the refusal. And it turns errors
//! while a body is read into text. Here the response decides, and errors stay codes.

use std::pin::pin;

use futures::future::{Either, select};
use http::header::CONTENT_LENGTH;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingResponse, Method as WasiMethod, OutgoingBody,
    OutgoingRequest, Scheme, http_error_code,
};
use wasip2::io::streams::StreamError;
use wstd::io::AsyncOutputStream;
use wstd::runtime::AsyncPollable;

use crate::Error;
use crate::http::{Incoming, Outgoing, failure};

/// How many bytes of a body are read at once; the host answers with what it has. A page of 1,000 instances is about
/// 300 kB, and each read is a call to the host.
const CHUNK: u64 = 256 * 1024;

/// The most that is reserved for a body before it is read. The host sends no larger one.
const MAX_RESERVED: usize = 16 << 20;

/// Sends a request and reads the whole response. The host aborts it some time after the soft deadline of the call.
/// `before_body` runs before the body is read, with its size if the response says it.
pub(crate) async fn exchange<T>(
    request: Outgoing,
    before_body: impl AsyncFnOnce(Option<usize>) -> T,
) -> Result<(Incoming, T), Error> {
    let subject = request.subject();
    let (head, body) = open(&request)
        .map_err(|what| Error::broken(format!("{subject} was not sent: {what} is not allowed")))?;
    let answer = outgoing_handler::handle(head, None).map_err(|code| failure::error(&subject, &code))?;
    let sent = pin!(send(body, request.body));
    let answered = pin!(receive(answer, before_body));
    // The response may come before the body is sent; then the rest of the body doesn't matter. If the body can't be sent,
    // the response says why.
    let answer = match select(answered, sent).await {
        Either::Left((answer, _)) => answer,
        Either::Right(((), answered)) => answered.await,
    };
    answer.map_err(|code| failure::error(&subject, &code))
}

/// The request as a WASI resource, and its body if it has one. The error names the part that WASI rejects.
fn open(request: &Outgoing) -> Result<(OutgoingRequest, Option<OutgoingBody>), &'static str> {
    let Outgoing { method, uri, headers, body } = request;
    let mut fields: Vec<(String, Vec<u8>)> =
        headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_owned())).collect();
    if let Some(body) = body {
        fields.push((CONTENT_LENGTH.as_str().to_owned(), body.len().to_string().into_bytes()));
    }
    let head = OutgoingRequest::new(Fields::from_list(&fields).map_err(|_| "a header of it")?);
    head.set_method(&wasi_method(method)).map_err(|()| "its method")?;
    let scheme = match uri.scheme_str() {
        Some("https") => Scheme::Https,
        Some("http") => Scheme::Http,
        other => Scheme::Other(other.unwrap_or_default().to_owned()),
    };
    head.set_scheme(Some(&scheme)).map_err(|()| "its scheme")?;
    head.set_authority(uri.authority().map(Authority::as_str)).map_err(|()| "its host")?;
    head.set_path_with_query(uri.path_and_query().map(PathAndQuery::as_str)).map_err(|()| "its path")?;
    let body = body.is_some().then(|| head.body().map_err(|()| "its body")).transpose()?;
    Ok((head, body))
}

fn wasi_method(method: &Method) -> WasiMethod {
    match method.as_str() {
        "GET" => WasiMethod::Get,
        "HEAD" => WasiMethod::Head,
        "POST" => WasiMethod::Post,
        "PUT" => WasiMethod::Put,
        "DELETE" => WasiMethod::Delete,
        "CONNECT" => WasiMethod::Connect,
        "OPTIONS" => WasiMethod::Options,
        "TRACE" => WasiMethod::Trace,
        "PATCH" => WasiMethod::Patch,
        other => WasiMethod::Other(other.to_owned()),
    }
}

/// Writes the body. Failures are ignored, because the response reports them, see above.
async fn send(body: Option<OutgoingBody>, bytes: Option<Vec<u8>>) {
    let Some((body, bytes)) = body.zip(bytes) else { return };
    let Ok(stream) = body.write() else { return };
    let stream = AsyncOutputStream::new(stream);
    let written = stream.write_all(&bytes).await;
    // The stream is a child of the body and must be dropped before the body is finished.
    drop(stream);
    if written.is_ok() {
        let _ = OutgoingBody::finish(body, None);
    }
}

async fn receive<T>(
    answer: FutureIncomingResponse,
    before_body: impl AsyncFnOnce(Option<usize>) -> T,
) -> Result<(Incoming, T), ErrorCode> {
    let response = loop {
        match answer.get() {
            Some(Ok(response)) => break response?,
            Some(Err(())) => return Err(ErrorCode::InternalError(None)),
            None => AsyncPollable::new(answer.subscribe()).wait_for().await,
        }
    };
    let status = StatusCode::from_u16(response.status()).map_err(|_| ErrorCode::HttpProtocolError)?;
    let headers = response
        .headers()
        .entries()
        .into_iter()
        .filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        })
        .collect::<HeaderMap>();
    let size = headers.get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
    let before = before_body(size).await;
    let bytes = read(&response, size.unwrap_or_default().min(MAX_RESERVED)).await?;
    Ok((Incoming { status, headers, bytes }, before))
}

/// Reads the body, with room for one of this size, so that a large one isn't copied while it grows.
async fn read(response: &IncomingResponse, size: usize) -> Result<Vec<u8>, ErrorCode> {
    // Declared in this order because each is a child of the previous one and must be dropped first.
    let body = response.consume().map_err(|()| ErrorCode::InternalError(None))?;
    let stream = body.stream().map_err(|()| ErrorCode::InternalError(None))?;
    let mut ready: Option<AsyncPollable> = None;
    let mut bytes = Vec::with_capacity(size);
    loop {
        match stream.read(CHUNK) {
            Ok(chunk) if chunk.is_empty() => {
                ready.get_or_insert_with(|| AsyncPollable::new(stream.subscribe())).wait_for().await;
            }
            Ok(chunk) if bytes.capacity() == 0 => bytes = chunk,
            Ok(mut chunk) => bytes.append(&mut chunk),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(http_error_code(&error).unwrap_or(ErrorCode::HttpResponseIncomplete));
            }
        }
    }
}
