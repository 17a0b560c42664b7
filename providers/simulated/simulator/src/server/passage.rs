//! What every call to the cloud goes through: it is counted, shows who sends it, takes from a quota, waits, meets its
//! fate and is written down. A request that has arrived is carried out to its end also when the client hangs up
//! meanwhile, as in any cloud.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use thiserror::Error;

use super::{Shared, answer};
use crate::call::{Kind, Outcome};
use crate::faults::{Decision, Fate};
use crate::quotas::Standing;
use crate::refusal::Refusal;
use crate::requests::Entry;
use crate::world::World;

/// The largest body, in bytes. A machine with everything that a machine can have stays far below.
const LARGEST_BODY: usize = 1 << 20;

/// An answer that is not to reach its client.
#[derive(Clone, Copy, Debug, Error)]
#[error("the answer was lost on purpose")]
pub(super) struct Lost;

/// What the connection does with an answer: sends it, or closes without a word.
pub(super) fn unless_lost(response: Response) -> Result<Response, Lost> {
    response.extensions().get::<Lost>().map_or(Ok(()), |lost| Err(*lost)).map(|()| response)
}

/// How to tell what kind of call it is.
#[derive(Clone, Copy)]
pub(super) enum Telling {
    /// By the path and the method.
    Kind(Kind),
    /// It writes a thing whole: a new one or a change, depending on whether the thing of the path's name is there.
    Put(IsThere),
}

/// Whether the thing of this name is there.
pub(super) type IsThere = fn(&mut World, Duration, &str) -> bool;

impl Telling {
    fn kind(self, shared: &Shared, request: &Request) -> Kind {
        match self {
            Self::Kind(kind) => kind,
            Self::Put(is_there) => {
                let name = request.uri().path().rsplit('/').next().unwrap_or_default();
                let is_there = shared.with(|simulation, now| is_there(&mut simulation.world, now, name));
                if is_there { Kind::Change } else { Kind::Create }
            }
        }
    }
}

/// Takes a call through.
pub(super) async fn pass(
    State((shared, telling)): State<(Shared, Telling)>,
    request: Request,
    next: Next,
) -> Response {
    let kind = telling.kind(&shared, &request);
    let entry = note(&shared, &request, Some(kind));
    let is_let_in = shared.with(|simulation, now| {
        kind == Kind::Token || simulation.tokens.admits(now, token(request.headers()))
    });
    let (parts, body) = request.into_parts();
    // The body first: a client that hangs up later has then said all that it wanted, and one that hangs up before has
    // never made a request.
    let body = to_bytes(body, LARGEST_BODY).await;
    let request = body.map(|body: Bytes| Request::from_parts(parts, Body::from(body)));
    let (decision, told) = shared.with(|simulation, now| {
        simulation.counters.arrived();
        // Who isn't known can't use up the quota of who is.
        if !is_let_in {
            return (Decision { delay: Duration::ZERO, fate: Fate::TurnAway }, None);
        }
        let standing = simulation.buckets.take(kind, now);
        let over_quota = standing.and_then(|standing| standing.retry_after_seconds);
        let told = standing.filter(|_| !simulation.buckets.quotas().silent);
        (simulation.faults.decide(kind, over_quota, &mut simulation.random), told)
    });
    let carried_out = tokio::spawn(async move {
        let mut response = match request {
            Ok(request) => meet(decision, request, next).await,
            Err(_) => Refusal::TooLarge { limit: LARGEST_BODY }.into_response(),
        };
        if let Some(Standing { remaining, .. }) = told {
            response.headers_mut().insert(remaining_header(kind), HeaderValue::from(remaining));
        }
        settle(&shared, kind, entry, &response);
        response
    });
    carried_out.await.unwrap_or_else(|_| answer::wrong(500, "broken", "the simulated cloud has a defect"))
}

/// A path that the API doesn't have.
pub(super) async fn unknown(State(shared): State<Shared>, request: Request) -> Response {
    let path = request.uri().path();
    refuse(&shared, &request, Refusal::NotFound(format!("path {path}")))
}

/// A path that the API has, but not with this method.
pub(super) async fn wrong_method(State(shared): State<Shared>, request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    refuse(&shared, &request, Refusal::WrongMethod(format!("{path} has no method {method}")))
}

/// What is no call is not counted and meets no fault, but it is written down: it may be what a test looks for.
fn refuse(shared: &Shared, request: &Request, refusal: Refusal) -> Response {
    if !request.uri().path().starts_with("/admin/") {
        let entry = Entry { status: Some(refusal.status()), ..note(shared, request, None) };
        shared.with(|simulation, _| simulation.requests.push(entry));
    }
    refusal.into_response()
}

async fn meet(decision: Decision, request: Request, next: Next) -> Response {
    let Decision { delay, fate } = decision;
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    match fate {
        Fate::Answer => next.run(request).await,
        Fate::Lose => {
            let mut response = next.run(request).await;
            response.extensions_mut().insert(Lost);
            response
        }
        Fate::Throttle { retry_after_seconds } => {
            let mut response = answer::wrong(429, "throttled", "too many requests, wait as Retry-After says");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after_seconds));
            response
        }
        Fate::TurnAway => {
            let message = "a token is needed that is good now: Authorization: Bearer TOKEN";
            Refusal::Unauthorized(message.to_owned()).into_response()
        }
        Fate::Fail { status } => {
            answer::wrong(status, "unavailable", "the cloud has a problem, try again later")
        }
    }
}

/// Tells what is left of the quota that a call took from, as Azure's `x-ms-ratelimit-remaining-subscription-reads` and
/// `-writes` do: a client that heeds it never meets the 429.
fn remaining_header(kind: Kind) -> HeaderName {
    HeaderName::from_static(if kind.is_write() {
        "x-ratelimit-remaining-writes"
    } else {
        "x-ratelimit-remaining-reads"
    })
}

/// The token that a request came with.
fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn settle(shared: &Shared, kind: Kind, entry: Entry, response: &Response) {
    let is_lost = response.extensions().get::<Lost>().is_some();
    let status = response.status().as_u16();
    let outcome = if is_lost { Outcome::Lost } else { Outcome::of_status(status) };
    let entry = Entry { status: (!is_lost).then_some(status), ..entry };
    shared.with(|simulation, _| {
        simulation.counters.ended(kind, outcome);
        simulation.requests.push(entry);
    });
}

fn note(shared: &Shared, request: &Request, kind: Option<Kind>) -> Entry {
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
