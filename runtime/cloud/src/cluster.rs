//! The cluster that objects in a cloud belong to.

/// A cluster's identity. A provider stores it on the objects that it creates, so that clusters can share a cloud account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The name from `--cluster-name`. Many clusters keep the default, so the name doesn't identify a cluster.
    pub name: String,
    /// The UID of the namespace `kube-system`, which is unique. None until it can be read.
    pub uid: Option<String>,
}
