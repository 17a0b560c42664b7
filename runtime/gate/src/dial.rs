//! Connections to the cloud, and the requests on them. The target of a connection is checked against its grant once more,
//! and `network` resolves and dials its addresses. Each grant has a pool of its own: a connection that was opened under one
//! grant's address ranges is never used under another's, nor by another provider. The client follows no redirect, decodes
//! no body and ignores proxy settings in the environment.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tower_service::Service;

use crate::connection::Proxy;
use crate::error::{Error, Phase, TunnelError};
use crate::fence::FencedBody;
use crate::grants::Grant;
use crate::headers::MAX_HEADERS;
use crate::network::{AddressError, CONNECT_TIMEOUT, ConnectionLabels, ConnectionMetrics, Network, dial};
use crate::request::{Host, default_port};

/// The time for a tunnel through the proxy. It leaves a second for TLS with the cloud, and tells who was late.
const TUNNEL_TIMEOUT: Duration = Duration::from_secs(9);
/// Shorter than clouds keep an idle connection (Azure's front ends 4 minutes, AWS's 1 minute and more).
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// As many as a call may have requests in flight.
const MAX_IDLE: usize = 64;
/// The head of a response; real ones have 1 to 4 KiB.
const MAX_HEAD: usize = 64 * 1024;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The timeouts of the stages of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) first_byte: Duration,
}

/// Carries requests under one grant. Clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    /// Shared, since each request that waits for a limit holds a clone.
    client: Arc<Client<Connector, FencedBody<Full<Bytes>>>>,
    network: Arc<Network>,
}

impl Dialer {
    pub(crate) fn new(grant: Arc<Grant>, network: Arc<Network>) -> Self {
        let labels =
            ConnectionLabels { provider: Arc::clone(&network.provider), grant: grant.label().into() };
        let connections = network.connections.clone();
        let filter = Filter { grant, network: Arc::clone(&network) };
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(network.tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(filter);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_max_buf_size(MAX_HEAD)
            .http1_max_headers(MAX_HEADERS)
            .build(Connector { https, connections, labels });
        Self { client: Arc::new(client), network }
    }

    /// Sends a request and waits for the head of its response. A request is sent on a second connection only if the first
    /// one turned out to be closed before the first byte.
    pub(crate) async fn send(
        &self,
        host: &Host,
        mut request: http::Request<FencedBody<Full<Bytes>>>,
        timeouts: Timeouts,
    ) -> Result<http::Response<Incoming>, Error> {
        let late = |phase, after| match (phase, self.network.proxy_to(host)) {
            (Phase::Connect, Some(proxy)) => no_tunnel(proxy, host, TunnelError::Late(after)),
            _ => Error::Timeout { phase, host: host.to_string(), after },
        };
        let mut captured = capture_connection(&mut request);
        let mut answer = self.client.request(request);
        let connected = async {
            captured.wait_for_connection_metadata().await;
        };
        tokio::select! {
            biased;
            early = &mut answer => return early.map_err(|error| told_apart(&error, host)),
            connected = timeout(timeouts.connect, connected) => {
                connected.map_err(|_| late(Phase::Connect, timeouts.connect))?;
            }
        }
        let answer = timeout(timeouts.first_byte, answer).await;
        answer
            .map_err(|_| late(Phase::FirstByte, timeouts.first_byte))?
            .map_err(|error| told_apart(&error, host))
    }
}

/// Converts an error of the HTTP library by the types in its chain of causes.
fn told_apart(error: &legacy::Error, host: &Host) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut innermost = error.to_string();
    while let Some(current) = cause {
        if let Some(own) = current.downcast_ref::<Error>() {
            return own.clone();
        }
        if current.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse_too_large) {
            let limit = format!("{MAX_HEADERS} lines or {} KiB", MAX_HEAD >> 10);
            return Error::ResponseTooLarge { host: host.to_string(), part: "head", limit };
        }
        innermost = current.to_string();
        cause = current.source();
    }
    Error::Protocol { host: host.to_string(), source: Arc::new(io::Error::other(innermost)) }
}

/// Opens a connection, TLS included, within `CONNECT_TIMEOUT`, and counts it.
#[derive(Debug, Clone)]
struct Connector {
    https: HttpsConnector<Filter>,
    connections: ConnectionMetrics,
    labels: ConnectionLabels,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Error;
    type Future = BoxFuture<Result<Stream, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default().to_owned();
        let opening = self.https.call(uri);
        let (begun, connections, labels) = (Instant::now(), self.connections.clone(), self.labels.clone());
        Box::pin(async move {
            let opened = match timeout(CONNECT_TIMEOUT, opening).await {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(cause)) => Err(match cause.downcast::<Error>() {
                    Ok(own) => *own,
                    // An error that isn't the filter's is the TLS library's.
                    Err(cause) => Error::Tls { host, source: cause.into() },
                }),
                Err(_) => Err(Error::Timeout { phase: Phase::Connect, host, after: CONNECT_TIMEOUT }),
            };
            connections.tried(&labels, &opened, begun.elapsed());
            opened
        })
    }
}

/// Opens a TCP connection to the first permitted address that accepts one, or a tunnel through the proxy.
#[derive(Debug, Clone)]
struct Filter {
    grant: Arc<Grant>,
    network: Arc<Network>,
}

impl Service<Uri> for Filter {
    type Response = TokioIo<TcpStream>;
    type Error = Error;
    type Future = BoxFuture<Result<TokioIo<TcpStream>, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let filter = self.clone();
        Box::pin(async move {
            let (host, port) = filter.target(&uri)?;
            filter.open(&host, port).await.map(TokioIo::new)
        })
    }
}

impl Filter {
    /// Reads the target once more from the URI that is about to be dialed, and checks it against the grant: no code between
    /// the decision and here can send a request elsewhere.
    fn target(&self, uri: &Uri) -> Result<(Host, u16), Error> {
        let tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(default_port(tls));
        let text = uri.host().unwrap_or_default();
        match Host::parse(text) {
            Ok(host) if self.grant.names(tls, &host, port) => Ok((host, port)),
            Ok(_) | Err(_) => Err(Error::Malformed {
                part: "host",
                found: text.to_owned(),
                cause: format!("isn't the host of grant {}", self.grant.label()),
            }),
        }
    }

    async fn open(&self, host: &Host, port: u16) -> Result<TcpStream, Error> {
        let Some(proxy) = self.network.proxy_to(host) else {
            let permitted = self.permitted(host).await?;
            let refused = |source| Error::Connect { host: host.to_string(), source: Arc::new(source) };
            return dial(port, &permitted).await.map_err(refused);
        };
        if matches!(host, Host::Ip(_)) {
            self.permitted(host).await?;
        }
        let opening = self.network.tunnel(proxy, format!("{host}:{port}"));
        let opened = timeout(TUNNEL_TIMEOUT, opening).await;
        let opened = opened.unwrap_or(Err(TunnelError::Late(TUNNEL_TIMEOUT)));
        opened.map_err(|cause| no_tunnel(proxy, host, cause))
    }

    async fn permitted(&self, host: &Host) -> Result<Vec<IpAddr>, Error> {
        let permitted = self.network.permitted(host, &self.grant.addresses).await;
        permitted.map_err(|nowhere| match nowhere {
            AddressError::Unresolved(source) => {
                Error::Dns { host: host.to_string(), source: Arc::new(source) }
            }
            AddressError::Refused(refused) => {
                Error::AddressBlocked { host: host.to_string(), grant: self.grant.label(), refused }
            }
        })
    }
}

fn no_tunnel(proxy: &Proxy, host: &Host, cause: TunnelError) -> Error {
    Error::Proxy { proxy: proxy.url.to_string(), host: host.to_string(), cause }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use prometheus_client::registry::Registry;
    use proptest::prelude::*;

    use super::*;
    use crate::network::Resolve;

    #[derive(Debug)]
    struct Fixed(Vec<IpAddr>);

    impl Resolve for Fixed {
        fn resolve(&self, _: String) -> BoxFuture<io::Result<Vec<IpAddr>>> {
            let found = self.0.clone();
            Box::pin(async move { Ok(found) })
        }
    }

    fn filter(host: &str, addresses: &[&str], answers: Vec<IpAddr>) -> Filter {
        let grant = Grant {
            tls: true,
            host: host.parse().unwrap(),
            port: 443,
            methods: Vec::new(),
            paths: Vec::new(),
            addresses: addresses.iter().map(|range| range.parse().unwrap()).collect(),
        };
        let network = Network {
            denied: vec!["10.96.0.1/32".parse().unwrap()],
            resolver: Arc::new(Fixed(answers)),
            tls: crate::trust::tls(false, None).unwrap(),
            proxy: None,
            provider: "test".into(),
            connections: ConnectionMetrics::register(&mut Registry::default()),
        };
        Filter { grant: Arc::new(grant), network: Arc::new(network) }
    }

    /// The addresses that would be dialed. Nothing here waits, so no runtime is needed.
    fn permitted(filter: &Filter, host: &str) -> Result<Vec<IpAddr>, Error> {
        filter.permitted(&Host::parse(host).unwrap()).now_or_never().unwrap()
    }

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_the_permitted_of_several_addresses_are_dialed_in_their_order() {
        let answers =
            addresses(&["127.0.0.1", "20.1.2.3", "169.254.169.254", "10.96.0.1", "10.1.2.3", "::1"]);
        let filter = filter("*.example.com", &["10.0.0.0/8"], answers);
        assert_eq!(permitted(&filter, "api.example.com").unwrap(), addresses(&["20.1.2.3", "10.1.2.3"]));
    }

    #[test]
    fn a_host_with_only_refused_addresses_is_blocked_and_the_message_says_why() {
        let filter = filter("*.example.com", &[], addresses(&["127.0.0.1", "fe80::1"]));
        let text = permitted(&filter, "api.example.com").unwrap_err().to_string();
        let reasons =
            "127.0.0.1 is loopback, fe80::1 is link-local, which only a range of that single address opens";
        assert!(text.contains(reasons) && text.contains("`addresses` of grant *.example.com"), "{text}");
    }

    #[test]
    fn a_name_without_addresses_is_a_dns_error() {
        let filter = filter("*.example.com", &[], Vec::new());
        assert!(matches!(permitted(&filter, "api.example.com"), Err(Error::Dns { .. })));
    }

    #[test]
    fn the_target_is_checked_against_the_grant_right_before_it_is_dialed() {
        let filter = filter("api.example.com", &[], Vec::new());
        let rows = [
            ("https://api.example.com/", true),
            ("https://api.example.com:443/", true),
            ("https://evil.example/", false),
            ("https://api.example.com:8443/", false),
            ("http://api.example.com/", false),
            ("http://api.example.com:443/", false),
            ("/", false),
        ];
        for (uri, expected) in rows {
            assert_eq!(filter.target(&uri.parse().unwrap()).is_ok(), expected, "{uri}");
        }
    }

    /// Every spelling that some parser reads as this IPv4 address.
    fn spellings(address: std::net::Ipv4Addr) -> Vec<String> {
        let [a, b, c, d] = address.octets();
        let whole = u32::from(address);
        let (high, low) = (whole >> 16, whole & 0xffff);
        vec![
            address.to_string(),
            format!("{address}."),
            whole.to_string(),
            format!("{whole:#x}"),
            format!("0{whole:o}"),
            format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
            format!("{a:#X}.{b:#x}.{c}.{d:#x}").to_lowercase(),
            format!("{a}.{b}.{low}"),
            format!("{a}.{}", whole & 0xff_ffff),
            format!("[::ffff:{address}]"),
            format!("[::ffff:{high:x}:{low:x}]"),
            format!("[64:ff9b::{high:x}:{low:x}]"),
            format!("[64:ff9b:1::{high:x}:{low:x}]"),
            format!("[2002:{high:x}:{low:x}::1]"),
            format!("[2001:0:1::{:x}:{:x}]", high ^ 0xffff, low ^ 0xffff),
            format!("[::{high:x}:{low:x}]"),
        ]
    }

    proptest! {
        #[test]
        fn a_denied_address_is_never_dialed_in_any_spelling(
            octets in prop_oneof![
                Just([169, 254, 169, 254]), Just([168, 63, 129, 16]), Just([100, 100, 100, 200]),
                Just([192, 0, 0, 192]), any::<[u8; 3]>().prop_map(|[b, c, d]| [127, b, c, d]),
                any::<[u8; 3]>().prop_map(|[b, c, d]| [10, b, c, d]), any::<[u8; 3]>().prop_map(|[b, c, d]| [0, b, c, d]),
            ],
        ) {
            for spelling in spellings(octets.into()) {
                // The grant names exactly this host, so only the filter can block it.
                let Ok(host) = Host::parse(&spelling) else { continue };
                let filter = filter(&spelling, &[], Vec::new());
                let found = filter.permitted(&host).now_or_never().unwrap();
                prop_assert!(matches!(found, Err(Error::AddressBlocked { .. })), "{}: {:?}", spelling, found);
            }
        }
    }
}
