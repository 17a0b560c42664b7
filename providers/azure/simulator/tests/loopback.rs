//! The process over its sockets: TLS, the admin API, faults that only a connection can have, and tokens.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy lets tests panic, but not the functions that they share"
)]

use std::process::Stdio;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const SUBSCRIPTION: &str = "/subscriptions/11111111-1111-1111-1111-111111111111";

struct Answer {
    status: u16,
    headers: hyper::HeaderMap,
    body: Value,
}

/// A process, and how to reach it.
struct Process {
    child: Child,
    address: String,
    metadata: Option<String>,
    authority: Option<CertificateDer<'static>>,
}

impl Process {
    async fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_azure-simulator"));
        let mut child = command.args(arguments).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let of = |index: usize| words.get(index).map(|url| url.rsplit('/').next().unwrap().to_owned());
        let folder = arguments.iter().position(|it| *it == "--tls").map(|at| arguments[at + 1]);
        let authority =
            folder.map(|folder| CertificateDer::from_pem_file(format!("{folder}/ca.pem")).unwrap());
        Self { child, address: of(2).unwrap(), metadata: of(5), authority }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let Some(authority) = &self.authority else { return send(stream, method, path, headers, body).await };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.clone()).unwrap();
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        send(stream, method, path, headers, body).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await.unwrap()
    }

    async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, &[], &body.to_string()).await.unwrap()
    }
}

/// Sends a request over a connection of its own. `None` where the connection ends without a whole response.
async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response =
        sender.send_request(request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()).await.ok()?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
}

#[tokio::test]
async fn nodes_are_served_over_tls_and_the_metadata_service_over_plain_http() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let arguments = [
        "--tls",
        folder,
        "--metadata",
        "127.0.0.1:0",
        "create",
        "nodes",
        "3",
        "--scale-sets",
        "1",
        "--dual-stack",
    ];
    let process = Process::start(&arguments).await;
    let path =
        format!("{SUBSCRIPTION}/resourceGroups/nodes/providers/Microsoft.Compute/virtualMachineScaleSets");
    let sets = process.get(&format!("{path}?api-version=2025-04-01")).await;
    assert_eq!(sets.status, 200, "{}", sets.body);
    assert_eq!(sets.headers["x-ms-ratelimit-remaining-subscription-reads"], "249");
    assert!(
        sets.headers["x-ms-ratelimit-remaining-resource"].to_str().unwrap().starts_with("Microsoft.Compute/")
    );
    assert_eq!(sets.headers["content-type"], "application/json; charset=utf-8");
    process.put("/admin/behavior", &json!({"pageSize": 2})).await;
    let name = sets.body["value"][0]["name"].as_str().unwrap();
    let first = process.get(&format!("{path}/{name}/virtualMachines?api-version=2025-04-01")).await.body;
    let next = first["nextLink"].as_str().unwrap().strip_prefix("https://localhost").unwrap().to_owned();
    assert_eq!(
        (
            first["value"].as_array().unwrap().len(),
            process.get(&next).await.body["value"].as_array().unwrap().len()
        ),
        (2, 1)
    );

    let command = json!({"machines": ["aks-nodes0-vmss000001"], "action": "stop"}).to_string();
    let changed = process.send(Method::POST, "/admin/machines", &[], &command).await.unwrap();
    assert_eq!(changed.body, json!({"changed": 1}));
    let stream = TcpStream::connect(process.metadata.as_ref().unwrap()).await.unwrap();
    let path = "/metadata/instance?api-version=2021-10-01";
    let instance = send(stream, Method::GET, path, &[("Metadata", "true")], "").await.unwrap();
    assert_eq!(instance.body["compute"]["vmScaleSetName"], "aks-nodes0-vmss");
    let state = process.get("/admin/state").await.body;
    assert_eq!(state["kinds"]["Microsoft.Compute/virtualMachineScaleSets/virtualMachines"]["total"], 3);
    assert!(process.get("/admin/journal?after=1").await.body["requests"].as_array().unwrap().len() >= 3);
}

#[tokio::test]
async fn faults_delay_lose_and_cut_responses() {
    let process = Process::start(&["create", "nodes", "1"]).await;
    let table = format!(
        "{SUBSCRIPTION}/resourceGroups/nodes/providers/Microsoft.Network/routeTables/t?api-version=2025-05-01"
    );
    let body = json!({"location": "eastus"});
    process
        .put(
            "/admin/faults",
            &json!({"lost": {"next": 1}, "operations": {"takesMs": 60_000, "lateFailures": {"next": 1}}}),
        )
        .await;
    assert!(
        process.send(Method::PUT, &table, &[], &body.to_string()).await.is_none(),
        "the response is lost"
    );
    let shown = process.get(&table).await.body;
    assert_eq!(shown["properties"]["provisioningState"], "Updating", "and the write was carried out");
    let refused = process.put(&table, &body).await;
    assert_eq!(
        (refused.status, refused.body["error"]["code"].as_str()),
        (409, Some("AnotherOperationInProgress"))
    );
    let faults = process.get("/admin/faults").await.body;
    assert_eq!(
        (&faults["lost"]["next"], &faults["operations"]["lateFailures"]["next"]),
        (&json!(0), &json!(0))
    );
    process.put("/admin/faults", &json!({"cut": {"next": 1}, "throttle": {"next": 0}})).await;
    assert!(process.send(Method::GET, &table, &[], "").await.is_none(), "the response is cut");
    process.put("/admin/faults", &json!({"throttle": {"next": 1, "retryAfterSeconds": 7}})).await;
    let throttled = process.get(&table).await;
    assert_eq!((throttled.status, throttled.headers["retry-after"].to_str().unwrap()), (429, "7"));
    assert_eq!(process.put("/admin/faults", &json!({"hidden": {"lists": {"share": 1}}})).await.status, 400);
}

#[tokio::test]
async fn a_file_names_the_clients_and_the_resources() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| {
        let path = folder.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let tenant = "22222222-2222-2222-2222-222222222222";
    let credentials = write(
        "credentials",
        &json!({"clients": [{"tenants": [tenant], "clientId": "app", "secret": "hush"}]}),
    );
    let table = format!("{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network/routeTables/t");
    let resources = write(
        "resources",
        &json!({"resources": [{"id": table, "location": "eastus"}], "nodes": [{"count": 1, "arrangement": "standalone"}]}),
    );
    let mut process = Process::start(&["--credentials", &credentials, "--resources", &resources]).await;
    let path = format!("{table}?api-version=2025-05-01");
    assert_eq!(process.get(&path).await.status, 401);
    let form = "grant_type=client_credentials&client_id=app&client_secret=hush&scope=https%3A%2F%2Fmanagement.core.windows.net%2F%2F.default";
    let token = process.send(Method::POST, &format!("/{tenant}/oauth2/v2.0/token"), &[], form).await.unwrap();
    let bearer = format!("Bearer {}", token.body["access_token"].as_str().unwrap());
    let shown = process.send(Method::GET, &path, &[("authorization", &bearer)], "").await.unwrap();
    assert_eq!((shown.status, shown.body["id"].as_str()), (200, Some(table.as_str())));
    process.child.kill().await.unwrap();

    let wrong = write("wrong", &json!({"clients": [{"secret": "hush"}]}));
    let output = Command::new(env!("CARGO_BIN_EXE_azure-simulator"))
        .args(["--credentials", &wrong])
        .output()
        .await
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && message.contains("is invalid in line 1") && !message.contains("hush"),
        "{message}"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_azure-simulator"))
        .args(["create", "nodes", "5000"])
        .output()
        .await
        .unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("at most 1000 machines"));
}
