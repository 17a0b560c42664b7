//! Routes in the simulated cloud's table. The cloud's routes lead to machines. Labels on a route name its Node and cluster.

use std::collections::BTreeMap;

use pileus_guest::{Cluster, Error, ListedRoute, Route, RouteOutcome, RouteProgress, Routes, labels};
use serde::{Deserialize, Serialize};

use crate::{Simulated, machine_id};

#[derive(Deserialize)]
struct TableRoute {
    name: String,
    destination: String,
    machine: String,
    blackhole: bool,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct NewRoute<'a> {
    destination: &'a str,
    machine: &'a str,
    labels: BTreeMap<String, String>,
}

impl Routes for Simulated {
    async fn list_routes(&self, cluster: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        Ok(self.collection("routes").list().await?.into_iter().map(|route| listed(route, cluster)).collect())
    }

    async fn create_route(&self, cluster: &Cluster, route: &Route, _: Option<&str>) -> RouteOutcome {
        let (machine, labels) = (machine_id(route.require_target()?)?, labels::for_route(cluster, route));
        let new = NewRoute { destination: &route.destination, machine, labels };
        self.collection::<TableRoute>("routes").put(&route.name_hint, &new).await?;
        Ok(RouteProgress::Done)
    }

    async fn delete_route(&self, _: &Cluster, route: &ListedRoute, resume: Option<&str>) -> RouteOutcome {
        let deletion = self.collection::<TableRoute>("routes").delete(&route.name).await?;
        Ok(deletion.progress(resume)?.unwrap_or(RouteProgress::Done))
    }
}

fn listed(route: TableRoute, cluster: &Cluster) -> ListedRoute {
    ListedRoute {
        name: route.name,
        cluster_uid: labels::route_cluster(&route.labels),
        node: labels::route_node(route.labels, cluster),
        target: Some(format!("simulated://{}", route.machine)),
        destination: route.destination,
        blackhole: route.blackhole,
        ..ListedRoute::default()
    }
}

#[cfg(test)]
mod tests {
    use pileus_guest::testing::{Host, delete, get, put};
    use pileus_guest::{ErrorKind, RouteAction, RouteChange};
    use serde_json::{Value, json};

    use super::*;

    const ROUTES: &str = "http://cloud.test/v1/routes";

    fn cloud() -> Host {
        Host::new().configuration(json!({"endpoint": "http://cloud.test"}))
    }

    fn cluster() -> Cluster {
        Cluster { uid: Some("c".to_owned()), ..Cluster::default() }
    }

    fn there(name: &str, cluster: &str) -> Value {
        json!({
            "name": name, "destination": "10.0.0.0/24", "machine": "m-000001", "blackhole": false,
            "labels": {"pileus-node": "node-1", "pileus-cluster": cluster},
        })
    }

    fn route(name: &str, node: Option<&str>, cluster: &str) -> ListedRoute {
        ListedRoute {
            name: name.to_owned(),
            cluster_uid: Some(cluster.to_owned()),
            node: node.map(str::to_owned),
            target: Some("simulated://m-000001".to_owned()),
            destination: "10.0.0.0/24".to_owned(),
            ..ListedRoute::default()
        }
    }

    fn change(action: RouteAction) -> RouteChange {
        RouteChange { action, resume: None, extra: Vec::new() }
    }

    fn create(target: Option<&str>) -> RouteChange {
        change(RouteAction::Create(Route {
            name_hint: "a".to_owned(),
            node: "node-1".to_owned(),
            target: target.map(str::to_owned),
            destination: "10.0.0.0/24".to_owned(),
            ..Route::default()
        }))
    }

    #[test]
    fn all_pages_are_listed_and_routes_of_other_clusters_have_no_node() {
        let host = cloud()
            .exchange(
                get(format!("{ROUTES}?limit=1000")).json(json!({"routes": [there("a", "c")], "next": "n"})),
            )
            .exchange(
                get(format!("{ROUTES}?limit=1000&cursor=n")).json(json!({"routes": [there("b", "other")]})),
            );
        let listed = host.list_routes::<Simulated>(&cluster()).unwrap();
        assert_eq!(listed, [route("a", Some("node-1"), "c"), route("b", None, "other")]);
    }

    #[test]
    fn routes_are_deleted_before_others_are_created() {
        let host = cloud()
            .exchange(delete(format!("{ROUTES}/b")).status(404))
            .exchange(put(format!("{ROUTES}/a")).json(there("a", "c")));
        let changes =
            [create(Some("simulated://m-000001")), change(RouteAction::Delete(route("b", None, "c")))];
        let outcomes = host.change_routes::<Simulated>(&cluster(), &changes).unwrap();
        assert_eq!(outcomes, [Ok(RouteProgress::Done), Ok(RouteProgress::Done)]);
        let [deleted, created] = host.requests().try_into().unwrap();
        assert_eq!((&*deleted.method, &*created.method), ("DELETE", "PUT"));
        let sent: Value = serde_json::from_slice(&created.body).unwrap();
        let labels = json!({"pileus-node": "node-1", "pileus-cluster": "c"});
        assert_eq!(sent, json!({"destination": "10.0.0.0/24", "machine": "m-000001", "labels": labels}));
    }

    #[test]
    fn a_deletion_is_in_progress_until_the_cloud_completes_it() {
        let host = cloud().exchange(delete(format!("{ROUTES}/b")).status(202));
        let change = change(RouteAction::Delete(route("b", None, "c")));
        let outcomes = host.change_routes::<Simulated>(&cluster(), &[change]).unwrap();
        assert!(matches!(outcomes[..], [Ok(RouteProgress::InProgress(_))]), "{outcomes:?}");
    }

    #[test]
    fn a_refused_change_has_the_error_kind_of_its_status() {
        for (status, kind) in
            [(409, ErrorKind::Conflict(None)), (404, ErrorKind::Broken), (403, ErrorKind::Denied)]
        {
            let host = cloud().exchange(put(format!("{ROUTES}/a")).status(status));
            let outcomes =
                host.change_routes::<Simulated>(&cluster(), &[create(Some("simulated://m-000001"))]);
            assert_eq!(outcomes.unwrap()[0].as_ref().unwrap_err().kind, kind, "{status}");
        }
        let outcomes = cloud().change_routes::<Simulated>(&cluster(), &[create(None)]).unwrap();
        assert_eq!(outcomes[0].as_ref().unwrap_err().kind, ErrorKind::Invalid);
    }
}
