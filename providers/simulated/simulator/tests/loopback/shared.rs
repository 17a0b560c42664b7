//! Addresses and shared load balancers over HTTP, where they differ from load balancers.

use hyper::Method;
use serde_json::json;

use crate::client::{Answer, Client, cloud, request};

const SHARED: &str = "/v1/shared-load-balancers/s";

async fn put(client: &mut Client, address: &str, precondition: Option<(&'static str, &str)>) -> Answer {
    let frontend = json!({"name": "x", "address": address, "ports": [{"protocol": "tcp", "port": 80}]});
    let body = json!({"machines": ["m-000001"], "frontends": [frontend]}).to_string();
    let mut put = request(Method::PUT, SHARED, &body);
    if let Some((name, value)) = precondition {
        put.headers_mut().insert(name, value.parse().unwrap());
    }
    client.try_send(put).await.unwrap()
}

#[tokio::test]
async fn a_shared_load_balancer_needs_a_precondition_and_uses_its_addresses() {
    let mut client = cloud(1).await;
    let reserved =
        client.send(Method::PUT, "/v1/addresses/a", r#"{"family":"ipv4","labels":{"k":"v"}}"#).await;
    let mut expected = json!({
        "name": "a", "state": "active", "family": "ipv4", "value": "198.51.100.1", "labels": {"k": "v"},
    });
    expected["etag"] = reserved.body["etag"].clone();
    assert_eq!((reserved.status, &reserved.body), (201, &expected));

    let bare = put(&mut client, "a", None).await;
    assert_eq!((bare.status, &bare.body["code"]), (428, &"precondition-required".into()));
    let missing = put(&mut client, "b", Some(("if-none-match", "*"))).await;
    assert_eq!(
        (missing.status, &missing.body["message"]),
        (400, &"frontend x: address b doesn't exist".into())
    );
    let made = put(&mut client, "a", Some(("if-none-match", "*"))).await;
    assert_eq!((made.status, &made.body["frontends"][0]["address"]), (201, &"a".into()));
    let etag = made.body["etag"].as_str().unwrap();
    assert_eq!(put(&mut client, "a", Some(("if-match", etag))).await.status, 200);
    assert_eq!(put(&mut client, "a", Some(("if-match", "e999"))).await.status, 412);

    let in_use = client.delete("/v1/addresses/a").await;
    assert_eq!((in_use.status, &in_use.body["code"]), (409, &"in-use".into()));
    expected["usedBy"] = "s".into();
    assert_eq!(client.get("/v1/addresses").await.body, json!({"addresses": [expected]}));
    assert_eq!(
        client.get("/v1/shared-load-balancers").await.body,
        json!({"sharedLoadBalancers": [made.body]})
    );
    assert_eq!(client.delete(SHARED).await.status, 204);
    assert_eq!(client.delete("/v1/addresses/a").await.status, 204);
    assert_eq!(client.count("create", "ok").await, 2);
}

#[tokio::test]
async fn a_write_with_a_lost_response_is_carried_out_and_changes_the_etag() {
    let mut client = cloud(1).await;
    for address in ["a", "b"] {
        client.send(Method::PUT, &format!("/v1/addresses/{address}"), r#"{"family":"ipv4"}"#).await;
    }
    let made = put(&mut client, "a", Some(("if-none-match", "*"))).await;
    let etag = made.body["etag"].as_str().unwrap();
    let mut other = client.another().await;
    client.set_faults(r#"{"lost":{"next":1,"kinds":["change"]}}"#).await;
    let frontends = json!({"frontends": []}).to_string();
    let mut lost = request(Method::PUT, SHARED, &frontends);
    lost.headers_mut().insert("if-match", etag.parse().unwrap());
    client.try_send(lost).await.unwrap_err();
    assert_eq!(other.get(SHARED).await.body["frontends"], json!([]));
    assert_eq!(put(&mut other, "b", Some(("if-match", etag))).await.status, 412);
}
