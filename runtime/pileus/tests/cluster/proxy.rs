//! A network between one replica and the API server that can be cut.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// They work.
    Whole,
    /// They stay open, and nothing comes through.
    Stalled,
    /// They are closed, new ones at once.
    Broken,
}

/// Forwards connections from a port of its own. Ends when dropped.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    network: watch::Sender<Network>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let network = watch::Sender::new(Network::Whole);
        let seen = network.subscribe();
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let mut network = seen.clone();
                tokio::spawn(async move {
                    let cut = network.clone();
                    tokio::select! {
                        () = forward(near, port, cut) => {}
                        _ = network.wait_for(|network| *network == Network::Broken) => {}
                    }
                });
            }
        });
        Self { port: own, network, task }
    }

    pub(crate) fn becomes(&self, network: Network) {
        self.network.send_replace(network);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(near: TcpStream, port: u16, network: watch::Receiver<Network>) {
    let Ok(far) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await else { return };
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = pump(near_read, far_write, network.clone()) => {}
        () = pump(far_read, near_write, network) => {}
    }
}

/// Carries bytes one way, while the network is whole.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut network: watch::Receiver<Network>) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let whole = network.wait_for(|network| *network == Network::Whole).await.is_ok();
        if !whole || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
