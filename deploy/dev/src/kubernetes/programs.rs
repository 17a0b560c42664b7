//! Where etcd, kube-apiserver and kubectl are. The script that builds them knows; asking it keeps the rules in one
//! place, at 20 ms.

use std::path::PathBuf;

use tokio::process::Command;

use crate::Error;

const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kubernetes/build");

/// The paths of the programs.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) api_server: PathBuf,
    pub(super) etcd: PathBuf,
    pub(super) kubectl: PathBuf,
}

impl Programs {
    /// Finds all of them, of the right versions, without building anything.
    pub(super) async fn find() -> Result<Self, Error> {
        let output = Command::new(BUILD).arg("--find").output().await.map_err(Error::file(BUILD))?;
        let paths = String::from_utf8_lossy(&output.stdout);
        match paths.lines().map(PathBuf::from).collect::<Vec<_>>().as_slice() {
            [api_server, etcd, kubectl] => {
                Ok(Self { api_server: api_server.clone(), etcd: etcd.clone(), kubectl: kubectl.clone() })
            }
            _ => Err(Error::KubernetesMissing {
                detail: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            }),
        }
    }
}
