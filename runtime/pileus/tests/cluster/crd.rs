//! The resource CloudProvider: its schema accepts the documents that the program's reader accepts, and refuses the others.

mod rows;

use std::process::{Command, Output};

use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pileus_dev::Kubernetes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::SOON;
use rows::{Expected, base, documents};

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const PATH: &str = "/apis/pileus.dev/v1alpha1/cloudproviders";

/// An API server that serves the resource.
pub(super) async fn kubernetes() -> Kubernetes {
    let kubernetes = Kubernetes::start().await.unwrap();
    kubernetes.apply(format!("{MANIFESTS}/crd.yaml")).await.unwrap();
    let client = kubernetes.admin();
    let start = Instant::now();
    // A resource is served some moments after its definition is stored. There is nothing to watch before.
    while let Err(error) = request(&client, http::Method::GET, PATH, &Value::Null).await {
        assert!(start.elapsed() < SOON, "{error}");
        sleep(std::time::Duration::from_millis(50)).await;
    }
    kubernetes
}

/// Sends a request, and returns what the API server answers or why it refuses.
async fn request(client: &Client, method: http::Method, path: &str, body: &Value) -> Result<Value, String> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request =
        http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answer = client.request_text(request.body(body).unwrap()).await;
    let answer = answer.map_err(|error| match error {
        kube::Error::Api(status) => status.message,
        other => format!("no answer: {other}"),
    })?;
    Ok(serde_json::from_str(&answer).unwrap())
}

/// Creates a document without storing it, with the strict validation of kubectl.
pub(super) async fn create(client: &Client, document: &Value) -> Result<Value, String> {
    let path = format!("{PATH}?dryRun=All&fieldValidation=Strict");
    request(client, http::Method::POST, &path, document).await
}

/// What the program says about a document in a file.
fn read(document: &Value) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("provider.yaml");
    std::fs::write(&path, document.to_string()).unwrap();
    let pileus = Command::new(env!("CARGO_BIN_EXE_pileus"))
        .args(["inspect", "no-such.wasm", "--provider"])
        .arg(&path)
        .env("PILEUS_COMPILED_CODE", folder.path())
        .output();
    let Output { stderr, .. } = pileus.unwrap();
    let said = String::from_utf8(stderr).unwrap();
    if said.contains("provider.yaml is invalid:") {
        return Err(said);
    }
    assert!(said.contains("no-such.wasm"), "the document was read, and then the component: {said}");
    Ok(())
}

#[tokio::test]
async fn the_api_server_and_the_program_accept_the_same_documents() {
    let kubernetes = kubernetes().await;
    let client = kubernetes.admin();
    let mut wrong = Vec::new();
    for (change, document, expected) in documents() {
        let created = create(&client, &document).await;
        let is_valid = matches!(expected, Expected::Accepted | Expected::NeedsKeyless);
        if created.is_ok() != is_valid {
            wrong.push(format!("{expected:?} by the API server: {change}: {created:?}"));
        }
        let found = read(&document);
        let is_expected = match expected {
            Expected::Accepted | Expected::RefusedInCluster => found.is_ok(),
            Expected::Refused => found.is_err(),
            Expected::NeedsKeyless => match &found {
                Ok(()) => cfg!(feature = "keyless"),
                Err(said) => !cfg!(feature = "keyless") && said.contains("can't verify `identities`"),
            },
        };
        if !is_expected {
            wrong.push(format!("{expected:?} by the program: {change}: {found:?}"));
        }
        // As the API server returns it, with its defaults.
        if let (Ok(created), Expected::Accepted) = (created, expected) {
            let returned = json!({
                "apiVersion": created["apiVersion"], "kind": created["kind"],
                "metadata": {"name": created["metadata"]["name"]}, "spec": created["spec"],
            });
            if let Err(problem) = read(&returned) {
                wrong.push(format!("with the defaults of the API server: {change}: {problem}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_definition_can_be_applied_again_and_unknown_fields_are_refused() {
    let kubernetes = kubernetes().await;
    let client = kubernetes.admin();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cloudproviders.pileus.dev";
    let version = async || {
        let found = request(&client, http::Method::GET, path, &Value::Null).await.unwrap();
        (found["metadata"]["generation"].clone(), found["metadata"]["resourceVersion"].clone())
    };
    let before = version().await;
    kubernetes.apply(format!("{MANIFESTS}/crd.yaml")).await.unwrap();
    assert_eq!(version().await, before);
    let mut document = base();
    document["spec"]["trust"]["unknown"] = json!(1);
    let refusal = create(&client, &document).await.unwrap_err();
    assert!(refusal.contains("unknown field \"spec.trust.unknown\""), "{refusal}");
    document["spec"]["trust"] = json!({});
    let refusal = create(&client, &document).await.unwrap_err();
    assert!(refusal.contains("nothing says whom to trust; add the keys"), "{refusal}");
}

#[test]
fn the_program_prints_the_schema() {
    let print = |arguments: &[&str]| {
        let Output { status, stdout, .. } =
            Command::new(env!("CARGO_BIN_EXE_pileus")).args(arguments).output().unwrap();
        assert!(status.success());
        String::from_utf8(stdout).unwrap()
    };
    assert_eq!(print(&["schema"]), std::fs::read_to_string(format!("{MANIFESTS}/crd.yaml")).unwrap());
    let schema: Value = serde_json::from_str(&print(&["schema", "--file"])).unwrap();
    assert_eq!(schema["properties"]["kind"]["const"], "CloudProvider");
}

/// A status with everything that Pileus can write.
fn status() -> Value {
    let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let since = "2026-01-01T00:00:00.123456789Z";
    let release = json!({"component": digest, "settings": digest});
    let version =
        json!({"release": release, "since": since, "version": "1.2.0", "why": "the spec asks for it"});
    json!({
        "observedGeneration": 1, "lastOrder": 7, "paused": false, "swapNow": since,
        "resolved": {"follow": {"tag": "1.2"}, "component": digest},
        "active": version, "previous": version, "rejected": [version],
        "observing": {
            "since": since,
            "baseline": {"items": 9, "errors": 1, "traps": 0, "throttled": 0, "lookups": 0, "latency": "PT0.25S"},
        },
        "candidate": {
            "release": release, "version": "1.3.0", "since": since, "phase": {"name": "canary", "since": since, "share": 10},
            "differences": {"lookups": 1, "writes": 0, "shown": ["node a"]}, "accepted": false,
        },
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "ServesCalls", "message": "", "lastTransitionTime": since,
            "observedGeneration": 1,
        }],
        "lastError": {"message": "the registry is away", "since": since},
    })
}

#[tokio::test]
async fn a_status_is_stored_whole_and_shown_in_columns() {
    let kubernetes = kubernetes().await;
    let client = kubernetes.admin();
    request(&client, http::Method::POST, &format!("{PATH}?fieldValidation=Strict"), &base()).await.unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("pileus.dev", "v1alpha1", "CloudProvider"));
    let api = kube::Api::<DynamicObject>::all_with(client.clone(), &resource);
    let mut phases = vec![json!({"name": "canary", "since": "2026-01-01T00:00:00Z", "share": 10})];
    phases.extend(["preparing", "dryRun", "held", "waiting"].map(|name| json!({"name": name})));
    for phase in phases {
        let mut status = status();
        status["candidate"]["phase"] = phase;
        let patch = json!({
            "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "metadata": {"name": "cloud"}, "status": status,
        });
        let stored = api
            .patch_status("cloud", &PatchParams::apply("pileus").force(), &Patch::Apply(patch))
            .await
            .unwrap();
        assert_eq!(stored.data["status"], status, "nothing is pruned");
    }
    let table = Command::new(kubernetes.kubectl())
        .arg("--kubeconfig")
        .arg(kubernetes.kubeconfig(pileus_dev::kubernetes::User::Admin))
        .args(["get", "cloudproviders"])
        .output()
        .unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    let heads: Vec<_> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(heads, ["NAME", "REFERENCE", "VERSION", "DIGEST", "READY", "AGE"], "{table}");
    let row: Vec<_> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!((row[0], row[1]), ("cloud", "registry.example.com/pileus/cloud:1.2"), "{table}");
    assert!(table.contains("sha256:e3b0c44298fc") && table.contains("True"), "{table}");
}

#[tokio::test]
async fn the_manifests_can_be_applied() {
    let kubernetes = kubernetes().await;
    kubernetes.apply_role().await.unwrap();
    kubernetes.apply(format!("{MANIFESTS}/pileus.yaml")).await.unwrap();
    kubernetes.apply(format!("{MANIFESTS}/node-manager.yaml")).await.unwrap();
    let client = kubernetes.admin();
    let path = "/apis/apps/v1/namespaces/kube-system/daemonsets/pileus-node-manager";
    let node_manager = request(&client, http::Method::GET, path, &Value::Null).await.unwrap();
    assert!(is_admitted(&client, "node-manager", &node_manager["spec"]["template"]["spec"]).await);
    let path = "/apis/apps/v1/namespaces/kube-system/deployments/pileus";
    let deployment = request(&client, http::Method::GET, path, &Value::Null).await.unwrap();
    let pod = deployment["spec"]["template"]["spec"].clone();
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(
        (&pod["securityContext"]["runAsNonRoot"], &pod["serviceAccountName"]),
        (&json!(true), &json!("pileus"))
    );
    // Otherwise a claim's folders are writable by the group after each start, and the store is refused.
    assert_eq!(pod["securityContext"]["fsGroupChangePolicy"], "OnRootMismatch");
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], json!(true));
    assert_eq!(
        (&security["allowPrivilegeEscalation"], &security["capabilities"]),
        (&json!(false), &json!({"drop": ["ALL"]}))
    );
    assert!(container["livenessProbe"].is_object() && container["readinessProbe"].is_object());
    assert!(is_admitted(&client, "pileus", &pod).await);
}

/// Whether a Pod is admitted, apart from the network of its node, where Pods have to be as restricted as possible.
async fn is_admitted(client: &Client, name: &str, pod: &Value) -> bool {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    });
    request(client, http::Method::POST, "/api/v1/namespaces", &namespace).await.unwrap();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod});
    pod["spec"]["serviceAccountName"] = json!("default");
    pod["spec"]["serviceAccount"] = json!("default");
    pod["spec"]["hostNetwork"] = json!(false);
    for probe in ["livenessProbe", "readinessProbe"] {
        pod["spec"]["containers"][0][probe]["httpGet"].as_object_mut().unwrap().remove("host");
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let path = format!("/api/v1/namespaces/{name}/serviceaccounts");
    request(client, http::Method::POST, &path, &account).await.unwrap();
    let path = format!("/api/v1/namespaces/{name}/pods?dryRun=All");
    let admitted = request(client, http::Method::POST, &path, &pod).await;
    admitted.inspect_err(|refusal| eprintln!("{name}: {refusal}")).is_ok()
}
