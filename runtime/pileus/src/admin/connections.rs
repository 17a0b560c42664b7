//! The connections of the admin server. Its clients hold a bounded number of connections for a bounded time, so that
//! descriptors are left for the API server, the cloud and the Lease. Probes still get through: a new connection is
//! accepted even if all places are taken, and closes the oldest connection of the address that has the most.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;

/// The most connections at a time. A kubelet and two Prometheus servers use three.
const MAX_CONNECTIONS: u64 = 64;

/// A part of the process's descriptors that the connections may use, where that is less.
const DESCRIPTORS_PART: u64 = 8;

/// How long a client may take for the head of a request, and a connection may idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest head of a request.
const MAX_HEAD: usize = 16 * 1024;

/// The most header lines of a request.
const MAX_HEADERS: usize = 64;

/// How long a connection takes requests.
const LIFETIME: Duration = Duration::from_mins(1);

/// How long a response may take, once the connection takes no more requests. A client that doesn't read it is cut off.
const LAST_RESPONSE: Duration = Duration::from_secs(10);

/// The pause after a failure to accept, such as one for lack of descriptors. It doesn't repeat the failure in a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How often the log repeats that connections are closed for lack of places, or can't be accepted.
const LOG_PERIOD: Duration = Duration::from_mins(1);

/// Serves until the process ends.
pub(super) async fn serve(listener: std::net::TcpListener, router: Router) {
    match TcpListener::from_std(listener) {
        Ok(listener) => accept(listener, router, max_connections()).await,
        Err(error) => tracing::error!(%error, "the admin server has failed"),
    }
}

/// The most connections, given the process's limit of descriptors.
fn max_connections() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from((descriptors / DESCRIPTORS_PART).clamp(1, MAX_CONNECTIONS)).unwrap_or(1)
}

async fn accept(listener: TcpListener, router: Router, max: usize) {
    let mut tasks = JoinSet::new();
    let mut open: BTreeMap<u64, (IpAddr, AbortHandle)> = BTreeMap::new();
    let mut by_task: HashMap<Id, u64> = HashMap::new();
    let (mut next, mut logged): (u64, Option<Instant>) = (0, None);
    loop {
        let accepted = tokio::select! {
            Some(ended) = tasks.join_next_with_id() => {
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                if let Some(number) = by_task.remove(&id) {
                    open.remove(&number);
                }
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let is_log_due = logged.is_none_or(|logged| logged.elapsed() >= LOG_PERIOD);
        match accepted {
            Ok((stream, peer)) => {
                if open.len() >= max
                    && let Some((_, (address, task))) =
                        victim(open.iter().map(|(number, (address, _))| (*number, *address)))
                            .and_then(|number| open.remove_entry(&number))
                {
                    task.abort();
                    if is_log_due {
                        logged = Some(Instant::now());
                        tracing::warn!(%address, most = max, "the admin server has its most connections; closing the oldest ones");
                    }
                }
                let task = tasks.spawn(connection(stream, router.clone()));
                by_task.insert(task.id(), next);
                open.insert(next, (peer.ip(), task));
                next += 1;
                // The new connection runs before another one can close it.
                tokio::task::yield_now().await;
            }
            // The client has gone before it was accepted.
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                if is_log_due {
                    logged = Some(Instant::now());
                    tracing::warn!(%error, "the admin server can't accept connections; retrying");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// The connection to close for a new one: the oldest of the address that has the most. A client that takes all places loses
/// its own connections, and not those of a kubelet elsewhere.
fn victim(open: impl Iterator<Item = (u64, IpAddr)>) -> Option<u64> {
    let mut by_address: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
    for (number, address) in open {
        let (count, oldest) = by_address.entry(address).or_insert((0, number));
        (*count, *oldest) = (*count + 1, number.min(*oldest));
    }
    by_address
        .into_values()
        .max_by_key(|(count, oldest)| (*count, u64::MAX - oldest))
        .map(|(_, oldest)| oldest)
}

async fn connection(stream: TcpStream, router: Router) {
    let answer = service_fn(move |request| {
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request).await.unwrap_or_else(|never| match never {})) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    let mut served = pin!(served);
    if timeout(LIFETIME, served.as_mut()).await.is_err() {
        served.as_mut().graceful_shutdown();
        // Errors are the client's.
        let _ended = timeout(LAST_RESPONSE, served).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream as Blocking};
    use std::time::Instant as Clock;

    use axum::routing::get;

    use super::*;

    #[test]
    fn the_oldest_connection_of_the_address_with_the_most_is_closed() {
        for (addresses, expected) in [
            (&[][..], None),
            (&[1], Some(0)),
            (&[1, 2, 3], Some(0)),
            (&[1, 2, 2], Some(1)),
            (&[2, 1, 2, 1, 2], Some(0)),
            (&[1, 2, 2, 1], Some(0)),
            (&[3, 1, 1, 2, 1, 2], Some(1)),
        ] {
            let open = addresses.iter().map(|last| IpAddr::from([10, 0, 0, *last]));
            assert_eq!(victim((0..).zip(open)), expected, "{addresses:?}");
        }
    }

    #[test]
    fn the_limit_leaves_most_descriptors_to_others() {
        let max = max_connections();
        assert!((1..=64).contains(&max), "{max}");
    }

    /// A server on loopback with this limit, in a thread of its own.
    fn start(max: usize) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let large = "x".repeat(16 << 20);
                let router = Router::new()
                    .route("/healthz", get(|| async { "ok" }))
                    .route("/large", get(move || async move { large }));
                accept(TcpListener::from_std(listener).unwrap(), router, max).await;
            });
        });
        address
    }

    fn send(address: SocketAddr, bytes: &[u8]) -> Blocking {
        let mut stream = Blocking::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may have closed the connection already.
        let _closed = stream.write_all(bytes);
        stream
    }

    fn probe(address: SocketAddr) -> String {
        let mut answer = String::new();
        let mut stream = send(address, b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// How long the server lets a connection live.
    fn lives(mut stream: Blocking) -> Duration {
        let begun = Clock::now();
        let mut bytes = Vec::new();
        // A reset is an end as well.
        let _ended = stream.read_to_end(&mut bytes);
        begun.elapsed()
    }

    #[test]
    fn probes_are_answered_while_clients_take_all_places() {
        let address = start(16);
        let head = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
        let rows: [(&str, &[u8]); 4] = [
            ("idle", b""),
            ("slow heads", b"GET /healthz HTTP/1.1\r\nx-slow: "),
            ("kept alive", head),
            ("answers that are not read", b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n"),
        ];
        for (name, bytes) in rows {
            let mut held = Vec::new();
            for number in 0..500 {
                held.push(send(address, bytes));
                if number % 100 == 99 {
                    assert!(probe(address).ends_with("ok"), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_connection_without_a_complete_head_ends_and_so_does_an_idle_one() {
        let address = start(64);
        let idle = send(address, b"");
        let slow = send(address, b"GET /healthz HTTP/1.1\r\nx-slow: ");
        let kept = send(address, b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n");
        let long = send(address, &[b"GET /healthz HTTP/1.1\r\nx: ", vec![b'x'; 20_000].as_slice()].concat());
        assert!(lives(long) < HEAD_TIMEOUT / 2, "a head over the limit");
        for (name, stream) in [("idle", idle), ("a slow head", slow), ("kept alive", kept)] {
            let lived = lives(stream);
            assert!(lived < HEAD_TIMEOUT + Duration::from_secs(3), "{name}: {lived:?}");
        }
    }

    #[test]
    fn two_thousand_idle_connections_take_no_more_descriptors_than_the_limit() {
        let address = start(16);
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        let mut held = Vec::new();
        for _ in 0..2_000 {
            held.push(send(address, b""));
        }
        assert!(probe(address).ends_with("ok"));
        // The clients' own ends are descriptors of this process as well. Other tests run beside this one.
        let servers = descriptors().saturating_sub(before + held.len());
        assert!(servers < 500, "{servers} descriptors of the server");
    }
}
