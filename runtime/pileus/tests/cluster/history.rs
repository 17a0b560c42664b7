//! The history of Nodes as a watch shows it: each write of any client is one state.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time;

use crate::SOON;
use crate::node;

/// The states of all Nodes since a moment, in the order in which they came about.
pub(crate) struct History {
    states: watch::Receiver<Vec<Node>>,
    task: JoinHandle<()>,
}

impl History {
    /// Begins to take notes: of each Node that is there already its present state, and then all that follow.
    pub(crate) async fn begin(client: &Client) -> Self {
        let (write, states) = watch::channel(Vec::new());
        let (listed, mut is_listed) = watch::channel(false);
        let api = Api::<Node>::all(client.clone());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) => {
                        write.send_modify(|states| states.push(node));
                    }
                    Ok(watcher::Event::InitDone) => drop(listed.send_replace(true)),
                    // The API server may be away; the watch goes on with a new list.
                    Ok(watcher::Event::Init | watcher::Event::Delete(_)) | Err(_) => {}
                }
            }
        });
        time::timeout(SOON, is_listed.wait_for(|listed| *listed)).await.unwrap().unwrap();
        Self { states, task }
    }

    /// Waits until the states are as wanted, and returns them.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&[Node]) -> bool) -> Vec<Node> {
        let found = time::timeout(SOON, self.states.wait_for(|states| wanted(states))).await.is_ok();
        let states = self.states.borrow().clone();
        let nodes = latest(&states);
        let waiting: Vec<_> =
            nodes.iter().filter(|node| node::is_uninitialised(node)).map(Node::name_any).collect();
        assert!(
            found,
            "not as wanted after {} states of {} Nodes, of which wait to be initialised {waiting:?}: {:#?}",
            states.len(),
            nodes.len(),
            node::outcomes(&nodes)
        );
        states
    }

    /// Waits until all these Nodes are initialised, and returns them.
    pub(crate) async fn initialised(&mut self, names: &[impl AsRef<str>]) -> Vec<Node> {
        let done = |states: &[Node]| {
            let nodes = latest(states);
            let done = |name: &str| {
                nodes.iter().any(|node| node.name_any() == name && !node::is_uninitialised(node))
            };
            names.iter().all(|name| done(name.as_ref()))
        };
        let nodes = latest(&self.until(done).await);
        nodes.into_iter().filter(|node| names.iter().any(|name| name.as_ref() == node.name_any())).collect()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The last state of each Node.
pub(crate) fn latest(states: &[Node]) -> Vec<Node> {
    let latest: BTreeMap<_, _> = states.iter().map(|node| (node.name_any(), node)).collect();
    latest.into_values().cloned().collect()
}
