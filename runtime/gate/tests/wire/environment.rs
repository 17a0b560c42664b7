//! Which environment variables the gate uses, and which it ignores. The environment of a running test can't be changed
//! safely, so each test starts itself again as a child process with the variables set.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use pileus_gate::{Error, Grant};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::cloud::{Cloud, Watched, text};

const CHILD: &str = "PILEUS_GATE_TEST_CHILD";

/// Runs a test in a child process.
pub(crate) fn run_with(test: &str, variables: &[(&str, String)]) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test]).env(CHILD, "1");
    child.envs(variables.iter().map(|(name, value)| (name, value)));
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // With the name of no test the child would run nothing and succeed.
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[tokio::test]
async fn row_16_proxies_in_the_environment_are_ignored() {
    if is_child() {
        let cloud = Cloud::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        let gate = Watched::new(vec![cloud.grant()]);
        assert_eq!(text(gate.get(&cloud.uri("/")).await.unwrap()).await.unwrap(), "ok");
        return;
    }
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let names = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let variables = names.map(|name| (name, url.clone()));
    run_with("environment::row_16_proxies_in_the_environment_are_ignored", &variables);
    assert!(proxy.accept().is_err(), "no connection came to the proxy");
}

/// Answers three TLS connections with the certificate and key in a folder.
pub(crate) fn serve_tls(folder: &Path) -> u16 {
    serve_tls_with(folder, |_| "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned())
}

/// Answers the first request of three TLS connections with the result of this function.
pub(crate) fn serve_tls_with(folder: &Path, answer: impl Fn(&str) -> String + Send + 'static) -> u16 {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let certificate = CertificateDer::from(read("certificate.der"));
    let key = PrivateKeyDer::try_from(read("key.der")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(3) {
            let mut stream =
                StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream.unwrap());
            // A client that refuses the certificate sends nothing.
            let mut request = [0; 1024];
            if let Ok(1..) = stream.read(&mut request) {
                let request = String::from_utf8_lossy(&request);
                stream.write_all(answer(&request).as_bytes()).unwrap();
                stream.flush().unwrap();
            }
        }
    });
    port
}

#[tokio::test]
async fn a_certificate_must_come_from_the_systems_roots_and_be_for_the_host() {
    if is_child() {
        let port = serve_tls(Path::new(&std::env::var_os("FOLDER").unwrap()));
        let cloud = Cloud::answering("").await;
        let grant = |host: &str| Grant { tls: true, host: host.parse().unwrap(), port, ..cloud.grant() };
        let gate = Watched::new(vec![grant("cloud.test"), grant("other.test")]);
        let answer = gate.get(&format!("https://cloud.test:{port}/")).await;
        if std::env::var_os("TRUSTED").is_some() {
            assert_eq!(text(answer.unwrap()).await.unwrap(), "ok");
        } else {
            assert!(matches!(answer, Err(Error::Tls { .. })), "{answer:?}");
        }
        let refused = gate.get(&format!("https://other.test:{port}/")).await;
        assert!(matches!(refused, Err(Error::Tls { .. })), "{refused:?}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let own = rcgen::generate_simple_self_signed(["cloud.test".to_owned()]).unwrap();
    write("certificate.der", own.cert.der());
    write("key.der", &own.signing_key.serialize_der());
    let roots = write("roots.pem", own.cert.pem().as_bytes());
    let strangers = rcgen::generate_simple_self_signed(["cloud.test".to_owned()]).unwrap();
    let strangers = write("strangers.pem", strangers.cert.pem().as_bytes());

    let folder = folder.path().display().to_string();
    let test = "environment::a_certificate_must_come_from_the_systems_roots_and_be_for_the_host";
    run_with(test, &[("SSL_CERT_FILE", roots), ("FOLDER", folder.clone()), ("TRUSTED", "yes".to_owned())]);
    run_with(test, &[("SSL_CERT_FILE", strangers), ("FOLDER", folder)]);
}
