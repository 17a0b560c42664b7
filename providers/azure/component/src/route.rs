//! Routes to the Pods of Nodes: a route table that is one document, read once and written once for all changes of a call. Names are
//! those of cloud-provider-azure, with a mark of the cluster at the end, because routes have no tags.

mod name;
mod table;

use std::collections::BTreeMap;

use name::mark_of;
use pileus_guest::http::{self, Document, Response};
use pileus_guest::operation::Status;
use pileus_guest::{
    Address, AddressKind, Cluster, Error, ListedRoute, Route, RouteAction, RouteChange, RouteOutcome,
    RouteProgress, Routes, map_concurrently,
};
use table::{Limits, RouteTable, TableRoute, Wanted, edit};

use crate::Azure;
use crate::arm::operation;
use crate::machine::is_unmanaged;

impl Routes for Azure {
    async fn list_routes(&self, _: &Cluster) -> Result<Vec<ListedRoute>, Error> {
        let response = http::get(self.route_table_url()?).send().await?.or_absent()?;
        let table = response.map(Response::json::<RouteTable>).transpose()?;
        Ok(table.into_iter().flat_map(|table| table.routes).map(listed).collect())
    }

    async fn create_route(&self, cluster: &Cluster, route: &Route, resume: Option<&str>) -> RouteOutcome {
        self.change_route(cluster, RouteAction::Create(route.clone()), resume).await
    }

    async fn delete_route(
        &self,
        cluster: &Cluster,
        route: &ListedRoute,
        resume: Option<&str>,
    ) -> RouteOutcome {
        self.change_route(cluster, RouteAction::Delete(route.clone()), resume).await
    }

    async fn change_routes(
        &self,
        cluster: &Cluster,
        changes: &[RouteChange],
    ) -> Result<Vec<RouteOutcome>, Error> {
        let url = self.route_table_url()?;
        let polled = poll(changes).await;
        let begun = |change: &RouteChange| wanted(cluster, change, &polled);
        let begun: Vec<Result<Wanted, RouteOutcome>> = changes.iter().map(begun).collect();
        let wanted: Vec<_> = begun.iter().filter_map(|change| change.as_ref().ok().cloned()).collect();
        let mut edited = self.edit_table(url, &wanted).await.into_iter();
        let outcome = |change| match change {
            Ok(_) => edited.next(),
            Err(outcome) => Some(outcome),
        };
        Ok(begun.into_iter().filter_map(outcome).collect())
    }
}

impl Azure {
    async fn change_route(
        &self,
        cluster: &Cluster,
        action: RouteAction,
        resume: Option<&str>,
    ) -> RouteOutcome {
        let change = RouteChange { action, resume: resume.map(str::to_owned), extra: Vec::new() };
        let outcomes = self.change_routes(cluster, &[change]).await?;
        outcomes.into_iter().next().unwrap_or(Ok(RouteProgress::Done))
    }

    async fn edit_table(&self, url: String, wanted: &[Wanted]) -> Vec<RouteOutcome> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let is_own = self.route_table.resource_group.eq_ignore_ascii_case(&self.resource_group);
        let limits = Limits {
            location: &self.location,
            maximum: self.route_table.maximum,
            tags: is_own.then_some(&self.tags),
        };
        match Document::read(url).await {
            Ok(document) => document.edit(wanted, |document, wanted| edit(document, wanted, &limits)).await,
            Err(error) => wanted.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// What a change asks of the table, or its outcome if it asks nothing or waits.
fn wanted(
    cluster: &Cluster,
    change: &RouteChange,
    polled: &BTreeMap<&str, Result<Status, Error>>,
) -> Result<Wanted, RouteOutcome> {
    let route = match &change.action {
        RouteAction::Create(route) if is_unmanaged(|key| label(route, key)) => {
            return Err(Ok(RouteProgress::Elsewhere));
        }
        RouteAction::Create(route) => Some(route),
        RouteAction::Delete(_) => None,
    };
    match change.resume.as_deref().and_then(|note| polled.get(note)) {
        Some(Ok(Status::Running(progress))) => return Err(Ok(progress.clone().into())),
        Some(Ok(Status::Failed(error)) | Err(error)) => return Err(Err(error.clone())),
        Some(Ok(Status::Succeeded)) | None => {}
    }
    match (&change.action, route) {
        (RouteAction::Delete(ListedRoute { name, destination, .. }), _) => {
            Ok(Wanted::Deleted { name: name.clone(), range: destination.clone() })
        }
        (RouteAction::Create(route), _) => {
            let next_hop = next_hop(route).ok_or_else(|| {
                let Route { node, destination, .. } = route;
                let message =
                    format!("node {node} has no internal address of the family of {destination} yet");
                Err(Error::unavailable(message))
            })?;
            Ok(Wanted::Created {
                node: route.node.clone(),
                range: route.destination.clone(),
                next_hop: next_hop.to_owned(),
                mark: cluster.uid.as_deref().map(mark_of),
            })
        }
    }
}

/// The status of each operation that changes wait for, asked once.
async fn poll(changes: &[RouteChange]) -> BTreeMap<&str, Result<Status, Error>> {
    let mut notes: Vec<_> = changes.iter().filter_map(|change| change.resume.as_deref()).collect();
    notes.sort_unstable();
    notes.dedup();
    let poll = async |note| (note, operation::poll(note).await);
    map_concurrently(notes, poll).await.into_iter().collect()
}

fn label<'a>(route: &'a Route, key: &str) -> Option<&'a str> {
    route.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// The first internal address of the Node that is of the range's family.
fn next_hop(route: &Route) -> Option<&str> {
    let is_ipv6 = route.destination.contains(':');
    let internal = route.addresses.iter().filter(|address| address.kind == AddressKind::InternalIp);
    internal.map(|address| &*address.value).find(|ip| ip.contains(':') == is_ipv6)
}

fn listed(route: TableRoute) -> ListedRoute {
    ListedRoute {
        node: route.node().map(str::to_owned),
        cluster_uid: route.mark().map(str::to_owned),
        addresses: route.next_hop.map(|ip| Address::new(AddressKind::InternalIp, ip)).into_iter().collect(),
        name: route.name,
        destination: route.prefix,
        ..ListedRoute::default()
    }
}

#[cfg(test)]
mod tests;
