//! Counts the bytes that a process receives from the API server, including TLS. `/proc` has only the sum over all
//! processes, so the connections of the process go through this relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::Failure;

/// What is read from a connection at a time: a TLS record and more.
const BUFFER: usize = 64 << 10;

/// A way to a port of this machine.
pub(crate) struct Relay {
    /// Where to connect to.
    pub(crate) port: u16,
    received: Arc<AtomicU64>,
}

impl Relay {
    /// Starts a way to this port. It stays for as long as the bench runs.
    pub(crate) async fn start(target: u16) -> Result<Self, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let relay = Self { port: listener.local_addr()?.port(), received: Arc::default() };
        let received = Arc::clone(&relay.received);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A connection that breaks is one to the client, too, which then makes a new one.
                tokio::spawn(pass(client, target, Arc::clone(&received)));
            }
        });
        Ok(relay)
    }

    /// The bytes that came from the port so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

async fn pass(client: TcpStream, target: u16, received: Arc<AtomicU64>) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", target)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let down = async {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = from_server.read(&mut buffer).await?;
            if read == 0 {
                return to_client.shutdown().await;
            }
            received.fetch_add(u64::try_from(read).unwrap_or_default(), Ordering::Relaxed);
            to_client.write_all(buffer.get(..read).unwrap_or_default()).await?;
        }
    };
    tokio::try_join!(up, down).map(drop)
}
