//! A real Kubernetes API server with its etcd, on free loopback ports, in a folder of its own.
//!
//! Admission, RBAC, watches, conflicts and finalizers are real. There are no kubelets and no controllers: a test writes
//! Nodes itself ([`crate::nodes`]), and a taint `not-ready` stays, for example, because no controller removes it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{Api, Client, api::ListParams};
use tokio::time::{self, Instant};

use crate::{Error, Process};

mod access;
mod audit;
mod folder;
mod port;
mod programs;
mod site;

pub use access::User;
pub use audit::Request;
use programs::Programs;
pub(crate) use programs::kwok;
use site::Site;

/// How long a start may take. An API server is ready after 3 s on an idle machine with two cores; tests start many at once.
const START: Duration = Duration::from_mins(5);
/// How long the API server may take to finish its requests when it is stopped.
const GRACE: Duration = Duration::from_secs(10);
/// How often a start is tried. Ports are found before they are used, so another process can take one in between.
const ATTEMPTS: usize = 3;

/// Options of the API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether it writes an audit log with one JSON line for each request and its outcome. [`Kubernetes::requests`]
    /// reads it, and [`Kubernetes::audit_log`] is its path.
    pub audit: bool,
}

/// A running etcd and API server. Dropping it ends both and removes their folder.
#[must_use = "the API server ends when this is dropped"]
pub struct Kubernetes {
    // Fields are dropped in this order: each before what it uses.
    api_server: Option<Process>,
    /// None only while its data are replaced.
    etcd: Option<Process>,
    site: Site,
    admin: Client,
}

impl Kubernetes {
    /// Starts etcd and an API server, and waits until it is ready and has its system namespaces.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(Options::default()).await
    }

    /// The same as [`Kubernetes::start`], with options.
    pub async fn start_with(options: Options) -> Result<Self, Error> {
        // A program may be linked with two libraries for cryptography, and rustls then needs to know which one to use. An
        // error means that it already knows.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let programs = Programs::find().await?;
        let mut attempt = 1;
        loop {
            match Self::attempt(Site::new(programs.clone(), options)?).await {
                Err(Error::Process { log, .. })
                    if attempt < ATTEMPTS && log.contains("address already in use") =>
                {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt(site: Site) -> Result<Self, Error> {
        let etcd = start_etcd(&site).await?;
        let (api_server, admin) = start_api_server(&site).await?;
        Ok(Self { api_server: Some(api_server), etcd: Some(etcd), site, admin })
    }

    /// Copies all data to a folder, for [`Kubernetes::restore`]. The API server and etcd are stopped meanwhile.
    pub async fn back_up(&mut self, folder: &Path) -> Result<(), Error> {
        let data = self.site.etcd_data();
        self.without_etcd(async |_| copy(&data, folder)).await
    }

    /// Goes back to the data of a backup, as an operator does after a loss: resource versions go back, too.
    pub async fn restore(&mut self, folder: &Path) -> Result<(), Error> {
        let data = self.site.etcd_data();
        self.without_etcd(async |_| {
            fs::remove_dir_all(&data).map_err(Error::file(&data))?;
            copy(folder, &data)
        })
        .await
    }

    /// As [`Kubernetes::restore`], in the way that etcd's documentation recommends for Kubernetes: resource versions are raised by a
    /// billion, and watches from before fail.
    pub async fn restore_raised(&mut self, folder: &Path) -> Result<(), Error> {
        let data = self.site.etcd_data();
        self.without_etcd(async |site| {
            fs::remove_dir_all(&data).map_err(Error::file(&data))?;
            let mut etcdutl = tokio::process::Command::new(&site.programs.etcdutl);
            etcdutl.args(["snapshot", "restore"]).arg(folder.join("member/snap/db"));
            etcdutl.arg("--data-dir").arg(&data);
            // The snapshot is the file of a stopped etcd, which has no checksum.
            etcdutl.args(["--skip-hash-check", "--bump-revision", "1000000000", "--mark-compacted"]);
            succeed("etcdutl", &format!("did not restore {}", folder.display()), etcdutl).await
        })
        .await
    }

    async fn without_etcd(
        &mut self,
        work: impl AsyncFnOnce(&Site) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.stop_api_server().await?;
        if let Some(etcd) = self.etcd.take() {
            etcd.stop(GRACE).await?;
        }
        work(&self.site).await?;
        self.etcd = Some(start_etcd(&self.site).await?);
        self.start_api_server().await
    }

    /// Restarts the API server after [`Kubernetes::stop_api_server`], at the same address and with the same data, and
    /// waits until it is ready. Does nothing while it runs.
    pub async fn start_api_server(&mut self) -> Result<(), Error> {
        if self.api_server.is_none() {
            let (api_server, _) = start_api_server(&self.site).await?;
            self.api_server = Some(api_server);
        }
        Ok(())
    }

    /// Stops the API server as an upgrade does: it finishes its requests and closes all watches. Its data stay.
    pub async fn stop_api_server(&mut self) -> Result<(), Error> {
        if let Some(api_server) = self.api_server.take() {
            api_server.stop(GRACE).await?;
        }
        Ok(())
    }

    /// A client with all permissions.
    pub fn admin(&self) -> Client {
        self.admin.clone()
    }

    /// A new client with its own connections and the permissions of `user`.
    pub async fn client(&self, user: User) -> Result<Client, Error> {
        access::client(&self.kubeconfig(user)).await
    }

    /// The kubeconfig of `user`, valid for as long as this lives.
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        access::kubeconfig(self.site.folder(), user)
    }

    /// Applies `deploy/rbac.yaml`, which gives [`User::Pileus`] its permissions, and waits until they are effective.
    pub async fn apply_role(&self) -> Result<(), Error> {
        self.apply(concat!(env!("CARGO_MANIFEST_DIR"), "/../rbac.yaml")).await?;
        // The API server reads new roles through a watch, some milliseconds later.
        let nodes: Api<Node> = Api::all(self.client(User::Pileus).await?);
        let start = Instant::now();
        while let Err(error) = nodes.list(&ListParams::default().limit(1)).await {
            if start.elapsed() > START {
                return Err(Error::api("list nodes with the permissions of deploy/rbac.yaml")(error));
            }
            time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Applies a file of manifests with `kubectl apply -f`, as an operator does.
    pub async fn apply(&self, manifests: impl AsRef<Path>) -> Result<(), Error> {
        let mut kubectl = tokio::process::Command::new(&self.site.programs.kubectl);
        kubectl
            .arg("--kubeconfig")
            .arg(self.kubeconfig(User::Admin))
            .args(["apply", "-f"])
            .arg(manifests.as_ref());
        succeed("kubectl", &format!("did not apply {}", manifests.as_ref().display()), kubectl).await
    }

    /// The path of the audit log, if [`Options::audit`] is set: one JSON document a line.
    pub fn audit_log(&self) -> PathBuf {
        self.site.audit_log()
    }

    /// All requests that the API server has answered so far, if [`Options::audit`] is set.
    pub fn requests(&self) -> Result<Vec<Request>, Error> {
        audit::read(&self.audit_log())
    }

    /// Copies the logs of etcd and the API server to a folder, as `etcd.log` and `kube-apiserver.log`.
    pub fn copy_logs(&self, folder: &Path) -> Result<(), Error> {
        let etcd = self.etcd.as_ref();
        etcd.map_or(Ok(()), |it| it.copy_log(&folder.join("etcd.log")))?;
        let api_server = self.api_server.as_ref();
        api_server.map_or(Ok(()), |it| it.copy_log(&folder.join("kube-apiserver.log")))
    }

    /// The path of kubectl, in a version that supports the API server.
    pub fn kubectl(&self) -> &Path {
        &self.site.programs.kubectl
    }

    /// The process IDs of etcd and, while it runs, the API server, for measuring their resource usage.
    pub fn process_ids(&self) -> (u32, Option<u32>) {
        (self.etcd.as_ref().map_or(0, Process::id), self.api_server.as_ref().map(Process::id))
    }
}

async fn start_etcd(site: &Site) -> Result<Process, Error> {
    let etcd = Process::start("etcd", &site.etcd())?;
    etcd.await_line(|line| line.contains("ready to serve client requests"), START).await?;
    Ok(etcd)
}

/// Runs a program to its end. `problem` says what it did not do where it fails.
async fn succeed(name: &str, problem: &str, mut command: tokio::process::Command) -> Result<(), Error> {
    let failed = |log: String| Error::Process { name: name.to_owned(), problem: problem.to_owned(), log };
    let output = command.output().await.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::file(to))?;
    for entry in fs::read_dir(from).map_err(Error::file(from))? {
        let path = entry.map_err(Error::file(from))?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(Error::file(&path))?;
        }
    }
    Ok(())
}

/// Starts an API server and polls until it is ready.
async fn start_api_server(site: &Site) -> Result<(Process, Client), Error> {
    let mut api_server = Process::start("kube-apiserver", &site.api_server())?;
    let start = Instant::now();
    loop {
        let error = match ready_client(site).await {
            Ok(admin) => return Ok((api_server, admin)),
            Err(error) => error,
        };
        if api_server.ended().is_some() {
            return Err(api_server.failed("ended early"));
        }
        if start.elapsed() > START {
            return Err(api_server.failed(&format!("not ready within {START:?} ({error})")));
        }
        time::sleep(Duration::from_millis(50)).await;
    }
}

/// A client of an API server that is ready and has its system namespaces, which it creates just after it is ready.
async fn ready_client(site: &Site) -> Result<Client, Error> {
    let client = access::client(&access::kubeconfig(site.folder(), User::Admin)).await?;
    let request = http::Request::get("/readyz").body(Vec::new());
    let request = request.map_err(|error| Error::api("GET /readyz")(kube::Error::HttpError(error)))?;
    client.request_text(request).await.map_err(Error::api("GET /readyz"))?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.get("kube-system").await.map_err(Error::api("namespace kube-system"))?;
    Ok(client)
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::file(path))
}
