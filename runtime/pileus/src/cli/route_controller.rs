//! The flags of the route controller: upstream's names, and defaults that cost a cloud no reads.

use std::time::Duration;

use clap::{ArgAction, Args};
use ipnet::IpNet;
use pileus_cloud::Cluster;
use pileus_controllers::route;

use super::duration::period;
use crate::error::Error;

/// Flags of the route controller.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Routes")]
pub struct RouteController {
    /// The ranges of all Pods' addresses, one or one of each family, as in 10.244.0.0/16,fd00:10::/48. Routes within them
    /// follow the nodes, and others are never touched. Without it no routes are programmed
    #[arg(long, value_name = "RANGE[,RANGE]", value_delimiter = ',', value_parser = range)]
    pub cluster_cidr: Vec<IpNet>,

    /// Whether routes are programmed where the provider can; false leaves them to somebody else
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true, default_missing_value = "true",
        num_args = 0..=1, require_equals = true
    )]
    pub configure_cloud_routes: bool,

    /// How often the cloud's routes are read although no node has changed: somebody else may have changed them
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "30m")]
    pub route_reconciliation_period: Duration,

    /// Keep a new node's taint node.cloudprovider.kubernetes.io/uninitialized, and with it most Pods off, until its routes
    /// are there: until its condition NetworkUnavailable is False with reason RouteCreated. Where no routes are programmed
    /// no node waits
    #[arg(long)]
    pub wait_for_routes: bool,
}

impl RouteController {
    /// What the controller is told; none where there is nothing for it to do.
    ///
    /// # Errors
    /// [`Error::Flag`] for ranges that don't go together, as upstream demands.
    pub(crate) fn route(&self, cluster: Cluster) -> Result<Option<route::Settings>, Error> {
        let ranges: Vec<_> = self.cluster_cidr.iter().map(IpNet::trunc).collect();
        let problem = match ranges.as_slice() {
            [] => return Ok(None),
            [_] => None,
            [first, second] if first.addr().is_ipv4() != second.addr().is_ipv4() => None,
            [_, _] => Some("two ranges must be of different families"),
            _ => Some("there can be one range, or one of each family"),
        };
        if let Some(problem) = problem {
            let value = self.cluster_cidr.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            return Err(Error::Flag { flag: "cluster-cidr", value, problem: problem.to_owned() });
        }
        let settings = route::Settings {
            cluster,
            cluster_ranges: ranges,
            nodes_wait: self.wait_for_routes,
            audit_period: self.route_reconciliation_period,
        };
        Ok(self.configure_cloud_routes.then_some(settings))
    }
}

fn range(text: &str) -> Result<IpNet, String> {
    let wrong =
        |_| "this is no address range; write it as in 10.244.0.0/16 or 10.244.0.0/16,fd00:10::/48".to_owned();
    text.parse().map_err(wrong)
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
        flags.route(Cluster { name: "kubernetes".to_owned(), uid: None })
    }

    #[test]
    fn ranges_are_one_or_one_of_each_family() {
        for (ranges, is_right) in [
            (&["10.244.0.0/16"][..], true),
            (&["10.244.0.0/16", "fd00::/48"], true),
            (&["10.244.0.0/16", "10.245.0.0/16"], false),
            (&["10.244.0.0/16", "fd00::/48", "fd01::/48"], false),
        ] {
            assert_eq!(route(&flags(ranges)).is_ok(), is_right, "{ranges:?}");
        }
        let settings = route(&flags(&["10.244.7.0/16"])).unwrap().unwrap();
        assert_eq!(settings.cluster_ranges[0].to_string(), "10.244.0.0/16");
        assert!(range("10.244.0.0").unwrap_err().contains("write it as in 10.244.0.0/16"));
    }

    #[test]
    fn without_ranges_or_where_it_is_not_wanted_there_is_nothing_to_do() {
        assert!(route(&flags(&[])).unwrap().is_none());
        let unwanted = RouteController { configure_cloud_routes: false, ..flags(&["10.244.0.0/16"]) };
        assert!(route(&unwanted).unwrap().is_none());
    }
}
