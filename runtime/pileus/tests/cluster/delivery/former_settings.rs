//! The settings of releases that the status names: who may write only the status can't add any, and a replica that never saw
//! the document of a former release runs it nevertheless.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Config;
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use pileus_loader::Digest;

use super::*;

/// A user who may patch the status of CloudProviders, and nothing else.
const STATUS_WRITER: &str = "status-writer";

impl Delivery {
    /// The resources with the rights of [`STATUS_WRITER`].
    async fn api_of_status_writer(&self) -> Api<DynamicObject> {
        let metadata = json!({"name": STATUS_WRITER});
        let role = json!({"metadata": metadata, "rules": [
            {"apiGroups": ["pileus.dev"], "resources": ["cloudproviders/status"], "verbs": ["patch"]},
        ]});
        let binding = json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": STATUS_WRITER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": STATUS_WRITER}],
        });
        let (client, parameters) = (&self.world.client, PostParams::default());
        let role: ClusterRole = serde_json::from_value(role).unwrap();
        Api::all(client.clone()).create(&parameters, &role).await.unwrap();
        let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
        Api::all(client.clone()).create(&parameters, &binding).await.unwrap();
        let mut admin = Kubeconfig::read_from(self.world.kubernetes.kubeconfig(User::Admin)).unwrap();
        for named in &mut admin.auth_infos {
            named.auth_info.as_mut().unwrap().impersonate = Some(STATUS_WRITER.to_owned());
        }
        let config = Config::from_custom_kubeconfig(admin, &KubeConfigOptions::default()).await.unwrap();
        let kind = GroupVersionKind::gvk("pileus.dev", "v1alpha1", "CloudProvider");
        Api::all_with(Client::try_from(config).unwrap(), &ApiResource::from_gvk(&kind))
    }

    /// The names of the objects with settings.
    async fn revisions(&self) -> Vec<String> {
        let api: Api<ControllerRevision> = Api::namespaced(self.world.client.clone(), "kube-system");
        let all = api.list(&ListParams::default()).await.unwrap().items;
        all.iter().map(kube::ResourceExt::name_any).collect()
    }

    /// Waits until there are so many objects with settings.
    async fn keeps(&self, count: usize) {
        let start = Instant::now();
        while self.revisions().await.len() != count {
            assert!(start.elapsed() < SOON, "{:?}", self.revisions().await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Patches the status, as soon as the API server knows the rights.
async fn patch(api: &Api<DynamicObject>, status: Value) {
    let start = Instant::now();
    let patch = Patch::Merge(json!({"status": status}));
    while let Err(error) = api.patch_status(NAME, &PatchParams::default(), &patch).await {
        let is_refused = matches!(&error, kube::Error::Api(status) if status.code == 403);
        assert!(is_refused && start.elapsed() < SOON, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_writer_of_the_status_alone_chooses_neither_component_nor_settings() {
    let delivery = Delivery::new().await;
    let good = delivery.release("good", "stable").await;
    delivery.apply(delivery.spec("nothing")).await;
    let leader = delivery.world.start_with_resources("leader").await;
    leader.leads().await;
    let standby = delivery.world.start_with_resources("standby").await;
    delivery.active(&good).await;
    delivery.initialised(&["a", "b"]).await;
    standby.logged(&["release serves calls"]).await;
    let release = delivery.active(&good).await["active"]["release"].clone();
    let kept = delivery.revisions().await;
    assert_eq!(kept.len(), 1, "{kept:?}");

    // A component of their own, settings that trust it, and settings that are known.
    let image = format!("{}/elsewhere/unruly", delivery.registry.host);
    let said = delivery
        .pileus(&["push", delivery.component("planted").to_str().unwrap(), &format!("{image}:1")])
        .await;
    let planted = said.stdout.trim().rsplit_once('@').unwrap().1.to_owned();
    let mut spec = delivery.spec("nothing");
    spec["source"] = json!({"image": image});
    spec["trust"] = json!({"insecure": true});
    spec.as_object_mut().unwrap().remove("swap");
    spec.sort_all_objects();
    let settings = Digest::of(spec.to_string().as_bytes()).to_string();
    let active = |settings: &Value| {
        let release = json!({"component": planted, "settings": settings});
        json!({"release": release, "since": "2026-01-01T00:00:00Z", "why": "planted"})
    };
    let api = delivery.api_of_status_writer().await;
    for status in [
        json!({"active": active(&json!(settings)), "settings": [{"digest": settings, "spec": spec}]}),
        json!({"active": active(&release["settings"])}),
        json!({"observedGeneration": 1_000}),
        json!({"active": null, "candidate": null, "conditions": null}),
    ] {
        patch(&api, status.clone()).await;
        let is_restored = |found: &Value| {
            found["active"]["release"] == release
                && found["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty())
        };
        delivery.until(&format!("after {status}"), is_restored).await;
    }
    // A generation that never comes counts as the present one, and goes with the next status that is written.
    delivery.until("written back", |found| found["observedGeneration"] == 1).await;
    assert_eq!(delivery.revisions().await, kept);
    delivery.world.cloud.create(json!({"name": "c"})).await;
    delivery.world.register([node("c")]).await;
    delivery.initialised(&["c"]).await;
    for replica in [&leader, &standby] {
        assert!(replica.is_well().await);
        let log = replica.log();
        let served: Vec<_> = log.iter().filter(|line| line.contains("release serves calls")).collect();
        assert!(!served.is_empty() && served.iter().all(|line| line.contains(&good)), "{served:#?}");
    }
    leader.logged(&["changed by another hand", "provider=unruly"]).await;
    assert!(standby.stop().await.success());
    assert!(leader.stop().await.success());
}

#[tokio::test]
async fn a_replica_that_never_saw_the_former_document_returns_to_it() {
    let delivery = Delivery::new().await;
    // Nothing signs it: the digest in the image alone makes it trusted, also among the settings that are kept.
    let digest = delivery.push("only", "stable").await;
    let mut pinned = delivery.spec("nothing");
    pinned["source"]["image"] = json!(format!("{}/providers/unruly@{digest}", delivery.registry.host));
    pinned.as_object_mut().unwrap().remove("trust");
    delivery.apply(pinned.clone()).await;
    let run = delivery.world.start_with_resources("first").await;
    let former = delivery.active(&digest).await["active"]["release"]["settings"].clone();
    delivery.initialised(&["a", "b"]).await;
    let mut limited = pinned.clone();
    limited["limits"] = json!({"all": {"burst": 100, "perSecond": 50, "match": {}}});
    delivery.apply(limited).await;
    let is_new = |status: &Value| {
        let is_other = status["active"]["release"]["settings"] != former;
        is_other && status["previous"]["release"]["settings"] == former
    };
    delivery.until("the new settings", is_new).await;
    delivery.keeps(2).await;
    run.kill();

    let run = delivery.world.start_with_resources("second").await;
    run.leads().await;
    let said = delivery.operate("rollback").await;
    assert_eq!(said.code, Some(0), "{said:?}");
    delivery.until("rolled back", |status| status["active"]["release"]["settings"] == former).await;
    // The settings that are rejected are named no more.
    delivery.keeps(1).await;
    delivery.world.cloud.create(json!({"name": "c"})).await;
    delivery.world.register([node("c")]).await;
    delivery.initialised(&["c"]).await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_document_that_can_not_be_used_is_said_in_the_status_and_the_former_settings_stay() {
    let delivery = Delivery::new().await;
    let digest = delivery.release("only", "stable").await;
    delivery.apply(delivery.spec("nothing")).await;
    let run = delivery.world.start_with_resources("first").await;
    let release = delivery.active(&digest).await["active"]["release"].clone();
    delivery.initialised(&["a", "b"]).await;
    let mut wrong = delivery.spec("nothing");
    wrong["credentials"] = json!([{"name": "a", "hosts": ["127.0.0.1"], "plain": true, "bearer": {"token": {"file": "/etc/shadow"}}}]);
    delivery.apply(wrong).await;
    let is_said = |status: &Value| {
        let (degraded, why) = condition(status, "Degraded");
        degraded == "True"
            && why.starts_with("the spec is invalid and not in use: spec.credentials[0].bearer.token.file: ")
    };
    let status = delivery.until("the problem", is_said).await;
    assert_eq!((&status["observedGeneration"], &status["active"]["release"]), (&json!(1), &release));
    run.kill();

    // A replica that has never seen the former document.
    let run = delivery.world.start_with_resources("second").await;
    run.leads().await;
    run.logged(&["release serves calls", &digest]).await;
    delivery.world.cloud.create(json!({"name": "c"})).await;
    delivery.world.register([node("c")]).await;
    delivery.initialised(&["c"]).await;
    let status = delivery.until("the problem", is_said).await;
    assert_eq!((&status["observedGeneration"], &status["active"]["release"]), (&json!(1), &release));
    delivery.apply(delivery.spec("nothing")).await;
    let is_well =
        |status: &Value| condition(status, "Degraded").0 == "False" && status["observedGeneration"] == 3;
    let status = delivery.until("the former spec again", is_well).await;
    assert_eq!(status["active"]["release"], release);
    assert!(run.stop().await.success());
}
