//! Connects to the API server through a proxy. What follows in the tunnel is TLS with the API server.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use pileus_loader::Proxy;
use tower::{BoxError, Service};

/// Connects through a proxy. `connector` connects to the proxy.
#[derive(Clone)]
pub(super) struct Tunnel<C> {
    proxy: Proxy,
    connector: C,
}

impl<C> Tunnel<C> {
    pub(super) const fn new(proxy: Proxy, connector: C) -> Self {
        Self { proxy, connector }
    }
}

impl<C> Service<Uri> for Tunnel<C>
where
    C: Service<Uri>,
    C::Response: Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.connector.poll_ready(context).map_err(io::Error::other)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let (proxy, connecting) = (self.proxy.clone(), self.connector.call(self.proxy.uri()));
        Box::pin(async move {
            let failed = |cause: BoxError| io::Error::other(format!("proxy {proxy}: {cause}"));
            let mut stream = TokioIo::new(connecting.await.map_err(|cause| failed(cause.into()))?);
            let host = server.host().unwrap_or_default();
            let port =
                server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
            let opened = proxy.open_tunnel(&mut stream, host, port).await;
            opened.map_err(|cause| failed(cause.into()))?;
            Ok(stream.into_inner())
        })
    }
}
