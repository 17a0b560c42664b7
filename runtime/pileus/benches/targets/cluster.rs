//! A real API server with Nodes, and the start of Pileus with it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use pileus_dev::kubernetes::{Options, User};
use pileus_dev::nodes::{self, Kubelet};
use pileus_dev::{Kubernetes, artifact};
use serde_json::{Value, json};

use crate::Failure;
use crate::cloud::Cloud;
use crate::pileus::{Pileus, cpu, program};

/// For everything that is waited for.
pub(crate) const DEADLINE: Duration = Duration::from_mins(5);
/// Deletions side by side.
const DELETIONS: usize = 32;
/// With so many images a Node weighs 4.9 kB as the API server stores it, as those did that upstream was measured with.
pub(crate) const IMAGES: usize = 19;

/// The cluster that Pileus works in. It ends when this is dropped.
pub(crate) struct Cluster {
    pub(crate) kubernetes: Kubernetes,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts the API server and installs the role that Pileus is shipped with. Then starts Pileus once, which leaves
    /// compiled code behind: all other starts are like a restart.
    pub(crate) async fn start(options: Options) -> Result<Self, Failure> {
        let cluster = Self::without_code(options).await?;
        let pileus = cluster.pileus(&Cloud::start(0).await?)?;
        pileus.says("\"provider loaded\"").await?;
        pileus.stop().await?;
        Ok(cluster)
    }

    /// As [`Cluster::start`], without compiled code.
    pub(crate) async fn without_code(options: Options) -> Result<Self, Failure> {
        let kubernetes = Kubernetes::start_with(options).await?;
        kubernetes.apply_role().await?;
        Ok(Self { kubernetes, folder: tempfile::tempdir()? })
    }

    /// Starts Pileus with the flags of a user who gives none.
    pub(crate) fn pileus(&self, cloud: &Cloud) -> Result<Pileus, Failure> {
        Pileus::start(&self.command(cloud)?)
    }

    /// The command that starts Pileus with a component in a file.
    pub(crate) fn command(&self, cloud: &Cloud) -> Result<Command, Failure> {
        let component = artifact::component("simulated-provider")?;
        self.command_with(&cloud.document(&json!({"file": component}))?)
    }

    /// The command that starts Pileus with this document as its operator's file.
    pub(crate) fn command_with(&self, document: &Value) -> Result<Command, Failure> {
        self.command_of("run", document)
    }

    /// The command that starts the node manager of the Node of this name. It has the central process' permissions.
    pub(crate) fn command_of_node_manager(&self, node: &str, document: &Value) -> Result<Command, Failure> {
        let mut command = self.command_of("node-manager", document)?;
        command.env("NODE_NAME", node);
        Ok(command)
    }

    fn command_of(&self, subcommand: &str, document: &Value) -> Result<Command, Failure> {
        let path = self.folder.path().join("provider.yaml");
        fs::write(&path, document.to_string())?;
        let mut command = self.command_with_folders(subcommand);
        command.arg("--provider").arg(path);
        Ok(command)
    }

    /// The command that starts Pileus with the CloudProviders of the cluster, whose registry and cloud are on this machine.
    pub(crate) fn command_of_resources(&self) -> Command {
        let mut command = self.command_with_folders("run");
        command.arg("--provider-node-access");
        command
    }

    /// The command that starts Pileus, with the folders for components and their code that it always gets here.
    fn command_with_folders(&self, subcommand: &str) -> Command {
        let mut command = Command::new(program());
        command
            .args([subcommand, "--log-format", "json", "--admin-address", "127.0.0.1:0"])
            .arg("--compiled-code")
            .arg(self.folder.path().join("compiled"))
            .arg("--store")
            .arg(self.folder.path().join("store"))
            .env("KUBECONFIG", self.kubernetes.kubeconfig(User::Pileus))
            .env_remove("PILEUS_LOG");
        command
    }

    /// A kubeconfig for Pileus with which it reaches the API server through a port of this machine.
    pub(crate) fn kubeconfig_through(&self, port: u16) -> Result<PathBuf, Failure> {
        let own = fs::read_to_string(self.kubernetes.kubeconfig(User::Pileus))?;
        let path = self.folder.path().join("through.kubeconfig");
        fs::write(&path, own.replace(&format!(":{}", self.port()?), &format!(":{port}")))?;
        Ok(path)
    }

    /// The port that the API server listens at.
    pub(crate) fn port(&self) -> Result<u16, Failure> {
        let own: Value =
            serde_json::from_str(&fs::read_to_string(self.kubernetes.kubeconfig(User::Pileus))?)?;
        let server = own.pointer("/clusters/0/cluster/server").and_then(Value::as_str);
        let port =
            server.and_then(|server| server.rsplit(':').next()).ok_or("no server in the kubeconfig")?;
        Ok(port.parse()?)
    }

    /// Registers Nodes `node-1` to `node-COUNT`, tainted, that weigh what upstream's were measured with.
    pub(crate) async fn register(&self, count: usize) -> Result<Vec<Node>, Failure> {
        let kubelets = (1..=count).map(|number| nodes::node(&format!("node-{number}")).images(IMAGES));
        Ok(nodes::register(&self.kubernetes.admin(), kubelets).await?)
    }

    /// Registers Nodes for all machines of a cloud, with nothing left to do, each changed by `change`.
    pub(crate) async fn settle(&self, cloud: &Cloud, change: fn(Kubelet) -> Kubelet) -> Result<(), Failure> {
        let machines = cloud.machines().await?;
        let kubelets = machines.iter().map(|machine| change(nodes::settled(machine)));
        nodes::register(&self.kubernetes.admin(), kubelets).await?;
        Ok(())
    }

    /// Fails unless so many Nodes have a provider ID and no taint of an uninitialised one, by the API server's word.
    pub(crate) async fn are_initialised(&self, count: usize) -> Result<(), Failure> {
        let nodes = Api::<Node>::all(self.kubernetes.admin()).list(&ListParams::default()).await?;
        let specs = nodes.items.into_iter().filter_map(|node| node.spec);
        let is_initialised = |spec: &NodeSpec| {
            let mut taints = spec.taints.iter().flatten();
            spec.provider_id.is_some() && taints.all(|taint| taint.key != nodes::UNINITIALIZED)
        };
        match specs.filter(is_initialised).count() {
            found if found == count => Ok(()),
            found => Err(format!("{found} of {count} nodes are initialised").into()),
        }
    }

    /// Deletes Nodes `node-1` to `node-COUNT`.
    pub(crate) async fn delete(&self, count: usize) -> Result<(), Failure> {
        let api = Api::<Node>::all(self.kubernetes.admin());
        stream::iter(1..=count)
            .map(|number| {
                let api = api.clone();
                async move { api.delete(&format!("node-{number}"), &DeleteParams::default()).await }
            })
            .buffer_unordered(DELETIONS)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        Ok(())
    }

    /// The processor time of etcd and the API server so far.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        let (etcd, api_server) = self.kubernetes.process_ids();
        [Some(etcd), api_server].into_iter().flatten().map(cpu).sum()
    }
}
