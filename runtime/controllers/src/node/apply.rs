//! Writes to Nodes: one request an action, and the Node as it is afterwards.
//!
//! Each write names the Node's UID, so that it can't hit another Node that has taken the name meanwhile. The answer of
//! the API server is the next observation: no read in between, and no write that rests on an old one.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use pileus_cloud::{Address, ProviderId};
use serde_json::{Value, json};

use super::plan::Action;
use crate::error::Error;
use crate::facts::node::{Node, NodeFacts, Taint};
use crate::metrics::Metrics;

/// Who writes, as `metadata.managedFields` shows it.
const FIELD_MANAGER: &str = "pileus";

/// How long an answer of the API server is waited for. Its own limit for such requests is a minute; a request that a
/// broken network has swallowed must not keep its Node, nor a writer, for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// The API of Nodes, and what counts the writes.
#[derive(Clone)]
pub(crate) struct Nodes {
    api: Api<Node>,
    metrics: Metrics,
}

impl Nodes {
    pub(crate) fn new(client: Client, metrics: Metrics) -> Self {
        Self { api: Api::all(client), metrics }
    }

    pub(crate) fn api(&self) -> &Api<Node> {
        &self.api
    }

    /// Carries an action out on the Node that these facts are of; what the Node is then.
    pub(crate) async fn apply(&self, node: &NodeFacts, action: &Action) -> Result<NodeFacts, Error> {
        let (name, written) = match action {
            Action::SetAddresses(addresses) => {
                let patch = Patch::Merge(addresses_patch(node, addresses));
                ("set_addresses", answered(self.api.patch_status(&node.name, &params(), &patch)).await)
            }
            Action::Complete { provider_id, labels, taints } => {
                let patch = Patch::Merge(complete_patch(node, provider_id.as_ref(), labels, taints));
                ("complete", answered(self.api.patch(&node.name, &params(), &patch)).await)
            }
        };
        self.metrics.wrote(
            name,
            match &written {
                Ok(_) => "ok",
                Err(Error::Conflict) => "conflict",
                Err(Error::Gone) => "gone",
                Err(Error::Refused(_)) => "refused",
                Err(Error::Unavailable(_)) => "unavailable",
            },
        );
        facts(written?)
    }

    /// Reads the Node anew, past any cache.
    pub(crate) async fn read(&self, node: &NodeFacts) -> Result<NodeFacts, Error> {
        let found = facts(answered(self.api.get(&node.name)).await?)?;
        if found.uid == node.uid { Ok(found) } else { Err(Error::Gone) }
    }
}

/// What the API server answers, unless it takes too long. A write that was given up may have been done all the same; the
/// next one then meets a conflict, and the Node is read again.
async fn answered(request: impl Future<Output = kube::Result<Node>>) -> Result<Node, Error> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(Error::from),
        Err(_elapsed) => Err(Error::Unavailable(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn facts(node: Node) -> Result<NodeFacts, Error> {
    NodeFacts::read(node).map_err(|unreadable| Error::Refused(unreadable.to_string()))
}

/// A merge patch, which replaces the list: a strategic one would merge it by type, which is wrong for a Node with two
/// addresses of one type. It needs no resourceVersion, as nobody else's addresses are kept in it.
fn addresses_patch(node: &NodeFacts, addresses: &[Address]) -> Value {
    let list: Vec<_> = addresses
        .iter()
        .map(|address| json!({"type": address.kind.as_str(), "address": address.value}))
        .collect();
    json!({"metadata": {"uid": node.uid}, "status": {"addresses": list}})
}

/// With the resourceVersion, as the list of taints holds those of others: one that is added meanwhile must not get
/// lost.
fn complete_patch(
    node: &NodeFacts,
    provider_id: Option<&ProviderId>,
    labels: &BTreeMap<String, String>,
    taints: &[Taint],
) -> Value {
    let spec = match provider_id {
        Some(id) => json!({"providerID": id.as_str(), "taints": taints}),
        None => json!({"taints": taints}),
    };
    let metadata = json!({"uid": node.uid, "resourceVersion": node.resource_version, "labels": labels});
    json!({"metadata": metadata, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_is_given_up() {
        let started = tokio::time::Instant::now();
        let error = answered(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        assert_eq!(started.elapsed(), PATIENCE);
    }
}
