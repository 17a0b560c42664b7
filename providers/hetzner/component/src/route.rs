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
