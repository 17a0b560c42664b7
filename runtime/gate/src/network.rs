//! Resolves names and dials addresses. A name is resolved once for each connection, and only addresses that pass the filter
//! are dialed: the address that was checked is the one that is reached, even if the name changes in between. If the
//! operator's network has a proxy, it is asked for a tunnel instead.

mod metrics;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use ipnet::IpNet;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::address;
use crate::connection::Proxy;
use crate::error::{BlockReason, TunnelError};
use crate::proxy::open_tunnel;
use crate::request::Host;
pub(crate) use metrics::{ConnectionLabels, ConnectionMetrics};

/// A connection that isn't open by then won't come. Also bounds an attempt that goes on after its request was dropped.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Turns names into addresses.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// Resolves a name into its addresses, in the order in which they should be tried. Dropping the future gives up; the
    /// lookup need not stop at once.
    fn resolve(&self, name: String) -> BoxFuture<io::Result<Vec<IpAddr>>>;
}

/// The system's resolver: `/etc/hosts` and the DNS servers of `/etc/resolv.conf`.
#[derive(Debug)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve(&self, name: String) -> BoxFuture<io::Result<Vec<IpAddr>>> {
        Box::pin(
            async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|found| found.ip()).collect()) },
        )
    }
}

/// What all connections of a gate share.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// Ranges that are never dialed.
    pub(crate) denied: Vec<IpNet>,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) tls: ClientConfig,
    pub(crate) proxy: Option<Proxy>,
    /// The operator's name for the provider, for metrics.
    pub(crate) provider: Arc<str>,
    /// Counts them.
    pub(crate) connections: ConnectionMetrics,
}

/// Why a host has no address to dial.
pub(crate) enum AddressError {
    Unresolved(io::Error),
    Refused(Vec<(IpAddr, BlockReason)>),
}

impl Network {
    /// The proxy through which a host is reached.
    pub(crate) fn proxy_to(&self, host: &Host) -> Option<&Proxy> {
        let is_near = matches!(host, Host::Ip(address) if address::is_near(*address));
        self.proxy.as_ref().filter(|_| !is_near)
    }

    /// The addresses of a host that may be dialed under a grant that opens these ranges.
    pub(crate) async fn permitted(&self, host: &Host, opened: &[IpNet]) -> Result<Vec<IpAddr>, AddressError> {
        let found = match host {
            Host::Ip(address) => vec![*address],
            Host::Name(name) => {
                self.resolver.resolve(name.clone()).await.map_err(AddressError::Unresolved)?
            }
        };
        if found.is_empty() {
            return Err(AddressError::Unresolved(io::Error::new(io::ErrorKind::NotFound, "no address")));
        }
        let mut permitted = Vec::new();
        let mut refused = Vec::new();
        for address in found {
            match address::permit(address, opened, &self.denied) {
                Ok(()) => permitted.push(address),
                Err(reason) => refused.push((address, reason)),
            }
        }
        if permitted.is_empty() { Err(AddressError::Refused(refused)) } else { Ok(permitted) }
    }

    pub(crate) async fn tunnel(&self, proxy: &Proxy, target: String) -> Result<TcpStream, TunnelError> {
        let Proxy { url, login, addresses } = proxy;
        let permitted = self.permitted(&url.host, addresses).await.map_err(|nowhere| match nowhere {
            AddressError::Unresolved(source) => TunnelError::Unresolved(Arc::new(source)),
            AddressError::Refused(refused) => TunnelError::Blocked(refused),
        })?;
        let unconnected = |source| TunnelError::Unconnected(Arc::new(source));
        let stream = dial(url.port, &permitted).await.map_err(unconnected)?;
        open_tunnel(stream, &target, login.as_ref()).await
    }
}

/// Tries the addresses in order. Each gets an equal share of the time, so a dead first one leaves time for the second.
pub(crate) async fn dial(port: u16, permitted: &[IpAddr]) -> io::Result<TcpStream> {
    let share = CONNECT_TIMEOUT / u32::try_from(permitted.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in permitted {
        match timeout(share, TcpStream::connect(SocketAddr::new(*address, port))).await {
            // A request is sent in one or two writes; waiting to fill a packet only costs time.
            Ok(Ok(stream)) => match stream.set_nodelay(true) {
                Ok(()) => return Ok(stream),
                Err(error) => last = error,
            },
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::from(io::ErrorKind::TimedOut),
        }
    }
    Err(last)
}
