//! Flags of the route controller, with upstream's names. The default period is long because events trigger
//! reconciliation, so an idle cluster costs the cloud almost no reads.

use std::time::Duration;

use clap::{ArgAction, Args};
use ipnet::IpNet;
use pileus_cloud::Cluster;
use pileus_controllers::route;

use super::duration::period;
use super::{ControllerName, ControllerSelection};
use crate::error::Error;

/// Flags of the route controller.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Routes")]
pub struct RouteController {
    /// Manage routes within these Pod CIDRs, one or one of each address family, as in 10.244.0.0/16,fd00:10::/48. Routes
    /// outside of them are never touched. Without this flag no routes are managed
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',', value_parser = cidr)]
    pub cluster_cidr: Vec<IpNet>,

    /// Manage routes if the provider can; with false another controller manages them
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, default_missing_value = "true",
        num_args = 0..=1, require_equals = true
    )]
    pub configure_cloud_routes: bool,

    /// Read the cloud's routes at least this often, to find changes that others made
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "30m")]
    pub route_reconciliation_period: Duration,

    /// Keep the taint node.cloudprovider.kubernetes.io/uninitialized, which keeps most Pods away, on a new Node until
    /// its routes exist: until its condition NetworkUnavailable is False with reason RouteCreated. Has no effect if no
    /// routes are managed
    #[arg(long)]
    pub wait_for_routes: bool,
}

impl RouteController {
    /// The settings of the route controller beside the controllers that run; none if no routes are managed.
    ///
    /// # Errors
    /// [`Error::Flag`] for CIDRs that don't fit together, as upstream requires.
    pub(crate) fn route(
        &self,
        cluster: Cluster,
        controllers: &ControllerSelection,
    ) -> Result<Option<route::Settings>, Error> {
        let ranges: Vec<_> = self.cluster_cidr.iter().map(IpNet::trunc).collect();
        let problem = match ranges.as_slice() {
            [] => return Ok(None),
            [_] => None,
            [first, second] if first.addr().is_ipv4() != second.addr().is_ipv4() => None,
            [_, _] => Some("two CIDRs must be of different address families"),
            _ => Some("at most one CIDR of each address family is allowed"),
        };
        if let Some(problem) = problem {
            let value = self.cluster_cidr.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            return Err(Error::Flag { flag: "cluster-cidr", value, problem: problem.to_owned() });
        }
        let settings = route::Settings {
            cluster,
            cluster_ranges: ranges,
            // A node manager may wait for the routes; its flags aren't known here.
            nodes_wait: self.wait_for_routes || !controllers.runs(ControllerName::CloudNode),
            audit_period: self.route_reconciliation_period,
        };
        let is_wanted = self.configure_cloud_routes && controllers.runs(ControllerName::Route);
        Ok(is_wanted.then_some(settings))
    }
}

fn cidr(text: &str) -> Result<IpNet, String> {
    let invalid = |_| "invalid CIDR; write it as in 10.244.0.0/16 or 10.244.0.0/16,fd00:10::/48".to_owned();
    text.parse().map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(ranges: &[&str]) -> RouteController {
        RouteController {
            cluster_cidr: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            configure_cloud_routes: true,
            route_reconciliation_period: Duration::from_mins(30),
            wait_for_routes: false,
        }
    }

    fn route(flags: &RouteController) -> Result<Option<route::Settings>, Error> {
        route_beside(flags, "*")
    }

    fn route_beside(flags: &RouteController, entries: &str) -> Result<Option<route::Settings>, Error> {
        let controllers = entries.split(',').map(|entry| entry.parse().unwrap()).collect();
        let cluster = Cluster { name: "kubernetes".to_owned(), uid: None };
        flags.route(cluster, &ControllerSelection { controllers })
    }

    #[test]
    fn at_most_one_cidr_of_each_family_is_allowed() {
        for (ranges, is_valid) in [
            (&["10.244.0.0/16"][..], true),
            (&["10.244.0.0/16", "fd00::/48"], true),
            (&["10.244.0.0/16", "10.245.0.0/16"], false),
            (&["10.244.0.0/16", "fd00::/48", "fd01::/48"], false),
        ] {
            assert_eq!(route(&flags(ranges)).is_ok(), is_valid, "{ranges:?}");
        }
        let settings = route(&flags(&["10.244.7.0/16"])).unwrap().unwrap();
        assert_eq!(settings.cluster_ranges[0].to_string(), "10.244.0.0/16");
        assert!(cidr("10.244.0.0").unwrap_err().contains("write it as in 10.244.0.0/16"));
    }

    #[test]
    fn without_a_cidr_or_if_disabled_no_routes_are_managed() {
        assert!(route(&flags(&[])).unwrap().is_none());
        let disabled = RouteController { configure_cloud_routes: false, ..flags(&["10.244.0.0/16"]) };
        assert!(route(&disabled).unwrap().is_none());
        assert!(route_beside(&flags(&["10.244.0.0/16"]), "*,-route").unwrap().is_none());
    }

    #[test]
    fn nodes_may_wait_for_routes_where_node_managers_run() {
        for (entries, nodes_wait) in [("*", false), ("*,-cloud-node", true), ("route", true)] {
            let settings = route_beside(&flags(&["10.244.0.0/16"]), entries).unwrap().unwrap();
            assert_eq!(settings.nodes_wait, nodes_wait, "{entries}");
        }
    }
}
