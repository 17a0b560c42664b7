//! What the demo runs on: a cluster, a cloud, a folder, and who is to blame when something doesn't come about.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use pileus_dev::kubernetes::User;
use pileus_dev::{Error, Kubernetes, artifact};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::Instant;

use crate::cloud::Cloud;
use crate::document::Document;
use crate::pileus::{Pileus, Setting};

/// Everything that runs besides Pileus. Dropping it ends it all and removes its folders.
pub(crate) struct Stage {
    // Dropped in this order.
    pub(crate) cloud: Cloud,
    pub(crate) kubernetes: Kubernetes,
    /// A client with all rights.
    pub(crate) admin: Client,
    folder: TempDir,
    /// How long the API server took until it was ready.
    pub(crate) kubernetes_took: Duration,
}

impl Stage {
    /// Starts cluster and cloud, and applies Pileus' role.
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
        Ok(Self { cloud, kubernetes, admin, folder, kubernetes_took })
    }

    /// Where documents and logs are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the Pileus of this name keeps its log.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder().join(format!("pileus-{name}.log"))
    }

    /// Starts Pileus under its role, with this provider.
    pub(crate) async fn pileus(&self, document: Document<'_>, flags: &[&str]) -> Result<Pileus, Error> {
        self.replica(document.name, document, flags).await
    }

    /// The same as one of several, with a name of its own.
    pub(crate) async fn replica(
        &self,
        name: &str,
        document: Document<'_>,
        flags: &[&str],
    ) -> Result<Pileus, Error> {
        let setting = Setting {
            document: &document.write(self.folder())?,
            kubeconfig: &self.kubernetes.kubeconfig(User::Pileus),
            compiled: &self.compiled(),
            log: &self.log(name),
            flags,
        };
        Pileus::start(name, setting).await
    }

    /// What `pileus inspect` says about a document's component: pairs of a name and what stands beside it.
    pub(crate) async fn inspect(&self, document: Document<'_>) -> Result<Vec<(String, String)>, Error> {
        let mut command = command("inspect")?;
        command.arg(artifact::component(document.package)?);
        command.arg("--provider").arg(document.write(self.folder())?);
        command.arg("--compiled-code").arg(self.compiled());
        Ok(pairs(&output("pileus inspect", &mut command).await?))
    }

    /// What `pileus release-deletion` says when an operator lets a Node go.
    pub(crate) async fn release(&self, node: &str) -> Result<String, Error> {
        let mut command = command("release-deletion")?;
        command.arg(node).arg("--kubeconfig").arg(self.kubernetes.kubeconfig(User::Admin));
        output("pileus release-deletion", &mut command).await
    }

    /// What kubectl says to this, with all rights.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut command = Command::new(self.kubernetes.kubectl());
        command.arg("--kubeconfig").arg(self.kubernetes.kubeconfig(User::Admin)).args(arguments);
        output("kubectl", command.kill_on_drop(true)).await
    }

    /// Whether Pileus may do this to that, asked with its own credentials.
    pub(crate) async fn pileus_may(&self, verb: &str, resource: &str) -> Result<bool, Error> {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.kubernetes.client(User::Pileus).await?);
        let resource_attributes = Some(ResourceAttributes {
            verb: Some(verb.to_owned()),
            resource: Some(resource.to_owned()),
            ..ResourceAttributes::default()
        });
        let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let failed = |source| Error::Api {
            action: format!("no answer to whether pileus may {verb} {resource}"),
            source: Box::new(source),
        };
        Ok(answer.map_err(failed)?.status.is_some_and(|status| status.allowed))
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

/// Runs a command to its end: what it said.
async fn output(name: &str, command: &mut Command) -> Result<String, Error> {
    let failed = |problem: &str, log: String| Error::Process {
        name: name.to_owned(),
        problem: problem.to_owned(),
        log,
    };
    let output = command.output().await.map_err(|error| failed("not started", error.to_string()))?;
    if !output.status.success() {
        return Err(failed("failed", String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The lines of `pileus inspect` below its title: a name in 18 columns, or none where the one above goes on.
fn pairs(report: &str) -> Vec<(String, String)> {
    let lines = report.lines().skip(1).filter_map(|line| line.strip_prefix("  "));
    let pair = |line: &str| {
        let (name, value) = line.split_at_checked(18)?;
        Some((name.trim().to_owned(), value.to_owned()))
    };
    lines.filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_taken_apart_by_its_columns() {
        let report = "a.wasm\n  digest            sha256:00\n  exports           a\n                    b\n";
        let expected = [("digest", "sha256:00"), ("exports", "a"), ("", "b")];
        assert_eq!(pairs(report), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
