//! The cluster as the API server tells it, read once and page by page. Nothing is watched and nothing is written.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::ListParams;
use kube::core::ObjectList;
use kube::{Api, Client};
use pileus_cloud::Provider;
use pileus_controllers::Error as ApiError;
use pileus_controllers::facts::node::{Node, NodeFacts};

use crate::error::Error;

/// The objects of a page: Nodes are 12 kB and more each.
const PAGE: u32 = 500;

/// How long a page may take. Somebody waits at a terminal, and the API server's own limit is a minute.
const PATIENCE: Duration = Duration::from_secs(30);

/// What of a cluster decides what is wanted of the cloud.
pub(crate) struct World {
    /// The Nodes that can be worked on.
    pub(crate) nodes: Vec<Arc<NodeFacts>>,
    /// The ranges of Pods of the others, and what is wrong with these.
    pub(crate) left_alone: HashSet<IpNet>,
    pub(crate) unreadable: Vec<String>,
    /// All Services, where the provider balances load.
    pub(crate) services: Vec<Service>,
}

impl World {
    /// Reads what a provider's work follows from.
    ///
    /// # Errors
    /// [`Error::Cluster`] where the API server doesn't answer or refuses.
    pub(crate) async fn read(client: &Client, provider: &Provider) -> Result<Self, Error> {
        let (mut nodes, mut left_alone, mut unreadable) = (Vec::new(), HashSet::new(), Vec::new());
        let api = Api::<Node>::all(client.clone());
        for node in all("nodes", async |page| api.list(&page).await).await? {
            match NodeFacts::read(node) {
                Ok(facts) => nodes.push(Arc::new(facts)),
                Err(wrong) => {
                    unreadable.push(wrong.to_string());
                    left_alone.extend(wrong.pod_cidrs);
                }
            }
        }
        let api = Api::<Service>::all(client.clone());
        let services = match provider.load_balancers {
            Some(_) => all("services", async |page| api.list(&page).await).await?,
            None => Vec::new(),
        };
        Ok(Self { nodes, left_alone, unreadable, services })
    }
}

/// The UID of the cluster; none where it may not be read, as in a run.
///
/// # Errors
/// [`Error::Cluster`] where the API server doesn't answer.
pub(crate) async fn cluster_uid(client: &Client) -> Result<Option<String>, Error> {
    let read = Api::<Namespace>::all(client.clone());
    match answered(read.get_opt("kube-system")).await {
        Ok(namespace) => Ok(namespace.and_then(|namespace| namespace.metadata.uid)),
        Err(ApiError::Refused(_)) => Ok(None),
        Err(source) => Err(Error::Cluster { what: "read namespace kube-system".to_owned(), source }),
    }
}

/// All objects of a kind, of which `list` lists a page.
async fn all<K: Clone>(
    what: &str,
    list: impl AsyncFn(ListParams) -> kube::Result<ObjectList<K>>,
) -> Result<Vec<K>, Error> {
    let (mut objects, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let failed = |source| Error::Cluster { what: format!("list {what}"), source: advise(source) };
        let listed = answered(list(page.clone())).await.map_err(failed)?;
        objects.extend(listed.items);
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(ApiError::from),
        Err(_elapsed) => Err(ApiError::Unavailable(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

/// Says what to do about a right that is lacking.
fn advise(error: ApiError) -> ApiError {
    match error {
        ApiError::Refused(message) => ApiError::Refused(format!(
            "{message}; the role in deploy/rbac.yaml has all rights that a plan needs"
        )),
        other => other,
    }
}
