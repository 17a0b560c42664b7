//! Errors that end the program, with their exit codes.

mod source;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use pileus_gate::Problem;

use source::source_code;

/// Why the program ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine can't run the program.
    #[error("this machine can't run pileus: {0}")]
    Machine(std::io::Error),
    /// The admin server can't listen.
    #[error("can't listen on {address}: {source}; choose another --{flag}")]
    Admin {
        /// The flag with the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The value of a flag is invalid.
    #[error("--{flag} {value:?}: {problem}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The command line is invalid, or asks for help or the version.
    #[error("{}", .0.render().to_string().trim_end())]
    CommandLine(clap::Error),
    /// The command line has flags of other cloud-controller-managers; each with advice.
    #[error("Pileus doesn't have these flags:{}\nsee `pileus run --help` for its flags", list(.0))]
    UpstreamFlags(Vec<String>),
    /// The document can't be read.
    #[error("can't read the CloudProvider document {}: {source}", path.display())]
    DocumentUnreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The document is invalid.
    #[error("the CloudProvider document {} is invalid:{}", path.display(), Problem::list(problems))]
    Document {
        /// The file.
        path: PathBuf,
        /// All its problems.
        problems: Vec<Problem>,
    },
    /// There is no usable configuration for the API server.
    #[error("{0}; pass --kubeconfig FILE, or run in a Pod with a service account")]
    Kubeconfig(String),
    /// The proxy to the API server can't be used.
    #[error("can't use the proxy to the API server: {0}")]
    Proxy(String),
    /// The command line names no CloudProvider that exists.
    #[error("{0}")]
    NoSuchProvider(String),
    /// The operator's order was not carried out.
    #[error("provider {provider}: {why}")]
    NotCarriedOut {
        /// The CloudProvider.
        provider: String,
        /// Why.
        why: String,
    },
    /// Nodes to release are not held.
    #[error("no node was released:{}\nsee `kubectl describe node NAME` for the condition pileus.dev/MachineAbsent of held nodes", list(.0))]
    NotHeld(Vec<String>),
    /// A request to the API server failed.
    #[error("can't {what}: {source}{}", if matches!(source, pileus_controllers::Error::Unavailable(_)) { UNREACHED } else { "" })]
    Cluster {
        /// What the request should do.
        what: String,
        /// Why it failed.
        source: pileus_controllers::Error,
    },
    /// The leader lease is lost; another replica leads, or will.
    #[error("the leader lease is lost: {0}; restart to stand by")]
    LeaseLost(String),
    /// The component or its provider can't be used.
    #[error("provider {provider}: {source}")]
    Provider {
        /// The operator's name for the provider, or its file.
        provider: String,
        /// The cause.
        source: pileus_host::Error,
    },
    /// The wasm engine doesn't start.
    #[error("{0}")]
    Engine(pileus_host::Error),
    /// A component file has changed since it was looked at.
    #[error("{} has changed: it was {wanted}, and is {found}", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
        /// The digest that it had.
        wanted: pileus_loader::Digest,
        /// The digest that it has.
        found: pileus_loader::Digest,
    },
    /// A release can't take over from the active one.
    #[error("provider {provider}: version {version} can't take over from the active one:{}", list(problems))]
    Incompatible {
        /// The operator's name for the provider.
        provider: String,
        /// The version that was refused.
        version: String,
        /// All reasons.
        problems: Vec<String>,
        /// Whether it stays so until the spec changes.
        is_permanent: bool,
    },
    /// The settings of a release can't be used.
    #[error("{problem}")]
    Settings {
        /// What is wrong.
        problem: String,
    },
    /// The settings of a former release can't be had now: which ones, and why.
    #[error("can't read the settings {0}")]
    FormerSettings(String),
    /// A folder that has to be written can't be used.
    #[error("can't use the folder of --{flag}: {cause}")]
    Folder {
        /// The flag that names it.
        flag: &'static str,
        /// What is wrong with it.
        cause: String,
    },
    /// A file can't be written.
    #[error("can't write {}: {source}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The component can't be had, stored, pushed or trusted.
    #[error("{0}")]
    Source(#[from] pileus_loader::Error),
    /// A new provider can't be written.
    #[error("can't write the provider to {}: {source}; nothing was left there", folder.display())]
    ProviderNotWritten {
        /// The folder of the crate.
        folder: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The provider has no capability that a controller uses.
    #[error(
        "provider {provider}: no controller can use it: it exports neither instances nor load balancers, routes need --cluster-cidr, and --controllers may leave some out; see `pileus inspect` for its exports"
    )]
    NothingToDo {
        /// The operator's name for the provider.
        provider: String,
    },
    /// The component can't describe the machine that it runs on.
    #[error(
        "provider {provider}: the component doesn't export local-instance, which a node manager needs; leave its Nodes to `pileus run`"
    )]
    NoLocalInstance {
        /// The operator's name for the provider.
        provider: String,
    },
    /// The provider violates the contract.
    #[error(
        "provider {provider}: {} failed; see the report for advice",
        if *.failed == 1 { "1 check".to_owned() } else { format!("{} checks", .failed) }
    )]
    Nonconforming {
        /// The provider's file.
        provider: String,
        /// How many checks failed; at least one.
        failed: usize,
    },
    /// Checks of a conformance test did not run, although `--require-all` asks for all of them.
    #[error(
        "{provider}: {} not run, and --require-all asks for all; pass what the report says that they need",
        if *.not_run == 1 { "1 check was".to_owned() } else { format!("{} checks were", .not_run) }
    )]
    NotTested {
        /// The provider's file.
        provider: String,
        /// How many checks were not run; at least one.
        not_run: usize,
    },
    /// A test that changes a cloud was stopped.
    #[error("stopped; {}", if left.is_empty() { "everything that the test created is removed".to_owned() } else { format!("remove from the cloud what is left:{}", list(left)) })]
    Stopped {
        /// What the test could not remove from the cloud.
        left: Vec<String>,
    },
    /// A plan is incomplete because something could not be read.
    #[error("provider {provider}: not everything could be read:{}; try again, and check with `pileus inspect` what the provider may reach", list(.problems))]
    Unplanned {
        /// The operator's name for the provider.
        provider: String,
        /// What could not be read, and why.
        problems: Vec<String>,
    },
    /// What the provider asks for makes no valid document.
    #[error("provider {provider}: no document can be made of what it asks for with this configuration:{}", Problem::list(.problems))]
    NoDraft {
        /// The provider's file or reference.
        provider: String,
        /// What is wrong with the document.
        problems: Vec<Problem>,
    },
    /// The grants, the limits or the provider's rules are invalid.
    #[error("provider {provider}: {source}")]
    Gate {
        /// The operator's name for the provider.
        provider: String,
        /// The cause.
        source: Box<pileus_gate::Error>,
    },
}

/// Advice about an API server that doesn't answer.
const UNREACHED: &str =
    "; check that it is running, and that --kubeconfig, KUBECONFIG or the Pod's service account point to it";

impl Error {
    /// The exit code, as `pileus --help` lists them.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    pub(crate) fn code(&self) -> u8 {
        use pileus_host::Error as Host;
        match self {
            Self::Machine(_)
            | Self::Admin { .. }
            | Self::LeaseLost(_)
            | Self::Stopped { .. }
            | Self::Engine(_)
            | Self::Replaced { .. }
            | Self::ProviderNotWritten { .. }
            | Self::Settings { .. }
            | Self::FormerSettings(_)
            | Self::Folder { .. }
            | Self::Output { .. } => 1,
            Self::Flag { .. }
            | Self::CommandLine(_)
            | Self::UpstreamFlags(_)
            | Self::NoSuchProvider(_)
            | Self::DocumentUnreadable { .. }
            | Self::Document { .. }
            | Self::Kubeconfig(_)
            | Self::Proxy(_) => 2,
            Self::Gate { source, .. } => match &**source {
                pileus_gate::Error::Roots { .. } => 1,
                pileus_gate::Error::ExtraRoots { .. } => 2,
                pileus_gate::Error::Config { problems }
                    if problems.iter().all(|problem| problem.path.starts_with("spec.")) =>
                {
                    2
                }
                _ => 4,
            },
            Self::NoDraft { .. } => 4,
            Self::Source(source) => source_code(source),
            Self::NothingToDo { .. } | Self::Incompatible { .. } | Self::NoLocalInstance { .. } => 3,
            Self::Nonconforming { .. } | Self::NotTested { .. } => 5,
            Self::NotHeld(_) | Self::NotCarriedOut { .. } | Self::Cluster { .. } | Self::Unplanned { .. } => {
                6
            }
            Self::Provider { source, .. } => match source {
                Host::Engine(_) | Host::CompilerSpawn(_) => 1,
                Host::NotWasm { .. }
                | Host::CoreModule
                | Host::Invalid(_)
                | Host::CompilerFailed(_)
                | Host::Version { .. }
                | Host::NoProvider { .. }
                | Host::NoCapability
                | Host::UnknownImports(_)
                | Host::Mismatch(_) => 3,
                Host::Info { .. } | Host::Description(_) | Host::Configuration(_) | Host::Settings(_) => 4,
            },
        }
    }
}

fn list(problems: &[impl ToString]) -> String {
    problems.iter().fold(String::new(), |text, problem| text + "\n  " + &problem.to_string())
}
