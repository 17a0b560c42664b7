//! Sets whether Nodes are ready, many at once: there are no kubelets, and there is no controller that notices a silent one.

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
    /// The kubelet reports that the Node is ready.
    True,
    /// The kubelet reports that the Node is not ready.
    False,
    /// The kubelet is silent, and kube-controller-manager has noticed it, as it does when the instance is gone.
    Unknown,
}

impl Ready {
    /// The status, and Kubernetes' reason for it.
    fn status_and_reason(self) -> (&'static str, &'static str) {
        match self {
            Self::True => ("True", "KubeletReady"),
            Self::False => ("False", "KubeletNotReady"),
            Self::Unknown => ("Unknown", "NodeStatusUnknown"),
        }
    }
}

/// Sets the condition `Ready` of Nodes, concurrently: a thousand take about a second.
pub async fn set_ready(
    client: &Client,
    names: impl IntoIterator<Item = String>,
    ready: Ready,
) -> Result<(), Error> {
    // The answers are not used, so only their metadata is parsed.
    let api: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
    let (status, reason) = ready.status_and_reason();
    // A strategic merge keeps the other conditions.
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition("Ready", status, reason)]}}));
    let write = |name: String| {
        let (api, patch) = (api.clone(), &patch);
        async move {
            let written = api.patch_status(&name, &PatchParams::default(), patch).await;
            written.map(|_| ()).map_err(Error::api(format!("set readiness of node {name}")))
        }
    };
    stream::iter(names).map(write).buffer_unordered(WRITERS).try_collect().await
}
