//! The cluster's objects that a plan depends on. Nodes are read from the API server once, or come from the store of a process
//! that watches them. Services come from a watch that ends with its first list. Nothing is written.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use http::Uri;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client};
use pileus_cloud::{OwnedLoadBalancer, Provider};
use pileus_controllers::claims::Claims;
use pileus_controllers::facts::node::{Node, NodeFacts};
use pileus_controllers::facts::service::ServiceFacts;
use pileus_controllers::nodes::Nodes;
use pileus_controllers::services::{ServiceWatches, Services, UidIndex};
use pileus_controllers::{Error as ApiError, Health, StoreHistory};
use tokio::time::Instant;

use crate::cluster::in_time;
use crate::error::Error;
use crate::metrics::Metrics;

/// How many Nodes a page holds; each is 12 kB or more.
const PAGE: u32 = 500;

/// The Nodes that decide what the controllers want of the cloud. They belong to the provider of the plan as if it ran alone.
pub(crate) struct NodeSnapshot {
    /// The Nodes that can be read.
    pub(crate) readable: Vec<Arc<NodeFacts>>,
    /// The Pod CIDRs of the other Nodes. Their routes stay.
    pub(crate) left_alone: HashSet<IpNet>,
    /// What is wrong with the other Nodes. Empty where a store has reported that before.
    pub(crate) unreadable: Vec<String>,
}

impl NodeSnapshot {
    /// Reads all Nodes.
    ///
    /// # Errors
    /// [`Error::Cluster`] if the API server doesn't answer or refuses.
    pub(crate) async fn read(client: &Client, provider: &Provider) -> Result<Self, Error> {
        let claims = Claims::of_only_provider(&provider.name, provider.schemes.clone());
        let (mut readable, mut left_alone, mut unreadable) = (Vec::new(), HashSet::new(), Vec::new());
        for node in all_nodes(client).await? {
            match NodeFacts::read(node, &claims) {
                Ok(facts) => readable.push(Arc::new(facts)),
                Err(wrong) => {
                    unreadable.push(wrong.to_string());
                    left_alone.extend(wrong.pod_cidrs);
                }
            }
        }
        Ok(Self { readable, left_alone, unreadable })
    }

    /// All Nodes of a store: a large cluster's list costs the API server seconds. `None` before the store's first list is
    /// complete.
    pub(crate) fn kept(nodes: &Nodes, provider: &Provider) -> Option<Self> {
        let claims = Claims::of_only_provider(&provider.name, provider.schemes.clone());
        let readable = nodes.all_under(&claims)?;
        Some(Self { readable, left_alone: nodes.unreadable_ranges(), unreadable: Vec::new() })
    }
}

/// The objects that decide what the controllers want of the cloud.
pub(crate) struct ClusterSnapshot {
    pub(crate) nodes: NodeSnapshot,
    /// The Services of type LoadBalancer, and those for which the cloud has a load balancer; none where the provider
    /// manages no load balancers.
    pub(crate) services: Vec<Arc<ServiceFacts>>,
    /// All Services of the cluster: `namespace/name` by UID.
    pub(crate) present: HashMap<String, String>,
}

impl ClusterSnapshot {
    /// Reads the rest of the cluster. `owned` is what the cloud has for Services. It must be listed before this call, so that a
    /// Service which neither list has is really gone.
    ///
    /// # Errors
    /// [`Error::Cluster`] if the API server doesn't answer or refuses.
    pub(crate) async fn read(
        client: &Client,
        nodes: NodeSnapshot,
        provider: &Provider,
        owned: &[OwnedLoadBalancer],
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        let (mut services, mut present) = (Vec::new(), HashMap::new());
        if provider.load_balancers.is_some() {
            let (terms, health) = (&provider.service_requirements, Health::default());
            let watches = ServiceWatches::new(client.clone(), &metrics.controllers, &StoreHistory::default());
            let all = Services::new(&watches, metrics.controllers.clone(), &health, terms);
            let failed = |source| failed("list services", source);
            present = in_time(all.present(), ApiError::Unavailable).await.map_err(failed)?;
            let uids: UidIndex<'_> = present.keys().map(String::as_str).collect();
            let marks = owned.iter().filter_map(|owned| owned.service_uid.as_deref());
            let named =
                marks.flat_map(|mark| uids.meant_by(mark)).filter_map(|uid| present.get(uid).cloned());
            let names: Vec<_> = named.collect::<BTreeSet<_>>().into_iter().collect();
            // Namespaces and endpoint slices only where the provider reads them.
            let failed = |source| self::failed("read services, namespaces and endpoint slices", source);
            let read = Box::pin(in_time(all.once(&names), ApiError::Unavailable)).await;
            services = read.map_err(|source| failed(with_reason(source, &health)))?;
        }
        Ok(Self { nodes, services, present })
    }
}

/// The UID of the cluster; none where the role doesn't allow reading it, as in `pileus run`.
///
/// # Errors
/// [`Error::Cluster`] if the API server doesn't answer.
pub(crate) async fn cluster_uid(client: &Client, server: &Uri) -> Result<Option<String>, Error> {
    let api = Api::<Namespace>::all(client.clone());
    let read = async { api.get_opt("kube-system").await.map_err(ApiError::from) };
    match in_time(read, ApiError::Unavailable).await {
        Ok(namespace) => Ok(namespace.and_then(|namespace| namespace.metadata.uid)),
        Err(ApiError::Forbidden(_)) => Ok(None),
        Err(source) => Err(failed(&format!("read namespace kube-system at {server}"), source)),
    }
}

async fn all_nodes(client: &Client) -> Result<Vec<Node>, Error> {
    let api = Api::<Node>::all(client.clone());
    let (mut nodes, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let listed = async { api.list(&page).await.map_err(ApiError::from) };
        let listed =
            in_time(listed, ApiError::Unavailable).await.map_err(|source| failed("list nodes", source))?;
        nodes.extend(listed.items);
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(nodes),
        }
    }
}

/// Adds the reason for a missing answer where a watch knows it: a watch retries on every error, so its caller sees only the
/// timeout.
fn with_reason(source: ApiError, health: &Health) -> ApiError {
    let reason = health.report(Instant::now()).into_iter().find_map(|(_, state)| state.err());
    match (source, reason) {
        (ApiError::Unavailable(message), Some(reason)) => {
            ApiError::Unavailable(format!("{message}; {reason}"))
        }
        (source, _) => source,
    }
}

/// The error of a failed request, with advice where a permission is missing.
fn failed(what: &str, source: ApiError) -> Error {
    let source = match source {
        ApiError::Forbidden(message) => ApiError::Forbidden(format!(
            "{message}; the role in deploy/rbac.yaml has all permissions that a plan needs"
        )),
        other => other,
    };
    Error::Cluster { what: what.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_says_why_a_watch_has_no_list() {
        let health = Health::default();
        health.check("a-watch", "").pass();
        assert_eq!(
            with_reason(ApiError::Unavailable("no answer".to_owned()), &health).to_string(),
            "the API server does not answer: no answer"
        );
        health.check("namespace-watch", "").fail("namespaces is forbidden");
        health.check("service-watch", "the list of services has not come yet");
        let message = with_reason(ApiError::Unavailable("no answer".to_owned()), &health).to_string();
        assert!(message.ends_with("no answer; namespaces is forbidden"), "{message}");
        assert!(matches!(with_reason(ApiError::Gone, &health), ApiError::Gone));
    }
}
