//! One exchange over `wasi:http`, on wstd's reactor. Not by wstd's own client: that gives up on the first error of
//! either direction, so that a request with a body which the gate refuses would end in "connection reset" rather than in
//! the refusal, and it turns errors while a body is read into text. Here what the answer says counts, always as a code.

use std::pin::pin;

use futures::future::{Either, select};
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

/// How much of a body is asked for at once; the host answers with what it has. A page of 1,000 machines has about
/// 300 kB, and each piece costs a call across the boundary.
const PIECE: u64 = 256 * 1024;

/// Sends a request and reads the whole answer, unless the host gives it up, some time after the deadline of the call.
pub(crate) async fn exchange(request: Outgoing) -> Result<Incoming, Error> {
    let subject = request.subject();
    let (head, body) = open(&request)
        .map_err(|what| Error::broken(format!("{subject} was not sent: {what} is not allowed")))?;
    let answer = outgoing_handler::handle(head, None).map_err(|code| failure::error(&subject, &code))?;
    let sent = pin!(send(body, request.body));
    let answered = pin!(receive(answer));
    // An answer may come before the body is through; then the rest of the body interests nobody. A body that doesn't get
    // through has its reason in the answer.
    let answer = match select(answered, sent).await {
        Either::Left((answer, _)) => answer,
        Either::Right(((), answered)) => answered.await,
    };
    answer.map_err(|code| failure::error(&subject, &code))
}

/// The request as WASI has it, and its body where it has one; or what of it WASI doesn't take.
fn open(request: &Outgoing) -> Result<(OutgoingRequest, Option<OutgoingBody>), &'static str> {
    let Outgoing { method, uri, headers, body } = request;
    let mut fields: Vec<(String, Vec<u8>)> =
        headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_owned())).collect();
    if let Some(body) = body {
        fields.push((http::header::CONTENT_LENGTH.as_str().to_owned(), body.len().to_string().into_bytes()));
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

/// Writes the body. Failures are left to the answer, see above.
async fn send(body: Option<OutgoingBody>, bytes: Option<Vec<u8>>) {
    let Some((body, bytes)) = body.zip(bytes) else { return };
    let Ok(stream) = body.write() else { return };
    let stream = AsyncOutputStream::new(stream);
    let written = stream.write_all(&bytes).await;
    // A child of the body, which can't be finished before it.
    drop(stream);
    if written.is_ok() {
        let _ = OutgoingBody::finish(body, None);
    }
}

async fn receive(answer: FutureIncomingResponse) -> Result<Incoming, ErrorCode> {
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
    let bytes = read(&response).await?;
    Ok(Incoming { status, headers, bytes })
}

async fn read(response: &IncomingResponse) -> Result<Vec<u8>, ErrorCode> {
    // Declared in this order because each is the child of the one before it and must be dropped first.
    let body = response.consume().map_err(|()| ErrorCode::InternalError(None))?;
    let stream = body.stream().map_err(|()| ErrorCode::InternalError(None))?;
    let mut ready: Option<AsyncPollable> = None;
    let mut bytes = Vec::new();
    loop {
        match stream.read(PIECE) {
            Ok(piece) if piece.is_empty() => {
                ready.get_or_insert_with(|| AsyncPollable::new(stream.subscribe())).wait_for().await;
            }
            Ok(piece) if bytes.is_empty() => bytes = piece,
            Ok(mut piece) => bytes.append(&mut piece),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(http_error_code(&error).unwrap_or(ErrorCode::HttpResponseIncomplete));
            }
        }
    }
}
