//! Plain HTTP to the processes of the demo: the cloud's API, and the probes and metrics of Pileus.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Sends requests to one address.
#[derive(Clone)]
pub(crate) struct HttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
}

/// A response.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl HttpClient {
    /// A client of this base URL, such as `http://127.0.0.1:80`.
    pub(crate) fn new(base: &str) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), base: base.to_owned() }
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Reads a path. An error is a sentence for people.
    pub(crate) async fn get(&self, path: &str) -> Result<Response, String> {
        self.exchange(Method::GET, path, Bytes::new()).await
    }

    /// Sends a JSON document. An error is a sentence for people.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Response, String> {
        self.exchange(method, path, body.to_string().into()).await
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<Response, String> {
        let url = self.url(path);
        let request = Request::builder().method(&method).uri(&url).body(Full::new(body));
        let request = request.map_err(|error| format!("{method} {url}: {error}"))?;
        let failed = |error: &dyn std::error::Error| format!("{method} {url}: {error}");
        let response = self.client.request(request).await.map_err(|error| failed(&error))?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|error| failed(&error))?.to_bytes();
        Ok(Response { status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}
