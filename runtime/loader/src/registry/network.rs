//! Opens connections: resolves a name once, dials only addresses that pass the filter, and checks certificates.
//!
//! Through a proxy, the proxy resolves names. Then the filter applies to what is written as an address, which the proxy is not
//! asked for unless the filter allows it, and to the proxy itself, which the operator names.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::error::Error;
use crate::proxy::{Proxy, ProxyEnvironment, ProxyScheme};
use crate::registry::address::{NamedBy, permit};
use crate::registry::settings::{RegistrySettings, add_bundle};
use crate::registry::target::Origin;

/// A connection, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens connections for all registries.
#[derive(Debug)]
pub(super) struct Network {
    /// The system's, read for the first connection with TLS: a start from the store has none. Empty if the system has none,
    /// which matters only without a bundle.
    roots: OnceCell<RootCertStore>,
    proxies: ProxyEnvironment,
}

impl Network {
    pub(super) fn new(proxies: ProxyEnvironment) -> Self {
        Self { roots: OnceCell::new(), proxies }
    }

    async fn roots(&self) -> &RootCertStore {
        // There are more than a hundred, each in a file of its own on some systems.
        let read = async || spawn_blocking(system_roots).await.unwrap_or_else(|_| RootCertStore::empty());
        self.roots.get_or_init(read).await
    }

    /// Opens a connection to `origin`, at which an answer of `registry` may have led.
    pub(super) async fn connect(
        &self,
        origin: &Origin,
        named_by: NamedBy,
        registry: &RegistrySettings,
        within: Duration,
    ) -> Result<Box<dyn Stream>, Error> {
        let opening = self.open(origin, named_by, registry, within);
        let late = |_| Error::Timeout { registry: origin.authority(), phase: "to connect", after: within };
        timeout(within, opening).await.map_err(late)?
    }

    async fn open(
        &self,
        origin: &Origin,
        named_by: NamedBy,
        registry: &RegistrySettings,
        within: Duration,
    ) -> Result<Box<dyn Stream>, Error> {
        let proxy = self.proxies.proxy_for(origin.tls, &origin.host, origin.port);
        let proxy = proxy.map_err(|cause| Error::Settings { registry: registry.registry.clone(), cause })?;
        let stream: Box<dyn Stream> = if let Some(proxy) = proxy {
            self.tunnel(proxy, origin, named_by, registry, within).await?
        } else {
            let addresses = permitted(origin, named_by, registry).await?;
            Box::new(dial(origin, &addresses, within).await?)
        };
        if origin.tls { self.encrypt(stream, origin, registry).await } else { Ok(stream) }
    }

    /// Opens a tunnel to `origin` through a proxy that a variable names.
    async fn tunnel(
        &self,
        (variable, proxy): (&'static str, Proxy),
        origin: &Origin,
        named_by: NamedBy,
        registry: &RegistrySettings,
        within: Duration,
    ) -> Result<Box<dyn Stream>, Error> {
        let failed = |cause: &dyn Display| Error::Unreachable {
            registry: origin.authority(),
            cause: format!("proxy {proxy} of {variable}: {cause}"),
        };
        let is_address = origin.host.parse::<IpAddr>().is_ok();
        if is_address {
            permitted(origin, named_by, registry).await?;
        }
        let is_tls = proxy.scheme() == ProxyScheme::Https;
        let near = Origin { tls: is_tls, host: proxy.host().to_owned(), port: proxy.port() };
        let named_by = if near.is_loopback() { NamedBy::OperatorAsThisMachine } else { NamedBy::Operator };
        let addresses = permitted(&near, named_by, registry).await.map_err(|error| match error {
            Error::Misled { cause, .. } => failed(&cause),
            other => failed(&other),
        })?;
        let stream = dial(&near, &addresses, within).await.map_err(|error| failed(&error))?;
        let mut stream: Box<dyn Stream> = Box::new(stream);
        if is_tls {
            stream = self.encrypt(stream, &near, registry).await.map_err(|error| failed(&error))?;
        }
        let host = if origin.host.contains(':') { format!("[{}]", origin.host) } else { origin.host.clone() };
        proxy.open_tunnel(&mut stream, &host, origin.port).await.map_err(|error| failed(&error))?;
        Ok(stream)
    }

    /// Speaks TLS on a connection to `origin`.
    async fn encrypt(
        &self,
        stream: Box<dyn Stream>,
        origin: &Origin,
        registry: &RegistrySettings,
    ) -> Result<Box<dyn Stream>, Error> {
        let failed = |cause: String| Error::Unreachable { registry: origin.authority(), cause };
        let name = ServerName::try_from(origin.host.clone())
            .map_err(|_| failed("its name can't be in a certificate".to_owned()))?;
        let tls = TlsConnector::from(Arc::new(self.tls(registry).await?)).connect(name, stream).await;
        let stream = tls.map_err(|error| {
            failed(format!("TLS failed: {error}; check its certificate, and `caBundle` of the registry"))
        })?;
        Ok(Box::new(stream))
    }

    async fn tls(&self, registry: &RegistrySettings) -> Result<ClientConfig, Error> {
        let mut roots = self.roots().await.clone();
        if let Some(file) = &registry.ca_bundle {
            add_bundle(&mut roots, file, &registry.registry)?;
        }
        if roots.is_empty() {
            let cause =
                "the system has no trust roots; install ca-certificates, or set `caBundle`".to_owned();
            return Err(Error::Settings { registry: registry.registry.clone(), cause });
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports the default versions of TLS");
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Some systems carry authorities in forms that no library reads any more; the others are enough.
    let _counts = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// The addresses of an origin that may be dialed.
async fn permitted(
    origin: &Origin,
    named_by: NamedBy,
    registry: &RegistrySettings,
) -> Result<Vec<IpAddr>, Error> {
    let found: Vec<IpAddr> = if let Ok(address) = origin.host.parse() {
        vec![address]
    } else {
        let failed = |error: io::Error| Error::Unreachable {
            registry: origin.authority(),
            cause: format!("its name can't be resolved: {error}"),
        };
        let resolved = tokio::net::lookup_host((&*origin.host, origin.port)).await.map_err(failed)?;
        resolved.map(|address| address.ip()).collect()
    };
    let opened: &[IpNet] = &registry.addresses;
    let mut cause = "an unknown address";
    let mut allowed = Vec::new();
    for address in found {
        match permit(address, named_by, opened) {
            Ok(()) => allowed.push(address),
            Err(refused) => cause = refused,
        }
    }
    if !allowed.is_empty() {
        return Ok(allowed);
    }
    let cause = format!("it has {cause}");
    Err(Error::Misled { registry: registry.registry.clone(), target: origin.to_string(), cause })
}

/// Tries the addresses in order. Each gets an equal share of the time, so that a dead first one leaves time for the second.
async fn dial(origin: &Origin, addresses: &[IpAddr], within: Duration) -> Result<TcpStream, Error> {
    let share = within / u32::try_from(addresses.len() + 1).unwrap_or(u32::MAX);
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match timeout(share, TcpStream::connect(SocketAddr::new(*address, origin.port))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::from(io::ErrorKind::TimedOut),
        }
    }
    Err(Error::Unreachable { registry: origin.authority(), cause: last.to_string() })
}
