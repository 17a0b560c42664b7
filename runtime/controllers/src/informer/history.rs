//! Whether the API server's store went back, which all watches of a process tell each other: a watch that has seen nothing new since
//! the backup notices nothing itself, and its objects are as they were before the backup all the same.

use std::time::Duration;

use tokio::sync::watch;

/// How often the API server is asked for its present version. A watch that began in the future of a restored store is silent,
/// and looks like one of a cluster in which nothing happens. The answer has one object's metadata at most.
const VERSION_PERIOD: Duration = Duration::from_secs(15);

/// What a process knows of the history of the API server's store. Clones share it.
#[derive(Clone)]
pub struct StoreHistory {
    /// How often each watch asks for the present version.
    pub(super) version_period: Duration,
    /// How often a watch noticed that the store went back.
    rollbacks: watch::Sender<u32>,
}

impl Default for StoreHistory {
    fn default() -> Self {
        Self::asked_each(VERSION_PERIOD)
    }
}

impl StoreHistory {
    /// Watches ask the API server for its version once in each period of this length.
    pub fn asked_each(version_period: Duration) -> Self {
        Self { version_period, rollbacks: watch::Sender::default() }
    }

    /// A watch noticed that the store went back.
    pub(super) fn went_back(&self) {
        self.rollbacks.send_modify(|rollbacks| *rollbacks = rollbacks.saturating_add(1));
    }

    /// Whether the store went back at any time.
    pub(super) fn has_gone_back(&self) -> bool {
        *self.rollbacks.borrow() > 0
    }

    /// Receives a message each time a watch notices from now on that the store went back.
    pub(super) fn subscribe(&self) -> watch::Receiver<u32> {
        self.rollbacks.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::ServiceRequirements;
    use prometheus_client::registry::Registry;
    use serde_json::json;
    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::api_server::ApiServer;
    use crate::health::Health;
    use crate::metrics::Metrics;
    use crate::nodes::Nodes;
    use crate::scenarios::StoredNode;
    use crate::services::{ServiceWatches, Services};

    fn node(tier: &str) -> StoredNode {
        StoredNode::registered(&json!({"metadata": {"name": "a", "labels": {"tier": tier}}}))
    }

    /// Little of the Nodes was new since the backup, and the new history has more versions by now than that.
    #[tokio::test(start_paused = true)]
    async fn what_one_watch_notices_is_listed_again_by_all() {
        let (api, metrics) = (ApiServer::new(), Metrics::register(&mut Registry::default()));
        let (history, health) = (StoreHistory::default(), Health::default());
        let nodes = Nodes::new(api.client(), metrics.clone(), &health, &history);
        let watches = ServiceWatches::new(api.client(), &metrics, &history);
        let services = Services::new(&watches, metrics, &health, &ServiceRequirements::default());
        let watched = nodes.clone();
        tokio::spawn(async move { watched.watch(CancellationToken::new()).await });
        tokio::spawn(async move { watches.run(CancellationToken::new()).await });
        services.join_watches().await;
        let tier = || nodes.get("a").unwrap().labels["tier"].to_owned();
        let service = |port: u32| {
            let metadata = json!({"namespace": "shop", "name": "web", "uid": "uid-web"});
            let spec = json!({"type": "LoadBalancer", "ports": [{"port": port}]});
            api.store("services", json!({"metadata": metadata, "spec": spec}))
        };
        api.put(&node("old"));
        service(1);
        let backup = api.back_up();
        api.put(&node("new"));
        sleep(VERSION_PERIOD / 3).await;
        for port in 2..20 {
            service(port);
        }
        sleep(VERSION_PERIOD / 3).await;
        assert_eq!(tier(), "new");

        api.restore(backup);
        service(2);
        service(3);
        sleep(VERSION_PERIOD * 2).await;
        assert_eq!(tier(), "old");
        assert!(nodes.confirm_cluster(None).await.is_err());
    }
}
