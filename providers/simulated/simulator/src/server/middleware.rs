//! What each call to the cloud passes through: it is counted, its token is checked, it takes from a quota, waits, meets its
//! faults, and is recorded. A request that has arrived is carried out completely even when the client disconnects meanwhile,
//! as in any cloud.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use thiserror::Error;

use super::{SharedCloud, response};
use crate::call::{Kind, Outcome};
use crate::faults::{Action, Decision};
use crate::quotas::QuotaStatus;
use crate::refusal::Refusal;
use crate::requests::Entry;
use crate::world::World;

/// The largest body, in bytes: far more than a machine with all its fields needs.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Marks a response that must not reach its client.
#[derive(Clone, Copy, Debug, Error)]
#[error("the response was lost on purpose")]
pub(super) struct DroppedResponse;

/// Sends a response, or closes the connection without one.
pub(super) fn unless_dropped(response: Response) -> Result<Response, DroppedResponse> {
    response.extensions().get::<DroppedResponse>().map_or(Ok(()), |lost| Err(*lost)).map(|()| response)
}

/// How the kind of a call is determined.
#[derive(Clone, Copy)]
pub(super) enum Classifier {
    /// By the path and the method.
    Kind(Kind),
    /// It replaces a resource: a create or a change, depending on whether the resource of the path's name exists.
    Put(Exists),
}

/// Whether the resource of this name exists.
pub(super) type Exists = fn(&mut World, Duration, &str) -> bool;

impl Classifier {
    fn kind(self, shared: &SharedCloud, request: &Request) -> Kind {
        match self {
            Self::Kind(kind) => kind,
            Self::Put(exists) => {
                let name = request.uri().path().rsplit('/').next().unwrap_or_default();
                let exists = shared.with(|simulation, now| exists(&mut simulation.world, now, name));
                if exists { Kind::Change } else { Kind::Create }
            }
        }
    }
}

/// Handles a call.
pub(super) async fn handle(
    State((shared, classifier)): State<(SharedCloud, Classifier)>,
    request: Request,
    next: Next,
) -> Response {
    let kind = classifier.kind(&shared, &request);
    let entry = request_entry(&shared, &request, Some(kind));
    let is_let_in = shared.with(|simulation, now| {
        kind == Kind::Token || simulation.tokens.admits(now, token(request.headers()))
    });
    let (parts, body) = request.into_parts();
    // The body is read first: after it, a client that disconnects has made its request; before it, it hasn't.
    let body = to_bytes(body, MAX_BODY_BYTES).await;
    let request = body.map(|body: Bytes| Request::from_parts(parts, Body::from(body)));
    let (decision, shown) = shared.with(|simulation, now| {
        simulation.counters.arrived();
        // A client without a valid token can't use up the quota.
        if !is_let_in {
            return (Decision { delay: Duration::ZERO, action: Action::Unauthorized }, None);
        }
        let status = simulation.buckets.take(kind, now);
        let over_quota = status.and_then(|status| status.retry_after_seconds);
        let shown = status.filter(|_| !simulation.buckets.quotas().silent);
        (simulation.faults.decide(kind, over_quota, &mut simulation.random), shown)
    });
    let carried_out = tokio::spawn(async move {
        let mut response = match request {
            Ok(request) => respond(decision, request, next).await,
            Err(_) => Refusal::TooLarge { limit: MAX_BODY_BYTES }.into_response(),
        };
        if let Some(QuotaStatus { remaining, .. }) = shown {
            response.headers_mut().insert(remaining_header(kind), HeaderValue::from(remaining));
        }
        record(&shared, kind, entry, &response);
        response
    });
    carried_out
        .await
        .unwrap_or_else(|_| response::error(500, "broken", "internal error of the simulated cloud"))
}

/// Refuses a path that the API doesn't have.
pub(super) async fn unknown_path(State(shared): State<SharedCloud>, request: Request) -> Response {
    let path = request.uri().path();
    refuse(&shared, &request, Refusal::NotFound(format!("path {path}")))
}

/// Refuses a method that the path doesn't have.
pub(super) async fn wrong_method(State(shared): State<SharedCloud>, request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    refuse(&shared, &request, Refusal::WrongMethod(format!("{path} has no method {method}")))
}

/// Refuses a request that isn't a call of the API. It isn't counted and meets no fault, but it is recorded, because a test
/// may look for it.
fn refuse(shared: &SharedCloud, request: &Request, refusal: Refusal) -> Response {
    if !request.uri().path().starts_with("/admin/") {
        let entry = Entry { status: Some(refusal.status()), ..request_entry(shared, request, None) };
        shared.with(|simulation, _| simulation.requests.push(entry));
    }
    refusal.into_response()
}

async fn respond(decision: Decision, request: Request, next: Next) -> Response {
    let Decision { delay, action } = decision;
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    match action {
        Action::Answer => next.run(request).await,
        Action::DropResponse => {
            let mut response = next.run(request).await;
            response.extensions_mut().insert(DroppedResponse);
            response
        }
        Action::Throttle { retry_after_seconds } => {
            let mut response =
                response::error(429, "throttled", "too many requests, wait as Retry-After says");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after_seconds));
            response
        }
        Action::Unauthorized => {
            let message = "a valid token is needed: Authorization: Bearer TOKEN";
            Refusal::Unauthorized(message.to_owned()).into_response()
        }
        Action::Fail { status } => {
            response::error(status, "unavailable", "the cloud has a problem, try again later")
        }
    }
}

/// The header with the remaining quota, like Azure's `x-ms-ratelimit-remaining-subscription-reads` and `-writes`. A client
/// that respects it never gets a 429.
fn remaining_header(kind: Kind) -> HeaderName {
    HeaderName::from_static(if kind.is_write() {
        "x-ratelimit-remaining-writes"
    } else {
        "x-ratelimit-remaining-reads"
    })
}

/// The bearer token of a request.
fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn record(shared: &SharedCloud, kind: Kind, entry: Entry, response: &Response) {
    let is_dropped = response.extensions().get::<DroppedResponse>().is_some();
    let status = response.status().as_u16();
    let outcome = if is_dropped { Outcome::Lost } else { Outcome::of_status(status) };
    let entry = Entry { status: (!is_dropped).then_some(status), ..entry };
    shared.with(|simulation, _| {
        simulation.counters.ended(kind, outcome);
        simulation.requests.push(entry);
    });
}

fn request_entry(shared: &SharedCloud, request: &Request, kind: Option<Kind>) -> Entry {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut headers: Vec<_> = request.headers().keys().map(|name| name.as_str().to_owned()).collect();
    headers.sort_unstable();
    Entry {
        at: shared.with(|_, now| now),
        kind,
        method: request.method().to_string(),
        path: request.uri().to_string(),
        status: None,
        user_agent: request.headers().get(header::USER_AGENT).map(text),
        headers,
    }
}
