//! Converts routes between the contract's generated types and the types that authors see.

use super::{address, address_to_wit, error, in_progress};
use crate::bindings::pileus::provider::types;
use crate::bindings::routes::exports::pileus::provider::routes;
use crate::{Cluster, ListedRoute, Route, RouteAction, RouteChange, RouteOutcome, RouteProgress};

pub(crate) fn cluster(cluster: types::Cluster) -> Cluster {
    let types::Cluster { name, uid, extra } = cluster;
    Cluster { name, uid, extra }
}

pub(crate) fn listed(route: ListedRoute) -> routes::Listed {
    let ListedRoute { name, node, target, addresses, destination, cluster_uid, blackhole, extra } = route;
    let addresses = addresses.into_iter().map(address_to_wit).collect();
    routes::Listed { name, node, target, addresses, destination, cluster_uid, blackhole, extra }
}

pub(crate) fn route_change(change: routes::RouteChange) -> RouteChange {
    let routes::RouteChange { action, resume, extra } = change;
    let action = match action {
        routes::Action::Delete(routes::Listed {
            name,
            node,
            target,
            addresses,
            destination,
            cluster_uid,
            blackhole,
            extra,
        }) => {
            let addresses = addresses.into_iter().map(address).collect();
            RouteAction::Delete(ListedRoute {
                name,
                node,
                target,
                addresses,
                destination,
                cluster_uid,
                blackhole,
                extra,
            })
        }
        routes::Action::Create(routes::Route {
            name_hint,
            node,
            target,
            addresses,
            labels,
            destination,
            extra,
        }) => {
            let addresses = addresses.into_iter().map(address).collect();
            RouteAction::Create(Route { name_hint, node, target, addresses, labels, destination, extra })
        }
    };
    RouteChange { action, resume, extra }
}

pub(crate) fn route_outcome(outcome: RouteOutcome) -> routes::Outcome {
    match outcome {
        Ok(RouteProgress::Done) => routes::Outcome::Done,
        Ok(RouteProgress::InProgress(progress)) => routes::Outcome::InProgress(in_progress(progress)),
        Ok(RouteProgress::Elsewhere) => routes::Outcome::Elsewhere,
        Err(failed) => routes::Outcome::Failed(error(failed)),
    }
}
