//! Providers from a registry: named by a resource of the cluster, fetched, verified, swapped while Pileus runs, and rolled back.
//! Registry, cosign and API server are the real ones.

mod bad_releases;
mod former_settings;
mod interruptions;
mod registry_faults;
mod revocation;

use std::path::PathBuf;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use pileus_dev::artifact;
use pileus_dev::kubernetes::User;
use pileus_dev::nodes::{await_node, node};
use pileus_dev::registry::{RealRegistry, key_pair, oras, sign};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::node::is_uninitialised;
use crate::world::{Run, Said, World};
use crate::{SOON, service};

const CRD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crd.yaml");
const NAME: &str = "unruly";

/// A cluster with the resource definition, a cloud, and a registry.
struct Delivery {
    world: World,
    registry: RealRegistry,
    folder: TempDir,
    /// The private key of cosign, and the public one as a document has it.
    key: (String, String),
}

impl Delivery {
    async fn new() -> Self {
        let mut world = World::new().await;
        world.kubernetes.apply(CRD).await.unwrap();
        // Nodes that aren't ready are looked up again and again, so that a release is measured.
        world.flags = vec!["--node-monitor-period", "1s"];
        let folder = TempDir::new().unwrap();
        let key = key_pair(folder.path(), "release");
        for name in ["a", "b"] {
            world.cloud.create(json!({"name": name})).await;
        }
        world.register([node("a"), node("b")]).await;
        Self { world, registry: RealRegistry::start(), folder, key }
    }

    /// One in which a release runs, which breaks no promise, and has initialised two nodes. Returns its digests, too.
    async fn running() -> (Self, Run, Value) {
        let delivery = Self::new().await;
        let digest = delivery.release("only", "stable").await;
        delivery.apply(delivery.spec("nothing")).await;
        let run = delivery.world.start_with_resources("store").await;
        let release = delivery.active(&digest).await["active"]["release"].clone();
        delivery.initialised(&["a", "b"]).await;
        (delivery, run, release)
    }

    fn image(&self, tag: &str) -> String {
        format!("{}/providers/unruly:{tag}", self.registry.host)
    }

    /// The reference of what was pushed by its digest.
    fn pinned(&self, digest: &str) -> String {
        format!("{}/providers/unruly@{digest}", self.registry.host)
    }

    /// The component with a mark that makes its digest another one.
    fn component(&self, mark: &str) -> PathBuf {
        self.changed_component(mark, |_| {})
    }

    /// As [`Delivery::component`], with other bytes.
    fn changed_component(&self, mark: &str, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
        let mut bytes = artifact::rebuilt("unruly-provider", mark).unwrap();
        change(&mut bytes);
        let path = self.folder.path().join(format!("{mark}.wasm"));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Pushes a component by Pileus itself, and returns the digest of its manifest.
    async fn push(&self, mark: &str, tag: &str) -> String {
        let component = self.component(mark);
        let said = self.pileus(&["push", component.to_str().unwrap(), &self.image(tag)]).await;
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout.trim().rsplit_once('@').unwrap().1.to_owned()
    }

    /// Pushes a file of the folder by oras, which accepts all bytes, signs it, and returns its digest.
    fn release_file(&self, name: &str, tag: &str) -> String {
        let image = self.image(tag);
        let types = ["--disable-path-validation", "--plain-http"];
        let layer = format!("{name}:application/wasm");
        oras(self.folder.path(), &[&["push"], &types[..], &[&image, &layer]].concat());
        let digest = oras(self.folder.path(), &["resolve", "--plain-http", &image]).trim().to_owned();
        self.sign(&digest);
        digest
    }

    /// As [`Delivery::push`], signed by cosign.
    async fn release(&self, mark: &str, tag: &str) -> String {
        let digest = self.push(mark, tag).await;
        self.sign(&digest);
        digest
    }

    /// Signs what was pushed by cosign.
    fn sign(&self, digest: &str) {
        sign(self.folder.path(), &self.key.0, &self.pinned(digest), &[]);
    }

    /// Runs a command of Pileus as a user does.
    async fn pileus(&self, arguments: &[&str]) -> Said {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_pileus"));
        command.args(arguments).env("XDG_CACHE_HOME", self.folder.path()).env("HOME", self.folder.path());
        Said::by(command, SOON).await
    }

    /// Runs an operator's command on the provider.
    async fn operate(&self, command: &str) -> Said {
        let kubeconfig = self.world.kubernetes.kubeconfig(User::Admin);
        self.pileus(&[command, NAME, "--kubeconfig", kubeconfig.to_str().unwrap()]).await
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("pileus.dev", "v1alpha1", "CloudProvider");
        let client: Client = self.world.kubernetes.admin();
        Api::all_with(client, &ApiResource::from_gvk(&kind))
    }

    /// Applies the resource as `kubectl apply --server-side` does.
    async fn apply(&self, spec: Value) {
        self.apply_as(NAME, spec).await;
    }

    /// As [`Delivery::apply`], for a provider of this name.
    async fn apply_as(&self, name: &str, spec: Value) {
        let document = json!({
            "apiVersion": "pileus.dev/v1alpha1", "kind": "CloudProvider", "metadata": {"name": name}, "spec": spec,
        });
        let start = Instant::now();
        // A resource is served some moments after its definition is stored.
        while let Err(error) =
            self.api().patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&document)).await
        {
            assert!(start.elapsed() < SOON, "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A spec that follows a tag, for the provider that breaks this promise.
    fn spec(&self, breaks: &str) -> Value {
        let port = self.world.cloud.port;
        json!({
            "source": {"image": self.image("stable"), "interval": "10s"},
            "trust": {"keys": [{"name": "release", "key": self.key.1}]},
            "swap": {"canary": {"share": 50, "duration": "2s"}, "observe": "10m"},
            "configuration": {"endpoint": format!("http://127.0.0.1:{port}"), "breaks": breaks},
            "grants": [{"host": "127.0.0.1", "port": port, "tls": false, "addresses": ["127.0.0.1"]}],
        })
    }

    /// Waits until the status is so, and returns it.
    async fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        self.until_of(NAME, what, is_so).await
    }

    /// As [`Delivery::until`], for a provider of this name.
    async fn until_of(&self, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let status = self.api().get(name).await.unwrap().data["status"].clone();
            if is_so(&status) {
                return status;
            }
            assert!(start.elapsed() < SOON, "{what}: {status:#}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until the component with this digest is active.
    async fn active(&self, digest: &str) -> Value {
        self.until("active", |status| status["active"]["release"]["component"] == digest).await
    }

    /// Registers nodes that aren't ready, so that they are looked up each second.
    async fn register_silent(&self) {
        let names = self.create_machines("silent").await;
        self.world.register(names.iter().map(|name| node(name).not_ready())).await;
        self.initialised(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }

    /// Creates so many machines that their lookups are a sample. Returns their names.
    async fn create_machines(&self, prefix: &str) -> Vec<String> {
        let names: Vec<_> = (0..30).map(|number| format!("{prefix}-{number}")).collect();
        for name in &names {
            self.world.cloud.create(json!({"name": name})).await;
        }
        names
    }

    async fn initialised(&self, names: &[&str]) {
        for name in names {
            await_node(&self.world.client, name, |node| !is_uninitialised(node), SOON).await.unwrap();
        }
    }
}

/// Whether a release is rejected.
fn is_rejected(status: &Value) -> bool {
    status["rejected"].as_array().is_some_and(|rejected| !rejected.is_empty())
}

/// The status of a condition, and its message.
fn condition<'a>(status: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    let found = all.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null);
    (found["status"].as_str().unwrap_or_default(), found["message"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_tag_that_moves_is_followed_by_all_replicas_and_rolled_back_by_an_order() {
    let delivery = Delivery::new().await;
    let first = delivery.release("first", "stable").await;
    delivery.apply(delivery.spec("nothing")).await;
    let leader = delivery.world.start_with_resources("leader").await;
    leader.leads().await;
    let standby = delivery.world.start_with_resources("standby").await;
    let status = delivery.active(&first).await;
    delivery.initialised(&["a", "b"]).await;
    assert_eq!(status["active"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        condition(
            &delivery.until("ready", |status| condition(status, "Ready").0 == "True").await,
            "Degraded"
        )
        .0,
        "False"
    );
    standby.logged(&["release serves calls"]).await;
    let nodes = delivery.world.nodes().await;

    let second = delivery.release("second", "stable").await;
    let status = delivery.active(&second).await;
    assert_eq!(status["previous"]["release"]["component"], first);
    standby.logged(&["release serves calls", &second]).await;
    assert_eq!(delivery.world.nodes().await, nodes, "no node notices");

    // A replica that takes over continues with what the status says.
    leader.kill();
    standby.leads().await;
    let said = delivery.operate("rollback").await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let status = delivery.active(&first).await;
    assert_eq!(status["rejected"][0]["release"]["component"], second);
    let said = delivery.operate("status").await;
    assert!(
        said.stdout.contains("rejected") && said.stdout.contains("rolled back by the operator"),
        "{said:?}"
    );
    let again = delivery.operate("rollback").await;
    assert_eq!(again.code, Some(6), "{again:?}");
    assert!(again.stderr.contains("can't roll back: there is no previous release"), "{again:?}");
    standby.logged(&["release serves calls", &first]).await;
    delivery.world.cloud.create(json!({"name": "c"})).await;
    delivery.world.register([node("c")]).await;
    delivery.initialised(&["c"]).await;
    assert!(standby.stop().await.success());
}

#[tokio::test]
async fn what_is_not_trusted_or_not_a_provider_never_runs() {
    let mut delivery = Delivery::new().await;
    let good = delivery.release("good", "stable").await;
    delivery.apply(delivery.spec("nothing")).await;
    let run = delivery.world.start_with_resources("store").await;
    delivery.active(&good).await;
    delivery.initialised(&["a", "b"]).await;

    // It may be signed later, so it is looked at again. Until then it is a candidate.
    let unsigned = delivery.push("unsigned", "stable").await;
    let is_distrusted = |status: &Value| {
        let is_candidate = status["candidate"]["release"]["component"] == unsigned;
        is_candidate && condition(status, "Verified").1.contains("is not trusted: it has no signature")
    };
    let status = delivery.until("not trusted", is_distrusted).await;
    assert_eq!((condition(&status, "Verified").0, condition(&status, "Degraded").0), ("False", "True"));
    let rejects = |digest: String| {
        move |status: &Value| {
            let rejected = status["rejected"].as_array().into_iter().flatten();
            rejected.into_iter().any(|version| version["release"]["component"] == digest)
        }
    };

    std::fs::write(delivery.folder.path().join("text.wasm"), "no component").unwrap();
    let digest = delivery.release_file("text.wasm", "stable");
    let status = delivery.until("rejected", rejects(digest)).await;
    assert_eq!(status["active"]["release"]["component"], good);
    let event = delivery.world.event(NAME, "ProviderRejected").await;
    assert!(event.message.unwrap().contains("is not a component"));
    assert_eq!(
        event.involved_object.uid,
        delivery.api().get(NAME).await.unwrap().metadata.uid,
        "as kubectl describe"
    );
    assert!(run.is_well().await);

    // Without the registry, what ran keeps running, and a start needs the store alone.
    delivery.registry.stop();
    assert!(run.stop().await.success());
    let run = delivery.world.start_with_resources("store").await;
    run.logged(&["release serves calls"]).await;
    delivery.world.cloud.create(json!({"name": "c"})).await;
    delivery.world.register([node("c")]).await;
    delivery.initialised(&["c"]).await;
    delivery.until("the error is shown", |status| condition(status, "Degraded").0 == "True").await;
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_release_that_does_worse_is_rolled_back_and_one_that_differs_is_held() {
    let (delivery, run, release) = Delivery::running().await;
    let settings = release["settings"].clone();

    // It answers otherwise in the dry run.
    delivery.apply(delivery.spec("forgets-by-id")).await;
    let status = delivery.until("held", |status| status["candidate"]["phase"]["name"] == "held").await;
    assert_eq!(
        (&status["candidate"]["differences"]["lookups"], &status["active"]["release"]["settings"]),
        (&json!(2), &settings)
    );
    let (degraded, why) = condition(&status, "Degraded");
    assert!(degraded == "True" && why.contains("order a swap to accept this"), "{why}");

    // It traps only where the cloud fails, which no dry run shows.
    delivery.register_silent().await;
    delivery.apply(delivery.spec("traps-in-trouble")).await;
    delivery
        .until("active", |status| {
            let active = &status["active"]["release"]["settings"];
            *active != settings && status["candidate"].is_null() && !status["observing"].is_null()
        })
        .await;
    delivery.world.cloud.set_faults(json!({"errors": {"share": 1, "status": 500}})).await;
    let status =
        delivery.until("rolled back", |status| status["active"]["release"]["settings"] == settings).await;
    let why = status["active"]["why"].as_str().unwrap();
    assert!(why.contains("rolled back: ") && why.contains("lookups and changes trapped"), "{why}");
    delivery.world.cloud.set_faults(json!({})).await;
    assert!(delivery.world.event(NAME, "ProviderRolledBack").await.message.unwrap().contains("trapped"));
    assert_eq!(delivery.world.nodes().await.len(), 32, "no node is deleted");
    assert!(run.is_well().await);
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn two_providers_serve_their_own_nodes_and_one_that_claims_the_same_is_refused() {
    let (delivery, run, _) = Delivery::running().await;

    // Another provider with the same scheme, and the same Services and nodes.
    let component = artifact::component("simulated-provider").unwrap();
    let image = format!("{}/providers/simulated:1", delivery.registry.host);
    let said = delivery.pileus(&["push", component.to_str().unwrap(), &image]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let port = delivery.world.cloud.port;
    let spec = |more: Value| {
        let mut spec = json!({
            "source": {"image": image},
            "trust": {"insecure": true},
            "configuration": {"endpoint": format!("http://127.0.0.1:{port}")},
            "grants": [{"host": "127.0.0.1", "port": port, "tls": false, "addresses": ["127.0.0.1"]}],
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    delivery.apply_as("second", spec(json!({}))).await;
    run.shows(
        503,
        "[-]claims:second failed: ",
        "provider second is refused, because the older provider unruly",
    )
    .await;
    let why = "provider second is refused, because the older provider unruly";
    let says_so = |status: &Value| {
        condition(status, "Ready").0 == "False" && condition(status, "Ready").1.starts_with(why)
    };
    delivery.until_of("second", "refused", says_so).await;
    assert!(delivery.world.event("second", "ProviderRefused").await.message.unwrap().starts_with(why));
    let own = json!({"default": false, "nodeSelector": {"matchLabels": {"cloud": "second"}}});
    delivery.apply_as("second", spec(own)).await;
    run.ready().await;
    delivery.until_of("second", "ready", |status| condition(status, "Ready").0 == "True").await;
    delivery.world.cloud.create(json!({"name": "c"})).await;
    delivery.world.cloud.create(json!({"name": "d"})).await;
    delivery.world.register([node("c").label("cloud", "second"), node("d")]).await;
    delivery.initialised(&["c", "d"]).await;
    let nodes = delivery.world.nodes().await;
    let scheme = |name: &str| {
        let node = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name)).unwrap();
        let id = node.spec.as_ref().unwrap().provider_id.clone().unwrap();
        id.split_once(':').unwrap().0.to_owned()
    };
    assert_eq!(["a", "b", "c", "d"].map(scheme), ["unruly", "unruly", "simulated", "unruly"]);

    // The second one goes, and nothing of the first one changes.
    delivery.api().delete("second", &DeleteParams::default()).await.unwrap();
    run.logged(&["the provider has no document any more", "provider=second"]).await;
    assert!(run.is_well().await);
    assert_eq!(delivery.world.nodes().await.len(), nodes.len());
    assert!(run.stop().await.success());
}

#[tokio::test]
async fn a_release_that_does_not_fit_or_wants_writes_is_stopped_before_the_switch() {
    let (delivery, run, active) = Delivery::running().await;

    // Another component, which asks for a host that the document doesn't grant any more.
    delivery.release("next", "next").await;
    let mut spec = delivery.spec("nothing");
    spec["source"]["image"] = json!(delivery.image("next"));
    spec["grants"] = json!([]);
    delivery.apply(spec).await;
    let status = delivery.until("rejected", is_rejected).await;
    let why = status["rejected"][0]["why"].as_str().unwrap();
    assert!(
        why.contains("it requests http://127.0.0.1:") && why.contains("which spec.grants does not allow"),
        "{why}"
    );

    // Another provider, which doesn't know the nodes' provider IDs.
    let image = format!("{}/providers/other:1", delivery.registry.host);
    let component = artifact::component("simulated-provider").unwrap();
    let said = delivery.pileus(&["push", component.to_str().unwrap(), &image]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut spec = delivery.spec("nothing");
    spec["source"]["image"] = json!(image);
    spec["trust"] = json!({"insecure": true});
    spec["configuration"].as_object_mut().unwrap().remove("breaks");
    delivery.apply(spec).await;
    let fits =
        |status: &Value| !status["rejected"][0]["why"].as_str().unwrap_or_default().contains("scheme unruly");
    let status = delivery.until("rejected", |status| is_rejected(status) && !fits(status)).await;
    assert_eq!(status["active"]["release"], active);

    // It would write what is settled already.
    delivery.apply(delivery.spec("nothing")).await;
    service::create(&delivery.world, "web", json!({"ports": [{"port": 80}]})).await;
    delivery.world.event("web", "EnsuredLoadBalancer").await;
    let writes = delivery.world.cloud.writes().await;
    delivery.apply(delivery.spec("always-writes")).await;
    let status = delivery.until("held", |status| status["candidate"]["phase"]["name"] == "held").await;
    let differences = &status["candidate"]["differences"];
    assert_eq!((&differences["lookups"], &differences["writes"]), (&json!(0), &json!(1)), "{differences:#}");
    assert!(
        differences["shown"][0].as_str().unwrap().contains("load balancer default/web"),
        "{differences:#}"
    );
    assert_eq!((delivery.world.cloud.writes().await, &status["active"]["release"]), (writes, &active));
    assert!(run.stop().await.success());
}
