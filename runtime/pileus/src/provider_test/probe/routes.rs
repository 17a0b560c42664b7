//! The scenario of routes, and their removal.

use std::time::Duration;

use ipnet::IpNet;
use pileus_cloud::{ListedRoute, ProviderId, Route, RouteAction, RouteChange, RouteProgress, Target};

use super::super::changes::{CallFailure, CallRecord, Changes, FaultRecord, Listing, Scenario, Step};
use super::super::cloud::CloudMode;
use super::super::describe;
use super::settle::{Outcomes, list, once, settle};
use super::{Caller, faults_but_silence, finished};
use crate::error::Error;

impl Caller {
    /// All observations but those of a cloud that never answers.
    pub(super) async fn routes_changed(
        &self,
        nodes: &[Target],
        progress: &mut dyn FnMut(&str),
    ) -> Result<Changes<ListedRoute>, Error> {
        let scenario = match self.permit(nodes, "two routes") {
            Err(needs) => Err(needs),
            // The test's own routes would take their traffic, and equal ones would be removed at the end.
            Ok(_) if self.list_overlapping_routes().await.is_ok_and(|there| !there.is_empty()) => {
                Err(format!(
                    "a route table without other routes for addresses of {}: run the test again, which picks another part of \
                 10.0.0.0/8, or use another table",
                    self.destinations().join(" and ")
                ))
            }
            Ok(stop) => {
                progress("creating two routes in the cloud");
                let mut scenario = Scenario::of(self.cluster.uid.clone(), self.destinations());
                let run = Box::pin(self.run_routes(nodes, &mut scenario));
                let stopped = stop.run_until_cancelled(run).await.is_none();
                progress("removing what was created");
                scenario.left = self.remove_routes().await;
                finished(stopped, &scenario.left)?;
                Ok(scenario)
            }
        };
        let mut faults = Vec::new();
        for mode in faults_but_silence() {
            progress(&format!("changing routes with {}", mode.as_str()));
            faults.push(self.routes_fault(mode, nodes).await);
        }
        Ok(Changes { scenario, faults, deadlines: (Duration::ZERO, Duration::ZERO) })
    }

    /// Runs the scenario with two routes to CIDRs that are not in use.
    pub(super) async fn run_routes(&self, nodes: &[Target], scenario: &mut Scenario<ListedRoute>) {
        let Some((one, other)) = nodes.first().zip(nodes.last()) else { return };
        let [first, second] = self.destinations();
        let both = || vec![create(&first, one), create(&second, other)];
        let made = self.settle_routes(both()).await;
        let is_made = made.done().is_some();
        scenario.calls.push((Step::Make, made));
        if !is_made {
            return;
        }
        scenario.calls.push((Step::Again, self.settle_routes(both()).await));
        let mut route = self.list_ours(Step::Again, scenario).await;
        if let Some(listed) = &route
            && one.node != other.node
        {
            let moved = vec![delete(listed), create(&first, other)];
            scenario.calls.push((Step::Move, self.settle_routes(moved).await));
            route = self.list_ours(Step::Move, scenario).await;
        }
        if let Some(route) = route {
            scenario.calls.push((Step::Delete, self.settle_routes(vec![delete(&route)]).await));
            self.list_ours(Step::Delete, scenario).await;
            scenario.calls.push((Step::DeleteAgain, self.settle_routes(vec![delete(&route)]).await));
        }
    }

    /// Removes everything that the test may have created, and returns what it could not remove.
    pub(super) async fn remove_routes(&self) -> Vec<String> {
        for route in self.list_test_routes().await.into_iter().flatten() {
            self.settle_routes(vec![delete(&route)]).await;
        }
        match self.list_test_routes().await {
            Ok(ours) => ours.into_iter().map(|route| route.name).collect(),
            Err(failure) => {
                vec![format!("unknown, because list fails: {}", describe::call_failure(&failure))]
            }
        }
    }

    async fn list_test_routes(&self) -> Result<Vec<ListedRoute>, CallFailure> {
        let listed = self.list_routes(CloudMode::Real).await.items?;
        let is_ours = |route: &ListedRoute| self.destinations().contains(&route.destination);
        Ok(listed.into_iter().filter(is_ours).collect())
    }

    async fn list_overlapping_routes(&self) -> Result<Vec<ListedRoute>, CallFailure> {
        let listed = self.list_routes(CloudMode::Real).await.items?;
        let overlaps = |route: &ListedRoute| overlaps(&route.destination, &self.destinations());
        Ok(listed.into_iter().filter(overlaps).collect())
    }

    /// A change and a list with a cloud that fails. No request reaches the cloud.
    pub(super) async fn routes_fault(&self, mode: CloudMode, nodes: &[Target]) -> FaultRecord<ListedRoute> {
        let made_up = Target {
            node: self.unknown_node.clone(),
            uid: super::uid(&self.unknown_node, "node"),
            provider_id: self.made_up_id(),
            addresses: Vec::new(),
            zone: None,
            labels: Vec::new(),
        };
        let changes = [create(&self.destinations()[0], nodes.first().unwrap_or(&made_up))];
        let call = self.guest.change_routes_once(&self.cluster, &changes);
        let call = once(&self.cloud, mode, sent(&changes), call).await;
        let list = match mode {
            CloudMode::Silence | CloudMode::NotFound => None,
            mode => Some(self.list_routes(mode).await),
        };
        FaultRecord { mode, call, list }
    }

    async fn settle_routes(&self, changes: Vec<RouteChange>) -> CallRecord {
        let sent = sent(&changes);
        let call = async |due: &[RouteChange]| -> Outcomes<RouteProgress> {
            self.guest.change_routes_once(&self.cluster, due).await
        };
        settle(&self.cloud, sent, changes, call).await
    }

    async fn list_routes(&self, mode: CloudMode) -> Listing<ListedRoute> {
        list(&self.cloud, mode, async || self.guest.list_routes_once(&self.cluster).await).await
    }

    /// Lists routes, and returns the first of the test's own.
    async fn list_ours(&self, step: Step, scenario: &mut Scenario<ListedRoute>) -> Option<ListedRoute> {
        let listed = self.list_routes(CloudMode::Real).await;
        let [destination, _] = self.destinations();
        let first = listed.items.iter().flatten().find(|route| route.destination == destination).cloned();
        scenario.lists.push((step, listed));
        first
    }

    fn destinations(&self) -> [String; 2] {
        destinations(&self.unknown_node)
    }

    /// The provider ID of an instance that does not exist.
    fn made_up_id(&self) -> ProviderId {
        let id = ProviderId::parse(&format!("{}://{}", self.scheme, self.unknown_node));
        id.unwrap_or_else(|_| {
            ProviderId::parse("pileus-no-such-cloud://machine").expect("it has a scheme and a rest")
        })
    }
}

/// The halves of a random /24 of 10.0.0.0/8, so that two tests in one route table practically never pick the same. The block is
/// private because some clouds have no routes to other addresses.
fn destinations(unknown_node: &str) -> [String; 2] {
    let random: String = super::uid(unknown_node, "range").chars().take(4).collect();
    let [second, third] = u16::from_str_radix(&random, 16).unwrap_or_default().to_be_bytes();
    [0, 128].map(|fourth| format!("10.{second}.{third}.{fourth}/25"))
}

/// Whether a listed route shares addresses with one of these. A default route does so with all.
fn overlaps(listed: &str, destinations: &[String]) -> bool {
    let Ok(listed) = listed.parse::<IpNet>() else { return false };
    let ours = destinations.iter().filter_map(|destination| destination.parse::<IpNet>().ok());
    listed.prefix_len() > 0 && ours.into_iter().any(|ours| ours.contains(&listed) || listed.contains(&ours))
}

fn create(destination: &str, node: &Target) -> RouteChange {
    let Target { node, uid, provider_id, addresses, .. } = node;
    let route = Route {
        name_hint: format!("{uid}-{}", destination.replace(['.', '/'], "-")),
        node: node.clone(),
        target: Some(provider_id.clone()),
        addresses: addresses.clone(),
        labels: Vec::new(),
        destination: destination.parse().expect("it is a CIDR"),
    };
    RouteChange { action: RouteAction::Create(route), resume: None }
}

fn delete(route: &ListedRoute) -> RouteChange {
    RouteChange { action: RouteAction::Delete(route.clone()), resume: None }
}

fn sent(changes: &[RouteChange]) -> String {
    let action = |change: &RouteChange| match &change.action {
        RouteAction::Create(route) => format!("create {} to {}", route.destination, route.node),
        RouteAction::Delete(route) => format!("delete {}", route.name),
    };
    format!("change([{}])", changes.iter().map(action).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tests_pick_different_destinations() {
        let tests = 0..1_000;
        let picked: BTreeSet<_> =
            tests.clone().flat_map(|test| destinations(&format!("pileus-unknown-{test:08x}"))).collect();
        assert!(picked.len() > 2 * 980, "{} of 1000 pairs out of 65536", picked.len());
        for destination in picked {
            let range: IpNet = destination.parse().unwrap();
            assert!(range.trunc() == range && destination.starts_with("10."), "{destination}");
        }
    }

    #[test]
    fn routes_that_share_addresses_with_those_of_the_test_overlap() {
        let ours = ["10.1.2.0/25", "10.1.2.128/25"].map(str::to_owned);
        for (listed, expected) in [
            ("10.1.2.0/25", true),
            ("10.1.2.0/24", true),
            ("10.1.2.200/32", true),
            ("10.0.0.0/8", true),
            ("10.1.3.0/24", false),
            ("0.0.0.0/0", false),
            ("::/0", false),
            ("fd00::/8", false),
            ("a prefix list", false),
        ] {
            assert_eq!(overlaps(listed, &ours), expected, "{listed}");
        }
    }
}
