//! Waits, with a watch, until a Node reaches a state.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher::watch_object},
};
use tokio::time;

use crate::Error;

/// Waits until the Node `name` exists and fulfills `condition`, and returns it. The watch reconnects while the API server
/// is down.
pub async fn await_node(
    client: &Client,
    name: &str,
    condition: impl Fn(&Node) -> bool,
    deadline: Duration,
) -> Result<Node, Error> {
    let node = watch_until(client, name, |node| node.is_some_and(&condition), deadline).await?;
    Ok(node.unwrap_or_default())
}

/// Waits until the Node `name` does not exist.
pub async fn await_absence(client: &Client, name: &str, deadline: Duration) -> Result<(), Error> {
    watch_until(client, name, |node| node.is_none(), deadline).await.map(|_| ())
}

async fn watch_until(
    client: &Client,
    name: &str,
    condition: impl Fn(Option<&Node>) -> bool,
    deadline: Duration,
) -> Result<Option<Node>, Error> {
    let mut seen = String::from("nothing");
    let search = async {
        let mut states = pin!(watch_object(Api::<Node>::all(client.clone()), name).default_backoff());
        while let Some(state) = states.next().await {
            match state {
                Ok(node) if condition(node.as_ref()) => return Some(node),
                Ok(node) => seen = node.as_ref().map_or_else(|| "absent".to_owned(), summary),
                Err(error) => seen = error.to_string(),
            }
        }
        None
    };
    match time::timeout(deadline, search).await {
        Ok(Some(node)) => Ok(node),
        Ok(None) | Err(_) => Err(Error::Deadline { object: format!("node {name}"), deadline, seen }),
    }
}

/// The fields of a Node that matter to a cloud-controller-manager, in one line.
fn summary(node: &Node) -> String {
    let spec = node.spec.clone().unwrap_or_default();
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let addresses = addresses.into_iter().flatten().map(|it| format!("{} {}", it.type_, it.address));
    let taints = spec.taints.into_iter().flatten().map(|it| format!("{}:{}", it.key, it.effect));
    format!(
        "provider ID {:?}, addresses {:?}, taints {:?}, labels {:?}",
        spec.provider_id.unwrap_or_default(),
        addresses.collect::<Vec<_>>(),
        taints.collect::<Vec<_>>(),
        node.metadata.labels.clone().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::node;

    #[test]
    fn a_summary_has_the_fields_that_explain_a_timeout() {
        let node = node("a").node_ip("10.0.0.1").provider_id("simulated://a").label("zone", "1").build();
        let text = summary(&node);
        for part in ["simulated://a", "InternalIP 10.0.0.1", "uninitialized:NoSchedule", "\"zone\": \"1\""] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
