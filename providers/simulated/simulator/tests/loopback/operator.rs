//! The admin API: it is strict about its requests, and its requests are not counted or recorded.

use hyper::Method;
use serde_json::json;

use crate::client::{cloud, request};

#[tokio::test]
async fn the_admin_api_is_not_counted_and_meets_no_faults() {
    let mut client = cloud(3).await;
    let everything = r#"{"throttle":{"share":1},"lost":{"share":1},"latency":{"fixedMs":60000}}"#;
    client.set_faults(everything).await;
    for path in ["/admin/faults", "/admin/counters", "/admin/requests", "/admin/state"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    let state = client.get("/admin/state").await.body;
    assert_eq!(state["counters"]["concurrent"], json!({"now": 0, "peak": 0}));
    assert_eq!(client.get("/admin/requests").await.body, json!({"requests": []}));
}

#[tokio::test]
async fn unknown_faults_are_refused_and_the_old_faults_stay() {
    let mut client = cloud(0).await;
    client.set_faults(r#"{"lag":{"listsMs":5}}"#).await;
    let refused = client.send(Method::PUT, "/admin/faults", r#"{"lag":{"listsMs":7},"quota":{}}"#).await;
    assert_eq!((refused.status, &refused.body["code"]), (400, &"invalid".into()));
    let message = refused.body["message"].as_str().unwrap();
    assert!(
        message.contains("`latency`, `throttle`, `errors`, `lost`, `cut`, `lag`, `creation`, `hidden`, `operations`, `preconditions`"),
        "{message}"
    );
    assert_eq!(client.get("/admin/faults").await.body["lag"]["listsMs"], 5);
}

#[tokio::test]
async fn a_reset_sets_counters_to_zero() {
    let mut client = cloud(1).await;
    client.get("/v1/machines").await;
    client.get("/v1/machines/m-000007").await;
    assert_eq!((client.count("list", "ok").await, client.count("get", "not-found").await), (1, 1));
    assert_eq!(client.delete("/admin/counters").await.status, 204);
    assert_eq!((client.count("list", "ok").await, client.count("get", "not-found").await), (0, 0));
}

#[tokio::test]
async fn requests_show_the_client_and_the_header_names_but_no_secret() {
    let mut client = cloud(1).await;
    let mut first = request(Method::GET, "/v1/machines?limit=5", "");
    first.headers_mut().insert("user-agent", "pileus/0.1".parse().unwrap());
    first.headers_mut().insert("authorization", "Bearer hush".parse().unwrap());
    client.try_send(first).await.unwrap();
    client.get("/v1/volumes").await;
    let answer = client.get("/admin/requests").await.body;
    assert!(!answer.to_string().contains("hush"));
    let requests = answer["requests"].as_array().unwrap();
    let (mut listed, unknown) = (requests[0].clone(), &requests[1]);
    assert!(listed["atMs"].take().is_u64());
    let expected = json!({
        "atMs": null, "kind": "list", "method": "GET", "path": "/v1/machines?limit=5", "status": 200,
        "userAgent": "pileus/0.1", "headers": ["authorization", "host", "user-agent"],
    });
    assert_eq!(listed, expected);
    assert_eq!((&unknown["kind"], &unknown["status"]), (&json!(null), &404.into()));
}

#[tokio::test]
async fn the_overview_shows_the_first_machines_and_counts_all() {
    let mut client = cloud(301).await;
    client.post("/v1/machines/m-000001/stop", "").await;
    let machines = client.get("/admin/state").await.body["machines"].clone();
    assert_eq!(machines["total"], 301);
    assert_eq!(machines["byState"], json!({"creating": 0, "running": 300, "stopped": 1}));
    assert_eq!(machines["byZone"], json!({"sim-1a": 101, "sim-1b": 100, "sim-1c": 100}));
    assert_eq!(machines["first"].as_array().unwrap().len(), 200);

    let wanted = r#"{"ports":[{"protocol":"tcp","port":80}],"machines":["m-000001"]}"#;
    client.send(Method::PUT, "/v1/load-balancers/a", wanted).await;
    let state = client.get("/admin/state").await.body;
    let shown =
        ["routes", "loadBalancers", "addresses", "sharedLoadBalancers"].map(|kind| &state[kind]["total"]);
    assert_eq!(shown, [0, 1, 0, 0]);
    assert_eq!(state["loadBalancers"]["first"][0]["targets"], 1);
}
