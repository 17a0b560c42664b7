//! Machines over HTTP, with one connection for each test, which thereby also tests keep-alive.

use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Client, cloud};

async fn ids(client: &mut Client, path: &str) -> (Vec<String>, Option<String>) {
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let machines = answer.body["machines"].as_array().unwrap();
    let ids = machines.iter().map(|machine| machine["id"].as_str().unwrap().to_owned()).collect();
    (ids, answer.body.get("next").map(|next| next.as_str().unwrap().to_owned()))
}

#[tokio::test]
async fn a_machine_is_created_changed_stopped_started_and_deleted() {
    let mut client = cloud(0).await;
    let asked = json!({
        "name": "node-1", "type": "large-8", "zone": "sim-1c", "labels": {"k": "v"},
        "addresses": [{"kind": "internal-dns", "value": "node-1.inside"}],
    });
    let mut expected = asked.clone();
    expected["id"] = "m-000001".into();
    expected["region"] = "sim-1".into();
    expected["state"] = "running".into();

    let created = client.post("/v1/machines", &asked.to_string()).await;
    expected["createdAt"] = created.body["createdAt"].clone();
    assert_eq!((created.status, &created.body), (201, &expected));
    assert_eq!(client.get("/v1/machines/m-000001").await.body, expected);

    let patched =
        client.send(Method::PATCH, "/v1/machines/m-000001", r#"{"labels":{},"type":"small-2"}"#).await;
    expected["labels"] = json!({});
    expected["type"] = "small-2".into();
    assert_eq!((patched.status, &patched.body), (200, &expected));

    let stopped = client.post("/v1/machines/m-000001/stop", "").await;
    expected["state"] = "stopped".into();
    assert_eq!((stopped.status, &stopped.body), (200, &expected));
    let started = client.post("/v1/machines/m-000001/start", "").await;
    expected["state"] = "running".into();
    assert_eq!((started.status, &started.body), (200, &expected));

    let deleted = client.delete("/v1/machines/m-000001").await;
    assert_eq!((deleted.status, &deleted.body), (204, &Value::Null));
    for gone in [client.get("/v1/machines/m-000001").await, client.delete("/v1/machines/m-000001").await] {
        let error = json!({"code": "not-found", "message": "no machine m-000001"});
        assert_eq!((gone.status, &gone.body), (404, &error));
    }
}

#[tokio::test]
async fn a_refusal_is_json_with_the_right_status() {
    let mut client = cloud(1).await;
    let table = [
        (Method::POST, "/v1/machines", r#"{"name":"node-1"}"#, 409, "conflict"),
        (Method::POST, "/v1/machines", r#"{"name":"a","colour":"red"}"#, 400, "invalid"),
        (Method::POST, "/v1/machines", "", 400, "invalid"),
        (Method::POST, "/v1/machines:batch", r#"{"count":0,"prefix":"a"}"#, 400, "invalid"),
        (Method::DELETE, "/v1/machines:batch", r#"{"count":0,"prefix":"a"}"#, 400, "invalid"),
        (Method::PATCH, "/v1/machines/m-000001", r#"{"name":"b"}"#, 400, "invalid"),
        (Method::PATCH, "/v1/machines/m-000009", "{}", 404, "not-found"),
        (Method::POST, "/v1/machines/m-000009/stop", "", 404, "not-found"),
        (Method::GET, "/v1/machines/anything", "", 404, "not-found"),
        (Method::GET, "/v1/machines/%FF", "", 404, "not-found"),
        (Method::GET, "/v1/machines?limit=0", "", 400, "invalid"),
        (Method::GET, "/v1/machines?limit=1001", "", 400, "invalid"),
        (Method::GET, "/v1/machines?limit=x", "", 400, "invalid"),
        (Method::GET, "/v1/machines?colour=red", "", 400, "invalid"),
        (Method::GET, "/v1/machines?cursor=x", "", 400, "invalid"),
        (Method::GET, "/v1/volumes", "", 404, "not-found"),
        (Method::GET, "/admin/secrets", "", 404, "not-found"),
        (Method::PUT, "/v1/machines", "", 405, "wrong-method"),
    ];
    for (method, path, body, status, code) in table {
        let answer = client.send(method.clone(), path, body).await;
        assert_eq!((answer.status, &answer.body["code"]), (status, &code.into()), "{method} {path} {body}");
        assert!(!answer.body["message"].as_str().unwrap().is_empty());
        assert_eq!(answer.headers["content-type"], "application/json");
    }
    let large = client.post("/v1/machines", &"x".repeat((1 << 20) + 1)).await;
    assert_eq!((large.status, &large.body["code"]), (413, &"too-large".into()));
}

#[tokio::test]
async fn the_pages_of_five_thousand_machines_show_one_moment() {
    let mut client = cloud(4_000).await;
    let batch = client.post("/v1/machines:batch", r#"{"count":1000,"prefix":"node-"}"#).await;
    assert_eq!((batch.status, &batch.body["created"]), (201, &1_000.into()));
    assert_eq!(batch.body["names"][999], "node-5000");

    let (mut seen, mut next) = ids(&mut client, "/v1/machines?limit=1000").await;
    let mut pages = 1;
    while let Some(cursor) = next {
        client.delete(&format!("/v1/machines/m-00{pages}999")).await;
        client.post("/v1/machines", &format!(r#"{{"name":"late-{pages}"}}"#)).await;
        let page = ids(&mut client, &format!("/v1/machines?limit=1000&cursor={cursor}")).await;
        seen.extend(page.0);
        next = page.1;
        pages += 1;
    }
    let expected: Vec<_> = (1..=5_000).map(|number| format!("m-{number:06}")).collect();
    assert_eq!((pages, seen == expected), (5, true));
}

#[tokio::test]
async fn one_call_deletes_many_machines_and_only_those_of_the_prefix() {
    let mut client = cloud(600).await;
    client.post("/v1/machines", r#"{"name":"other"}"#).await;
    let gone = client.send(Method::DELETE, "/v1/machines:batch", r#"{"count":500,"prefix":"node-"}"#).await;
    assert_eq!((gone.status, &gone.body["deleted"]), (200, &500.into()));
    assert_eq!((&gone.body["names"][0], &gone.body["names"][499]), (&"node-1".into(), &"node-500".into()));
    assert_eq!(client.get("/v1/machines/m-000500").await.status, 404);
    assert_eq!(client.get("/v1/machines/m-000501").await.status, 200);
    let rest = client.send(Method::DELETE, "/v1/machines:batch", r#"{"count":500,"prefix":"node-"}"#).await;
    assert_eq!((rest.status, &rest.body["deleted"]), (200, &100.into()), "as many as there are");
    assert_eq!(ids(&mut client, "/v1/machines").await.0, ["m-000601"]);
    assert_eq!(client.count("delete", "ok").await, 2);
}

#[tokio::test]
async fn a_page_has_a_hundred_machines_by_default_and_a_name_filters() {
    let mut client = cloud(150).await;
    let (first, next) = ids(&mut client, "/v1/machines").await;
    assert_eq!((first.len(), next.is_some()), (100, true));
    assert_eq!(ids(&mut client, "/v1/machines?name=node-150").await, (vec!["m-000150".to_owned()], None));
    assert_eq!(ids(&mut client, "/v1/machines?limit=1000&name=node-151").await, (Vec::new(), None));
}
