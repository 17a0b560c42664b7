//! Errors of the local stack. They are shown when a test fails, so each has what a developer needs next: the end of a log,
//! or the command to run.

use std::{fmt, io, path::PathBuf, time::Duration};

/// A failure of the local stack.
#[derive(thiserror::Error)]
pub enum Error {
    /// The Kubernetes programs are missing or have the wrong version.
    #[error("{detail}\nbuild what is missing with `{command}`")]
    KubernetesMissing {
        /// The message of `deploy/dev/kubernetes/build --find`.
        detail: String,
        /// The command that builds them.
        command: String,
    },

    /// A program or component of this workspace has not been built.
    #[error("{} does not exist: build it with `{command}`", path.display())]
    ArtifactMissing {
        /// The expected path.
        path: PathBuf,
        /// The command that builds it.
        command: String,
    },

    /// A process could not be started.
    #[error("{name} not started (this needs setpriv from the package util-linux): {source}")]
    Start {
        /// The process's name.
        name: String,
        /// The operating system's reason.
        source: io::Error,
    },

    /// A process ended early, or did not do in time what was expected.
    #[error("{name} {problem}; the end of its log:\n{log}")]
    Process {
        /// The process's name.
        name: String,
        /// What went wrong.
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

    /// The key for service account tokens could not be generated.
    #[error("no service account key: {0}")]
    Key(#[from] rcgen::Error),

    /// A kubeconfig that was just written can't be read.
    #[error("{}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<kube::config::KubeconfigError>,
    },

    /// The API server rejected a request, or could not be reached.
    #[error("{action}: {source}")]
    Api {
        /// What was attempted.
        action: String,
        /// The error.
        source: Box<kube::Error>,
    },

    /// An object did not reach the expected state in time.
    #[error("{object}: expected state not reached within {deadline:?}; last seen: {seen}")]
    Deadline {
        /// The object.
        object: String,
        /// The time that was allowed.
        deadline: Duration,
        /// The last state.
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

/// The same text as `Display`: a failed test prints its error with `Debug`, and a derived one shows a log as one escaped line.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
