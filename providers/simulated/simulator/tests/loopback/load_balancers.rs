//! Load balancers over HTTP: statuses, headers, counters, and the faults of their operations.

use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client, cloud, request};

const PATH: &str = "/v1/load-balancers/a";

fn wanted(port: u16) -> String {
    json!({"ports": [{"protocol": "tcp", "port": port}], "machines": ["m-000001"]}).to_string()
}

async fn put(client: &mut Client, body: &str, precondition: Option<(&'static str, &str)>) -> Answer {
    let mut put = request(Method::PUT, PATH, body);
    if let Some((name, value)) = precondition {
        put.headers_mut().insert(name, value.parse().unwrap());
    }
    client.try_send(put).await.unwrap()
}

#[tokio::test]
async fn the_status_tells_whether_a_write_created_changed_or_found_nothing_to_do() {
    let mut client = cloud(1).await;
    let made = put(&mut client, &wanted(80), None).await;
    assert_eq!((made.status, &made.body["state"]), (201, &"active".into()));
    assert_eq!(client.get(PATH).await.body, made.body);
    assert_eq!(client.get("/v1/load-balancers").await.body, json!({"loadBalancers": [made.body]}));
    assert_eq!(put(&mut client, &wanted(80), None).await.status, 200, "nothing to do");
    assert_eq!(put(&mut client, &wanted(81), None).await.status, 200, "done immediately");
    client.set_faults(r#"{"operations":{"takesMs":3600000}}"#).await;
    let begun = put(&mut client, &wanted(82), None).await;
    assert_eq!((begun.status, &begun.body["state"]), (202, &"updating".into()));
    for busy in [put(&mut client, &wanted(82), None).await, client.delete(PATH).await] {
        assert_eq!((busy.status, &busy.body["code"]), (409, &"busy".into()));
    }
    client.set_faults(r#"{"operations":{"overtake":true}}"#).await;
    assert_eq!(put(&mut client, &wanted(83), None).await.status, 200);
    client.set_faults(r#"{"operations":{"takesMs":3600000}}"#).await;
    let begun = client.delete(PATH).await;
    assert_eq!((begun.status, &begun.body["state"]), (202, &"deleting".into()));
    assert_eq!((client.count("create", "ok").await, client.count("change", "ok").await), (1, 4));
}

#[tokio::test]
async fn without_configured_operations_a_deletion_is_immediate() {
    let mut client = cloud(1).await;
    put(&mut client, &wanted(80), None).await;
    let gone = client.delete(PATH).await;
    assert_eq!((gone.status, gone.body), (204, Value::Null));
    for absent in [client.delete(PATH).await, client.get(PATH).await] {
        assert_eq!((absent.status, &absent.body["message"]), (404, &"no load balancer a".into()));
    }
}

#[tokio::test]
async fn a_precondition_is_read_from_the_headers_with_and_without_quotes() {
    let mut client = cloud(1).await;
    let made = put(&mut client, &wanted(80), Some(("if-none-match", "*"))).await;
    assert_eq!(made.status, 201);
    let quoted = made.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(quoted, format!("{:?}", made.body["etag"].as_str().unwrap()));
    let again = put(&mut client, &wanted(80), Some(("if-none-match", "*"))).await;
    assert_eq!((again.status, &again.body["code"]), (412, &"precondition-failed".into()));
    let changed = put(&mut client, &wanted(81), Some(("if-match", &quoted))).await;
    assert_eq!(changed.status, 200);
    assert_eq!(put(&mut client, &wanted(82), Some(("if-match", &quoted))).await.status, 412);
    let plain = changed.body["etag"].as_str().unwrap().to_owned();
    assert_eq!(put(&mut client, &wanted(82), Some(("if-match", &plain))).await.status, 200);
    assert_eq!(put(&mut client, &wanted(82), Some(("if-none-match", &plain))).await.status, 400);
}

#[tokio::test]
async fn the_next_operations_fail_late_and_the_next_conditional_writes_are_preempted() {
    let mut client = cloud(1).await;
    client.set_faults(r#"{"operations":{"lateFailures":{"next":2}},"preconditions":{"next":1}}"#).await;
    let preempted = put(&mut client, &wanted(80), Some(("if-none-match", "*"))).await;
    assert_eq!(preempted.status, 412);
    assert_eq!(client.get(PATH).await.status, 404, "a refused write starts no operation");
    assert_eq!(put(&mut client, &wanted(80), Some(("if-none-match", "*"))).await.body["state"], "failed");
    let failed = put(&mut client, &wanted(80), None).await;
    assert_eq!((&failed.body["state"], failed.body["error"].is_string()), (&"failed".into(), true));
    assert_eq!(put(&mut client, &wanted(80), None).await.body["state"], "active");
    client.set_faults(r#"{"operations":{"lateFailures":{"next":1}}}"#).await;
    assert_eq!(put(&mut client, &wanted(80), None).await.body["state"], "active");
    let faults = client.get("/admin/faults").await.body;
    assert_eq!(faults["operations"]["lateFailures"]["next"], 1, "without an operation nothing fails");
    assert_eq!(client.delete(PATH).await.body["state"], "failed");
    let faults = client.get("/admin/faults").await.body;
    assert_eq!(
        (&faults["operations"]["lateFailures"]["next"], &faults["preconditions"]["next"]),
        (&0.into(), &0.into())
    );
}

#[tokio::test]
async fn a_write_with_a_lost_response_is_carried_out_and_an_error_names_the_problem() {
    let mut client = cloud(1).await;
    let mut other = client.another().await;
    client.set_faults(r#"{"lost":{"next":1}}"#).await;
    client.try_send(request(Method::PUT, PATH, &wanted(80))).await.unwrap_err();
    assert_eq!(other.get(PATH).await.body["state"], "active");
    assert_eq!(other.count("create", "lost").await, 1);
    for (body, named) in [
        (r#"{"ports":[{"protocol":"tcp","port":80}],"machines":["m-000009"]}"#, "m-000009"),
        (r#"{"ports":[{"protocol":"tcp","port":80},{"protocol":"sctp","port":80}]}"#, "sctp is mixed"),
        (r#"{"ports":[{"protocol":"tcp","port":0}]}"#, "nonzero"),
        (r#"{"ports":[],"colour":"red"}"#, "colour"),
    ] {
        let refused = put(&mut other, body, None).await;
        let message = refused.body["message"].as_str().unwrap();
        assert!(refused.status == 400 && message.contains(named), "{body}: {message}");
    }
}

#[tokio::test]
async fn lists_lag_and_resources_are_hidden_as_with_machines() {
    let mut client = cloud(1).await;
    put(&mut client, &wanted(80), None).await;
    client.set_faults(r#"{"hidden":{"lists":{"names":["a"]}}}"#).await;
    assert_eq!(client.get("/v1/load-balancers").await.body, json!({"loadBalancers": []}));
    assert_eq!(client.get(PATH).await.status, 200);
    client.set_faults(r#"{"hidden":{"gets":{"names":["a"]}}}"#).await;
    assert_eq!(client.get(PATH).await.status, 404);
    assert_eq!(put(&mut client, &wanted(80), None).await.status, 200, "it exists all the same");
    client.set_faults(r#"{"lag":{"listsMs":300000}}"#).await;
    assert_eq!(client.get("/v1/load-balancers").await.body, json!({"loadBalancers": []}));
}
