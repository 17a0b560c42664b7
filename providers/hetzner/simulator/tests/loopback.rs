//! The cloud over real sockets: envelopes, pages, tokens, faults, the rate limit and the admin API as clients see them.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "clippy lets tests panic, but not the functions that they share"
)]

use std::net::SocketAddr;

use bytes::Bytes;
use hetzner_cloud::arguments::Arguments;
use hetzner_cloud::server;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::handshake;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// A response: its status, its headers, and its body as JSON (null where it is empty).
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Answer {
    fn code(&self) -> (u16, &str) {
        (self.status, self.body["error"]["code"].as_str().unwrap_or_default())
    }

    fn header(&self, name: &str) -> u64 {
        self.headers[name].to_str().unwrap().parse().unwrap()
    }
}

struct Client {
    address: SocketAddr,
    token: &'static str,
}

async fn cloud(arguments: &[&str]) -> Client {
    use clap::Parser as _;
    let arguments = Arguments::try_parse_from([&["hetzner-cloud"], arguments].concat()).unwrap();
    let listener = simulated_cloud::server::listen(arguments.listen).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(server::serve(listener, arguments.settings(), std::future::pending()));
    Client { address, token: "secret" }
}

impl Client {
    /// Sends a request on a connection of its own. An error means that the connection was closed without a whole response.
    async fn try_send(&self, method: Method, path: &str, body: &str) -> Result<Answer, hyper::Error> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "cloud");
        let request = request.header("authorization", format!("Bearer {}", self.token));
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        let (parts, body) = sender.send_request(request.body(body).unwrap()).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.try_send(method, path, &body.to_string()).await.unwrap()
    }

    async fn get(&self, path: &str) -> Answer {
        self.try_send(Method::GET, path, "").await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &body).await
    }

    async fn set(&self, what: &str, value: Value) {
        let answer = self.send(Method::PUT, &format!("/admin/{what}"), &value).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    async fn load_balancer(&self, name: &str) -> u64 {
        let body = json!({"name": name, "load_balancer_type": "lb11", "location": "fsn1"});
        let created = self.post("/v1/load_balancers", body).await;
        assert_eq!(created.status, 201, "{}", created.body);
        created.body["load_balancer"]["id"].as_u64().unwrap()
    }
}

#[tokio::test]
async fn a_list_is_read_page_by_page_and_filtered() {
    let client = cloud(&["--servers", "120", "--network", "10.0.0.0/8"]).await;
    let (mut path, mut names) = (Some(1), Vec::new());
    while let Some(page) = path {
        let answer = client.get(&format!("/v1/servers?page={page}&per_page=50&sort=id:desc")).await;
        names.extend(answer.body["servers"].as_array().unwrap().iter().map(|it| it["name"].clone()));
        let pagination = &answer.body["meta"]["pagination"];
        assert_eq!((&pagination["total_entries"], &pagination["last_page"]), (&json!(120), &json!(3)));
        path = pagination["next_page"].as_u64();
    }
    let expected: Vec<_> = (1..=120).rev().map(|number| json!(format!("node-{number}"))).collect();
    assert_eq!(names, expected);
    let found = client.get("/v1/servers?name=node-7").await.body;
    assert_eq!(found["servers"].as_array().unwrap().len(), 1);
    let server = &found["servers"][0];
    assert_eq!(server["private_net"][0]["ip"], "10.0.0.8");
    assert_eq!(client.get(&format!("/v1/servers/{}", server["id"])).await.body["server"], *server);
}

#[tokio::test]
async fn every_error_has_the_envelope_of_the_api() {
    let client = cloud(&["--token", "secret"]).await;
    let stranger = Client { token: "wrong", ..client };
    assert_eq!(stranger.get("/v1/servers").await.code(), (401, "unauthorized"));
    let table = [
        (Method::GET, "/v1/servers/9", "", 404, "not_found"),
        (Method::GET, "/v1/servers/x", "", 422, "invalid_input"),
        (Method::GET, "/v1/volumes", "", 404, "not_found"),
        (Method::GET, "/v1/servers?per_page=51", "", 422, "invalid_input"),
        (Method::GET, "/v1/servers?labels=a", "", 422, "invalid_input"),
        (Method::GET, "/v1/actions", "", 410, "deprecated_api_endpoint"),
        (Method::POST, "/v1/servers", "{}", 405, "method_not_allowed"),
        (Method::POST, "/v1/load_balancers", "{", 400, "json_error"),
        (Method::POST, "/v1/load_balancers", "{}", 422, "invalid_input"),
        (Method::DELETE, "/v1/load_balancers/9", "", 404, "not_found"),
    ];
    let client = Client { token: "secret", ..client };
    for (method, path, body, status, code) in table {
        let answer = client.try_send(method, path, body).await.unwrap();
        assert_eq!(answer.code(), (status, code), "{path}");
        let error = &answer.body["error"];
        assert!(error["message"].is_string() && error["details"].is_object(), "{error}");
    }
    let invalid = client.get("/v1/servers?page=0").await.body;
    let fields =
        json!([{"name": "page", "messages": [invalid["error"]["details"]["fields"][0]["messages"][0]]}]);
    assert_eq!(invalid["error"]["details"]["fields"], fields);
}

#[tokio::test]
async fn an_action_runs_for_its_time_and_locks() {
    let client = cloud(&[]).await;
    let id = client.load_balancer("web").await;
    client.set("faults", json!({"operations": {"takesMs": 3_600_000}})).await;
    let own = format!("/v1/load_balancers/{id}");
    let begun =
        client.post(&format!("{own}/actions/change_algorithm"), json!({"type": "least_connections"})).await;
    assert_eq!((begun.status, &begun.body["action"]["status"]), (201, &json!("running")));
    let action = &begun.body["action"]["id"];
    for path in [
        format!("/v1/actions/{action}"),
        format!("/v1/load_balancers/actions/{action}"),
        format!("{own}/actions/{action}"),
    ] {
        assert_eq!(client.get(&path).await.body["action"]["id"], *action, "{path}");
    }
    for path in [format!("/v1/actions?id={action}&id=9"), format!("{own}/actions?status=running")] {
        assert_eq!(client.get(&path).await.body["actions"].as_array().unwrap().len(), 1, "{path}");
    }
    let locked = client.post(&format!("{own}/actions/enable_public_interface"), json!({})).await;
    assert_eq!(locked.code(), (423, "locked"));
    assert_eq!(client.send(Method::PUT, &own, &json!({"name": "b"})).await.code(), (409, "conflict"));
    assert_eq!(client.get(&own).await.body["load_balancer"]["algorithm"]["type"], "round_robin");
}

#[tokio::test]
async fn late_failures_and_conflicts_count_down() {
    let client = cloud(&[]).await;
    let id = client.load_balancer("web").await;
    let action = format!("/v1/load_balancers/{id}/actions/enable_public_interface");
    client
        .set("faults", json!({"operations": {"lateFailures": {"next": 1}}, "preconditions": {"next": 1}}))
        .await;
    assert_eq!(client.post(&action, json!({})).await.code(), (409, "conflict"));
    let failed = client.post(&action, json!({})).await.body;
    assert_eq!(failed["action"]["error"]["code"], "action_failed");
    assert_eq!(client.post(&action, json!({})).await.body["action"]["status"], "success");
}

#[tokio::test]
async fn faults_have_the_codes_of_the_api() {
    let client = cloud(&["--quotas", "{}"]).await;
    for (status, code) in [
        (500, "server_error"),
        (502, "bad_gateway"),
        (503, "unavailable"),
        (504, "timeout"),
        (599, "service_error"),
    ] {
        client.set("faults", json!({"errors": {"next": 1, "status": status}})).await;
        assert_eq!(client.get("/v1/locations").await.code(), (status, code));
        assert_eq!(client.get("/v1/locations").await.status, 200);
    }
    client.set("faults", json!({"throttle": {"next": 1}})).await;
    assert_eq!(client.get("/v1/locations").await.code(), (429, "rate_limit_exceeded"));
    client.set("faults", json!({"lost": {"next": 1}})).await;
    let body = r#"{"name":"web","load_balancer_type":"lb11","location":"fsn1"}"#;
    assert!(client.try_send(Method::POST, "/v1/load_balancers", body).await.is_err());
    let found = client.get("/v1/load_balancers?name=web").await.body;
    assert_eq!(found["load_balancers"].as_array().unwrap().len(), 1, "it was carried out");
    client.set("faults", json!({"cut": {"next": 1}})).await;
    assert!(client.try_send(Method::GET, "/v1/locations", "").await.is_err());
    assert_eq!(client.get("/v1/locations").await.status, 200);
    for faults in [json!({"lag": {"listsMs": 1}}), json!({"operations": {"overtake": true}})] {
        assert_eq!(client.send(Method::PUT, "/admin/faults", &faults).await.status, 400, "{faults}");
    }
}

#[tokio::test]
async fn the_rate_limit_counts_down_in_headers_and_refuses() {
    let client = cloud(&[]).await;
    let first = client.get("/v1/locations").await;
    assert_eq!((first.header("ratelimit-limit"), first.header("ratelimit-remaining")), (3600, 3599));
    let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap();
    assert!((now..=now + 2).contains(&first.header("ratelimit-reset")), "full again after a second");
    // One request in a quarter of an hour: no test lasts until the next.
    client.set("quotas", json!({"all": {"burst": 2, "perSecond": 0.001}})).await;
    assert_eq!(client.get("/v1/servers/9").await.header("ratelimit-remaining"), 1);
    assert_eq!(client.get("/v1/locations").await.header("ratelimit-remaining"), 0);
    let body = json!({"name": "web", "load_balancer_type": "lb11", "location": "fsn1"});
    let refused = client.post("/v1/load_balancers", body).await;
    assert_eq!(refused.code(), (429, "rate_limit_exceeded"), "reads and writes share it");
    assert_eq!(refused.header("ratelimit-remaining"), 0);
    assert!(refused.header("ratelimit-reset") >= now + 1_000);
    assert!(!refused.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn the_admin_api_changes_what_clients_read_and_shows_what_they_did() {
    let client = cloud(&["--network", "10.0.0.0/16"]).await;
    let network = client.get("/v1/networks").await.body["networks"][0]["id"].clone();
    let new = json!({"count": 2, "prefix": "w-", "network": network, "labels": {"role": "node"}});
    let created = client.post("/admin/servers", new).await;
    assert_eq!((created.status, &created.body["created"]), (201, &json!(2)));
    let id = &created.body["ids"][0];
    let found = client.get("/v1/servers?label_selector=role%3Dnode").await.body;
    assert_eq!(found["meta"]["pagination"]["total_entries"], 2);
    let own = format!("/admin/servers/{id}");
    let changed = client.send(Method::PATCH, &own, &json!({"status": "off", "name": "x"})).await.body;
    assert_eq!((&changed["server"]["status"], &changed["server"]["name"]), (&json!("off"), &json!("x")));
    assert_eq!(client.send(Method::DELETE, &own, &Value::Null).await.status, 204);
    assert_eq!(client.get(&format!("/v1/servers/{id}")).await.code(), (404, "not_found"));
    assert_eq!(client.post("/admin/servers", json!({"cont": 2})).await.code(), (422, "invalid_input"));
    client.set("project", json!({"max_load_balancers": 0})).await;
    let body = json!({"name": "web", "load_balancer_type": "lb11", "location": "fsn1"});
    assert_eq!(client.post("/v1/load_balancers", body).await.code(), (403, "resource_limit_exceeded"));

    let state = client.get("/admin/state").await.body;
    assert_eq!((&state["servers"]["total"], &state["load_balancers"]["total"]), (&json!(1), &json!(0)));
    assert_eq!(state["counters"]["calls"]["get"]["not-found"], 1);
    let requests = client.get("/admin/requests").await.body;
    let last = requests["requests"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&last["kind"], &last["path"], &last["status"]),
        (&json!("create"), &json!("/v1/load_balancers"), &json!(403))
    );
}

#[tokio::test]
async fn the_process_prints_its_endpoint_and_refuses_what_it_cannot_create() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let program = env!("CARGO_BIN_EXE_hetzner-cloud");
    let mut command = tokio::process::Command::new(program);
    command
        .args(["--servers", "2", "--token", "secret"])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    let address = line.strip_prefix("hetzner cloud on http://").and_then(|rest| rest.strip_suffix("/v1\n"));
    let client = Client { address: address.unwrap().parse().unwrap(), token: "secret" };
    assert_eq!(client.get("/v1/servers").await.body["meta"]["pagination"]["total_entries"], 2);
    assert_eq!(Client { token: "other", ..client }.get("/v1/servers").await.status, 401);

    let output =
        tokio::process::Command::new(program).args(["--servers", "1", "--location", "moon"]).output();
    let output = output.await.unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("unknown location"), "{message}");
}
