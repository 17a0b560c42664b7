//! The command line: arguments and their types. Nothing here does what a command asks for.

mod admin_server;
mod completion;
mod controllers;
mod duration;
mod inspect;
mod leader_election;
mod node_controllers;
mod node_manager;
mod operate;
mod plan;
mod provider_document;
mod provider_new;
mod provider_test;
mod pull;
mod push;
mod release_deletion;
mod route_controller;
mod run;
mod schema;
mod service_controller;
mod sources;
mod upstream;
mod verify;
mod warm;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::error::Error;
pub use admin_server::AdminServer;
pub use completion::{Completion, Shell};
pub use controllers::{ControllerName, ControllerSelection};
pub(crate) use duration::duration;
pub use inspect::Inspect;
pub use leader_election::LeaderElection;
pub(crate) use leader_election::MAX_LEASE_DURATION;
pub use node_controllers::NodeControllers;
pub use node_manager::NodeManager;
pub use operate::{Access, Order, Rollback, Status, Swap};
pub use plan::Plan;
pub use provider_document::ProviderDocument;
pub use provider_new::ProviderNew;
pub use provider_test::ProviderTest;
pub use pull::Pull;
pub use push::Push;
pub use release_deletion::ReleaseDeletion;
pub use route_controller::RouteController;
pub use run::Run;
pub use schema::Schema;
pub use service_controller::ServiceController;
pub use sources::{ComponentFlags, RegistryFlags, SignatureLayout, SourceFlags, StoreFolder};
#[cfg(test)]
pub(crate) use upstream::TABLE as UPSTREAM_FLAGS;
pub use verify::Verify;
pub use warm::Warm;

/// The exit codes, as every help ends with them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success; run: stopped on request, after the writes in flight had ended, or 25 s; plan: no changes are pending
  1  this machine can't run pileus (a port is in use, or a folder can't be written, for example); or the leader lease was
     lost, and another replica leads; or provider test was stopped
  2  the command line, the CloudProvider document or the kubeconfig is invalid
  3  the component can't be used: it isn't one, implements another version of the contract, or imports an interface that
     the host doesn't offer
  4  the provider rejects its configuration, or fails to describe itself
  5  provider test: the provider violates the contract, or not every check ran and --require-all was passed
  6  release-deletion: a Node is not held; release-deletion and plan: the API server or the cloud doesn't answer or
     refuses, so not everything could be read; a registry doesn't answer, refuses, or lacks the component
  7  plan: changes are pending
  8  the component is not trusted
An API server or a cloud that doesn't answer does not end `pileus run`: it logs the failure and retries.";

/// A cloud-controller-manager whose cloud providers are sandboxed WebAssembly components.
#[derive(Debug, Parser)]
#[command(name = "pileus", version, after_help = EXIT_CODES)]
pub struct Pileus {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Pileus {
    /// Parses a command line.
    ///
    /// # Errors
    /// [`Error::UpstreamFlags`] for flags that only other cloud-controller-managers have, [`Error::CommandLine`] for other
    /// mistakes, and where it asks for help or the version.
    pub fn from_arguments(arguments: &[OsString]) -> Result<Self, Error> {
        Self::try_parse_from(arguments).map_err(|error| {
            let advice = upstream::advice(&error, arguments.iter().filter_map(|argument| argument.to_str()));
            if advice.is_empty() { Error::CommandLine(error) } else { Error::UpstreamFlags(advice) }
        })
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers of a cluster with a provider
    Run(Box<Run>),
    /// Keep the Node of this machine up to date from the machine's metadata service
    NodeManager(Box<NodeManager>),
    /// Preview changes to the cloud without making any
    Plan(Plan),
    /// Show a component's capabilities, imports, exports, requested hosts and request rules
    Inspect(Box<Inspect>),
    /// Show who leads, which releases of providers run and are on their way, and what fails
    Status(Status),
    /// Swap a provider to what its CloudProvider follows now, and accept differences
    Swap(Swap),
    /// Return to the release of a provider that was active before
    Rollback(Rollback),
    /// Begin no swap of a provider
    Pause(Order),
    /// End the pause of a provider's swaps
    Resume(Order),
    /// Push a provider to a registry
    Push(Push),
    /// Fetch a component from a registry, verify it and write it to a file
    Pull(Pull),
    /// Verify who signed a component in a registry
    Verify(Verify),
    /// Fetch, verify and compile a component ahead of a start
    Warm(Warm),
    /// Release held Nodes for deletion
    ReleaseDeletion(ReleaseDeletion),
    /// Print the schema of the CloudProvider document: the CustomResourceDefinition for `kubectl apply`
    Schema(Schema),
    /// Develop a provider
    Provider(Provider),
    /// Print the completion script of a shell
    Completion(Completion),
    /// Compile a component for another pileus process
    #[command(name = COMPILE, hide = true)]
    Compile,
}

/// The name of [`Command::Compile`], for the process that starts it.
pub const COMPILE: &str = "compile-component";

/// The cache of compiled code.
#[derive(Debug, Args)]
pub struct Compiled {
    /// Keep compiled components in this folder, which only this user may write [default: pileus/compiled in the user's
    /// cache folder, if there is one]
    #[arg(long, value_name = "FOLDER", env = "PILEUS_COMPILED_CODE")]
    pub compiled_code: Option<PathBuf>,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line of text for each entry
    Text,
    /// A JSON object for each entry
    Json,
}

/// Arguments of `pileus provider`.
#[derive(Debug, Args)]
pub struct Provider {
    /// The command.
    #[command(subcommand)]
    pub command: ProviderCommand,
}

/// The commands for authors of providers, and for operators who begin with one.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// Write a new provider in Rust that builds and passes its tests
    New(ProviderNew),
    /// Test a provider against the contract
    Test(ProviderTest),
    /// Print a CloudProvider document with what a component asks for
    Document(Box<ProviderDocument>),
}
