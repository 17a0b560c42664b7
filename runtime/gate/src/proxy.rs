//! The tunnel through a proxy. It is asked for with `CONNECT` and nothing but the target and the gate's own login; what
//! comes after is TLS with the cloud, which the proxy can neither read nor answer, unless the grant is one without. So
//! whatever the proxy says itself is an error that names it, and never an answer that a provider could take for its
//! cloud's.

use std::{io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Empty;
use hyper::{client::conn::http1, upgrade};
use hyper_util::rt::TokioIo;
use secrecy::ExposeSecret;
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use crate::{
    address::Reason, connection::Login, credentials::sensitive, error::Refused, headers::MOST_HEADERS,
};

/// The head of a proxy's answer; what explains a refusal stands in the body, which nobody reads.
const MOST_HEAD: usize = 16 * 1024;

/// Why a proxy let no tunnel through.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoTunnel {
    /// Its name has no address.
    #[error("its name wasn't resolved: {0}; check the name and the cluster's DNS")]
    Unresolved(Arc<io::Error>),
    /// It has only addresses that aren't opened for it. Each, and why it isn't dialled.
    #[error(
        "it has no address that may be dialled ({}); if it is meant, add the range to `addresses` of the proxy in the \
         CloudProvider document",
        Refused(.0)
    )]
    Blocked(Vec<(IpAddr, Reason)>),
    /// None of its addresses took a connection.
    #[error("it took no connection: {0}")]
    Unconnected(Arc<io::Error>),
    /// There is no password to show.
    #[error("the password for it couldn't be read from {place}: {cause}")]
    Password {
        /// Where it was looked for.
        place: String,
        /// What the source said.
        cause: Arc<io::Error>,
    },
    /// It wants a login, or another.
    #[error("it answered 407; check `username` and `password` of the proxy in the CloudProvider document")]
    Login,
    /// It refused, or didn't reach the host itself.
    #[error("it answered {0} instead of opening a tunnel; ask whoever runs it whether the host is allowed")]
    Answered(StatusCode),
    /// The connection broke, or what came back isn't HTTP.
    #[error("it broke off: {0}")]
    Broke(Arc<io::Error>),
    /// It took too long.
    #[error("it opened no tunnel within {0:?}")]
    Late(Duration),
}

/// Has the proxy at the other end of a connection open a tunnel to `target`, a host and a port.
pub(crate) async fn open_tunnel(
    stream: TcpStream,
    target: &str,
    login: Option<&Login>,
) -> Result<TcpStream, NoTunnel> {
    let mut request = Request::connect(target).header(header::HOST, target);
    if let Some(login) = login {
        request = request.header(header::PROXY_AUTHORIZATION, basic(login).await?);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(broke)?;
    let builder = http1::Builder::new().max_headers(MOST_HEADERS).max_buf_size(MOST_HEAD).clone();
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let mut exchange = pin!(async {
        let answer = sender.send_request(request).await.map_err(broke)?;
        match answer.status() {
            StatusCode::OK => upgrade::on(answer).await.map_err(broke),
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => Err(NoTunnel::Login),
            status => Err(NoTunnel::Answered(status)),
        }
    });
    // Both make progress only together, and dropped together they leave nothing behind.
    let opened = tokio::select! {
        biased;
        opened = &mut exchange => opened,
        _ended = connection.with_upgrades() => exchange.await,
    };
    let parts = opened?.downcast::<TokioIo<TcpStream>>().expect("the stream is the one that was handed over");
    // Nobody spoke to the cloud yet, so what comes unasked is the proxy's.
    if !parts.read_buf.is_empty() {
        return Err(broke("it went on speaking after it had opened the tunnel"));
    }
    Ok(parts.io.into_inner())
}

async fn basic(login: &Login) -> Result<HeaderValue, NoTunnel> {
    let Login { username, password } = login;
    let unread = |cause| NoTunnel::Password { place: password.to_string(), cause: Arc::new(cause) };
    let secret = password.read().await.map_err(unread)?;
    let plain = Zeroizing::new(format!("{username}:{}", secret.expose_secret().trim()));
    let text = Zeroizing::new(format!("Basic {}", BASE64_STANDARD.encode(plain.as_bytes())));
    Ok(sensitive(text).expect("base64 is a header value"))
}

fn broke(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> NoTunnel {
    NoTunnel::Broke(Arc::new(io::Error::other(cause)))
}
