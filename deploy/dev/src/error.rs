//! What can go wrong with the local stack. Its readers are developers looking at a failed test, so an error carries
//! what they would look for next: the end of a log, or the command to run.

use std::{fmt, io, path::PathBuf, time::Duration};

/// A failure of the local stack.
#[derive(thiserror::Error)]
pub enum Error {
    /// The Kubernetes programs are not there, or not of the right version. Build them.
    #[error("{detail}\nrun `{command}`, which builds what is missing")]
    KubernetesMissing {
        /// What `deploy/dev/kubernetes/build --find` said.
        detail: String,
        /// What builds them.
        command: String,
    },

    /// A program or component of this workspace has not been built. Build it.
    #[error("{} is not there: run `{command}`", path.display())]
    ArtifactMissing {
        /// Where it was looked for.
        path: PathBuf,
        /// What builds it.
        command: String,
    },

    /// A process could not be started at all.
    #[error("{name} not started (this needs setpriv, of the package util-linux): {source}")]
    Start {
        /// The process's name.
        name: String,
        /// The operating system's reason.
        source: io::Error,
    },

    /// A process ended, or did not do in time what it was expected to do.
    #[error("{name} {problem}; the end of its log:\n{log}")]
    Process {
        /// The process's name.
        name: String,
        /// What it did instead.
        problem: String,
        /// The last lines of its log.
        log: String,
    },

    /// A file of the stack could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },

    /// No key for the API server's service account tokens.
    #[error("no service account key: {0}")]
    Key(#[from] rcgen::Error),

    /// A kubeconfig that was just written does not work.
    #[error("{}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<kube::config::KubeconfigError>,
    },

    /// The API server refused a request, or could not be reached.
    #[error("{action}: {source}")]
    Api {
        /// What was attempted.
        action: String,
        /// The API server's answer.
        source: Box<kube::Error>,
    },

    /// An object did not become what it was expected to become.
    #[error("{object} not as wanted within {deadline:?}; last seen: {seen}")]
    Deadline {
        /// The object.
        object: String,
        /// For how long.
        deadline: Duration,
        /// What it was at the end.
        seen: String,
    },
}

impl Error {
    pub(crate) fn api(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        |source| Self::Api { action, source: Box::new(source) }
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}

/// As `Display`: a failed test prints its error by `Debug`, and a derived one would show a log as one escaped line.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
