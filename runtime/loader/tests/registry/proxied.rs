//! Registries that only a proxy reaches, as the environment names it. No name of these tests exists, so all that is fetched
//! came through the proxy.

use std::path::Path;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use pileus_loader::{Digest, Error, ProxyEnvironment, RegistrySettings, TrustPolicy, TrustSpec};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::scripted::{Received, Reply, Scripted, answer};
use crate::stack::{Protection, RealRegistry};
use crate::{Fixture, TIMEOUTS, component, reference};

/// A proxy that connects each target to one server, and notes the targets with their logins. Ends when dropped.
struct TestProxy {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for TestProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestProxy {
    /// `tls` is a certificate with its key, if the proxy itself is reached over TLS.
    async fn to(server: &str, tls: Option<(&str, &str)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, server) = (Arc::clone(&asked), server.to_owned());
        let acceptor = tls.map(|(certificate, key)| {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider);
            let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
            TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()))
        });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, server, acceptor) = (Arc::clone(&log), server.clone(), acceptor.clone());
                tokio::spawn(async move {
                    match acceptor {
                        Some(acceptor) => {
                            let Ok(stream) = acceptor.accept(stream).await else { return };
                            serve(stream, &server, &log).await;
                        }
                        None => serve(stream, &server, &log).await,
                    }
                });
            }
        });
        Self { port, asked, task }
    }

    /// The targets that it was asked for since the last call, each with its login.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

async fn serve(mut near: impl AsyncRead + AsyncWrite + Unpin, server: &str, log: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = near.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap();
    let login = head.lines().find_map(|line| line.strip_prefix("Proxy-Authorization: Basic "));
    log.lock().unwrap().push(format!("{target} {}", login.unwrap_or("-")));
    if target.starts_with("closed.example") {
        let _ended = near.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
        return;
    }
    near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    let mut far = TcpStream::connect(server).await.unwrap();
    let _ended = copy_bidirectional(&mut near, &mut far).await;
}

fn environment(variables: &[(&str, String)]) -> ProxyEnvironment {
    ProxyEnvironment::read(|name| {
        variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
    })
}

fn manifest(component: &[u8]) -> Vec<u8> {
    let (digest, size) = (Digest::of(component), component.len());
    format!(r#"{{"schemaVersion":2,"layers":[{{"mediaType":"application/wasm","digest":"{digest}","size":{size}}}]}}"#)
        .into_bytes()
}

/// Answers as a registry whose downloads are at `location`.
fn redirecting(location: &'static str) -> impl Fn(&Received, &str) -> Reply {
    move |request, _| {
        let bytes = component("one");
        if request.path.contains("/manifests/") {
            answer(200, "Content-Type: application/vnd.oci.image.manifest.v1+json\r\n", &manifest(&bytes))
        } else if request.path.starts_with("/v2/") && !location.is_empty() {
            answer(307, &format!("Location: {location}\r\n"), b"")
        } else {
            answer(200, "", &bytes)
        }
    }
}

/// A registry without TLS whose name only the proxy knows.
fn plain(registry: &str) -> RegistrySettings {
    RegistrySettings { registry: registry.to_owned(), plain_http: Some(true), ..RegistrySettings::default() }
}

/// Fetches from a registry through these proxies.
async fn fetch(settings: RegistrySettings, variables: &[(&str, String)]) -> Result<(), Error> {
    let reference = reference(&format!("{}/p:1", settings.registry));
    let fixture = Fixture::behind(environment(variables), vec![settings], vec![], TIMEOUTS);
    let policy = TrustPolicy::new(TrustSpec { insecure: true, ..TrustSpec::default() }).unwrap();
    let found = fixture.loader.fetch(&reference, &policy, Timestamp::UNIX_EPOCH).await?;
    assert_eq!(found.bytes(), component("one"));
    Ok(())
}

#[tokio::test]
async fn a_registry_is_reached_by_name_through_the_proxy_of_the_environment() {
    let server = Scripted::start(redirecting("")).await;
    let proxy = TestProxy::to(&server.host, None).await;
    let url = format!("http://me:p%40ss@127.0.0.1:{}", proxy.port);
    fetch(plain("registry.example:5000"), &[("HTTP_PROXY", url.clone())]).await.unwrap();
    assert_eq!(proxy.asked(), ["registry.example:5000 bWU6cEBzcw=="; 2], "the manifest and the component");
    // The variable of the other scheme has no effect, and neither has one with an exception.
    let https = [("HTTPS_PROXY", url.clone())];
    let excepted = [("HTTP_PROXY", url.clone()), ("NO_PROXY", ".example".to_owned())];
    for variables in [&https[..], &excepted] {
        let error = fetch(plain("registry.example:5000"), variables).await.unwrap_err().to_string();
        assert!(error.contains("its name can't be resolved"), "{error}");
    }
    // This machine is never reached through a proxy.
    fetch(plain(&server.host), &[("HTTP_PROXY", url.clone())]).await.unwrap();
    assert_eq!(proxy.asked(), [""; 0]);

    let error = fetch(plain("closed.example:5000"), &[("HTTP_PROXY", url)]).await.unwrap_err().to_string();
    let expected = format!(
        "can't reach closed.example:5000: proxy http://127.0.0.1:{} of HTTP_PROXY: it asks for a login, or refuses the one in its \
         URL (407)",
        proxy.port
    );
    assert_eq!(error, expected);
    let error =
        fetch(plain("registry.example:5000"), &[("HTTP_PROXY", "ftp://me:planted@a".to_owned())]).await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Settings { .. }), "{error}");
    assert!(error.to_string().contains("HTTP_PROXY: unsupported scheme ftp"), "{error}");
    assert!(!format!("{error} {error:?}").contains("planted"));
}

#[tokio::test]
async fn a_proxy_is_not_asked_for_an_address_that_is_refused_without_one() {
    for (location, opened, expected) in [
        (
            "http://169.254.169.254/latest",
            "169.254.0.0/16",
            Err("a link-local, metadata or reserved address"),
        ),
        ("http://[fd00:ec2::254]/", "fd00::/8", Err("a link-local, metadata or reserved address")),
        ("http://10.1.2.3/b", "10.2.0.0/16", Err("a private address; list its range")),
        ("http://127.0.0.1:1/b", "10.0.0.0/8", Err("an address of this machine")),
        ("http://localhost:1/b", "10.0.0.0/8", Err("an address of this machine")),
        ("http://10.1.2.3/b", "10.1.0.0/16", Ok("10.1.2.3:80 -")),
        ("http://[fd12::1]:81/b", "fd12::/16", Ok("[fd12::1]:81 -")),
        // To which address a name leads is up to the proxy.
        ("http://downloads.example/b", "10.0.0.0/8", Ok("downloads.example:80 -")),
    ] {
        let server = Scripted::start(redirecting(location)).await;
        let proxy = TestProxy::to(&server.host, None).await;
        let variables = [("HTTP_PROXY", format!("http://127.0.0.1:{}", proxy.port))];
        let settings =
            RegistrySettings { addresses: vec![opened.parse().unwrap()], ..plain("registry.example:5000") };
        let found = fetch(settings, &variables).await;
        let mut asked = proxy.asked();
        asked.retain(|target| target != "registry.example:5000 -");
        match (found, expected) {
            (Ok(()), Ok(target)) => assert_eq!(asked, [target], "{location}"),
            (Err(error @ Error::Misled { .. }), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{location}: {error}");
                assert_eq!(asked, [""; 0], "{location}");
            }
            (found, _) => panic!("{location}: {found:?}"),
        }
    }
    // The proxy itself is where the operator says, but not at a metadata service.
    let variables = [("HTTP_PROXY", "http://169.254.169.254:3128".to_owned())];
    let error = fetch(plain("registry.example:5000"), &variables).await.unwrap_err().to_string();
    let expected =
        "proxy http://169.254.169.254:3128 of HTTP_PROXY: it has a link-local, metadata or reserved address";
    assert!(error.contains(expected), "{error}");
}

/// TLS with the registry is spoken in the tunnel, and its certificate has the registry's name.
#[tokio::test]
async fn the_proxy_sees_nothing_of_what_is_fetched_over_tls() {
    let issue = |name: &str| {
        let issued = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        (issued.cert.pem(), issued.signing_key.serialize_pem())
    };
    let (registry, other, of_proxy) = (issue("registry.example"), issue("other.example"), issue("localhost"));
    let run = async |served: &(String, String), bundle: &Path, scheme: &str| {
        let server = RealRegistry::protected(&Protection { tls: Some((&served.0, &served.1)), login: None });
        let tls = (scheme == "https").then_some((&*of_proxy.0, &*of_proxy.1));
        let proxy = TestProxy::to(&server.host, tls).await;
        let settings = RegistrySettings {
            registry: "registry.example".to_owned(),
            ca_bundle: Some(bundle.to_owned()),
            ..RegistrySettings::default()
        };
        let variables = [("HTTPS_PROXY", format!("{scheme}://localhost:{}", proxy.port))];
        let error = fetch(settings, &variables).await.unwrap_err().to_string();
        (error, proxy.asked().first().cloned())
    };
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    std::fs::write(&bundle, [&*registry.0, &other.0, &of_proxy.0].concat()).unwrap();
    let asked = Some("registry.example:443 -".to_owned());
    for scheme in ["http", "https"] {
        let (error, target) = run(&registry, &bundle, scheme).await;
        // The registry itself says so.
        assert!(error.ends_with("p/manifests/1 does not exist: check the name, the tag, and whether the credential may read it"), "{error}");
        assert_eq!(target, asked, "{scheme}");
        let (error, target) = run(&other, &bundle, scheme).await;
        assert!(error.contains("can't reach registry.example: TLS failed"), "{error}");
        assert_eq!(target, asked, "{scheme}");
    }
    std::fs::write(&bundle, &registry.0).unwrap();
    let (error, target) = run(&registry, &bundle, "https").await;
    assert!(error.contains("of HTTPS_PROXY: ") && error.contains("TLS failed"), "{error}");
    assert_eq!(target, None, "the proxy's own certificate is checked");
}
