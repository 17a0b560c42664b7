//! Answers as JSON: what went well with its status, and what didn't with a code and a sentence. And bodies read
//! strictly, since a field that is silently ignored is a test that tests nothing.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::refusal::Refusal;

/// The answer of a handler.
pub(super) type Answer = Result<Response, Refusal>;

/// The form of everything that went wrong.
#[derive(Serialize)]
struct Wrong<'a> {
    code: &'a str,
    message: &'a str,
}

/// An answer with a body.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    // Plain data always has a JSON form; if that ever failed, an empty answer with this status tells more than a panic.
    let Ok(text) = serde_json::to_vec(body) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

/// An answer that says what went wrong.
pub(super) fn wrong(status: u16, code: &str, message: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json(status, &Wrong { code, message })
}

/// A body, with the sentence about what is wrong with it where it is not what it should be.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::Invalid(format!("the body can't be used: {error}")))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = wrong(self.status(), self.code(), &self.to_string());
        if matches!(self, Self::Unauthorized(_)) {
            let challenge = HeaderValue::from_static(r#"Bearer realm="simulated cloud""#);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
