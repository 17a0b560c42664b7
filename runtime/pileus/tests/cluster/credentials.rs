//! Credentials in a Kubernetes Secret or a file are read, replaced and lost while Pileus runs. The cloud accepts only
//! requests with a valid token.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use pileus_dev::nodes::node;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::history::History;
use crate::world::{Run, World};

/// What may be in no log.
const PLANTED: [&str; 2] = ["planted-token-1", "planted-token-2"];

/// Lets the cloud know no token but this.
async fn knows(world: &World, token: &str) {
    world.cloud.set_credentials(json!({"clientID": "pileus", "tokens": [token]})).await;
}

/// The document with this bearer token for the cloud.
fn document(world: &World, token: &Value) -> Value {
    let mut document = world.simulated(world.cloud.port);
    document["spec"]["credentials"] =
        json!([{"name": "main", "hosts": ["127.0.0.1"], "plain": true, "bearer": {"token": token}}]);
    document
}

fn secrets(world: &World) -> Api<Secret> {
    Api::namespaced(world.client.clone(), "kube-system")
}

/// Gives Pileus the right to a Secret that `deploy/rbac.yaml` keeps ready behind a `#`.
pub(crate) async fn grant_secret(world: &World) {
    let shipped =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml")).unwrap();
    let (_, about) =
        shipped.split_once("# Uncomment this only if the CloudProvider document refers to a Secret").unwrap();
    let (_, kept) = about.split_once("\n#---\n").unwrap();
    let role: Vec<_> = kept.lines().map(|line| line.strip_prefix('#').unwrap()).collect();
    let file = TempDir::new().unwrap();
    let path = file.path().join("role.yaml");
    std::fs::write(&path, role.join("\n")).unwrap();
    world.kubernetes.apply(&path).await.unwrap();
}

/// Lets a Node join, and waits until it is initialised, which needs the cloud.
async fn initialised(world: &World, history: &mut History, name: Option<String>) {
    let name = name.unwrap();
    world.register([node(&name)]).await;
    history.initialised(&[name]).await;
}

/// That no line of the log holds a planted value, nor a token that the cloud gave out.
fn tells_no_secret(run: &Run) {
    let is_secret = |line: &String| line.contains("planted-token") || line.contains("simulated-token");
    assert_eq!(run.log().into_iter().find(is_secret), None);
}

#[tokio::test]
async fn a_token_in_a_secret_needs_one_permission_and_may_change_at_any_time() {
    let world = World::new().await;
    let mut history = world.history().await;
    // While the cloud still takes the test's own requests.
    let mut names = world.cloud.create_many(3).await.into_iter();
    knows(&world, PLANTED[0]).await;
    let token = json!({"secret": {"name": "cloud", "key": "token"}});
    let run = world.start_with(&document(&world, &token)).await;
    let right = "rule {apiGroups: [\"\"], resources: [secrets], resourceNames: [cloud], verbs: [get]}";
    run.shows(503, "[-]credential-main failed: ", right).await;
    let event = world.event("simulated", "CredentialFailed").await;
    assert_eq!(event.involved_object.kind.as_deref(), Some("CloudProvider"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.message.unwrap().contains("key token of Secret kube-system/cloud"));

    let secret = |key: &str, value: &str| -> Secret {
        serde_json::from_value(json!({"metadata": {"name": "cloud"}, "stringData": {key: value}})).unwrap()
    };
    secrets(&world).create(&PostParams::default(), &secret("tokn", PLANTED[0])).await.unwrap();
    grant_secret(&world).await;
    run.shows(503, "[-]credential-main failed: ", "does not have this key; it has tokn").await;
    let set = async |value: &str| {
        let change = Patch::Merge(json!({"stringData": {"token": value}}));
        secrets(&world).patch("cloud", &PatchParams::default(), &change).await.unwrap();
    };
    set(PLANTED[0]).await;
    run.shows(200, "[+]credential-main ok", "").await;
    world.event("simulated", "CredentialRestored").await;
    initialised(&world, &mut history, names.next()).await;

    knows(&world, PLANTED[1]).await;
    set(PLANTED[1]).await;
    initialised(&world, &mut history, names.next()).await;

    secrets(&world).delete("cloud", &DeleteParams::default()).await.unwrap();
    run.shows(200, "[+]credential-main ok: bearer can't be acquired since ", "stays in use").await;
    initialised(&world, &mut history, names.next()).await;
    tells_no_secret(&run);
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn after_its_file_is_deleted_a_token_is_used_until_it_expires() {
    let world = World::new().await;
    let mut history = world.history().await;
    // While the cloud still takes the test's own requests.
    let mut names = world.cloud.create_many(3).await.into_iter();
    let folder = TempDir::new().unwrap();
    let secret: PathBuf = folder.path().join("secret");
    std::fs::write(&secret, PLANTED[0]).unwrap();
    let credentials = json!({"clientID": "pileus", "secret": PLANTED[0], "expiresInSeconds": 30});
    world.cloud.set_credentials(credentials).await;
    let mut document = world.simulated(world.cloud.port);
    let token_url = format!("http://127.0.0.1:{}/oauth2/token", world.cloud.port);
    document["spec"]["credentials"] = json!([{
        "name": "main", "hosts": ["127.0.0.1"], "plain": true, "addresses": ["127.0.0.1"],
        "clientSecret": {"tokenURL": token_url, "clientID": "pileus", "scope": "all", "secret": {"file": secret}},
    }]);
    let run = world.start_with(&document).await;
    run.ready().await;
    std::fs::remove_file(&secret).unwrap();
    // It is renewed after three quarters of its life at the latest.
    run.shows(200, "[+]credential-main ok: clientSecret can't be acquired since ", "is valid until ").await;
    let event = world.event("simulated", "CredentialFailed").await;
    assert!(event.message.unwrap().contains(secret.to_str().unwrap()));
    initialised(&world, &mut history, names.next()).await;
    run.shows(503, "[-]credential-main failed: ", "requests to its hosts fail").await;

    std::fs::write(&secret, PLANTED[0]).unwrap();
    run.shows(200, "[+]credential-main ok", "").await;
    world.event("simulated", "CredentialRestored").await;
    initialised(&world, &mut history, names.next()).await;
    tells_no_secret(&run);
    assert!(run.stop().await.success());
}
