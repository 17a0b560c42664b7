//! The Services that want a load balancer, or had one: watched once for all providers, kept as the facts that each provider reads,
//! and written in one place.
//!
//! Where a provider asks for that, the labels of their namespaces and their endpoints are watched as well.

mod changes;
mod cluster_ips;
mod endpoints;
mod namespaces;
mod store;
mod uid_index;
mod watches;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ListParams, Patch};
use pileus_cloud::{ServiceRequirements, TrafficPolicy};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::cluster;
use crate::error::Error;
use crate::facts::service::ServiceFacts;
use crate::health::Health;
use crate::informer::{Informer, InformerStore, key, patch_params, result_label, with_timeout};
use crate::metrics::Metrics;
pub(crate) use changes::ChangeStream;
pub(crate) use cluster_ips::cluster_ips;
use endpoints::Slices;
use namespaces::Namespaces;
use store::ServiceStore;
pub use uid_index::UidIndex;
pub use watches::ServiceWatches;

/// How many Services one page of a list has: some 300 kB of metadata.
const PAGE: u32 = 500;

/// The Services as one provider reads them. Clones share them.
#[derive(Clone)]
pub struct Services {
    shared: Arc<SharedServices>,
}

struct SharedServices {
    watches: ServiceWatches,
    metrics: Metrics,
    services: Arc<Informer<ServiceStore>>,
    /// Only where the provider reads their labels.
    namespaces: Option<Arc<Informer<Namespaces>>>,
    /// Only where the provider reads endpoints.
    slices: Option<Arc<Informer<Slices>>>,
}

/// A Service has changed, or something around it that the provider reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It exists, and is so.
    Present(Arc<ServiceFacts>),
    /// The Service of this name, `namespace/name`, is gone.
    Gone(String),
}

impl Services {
    /// No Services yet: [`Services::join_watches`] brings them. `requirements` says what of them the provider reads.
    pub fn new(
        watches: &ServiceWatches,
        metrics: Metrics,
        health: &Health,
        requirements: &ServiceRequirements,
    ) -> Self {
        let namespaces = requirements
            .wants_namespace_labels
            .then(|| Informer::new(&watches.namespaces, Namespaces::default(), health, "namespace-watch"));
        let slices = requirements
            .wants_endpoints
            .then(|| Informer::new(&watches.slices, Slices::default(), health, "endpoint-slice-watch"));
        let store = ServiceStore::new(requirements.clone());
        let services = Informer::new(&watches.services, store, health, "service-watch");
        let watches = watches.clone();
        Self { shared: Arc::new(SharedServices { watches, metrics, services, namespaces, slices }) }
    }

    /// Has the watches bring the Services, for as long as a clone of this exists. Services are known only when everything else
    /// that the provider reads about them is known; this returns before that.
    pub async fn join_watches(&self) {
        let SharedServices { services, namespaces, slices, .. } = &*self.shared;
        tokio::join!(joined(namespaces.as_ref()), joined(slices.as_ref()));
        services.join_watch();
    }

    /// All Services, as soon as all are known, and then each change.
    pub(crate) fn follow(&self) -> ChangeStream {
        ChangeStream::of(Arc::clone(&self.shared))
    }

    /// Patches a Service's status resource, which takes changes of finalizers as well, and returns the Service as it is
    /// then. `action` is a metric label. The patch has to name the Service's UID, so that it can't hit a new Service of the
    /// same name.
    ///
    /// # Errors
    /// Any [`Error`] of the write; [`Error::Refused`] also where the API server's answer doesn't show what was written.
    pub(crate) async fn patch(
        &self,
        facts: &ServiceFacts,
        action: &'static str,
        patch: Value,
        shows: impl FnOnce(&ServiceFacts) -> bool,
    ) -> Result<Arc<ServiceFacts>, Error> {
        let (api, patch) = (self.api(&facts.service.namespace), Patch::Strategic(patch));
        let written = with_timeout(api.patch_status(&facts.service.name, &patch_params(), &patch)).await;
        let written = written.and_then(|service| {
            let written = Arc::new(self.shared.read(service));
            self.shared
                .services
                .update(|store| store.objects.on_write_response(&written).into_iter().collect());
            // Reported as an error, it is backed off; else it would be written again and again.
            let why = "what is written is changed back at once: look for an admission policy";
            shows(&written).then_some(written).ok_or_else(|| Error::Refused(why.to_owned()))
        });
        self.shared.metrics.service.count_write(action, result_label(&written));
        written.map(|written| self.shared.newest(written))
    }

    /// Reads the Service of this name, `namespace/name`, from the API server, and keeps it from now on regardless of its
    /// type. Returns none where it doesn't exist. A change that this shows reaches all streams of changes.
    ///
    /// # Errors
    /// Any [`Error`] of the read but [`Error::Gone`].
    pub(crate) async fn read(&self, name: &str) -> Result<Option<Arc<ServiceFacts>>, Error> {
        let Some((namespace, own)) = name.split_once('/') else { return Ok(None) };
        let found = match with_timeout(self.api(namespace).get(own)).await {
            Ok(found) => Arc::new(self.shared.read(found)),
            Err(Error::Gone) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.shared.services.update(|store| store.objects.on_read_response(&found).into_iter().collect());
        Ok(Some(self.shared.newest(self.kept(name).unwrap_or(found))))
    }

    /// The kept Service of this name, `namespace/name`.
    pub(crate) fn kept(&self, name: &str) -> Option<Arc<ServiceFacts>> {
        self.shared.services.read(|store| store.objects.get(name).cloned())
    }

    /// A Service with this ClusterIP, as `namespace/name`.
    pub(crate) fn with_cluster_ip(&self, ip: IpAddr) -> Option<String> {
        self.shared.services.read(|store| store.cluster_ips.service_with(ip).map(str::to_owned))
    }

    /// Confirms that the API server still serves the cluster with this UID, see [`cluster::confirm`], and that its store is not
    /// older than what is known: a Service that a restored backup lacks may exist, and clients may rely on its address.
    ///
    /// # Errors
    /// As [`cluster::confirm`] and [`Informer::confirm_history`].
    pub(crate) async fn confirm_cluster(&self, uid: Option<&str>) -> Result<(), Error> {
        let SharedServices { watches, services, .. } = &*self.shared;
        tokio::try_join!(cluster::confirm(&watches.client, uid), services.confirm_history()).map(drop)
    }

    /// The names, `namespace/name`, of all kept Services, by UID.
    pub(crate) fn known(&self) -> HashMap<String, String> {
        let all = self.shared.services.read(|store| store.objects.all());
        all.into_iter().flatten().map(|facts| (facts.service.uid.clone(), facts.key())).collect()
    }

    /// Reads once the Services that matter, and those of these names, `namespace/name`, regardless of their type, with all
    /// that the provider reads about them. Returns when all are known.
    ///
    /// # Errors
    /// Any [`Error`] of a read by name.
    pub async fn once(&self, names: &[String]) -> Result<Vec<Arc<ServiceFacts>>, Error> {
        let known = async {
            self.join_watches().await;
            let mut stream = self.follow();
            stream.next().await;
            for name in names {
                self.read(name).await?;
            }
            Ok::<_, Error>(self.shared.changes(self.known().into_values().collect()))
        };
        let changes = tokio::select! {
            known = known => known?,
            () = self.shared.watches.run(CancellationToken::new()) => Vec::new(),
        };
        let facts = changes.into_iter().filter_map(|change| match change {
            Change::Present(facts) => Some(facts),
            Change::Gone(_) => None,
        });
        Ok(facts.collect())
    }

    /// The names of the cluster's Services of all types, by UID, from a read of the API server that begins now. All its
    /// pages show the same moment.
    ///
    /// # Errors
    /// Any [`Error`] of the read.
    pub async fn present(&self) -> Result<HashMap<String, String>, Error> {
        let api = Api::<Service>::all(self.shared.watches.client.clone());
        let (mut present, mut page) = (HashMap::new(), ListParams::default().limit(PAGE));
        loop {
            let listed = with_timeout(api.list_metadata(&page)).await?;
            let following = listed.metadata.continue_.filter(|token| !token.is_empty());
            present.extend(listed.items.into_iter().filter_map(|service| {
                let name = key(&service);
                Some((service.metadata.uid?, name))
            }));
            let Some(token) = following else { return Ok(present) };
            page = ListParams::default().limit(PAGE).continue_token(&token);
        }
    }

    fn api(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.shared.watches.client.clone(), namespace)
    }
}

/// Has the watch bring the objects of this kind, and returns when all are known.
async fn joined<K: InformerStore>(informer: Option<&Arc<Informer<K>>>) {
    if let Some(informer) = informer {
        informer.join_watch();
        drop(informer.subscribe().recv().await);
    }
}

impl SharedServices {
    fn read(&self, service: Service) -> ServiceFacts {
        self.services.read(|store| store.read(service))
    }

    /// This Service, or as it is kept where that is newer, with all that the provider reads about it.
    fn newest(&self, facts: Arc<ServiceFacts>) -> Arc<ServiceFacts> {
        let kept = self.services.read(|store| store.objects.get(&facts.key()).cloned());
        let newest = kept.filter(|kept| kept.service.uid == facts.service.uid).unwrap_or(facts);
        let counts = self.endpoints(&BTreeSet::from([newest.key()]));
        self.surround(newest, &counts)
    }

    /// The present state of these Services.
    fn changes(&self, names: BTreeSet<String>) -> Vec<Change> {
        let counts = self.endpoints(&names);
        let change = |name: String| match self.services.read(|store| store.objects.get(&name).cloned()) {
            Some(facts) => Change::Present(self.surround(facts, &counts)),
            None => Change::Gone(name),
        };
        names.into_iter().map(change).collect()
    }

    fn endpoints(&self, services: &BTreeSet<String>) -> BTreeMap<String, BTreeMap<String, u32>> {
        self.slices.as_ref().map(|slices| slices.read(|slices| slices.count(services))).unwrap_or_default()
    }

    /// Adds to a Service what the provider reads about it that isn't in the object.
    fn surround(
        &self,
        facts: Arc<ServiceFacts>,
        counts: &BTreeMap<String, BTreeMap<String, u32>>,
    ) -> Arc<ServiceFacts> {
        let namespace = &facts.service.namespace;
        let labels = self.namespaces.as_ref().and_then(|all| all.read(|all| all.labels(namespace)));
        let is_local = matches!(facts.service.policy, TrafficPolicy::Local(_));
        let counts = counts.get(&facts.key()).filter(|_| is_local);
        if labels.is_none() && counts.is_none() {
            return facts;
        }
        let mut facts = ServiceFacts::clone(&facts);
        facts.service.namespace_labels = labels.unwrap_or_default();
        facts.local_endpoints = counts.cloned().unwrap_or_default();
        Arc::new(facts)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_cloud::AnnotationType;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;
    use crate::api_server::{ApiServer, VERSION_PERIOD, history};

    fn service(name: &str, kind: &str, policy: &str) -> Value {
        json!({
            "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}")},
            "spec": {
                "type": kind, "ports": [{"port": 80}], "externalTrafficPolicy": policy, "healthCheckNodePort": 30000,
            },
        })
    }

    fn namespace(tier: &str) -> Value {
        json!({"metadata": {"name": "shop", "uid": "uid-shop", "labels": {"tier": tier}}})
    }

    /// A slice of `web` with an endpoint on each of these Nodes, and its conditions.
    fn slice(name: &str, family: &str, endpoints: &[(&str, Value)]) -> Value {
        let endpoint = |(node, conditions): &(&str, Value)| json!({"addresses": [], "nodeName": node, "conditions": conditions});
        let labels = json!({"kubernetes.io/service-name": "web"});
        json!({
            "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "labels": labels},
            "addressType": family,
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        })
    }

    fn watches(api: &ApiServer) -> ServiceWatches {
        let metrics = Metrics::register(&mut Registry::default());
        let watches = ServiceWatches::new(api.client(), &metrics, &history());
        let running = watches.clone();
        tokio::spawn(async move { running.run(CancellationToken::new()).await });
        watches
    }

    /// The Services for a provider that declares this.
    fn read_by(watches: &ServiceWatches, requirements: &ServiceRequirements) -> Services {
        let metrics = Metrics::register(&mut Registry::default());
        let services = Services::new(watches, metrics, &Health::default(), requirements);
        let joining = services.clone();
        tokio::spawn(async move { joining.join_watches().await });
        services
    }

    fn watched(api: &ApiServer, wants_all: bool) -> Services {
        let requirements = ServiceRequirements {
            wants_namespace_labels: wants_all,
            wants_endpoints: wants_all,
            ..ServiceRequirements::default()
        };
        read_by(&watches(api), &requirements)
    }

    /// What a provider declares that reads this annotation.
    fn reading(annotation: &str, wants_namespace_labels: bool) -> ServiceRequirements {
        ServiceRequirements {
            annotations: vec![(annotation.to_owned(), AnnotationType::Text)],
            wants_namespace_labels,
            ..ServiceRequirements::default()
        }
    }

    /// The next changes, as name, labels of the namespace and endpoints.
    async fn next(stream: &mut ChangeStream) -> Vec<(String, Vec<(String, String)>, Vec<(String, u32)>)> {
        let next = stream.next();
        let changes = tokio::time::timeout(Duration::from_mins(1), next).await.unwrap().unwrap();
        let describe = |change| match change {
            Change::Present(facts) => {
                let endpoints = facts.local_endpoints.clone().into_iter().collect();
                (facts.key(), facts.service.namespace_labels.clone(), endpoints)
            }
            Change::Gone(name) => (format!("no {name}"), Vec::new(), Vec::new()),
        };
        changes.into_iter().map(describe).collect()
    }

    /// The last state of each Service, after a minute without changes.
    async fn settle(stream: &mut ChangeStream) -> BTreeMap<String, Arc<ServiceFacts>> {
        let mut last = BTreeMap::new();
        while let Ok(changes) = tokio::time::timeout(Duration::from_mins(1), stream.next()).await {
            for change in changes.unwrap() {
                match change {
                    Change::Present(facts) => drop(last.insert(facts.key(), facts)),
                    Change::Gone(name) => drop(last.remove(&name)),
                }
            }
        }
        last
    }

    #[tokio::test(start_paused = true)]
    async fn only_services_that_matter_or_did_are_followed() {
        let api = ApiServer::new();
        let mut formerly = service("formerly", "ClusterIP", "");
        formerly["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
        for object in [service("web", "LoadBalancer", ""), service("db", "ClusterIP", ""), formerly] {
            api.store("services", object);
        }
        let services = watched(&api, false);
        let mut stream = services.follow();
        let names = |services: BTreeMap<String, _>| services.into_keys().collect::<Vec<_>>();
        assert_eq!(names(settle(&mut stream).await), ["shop/formerly", "shop/web"]);
        api.store("services", service("web", "ClusterIP", ""));
        api.change("services", "shop/formerly", &json!({"metadata": {"finalizers": null}}));
        api.store("services", service("other", "NodePort", ""));
        let settled = settle(&mut stream).await;
        assert!(settled.values().all(|facts| !facts.is_load_balancer && !facts.has_finalizer()));
        assert_eq!(names(settled), ["shop/formerly", "shop/web"]);
        // Another one of the name is not the one that mattered.
        api.delete("services", "shop/web");
        let mut other = service("web", "ClusterIP", "");
        other["metadata"]["uid"] = json!("another");
        api.store("services", other);
        assert_eq!(names(settle(&mut stream).await), Vec::<String>::new());
        assert_eq!(services.known().into_values().collect::<Vec<_>>(), ["shop/formerly"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_of_another_type_is_followed_once_it_was_read_by_name() {
        let api = ApiServer::new();
        api.store("services", service("db", "ClusterIP", ""));
        let services = watched(&api, false);
        let mut stream = services.follow();
        assert_eq!(next(&mut stream).await, []);
        assert_eq!(services.read("shop/none").await.unwrap(), None);
        for _ in 0..2 {
            assert_eq!(services.read("shop/db").await.unwrap().unwrap().key(), "shop/db");
        }
        assert_eq!(next(&mut stream).await[0].0, "shop/db");
        api.delete("services", "shop/db");
        assert_eq!(next(&mut stream).await[0].0, "no shop/db");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_shows_the_namespace_and_endpoints_of_the_service_and_follows_theirs() {
        let api = ApiServer::new();
        api.store("services", service("web", "LoadBalancer", "Local"));
        let services = watched(&api, true);
        let mut stream = services.follow();
        api.store("namespaces", namespace("gold"));
        let (yes, no, unsaid) = (json!({"ready": true, "serving": true}), json!({"ready": false}), json!({}));
        let ending = json!({"ready": true, "serving": false});
        let all = [("a", yes.clone()), ("a", unsaid), ("b", no), ("c", ending)];
        api.store("endpointslices", slice("four", "IPv4", &all));
        let gold = vec![("tier".to_owned(), "gold".to_owned())];
        let change = |labels: &Vec<_>, endpoints: &[(&str, u32)]| {
            let endpoints: Vec<_> =
                endpoints.iter().map(|(node, count)| ((*node).to_owned(), *count)).collect();
            ("shop/web".to_owned(), labels.clone(), endpoints)
        };
        let facts = settle(&mut stream).await.remove("shop/web").unwrap();
        let endpoints = facts.local_endpoints.clone().into_iter().collect();
        assert_eq!(
            (facts.key(), facts.service.namespace_labels.clone(), endpoints),
            change(&gold, &[("a", 2)])
        );
        // The same Pods by their addresses of the other family, and one more.
        let others = [("a", yes.clone()), ("a", yes.clone()), ("d", yes.clone())];
        api.store("endpointslices", slice("six", "IPv6", &others));
        assert_eq!(next(&mut stream).await, [change(&gold, &[("a", 2), ("d", 1)])]);
        api.store("endpointslices", slice("more", "IPv4", &[("a", yes)]));
        assert_eq!(next(&mut stream).await, [change(&gold, &[("a", 3), ("d", 1)])]);
        api.delete("endpointslices", "shop/six");
        assert_eq!(next(&mut stream).await, [change(&gold, &[("a", 3)])]);
        api.store("namespaces", namespace("tin"));
        let tin = vec![("tier".to_owned(), "tin".to_owned())];
        assert_eq!(next(&mut stream).await, [change(&tin, &[("a", 3)])]);
        // The answer to a write has them as well.
        let patch = json!({"metadata": {"uid": "uid-web", "finalizers": ["x/y"]}});
        let written = services.patch(&facts, "test", patch, |_| true).await.unwrap();
        assert_eq!(written.service.namespace_labels, tin);
        assert_eq!(written.local_endpoints, BTreeMap::from([("a".to_owned(), 3)]));
        assert_eq!(next(&mut stream).await, [change(&tin, &[("a", 3)])]);
        // With policy Cluster endpoints don't matter.
        api.store("services", service("web", "LoadBalancer", "Cluster"));
        assert_eq!(next(&mut stream).await, [change(&tin, &[])]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_never_older_than_the_answer_to_a_write() {
        let api = ApiServer::new();
        api.store("services", service("web", "LoadBalancer", ""));
        let services = watched(&api, false);
        let mut stream = services.follow();
        let Some(Change::Present(facts)) = stream.next().await.unwrap().pop() else { panic!() };
        // The watch brings this change first, but the stream hasn't been read yet.
        api.change("services", "shop/web", &json!({"metadata": {"labels": {"a": "b"}}}));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let patch = json!({"metadata": {"uid": "uid-web", "finalizers": ["x/y"]}});
        let written = services.patch(&facts, "test", patch, |_| true).await.unwrap();
        assert_eq!(written.finalizers, ["x/y"]);
        for _ in 0..2 {
            assert_eq!(stream.next().await.unwrap(), [Change::Present(Arc::clone(&written))]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_to_a_deleted_service_does_not_reach_a_new_one_of_the_same_name() {
        let api = ApiServer::new();
        api.store("services", service("web", "LoadBalancer", ""));
        let services = watched(&api, false);
        let Some(Change::Present(facts)) = services.follow().next().await.unwrap().pop() else { panic!() };
        let mut other = service("web", "LoadBalancer", "");
        other["metadata"]["uid"] = json!("another");
        api.store("services", other);
        let patch = json!({"metadata": {"uid": "uid-web", "finalizers": ["x/y"]}});
        let error = services.patch(&facts, "test", patch, |_| true).await.unwrap_err();
        assert!(matches!(error, Error::Gone), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn services_are_not_known_before_their_namespaces() {
        let api = ApiServer::new();
        api.store("services", service("web", "LoadBalancer", "Local"));
        api.store("namespaces", namespace("gold"));
        api.slow("namespaces", Duration::from_secs(5));
        let mut stream = watched(&api, true).follow();
        let first = next(&mut stream).await;
        assert_eq!(first[0].1, [("tier".to_owned(), "gold".to_owned())]);
    }

    #[tokio::test(start_paused = true)]
    async fn providers_share_the_watches_and_each_reads_what_it_declares() {
        let api = ApiServer::new();
        let mut web = service("web", "LoadBalancer", "");
        web["metadata"]["annotations"] = json!({"a.io/x": "1", "b.io/x": "2"});
        api.store("services", web);
        api.store("namespaces", namespace("gold"));
        let (watches, of_a, of_b) = (watches(&api), reading("a.io/x", false), reading("b.io/x", true));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!((api.lists(), api.open_watches()), (vec![], 0), "nothing that no provider needs");

        let annotations = |facts: &ServiceFacts| facts.service.annotations.clone();
        let pair = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
        let a = read_by(&watches, &of_a);
        let mut changes_of_a = a.follow();
        let facts = settle(&mut changes_of_a).await.remove("shop/web").unwrap();
        assert_eq!(annotations(&facts), pair("a.io/x", "1"));
        assert_eq!((api.lists(), api.open_watches()), (vec!["services"], 1));

        let b = read_by(&watches, &of_b);
        let mut changes_of_b = b.follow();
        let facts = settle(&mut changes_of_b).await.remove("shop/web").unwrap();
        assert_eq!(annotations(&facts), pair("b.io/x", "2"));
        assert_eq!(facts.service.namespace_labels, pair("tier", "gold"));
        assert_eq!((api.lists(), api.open_watches()), (vec!["namespaces", "services"], 2));
        assert_eq!(settle(&mut changes_of_a).await, BTreeMap::new(), "no change for a");

        let change = json!({"metadata": {"annotations": {"a.io/x": "3", "b.io/x": "4"}}});
        api.change("services", "shop/web", &change);
        assert_eq!(annotations(&settle(&mut changes_of_a).await["shop/web"]), pair("a.io/x", "3"));
        assert_eq!(annotations(&settle(&mut changes_of_b).await["shop/web"]), pair("b.io/x", "4"));

        drop((b, changes_of_b));
        api.store("namespaces", namespace("tin"));
        api.change("services", "shop/web", &json!({"metadata": {"annotations": {"a.io/x": "5"}}}));
        assert_eq!(annotations(&settle(&mut changes_of_a).await["shop/web"]), pair("a.io/x", "5"));
        assert_eq!((api.lists(), api.open_watches()), (vec![], 1), "no namespaces without b");
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_comes_later_begins_with_a_whole_list() {
        let api = ApiServer::new();
        api.store("services", service("web", "LoadBalancer", ""));
        api.store("services", service("db", "LoadBalancer", ""));
        let watches = watches(&api);
        let first = read_by(&watches, &ServiceRequirements::default());
        settle(&mut first.follow()).await;
        api.slow("services", Duration::from_secs(5));
        let later = read_by(&watches, &ServiceRequirements::default());
        let mut changes = later.follow();
        tokio::time::sleep(Duration::from_secs(1)).await;
        api.change("services", "shop/web", &json!({"metadata": {"labels": {"a": "b"}}}));
        let names: Vec<_> = next(&mut changes).await.into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["shop/db", "shop/web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_went_back_is_known_to_providers_that_come_later() {
        let api = ApiServer::new();
        api.store("services", service("web", "LoadBalancer", ""));
        let watches = watches(&api);
        let first = read_by(&watches, &ServiceRequirements::default());
        settle(&mut first.follow()).await;
        assert!(first.confirm_cluster(None).await.is_ok());
        let backup = api.back_up();
        api.store("services", service("new", "LoadBalancer", ""));
        tokio::time::sleep(Duration::from_mins(1)).await;
        api.restore(backup);
        tokio::time::sleep(2 * VERSION_PERIOD).await;
        drop(first);
        let later = read_by(&watches, &ServiceRequirements::default());
        let known: Vec<_> = settle(&mut later.follow()).await.into_keys().collect();
        assert_eq!(known, ["shop/web"]);
        let refused = later.confirm_cluster(None).await.unwrap_err();
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
    }
}
