//! Many Services of type LoadBalancer at once, and the times at which they get ingress or are deleted, by a watch of
//! the bench.

use std::collections::BTreeMap;
use std::pin::pin;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::Failure;
use crate::cluster::DEADLINE;

/// As many writers as Nodes have that register together: they keep an API server on a few cores busy.
const WRITERS: usize = 32;

/// Creates Services `service-1` to `service-COUNT`, of one port each.
pub(crate) async fn create(client: Client, count: usize) -> Result<(), Failure> {
    let create = |number| create_one(client.clone(), number);
    stream::iter(1..=count).map(create).buffer_unordered(WRITERS).try_for_each(|()| async { Ok(()) }).await
}

/// Creates the Service with this number.
pub(crate) async fn create_one(client: Client, number: usize) -> Result<(), Failure> {
    let services: Api<Service> = Api::default_namespaced(client);
    services.create(&PostParams::default(), &service(number)?).await?;
    Ok(())
}

/// Asks for their deletion; they go once nothing is left of them in the cloud.
pub(crate) async fn delete(client: Client, count: usize) -> Result<(), Failure> {
    let services: Api<Service> = Api::default_namespaced(client);
    let delete = |number| {
        let services = services.clone();
        async move { services.delete(&name(number), &DeleteParams::default()).await.map_err(Failure::from) }
    };
    stream::iter(1..=count).map(delete).buffer_unordered(WRITERS).try_for_each(|_| async { Ok(()) }).await
}

fn name(number: usize) -> String {
    format!("service-{number}")
}

fn service(number: usize) -> Result<Service, Failure> {
    let name = name(number);
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    }))?)
}

/// What was seen of Services of type LoadBalancer since the watch began.
pub(crate) struct Watch {
    seen: mpsc::UnboundedReceiver<(Change, String, Instant)>,
    /// When each had ingress first.
    addressed: BTreeMap<String, Instant>,
    /// When each went.
    gone: BTreeMap<String, Instant>,
}

enum Change {
    Addressed,
    Gone,
}

impl Watch {
    /// Begins to watch, and returns once nothing can be missed.
    pub(crate) async fn begin(client: Client) -> Result<Self, Failure> {
        let (sender, seen) = mpsc::unbounded_channel();
        let (synced, is_synced) = oneshot::channel();
        tokio::spawn(async move {
            let services = watcher(Api::<Service>::default_namespaced(client), watcher::Config::default());
            let mut events = pin!(services.default_backoff());
            let mut synced = Some(synced);
            while let Some(event) = events.next().await {
                let change = match event {
                    Ok(watcher::Event::InitDone) => {
                        synced.take().map(|synced| synced.send(()));
                        continue;
                    }
                    Ok(watcher::Event::Apply(service)) if has_ingress(&service) => {
                        (Change::Addressed, service.name_any())
                    }
                    Ok(watcher::Event::Delete(service)) => (Change::Gone, service.name_any()),
                    _ => continue,
                };
                let (change, name) = change;
                if sender.send((change, name, Instant::now())).is_err() {
                    return;
                }
            }
        });
        timeout(DEADLINE, is_synced).await??;
        Ok(Self { seen, addressed: BTreeMap::new(), gone: BTreeMap::new() })
    }

    /// Waits until this many have ingress, and returns when each got it, in that order.
    pub(crate) async fn addressed(&mut self, count: usize) -> Result<Vec<Instant>, Failure> {
        self.until(count, "addressed", |watch| &watch.addressed).await
    }

    /// Waits until so many are gone, and says when each went, in that order.
    pub(crate) async fn gone(&mut self, count: usize) -> Result<Vec<Instant>, Failure> {
        self.until(count, "gone", |watch| &watch.gone).await
    }

    async fn until(
        &mut self,
        count: usize,
        wanted: &str,
        of: fn(&Self) -> &BTreeMap<String, Instant>,
    ) -> Result<Vec<Instant>, Failure> {
        let deadline = Instant::now() + DEADLINE;
        while of(self).len() < count {
            let next = tokio::time::timeout_at(deadline, self.seen.recv()).await;
            let Ok(Some((change, name, at))) = next else {
                let found = of(self).len();
                return Err(format!("{found} of {count} services are {wanted} after {DEADLINE:?}").into());
            };
            let times = match change {
                Change::Addressed => &mut self.addressed,
                Change::Gone => &mut self.gone,
            };
            times.entry(name).or_insert(at);
        }
        let mut times: Vec<_> = of(self).values().copied().collect();
        times.sort_unstable();
        Ok(times)
    }
}

fn has_ingress(service: &Service) -> bool {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    status.and_then(|it| it.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}
