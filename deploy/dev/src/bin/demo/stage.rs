//! The environment of the demo: a cluster, a cloud, and a folder for documents and logs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use pileus_dev::kubernetes::User;
use pileus_dev::registry::RealRegistry;
use pileus_dev::{Error, Kubernetes, artifact};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::Instant;

use crate::cloud::Cloud;
use crate::document::Document;
use crate::inspection::Inspection;
use crate::pileus::{Options, Pileus};

/// Everything that runs besides Pileus. Dropping it ends all processes and removes all folders.
pub(crate) struct Stage {
    // Dropped in this order.
    pub(crate) cloud: Cloud,
    pub(crate) kubernetes: Kubernetes,
    registry: RealRegistry,
    /// A client with all rights.
    pub(crate) admin: Client,
    folder: TempDir,
    /// The time until the API server was ready.
    pub(crate) kubernetes_took: Duration,
}

impl Stage {
    /// Starts the cluster, the cloud and a registry, and applies `deploy/rbac.yaml`.
    pub(crate) async fn set_up() -> Result<Self, Error> {
        let temporary = std::env::temp_dir();
        let folder = TempDir::with_prefix_in("pileus-demo-", &temporary)
            .map_err(|source| Error::File { path: temporary, source })?;
        let begun = Instant::now();
        let log = folder.path().join("simulated-cloud.log");
        let (kubernetes, cloud) = tokio::try_join!(Kubernetes::start(), Cloud::start(&log))?;
        let kubernetes_took = begun.elapsed();
        kubernetes.copy_logs(folder.path())?;
        kubernetes.apply_role().await?;
        let admin = kubernetes.admin();
        Ok(Self { cloud, kubernetes, registry: RealRegistry::start(), admin, folder, kubernetes_took })
    }

    /// The folder of documents and logs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file to the folder and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<String, Error> {
        let path = self.folder().join(name);
        fs::write(&path, text).map_err(|source| Error::File { path: path.clone(), source })?;
        Ok(path.display().to_string())
    }

    /// The log file of the Pileus of this name.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder().join(format!("pileus-{name}.log"))
    }

    /// Starts Pileus with the rights of its service account.
    pub(crate) async fn pileus(&self, document: Document<'_>, flags: &[&str]) -> Result<Pileus, Error> {
        self.replica(document.name, document, flags).await
    }

    /// Starts Pileus as one of several replicas, with a name of its own.
    pub(crate) async fn replica(
        &self,
        name: &str,
        document: Document<'_>,
        flags: &[&str],
    ) -> Result<Pileus, Error> {
        self.start(name, Some(&document.write(self.folder())?), flags).await
    }

    /// Starts Pileus with the CloudProvider resources of the cluster.
    pub(crate) async fn pileus_of_resources(&self, name: &str, flags: &[&str]) -> Result<Pileus, Error> {
        self.start(name, None, flags).await
    }

    async fn start(&self, name: &str, document: Option<&Path>, flags: &[&str]) -> Result<Pileus, Error> {
        let options = Options {
            document,
            kubeconfig: &self.kubernetes.kubeconfig(User::Pileus),
            compiled: &self.compiled(),
            store: &self.folder().join("store"),
            log: &self.log(name),
            flags,
        };
        Pileus::start(name, options).await
    }

    /// The reference of an image in the registry of the demo.
    pub(crate) fn image(&self, tag: &str) -> String {
        format!("{}/simulated:{tag}", self.registry.host)
    }

    /// Pushes a component to the registry by `pileus push`.
    pub(crate) async fn push(&self, component: &Path, tag: &str) -> Result<(), Error> {
        let mut command = command("push")?;
        command.arg(component).arg(self.image(tag));
        output("pileus push", &mut command).await.map(drop)
    }

    /// Runs `pileus inspect` with a document and its component.
    pub(crate) async fn inspect(&self, document: Document<'_>) -> Result<Inspection, Error> {
        let mut command = command("inspect")?;
        command.arg(artifact::component(document.package)?);
        command.arg("--provider").arg(document.write(self.folder())?);
        command.arg("--compiled-code").arg(self.compiled()).arg("--json");
        let text = output("pileus inspect", &mut command).await?;
        let inspection = serde_json::from_str(&text).ok().and_then(|document| Inspection::read(&document));
        inspection.ok_or_else(|| failed("pileus inspect", "has printed what the demo can't read", text))
    }

    /// Runs `pileus release-deletion` for a Node and returns its output.
    pub(crate) async fn release(&self, node: &str) -> Result<String, Error> {
        let mut command = command("release-deletion")?;
        command.arg(node).arg("--kubeconfig").arg(self.kubernetes.kubeconfig(User::Admin));
        output("pileus release-deletion", &mut command).await
    }

    /// Runs kubectl with all rights and returns its output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut command = Command::new(self.kubernetes.kubectl());
        command.arg("--kubeconfig").arg(self.kubernetes.kubeconfig(User::Admin)).args(arguments);
        output("kubectl", command.kill_on_drop(true)).await
    }

    /// Whether RBAC allows Pileus this, by a review with its own credentials.
    pub(crate) async fn pileus_may(&self, verb: &str, resource: &str) -> Result<bool, Error> {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.kubernetes.client(User::Pileus).await?);
        let resource_attributes = Some(ResourceAttributes {
            verb: Some(verb.to_owned()),
            resource: Some(resource.to_owned()),
            ..ResourceAttributes::default()
        });
        let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let review = reviews.create(&PostParams::default(), &review).await;
        let failed = |source| Error::Api {
            action: format!("review whether Pileus may {verb} {resource}"),
            source: Box::new(source),
        };
        Ok(review.map_err(failed)?.status.is_some_and(|status| status.allowed))
    }

    fn compiled(&self) -> PathBuf {
        self.folder().join("compiled")
    }
}

fn command(subcommand: &str) -> Result<Command, Error> {
    let mut command = Command::new(artifact::program("pileus")?);
    command.arg(subcommand).env("NO_COLOR", "1").kill_on_drop(true);
    Ok(command)
}

/// Runs a command to its end and returns its output.
async fn output(name: &str, command: &mut Command) -> Result<String, Error> {
    let output = command.output().await.map_err(|error| failed(name, "not started", error.to_string()))?;
    if !output.status.success() {
        return Err(failed(name, "failed", String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn failed(name: &str, problem: &str, log: String) -> Error {
    Error::Process { name: name.to_owned(), problem: problem.to_owned(), log }
}
