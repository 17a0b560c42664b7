//! The connections to the API server: through the proxy, with the client certificate and the token as their files have
//! them now. Tools replace these files while the process runs, so they are read again.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use pileus_controllers::describe;
use pileus_gate::FencedBody;
use pileus_loader::ProxyScheme;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};
use zeroize::Zeroizing;

use super::ClusterConfig;
use super::tunnel::Tunnel;

/// How often the files are read again, at most. client-go reads a token again after a minute and a certificate after five;
/// tools that replace them leave more time than that.
const REREAD_PERIOD: Duration = Duration::from_secs(10);

/// A token or certificate has a few KiB.
const MAX_FILE: u64 = 1024 * 1024;

type Sent = FencedBody<Body>;
type Client = BoxCloneSyncService<Request<Sent>, Response<Incoming>, BoxError>;

/// Sends requests to the API server. Clones share the connections.
#[derive(Clone)]
pub(super) struct Transport {
    cluster: Arc<ClusterConfig>,
    state: Arc<Mutex<State>>,
}

struct State {
    client: Client,
    token: Option<HeaderValue>,
    /// The client certificate and its key, as read when the connections were made.
    identity: Vec<Zeroizing<Vec<u8>>>,
    /// When the files were read last; none where they must be read before the next request.
    read_at: Option<Instant>,
}

impl Transport {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// Where the configuration, a certificate or the token is invalid.
    pub(super) fn new(cluster: Arc<ClusterConfig>) -> Result<Self, String> {
        let token = match &cluster.token_file {
            Some(path) => read_token(path).map(Some).or_else(|problem| {
                // As in client-go: the token beside the file is used until the file can be read.
                let token = cluster.token.as_ref().and_then(|token| bearer(token)).map(Some);
                token.ok_or(problem)
            })?,
            None => None,
        };
        let identity = read_identity(&cluster).map_err(|(path, error)| unreadable(&path, &error))?;
        let client = client(&cluster)?;
        let state = State { client, token, identity, read_at: Some(Instant::now()) };
        Ok(Self { cluster, state: Arc::new(Mutex::new(state)) })
    }

    /// The client and the token for a request that is sent now.
    fn current(&self) -> (Client, Option<HeaderValue>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.read_at.is_none_or(|read_at| read_at.elapsed() >= REREAD_PERIOD) {
            state.read_at = Some(Instant::now());
            self.read_again(&mut state);
        }
        (state.client.clone(), state.token.clone())
    }

    /// Reads the files again. What can't be read or used is left as it was: a tool may be replacing it right now.
    fn read_again(&self, state: &mut State) {
        if let Some(path) = &self.cluster.token_file {
            match read_token(path) {
                Ok(token) => state.token = Some(token),
                Err(error) => {
                    tracing::warn!(%error, "can't read the API server's token again; using the last one");
                }
            }
        }
        match read_identity(&self.cluster) {
            Ok(identity) if identity == state.identity => {}
            // Connections that exist keep the old certificate, so new ones are made.
            Ok(identity) => match client(&self.cluster) {
                Ok(client) => {
                    tracing::info!("the client certificate for the API server was replaced");
                    (state.client, state.identity) = (client, identity);
                }
                Err(error) => {
                    tracing::warn!(%error, "can't use the new client certificate for the API server; using the last one");
                }
            },
            Err((path, error)) => {
                let path = path.display();
                tracing::warn!(%path, %error, "can't read the client certificate again; using the last one");
            }
        }
    }

    fn on_answer(&self, status: StatusCode) {
        if status == StatusCode::UNAUTHORIZED {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).read_at = None;
        }
    }
}

impl Service<Request<Sent>> for Transport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Sent>) -> Self::Future {
        let (client, token) = self.current();
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        let transport = self.clone();
        Box::pin(async move {
            let answer = client.oneshot(request).await?;
            transport.on_answer(answer.status());
            Ok(answer)
        })
    }
}

/// Reads a token, without the white space around it: editors and `echo` end files with a newline.
fn read_token(path: &Path) -> Result<HeaderValue, String> {
    let bytes = read(path).map_err(|error| unreadable(path, &error))?;
    let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.trim().is_empty());
    text.and_then(bearer).ok_or_else(|| format!("{} holds no token", path.display()))
}

/// The header value of a token.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    let text = Zeroizing::new(format!("Bearer {}", token.trim()));
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Reads the files of the client certificate and its key.
fn read_identity(cluster: &ClusterConfig) -> Result<Vec<Zeroizing<Vec<u8>>>, (PathBuf, std::io::Error)> {
    let of = |path: &PathBuf| read(path).map_err(|error| (path.clone(), error));
    cluster.identity_files.iter().map(of).collect()
}

fn read(path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    // Checked before it is opened: opening a pipe without a writer would block forever.
    let found = std::fs::metadata(path)?;
    if !found.is_file() || found.len() > MAX_FILE {
        return Err(std::io::Error::other("it is not a regular file of at most 1 MiB"));
    }
    std::fs::read(path).map(Zeroizing::new)
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("can't read {}: {error}", path.display())
}

/// A client with connections of its own. kube reads the certificate files.
fn client(cluster: &ClusterConfig) -> Result<Client, String> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    let Some(proxy) = cluster.proxy.clone() else { return over(cluster, http) };
    if proxy.scheme() != ProxyScheme::Https {
        return over(cluster, Tunnel::new(proxy, http));
    }
    // As in Go, the certificate authorities of the API server are the proxy's, too.
    let tls = cluster.config.rustls_https_connector_with_connector(http).map_err(|error| describe(&error))?;
    over(cluster, Tunnel::new(proxy, tls))
}

fn over<C>(cluster: &ClusterConfig, connector: C) -> Result<Client, String>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError> + Send,
{
    let config = &cluster.config;
    let tls = config.rustls_https_connector_with_connector(connector).map_err(|error| describe(&error))?;
    let mut connector = TimeoutConnector::new(tls);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Sent>(connector);
    Ok(BoxCloneSyncService::new(client.map_err(BoxError::from)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use http_body_util::BodyExt as _;
    use pileus_gate::Fence;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    fn issue(name: &str) -> rcgen::CertifiedKey<rcgen::KeyPair> {
        // An error means that it is installed already.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
    }

    /// An API server that answers each request with the number of the client's certificate, or 401 where the header isn't
    /// `Bearer good`.
    fn serve(server: &rcgen::CertifiedKey<rcgen::KeyPair>, clients: &[&rcgen::Certificate]) -> u16 {
        let mut roots = RootCertStore::empty();
        for client in clients {
            roots.add(client.der().clone()).unwrap();
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let key = PrivateKeyDer::try_from(server.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![server.cert.der().clone()], key)
            .unwrap();
        let (config, clients) =
            (Arc::new(config), clients.iter().map(|it| (*it).clone()).collect::<Vec<_>>());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                let clients = clients.clone();
                std::thread::spawn(move || {
                    let mut request = [0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut request) {
                        let shown = stream.conn.peer_certificates().unwrap().first().unwrap();
                        let number = clients.iter().position(|client| client.der() == shown).unwrap();
                        let is_good = request[..length].windows(12).any(|part| part == b"Bearer good\r");
                        let status = if is_good { "200 OK" } else { "401 Unauthorized" };
                        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 1\r\n\r\n{number}");
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                });
            }
        });
        port
    }

    async fn answer(transport: &Transport, port: u16) -> (u16, String) {
        let body = FencedBody::new(Body::empty(), Fence::default());
        let request = Request::get(format!("https://localhost:{port}/")).body(body).unwrap();
        let answer = transport.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn replaced_files_are_used_and_broken_ones_leave_what_was_read_before() {
        let (server, first, second) = (issue("localhost"), issue("first"), issue("second"));
        let port = serve(&server, &[&first.cert, &second.cert]);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("cert", &first.cert.pem());
        put("key", &first.signing_key.serialize_pem());
        put("token", "\n good\n");
        let mut config = kube::Config::new(format!("https://localhost:{port}").parse().unwrap());
        config.root_cert = Some(vec![server.cert.der().to_vec()]);
        config.auth_info.client_certificate = Some(path("cert"));
        config.auth_info.client_key = Some(path("key"));
        config.auth_info.token_file = Some(path("token"));
        // The file wins, as in client-go.
        config.auth_info.token = Some("other".to_owned().into());
        let transport = Transport::new(Arc::new(ClusterConfig::of(config))).unwrap();
        let is_due = || transport.state.lock().unwrap().read_at = None;
        let good = |number: &str| (200, number.to_owned());
        assert_eq!(answer(&transport, port).await, good("0"));

        put("cert", &second.cert.pem());
        assert_eq!(answer(&transport, port).await, good("0"), "it is too early to read it again");
        is_due();
        assert_eq!(answer(&transport, port).await, good("0"), "the key isn't replaced yet");
        put("key", &second.signing_key.serialize_pem());
        is_due();
        assert_eq!(answer(&transport, port).await, good("1"), "on a new connection");

        put("cert", "");
        std::fs::remove_file(folder.path().join("key")).unwrap();
        put("token", " \n");
        is_due();
        assert_eq!(answer(&transport, port).await, good("1"));

        put("token", "bad");
        is_due();
        assert_eq!(answer(&transport, port).await.0, 401);
        put("token", "good\r\n");
        assert_eq!(answer(&transport, port).await.0, 200, "after a 401 it is read at once");
    }

    #[test]
    fn a_token_is_trimmed_and_no_other_text_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (text, expected) in [
            ("planted", Some("Bearer planted")),
            ("planted\n", Some("Bearer planted")),
            ("\r\n planted \t\r\n", Some("Bearer planted")),
            ("", None),
            (" \n", None),
            ("planted\nplanted", None),
        ] {
            std::fs::write(&path, text).unwrap();
            match (read_token(&path), expected) {
                (Ok(value), Some(expected)) => {
                    assert_eq!(value, expected, "{text:?}");
                    assert!(!format!("{value:?}").contains("planted"));
                }
                (Err(problem), None) => assert!(!problem.contains("planted"), "{problem}"),
                (found, _) => panic!("{text:?}: {found:?}"),
            }
        }
        assert!(read_token(folder.path()).is_err() && read_token(&folder.path().join("none")).is_err());
    }
}
