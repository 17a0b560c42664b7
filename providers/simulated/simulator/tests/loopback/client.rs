//! A cloud in this process, and a client with one connection to it, so that tests can check whether the connection is kept
//! or closed.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use simulated_cloud::quotas::Quotas;
use simulated_cloud::server::{self, Settings};
use simulated_cloud::world::Place;
use tokio::net::TcpStream;

/// A response: its status, its headers, and its body as JSON (null where it is empty).
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// One connection.
pub(crate) struct Client {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
}

/// A cloud with this many machines, and a connection to it.
pub(crate) async fn cloud(machines: u32) -> Client {
    let listener = server::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let place = Place::new("sim-1".to_owned(), Vec::new());
    let settings = Settings { place, machines, seed: 7, quotas: Quotas::default(), credentials: None };
    tokio::spawn(server::serve(listener, settings, std::future::pending()));
    Client::connect(address).await
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { address, sender }
    }

    /// Another connection to the same cloud.
    pub(crate) async fn another(&self) -> Self {
        Self::connect(self.address).await
    }

    /// Sends a request. An error means that the connection was closed without a response.
    pub(crate) async fn try_send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    pub(crate) async fn send(&mut self, method: Method, path: &str, body: &str) -> Answer {
        self.try_send(request(method, path, body)).await.unwrap()
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, "").await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Answer {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "").await
    }

    pub(crate) async fn set_faults(&mut self, faults: &str) {
        let answer = self.send(Method::PUT, "/admin/faults", faults).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    pub(crate) async fn set_quotas(&mut self, quotas: &str) {
        let answer = self.send(Method::PUT, "/admin/quotas", quotas).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// The number of calls of this kind with this outcome.
    pub(crate) async fn count(&mut self, kind: &str, outcome: &str) -> u64 {
        self.get("/admin/counters").await.body["calls"][kind][outcome].as_u64().unwrap()
    }
}

pub(crate) fn request(method: Method, path: &str, body: &str) -> Request<Full<Bytes>> {
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    Request::builder().method(method).uri(path).header("host", "cloud").body(body).unwrap()
}
