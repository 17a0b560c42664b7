//! The metadata service of a machine: what it says, what it wants, and its faults.

use hyper::Method;
use serde_json::Value;

use crate::client::{Answer, Client, cloud, request};

/// Starts the metadata service of `node-1` and connects to it.
async fn service(client: &mut Client) -> Client {
    let started = client.send(Method::PUT, "/admin/metadata/node-1", "").await;
    assert_eq!(started.status, 201, "{started:?}");
    let address = started.body["url"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    Client::connect(address).await
}

async fn ask(service: &mut Client, headers: &[(&'static str, &str)]) -> Answer {
    let mut asked = request(Method::GET, "/metadata/instance", "");
    for (name, value) in headers {
        asked.headers_mut().insert(*name, value.parse().unwrap());
    }
    service.try_send(asked).await.unwrap()
}

#[tokio::test]
async fn a_metadata_service_describes_its_machine_to_requests_with_its_header_and_without_a_token() {
    let mut client = cloud(2).await;
    client.send(Method::PUT, "/admin/credentials", r#"{"tokens":["static"]}"#).await;
    let mut service = service(&mut client).await;
    let told = ask(&mut service, &[("metadata", "true")]).await;
    assert_eq!(
        (told.status, &told.body["name"], &told.body["id"]),
        (200, &"node-1".into(), &"m-000001".into())
    );
    for wrong in [&[][..], &[("metadata", "no")], &[("metadata", "true"), ("x-forwarded-for", "10.0.0.1")]] {
        assert_eq!(ask(&mut service, wrong).await.status, 400, "{wrong:?}");
    }
    assert_eq!(client.get("/metadata/instance").await.status, 404, "not at the address of the API");
    assert_eq!(client.count("metadata", "ok").await, 1);
}

#[tokio::test]
async fn a_metadata_service_may_speak_of_another_machine_or_of_none() {
    let mut client = cloud(2).await;
    let mut service = service(&mut client).await;
    for (fault, status, name) in [
        (r#"{"metadata": {"speaksOf": "node-2"}}"#, 200, Value::from("node-2")),
        (r#"{"metadata": {"speaksOf": "node-9"}}"#, 404, Value::Null),
        (r#"{"errors": {"next": 1, "kinds": ["metadata"]}}"#, 503, Value::Null),
        ("{}", 200, Value::from("node-1")),
    ] {
        client.send(Method::PUT, "/admin/faults", fault).await;
        let told = ask(&mut service, &[("metadata", "true")]).await;
        assert_eq!((told.status, &told.body["name"]), (status, &name), "{fault}");
    }
}
