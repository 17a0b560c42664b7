//! The Kubernetes client: kube's layers with a fence directly before the socket.
//!
//! kube's own builder adds layers outside of its stack, before a request has waited for a connection, a token and a
//! retry. The fence must come after these, so this module builds the stack from kube's layers.

use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt as _};
use pileus_controllers::describe;
use pileus_gate::{Fence, FencedBody};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

use super::ClusterConfig;
use super::transport::Transport;
use crate::error::Error;

impl ClusterConfig {
    /// A client that sends changes only while the fence is open. Events are always sent: they change no other object, and
    /// the last ones say why a process ended.
    ///
    /// # Errors
    /// [`Error::Kubeconfig`] where the configuration has invalid credentials or certificates.
    pub(crate) fn client(&self, fence: Fence) -> Result<Client, Error> {
        let config = &self.config;
        let invalid = |error: kube::Error| Error::Kubeconfig(describe(&error));
        let transport = Transport::new(Arc::new(self.clone())).map_err(Error::Kubeconfig)?;
        let retry = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(retry)
            .option_layer(config.auth_layer().map_err(invalid)?)
            .layer(config.extra_headers_layer().map_err(invalid)?)
            .map_err(BoxError::from)
            .map_request(move |request: Request<Body>| {
                let fence = if changes(request.method(), request.uri().path()) {
                    fence.clone()
                } else {
                    Fence::default()
                };
                request.map(|body| FencedBody::new(body, fence))
            })
            .service(transport);
        Ok(Client::new(service, config.default_namespace.clone()))
    }
}

fn changes(method: &Method, path: &str) -> bool {
    let is_event = path.starts_with("/apis/events.k8s.io/");
    !(is_event || matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// The bytes of a request that reach an API server, which doesn't answer. A real socket shows that not even the
    /// first byte is sent.
    async fn received_bytes(method: Method, path: &str, body: &str, fence: Fence) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let config = ClusterConfig::of(kube::Config::new(server.parse().unwrap()));
        let client = config.client(fence).unwrap();
        let request = Request::builder().method(method).uri(path).body(body.as_bytes().to_vec()).unwrap();
        let serve = async {
            let mut received = [0; 1024];
            let (mut stream, _) = listener.accept().await.unwrap();
            let length = stream.read(&mut received).await.unwrap();
            String::from_utf8_lossy(&received[..length]).into_owned()
        };
        let (received, answer) = tokio::join!(serve, client.request_text(request));
        answer.unwrap_err();
        received
    }

    #[tokio::test]
    async fn a_closed_fence_sends_no_byte_of_a_change() {
        let node = "/api/v1/nodes/a";
        for (method, body) in [(Method::PATCH, "{}"), (Method::DELETE, "{}"), (Method::DELETE, "")] {
            let closed = Fence::new(|| false);
            assert_eq!(received_bytes(method.clone(), node, body, closed).await, "", "{method} {body:?}");
            let sent = received_bytes(method.clone(), node, body, Fence::default()).await;
            assert!(
                sent.starts_with(method.as_str()) && sent.ends_with(&format!("\r\n\r\n{body}")),
                "{sent}"
            );
        }
        let read = received_bytes(Method::GET, node, "", Fence::new(|| false)).await;
        assert!(read.starts_with("GET /api/v1/nodes/a HTTP/1.1\r\n"), "{read}");
    }

    #[test]
    fn everything_but_reads_and_events_is_fenced() {
        for (method, path, is_fenced) in [
            (Method::GET, "/api/v1/nodes", false),
            (Method::PATCH, "/api/v1/nodes/a", true),
            (Method::PATCH, "/api/v1/nodes/a/status", true),
            (Method::DELETE, "/api/v1/nodes/a", true),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a", true),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/default/events", false),
            (Method::POST, "/apis/example.com/v1/events.k8s.io/", true),
        ] {
            assert_eq!(changes(&method, path), is_fenced, "{method} {path}");
        }
    }
}
