//! Request and response bodies at the gate's size limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pileus_cloud::{Answer, Error, Purpose};
use pileus_gate::{Effect, Grant, Rule};
use pileus_host::Limits;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::cloud::rule;
use crate::fixture::{configured, engine, gate_with, metrics, node};

/// The largest request body.
const SENT: usize = 8 << 20;
/// The largest response body.
const RECEIVED: usize = 16 << 20;

/// A cloud that answers with as many bytes as the path says. Also returns how many bytes it received last.
async fn cloud() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent: Arc<AtomicUsize> = Arc::default();
    let noted = Arc::clone(&sent);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&noted)));
        }
    });
    (port, sent)
}

async fn serve(stream: TcpStream, sent: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut wanted, mut length) = (String::new(), 0, 0);
    while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
        if let Some(rest) = line.strip_prefix("POST /") {
            wanted = rest.split(' ').next().unwrap().parse().unwrap();
        }
        if let Some(rest) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = rest.trim().parse().unwrap();
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            sent.store(body.len(), Ordering::Relaxed);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {wanted}\r\n\r\n");
            // The gate closes the connection where the body is too large.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&vec![b'x'; wanted]).await;
        }
        line.clear();
    }
}

/// Sends and requests this many bytes. Returns the guest's answer, and how many bytes the cloud received.
async fn exchange(send: usize, receive: usize) -> (Result<String, Error>, usize) {
    let (port, sent) = cloud().await;
    let grant = Grant {
        tls: false,
        host: "127.0.0.1".parse().unwrap(),
        port,
        methods: vec!["POST".parse().unwrap()],
        paths: vec!["/".parse().unwrap()],
        addresses: vec!["127.0.0.0/8".parse().unwrap()],
    };
    let configuration =
        format!(r#"{{"behaviour": "bodies", "bytes": {send}, "cloud": "http://127.0.0.1:{port}"}}"#);
    // So many bytes take a busy machine some time.
    let limits = Limits {
        cpu: Duration::from_secs(20),
        lookup_soft: Duration::from_mins(2),
        lookup_hard: Duration::from_mins(4),
        ..Limits::default()
    };
    // A lookup may send a POST that a rule calls a read.
    let rule = Rule { host: "127.0.0.1".parse().unwrap(), ..rule("POST", "/**", Effect::Read) };
    let gate = gate_with(vec![grant], vec![rule]);
    let guest = configured(&engine(), &configuration, gate, limits, &metrics()).await;
    let asked = [node(&receive.to_string())];
    let answers = guest.lookup_once(Purpose::Initialise, &asked).await.unwrap().unwrap();
    let came = match answers.into_iter().next().unwrap() {
        Ok(Answer::Found(found)) => Ok(found.zone.unwrap()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    };
    (came, sent.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_bodies_pass_in_both_directions_and_one_more_byte_is_refused() {
    for (send, receive) in [(0, 0), (SENT, 0), (0, RECEIVED), (SENT, SENT)] {
        let (came, sent) = exchange(send, receive).await;
        assert_eq!((came.unwrap(), sent), (receive.to_string(), send), "{send} bytes there, {receive} back");
    }
    let (came, sent) = exchange(SENT + 1, 0).await;
    let error = came.unwrap_err().message;
    assert!(sent == 0 && error.contains("HttpRequestBodySize"), "{sent} bytes arrived: {error}");
    let error = exchange(0, RECEIVED + 1).await.0.unwrap_err().message;
    assert!(error.contains("HttpResponseBodySize"), "{error}");
}
