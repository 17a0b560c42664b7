//! A provider from a registry: builds of one component that differ in their bytes, and the resource that names one of them.

use std::fs;

use kube::api::{ApiResource, GroupVersionKind, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use pileus_dev::artifact;
use pileus_dev::registry::RealRegistry;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Duration, Instant, sleep};

use crate::Failure;
use crate::cloud::{Cloud, PROVIDER};
use crate::cluster::{Cluster, DEADLINE};
use crate::pileus::program;

/// The definition of the resource, which a cluster has to have first.
const DEFINITION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crd.yaml");

/// A registry with builds of the simulated provider. It ends when this is dropped.
pub(crate) struct Image {
    registry: RealRegistry,
    folder: TempDir,
}

impl Image {
    /// Starts a registry without any build.
    pub(crate) fn start() -> Result<Self, Failure> {
        Ok(Self { registry: RealRegistry::start(), folder: tempfile::tempdir()? })
    }

    /// The host and port of the registry.
    pub(crate) fn host(&self) -> &str {
        &self.registry.host
    }

    /// Ends the registry: connections to it are refused from now on.
    pub(crate) fn stop(&mut self) {
        self.registry.stop();
    }

    /// Pushes a build with its number as tag, and returns the digest of its manifest.
    pub(crate) async fn push(&self, build: usize) -> Result<String, Failure> {
        let component = self.folder.path().join("component.wasm");
        fs::write(&component, bytes(build)?)?;
        let reference = self.reference(build);
        let mut command = tokio::process::Command::new(program());
        command.arg("push").arg(component).arg(&reference).env("HOME", self.folder.path());
        let said = command.output().await?;
        let out = String::from_utf8_lossy(&said.stdout);
        let digest = out.trim().rsplit_once('@').filter(|_| said.status.success());
        let failed = || format!("{reference} not pushed: {}", String::from_utf8_lossy(&said.stderr));
        Ok(digest.ok_or_else(failed)?.1.to_owned())
    }

    /// The document of a provider that runs a build, and tries each new one on a half of the lookups for a second.
    pub(crate) fn document(&self, cloud: &Cloud, build: usize) -> Result<Value, Failure> {
        let mut document = cloud.document(&json!({"image": self.reference(build)}))?;
        let more = json!({
            "trust": {"insecure": true},
            "swap": {"canary": {"share": 50, "duration": "1s"}, "observe": "1s"},
        });
        if let (Some(Value::Object(spec)), Value::Object(more)) = (document.get_mut("spec"), more) {
            spec.extend(more);
        }
        Ok(document)
    }

    fn reference(&self, build: usize) -> String {
        format!("{}/providers/simulated:{build}", self.registry.host)
    }
}

/// The bytes of a build, which differ from those of all others.
pub(crate) fn bytes(build: usize) -> Result<Vec<u8>, Failure> {
    Ok(artifact::rebuilt("simulated-provider", &format!("build-{build}"))?)
}

/// The resources of a cluster.
pub(crate) fn resources(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("pileus.dev", "v1alpha1", "CloudProvider");
    Api::all_with(client, &ApiResource::from_gvk(&kind))
}

/// Defines the resource in a cluster.
pub(crate) async fn define(cluster: &Cluster) -> Result<(), Failure> {
    Ok(cluster.kubernetes.apply(DEFINITION).await?)
}

/// Applies a document, as an operator does.
pub(crate) async fn apply(cluster: &Cluster, document: &Value) -> Result<(), Failure> {
    let resources = resources(cluster.kubernetes.admin());
    let params = PatchParams::apply("bench").force();
    let started = Instant::now();
    // A resource is served some moments after its definition is stored.
    while let Err(error) = resources.patch(PROVIDER, &params, &Patch::Apply(document)).await {
        if started.elapsed() > DEADLINE {
            return Err(error.into());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
