//! The network as a gate sees it. A name is resolved here, once a connection, and only addresses that passed the filter
//! are dialled, so what was checked is what is reached, however often the name's owner changes its mind; or a proxy is
//! asked for a tunnel, where the operator's network has one.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use ipnet::IpNet;
use rustls::ClientConfig;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    address::{self, Reason},
    connection::Proxy,
    dial::{CONNECT, Connections},
    proxy::{NoTunnel, open_tunnel},
    request::Host,
};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Turns names into addresses.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of a name, in the order in which they should be tried. Dropping the future gives up; it need not
    /// stop at once.
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

/// What all connections of a gate have in common.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// What is never dialled.
    pub(crate) denied: Vec<IpNet>,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) tls: ClientConfig,
    pub(crate) proxy: Option<Proxy>,
    /// The operator's name for the provider, for metrics.
    pub(crate) provider: Arc<str>,
    /// Where they are counted.
    pub(crate) connections: Connections,
}

/// Why there is nothing to dial.
pub(crate) enum Nowhere {
    Unresolved(io::Error),
    Refused(Vec<(IpAddr, Reason)>),
}

impl Network {
    /// The proxy by which a host is reached.
    pub(crate) fn proxy_to(&self, host: &Host) -> Option<&Proxy> {
        let is_near = matches!(host, Host::Ip(address) if address::is_near(*address));
        self.proxy.as_ref().filter(|_| !is_near)
    }

    /// The addresses of a host that may be dialled where these ranges are opened.
    pub(crate) async fn permitted(&self, host: &Host, opened: &[IpNet]) -> Result<Vec<IpAddr>, Nowhere> {
        let found = match host {
            Host::Ip(address) => vec![*address],
            Host::Name(name) => self.resolver.resolve(name.clone()).await.map_err(Nowhere::Unresolved)?,
        };
        if found.is_empty() {
            return Err(Nowhere::Unresolved(io::Error::new(io::ErrorKind::NotFound, "no address")));
        }
        let mut permitted = Vec::new();
        let mut refused = Vec::new();
        for address in found {
            match address::permit(address, opened, &self.denied) {
                Ok(()) => permitted.push(address),
                Err(reason) => refused.push((address, reason)),
            }
        }
        if permitted.is_empty() { Err(Nowhere::Refused(refused)) } else { Ok(permitted) }
    }

    pub(crate) async fn tunnel(&self, proxy: &Proxy, target: String) -> Result<TcpStream, NoTunnel> {
        let Proxy { url, login, addresses } = proxy;
        let permitted = self.permitted(&url.host, addresses).await.map_err(|nowhere| match nowhere {
            Nowhere::Unresolved(source) => NoTunnel::Unresolved(Arc::new(source)),
            Nowhere::Refused(refused) => NoTunnel::Blocked(refused),
        })?;
        let unconnected = |source| NoTunnel::Unconnected(Arc::new(source));
        let stream = dial(url.port, &permitted).await.map_err(unconnected)?;
        open_tunnel(stream, &target, login.as_ref()).await
    }
}

/// Tries the addresses in order. Each has an equal share of the time, so a dead first one leaves time for the second.
pub(crate) async fn dial(port: u16, permitted: &[IpAddr]) -> io::Result<TcpStream> {
    let share = CONNECT / u32::try_from(permitted.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in permitted {
        match timeout(share, TcpStream::connect(SocketAddr::new(*address, port))).await {
            // A request goes out in one or two writes; waiting to fill a packet only costs time.
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
