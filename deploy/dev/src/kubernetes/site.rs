//! The folder and ports of one stack, and the command lines that follow from them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{Options, access, audit, folder::Folder, port, programs::Programs, write};
use crate::Error;

/// The folder and ports of a stack. Dropping it removes the folder.
pub(super) struct Site {
    pub(super) programs: Programs,
    options: Options,
    folder: Folder,
    etcd_port: u16,
    peer_port: u16,
    port: u16,
}

impl Site {
    /// Creates the folder with all files that the API server reads, and finds free ports.
    pub(super) fn new(programs: Programs, options: Options) -> Result<Self, Error> {
        let folder = Folder::new()?;
        let [etcd_port, peer_port, port] = [port::free()?, port::free()?, port::free()?];
        let site = Self { programs, options, folder, etcd_port, peer_port, port };
        access::issue(site.folder(), port)?;
        write(&site.audit_policy(), audit::POLICY)?;
        Ok(site)
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.folder().join("audit.log")
    }

    pub(super) fn etcd_data(&self) -> PathBuf {
        self.folder().join("etcd")
    }

    pub(super) fn etcd(&self) -> Command {
        let [own, peer] = [self.etcd_port, self.peer_port].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(&self.programs.etcd);
        command
            .arg("--data-dir")
            .arg(self.etcd_data())
            // Test data needn't survive a power failure, and a sync can take 20 ms.
            .arg("--unsafe-no-fsync")
            .args([
                "--listen-client-urls",
                &own,
                "--advertise-client-urls",
                &own,
                "--listen-peer-urls",
                &peer,
            ]);
        command
    }

    pub(super) fn api_server(&self) -> Command {
        let mut command = Command::new(&self.programs.api_server);
        command
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
            .arg(format!("--secure-port={}", self.port))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            // No client uses the API server's own Endpoints, which can't have a loopback address anyway.
            .arg("--endpoint-reconciler-type=none")
            .args(["--authorization-mode=RBAC", "--service-cluster-ip-range=172.31.0.0/16"])
            .args(access::flags(self.folder()));
        if self.options.audit {
            command
                .arg(format!("--audit-policy-file={}", self.audit_policy().display()))
                .arg(format!("--audit-log-path={}", self.audit_log().display()));
        }
        command
    }

    fn audit_policy(&self) -> PathBuf {
        self.folder().join("audit-policy.json")
    }
}
