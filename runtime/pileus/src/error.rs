//! What ends the program, and the exit code that tells a script why.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use pileus_gate::Problem;

/// Why the program ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine can't run it.
    #[error("this machine can't run pileus: {0}")]
    Machine(std::io::Error),
    /// The admin server can't listen.
    #[error("can't listen on {address}: {source}; choose another --{flag}")]
    Admin {
        /// Which flag says so.
        flag: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A flag's value makes no sense.
    #[error("--{flag} {value:?}: {problem}")]
    Flag {
        /// Which flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        problem: String,
    },
    /// Flags that other cloud-controller-managers have; each with what to do instead.
    #[error("these flags are of other cloud-controller-managers:{}\n`pileus run --help` shows those that there are", list(.0))]
    UpstreamFlags(Vec<String>),
    /// The document can't be read.
    #[error("can't read the CloudProvider document {}: {source}", path.display())]
    DocumentUnreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The document is wrong.
    #[error("the CloudProvider document {} is wrong:{}", path.display(), Problem::list(problems))]
    Document {
        /// Which file.
        path: PathBuf,
        /// All that is wrong with it.
        problems: Vec<Problem>,
    },
    /// There is no way to the API server.
    #[error("{0}; name a kubeconfig with --kubeconfig FILE, or run in a Pod with a service account")]
    Kubeconfig(String),
    /// Nodes that were to be released aren't held.
    #[error("nothing was released:{}; `kubectl describe node NAME` shows whether it is held", list(.0))]
    NotHeld(Vec<String>),
    /// The API server doesn't do what a command needs.
    #[error("can't {what}: {source}{}", if matches!(source, pileus_controllers::Error::Unavailable(_)) { UNREACHED } else { "" })]
    Cluster {
        /// What was to be done.
        what: String,
        /// Why it can't.
        source: pileus_controllers::Error,
    },
    /// Another replica works on, or will.
    #[error("the leader lease is lost: {0}; start again to stand by")]
    LeaseLost(String),
    /// The component or its provider can't be used.
    #[error("provider {provider}: {source}")]
    Provider {
        /// The operator's name for it, or its file.
        provider: String,
        /// Why.
        source: pileus_host::Error,
    },
    /// The provider can do nothing that this program needs.
    #[error(
        "provider {provider}: there is nothing for it to do: it exports no instances, no load balancers, and no routes or there is no --cluster-cidr (`pileus inspect` shows what a component exports)"
    )]
    NothingToDo {
        /// The operator's name for it.
        provider: String,
    },
    /// The provider breaks promises of the contract.
    #[error(
        "provider {provider}: {} of the contract {}; the report says which, and what to do",
        if *.failed == 1 { "one promise".to_owned() } else { format!("{} promises", .failed) },
        if *.failed == 1 { "is broken" } else { "are broken" }
    )]
    Nonconforming {
        /// Its file.
        provider: String,
        /// How many; at least one.
        failed: usize,
    },
    /// A test that changes a cloud was stopped before its end.
    #[error("stopped; {}", if left.is_empty() { "all that was made in the cloud is removed".to_owned() } else { format!("in the cloud are left:{}", list(left)) })]
    Stopped {
        /// What could not be removed from the cloud.
        left: Vec<String>,
    },
    /// A plan lacks something that couldn't be looked at.
    #[error("provider {provider}: not all could be looked at:{}; try again, and see what it may reach with `pileus inspect`", list(.problems))]
    Unplanned {
        /// The operator's name for it.
        provider: String,
        /// What, and why.
        problems: Vec<String>,
    },
    /// The gate can't be made of the grants and the provider's rules.
    #[error("provider {provider}: {source}")]
    Gate {
        /// The operator's name for it.
        provider: String,
        /// Why.
        source: Box<pileus_gate::Error>,
    },
}

/// What to do about an API server that doesn't answer.
const UNREACHED: &str =
    "; see that it is up, and that --kubeconfig, KUBECONFIG or the Pod's service account lead to it";

impl Error {
    /// The exit code, as `pileus --help` lists them.
    pub fn exit_code(&self) -> ExitCode {
        use pileus_host::Error as Host;
        ExitCode::from(match self {
            Self::Machine(_) | Self::Admin { .. } | Self::LeaseLost(_) | Self::Stopped { .. } => 1,
            Self::Flag { .. }
            | Self::UpstreamFlags(_)
            | Self::DocumentUnreadable { .. }
            | Self::Document { .. }
            | Self::Kubeconfig(_) => 2,
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
            Self::NothingToDo { .. } => 3,
            Self::Nonconforming { .. } => 5,
            Self::NotHeld(_) | Self::Cluster { .. } | Self::Unplanned { .. } => 6,
            Self::Provider { source, .. } => match source {
                Host::Engine(_) | Host::CompilerSpawn(_) => 1,
                Host::Unreadable { .. } => 2,
                Host::TooLarge { .. }
                | Host::NotWasm { .. }
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
        })
    }
}

/// An error with its causes, as kube's errors keep the interesting part at the end.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

fn list(problems: &[impl ToString]) -> String {
    problems.iter().fold(String::new(), |text, problem| text + "\n  " + &problem.to_string())
}
