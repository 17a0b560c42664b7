//! The operator's network: what goes through a proxy, what the proxy sees, how proxies that refuse or misbehave are handled,
//! and which certificates are trusted.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pileus_gate::{
    BlockReason, Config, Connection, Deadlines, Error, Gate, Grant, Login, Metrics, Proxy, Resolve,
    SecretFile, TunnelError,
};
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::cloud::{Cloud, NAME, Watched, get, nothing, plenty, text};
use crate::environment::{is_child, run_with, serve_tls};
use crate::{OK, SHORT};

/// The proxy's name.
const PROXY: &str = "proxy.test";

/// Resolves every name to loopback, and keeps the names.
#[derive(Debug, Default)]
struct Names(Mutex<Vec<String>>);

impl Names {
    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Resolve for Names {
    fn resolve(&self, name: String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        self.0.lock().unwrap().push(name);
        Box::pin(async { Ok(vec!["127.0.0.1".parse().unwrap()]) })
    }
}

/// A proxy that opens every tunnel to a port of loopback.
pub(crate) async fn opening() -> Cloud {
    Cloud::serving(|mut stream, seen| async move {
        let Some(request) = seen.request(&mut stream).await else { return };
        let target = request.split([' ', ':']).nth(2).unwrap().parse().unwrap();
        let mut onward = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
        stream.write_all(b"HTTP/1.0 200 Connection established\r\nvia: 1.1 proxy\r\n\r\n").await.unwrap();
        let _ended = copy_bidirectional(&mut stream, &mut onward).await;
    })
    .await
}

/// The configuration of a proxy on loopback.
pub(crate) fn proxy(at: &Cloud) -> Proxy {
    let url = format!("http://{PROXY}:{}", at.port).parse().unwrap();
    Proxy { url, login: None, addresses: vec!["127.0.0.0/8".parse().unwrap()] }
}

fn through(proxy: Proxy, grants: Vec<Grant>) -> (Watched, Arc<Names>) {
    let names = Arc::new(Names::default());
    let connection = Connection { proxy: Some(proxy), extra_roots: None };
    (Watched::of(Config { grants, connection, ..nothing() }, names.clone()), names)
}

/// A grant that opens no address at all.
fn by_name(cloud: &Cloud) -> Grant {
    Grant { addresses: Vec::new(), ..cloud.grant() }
}

#[tokio::test]
async fn a_plain_request_goes_through_a_tunnel_and_the_proxy_learns_only_its_target() {
    let (cloud, tunnels) = (Cloud::answering(OK).await, opening().await);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hunter2\n").unwrap();
    let login = Login::new("pileus", Arc::new(SecretFile::new(file.path()))).unwrap();
    let (gate, names) = through(Proxy { login: Some(login), ..proxy(&tunnels) }, vec![by_name(&cloud)]);
    for _ in 0..2 {
        assert_eq!(text(gate.get(&cloud.uri("/a?b")).await.unwrap()).await.unwrap(), "ok");
    }
    let target = format!("{NAME}:{}", cloud.port);
    // The base64 of pileus:hunter2.
    let login = "proxy-authorization: Basic cGlsZXVzOmh1bnRlcjI=";
    let asked = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{login}\r\n\r\n");
    assert_eq!(tunnels.requests(), [asked], "once for both requests");
    let arrived = cloud.requests();
    assert_eq!(
        arrived,
        vec![format!("GET /a?b HTTP/1.1\r\nhost: {target}\r\n\r\n"); 2],
        "nothing is the proxy's"
    );
    assert_eq!(names.asked(), [PROXY], "the cloud's name is the proxy's to resolve");
}

#[tokio::test]
async fn the_password_is_read_for_each_connection_and_without_it_no_request_is_sent() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let (cloud, tunnels) = (Cloud::answering(closing).await, opening().await);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    let login = Login::new("pileus", Arc::new(SecretFile::new(&path))).unwrap();
    let (gate, _) = through(Proxy { login: Some(login), ..proxy(&tunnels) }, vec![by_name(&cloud)]);
    for password in ["first", "second"] {
        std::fs::write(&path, password).unwrap();
        gate.get(&cloud.uri("/")).await.unwrap();
    }
    let [first, second] = &tunnels.requests()[..] else { unreachable!("two connections") };
    assert_ne!(first, second);
    std::fs::remove_file(&path).unwrap();
    let refused = gate.get(&cloud.uri("/")).await.unwrap_err();
    assert!(matches!(refused, Error::Proxy { cause: TunnelError::Password { .. }, .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains(path.to_str().unwrap()) && !text.contains("second"), "{text}");
    assert_eq!(tunnels.requests().len(), 2);
}

type Is<'a> = &'a dyn Fn(&TunnelError) -> bool;

#[tokio::test]
async fn a_response_of_the_proxy_itself_is_an_error_that_names_the_proxy() {
    let login = |cause: &TunnelError| matches!(cause, TunnelError::Login);
    let broke = |cause: &TunnelError| matches!(cause, TunnelError::Broke(_));
    let answered =
        |status| move |cause: &TunnelError| matches!(cause, TunnelError::Answered(found) if *found == status);
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
    let rows: [(&str, Is<'_>); 9] = [
        ("HTTP/1.1 407 Who\r\nproxy-authenticate: Basic\r\ncontent-length: 2\r\n\r\nno", &login),
        ("HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno", &answered(403)),
        ("HTTP/1.1 502 Bad\r\ncontent-type: text/html\r\n\r\n<html>", &answered(502)),
        ("HTTP/1.1 302 Log in\r\nlocation: http://portal.test/\r\ncontent-length: 0\r\n\r\n", &answered(302)),
        ("HTTP/1.1 204 Nothing\r\n\r\n", &answered(204)),
        ("", &broke),
        ("SSH-2.0-proxy\r\n", &broke),
        (&long, &broke),
        ("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", &broke),
    ];
    let cloud = Cloud::answering(OK).await;
    for (answer, expected) in rows {
        let answer = answer.to_owned();
        let shown: String = answer.chars().take(30).collect();
        let refusing = Cloud::serving(move |mut stream, seen| {
            let answer = answer.clone();
            async move {
                seen.request(&mut stream).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        })
        .await;
        let (gate, _) = through(proxy(&refusing), vec![by_name(&cloud)]);
        let refused = gate.get(&cloud.uri("/")).await.unwrap_err();
        let Error::Proxy { cause, .. } = &refused else { unreachable!("{shown}: {refused:?}") };
        assert!(expected(cause), "{shown}: {cause:?}");
        let text = refused.to_string();
        let names = format!("can't reach {NAME} through proxy http://{PROXY}:{}", refusing.port);
        assert!(text.starts_with(&names), "{text}");
        assert!(gate.metrics().contains(r#"result="proxy_error"} 1"#), "{}", gate.metrics());
    }
    assert_eq!(cloud.connections(), 0);
}

#[tokio::test]
async fn a_slow_proxy_is_given_up_at_the_connect_timeout_and_named() {
    let drips = Cloud::serving(|mut stream, seen| async move {
        seen.request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let cloud = Cloud::answering(OK).await;
    let (gate, _) = through(proxy(&drips), vec![by_name(&cloud)]);
    let deadlines = Deadlines { connect: Some(SHORT), ..plenty() };
    let refused = gate.gate.send(get(&cloud.uri("/")), deadlines).await;
    assert!(matches!(refused, Err(Error::Proxy { cause: TunnelError::Late(SHORT), .. })), "{refused:?}");
}

#[tokio::test]
async fn the_address_filter_applies_to_the_proxy_and_to_targets_written_as_addresses() {
    let (cloud, tunnels) = (Cloud::answering(OK).await, opening().await);
    let closed = Proxy { addresses: Vec::new(), ..proxy(&tunnels) };
    let (gate, _) = through(closed, vec![by_name(&cloud)]);
    let refused = gate.get(&cloud.uri("/")).await.unwrap_err();
    let loopback = ("127.0.0.1".parse().unwrap(), BlockReason::Loopback);
    assert!(
        matches!(&refused, Error::Proxy { cause: TunnelError::Blocked(found), .. } if *found == [loopback]),
        "{refused:?}"
    );
    let private = Grant { host: "10.1.2.3".parse().unwrap(), ..by_name(&cloud) };
    let (gate, names) = through(proxy(&tunnels), vec![private]);
    let refused = gate.get(&format!("http://10.1.2.3:{}/", cloud.port)).await;
    assert!(matches!(refused, Err(Error::AddressBlocked { .. })), "{refused:?}");
    assert!(names.asked().is_empty() && tunnels.connections() == 0);
}

#[tokio::test]
async fn an_address_of_this_machine_is_reached_without_the_proxy() {
    let (cloud, tunnels) = (Cloud::answering(OK).await, opening().await);
    let near = Grant { host: "127.0.0.1".parse().unwrap(), ..cloud.grant() };
    let (gate, _) = through(proxy(&tunnels), vec![near]);
    let answer = gate.get(&format!("http://127.0.0.1:{}/", cloud.port)).await.unwrap();
    assert_eq!(text(answer).await.unwrap(), "ok");
    assert_eq!((cloud.connections(), tunnels.connections()), (1, 0));
}

#[tokio::test]
async fn the_operators_bundle_is_trusted_in_addition_to_the_systems_and_through_a_proxy() {
    if is_child() {
        let folder = std::env::var_os("FOLDER").unwrap();
        let folder = Path::new(&folder);
        let plain = Cloud::answering("").await;
        for (authority, bundle, is_trusted) in [
            ("corporate", Some("corporate"), true),
            ("corporate", None, false),
            ("system", Some("corporate"), true),
            ("strangers", Some("corporate"), false),
        ] {
            let port = serve_tls(&folder.join(authority));
            let grant = Grant { tls: true, port, addresses: Vec::new(), ..plain.grant() };
            let tunnels = opening().await;
            let extra_roots = bundle.map(|name| folder.join(name).join("certificate.pem"));
            let connection = Connection { proxy: Some(proxy(&tunnels)), extra_roots };
            let config = Config { grants: vec![grant], connection, ..nothing() };
            let gate = Watched::of(config, Arc::new(Names::default()));
            let answer = gate.get(&format!("https://{NAME}:{port}/")).await;
            if is_trusted {
                assert_eq!(text(answer.unwrap()).await.unwrap(), "ok", "{authority}");
            } else {
                assert!(matches!(answer, Err(Error::Tls { .. })), "{authority}: {answer:?}");
            }
            assert_eq!(tunnels.requests().len(), 1);
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for authority in ["corporate", "system", "strangers"] {
        let own = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let folder = folder.path().join(authority);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("certificate.der"), own.cert.der()).unwrap();
        std::fs::write(folder.join("certificate.pem"), own.cert.pem()).unwrap();
        std::fs::write(folder.join("key.der"), own.signing_key.serialize_der()).unwrap();
    }
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let roots = path(&folder.path().join("system/certificate.pem"));
    let variables = [("SSL_CERT_FILE", roots), ("FOLDER", path(folder.path()))];
    run_with(
        "proxy::the_operators_bundle_is_trusted_in_addition_to_the_systems_and_through_a_proxy",
        &variables,
    );
}

#[tokio::test]
async fn an_invalid_empty_or_missing_bundle_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("missing", None), ("empty", Some("")), ("bad", Some("no certificate"))] {
        let path = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let connection = Connection { extra_roots: Some(path.clone()), proxy: None };
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let refused = Gate::new(Config { connection, ..nothing() }, &metrics).unwrap_err();
        assert!(matches!(refused, Error::ExtraRoots { .. }), "{name}: {refused:?}");
        assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
    }
}
