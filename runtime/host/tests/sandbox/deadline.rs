//! A slow cloud: what it answers by the soft deadline is an answer, the rest is pending, and waiting uses no CPU time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pileus_cloud::{Answer, Purpose};
use pileus_gate::Grant;
use pileus_host::Limits;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::{configured, engine, gate, metrics, nodes};

/// A cloud that answers at once, except about Nodes whose names begin with `never`. It records which Nodes it was asked
/// about.
async fn slow_cloud() -> (u16, Arc<Mutex<BTreeSet<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let noted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&noted)));
        }
    });
    (port, asked)
}

async fn serve(stream: TcpStream, asked: Arc<Mutex<BTreeSet<String>>>) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut path) = (String::new(), String::new());
    while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
        if let Some(rest) = line.strip_prefix("GET /") {
            path = rest.split(' ').next().unwrap().to_owned();
            asked.lock().unwrap().insert(path.clone());
        }
        if line == "\r\n" {
            if path.starts_with("never") {
                std::future::pending::<()>().await;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
        line.clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_cloud_delays_only_what_it_has_not_answered() {
    let (port, asked) = slow_cloud().await;
    let grant = Grant {
        tls: false,
        host: "127.0.0.1".parse().unwrap(),
        port,
        methods: vec!["GET".parse().unwrap()],
        paths: vec!["/".parse().unwrap()],
        addresses: vec!["127.0.0.0/8".parse().unwrap()],
    };
    let limits = Limits {
        cpu: Duration::from_millis(500),
        lookup_soft: Duration::from_secs(4),
        lookup_hard: Duration::from_secs(10),
        ..Limits::default()
    };
    let configuration = format!(r#"{{"behaviour": "ask", "cloud": "http://127.0.0.1:{port}"}}"#);
    let guest = configured(&engine(), &configuration, gate(vec![grant]), limits, &metrics()).await;
    let batch = [nodes("known", 40), nodes("never", 100)].concat();
    let started = Instant::now();
    let answers =
        guest.lookup_once(Purpose::Refresh, &batch).await.expect("no fault: it ends by itself").unwrap();
    let took = started.elapsed();

    assert_eq!(answers.len(), batch.len());
    for (node, answer) in batch.iter().zip(&answers) {
        let is_expected = match answer {
            Ok(Answer::Found(_)) => node.name.starts_with("known"),
            Ok(Answer::Pending(_)) => node.name.starts_with("never"),
            _ => false,
        };
        assert!(is_expected, "{}: {answer:?}", node.name);
    }
    // 64 requests were in flight at the soft deadline and had three more seconds. The others were never sent.
    assert_eq!(asked.lock().unwrap().len(), 40 + 64);
    assert!((Duration::from_secs(7)..Duration::from_secs(10)).contains(&took), "{took:?}");
}
