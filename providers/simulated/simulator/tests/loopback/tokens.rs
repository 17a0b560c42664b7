//! Tokens as clients see them: how to get one, what it authorizes, and how it ends.

use hyper::Method;
use serde_json::json;

use crate::client::{Answer, Client, cloud, request};

const KNOWN: &str = r#"{"clientID":"pileus","secret":"hush","assertions":["signed"],"tokens":["static"],"expiresInSeconds":300}"#;
const BY_SECRET: &str = "grant_type=client_credentials&client_id=pileus&client_secret=hush&scope=any";
const METADATA: &str =
    "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fcloud%2F";

/// A cloud with one machine that needs tokens.
async fn cloud_with_credentials() -> Client {
    let mut client = cloud(1).await;
    let answer = client.send(Method::PUT, "/admin/credentials", KNOWN).await;
    assert_eq!(answer.body, json!({"required": true, "expiresInSeconds": 300, "live": 0}));
    client
}

async fn ask(client: &mut Client, form: &str) -> Answer {
    let mut asked = request(Method::POST, "/oauth2/token", form);
    asked.headers_mut().insert("content-type", "application/x-www-form-urlencoded".parse().unwrap());
    client.try_send(asked).await.unwrap()
}

async fn ask_as_machine(client: &mut Client, path: &str, headers: &[(&'static str, &str)]) -> Answer {
    let mut asked = request(Method::GET, path, "");
    for (name, value) in headers {
        asked.headers_mut().insert(*name, value.parse().unwrap());
    }
    client.try_send(asked).await.unwrap()
}

async fn read(client: &mut Client, authorization: &str) -> Answer {
    let mut read = request(Method::GET, "/v1/machines/m-000001", "");
    read.headers_mut().insert("authorization", authorization.parse().unwrap());
    client.try_send(read).await.unwrap()
}

fn token(answer: &Answer) -> String {
    answer.body["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn without_a_valid_token_a_call_is_refused_and_takes_nothing_from_the_quota() {
    let mut client = cloud_with_credentials().await;
    client.set_quotas(r#"{"read":{"burst":1,"perSecond":0.001}}"#).await;
    let bare = client.get("/v1/machines/m-000001").await;
    assert_eq!((bare.status, &bare.body["code"]), (401, &"unauthorized".into()));
    assert_eq!(bare.headers["www-authenticate"], r#"Bearer realm="simulated cloud""#);
    for wrong in ["Bearer hush", "Basic static", "static", "Bearer"] {
        assert_eq!(read(&mut client, wrong).await.status, 401, "{wrong}");
    }
    assert_eq!(read(&mut client, "bearer static").await.status, 200);
    assert_eq!(client.count("get", "unauthorized").await, 5);
    assert_eq!(client.delete("/admin/credentials").await.status, 204);
    client.set_quotas("{}").await;
    assert_eq!(client.get("/v1/machines/m-000001").await.status, 200, "no token is needed any more");
}

#[tokio::test]
async fn a_client_gets_a_token_for_its_secret_or_an_assertion_until_it_is_revoked() {
    let mut client = cloud_with_credentials().await;
    let assertion = "grant_type=client_credentials&client_id=pileus&client_assertion=signed\
        &client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
    for form in [BY_SECRET, assertion] {
        let granted = ask(&mut client, form).await;
        assert_eq!((granted.status, &granted.body["token_type"]), (200, &"Bearer".into()));
        assert_eq!(
            (&granted.body["expires_in"], &granted.headers["cache-control"]),
            (&300.into(), &"no-store".parse().unwrap())
        );
        let bearer = format!("Bearer {}", token(&granted));
        assert_eq!(read(&mut client, &bearer).await.status, 200);
        assert_eq!(client.delete("/admin/tokens").await.status, 204);
        assert_eq!(read(&mut client, &bearer).await.status, 401);
    }
    assert_eq!(client.count("token", "ok").await, 2);
}

#[tokio::test]
async fn the_token_endpoint_refuses_with_the_errors_of_oauth() {
    let mut client = cloud_with_credentials().await;
    for (form, status, error) in [
        ("grant_type=client_credentials&client_id=pileus&client_secret=no", 401, "invalid_client"),
        ("grant_type=client_credentials&client_id=other&client_secret=hush", 401, "invalid_client"),
        ("grant_type=password&client_id=pileus&client_secret=hush", 400, "unsupported_grant_type"),
        ("grant_type=client_credentials&client_id=pileus", 400, "invalid_request"),
        ("grant_type=client_credentials&client_id=pileus&client_assertion=signed", 400, "invalid_request"),
        ("", 400, "unsupported_grant_type"),
    ] {
        let denied = ask(&mut client, form).await;
        assert_eq!((denied.status, &denied.body["error"]), (status, &error.into()), "{form}");
    }
    let json = client.post("/oauth2/token", BY_SECRET).await;
    assert_eq!((json.status, &json.body["error"]), (400, &"invalid_request".into()), "not a form");
    assert_eq!(client.count("token", "unauthorized").await, 2);
}

#[tokio::test]
async fn the_metadata_service_issues_a_token_for_the_metadata_header() {
    let mut client = cloud_with_credentials().await;
    let known = ("metadata", "true");
    for (path, headers) in [
        (METADATA, [].as_slice()),
        (METADATA, &[("metadata", "yes")]),
        (METADATA, &[known, ("x-forwarded-for", "10.0.0.1")]),
        ("/metadata/identity/oauth2/token?api-version=2018-02-01", &[known]),
        ("/metadata/identity/oauth2/token?resource=a", &[known]),
    ] {
        let denied = ask_as_machine(&mut client, path, headers).await;
        assert_eq!(
            (denied.status, &denied.body["error"]),
            (400, &"invalid_request".into()),
            "{path} {headers:?}"
        );
    }
    let granted = ask_as_machine(&mut client, METADATA, &[known]).await;
    assert_eq!(
        (&granted.body["expires_in"], &granted.body["resource"]),
        (&"300".into(), &"https://cloud/".into())
    );
    assert!(granted.body["expires_on"].as_str().unwrap().parse::<u64>().unwrap() > 1_700_000_000);
    assert_eq!(read(&mut client, &format!("Bearer {}", token(&granted))).await.status, 200);
    assert_eq!(client.get("/admin/credentials").await.body["live"], 1);
}

#[tokio::test]
async fn token_requests_have_their_own_faults_and_their_secrets_are_not_shown() {
    let mut client = cloud_with_credentials().await;
    client.set_faults(r#"{"errors":{"share":1,"kinds":["token"]}}"#).await;
    assert_eq!(ask(&mut client, BY_SECRET).await.status, 503);
    assert_eq!(read(&mut client, "Bearer static").await.status, 200);
    for path in ["/admin/requests", "/admin/state", "/admin/credentials"] {
        let shown = client.get(path).await.body.to_string();
        assert!(!["hush", "signed", "static"].iter().any(|secret| shown.contains(secret)), "{path}: {shown}");
    }
}
