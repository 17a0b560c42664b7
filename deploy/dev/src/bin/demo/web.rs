//! Plain HTTP to what the demo has started: the cloud's admin side and Pileus' probes and metrics.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Makes requests to one address.
#[derive(Clone)]
pub(crate) struct Web {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Web {
    /// Requests to this base, as in `http://127.0.0.1:80`.
    pub(crate) fn new(base: &str) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), base: base.to_owned() }
    }

    /// Where a path is, for people to open.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Reads a path. Fails with a sentence about what is wrong.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, String> {
        self.exchange(Method::GET, path, Bytes::new()).await
    }

    /// Sends a JSON document. Fails with a sentence about what is wrong.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Answer, String> {
        self.exchange(method, path, body.to_string().into()).await
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, String> {
        let url = self.url(path);
        let request = Request::builder().method(&method).uri(&url).body(Full::new(body));
        let request = request.map_err(|error| format!("{method} {url}: {error}"))?;
        let failed = |error: &dyn std::error::Error| format!("{method} {url}: {error}");
        let response = self.client.request(request).await.map_err(|error| failed(&error))?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|error| failed(&error))?.to_bytes();
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}
