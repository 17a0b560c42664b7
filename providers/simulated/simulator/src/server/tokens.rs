//! Where tokens come from: a token endpoint of OAuth 2.0 for clients with credentials, and what looks like the metadata
//! service of a cloud's own machines. Both are calls like any other, and nothing that they were sent is kept.

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::answer;
use crate::credentials::{Issued, Proof};

/// What an assertion of RFC 7523 says that it is.
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A request for a token, RFC 6749 section 4.4. Scopes are taken and mean nothing here.
#[derive(Deserialize)]
pub(super) struct Asked {
    grant_type: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    client_assertion: Option<String>,
    client_assertion_type: Option<String>,
}

#[derive(Serialize)]
struct Granted {
    access_token: String,
    token_type: &'static str,
    expires_in: u32,
}

/// Why there is no token, RFC 6749 section 5.2.
#[derive(Serialize)]
struct Denied {
    error: &'static str,
    error_description: &'static str,
}

/// `POST /oauth2/token`
pub(super) async fn by_grant(
    State(shared): State<Shared>,
    asked: Result<Form<Asked>, FormRejection>,
) -> Response {
    let Ok(Form(asked)) = asked else {
        return denied(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "the body is no form, or names something twice",
        );
    };
    let Asked { grant_type, client_id, client_secret, client_assertion, client_assertion_type } = &asked;
    if grant_type.as_deref() != Some("client_credentials") {
        let known = "grant_type is client_credentials, there is no other";
        return denied(StatusCode::BAD_REQUEST, "unsupported_grant_type", known);
    }
    let assertion = client_assertion.as_deref().zip(client_assertion_type.as_deref());
    let proof = match (client_id.as_deref(), client_secret.as_deref(), assertion) {
        (Some(client_id), Some(secret), None) => Proof::Secret { client_id, secret },
        (Some(client_id), None, Some((assertion, JWT_BEARER))) => Proof::Assertion { client_id, assertion },
        _ => {
            let needed = "client_id is needed, with client_secret or client_assertion and its type";
            return denied(StatusCode::BAD_REQUEST, "invalid_request", needed);
        }
    };
    match shared.with(|simulation, now| simulation.tokens.issue(now, proof)) {
        Some(Issued { token: access_token, expires_in_seconds: expires_in }) => {
            secret(&Granted { access_token, token_type: "Bearer", expires_in })
        }
        None => denied(
            StatusCode::UNAUTHORIZED,
            "invalid_client",
            "no such client, or not its secret or assertion",
        ),
    }
}

/// What the metadata service is asked. Others of its parameters are taken and mean nothing here.
#[derive(Deserialize)]
pub(super) struct Wanted {
    #[serde(rename = "api-version")]
    api_version: Option<String>,
    resource: Option<String>,
}

/// The answer of the metadata service, with numbers as texts, as Azure's has them.
#[derive(Serialize)]
struct OfMachine {
    access_token: String,
    token_type: &'static str,
    expires_in: String,
    expires_on: String,
    resource: String,
}

/// `GET /metadata/identity/oauth2/token`
pub(super) async fn by_machine(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Response {
    // A request that was tricked out of a proxy or a web application has no such header, or has the proxy's.
    if headers.get("metadata").is_none_or(|value| !value.as_bytes().eq_ignore_ascii_case(b"true")) {
        return denied(StatusCode::BAD_REQUEST, "invalid_request", "the header Metadata: true is needed");
    }
    if headers.contains_key("x-forwarded-for") {
        return denied(StatusCode::BAD_REQUEST, "invalid_request", "requests through a proxy are refused");
    }
    let (Some(_), Some(resource)) = (wanted.api_version, wanted.resource) else {
        return denied(StatusCode::BAD_REQUEST, "invalid_request", "api-version and resource are needed");
    };
    match shared.with(|simulation, now| simulation.tokens.issue(now, Proof::Machine)) {
        Some(Issued { token: access_token, expires_in_seconds }) => secret(&OfMachine {
            access_token,
            token_type: "Bearer",
            expires_in: expires_in_seconds.to_string(),
            expires_on: (Timestamp::now().as_second() + i64::from(expires_in_seconds)).to_string(),
            resource,
        }),
        None => denied(StatusCode::BAD_REQUEST, "invalid_request", "the machine has no identity"),
    }
}

/// An answer that nobody on its way may keep.
fn secret(body: &impl Serialize) -> Response {
    let mut response = answer::json(StatusCode::OK, body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn denied(status: StatusCode, error: &'static str, error_description: &'static str) -> Response {
    answer::json(status, &Denied { error, error_description })
}
