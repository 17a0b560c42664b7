//! The simulator as a process: the resource manager over TLS, and the metadata service, the admin API and the test's own reads over
//! plain HTTP.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
pub(super) use pileus_dev::azure::SUBSCRIPTION;
use pileus_dev::azure::{AzureSimulator, host_and_port};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time;

use crate::SOON;
use crate::web::Web;
use crate::world::document;

pub(super) const TENANT: &str = "22222222-2222-2222-2222-222222222222";

/// Between two looks at the cloud. The resource manager counts them, too, and allows 25 a second.
const PAUSE: Duration = Duration::from_millis(250);

/// A running simulator. Ends when dropped.
pub(super) struct Cloud {
    web: Web,
    pub(super) simulator: AzureSimulator,
    folder: TempDir,
}

/// The ID of a resource of the network's group.
fn network(name: &str) -> String {
    format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/network/providers/Microsoft.Network/{name}")
}

impl Cloud {
    /// A cloud without machines, in which writes take some time.
    pub(super) async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let tls = folder.path().to_str().unwrap();
        let flags =
            ["--subscription", SUBSCRIPTION, "--tenant", TENANT, "--metadata", "127.0.0.1:0", "--tls", tls];
        let simulator = AzureSimulator::start(&flags, SOON).await.unwrap();
        let cloud = Self { web: Web::new(&simulator.metadata), simulator, folder };
        cloud.set_faults(&json!({})).await;
        // The resource group of the route table is there, as it is wherever a network is.
        let network = json!({
            "id": network("virtualNetworks/net"), "location": "eastus",
            "properties": {"addressSpace": {"addressPrefixes": ["10.9.0.0/16"]}},
        });
        cloud.admin(Method::POST, "resources", &json!({"resources": [network]})).await;
        cloud
    }

    /// Sends a request to the admin API, and returns the answer.
    pub(super) async fn admin(&self, method: Method, path: &str, body: &Value) -> Value {
        let answer = self.web.send(method, &format!("/admin/{path}"), &body.to_string()).await;
        assert!(answer.status < 300, "{path} {body}: {answer:?}");
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    /// Replaces all faults. Writes take 300 ms unless these say otherwise.
    pub(super) async fn set_faults(&self, faults: &Value) {
        let mut all = json!({"operations": {"takesMs": 300}});
        all.as_object_mut().unwrap().extend(faults.as_object().unwrap().clone());
        self.admin(Method::PUT, "faults", &all).await;
    }

    /// Sets the answers to the next requests that match, and waits for none of them.
    pub(super) async fn script(&self, answers: &Value) {
        self.admin(Method::PUT, "scripts", answers).await;
    }

    /// Waits until all these answers were given.
    pub(super) async fn scripts_end(&self) {
        let waits = async || self.admin(Method::GET, "scripts", &Value::Null).await != json!([]);
        let all = async {
            while waits().await {
                time::sleep(PAUSE).await;
            }
        };
        assert!(time::timeout(SOON, all).await.is_ok(), "an answer is not met");
    }

    /// Creates machines of an arrangement in the group of the cluster, and returns the names of their computers.
    pub(super) async fn create(&self, arrangement: &str, count: u32, prefix: &str) -> Vec<String> {
        self.create_as(
            &json!({"count": count, "arrangement": arrangement, "prefix": prefix, "group": "Nodes"}),
        )
        .await
    }

    /// As [`Cloud::create`], with more to say about the machines.
    pub(super) async fn create_as(&self, machines: &Value) -> Vec<String> {
        let created = self.admin(Method::POST, "nodes", machines).await;
        created["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    /// Lets something happen to a machine.
    pub(super) async fn act(&self, machine: &str, action: &str) {
        self.admin(Method::POST, "machines", &json!({"machines": [machine], "action": action})).await;
    }

    /// A file with this content.
    pub(super) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The document for the provider, with a grant for this cloud alone.
    pub(super) fn document(&self) -> Value {
        let configuration = json!({
            "resourceManagerEndpoint": self.simulator.manager, "tenantId": TENANT,
            "SubscriptionID": SUBSCRIPTION, "resourceGroup": "NODES",
            "location": "eastus", "routeTableName": "routes", "routeTableResourceGroup": "network",
            "vmssCacheTTLInSeconds": 60, "loadBalancerSku": "standard",
        });
        let (host, port) = host_and_port(&self.simulator.manager);
        let grant = json!({
            "host": host, "port": port, "addresses": ["127.0.0.1"], "methods": ["GET", "PUT"],
            "paths": [format!("/subscriptions/{SUBSCRIPTION}/")],
        });
        let mut document = document("azure-provider", &configuration, &json!([grant]));
        document["spec"]["connection"] = json!({"caBundle": self.folder.path().join("ca.pem")});
        document
    }

    /// The URL of the token endpoint.
    pub(super) fn token_url(&self) -> String {
        format!("{}/{TENANT}/oauth2/v2.0/token", self.simulator.manager)
    }

    /// A resource or a list, as the resource manager shows it. None if there is no such resource.
    pub(super) async fn get(&self, path: &str, version: &str) -> Option<Value> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let answer = self.web.get(&format!("{path}{separator}api-version={version}")).await;
        assert!(matches!(answer.status, 200 | 404), "{path}: {answer:?}");
        (answer.status == 200).then(|| answer.json())
    }

    /// Puts a route into the table that isn't Pileus', with a write of another client.
    pub(super) async fn put_route(&self, name: &str, range: &str, next_hop: &str) {
        let path = format!("{}/routes/{name}?api-version=2025-05-01", network("routeTables/routes"));
        let route = json!({"properties": {
            "addressPrefix": range, "nextHopType": "VirtualAppliance", "nextHopIpAddress": next_hop,
        }});
        let answer = self.web.send(Method::PUT, &path, &route.to_string()).await;
        assert!(answer.status < 300, "{answer:?}");
    }

    /// Creates the table, or replaces it, with routes as `(name, range, next hop)`, at once and without an operation.
    pub(super) async fn put_table(&self, routes: &[(&str, &str, &str)]) {
        let route = |(name, range, next_hop): &(&str, &str, &str)| {
            json!({"name": name, "properties": {
                "addressPrefix": range, "nextHopType": "VirtualAppliance", "nextHopIpAddress": next_hop,
            }})
        };
        let routes: Vec<_> = routes.iter().map(route).collect();
        let table = json!({
            "id": network("routeTables/routes"), "location": "eastus", "properties": {"routes": routes},
        });
        self.admin(Method::POST, "resources", &json!({"resources": [table]})).await;
    }

    /// The routes of the table by their range, as the name and the next hop.
    pub(super) async fn routes(&self) -> BTreeMap<String, (String, String)> {
        let table = self.get(&network("routeTables/routes"), "2025-05-01").await.unwrap_or_default();
        let routes = table["properties"]["routes"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let route = |route: &Value| {
            let properties = &route["properties"];
            (
                text(&properties["addressPrefix"]),
                (text(&route["name"]), text(&properties["nextHopIpAddress"])),
            )
        };
        routes.map(route).collect()
    }

    /// Waits until the table has routes for exactly these ranges, and returns it.
    pub(super) async fn routes_are(&self, wanted: &[String]) -> BTreeMap<String, (String, String)> {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        let mut last = BTreeMap::new();
        let search = async {
            loop {
                last = self.routes().await;
                if last.keys().eq(&wanted) {
                    return;
                }
                time::sleep(PAUSE).await;
            }
        };
        let is_so = time::timeout(SOON, search).await.is_ok();
        assert!(is_so, "expected {wanted:?}, the table stays at {last:#?}");
        last
    }

    /// The requests after this one, the oldest first.
    pub(super) async fn journal(&self, after: u64) -> Vec<Value> {
        let journal = self.web.get(&format!("/admin/journal?after={after}")).await.json();
        journal["requests"].as_array().unwrap().clone()
    }

    /// The number of the last request.
    pub(super) async fn now(&self) -> u64 {
        self.journal(0).await.last().map_or(0, |request| request["number"].as_u64().unwrap())
    }

    /// The writes after this request. The test's own are among them.
    pub(super) async fn writes(&self, after: u64) -> Vec<Value> {
        let is_write = |request: &Value| {
            request["method"] != "GET" && !request["path"].as_str().unwrap().contains("oauth2")
        };
        self.journal(after).await.into_iter().filter(is_write).collect()
    }

    /// Waits until a request after this one was answered so, and returns it.
    pub(super) async fn answered(&self, after: u64, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        let search = async {
            loop {
                found = self.journal(after).await.into_iter().find(&is_so);
                if found.is_some() {
                    return;
                }
                time::sleep(PAUSE).await;
            }
        };
        assert!(time::timeout(SOON, search).await.is_ok(), "no such answer");
        found.unwrap()
    }
}
