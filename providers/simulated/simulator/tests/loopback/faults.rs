//! Faults as clients see them.

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::json;

use crate::client::{cloud, request};

#[tokio::test]
async fn throttled_requests_get_retry_after_and_change_nothing() {
    let mut client = cloud(1).await;
    client.set_faults(r#"{"throttle":{"share":1,"retryAfterSeconds":30,"kinds":["list","delete"]}}"#).await;
    let listed = client.get("/v1/machines").await;
    assert_eq!((listed.status, &listed.body["code"]), (429, &"throttled".into()));
    assert_eq!(listed.headers["retry-after"], "30");
    assert_eq!(client.delete("/v1/machines/m-000001").await.status, 429);
    assert_eq!(client.get("/v1/machines/m-000001").await.status, 200);
    assert_eq!(client.count("list", "throttled").await, 1);
}

#[tokio::test]
async fn errors_have_the_configured_status_and_change_nothing() {
    let mut client = cloud(0).await;
    client.set_faults(r#"{"errors":{"share":1,"status":502,"kinds":["create"]}}"#).await;
    let created = client.post("/v1/machines", r#"{"name":"a"}"#).await;
    assert_eq!((created.status, &created.body["code"]), (502, &"unavailable".into()));
    assert_eq!(client.get("/v1/machines").await.body, json!({"machines": []}));
    assert_eq!(client.count("create", "error").await, 1);
}

#[tokio::test]
async fn a_lost_response_closes_the_connection_after_the_request_is_carried_out() {
    let mut client = cloud(0).await;
    client.set_faults(r#"{"lost":{"next":1}}"#).await;
    assert_eq!(client.get("/v1/machines").await.status, 200, "a read is not lost");
    let mut other = client.another().await;
    client.try_send(request(Method::POST, "/v1/machines", r#"{"name":"a"}"#)).await.unwrap_err();
    assert!(
        client.try_send(request(Method::GET, "/v1/machines", "")).await.is_err(),
        "the connection is closed"
    );

    assert_eq!(other.get("/v1/machines/m-000001").await.body["name"], "a");
    assert_eq!(other.get("/admin/faults").await.body["lost"]["next"], 0);
    assert_eq!(other.count("create", "lost").await, 1);
    assert_eq!(other.post("/v1/machines", r#"{"name":"b"}"#).await.status, 201, "only the next one was lost");
    let requests = other.get("/admin/requests").await.body;
    assert_eq!(
        (&requests["requests"][1]["kind"], &requests["requests"][1]["status"]),
        (&"create".into(), &json!(null))
    );
}

#[tokio::test]
async fn lists_lag_and_reads_of_one_machine_do_not() {
    let mut client = cloud(1).await;
    client.set_faults(r#"{"lag":{"listsMs":300000}}"#).await;
    assert_eq!(client.post("/v1/machines", r#"{"name":"a"}"#).await.status, 201);
    assert_eq!(client.delete("/v1/machines/m-000001").await.status, 204);
    let listed = client.get("/v1/machines").await.body;
    assert_eq!(
        (&listed["machines"][0]["name"], listed["machines"].as_array().unwrap().len()),
        (&"node-1".into(), 1)
    );
    assert_eq!(client.get("/v1/machines/m-000001").await.status, 404);
    assert_eq!(client.get("/v1/machines/m-000002").await.status, 200);
    assert_eq!(client.delete("/admin/faults").await.status, 204);
    assert_eq!(client.get("/v1/machines").await.body["machines"][0]["name"], "a");
}

#[tokio::test]
async fn lists_can_hide_machines_that_reads_show_and_vice_versa() {
    let mut client = cloud(3).await;
    client.set_faults(r#"{"hidden":{"lists":{"names":["node-2"]},"gets":{"names":["node-3"]}}}"#).await;
    let listed = client.get("/v1/machines").await.body;
    let names: Vec<_> = listed["machines"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["node-1", "node-3"]);
    assert_eq!(client.get("/v1/machines?name=node-2").await.body, json!({"machines": []}));
    assert_eq!(client.get("/v1/machines/m-000002").await.status, 200);
    let denied = client.get("/v1/machines/m-000003").await;
    assert_eq!((denied.status, &denied.body["code"]), (404, &"not-found".into()));
    assert_eq!(client.count("get", "not-found").await, 1);
    assert_eq!(client.post("/v1/machines/m-000003/stop", "").await.status, 200, "it exists all the same");

    client.set_faults(r#"{"hidden":{"lists":{"share":1}}}"#).await;
    let page = client.get("/v1/machines?limit=2").await.body;
    assert_eq!(
        (&page["machines"], page["next"].is_string()),
        (&json!([]), true),
        "an empty page, not the last"
    );
    assert_eq!(client.get("/v1/machines/m-000003").await.status, 200);
}

#[tokio::test]
async fn requests_wait_side_by_side_and_the_peak_counts_them() {
    let mut client = cloud(1).await;
    client.set_faults(r#"{"latency":{"fixedMs":200,"kinds":["get"]}}"#).await;
    let (mut one, mut other) = (client.another().await, client.another().await);
    let start = Instant::now();
    let answers = tokio::join!(
        one.get("/v1/machines/m-000001"),
        other.get("/v1/machines/m-000001"),
        client.get("/v1/machines")
    );
    assert_eq!((answers.0.status, answers.1.status, answers.2.status), (200, 200, 200));
    assert!(start.elapsed() >= Duration::from_millis(200));
    let concurrent = client.get("/admin/counters").await.body["concurrent"].clone();
    assert_eq!(concurrent["now"], 0);
    assert!(concurrent["peak"].as_u64().unwrap() >= 2, "{concurrent}");
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_cancel_its_request() {
    let mut client = cloud(0).await;
    client.set_faults(r#"{"latency":{"fixedMs":500,"kinds":["create"]}}"#).await;
    let mut hasty = client.another().await;
    let arrived = async {
        while client.get("/admin/counters").await.body["concurrent"]["now"] == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = hasty.try_send(request(Method::POST, "/v1/machines", r#"{"name":"a"}"#)) => panic!("{answer:?}"),
        () = arrived => {}
    }
    drop(hasty);
    let carried_out = async {
        while client.count("create", "ok").await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), carried_out).await.unwrap();
    assert_eq!(client.get("/v1/machines/m-000001").await.body["name"], "a");
}

#[tokio::test]
async fn new_machines_take_time_to_start() {
    let mut client = cloud(0).await;
    client.set_faults(r#"{"creation":{"takesMs":3600000}}"#).await;
    assert_eq!(client.post("/v1/machines", r#"{"name":"a"}"#).await.body["state"], "creating");
    let stopped = client.post("/v1/machines/m-000001/stop", "").await;
    assert_eq!((stopped.status, &stopped.body["code"]), (409, &"conflict".into()));
}

#[tokio::test]
async fn a_cut_response_ends_the_connection_in_the_middle_of_its_body() {
    let mut client = cloud(3).await;
    client.set_faults(r#"{"cut":{"next":1,"kinds":["create"]}}"#).await;
    assert_eq!(client.get("/v1/machines").await.status, 200, "only creates are cut");
    let mut other = client.another().await;
    let error = client.try_send(request(Method::POST, "/v1/machines", r#"{"name":"a"}"#)).await.unwrap_err();
    // The head has arrived, unlike that of a lost response.
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::UnexpectedEof), "{error:?}");
    assert_eq!(other.get("/v1/machines/m-000004").await.body["name"], "a", "it was carried out");
    assert_eq!(other.get("/admin/faults").await.body["cut"]["next"], 0);
}
