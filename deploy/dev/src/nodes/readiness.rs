//! Whether Nodes are ready, for many at once: there is no kubelet that says so, and no node lifecycle controller that
//! notices one that has fallen silent.

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::PartialObjectMeta,
};
use serde_json::json;

use super::{WRITERS, condition};
use crate::Error;

/// The status of a Node's condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Its kubelet says that it is.
    True,
    /// Its kubelet says that it isn't.
    False,
    /// Its kubelet has fallen silent, and kube-controller-manager has noticed: what becomes of a Node whose machine is
    /// gone.
    Unknown,
}

impl Ready {
    /// The status, and the reason that Kubernetes gives for it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::True => ("True", "KubeletReady"),
            Self::False => ("False", "KubeletNotReady"),
            Self::Unknown => ("Unknown", "NodeStatusUnknown"),
        }
    }
}

/// Sets the condition `Ready` of the Nodes of these names, many at a time: a thousand take about a second.
pub async fn set_ready(
    client: &Client,
    names: impl IntoIterator<Item = String>,
    ready: Ready,
) -> Result<(), Error> {
    // Of the answers nothing is read, so not parsed either.
    let api: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    let (status, reason) = ready.words();
    // Strategic, so that the other conditions stay.
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition("Ready", status, reason)]}}));
    let write = |name: String| {
        let (api, patch) = (api.clone(), &patch);
        async move {
            let written = api.patch_status(&name, &PatchParams::default(), patch).await;
            written.map(|_| ()).map_err(Error::api(format!("readiness of node {name} not set")))
        }
    };
    stream::iter(names).map(write).buffer_unordered(WRITERS).try_collect().await
}
