//! JSON responses and request bodies. An error has a code and a message. Bodies are parsed strictly, because a field that is
//! silently ignored makes a test meaningless.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::refusal::Refusal;

/// The result of a handler.
pub type HandlerResult = Result<Response, Refusal>;

/// The body of an error response.
#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'a str,
    message: &'a str,
}

/// A response with a JSON body.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    // Plain data can always be serialized. If that ever failed, an empty response would be better than a panic.
    let Ok(text) = serde_json::to_vec(body) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

/// An error response.
pub fn error(status: u16, code: &str, message: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json(status, &ErrorBody { code, message })
}

/// Parses a request body.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::Invalid(format!("invalid body: {error}")))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = error(self.status(), self.code(), &self.to_string());
        if matches!(self, Self::Unauthorized(_)) {
            let challenge = HeaderValue::from_static(r#"Bearer realm="simulated cloud""#);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
