//! A plain HTTP client for the processes of a test. It doesn't retry, because some tests expect a 503.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time;

use crate::SOON;

/// Between two tries to see something in an answer.
const PAUSE: Duration = Duration::from_millis(20);

/// Makes requests to one address.
pub(crate) struct Web {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Web {
    /// Requests to this base, as in `http://127.0.0.1:80`.
    pub(crate) fn new(base: &str) -> Self {
        // A server may close an idle connection at the moment at which it is used again.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Self { client, base: base.to_owned() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "").await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &str) -> Answer {
        let what = format!("{method} {}{path}", self.base);
        let answer = self.exchange(method, path, body).await;
        answer.unwrap_or_else(|error| panic!("{what} has no answer: {error:?}"))
    }

    /// As [`Web::send`], where no answer may come.
    pub(crate) async fn send_freely(&self, method: Method, path: &str, body: &str) -> Option<Answer> {
        self.exchange(method, path, body).await.ok()
    }

    async fn exchange(&self, method: Method, path: &str, body: &str) -> Result<Answer, Box<dyn Error>> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
        let response = self.client.request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(Answer { status, body: String::from_utf8(body.to_vec())? })
    }

    /// Asks until the answer is as wanted, and returns it.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let mut last = self.get(path).await;
        let search = async {
            while !wanted(&last) {
                time::sleep(PAUSE).await;
                last = self.get(path).await;
            }
        };
        assert!(time::timeout(SOON, search).await.is_ok(), "{path} stays at {last:#?}");
        last
    }
}
