//! The paths of etcd, etcdutl, kube-apiserver, kubectl and kwok. The script that builds them also finds them, which takes 20 ms and
//! keeps the rules in one place.

use std::path::PathBuf;

use tokio::process::Command;

use crate::Error;

const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kubernetes/build");

/// The paths of the programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) api_server: PathBuf,
    pub(super) etcd: PathBuf,
    pub(super) etcdutl: PathBuf,
    pub(super) kubectl: PathBuf,
}

impl Programs {
    /// Finds all of them in the right versions, without building anything.
    pub(super) async fn find() -> Result<Self, Error> {
        let [api_server, etcd, etcdutl, kubectl] = find(&[]).await?;
        Ok(Self { api_server, etcd, etcdutl, kubectl })
    }
}

/// Finds kwok, which only the bench needs.
pub(crate) async fn kwok() -> Result<PathBuf, Error> {
    let [_, _, _, _, kwok] = find(&["--with", "kwok"]).await?;
    Ok(kwok)
}

async fn find<const N: usize>(arguments: &[&str]) -> Result<[PathBuf; N], Error> {
    let output = Command::new(BUILD).arg("--find").args(arguments).output().await;
    let output = output.map_err(Error::file(BUILD))?;
    let paths = String::from_utf8_lossy(&output.stdout);
    let paths: Vec<_> = paths.lines().map(PathBuf::from).collect();
    paths.try_into().map_err(|_| Error::KubernetesMissing {
        detail: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        command: [&["deploy/dev/kubernetes/build"], arguments].concat().join(" "),
    })
}
