//! A server whose answers a test writes byte by byte, for what no real registry does.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) body: String,
    /// The head's lines.
    head: Vec<String>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.iter().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// What is written, and whether the connection then stays open without a word.
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    pub(crate) hangs: bool,
}

/// An answer with a body. `headers` are lines that end in CR LF.
pub(crate) fn answer(status: u16, headers: &str, body: &[u8]) -> Reply {
    let head = format!("HTTP/1.1 {status} Words\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    Reply { bytes: [head.as_bytes(), body].concat(), hangs: false }
}

/// A running server on loopback.
pub(crate) struct Scripted {
    pub(crate) host: String,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Scripted {
    pub(crate) async fn start(reply: impl Fn(&Received, &str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (received, reply, own) = (Arc::new(Mutex::new(Vec::new())), Arc::new(reply), host.clone());
        let log: Arc<Mutex<Vec<Received>>> = Arc::clone(&received);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (log, reply, own) = (Arc::clone(&log), Arc::clone(&reply), own.clone());
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await?);
                    }
                    let lines: Vec<_> = String::from_utf8_lossy(&head).lines().map(str::to_owned).collect();
                    let mut first = lines[0].split(' ').map(str::to_owned);
                    let path = first.nth(1).unwrap();
                    let mut request = Received { path, body: String::new(), head: lines };
                    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).await?;
                    request.body = String::from_utf8_lossy(&body).into_owned();
                    let Reply { bytes, hangs } = reply(&request, &own);
                    log.lock().unwrap().push(request);
                    stream.write_all(&bytes).await?;
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    stream.shutdown().await?;
                    Ok::<_, std::io::Error>(())
                });
            }
        });
        Self { host, received, task }
    }

    /// What has arrived so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}
