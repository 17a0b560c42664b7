//! A relay that sees each request of Pileus as it is, to the API server and to the cloud, and can leave out the answer to
//! one of them: what was asked for has happened, and nobody knows.

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
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What becomes of the answers to requests about Services, of Kubernetes' or of the cloud's.
#[derive(Clone, Default)]
pub(crate) struct Answers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Whether reads of the cloud don't count.
    only_writes: bool,
    /// How many are still let through, and who is told when the next one is not.
    withheld: Option<(usize, oneshot::Sender<String>)>,
    /// How many writes to the API server will seem to have failed.
    lost: usize,
}

/// What becomes of one answer.
enum Fate {
    Given,
    /// It never comes, and this is told at once.
    Withheld(oneshot::Sender<String>),
    /// Another one comes in its place, as from a load balancer before the API server.
    Lost,
}

impl Answers {
    /// Those to writes alone: the next process does the same whether its predecessor died at a read or at the write
    /// before.
    pub(crate) fn of_writes() -> Self {
        Self(Arc::new(Mutex::new(State { only_writes: true, ..State::default() })))
    }

    /// Withholds the answer to the `nth` request from now on, counted from 1. Tells which one that was when it has been
    /// carried out.
    pub(crate) fn withhold(&self, nth: usize) -> oneshot::Receiver<String> {
        let (tell, told) = oneshot::channel();
        self.0.lock().unwrap().withheld = Some((nth - 1, tell));
        told
    }

    /// Loses the answers to the next writes to the API server.
    pub(crate) fn lose(&self, count: usize) {
        self.0.lock().unwrap().lost = count;
    }

    /// Gives all answers from now on, and tells whether some were still to be left out.
    pub(crate) fn give(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        let were_left = state.withheld.take().is_some();
        std::mem::take(&mut state.lost) > 0 || were_left
    }

    fn fate(&self, method: &Method, path: &str) -> Fate {
        let mut state = self.0.lock().unwrap();
        let is_write = *method == Method::PATCH && path.contains("/services/");
        let is_of_cloud = ["/v1/load-balancers", "/v1/addresses", "/v1/shared-load-balancers"]
            .iter()
            .any(|it| path.starts_with(it))
            && !(state.only_writes && *method == Method::GET);
        if is_write && state.lost > 0 {
            state.lost -= 1;
            return Fate::Lost;
        }
        match state.withheld.take() {
            Some((0, tell)) if is_write || is_of_cloud => return Fate::Withheld(tell),
            Some((before, tell)) if is_write || is_of_cloud => state.withheld = Some((before - 1, tell)),
            others => state.withheld = others,
        }
        Fate::Given
    }
}

/// Where requests go.
#[derive(Clone)]
enum Far {
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
    /// A relay to the API server. Who speaks to it has the rights of that client, whatever it says of itself.
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

/// What the other side answers; nothing while it is away.
async fn forward(request: Request, far: &Far) -> Option<Response> {
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
