//! Each kind of identity that azure.json knows, from its source to the resource manager: tokens arrive there, are renewed before they
//! expire and after they are rejected, and are in no log.

use std::path::Path;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use pileus_dev::nodes::node;
use serde_json::{Value, json};
use tokio::time;

use super::cloud::{Cloud, TENANT};
use super::{initialised, world};
use crate::world::{Run, World};

const CLIENT: &str = "44444444-4444-4444-4444-444444444444";
const SECRET: &str = "planted-client-secret";
const SCOPE: &str = "https://management.core.windows.net/.default";

/// How the service account's token says that it is for Entra.
const EXCHANGE: &str = "api://AzureADTokenExchange";

/// How long a token is valid, in seconds. It is renewed before.
const LIFETIME: u64 = 8;

/// The key of the client's certificate.
const KEY: &str = include_str!("../../../../gate/tests/wire/rsa-key.pem");

/// The document with this credential for the resource manager.
fn document(cloud: &Cloud, kind: &str, identity: Value) -> Value {
    let mut document = cloud.document();
    let mut credential = json!({"name": "azure", "hosts": ["127.0.0.1"], "addresses": ["127.0.0.1"]});
    credential[kind] = identity;
    document["spec"]["credentials"] = json!([credential]);
    document
}

/// What a client of the token endpoint says of itself.
fn client(cloud: &Cloud, proofs: &[(&str, &Path)]) -> Value {
    let mut client = json!({"tokenURL": cloud.token_url(), "clientID": CLIENT, "scope": SCOPE});
    for (name, file) in proofs {
        client[*name] = json!({"file": file});
    }
    client
}

/// Lets the cloud know a client that proves itself so.
async fn knows(cloud: &Cloud, proof: &Value) {
    let mut client = json!({"tenants": [TENANT], "clientId": CLIENT});
    client.as_object_mut().unwrap().extend(proof.as_object().unwrap().clone());
    let identities = json!([{"clientId": CLIENT}]);
    let directory = json!({"clients": [client], "identities": identities, "lifetimeSeconds": LIFETIME});
    cloud.admin(Method::PUT, "credentials", &directory).await;
}

/// Lets a Node join, which needs a token.
async fn joins(world: &World, name: &str) {
    world.register([node(name)]).await;
    initialised(world, name).await;
}

/// How many requests to the token endpoint or the metadata service were answered so after this one.
async fn tokens(cloud: &Cloud, after: u64, status: u16) -> usize {
    let is_token = |request: &&Value| {
        request["path"].as_str().unwrap().contains("oauth2") && request["status"] == status
    };
    cloud.journal(after).await.iter().filter(is_token).count()
}

/// That no line of the log has a part of a secret or of a token. Tokens begin like this, because they begin with JSON.
fn tells_no_secret(run: &Run) {
    let is_secret = |line: &String| [SECRET, "eyJ", "PRIVATE KEY"].iter().any(|secret| line.contains(secret));
    assert_eq!(run.log().into_iter().find(is_secret), None);
}

/// Runs Pileus with an identity while Nodes join, tokens expire, and one is rejected.
async fn tokens_arrive(world: &World, cloud: &Cloud, document: &Value, names: &[String]) {
    let before = cloud.now().await;
    let run = world.start_with(document).await;
    run.ready().await;
    joins(world, &names[0]).await;
    let is_read = |request: &Value| request["path"].as_str().unwrap().contains("Microsoft.Compute");
    let read = cloud.answered(before, is_read).await;
    assert_eq!((&read["status"], &read["client"]), (&json!(200), &json!(CLIENT)));

    // Longer than a token is valid. Nodes are compared with their machines all the while.
    time::sleep(Duration::from_secs(LIFETIME + 2)).await;
    joins(world, &names[1]).await;
    let rejected = |journal: &[Value]| {
        journal.iter().filter(|request| request["status"] == 401 && is_read(request)).count()
    };
    assert_eq!(rejected(&cloud.journal(before).await), 0, "each token is renewed before it expires");
    assert!(tokens(cloud, before, 200).await >= 2);

    let before = cloud.now().await;
    cloud.admin(Method::DELETE, "tokens", &Value::Null).await;
    joins(world, &names[2]).await;
    let journal = cloud.journal(before).await;
    // None is rejected where a renewal was due at that moment. Otherwise some are until the gate asks for another token, which
    // it does no more often than each few seconds.
    assert!(rejected(&journal) <= 10, "{journal:#?}");
    assert!(tokens(cloud, before, 200).await >= 1);
    tells_no_secret(&run);
    assert!(run.stop().await.success());
}

async fn world_and_cloud() -> (World, Cloud, Vec<String>) {
    let (mut world, cloud) = tokio::join!(world(), Cloud::start());
    // Everything is logged that may be.
    world.flags.push("--log-filter=trace");
    // Each Node is of another set, so that it isn't found in the cache.
    let names = cloud.create("uniform", 3, "pool").await;
    (world, cloud, names)
}

#[tokio::test]
async fn a_client_secret_gets_tokens_and_a_wrong_one_is_reported() {
    let (world, cloud, names) = world_and_cloud().await;
    knows(&cloud, &json!({"secret": SECRET})).await;
    let secret = cloud.file("secret", SECRET);
    let document = document(&cloud, "clientSecret", client(&cloud, &[("secret", &*secret)]));
    tokens_arrive(&world, &cloud, &document, &names).await;

    std::fs::write(&secret, "planted-client-secret-that-is-wrong").unwrap();
    let before = cloud.now().await;
    let run = world.start_with(&document).await;
    run.shows(503, "[-]credential-azure failed: ", "invalid_client").await;
    assert!(tokens(&cloud, before, 401).await >= 1);
    std::fs::write(&secret, SECRET).unwrap();
    run.ready().await;
    tells_no_secret(&run);
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_client_certificate_gets_tokens() {
    let (world, cloud, names) = world_and_cloud().await;
    let key = rcgen::KeyPair::from_pem(KEY).unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&key).unwrap();
    knows(&cloud, &json!({"certificates": [certificate.pem()]})).await;
    let (key, certificate) = (cloud.file("key.pem", KEY), cloud.file("certificate.pem", certificate.pem()));
    let proofs = [("certificate", &*certificate), ("key", &*key)];
    tokens_arrive(&world, &cloud, &document(&cloud, "clientCertificate", client(&cloud, &proofs)), &names)
        .await;
}

/// The token is one that the API server issues for Pileus' own service account, as kubelets put it into Pods.
#[tokio::test]
async fn a_workload_identity_gets_tokens_for_the_service_accounts_token() {
    let (world, cloud, names) = world_and_cloud().await;
    let subject = "system:serviceaccount:kube-system:pileus";
    let federated =
        json!([{"issuer": "https://kubernetes.default.svc", "subject": subject, "audience": EXCHANGE}]);
    knows(&cloud, &json!({"federated": federated})).await;
    let accounts = Api::<ServiceAccount>::namespaced(world.client.clone(), "kube-system");
    let spec = TokenRequestSpec { audiences: Some(vec![EXCHANGE.to_owned()]), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let issued = accounts.create_token_request("pileus", &PostParams::default(), &request).await.unwrap();
    let token = cloud.file("azure-identity-token", issued.status.unwrap().token.unwrap());
    let document = document(&cloud, "workloadIdentity", client(&cloud, &[("token", &*token)]));
    tokens_arrive(&world, &cloud, &document, &names).await;
}

#[tokio::test]
async fn a_managed_identity_gets_tokens_of_the_metadata_service() {
    let (world, cloud, names) = world_and_cloud().await;
    knows(&cloud, &json!({})).await;
    let endpoint = format!("{}/metadata/identity/oauth2/token", cloud.simulator.metadata);
    let identity =
        json!({"endpoint": endpoint, "resource": "https://management.core.windows.net/", "clientID": CLIENT});
    tokens_arrive(&world, &cloud, &document(&cloud, "managedIdentity", identity), &names).await;
}
