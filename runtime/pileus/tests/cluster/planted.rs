//! Credentials leak neither from the provider nor from the host. A provider discloses all that it can see, next to one
//! credential of each kind, and the host logs everything. Every part of every credential appears only in requests to
//! its own hosts.

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::Api;
use kube::api::{ListParams, PostParams};
use pileus_dev::nodes::node;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time;

use crate::SOON;
use crate::credentials::grant_secret;
use crate::world::{Run, World, document};

/// Addresses of loopback stand for hosts. No credential is for the first.
const OPEN: &str = "127.0.0.1";
const BEARER: &str = "127.0.0.2";
const BASIC: &str = "127.0.0.3";
const HEADER: &str = "127.0.0.4";
const CLIENT: &str = "127.0.0.5";
const SIGNED: &str = "127.0.0.6";
const WORKLOAD: &str = "127.0.0.7";
const MANAGED: &str = "127.0.0.8";
/// The token endpoint, which the provider may not ask.
const TOKENS: &str = "127.0.0.9";

/// Every part of a credential that is secret. The last two are the cloud's: a token endpoint's answer to a client, and a
/// cookie.
const PLANTED: [&str; 12] = [
    "planted-bearer-Zk3",
    "planted-password-Zk3",
    // Of user name and password, as it is sent.
    "cGlsZXVzOnBsYW50ZWQtcGFzc3dvcmQtWmsz",
    "planted-header-Zk3",
    "planted-client-Zk3",
    "planted-access-key-Zk3",
    "planted-session-Zk3",
    "planted-workload-Zk3",
    "planted-token-client-Zk3",
    "planted-token-workload-Zk3",
    "planted-token-managed-Zk3",
    "planted-cookie-Zk3",
];

/// In every answer: what the provider does see.
const VISIBLE: &str = "for-the-provider-to-see";

/// A request as it came.
#[derive(Clone)]
struct Received {
    host: String,
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// All clouds in one, on every address of loopback.
struct Clouds {
    port: u16,
    received: watch::Receiver<Vec<Received>>,
}

impl Clouds {
    async fn start() -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (note, received) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, note.clone()));
            }
        });
        Self { port, received }
    }

    fn received(&self) -> Vec<Received> {
        self.received.borrow().clone()
    }
}

async fn serve(mut stream: TcpStream, note: watch::Sender<Vec<Received>>) {
    let mut bytes = Vec::new();
    while let Some(request) = receive(&mut stream, &mut bytes).await {
        note.send_modify(|all| all.push(request.clone()));
        let Some(answer) = answer(&request) else { return };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn receive(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Received> {
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut lines = head.lines();
            let line = lines.next()?.to_owned();
            let headers: Vec<(String, String)> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let value =
                |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
            let length = value("content-length").map_or(0, |length| length.parse().unwrap());
            let host = value("host")?.rsplit_once(':')?.0.to_owned();
            while bytes.len() < end + 4 + length {
                stream.read_buf(bytes).await.ok().filter(|read| *read > 0)?;
            }
            let body = bytes[end + 4..end + 4 + length].to_vec();
            bytes.drain(..end + 4 + length);
            return Some(Received { host, line, headers, body });
        }
        stream.read_buf(bytes).await.ok().filter(|read| *read > 0)?;
    }
}

/// What a cloud answers, if anything before it closes the connection.
fn answer(request: &Received) -> Option<String> {
    let whole = |status: &str, headers: &str, body: &str| {
        Some(format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()))
    };
    let form = String::from_utf8_lossy(&request.body);
    if request.host == TOKENS {
        let whose = match () {
            () if request.line.starts_with("GET") => "managed",
            () if form.contains("assertion") => "workload",
            () => "client",
        };
        let token = format!("planted-token-{whose}-Zk3");
        let answer = json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600});
        return whole("200 OK", "content-type: application/json\r\n", &answer.to_string());
    }
    let headers = "set-cookie: session=planted-cookie-Zk3\r\nx-seen: for-the-provider-to-see\r\n";
    match request.line.split(' ').nth(1)? {
        "/closed" => None,
        "/garbage" => Some("what?".to_owned()),
        "/refused" => whole("401 Unauthorized", headers, VISIBLE),
        // As pages for debugging do.
        "/echo" => whole("200 OK", headers, &format!("{VISIBLE} {:?}", request.headers)),
        "/elsewhere" => whole("307 Elsewhere", &format!("{headers}location: http://{OPEN}/\r\n"), VISIBLE),
        _ => whole("200 OK", headers, VISIBLE),
    }
}

/// The document: one credential of each kind, and every request that the provider can think of.
fn hostile(behaviour: &str, clouds: &Clouds, folder: &TempDir) -> Value {
    let port = clouds.port;
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        json!({"file": path})
    };
    let client = |name: &str, secret: Value| {
        let mut client = json!({"tokenURL": format!("http://{TOKENS}:{port}/token"), "clientID": "pileus", "scope": "all"});
        client[name] = secret;
        client
    };
    let managed = format!("http://{TOKENS}:{port}/identity");
    let kinds = [
        (BEARER, "bearer", json!({"token": {"secret": {"name": "cloud", "key": "token"}}})),
        (BASIC, "basic", json!({"username": "pileus", "password": file("password", PLANTED[1])})),
        (HEADER, "header", json!({"name": "x-auth-token", "value": file("header", PLANTED[3])})),
        (CLIENT, "clientSecret", client("secret", file("client", PLANTED[4]))),
        (
            SIGNED,
            "awsSigV4",
            json!({
                "region": "eu-central-1", "service": "ec2", "accessKeyID": file("id", "AKIDEXAMPLE"),
                "secretAccessKey": file("access-key", PLANTED[5]), "sessionToken": file("session", PLANTED[6]),
            }),
        ),
        (WORKLOAD, "workloadIdentity", client("token", file("workload", PLANTED[7]))),
        (MANAGED, "managedIdentity", json!({"endpoint": managed, "resource": "all"})),
    ];
    let credential = |(host, kind, value): &(&str, &str, Value)| {
        let mut credential = json!({"name": kind.to_lowercase(), "hosts": [host], "plain": true, "addresses": ["127.0.0.0/8"]});
        credential[kind] = value.clone();
        credential
    };
    let grant = |host: &str| json!({"host": host, "port": port, "tls": false, "addresses": ["127.0.0.0/8"]});
    let hosts: Vec<_> = [OPEN].into_iter().chain(kinds.iter().map(|(host, ..)| *host)).collect();
    let paths = ["/", "/closed", "/garbage", "/refused", "/echo", "/elsewhere"];
    let mut attempts = Vec::new();
    for host in hosts.iter().chain(&[TOKENS, "169.254.169.254"]) {
        let own = json!([["authorization", "Bearer own"], ["x-auth-token", "own"], ["accept", "*/*"]]);
        attempts.extend(
            paths.map(|path| json!({"authority": format!("{host}:{port}"), "path": path, "headers": own})),
        );
        attempts.push(json!({"authority": format!("{host}:{port}"), "method": "TRACE"}));
    }
    let cloud = format!("http://{OPEN}:{port}");
    let configuration = json!({"behaviour": behaviour, "cloud": cloud, "attempts": attempts});
    let grants: Vec<_> = hosts.iter().map(|host| grant(host)).collect();
    let mut document = document("hostile-provider", &configuration, &json!(grants));
    document["spec"]["credentials"] = kinds.iter().map(credential).collect();
    document
}

/// Takes out of a request what is in it rightly: the credential, where the host is one that it is for.
fn without_credential(request: &Received, found: &mut Vec<&'static str>) -> Received {
    let expected: &[(&str, &'static str)] = match request.host.as_str() {
        BEARER => &[("authorization", PLANTED[0])],
        BASIC => &[("authorization", PLANTED[2])],
        HEADER => &[("x-auth-token", PLANTED[3])],
        CLIENT => &[("authorization", PLANTED[8])],
        SIGNED => &[("x-amz-security-token", PLANTED[6])],
        WORKLOAD => &[("authorization", PLANTED[9])],
        MANAGED => &[("authorization", PLANTED[10])],
        _ => &[],
    };
    let mut rest = request.clone();
    for (header, secret) in expected {
        let is_it = |(name, value): &(String, String)| name == header && value.contains(secret);
        assert_eq!(request.headers.iter().filter(|line| is_it(line)).count(), 1, "{}", request.host);
        rest.headers.retain(|line| !is_it(line));
        found.push(secret);
    }
    if request.host == TOKENS {
        for secret in [PLANTED[4], PLANTED[7]] {
            let form = String::from_utf8(rest.body.clone()).unwrap();
            if form.contains(secret) {
                assert_eq!(form.matches(secret).count(), 1, "{form}");
                rest.body = form.replace(secret, "").into_bytes();
                found.push(secret);
            }
        }
    }
    rest
}

/// That no secret is in a text, in no form in which it could be written down.
fn holds_no_secret(place: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for secret in PLANTED {
        let hexadecimal = secret.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        let numbers = format!("{:?}", secret.as_bytes());
        for form in [secret, &hexadecimal, &hexadecimal.to_uppercase(), numbers.trim_matches(['[', ']'])] {
            if let Some(at) = text.find(form) {
                let before: String = text[..at].chars().rev().take(200).collect();
                panic!("{secret} is in {place}, after {}", before.chars().rev().collect::<String>());
            }
        }
    }
}

/// All that can be seen of a run, by the name of the place.
async fn seen(world: &World, run: &Run) -> Vec<(String, String)> {
    let mut seen = vec![("the log".to_owned(), run.log().join("\n"))];
    for page in ["/", "/livez", "/readyz", "/metrics", "/debug/gate", "/debug/gate.json"] {
        seen.push((page.to_owned(), run.page(page).await.body));
    }
    let events = Api::<Event>::all(world.client.clone()).list(&ListParams::default()).await.unwrap();
    seen.push(("events".to_owned(), serde_json::to_string(&events.items).unwrap()));
    seen.push(("Nodes".to_owned(), serde_json::to_string(&world.nodes().await).unwrap()));
    seen
}

#[tokio::test]
async fn row_17_neither_provider_nor_host_disclose_a_byte_of_a_credential() {
    let mut world = World::new().await;
    world.flags = vec!["--log-filter", "trace"];
    grant_secret(&world).await;
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "cloud"}, "stringData": {"token": PLANTED[0]}}))
            .unwrap();
    Api::namespaced(world.client.clone(), "kube-system")
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let (clouds, folder) = (Clouds::start().await, TempDir::new().unwrap());
    world.register([node("a")]).await;

    let run = world.start_with(&hostile("leak", &clouds, &folder)).await;
    run.ready().await;
    let mut received = clouds.received.clone();
    let sent = received.wait_for(|all| all.iter().any(|request| request.line.starts_with("POST /memory")));
    time::timeout(SOON, sent).await.unwrap().unwrap();
    run.counted("pileus_provider_calls_total", &[r#"function="lookup""#]).await;
    // Its log comes to us another way than that.
    run.logged(&[VISIBLE]).await;
    let leaked = seen(&world, &run).await;
    assert!(run.stop().await.success());

    let run = world.start_with(&hostile("leak-and-panic", &clouds, &folder)).await;
    run.ready().await;
    run.logged(&["WARN", "node=a", "not initialized", "trapped"]).await;
    world.event("a", "CloudInitializationFailed").await;
    let panicked = seen(&world, &run).await;
    assert!(run.stop().await.success());

    for (place, text) in leaked.iter().chain(&panicked) {
        holds_no_secret(place, text.as_bytes());
    }
    let mut found = Vec::new();
    for request in clouds.received() {
        let Received { host, line, headers, body } = without_credential(&request, &mut found);
        holds_no_secret(&format!("a request to {host}"), format!("{line} {headers:?}").as_bytes());
        holds_no_secret(&format!("the body of {line} to {host}"), &body);
        assert!(!format!("{headers:?}").contains("own"), "{line} to {host}: {headers:?}");
    }
    // All of it was in use, and what the provider could see it did give away.
    found.sort_unstable();
    found.dedup();
    let mut used: Vec<_> =
        PLANTED.into_iter().filter(|part| ![PLANTED[1], PLANTED[5], PLANTED[11]].contains(part)).collect();
    used.sort_unstable();
    assert_eq!(found, used);
    let memory =
        clouds.received().into_iter().find(|request| request.line.starts_with("POST /memory")).unwrap();
    assert!(memory.body.len() > 1 << 20, "{}", memory.body.len());
    assert!(String::from_utf8_lossy(&memory.body).contains(VISIBLE));
    assert!([&leaked, &panicked].iter().all(|seen| seen[0].1.contains(VISIBLE)), "in both logs");
    let signed = |request: &Received| {
        let signature = |(name, value): &(String, String)| {
            name == "authorization" && value.contains("Credential=AKIDEXAMPLE/")
        };
        request.host == SIGNED && request.headers.iter().any(signature)
    };
    assert!(clouds.received().iter().any(signed));
}
