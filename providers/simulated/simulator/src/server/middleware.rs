//! What each call to a simulated cloud passes through: it is counted, its token is checked, it takes from a quota, waits, meets
//! its faults, and is recorded. A request that has arrived is carried out completely even when the client disconnects
//! meanwhile, as in any cloud. A cloud with another API has its own words for refusals: see [`Cloud`].

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::MethodRouter;
use hyper::body::Frame;
use thiserror::Error;

use super::SharedCloud;
use crate::call::Kind;
use crate::faults::{Action, Decision, Faults};
use crate::quotas::QuotaStatus;
use crate::refusal::Refusal;
use crate::requests::Entry;
use crate::traffic::Traffic;
use crate::world::Managed;

/// A simulated cloud as all connections share it, with the wording of its API.
pub trait Cloud: Clone + Send + Sync + 'static {
    /// The largest body, in bytes: far more than a resource with all its fields needs.
    const MAX_BODY_BYTES: usize = 1 << 20;
    /// Runs `act` under the lock, with the time since the start.
    fn traffic<T>(&self, act: impl FnOnce(&mut Traffic, Duration) -> T) -> T;
    /// The response to a call that is not carried out.
    fn refuse(denial: Denial) -> Response;
    /// Refuses faults that this cloud doesn't have, so that no test relies on them.
    fn check_faults(_: &Faults) -> Result<(), Refusal> {
        Ok(())
    }
    /// Shows in the headers of a response what is left of a quota.
    fn show_quota(response: &mut Response, kind: Kind, status: QuotaStatus);
}

/// Why a call is not carried out, regardless of the cloud's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It has no valid token.
    Unauthorized,
    /// It is one of too many.
    Throttled {
        /// How long until the next call, in seconds.
        retry_after_seconds: u32,
    },
    /// A fault.
    Failed {
        /// The status of the response, from 500 to 599.
        status: u16,
    },
    /// Its body is too large.
    TooLarge {
        /// The largest size that is accepted, in bytes.
        limit: usize,
    },
    /// The API doesn't have this path.
    UnknownPath(String),
    /// The path doesn't have this method.
    WrongMethod {
        /// The method.
        method: String,
        /// The path.
        path: String,
    },
    /// The simulator itself failed.
    Broken,
}

/// Marks a response that must not reach its client.
#[derive(Clone, Copy, Debug, Error)]
#[error("the response was lost on purpose")]
pub struct DroppedResponse;

/// Sends a response, or closes the connection without one.
pub(super) fn unless_dropped(response: Response) -> Result<Response, DroppedResponse> {
    response.extensions().get::<DroppedResponse>().map_or(Ok(()), |lost| Err(*lost)).map(|()| response)
}

/// How the kind of a call is determined.
pub enum Classifier<C> {
    /// By the path and the method.
    Kind(Kind),
    /// By the request and the state of the cloud.
    By(fn(&C, &Request) -> Kind),
}

impl<C> Clone for Classifier<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Classifier<C> {}

/// A route of the cloud's API, behind the middleware.
pub fn call<C: Cloud>(cloud: &C, classifier: Classifier<C>, route: MethodRouter<C>) -> MethodRouter<C> {
    route.route_layer(from_fn_with_state((cloud.clone(), classifier), handle))
}

/// Refuses and records requests that no route takes.
pub fn with_fallbacks<C: Cloud>(router: Router<C>) -> Router<C> {
    router.fallback(unknown_path::<C>).method_not_allowed_fallback(wrong_method::<C>)
}

/// Handles a call.
async fn handle<C: Cloud>(
    State((cloud, classifier)): State<(C, Classifier<C>)>,
    request: Request,
    next: Next,
) -> Response {
    let kind = match classifier {
        Classifier::Kind(kind) => kind,
        Classifier::By(kind) => kind(&cloud, &request),
    };
    let entry = request_entry(&cloud, &request, Some(kind));
    let is_let_in = cloud
        .traffic(|traffic, now| !kind.needs_token() || traffic.tokens.admits(now, token(request.headers())));
    let (parts, body) = request.into_parts();
    // The body is read first: after it, a client that disconnects has made its request; before it, it hasn't.
    let body = to_bytes(body, C::MAX_BODY_BYTES).await;
    let request = body.map(|body: Bytes| Request::from_parts(parts, Body::from(body)));
    let (decision, shown) = cloud.traffic(|traffic, now| traffic.admit(now, kind, is_let_in));
    let carried_out = tokio::spawn(async move {
        let mut response = match request {
            Ok(request) => respond::<C>(decision, request, next).await,
            Err(_) => C::refuse(Denial::TooLarge { limit: C::MAX_BODY_BYTES }),
        };
        if let Some(status) = shown {
            C::show_quota(&mut response, kind, status);
        }
        let is_dropped = response.extensions().get::<DroppedResponse>().is_some();
        let status = (!is_dropped).then_some(response.status().as_u16());
        cloud.traffic(|traffic, _| traffic.end(kind, entry, status));
        response
    });
    carried_out.await.unwrap_or_else(|_| C::refuse(Denial::Broken))
}

async fn unknown_path<C: Cloud>(State(cloud): State<C>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    refuse(&cloud, &request, Denial::UnknownPath(path))
}

async fn wrong_method<C: Cloud>(State(cloud): State<C>, request: Request) -> Response {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    refuse(&cloud, &request, Denial::WrongMethod { method, path })
}

/// Refuses a request that isn't a call of the API. It isn't counted and meets no fault, but it is recorded, because a test
/// may look for it.
fn refuse<C: Cloud>(cloud: &C, request: &Request, denial: Denial) -> Response {
    let response = C::refuse(denial);
    if !request.uri().path().starts_with("/admin/") {
        let entry = Entry { status: Some(response.status().as_u16()), ..request_entry(cloud, request, None) };
        cloud.traffic(|traffic, _| traffic.requests.push(entry));
    }
    response
}

async fn respond<C: Cloud>(decision: Decision, request: Request, next: Next) -> Response {
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
        Action::CutResponse => cut(next.run(request).await).await,
        Action::Throttle { retry_after_seconds } => C::refuse(Denial::Throttled { retry_after_seconds }),
        Action::Unauthorized => C::refuse(Denial::Unauthorized),
        Action::Fail { status } => C::refuse(Denial::Failed { status }),
    }
}

/// A response that announces its whole body and ends in the middle of it.
async fn cut(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    // A body that the simulator made itself is complete and in memory.
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    let half = body.slice(..body.len() / 2);
    Response::from_parts(parts, Body::new(CutBody { half: Some(half), is_sent: false }))
}

/// The first half of a body, and then the end of the connection.
struct CutBody {
    half: Option<Bytes>,
    is_sent: bool,
}

impl hyper::body::Body for CutBody {
    type Data = Bytes;
    type Error = DroppedResponse;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, DroppedResponse>>> {
        if let Some(half) = self.half.take() {
            return Poll::Ready(Some(Ok(Frame::data(half))));
        }
        if !self.is_sent {
            // The connection sends what it has when a body makes it wait.
            self.is_sent = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(DroppedResponse)))
    }
}

/// The bearer token of a request.
fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn request_entry<C: Cloud>(cloud: &C, request: &Request, kind: Option<Kind>) -> Entry {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut headers: Vec<_> = request.headers().keys().map(|name| name.as_str().to_owned()).collect();
    headers.sort_unstable();
    Entry {
        at: cloud.traffic(|_, now| now),
        kind,
        method: request.method().to_string(),
        path: request.uri().to_string(),
        status: None,
        user_agent: request.headers().get(header::USER_AGENT).map(text),
        headers,
    }
}

/// A `PUT` is a create or a change, depending on whether the resource of the path's name exists.
pub(super) fn kind_of_put<T: Managed>(shared: &SharedCloud, request: &Request) -> Kind {
    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
    let exists = shared.with(|simulation, now| simulation.world.read::<T>(now, name).is_ok());
    if exists { Kind::Change } else { Kind::Create }
}
