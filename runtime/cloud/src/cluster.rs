//! The cluster that things in a cloud belong to.

/// A cluster, as a provider may see it: what it stores on what it creates, so that clusters that share an account are told
/// apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The name from `--cluster-name`. Many clusters carry the default, so it can't tell them apart.
    pub name: String,
    /// The UID of the namespace kube-system, which no two clusters share; none where it can't be read yet.
    pub uid: Option<String>,
}
