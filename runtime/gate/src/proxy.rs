//! Opens a tunnel through a proxy. The `CONNECT` request holds only the target and the gate's login; what follows is TLS with
//! the cloud, which the proxy can neither read nor answer, unless the grant is without TLS. So every response of the proxy
//! itself becomes an error that names the proxy, and never a response that a provider could take for the cloud's.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::upgrade;
use hyper_util::rt::TokioIo;
use secrecy::ExposeSecret;
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use crate::connection::Login;
use crate::error::TunnelError;
use crate::headers::MAX_HEADERS;
use crate::secret::sensitive;

/// The head of a proxy's response. A refusal is explained in the body, which the gate doesn't read.
const MAX_HEAD: usize = 16 * 1024;

/// Asks the proxy at the other end of a connection for a tunnel to `target`, a host and a port.
pub(crate) async fn open_tunnel(
    stream: TcpStream,
    target: &str,
    login: Option<&Login>,
) -> Result<TcpStream, TunnelError> {
    let mut request = Request::connect(target).header(header::HOST, target);
    if let Some(login) = login {
        request = request.header(header::PROXY_AUTHORIZATION, basic(login).await?);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(broke)?;
    let builder = http1::Builder::new().max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD).clone();
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let mut exchange = pin!(async {
        let answer = sender.send_request(request).await.map_err(broke)?;
        match answer.status() {
            StatusCode::OK => upgrade::on(answer).await.map_err(broke),
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => Err(TunnelError::Login),
            status => Err(TunnelError::Answered(status)),
        }
    });
    // Each makes progress only while the other is polled; dropped together they leave nothing behind.
    let opened = tokio::select! {
        biased;
        opened = &mut exchange => opened,
        _ended = connection.with_upgrades() => exchange.await,
    };
    let parts = opened?.downcast::<TokioIo<TcpStream>>().expect("the stream is the one that was handed over");
    // Nothing was sent to the cloud yet, so these bytes are the proxy's.
    if !parts.read_buf.is_empty() {
        return Err(broke("it sent more data after it had opened the tunnel"));
    }
    Ok(parts.io.into_inner())
}

async fn basic(login: &Login) -> Result<HeaderValue, TunnelError> {
    let Login { username, password } = login;
    let unread = |cause| TunnelError::Password { place: password.to_string(), cause: Arc::new(cause) };
    let secret = password.read().await.map_err(unread)?;
    let plain = Zeroizing::new(format!("{username}:{}", secret.expose_secret().trim()));
    let text = Zeroizing::new(format!("Basic {}", BASE64_STANDARD.encode(plain.as_bytes())));
    Ok(sensitive(text).expect("base64 is a header value"))
}

fn broke(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TunnelError {
    TunnelError::Broke(Arc::new(io::Error::other(cause)))
}
