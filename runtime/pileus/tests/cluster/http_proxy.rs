//! The API server is reached through the proxy that the kubeconfig or the environment names, by all that Pileus sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pileus_dev::kubernetes::User;
use pileus_dev::nodes::node;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::SOON;
use crate::world::{Run, Said, World};

/// A name that the API server's certificate has, and that this machine can't resolve.
const SERVER: &str = "https://kubernetes.default.svc:6443";

/// A proxy that connects everything to the API server. Ends when dropped.
struct HttpProxy {
    port: u16,
    tunnels: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for HttpProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HttpProxy {
    /// `login` is what it asks for, in base64. With `socks` it speaks SOCKS 5.
    async fn start(api_server: u16, login: Option<&'static str>, socks: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tunnels = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tunnels);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let opened = if socks { socks5(stream).await } else { connect(stream, login).await };
                    let Some(mut near) = opened else { return };
                    counted.fetch_add(1, Ordering::Relaxed);
                    let mut far = TcpStream::connect(("127.0.0.1", api_server)).await.unwrap();
                    let _ended = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { port, tunnels, task }
    }

    fn tunnels(&self) -> usize {
        self.tunnels.swap(0, Ordering::Relaxed)
    }
}

async fn connect(mut stream: TcpStream, login: Option<&str>) -> Option<TcpStream> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("CONNECT kubernetes.default.svc:6443 HTTP/1.1\r\n"), "{head}");
    if login.is_some_and(|login| !head.contains(&format!("Basic {login}\r\n"))) {
        stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.ok()?;
        return None;
    }
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
    Some(stream)
}

async fn socks5(mut stream: TcpStream) -> Option<TcpStream> {
    let mut greeting = [0; 3];
    stream.read_exact(&mut greeting).await.ok()?;
    stream.write_all(&[5, 0]).await.ok()?;
    let mut head = [0; 5];
    stream.read_exact(&mut head).await.ok()?;
    assert_eq!((head[1], head[3]), (1, 3), "a connection to a name");
    let mut target = vec![0; usize::from(head[4]) + 2];
    stream.read_exact(&mut target).await.ok()?;
    assert!(target.starts_with(b"kubernetes.default.svc"));
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.ok()?;
    Some(stream)
}

/// A kubeconfig for an API server that only the proxy can find.
fn kubeconfig(world: &World, folder: &TempDir, proxy_url: Option<&str>) -> std::path::PathBuf {
    let text = std::fs::read_to_string(world.kubernetes.kubeconfig(User::Pileus)).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(SERVER);
    if let Some(url) = proxy_url {
        kubeconfig["clusters"][0]["cluster"]["proxy-url"] = json!(url);
    }
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

/// What is tried, the proxy, the kubeconfig's `proxy-url`, and the environment.
type Row<'a> = (&'a str, &'a HttpProxy, Option<String>, Vec<(&'static str, String)>);

#[tokio::test]
async fn the_api_server_is_reached_through_a_proxy_by_all_that_pileus_sends() {
    let mut world = World::new().await;
    let folder = TempDir::new().unwrap();
    let port = world.api_server_port();
    let plain = HttpProxy::start(port, None, false).await;
    let login = HttpProxy::start(port, Some("bWU6cEBzcw=="), false).await;
    let socks = HttpProxy::start(port, None, true).await;
    let url = |scheme: &str, proxy: &HttpProxy| format!("{scheme}://127.0.0.1:{}", proxy.port);
    let with_login = format!("http://me:p%40ss@127.0.0.1:{}", login.port);
    let rows: Vec<Row> = vec![
        ("in the kubeconfig", &plain, Some(url("http", &plain)), vec![("NO_PROXY", "*".to_owned())]),
        ("with a login", &login, Some(with_login), vec![]),
        ("socks", &socks, Some(url("socks5", &socks)), vec![]),
        ("HTTPS_PROXY", &plain, None, vec![("HTTPS_PROXY", url("http", &plain))]),
        (
            "https_proxy without a scheme",
            &plain,
            None,
            vec![("https_proxy", format!("127.0.0.1:{}", plain.port))],
        ),
    ];
    for (number, (name, proxy, proxy_url, variables)) in rows.into_iter().enumerate() {
        let node_name = format!("n{number}");
        world.cloud.create(json!({"name": node_name})).await;
        let mut history = world.history().await;
        let path = kubeconfig(&world, &folder, proxy_url.as_deref());
        world.variables = variables;
        let run = world.start_by(&world.simulated(world.cloud.port), &path).await;
        run.ready().await;
        // The election, the watches, and writes.
        run.leads().await;
        world.register([node(&node_name)]).await;
        history.initialised(&[&node_name]).await;
        assert!(proxy.tunnels() >= 2, "{name}");
        let told = run.log().iter().any(|line| line.contains("doesn't apply to the cloud"));
        // A proxy is never for this machine, where the cloud is.
        assert!(!told, "{name}: {:?}", run.log());
        assert!(run.stop().await.success());
    }
    // A command.
    let path = kubeconfig(&world, &folder, Some(&url("http", &plain)));
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pileus"));
    command.args(["release-deletion", "--all", "--kubeconfig"]).arg(&path);
    let said = Said::by(command, SOON).await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "no node is held\n"), "{said:?}");
    assert!(plain.tunnels() >= 1);
}

/// The files of a kubeconfig are as tools write them, and change while Pileus runs.
#[tokio::test]
async fn a_token_file_ends_with_a_newline_and_is_read_again() {
    let mut world = World::new().await;
    let folder = TempDir::new().unwrap();
    let text = std::fs::read_to_string(world.kubernetes.kubeconfig(User::Pileus)).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    let user = kubeconfig["users"][0]["user"].as_object_mut().unwrap();
    let token = user.remove("token").unwrap();
    user.insert("tokenFile".to_owned(), json!("token"));
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, format!("  {}\n\n", token.as_str().unwrap())).unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();

    world.flags = vec!["--leader-elect=false"];
    world.cloud.create_many(2).await;
    let run: Run = world.start_by(&world.simulated(world.cloud.port), &path).await;
    run.ready().await;
    // A token that isn't valid any more, and then one that is.
    std::fs::write(&token_file, "expired\n").unwrap();
    run.unready("nauthorized").await;
    std::fs::write(&token_file, format!("{}\n", token.as_str().unwrap())).unwrap();
    run.ready().await;
    assert!(run.stop().await.success());
}
