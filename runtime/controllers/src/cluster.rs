//! Whether the API server still is that of the cluster that we began with: asked before anything in the cloud is deleted
//! because something is missing here.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::error::Error;
use crate::objects::answered;

/// Confirms that the API server is still that of the cluster with this UID, which is that of the namespace kube-system. One
/// whose store was lost answers for a while as one without Services and Nodes, and then nothing may be taken for gone: a
/// load balancer that is deleted loses its address for good, and Pods whose routes are deleted can't be reached.
///
/// # Errors
/// [`Error::Refused`] where it is another one, and others where the UID can't be read. Where it wasn't known at the start
/// nothing can be said.
pub(crate) async fn confirm(client: &Client, uid: Option<&str>) -> Result<(), Error> {
    let Some(uid) = uid else { return Ok(()) };
    let namespace = match answered(Api::<Namespace>::all(client.clone()).get_metadata("kube-system")).await {
        Ok(namespace) => namespace.metadata.uid,
        Err(Error::Gone) => None,
        Err(error) => return Err(error),
    };
    let why = "the namespace kube-system has another UID than at the start, so nothing is taken for gone: \
               restore the cluster's store, or restart where this cluster is meant to be a new one";
    if namespace.as_deref() == Some(uid) { Ok(()) } else { Err(Error::Refused(why.to_owned())) }
}
