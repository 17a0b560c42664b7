//! Where clients get tokens: an OAuth 2.0 token endpoint, and an imitation of the metadata service of a cloud's machines. Both
//! are calls like others, and their request bodies are not recorded.

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{SharedCloud, metadata, response};
use crate::credentials::{IssuedToken, Proof};

/// The type of an assertion of RFC 7523.
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A token request, RFC 6749 section 4.4. Scopes are accepted and ignored.
#[derive(Deserialize)]
pub(super) struct TokenRequest {
    grant_type: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    client_assertion: Option<String>,
    client_assertion_type: Option<String>,
}

#[derive(Serialize)]
struct TokenResponse {
    access_token: String,
    token_type: &'static str,
    expires_in: u32,
}

/// An error response, RFC 6749 section 5.2.
#[derive(Serialize)]
struct TokenError {
    error: &'static str,
    error_description: &'static str,
}

/// `POST /oauth2/token`
pub(super) async fn client_credentials(
    State(shared): State<SharedCloud>,
    request: Result<Form<TokenRequest>, FormRejection>,
) -> Response {
    let Ok(Form(request)) = request else {
        return denied(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "the body is not a form, or has a field twice",
        );
    };
    let TokenRequest { grant_type, client_id, client_secret, client_assertion, client_assertion_type } =
        &request;
    if grant_type.as_deref() != Some("client_credentials") {
        let known = "the only grant_type is client_credentials";
        return denied(StatusCode::BAD_REQUEST, "unsupported_grant_type", known);
    }
    let assertion = client_assertion.as_deref().zip(client_assertion_type.as_deref());
    let proof = match (client_id.as_deref(), client_secret.as_deref(), assertion) {
        (Some(client_id), Some(secret), None) => Proof::Secret { client_id, secret },
        (Some(client_id), None, Some((assertion, JWT_BEARER))) => Proof::Assertion { client_id, assertion },
        _ => {
            let needed = "client_id is required, with client_secret or client_assertion and its type";
            return denied(StatusCode::BAD_REQUEST, "invalid_request", needed);
        }
    };
    match shared.with(|simulation, now| simulation.traffic.tokens.issue(now, proof)) {
        Some(IssuedToken { token: access_token, expires_in_seconds: expires_in }) => {
            secret(&TokenResponse { access_token, token_type: "Bearer", expires_in })
        }
        None => {
            denied(StatusCode::UNAUTHORIZED, "invalid_client", "unknown client, or wrong secret or assertion")
        }
    }
}

/// The query of the metadata service. Other parameters are accepted and ignored.
#[derive(Deserialize)]
pub(super) struct MetadataQuery {
    #[serde(rename = "api-version")]
    api_version: Option<String>,
    resource: Option<String>,
}

/// The response of the metadata service, with numbers as strings, as Azure has them.
#[derive(Serialize)]
struct MetadataResponse {
    access_token: String,
    token_type: &'static str,
    expires_in: String,
    expires_on: String,
    resource: String,
}

/// `GET /metadata/identity/oauth2/token`
pub(super) async fn machine_identity(
    State(shared): State<SharedCloud>,
    headers: HeaderMap,
    Query(query): Query<MetadataQuery>,
) -> Response {
    if let Err(why) = metadata::check(&headers) {
        return denied(StatusCode::BAD_REQUEST, "invalid_request", why);
    }
    let (Some(_), Some(resource)) = (query.api_version, query.resource) else {
        return denied(StatusCode::BAD_REQUEST, "invalid_request", "api-version and resource are required");
    };
    match shared.with(|simulation, now| simulation.traffic.tokens.issue(now, Proof::Machine)) {
        Some(IssuedToken { token: access_token, expires_in_seconds }) => secret(&MetadataResponse {
            access_token,
            token_type: "Bearer",
            expires_in: expires_in_seconds.to_string(),
            expires_on: (Timestamp::now().as_second() + i64::from(expires_in_seconds)).to_string(),
            resource,
        }),
        None => denied(StatusCode::BAD_REQUEST, "invalid_request", "the machine has no identity"),
    }
}

/// A response that no cache may store.
fn secret(body: &impl Serialize) -> Response {
    let mut response = response::json(StatusCode::OK, body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn denied(status: StatusCode, error: &'static str, error_description: &'static str) -> Response {
    response::json(status, &TokenError { error, error_description })
}
