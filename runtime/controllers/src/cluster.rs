//! Checks the identity of the cluster before a controller deletes something in the cloud because its object is missing in the
//! API server. An API server whose store was lost looks like an empty cluster.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::error::Error;
use crate::informer::with_timeout;

/// Confirms that the API server still serves the cluster with this UID, which is the UID of the namespace kube-system. An API
/// server whose store was lost shows no Services and no Nodes for a while. Nothing may count as gone then: a deleted load
/// balancer loses its address for good, and Pods without their routes can't be reached.
///
/// Without a UID, because it could not be read at the start, there is nothing to compare and the check passes.
///
/// # Errors
/// [`Error::Refused`] where the UID is another one, and other errors where it can't be read.
pub(crate) async fn confirm(client: &Client, uid: Option<&str>) -> Result<(), Error> {
    let Some(uid) = uid else { return Ok(()) };
    let namespace =
        match with_timeout(Api::<Namespace>::all(client.clone()).get_metadata("kube-system")).await {
            Ok(namespace) => namespace.metadata.uid,
            Err(Error::Gone) => None,
            Err(error) => return Err(error),
        };
    let why = "the UID of namespace kube-system has changed since the start, so nothing is deleted from the cloud: restore the \
               cluster's store, or restart Pileus if this is meant to be a new cluster";
    if namespace.as_deref() == Some(uid) { Ok(()) } else { Err(Error::Refused(why.to_owned())) }
}
