//! Routes of the private network. The cloud locks the network while it changes a route, so routes are changed one after the
//! other. They have no labels: a route belongs to the server that has its gateway's address.

use std::collections::HashMap;

use pileus_guest::http::Source;
use pileus_guest::operation::{self, Status};
use pileus_guest::{
    Address, AddressKind, Cluster, Error, ListedRoute, Route, RouteChange, RouteOutcome, RouteProgress,
    Routes, change_routes_in_turn,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::configuration::IdOrName;
use crate::server::{is_dedicated, provider_id, server_id};
use crate::{Hetzner, Network};

/// A route of a network.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct TableRoute {
    destination: String,
    gateway: String,
}

impl Routes for Hetzner {
    async fn list_routes(&self, _: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        let network = self.route_network().await?;
        let servers = self.servers().list().await?;
        let by_ip: HashMap<_, _> =
            servers.iter().filter_map(|server| Some((server.ip_in(network.id)?, server))).collect();
        let listed = |route: TableRoute| {
            let server = by_ip.get(&*route.gateway);
            ListedRoute {
                name: route.name(),
                node: server.map(|server| server.name.clone()),
                target: server.map(|server| provider_id(server.id)),
                blackhole: server.is_none(),
                addresses: vec![Address::new(AddressKind::InternalIp, route.gateway)],
                destination: route.destination,
                ..ListedRoute::default()
            }
        };
        Ok(network.routes.into_iter().map(listed).collect())
    }

    async fn change_routes(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Vec<RouteOutcome>, Error> {
        Ok(change_routes_in_turn(self, cluster, changes).await)
    }

    async fn create_route(&self, _: &Cluster, route: &Route, resume: Option<&str>) -> RouteOutcome {
        let target = route.require_target()?;
        // Networks are IPv4 only, and dedicated servers have no part in routes: their traffic finds another way.
        if is_dedicated(target) || route.destination.contains(':') {
            return Ok(RouteProgress::Elsewhere);
        }
        if let Some(progress) = operation::follow(resume, async |url| self.poll(url).await).await? {
            return Ok(progress);
        }
        let (id, network) = (server_id(target)?, self.route_network().await?);
        let server = self.servers().read(id).await?;
        let server = server
            .ok_or_else(|| Error::unavailable(format!("server {id} of node {} is gone", route.node)))?;
        let unattached =
            || Error::unavailable(format!("server {id} is not attached to network {}", network.id));
        let gateway = server.ip_in(network.id).ok_or_else(unattached)?.to_owned();
        let new = TableRoute { destination: route.destination.clone(), gateway };
        if network.routes.contains(&new) {
            return Ok(RouteProgress::Done);
        }
        self.change_route(&network, "add_route", &new).await
    }

    async fn delete_route(&self, _: &Cluster, route: &ListedRoute, resume: Option<&str>) -> RouteOutcome {
        if let Some(progress) = operation::follow(resume, async |url| self.poll(url).await).await? {
            return Ok(progress);
        }
        let network = self.route_network().await?;
        match network.routes.iter().find(|existing| existing.name() == route.name) {
            Some(existing) => self.change_route(&network, "delete_route", existing).await,
            None => Ok(RouteProgress::Done),
        }
    }
}

impl Hetzner {
    async fn route_network(&self) -> Result<Network, Error> {
        let none =
            "routes need a network: set `network`, or start Pileus with --configure-cloud-routes=false";
        match &self.network {
            None => Err(Error::invalid(none)),
            Some(IdOrName::Name(name)) => self.network_named(name, Source::Cloud).await,
            Some(IdOrName::Id(id)) => {
                let network = self.collection("network").read(id).await?;
                network.ok_or_else(|| Error::invalid(format!("there is no network {id}")))
            }
        }
    }

    async fn change_route(&self, network: &Network, action: &str, route: &TableRoute) -> RouteOutcome {
        let path = ["networks", &network.id.to_string(), "actions", action];
        match self.act(path, &json!(route)).await? {
            Status::Succeeded => Ok(RouteProgress::Done),
            Status::Running(progress) => Ok(progress.into()),
            Status::Failed(error) => Err(error),
        }
    }
}

impl TableRoute {
    /// What identifies it, for people and to delete it as it was listed.
    fn name(&self) -> String {
        format!("{}-{}", self.gateway, self.destination)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_guest::testing::{Exchange, Host, get, post};
    use pileus_guest::{ErrorKind, RouteAction};
    use serde_json::Value;

    use super::*;

    const API: &str = "http://cloud.test/v1";

    fn cloud() -> Host {
        Host::new().configuration(json!({"endpoint": API, "network": 7}))
    }

    fn network(routes: &[(&str, &str)]) -> Exchange {
        let route =
            |(destination, gateway): &(&str, &str)| json!({"destination": destination, "gateway": gateway});
        let routes: Vec<_> = routes.iter().map(route).collect();
        get(format!("{API}/networks/7")).json(json!({"network": {"id": 7, "routes": routes}}))
    }

    fn server(id: u64) -> Value {
        json!({
            "id": id, "name": format!("node-{id}"), "status": "running", "server_type": {"name": "cx23"},
            "location": {"name": "fsn1"}, "public_net": {"ipv4": null, "ipv6": null},
            "private_net": [{"network": 7, "ip": format!("10.0.0.{id}")}],
        })
    }

    fn one(id: u64) -> Exchange {
        get(format!("{API}/servers/{id}")).json(json!({"server": server(id)}))
    }

    fn create(id: u64) -> RouteChange {
        let target = Some(format!("hcloud://{id}"));
        let route = Route {
            node: format!("node-{id}"),
            target,
            destination: format!("10.244.{id}.0/24"),
            ..Route::default()
        };
        RouteChange { action: RouteAction::Create(route), resume: None, extra: Vec::new() }
    }

    fn to(target: &str, destination: &str) -> RouteChange {
        let (target, destination) = (Some(target.to_owned()), destination.to_owned());
        let route = Route { target, destination, ..Route::default() };
        RouteChange { action: RouteAction::Create(route), resume: None, extra: Vec::new() }
    }

    fn remove(id: u64) -> RouteChange {
        let name = format!("10.0.0.{id}-10.244.{id}.0/24");
        let route = ListedRoute { name, ..ListedRoute::default() };
        RouteChange { action: RouteAction::Delete(route), resume: None, extra: Vec::new() }
    }

    fn action(name: &str, status: &str) -> Exchange {
        let action = json!({"id": 9, "status": status, "error": null});
        post(format!("{API}/networks/7/actions/{name}")).status(201).json(json!({"action": action}))
    }

    #[expect(clippy::unnecessary_wraps, reason = "an outcome, as the others of a row")]
    fn waits(note: Option<&str>) -> Result<RouteProgress, ErrorKind> {
        let resume = note.map(str::to_owned);
        Ok(pileus_guest::InProgress { after: Duration::from_secs(1), resume }.into())
    }

    fn outcomes(host: &Host, changes: &[RouteChange]) -> Vec<Result<RouteProgress, ErrorKind>> {
        let outcomes = host.change_routes::<Hetzner>(&Cluster::default(), changes).unwrap();
        outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.kind)).collect()
    }

    const NOTE: &str = "http://cloud.test/v1/actions/9";

    #[test]
    fn a_route_belongs_to_the_server_with_its_gateway() {
        let servers = get(format!("{API}/servers?per_page=50")).json(json!({"servers": [server(1)]}));
        let host = cloud()
            .exchange(network(&[("10.244.1.0/24", "10.0.0.1"), ("10.244.9.0/24", "10.0.0.9")]))
            .exchange(servers);
        let listed = host.list_routes::<Hetzner>(&Cluster::default()).unwrap();
        let seen: Vec<_> = listed
            .iter()
            .map(|it| (&*it.name, it.node.as_deref(), it.target.as_deref(), it.blackhole))
            .collect();
        let expected = [
            ("10.0.0.1-10.244.1.0/24", Some("node-1"), Some("hcloud://1"), false),
            ("10.0.0.9-10.244.9.0/24", None, None, true),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn routes_are_changed_one_after_the_other() {
        let host = cloud()
            .exchange(network(&[("10.244.3.0/24", "10.0.0.3")]))
            .exchange(action("delete_route", "success"))
            .exchange(network(&[]))
            .exchange(one(1))
            .exchange(action("add_route", "running"));
        let changes = [create(1), create(2), remove(3)];
        assert_eq!(outcomes(&host, &changes), [waits(Some(NOTE)), waits(None), Ok(RouteProgress::Done)]);
        let sent: Value = serde_json::from_slice(&host.requests().last().unwrap().body).unwrap();
        assert_eq!(sent, json!({"destination": "10.244.1.0/24", "gateway": "10.0.0.1"}));
        // The one that waits comes first, and the next follows when it is done.
        let poll =
            |status: &str| get(NOTE).json(json!({"action": {"id": 9, "status": status, "error": null}}));
        let mut changes = [create(1), create(2)];
        changes[1].resume = Some(NOTE.to_owned());
        assert_eq!(outcomes(&cloud().exchange(poll("running")), &changes), [waits(None), waits(Some(NOTE))]);
        let host = cloud()
            .exchange(poll("success"))
            .exchange(network(&[("10.244.2.0/24", "10.0.0.2")]).times(2))
            .exchange(one(2))
            .exchange(one(1))
            .exchange(action("add_route", "success"));
        assert_eq!(outcomes(&host, &changes), [Ok(RouteProgress::Done), Ok(RouteProgress::Done)]);
    }

    #[test]
    fn what_exists_is_not_written_and_what_is_gone_is_deleted() {
        let host = cloud().exchange(network(&[("10.244.1.0/24", "10.0.0.1")]).times(2)).exchange(one(1));
        assert_eq!(
            outcomes(&host, &[create(1), remove(2)]),
            [Ok(RouteProgress::Done), Ok(RouteProgress::Done)]
        );
    }

    #[test]
    fn dedicated_servers_and_ipv6_need_no_route() {
        let changes = [to("hrobot://5", "10.244.5.0/24"), to("hcloud://1", "fd00:10::/64")];
        assert_eq!(
            outcomes(&cloud(), &changes),
            [Ok(RouteProgress::Elsewhere), Ok(RouteProgress::Elsewhere)]
        );
    }

    #[test]
    fn a_refused_change_has_the_error_kind_of_its_code() {
        let refused = |status: u16, code: &str| {
            action("add_route", "").status(status).json(json!({"error": {"code": code, "message": "no"}}))
        };
        let rows = [
            (refused(423, "locked"), waits(None)),
            (refused(409, "conflict"), Err(ErrorKind::Conflict(None))),
            (refused(403, "resource_limit_exceeded"), Err(ErrorKind::Invalid)),
            (refused(422, "invalid_input"), Err(ErrorKind::Invalid)),
            (refused(403, "token_readonly"), Err(ErrorKind::Denied)),
            (action("add_route", "error"), Err(ErrorKind::Unavailable(None))),
        ];
        for (answer, expected) in rows {
            let host = cloud().exchange(network(&[])).exchange(one(1)).exchange(answer);
            assert_eq!(outcomes(&host, &[create(1)]), [expected]);
        }
        let gone = get(format!("{API}/servers/1")).status(404);
        assert_eq!(
            outcomes(&cloud().exchange(network(&[])).exchange(gone), &[create(1)]),
            [Err(ErrorKind::Unavailable(None))]
        );
        let host = Host::new().configuration(json!({"endpoint": API}));
        assert_eq!(outcomes(&host, &[create(1)]), [Err(ErrorKind::Invalid)]);
    }
}
