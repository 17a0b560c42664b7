//! The command line, and nothing that it does.

mod admin_server;
mod duration;
mod leader_election;
mod node_controllers;
mod plan;
mod route_controller;
mod service_controller;
mod upstream;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pileus_cloud::{Cluster, ProviderId};
use pileus_gate::Grant;

use crate::error::Error;
use crate::provider_test::subject;

pub use admin_server::AdminServer;
pub use leader_election::LeaderElection;
pub use node_controllers::NodeControllers;
pub use plan::Plan;
pub use route_controller::RouteController;
pub use service_controller::ServiceController;

const EXIT_CODES: &str = "\
Exit codes:
  0  stopped because it was asked to, after what was under way had ended
  1  something on this machine failed: a port that is in use, a runtime that does not start; or the leader lease was
     lost, and another replica works on
  2  the command line, the CloudProvider document or the kubeconfig is wrong
  3  the component cannot be used: not one, for another contract, imports what is not offered
  4  the provider refuses its configuration, or failed when it was asked what it is
  5  provider test: a provider breaks a promise of the contract
  6  release-deletion: a node is not held; release-deletion and plan: the API server does not answer or refuses, or
     the cloud, so that not all could be looked at
  7  plan: something would be done, or is not as it should be; 0 says that there is nothing to do
While pileus runs, an API server or a cloud that does not answer is no reason to exit: it says so and tries again.";

/// A cloud-controller-manager whose cloud providers are sandboxed WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "pileus", version, after_help = EXIT_CODES)]
pub struct Pileus {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Pileus {
    /// Reads a command line. Help, the version and what clap itself finds wrong end the process here, with an exit code.
    ///
    /// # Errors
    /// [`Error::UpstreamFlags`] for flags that other cloud-controller-managers have.
    pub fn read(arguments: &[OsString]) -> Result<Self, Error> {
        Self::try_parse_from(arguments).map_err(|refused| {
            let told = upstream::told(&refused, arguments.iter().filter_map(|argument| argument.to_str()));
            if told.is_empty() { refused.exit() } else { Error::UpstreamFlags(told) }
        })
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers against a cluster, with a provider
    Run(Box<Run>),
    /// Say what would be changed in the cloud now, and why, without changing anything
    Plan(Plan),
    /// Say what a component is: what it can do, imports, exports, wishes and means by its requests
    Inspect(Inspect),
    /// Let Nodes be deleted whose machines are gone for good
    ReleaseDeletion(ReleaseDeletion),
    /// For authors of providers
    Provider(Provider),
    /// Be the compiler of another pileus: a component in, code out
    #[command(name = COMPILE, hide = true)]
    Compile,
}

/// What [`Command::Compile`] is called, for whoever starts it.
pub const COMPILE: &str = "compile-component";

/// Arguments of `pileus run`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Run {
    /// The CloudProvider document: which component runs, with which configuration and grants
    #[arg(long, value_name = "FILE.yaml")]
    pub provider: PathBuf,

    /// How to reach the API server; without it the files in KUBECONFIG, else the service account of the Pod that this
    /// runs in
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The cluster's name, which a provider may write on what it creates
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub cluster_name: String,

    /// Where the admin server listens.
    #[command(flatten)]
    pub admin_server: AdminServer,

    /// How to write the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Which lines to log: a level, or levels of parts, as in `info,pileus_gate=debug,provider=trace`. By default the
    /// Kubernetes client is silent, as Pileus itself says what became of each request
    #[arg(long, value_name = "FILTER", default_value = "info,kube_client=off", env = "PILEUS_LOG")]
    pub log_filter: String,

    /// Where compiled code is kept.
    #[command(flatten)]
    pub compiled: Compiled,

    /// Which of several replicas works.
    #[command(flatten)]
    pub leader_election: LeaderElection,

    /// How Nodes are kept.
    #[command(flatten)]
    pub node_controllers: NodeControllers,

    /// How routes are kept.
    #[command(flatten)]
    pub route_controller: RouteController,

    /// How load balancers are kept.
    #[command(flatten)]
    pub service_controller: ServiceController,
}

impl Run {
    /// The cluster as the command line names it. Its UID is the API server's to tell.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { name: self.cluster_name.clone(), uid: None }
    }
}

/// Where compiled code is kept.
#[derive(Debug, Args)]
pub struct Compiled {
    /// A folder for compiled components, which only this user may write; default: pileus/compiled in the user's cache
    /// folder, or none where there is no such folder
    #[arg(long, value_name = "FOLDER", env = "PILEUS_COMPILED_CODE")]
    pub compiled_code: Option<PathBuf>,
}

/// How to write the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object a line
    Json,
}

/// Arguments of `pileus inspect`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Inspect {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    pub component: PathBuf,

    /// A CloudProvider document: shows what the provider wishes with that configuration, and what of it is granted, with
    /// which credentials and under which limits
    #[arg(long, value_name = "FILE.yaml")]
    pub provider: Option<PathBuf>,

    /// Write one JSON object, for machines
    #[arg(long)]
    pub json: bool,

    /// Where compiled code is kept.
    #[command(flatten)]
    pub compiled: Compiled,
}

/// Arguments of `pileus provider`.
#[derive(Debug, Args)]
pub struct Provider {
    /// What to do.
    #[command(subcommand)]
    pub command: ProviderCommand,
}

/// What an author of a provider does with it.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// Hold a component against the promises of the contract, whatever language it was written in
    Test(ProviderTest),
}

const PROVIDER_TEST: &str = "\
Example, with a component, a cloud (or its simulator) on this machine, two machines in it and the provider ID of a third
that was deleted:

  pileus provider test provider.wasm --config '{\"endpoint\": \"http://127.0.0.1:8080\"}' \\
      --grant http://127.0.0.1:8080 --node node-1 --node node-2 --gone mycloud://m-000003

The component runs as it will in a cluster: in its sandbox, behind the gate, with nothing but what is granted. What would
change something doesn't reach the cloud. A check that lacks something is reported as not run, with what to pass, and never
as passed. The checks about a cloud in trouble answer in the cloud's place, so they cost it next to nothing. All of it takes
about a quarter of a minute, most of it waiting for a cloud that doesn't answer.

With --allow-changes it does change something, so use a project, a subscription or an account for tests. It makes, for the
Nodes of --node and for a cluster and Services whose UIDs are random:
  - two load balancers, for the Services pileus-conformance/first (port 80) and pileus-conformance/second (port 443);
  - two routes, to ranges within 198.18.0.0/15, the block for benchmarks, which no network uses in earnest.
It takes them through their lives: made, asked for once more, one changed without the other, led to other Nodes,
deleted, deleted once more, removed as an orphan. Clouds that need minutes for a load balancer get up to ten for each
step. All of it is removed at the end, also after a check has failed and after Ctrl-C or SIGTERM; what could not be
removed is named.";

/// Arguments of `pileus provider test`.
#[derive(Debug, Args)]
#[command(after_help = format!("{PROVIDER_TEST}\n\n{EXIT_CODES}"))]
pub struct ProviderTest {
    /// The component; without it the one that the document of --provider names
    #[arg(value_name = "FILE.wasm", required_unless_present = "provider")]
    pub component: Option<PathBuf>,

    /// A CloudProvider document, with configuration and grants
    #[arg(long, value_name = "FILE.yaml", conflicts_with_all = ["config", "grant"])]
    pub provider: Option<PathBuf>,

    /// The provider's configuration: JSON text that starts with {, or a file of JSON or YAML
    #[arg(long, value_name = "FILE|JSON")]
    pub config: Option<String>,

    /// What it may reach, as in https://api.cloud.example: all methods, and all paths below the one that is given. An
    /// address or localhost opens that address. May be repeated
    #[arg(long, value_name = "URL", value_parser = subject::grant)]
    pub grant: Vec<Grant>,

    /// A Node that the cloud has a machine for, and the provider ID that is expected. May be repeated; two say more
    /// than one
    #[arg(long, value_name = "NAME[=PROVIDER-ID]", value_parser = subject::node)]
    pub node: Vec<(String, Option<ProviderId>)>,

    /// The provider ID of a machine that is gone, or never was
    #[arg(long, value_name = "PROVIDER-ID", value_parser = subject::provider_id)]
    pub gone: Option<ProviderId>,

    /// Make two load balancers and two routes in the cloud, hold the provider against its promises with them, and remove
    /// them again
    #[arg(long)]
    pub allow_changes: bool,

    /// Write one JSON object, for machines
    #[arg(long)]
    pub json: bool,

    /// Which lines to log to standard error, as in `provider=debug` for what the provider itself says
    #[arg(long, value_name = "FILTER", default_value = "off", env = "PILEUS_LOG")]
    pub log_filter: String,

    /// Where compiled code is kept.
    #[command(flatten)]
    pub compiled: Compiled,
}

const RELEASE: &str = "\
When more than a quarter of a provider's nodes, and at least 4, are found to have lost their machines within 10
minutes, pileus deletes none of them: a cloud that lies must not empty a cluster. It holds them, with the condition
pileus.dev/MachineAbsent and an event that says so. Those whose machines come back are let go by themselves. For those
that are gone for good, this command sets the annotation pileus.dev/release-deletion to the node's UID; pileus asks the
cloud once more about each, and deletes it.

Examples:
  kubectl get nodes -o custom-columns='NAME:.metadata.name,HELD:.status.conditions[?(@.type==\"pileus.dev/MachineAbsent\")].status'
  pileus release-deletion node-7 node-8
  pileus release-deletion --all";

/// Arguments of `pileus release-deletion`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES, after_long_help = format!("{RELEASE}\n\n{EXIT_CODES}"))]
pub struct ReleaseDeletion {
    /// The nodes, by name. Nothing is released if one of them is not held
    #[arg(value_name = "NODE", required_unless_present = "all")]
    pub nodes: Vec<String>,

    /// All nodes that are held now
    #[arg(long, conflicts_with = "nodes")]
    pub all: bool,

    /// How to reach the API server; without it the files in KUBECONFIG, else the service account of the Pod that this
    /// runs in
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}
