//! A relay for the requests of Pileus to the API server and the cloud. It can drop the answer to one of them, so that a
//! change has happened without Pileus knowing. And it can stop a swap: it lets no status of a CloudProvider through after one.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{Method, StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time;

use crate::SOON;

/// What the relay does with answers to requests about Services, from the API server or the cloud.
#[derive(Clone, Default)]
pub(crate) struct Answers {
    withheld: Arc<Mutex<Option<Withheld>>>,
    /// Of which Service how many writes to the API server will seem to have failed.
    lost: Arc<watch::Sender<(String, usize)>>,
    halt: Arc<Mutex<Option<Halt>>>,
    /// How many writes of a status were stopped.
    stopped: Arc<watch::Sender<usize>>,
}

/// Where a swap stops.
struct Halt {
    /// The state that is written last.
    state: &'static str,
    /// Who is told when it is written.
    tell: Option<oneshot::Sender<()>>,
}

/// Which requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Those that read what the cloud has.
    Reads,
    /// Those that change something, there or at the API server.
    Writes,
}

struct Withheld {
    of: Counted,
    /// How many are still let through.
    before: usize,
    /// Who is told when the next one is not.
    tell: oneshot::Sender<String>,
}

/// What the relay does with one answer.
enum Fate {
    Given,
    /// It never comes, and this is told at once.
    Withheld(oneshot::Sender<String>),
    /// Another one comes in its place, as from a load balancer before the API server.
    Lost,
}

impl Answers {
    /// Withholds the answer to the `nth` of these requests from now on, counted from 1. Tells which one that was when it
    /// has been carried out; no process learns of it if it is given first.
    pub(crate) fn withhold(&self, nth: usize, of: Counted) -> oneshot::Receiver<String> {
        let (tell, told) = oneshot::channel();
        *self.withheld.lock().unwrap() = Some(Withheld { of, before: nth - 1, tell });
        told
    }

    /// Lets no status of a CloudProvider through after the one with this state, and tells when that is written.
    pub(crate) fn halt_at(&self, state: &'static str) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        *self.halt.lock().unwrap() = Some(Halt { state, tell: Some(tell) });
        told
    }

    /// Lets each new write of a status through. Those that were stopped never arrive.
    pub(crate) fn go_on(&self) {
        *self.halt.lock().unwrap() = None;
    }

    /// How many writes of a status were stopped so far.
    pub(crate) fn stopped(&self) -> usize {
        *self.stopped.borrow()
    }

    /// Waits until more than so many were.
    pub(crate) async fn stop_more_than(&self, count: usize) {
        let mut stopped = self.stopped.subscribe();
        let wait = time::timeout(SOON, stopped.wait_for(|stopped| *stopped > count)).await;
        assert!(wait.is_ok(), "no status is written");
    }

    /// Whether a status may be written, and who is told once it is.
    fn stops(&self, status: &Value) -> Result<Option<oneshot::Sender<()>>, Stopped> {
        match &mut *self.halt.lock().unwrap() {
            Some(Halt { tell: None, .. }) => {
                self.stopped.send_modify(|stopped| *stopped += 1);
                Err(Stopped)
            }
            Some(halt) if halt.state == state(status) => Ok(halt.tell.take()),
            _ => Ok(None),
        }
    }

    /// Withholds none that has not come yet.
    pub(crate) fn give(&self) {
        *self.withheld.lock().unwrap() = None;
    }

    /// Loses the answers to the next writes to a Service.
    pub(crate) fn lose(&self, service: &str, count: usize) {
        self.lost.send_replace((service.to_owned(), count));
    }

    /// Waits until all of them are lost.
    pub(crate) async fn all_lost(&self) {
        let mut lost = self.lost.subscribe();
        let wait = time::timeout(SOON, lost.wait_for(|(_, left)| *left == 0)).await;
        assert!(wait.is_ok(), "they were asked for no more");
    }

    fn fate(&self, method: &Method, path: &str) -> Fate {
        let service = path.split_once("/services/").map(|(_, of)| of.split('/').next().unwrap_or_default());
        let patched = service.filter(|_| *method == Method::PATCH);
        let is_lost = self.lost.send_if_modified(|(name, left)| {
            let is_lost = *left > 0 && patched == Some(name.as_str());
            *left -= usize::from(is_lost);
            is_lost
        });
        if is_lost {
            return Fate::Lost;
        }
        let of_cloud = ["/v1/load-balancers", "/v1/addresses", "/v1/shared-load-balancers"];
        let is_of_cloud = of_cloud.iter().any(|it| path.starts_with(it));
        let is_counted = |of| match of {
            Counted::Reads => is_of_cloud && *method == Method::GET,
            Counted::Writes => patched.is_some() || is_of_cloud && *method != Method::GET,
        };
        let mut withheld = self.withheld.lock().unwrap();
        match withheld.take() {
            Some(Withheld { of, before: 0, tell }) if is_counted(of) => return Fate::Withheld(tell),
            Some(Withheld { of, before, tell }) if is_counted(of) => {
                *withheld = Some(Withheld { of, before: before - 1, tell });
            }
            others => *withheld = others,
        }
        Fate::Given
    }
}

/// A swap stops before this status.
struct Stopped;

/// The state of a swap, as the status of its CloudProvider says it.
pub(crate) fn state(status: &Value) -> &str {
    let holds = |kind: &str| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    match status["candidate"]["phase"]["name"].as_str() {
        Some("preparing") => match ["Fetched", "Verified", "Compiled"].map(holds) {
            [false, ..] => "fetching",
            [_, false, _] => "verifying",
            [.., false] => "compiling",
            _ => "checking",
        },
        Some(phase) => phase,
        None if status["rejected"].as_array().is_some_and(|rejected| !rejected.is_empty()) => "rejected",
        None if !status["observing"].is_null() => "observing",
        None => "settled",
    }
}

/// Where requests go.
#[derive(Clone)]
pub(crate) enum Far {
    /// By a client that has Pileus' rights.
    ApiServer(Client),
    Cloud(legacy::Client<HttpConnector, Body>, u16),
}

/// Forwards requests from a port of its own. Ends when dropped.
pub(crate) struct Relay {
    pub(crate) port: u16,
    task: JoinHandle<()>,
}

impl Relay {
    /// A relay to the API server. Who speaks to it has the rights of that client, regardless of its own credentials.
    pub(crate) async fn to_api_server(client: Client, answers: &Answers) -> Self {
        Self::start(Far::ApiServer(client), answers).await
    }

    /// A relay to a cloud.
    pub(crate) async fn to_cloud(port: u16, answers: &Answers) -> Self {
        let client = legacy::Client::builder(TokioExecutor::new()).build_http();
        Self::start(Far::Cloud(client, port), answers).await
    }

    async fn start(far: Far, answers: &Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answers = answers.clone();
        let relay = move |request: Request| relay(request, far.clone(), answers.clone());
        let task =
            tokio::spawn(async move { axum::serve(listener, Router::new().fallback(relay)).await.unwrap() });
        Self { port, task }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(request: Request, far: Far, answers: Answers) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let fate = answers.fate(&method, &path);
    if method == Method::PATCH && path.contains("/cloudproviders/") && path.ends_with("/status") {
        return write_status(request, &far, &answers).await;
    }
    let Some(answer) = forward(request, &far).await else { return StatusCode::BAD_GATEWAY.into_response() };
    match fate {
        Fate::Given => answer,
        Fate::Lost => StatusCode::GATEWAY_TIMEOUT.into_response(),
        Fate::Withheld(tell) => {
            let _ = tell.send(format!("{method} {path}"));
            std::future::pending().await
        }
    }
}

/// Writes a status, unless the swap has been stopped before.
async fn write_status(request: Request, far: &Far, answers: &Answers) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let document: Value = serde_json::from_slice(&body).unwrap();
    let Ok(tell) = answers.stops(&document["status"]) else { return std::future::pending().await };
    let answer = forward(Request::from_parts(parts, Body::from(body)), far).await;
    if let Some(tell) = tell {
        let _ = tell.send(());
    }
    answer.unwrap_or_else(|| StatusCode::BAD_GATEWAY.into_response())
}

/// What the other side answers; nothing while it is away.
pub(crate) async fn forward(request: Request, far: &Far) -> Option<Response> {
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.ok()?;
    for header in [HOST, AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        parts.headers.remove(header);
    }
    match far {
        Far::ApiServer(client) => {
            let answer = client.send(http::Request::from_parts(parts, body.to_vec().into())).await.ok()?;
            Some(answer.map(Body::new))
        }
        Far::Cloud(client, port) => {
            let path = parts.uri.path_and_query()?.clone();
            parts.uri = format!("http://127.0.0.1:{port}{path}").parse::<Uri>().ok()?;
            let answer = client.request(http::Request::from_parts(parts, Body::from(body))).await.ok()?;
            Some(answer.map(Body::new))
        }
    }
}
