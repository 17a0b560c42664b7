//! A cloud on loopback, as raw as it takes to misbehave, and gates to it.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use pileus_gate::{Body, Config, Deadlines, Effect, Error, Fence, Gate, Grant, Metrics, Resolve, Rule};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The name under which every cloud is granted.
pub(crate) const NAME: &str = "cloud.test";

/// How long to wait on a busy machine for something that must happen.
const LONG: Duration = Duration::from_mins(5);

/// A cloud on loopback. Its task ends with the runtime of the test.
#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) port: u16,
    seen: Arc<CloudLog>,
}

#[derive(Debug, Default)]
pub(crate) struct CloudLog {
    connections: AtomicUsize,
    requests: watch::Sender<Vec<String>>,
}

impl CloudLog {
    /// Reads the next request of a connection, its body included, and keeps it.
    pub(crate) async fn request(&self, stream: &mut TcpStream) -> Option<String> {
        let mut text = Vec::new();
        loop {
            let whole = String::from_utf8_lossy(&text).into_owned();
            if let Some((head, body)) = whole.split_once("\r\n\r\n") {
                let length =
                    head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                if body.len() >= length.unwrap_or(0) {
                    self.requests.send_modify(|requests| requests.push(whole.clone()));
                    return Some(whole);
                }
            }
            if stream.read_buf(&mut text).await.ok()? == 0 {
                return None;
            }
        }
    }
}

impl Cloud {
    /// Serves each connection in a task of its own.
    pub(crate) async fn serving<F>(serve: impl Fn(TcpStream, Arc<CloudLog>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, serve)
    }

    /// Serves the connections of this listener.
    pub(crate) fn on<F>(
        listener: TcpListener,
        serve: impl Fn(TcpStream, Arc<CloudLog>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(CloudLog::default());
        let counted = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, counted.clone()));
            }
        });
        Self { port, seen }
    }

    /// Gives the same answer to every request and keeps connections open.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::serving(move |mut stream, seen| {
            let answer = answer.clone();
            async move {
                while seen.request(&mut stream).await.is_some() {
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Answers a path that begins like `/404` with that status, and others as the first part of the path says.
    pub(crate) async fn by_path() -> Self {
        let has_failed = Arc::new(AtomicBool::new(false));
        Self::serving(move |mut stream, seen| {
            let has_failed = has_failed.clone();
            async move {
                while let Some(request) = seen.request(&mut stream).await {
                    let path = request.split(' ').nth(1).unwrap_or_default();
                    let answer = match path.split('/').nth(1).unwrap_or_default() {
                        "cut" => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n[".to_owned(),
                        "chunks" => {
                            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n"
                                .to_owned()
                        }
                        "204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
                        "silent" => std::future::pending().await,
                        "flaky" if !has_failed.swap(true, Ordering::SeqCst) => whole("503"),
                        "flaky" => whole("200"),
                        status => whole(status),
                    };
                    if stream.write_all(answer.as_bytes()).await.is_err() || path.starts_with("/cut") {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// How many connections were taken.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// The requests as they came over the wire.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.borrow().clone()
    }

    /// Waits until so many requests have come over the wire.
    pub(crate) async fn arrived(&self, count: usize) {
        let mut requests = self.seen.requests.subscribe();
        let arrived = timeout(LONG, requests.wait_for(|requests| requests.len() >= count)).await;
        assert!(arrived.is_ok(), "fewer than {count} requests came: {:?}", self.requests());
    }

    /// A grant of this cloud by name and over loopback.
    pub(crate) fn grant(&self) -> Grant {
        Grant {
            tls: false,
            host: NAME.parse().unwrap(),
            port: self.port,
            methods: vec!["*".parse().unwrap()],
            paths: vec!["/".parse().unwrap()],
            addresses: vec!["127.0.0.0/8".parse().unwrap()],
        }
    }

    pub(crate) fn uri(&self, path: &str) -> String {
        format!("http://{NAME}:{}{path}", self.port)
    }
}

/// An answer with this status and an empty list.
pub(crate) fn whole(status: &str) -> String {
    format!("HTTP/1.1 {status} Status\r\ncontent-length: 2\r\n\r\n[]")
}

/// A rule for requests to a cloud, which counts against no limit.
pub(crate) fn rule(method: &str, path: &str, effect: Effect) -> Rule {
    Rule {
        host: NAME.parse().unwrap(),
        method: method.parse().unwrap(),
        path: path.parse().unwrap(),
        operation: None,
        effect,
        limits: Vec::new(),
        cache_scope: None,
        page: None,
        fold_case: false,
    }
}

/// Resolves every name to these addresses: the next list at each lookup, then the last one again and again.
#[derive(Debug)]
pub(crate) struct Answers {
    lists: Vec<Vec<IpAddr>>,
    pub(crate) lookups: AtomicUsize,
}

impl Answers {
    pub(crate) fn new(lists: &[&[&str]]) -> Arc<Self> {
        let list = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self { lists: lists.iter().map(list).collect(), lookups: AtomicUsize::new(0) })
    }
}

impl Resolve for Answers {
    fn resolve(&self, _: String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        let lookup = self.lookups.fetch_add(1, Ordering::SeqCst);
        let found = self.lists.get(lookup).or(self.lists.last()).cloned();
        Box::pin(async move { found.ok_or(io::Error::from(io::ErrorKind::NotFound)) })
    }
}

/// A resolver that never answers.
#[derive(Debug)]
pub(crate) struct Unresolved;

impl Resolve for Unresolved {
    fn resolve(&self, _: String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        Box::pin(std::future::pending())
    }
}

/// The configuration of a provider without grants.
pub(crate) fn nothing() -> Config {
    Config::new("test")
}

/// A gate and its metrics.
pub(crate) struct Watched {
    pub(crate) gate: Gate,
    registry: Registry,
}

impl Watched {
    pub(crate) fn new(grants: Vec<Grant>) -> Self {
        Self::resolving(grants, Answers::new(&[&["127.0.0.1"]]))
    }

    pub(crate) fn resolving(grants: Vec<Grant>, answers: Arc<dyn Resolve>) -> Self {
        Self::of(Config { grants, ..nothing() }, answers)
    }

    pub(crate) fn with(
        grants: Vec<Grant>,
        answers: Arc<dyn Resolve>,
        rules: Vec<Rule>,
        fence: Fence,
    ) -> Self {
        Self::of(Config { grants, rules, fence, ..nothing() }, answers)
    }

    /// A gate of a configuration, to clouds on loopback.
    pub(crate) fn of(config: Config, answers: Arc<dyn Resolve>) -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        Self { gate: Gate::with_resolver(config, &metrics, answers).unwrap(), registry }
    }

    /// Sends a GET with plenty of time.
    pub(crate) async fn get(&self, uri: &str) -> Result<http::Response<Body>, Error> {
        self.gate.send(get(uri), plenty()).await
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

pub(crate) fn get(uri: &str) -> http::Request<Full<Bytes>> {
    http::Request::get(uri).body(Full::default()).unwrap()
}

/// More time than any test needs.
pub(crate) fn plenty() -> Deadlines {
    within(Duration::from_secs(20))
}

pub(crate) fn within(time: Duration) -> Deadlines {
    let deadline = Instant::now() + time;
    Deadlines { soft: deadline, hard: deadline, connect: None, first_byte: None, between_bytes: None }
}

pub(crate) async fn text(answer: http::Response<Body>) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&answer.into_body().collect().await?.to_bytes()).into_owned())
}

/// The log of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
