//! Quotas as clients see them.

use hyper::Method;
use serde_json::json;

use crate::client::cloud;

/// A quota of one token in a quarter of an hour: no test lasts until the next token.
const ONE: &str = r#"{"burst":1,"perSecond":0.001}"#;

#[tokio::test]
async fn a_request_over_the_quota_gets_retry_after_and_changes_nothing() {
    let mut client = cloud(1).await;
    client.set_quotas(&format!(r#"{{"write":{ONE}}}"#)).await;
    let read = client.get("/v1/machines/m-000001").await;
    assert_eq!((read.status, read.headers.get("x-ratelimit-remaining-reads")), (200, None), "unlimited");
    let written = client.post("/v1/machines/m-000001/stop", "").await;
    assert_eq!(
        (written.status, &written.headers["x-ratelimit-remaining-writes"]),
        (200, &"0".parse().unwrap())
    );

    let refused = client.delete("/v1/machines/m-000001").await;
    assert_eq!((refused.status, &refused.body["code"]), (429, &"throttled".into()));
    assert_eq!(refused.headers["x-ratelimit-remaining-writes"], "0");
    let seconds: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((900..=1_000).contains(&seconds), "{seconds}");
    assert_eq!(client.get("/v1/machines/m-000001").await.status, 200);
    assert_eq!(client.count("delete", "throttled").await, 1);
}

#[tokio::test]
async fn each_response_has_the_remaining_quota_even_a_404() {
    let mut client = cloud(1).await;
    client.set_quotas("azure").await;
    let mut left = Vec::new();
    for path in ["/v1/machines/m-000001", "/v1/machines/m-000009", "/v1/machines"] {
        left.push(client.get(path).await.headers["x-ratelimit-remaining-reads"].clone());
    }
    client.set_quotas(&format!(r#"{{"read":{ONE},"silent":true}}"#)).await;
    for status in [200, 429] {
        let answer = client.get("/v1/machines").await;
        assert_eq!(
            (answer.status, answer.headers.get("x-ratelimit-remaining-reads")),
            (status, None),
            "silent"
        );
    }
    // 25 tokens are added each second, so on a slow machine the same number may appear twice.
    assert!(left.iter().all(|left| ["249", "248", "247"].contains(&left.to_str().unwrap())), "{left:?}");
}

#[tokio::test]
async fn the_admin_api_sets_shows_refills_and_removes_quotas() {
    let mut client = cloud(1).await;
    assert_eq!(client.get("/admin/quotas").await.body, json!({}));
    let quotas = format!(r#"{{"read":{ONE}}}"#);
    for _ in 0..2 {
        client.set_quotas(&quotas).await;
        assert_eq!(client.get("/v1/machines").await.status, 200, "a full bucket each time");
        assert_eq!(client.get("/v1/machines").await.status, 429);
    }
    let shown = json!({"read": {"burst": 1, "perSecond": 0.001}});
    assert_eq!(client.get("/admin/quotas").await.body, shown);
    assert_eq!(client.get("/admin/state").await.body["quotas"], shown);
    let refused = client.send(Method::PUT, "/admin/quotas", r#"{"read":{"burst":0,"perSecond":1}}"#).await;
    assert_eq!((refused.status, &refused.body["code"]), (400, &"invalid".into()));
    assert_eq!(client.get("/admin/quotas").await.body, shown, "the old ones stay");
    assert_eq!(client.delete("/admin/quotas").await.status, 204);
    assert_eq!(client.get("/v1/machines").await.status, 200);
}
