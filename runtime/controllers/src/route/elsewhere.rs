//! The ranges whose traffic reaches their Nodes without a route of the provider. The cloud's table has no route for such a range,
//! and a list says nothing about it: only the provider does, when it is asked to create the route.
//!
//! Such a range counts as present until the provider answers otherwise. It is asked again when the Node changes, and at each
//! audit. Pure: the clock is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use pileus_cloud::{Error, RouteProgress};
use tokio::time::Instant;

use super::plan::WantedRoute;
use crate::facts::node::NodeFacts;

/// The ranges, by the Node's UID.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(BTreeMap<(String, IpNet), Answered>);

/// What the provider has answered.
#[derive(Debug)]
struct Answered {
    /// The digest of the route that it was asked for.
    route: u64,
    /// When the next audit of the range is due.
    next_audit: Instant,
}

impl Elsewhere {
    /// Whether a range counts as present.
    pub(super) fn has(&self, node: &NodeFacts, range: IpNet) -> bool {
        self.0.contains_key(&(node.uid.clone(), range))
    }

    /// Whether the provider needn't be asked now. `route` is the digest of the route to ask for.
    pub(super) fn is_settled(&self, wanted: &WantedRoute, route: u64, now: Instant) -> bool {
        let answered = self.0.get(&(wanted.node.uid.clone(), wanted.range));
        answered.is_some_and(|answered| answered.route == route && now < answered.next_audit)
    }

    /// Applies the outcome of a creation. An error changes nothing, unless the Node has changed since the last answer.
    pub(super) fn on_outcome(
        &mut self,
        wanted: &WantedRoute,
        route: u64,
        outcome: &Result<RouteProgress, Error>,
        now: Instant,
        audit_period: Duration,
    ) {
        let key = (wanted.node.uid.clone(), wanted.range);
        match outcome {
            Ok(RouteProgress::Elsewhere) => {
                self.0.insert(key, Answered { route, next_audit: now + audit_period });
            }
            Err(_) if self.0.get(&key).is_some_and(|answered| answered.route == route) => {}
            Ok(RouteProgress::Done | RouteProgress::InProgress { .. }) | Err(_) => {
                self.0.remove(&key);
            }
        }
    }

    /// Removes the ranges that no Node needs any more.
    pub(super) fn retain(&mut self, is_needed: impl Fn(&str, IpNet) -> bool) {
        self.0.retain(|(uid, range), _| is_needed(uid, *range));
    }

    /// When the next audit is due after this time. One that was due at this time has been made since, or is retried.
    pub(super) fn next_after(&self, time: Instant) -> Option<Instant> {
        self.0.values().map(|answered| answered.next_audit).filter(|due| *due > time).min()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pileus_cloud::ErrorKind;

    use super::*;

    #[test]
    fn a_range_counts_until_the_provider_answers_otherwise() {
        type Outcomes = Vec<(u64, Result<RouteProgress, Error>)>;
        let error = || Err(Error::new(ErrorKind::Unavailable(None), "down"));
        let elsewhere = || Ok(RouteProgress::Elsewhere);
        let in_progress = || Ok(RouteProgress::InProgress { after: Duration::ZERO, resume: None });
        let period = Duration::from_mins(30);
        // The outcomes with the digests of the routes, whether the range counts, and whether route 1 need not be asked for.
        let rows: [(&str, Outcomes, bool, bool); 8] = [
            ("never asked", vec![], false, false),
            ("elsewhere", vec![(1, elsewhere())], true, true),
            ("the Node changes", vec![(2, elsewhere())], true, false),
            ("an audit fails", vec![(1, elsewhere()), (1, error())], true, true),
            ("a changed Node fails", vec![(2, elsewhere()), (1, error())], false, false),
            ("created", vec![(1, elsewhere()), (1, Ok(RouteProgress::Done))], false, false),
            ("being created", vec![(1, elsewhere()), (1, in_progress())], false, false),
            ("an error first", vec![(1, error())], false, false),
        ];
        let wanted =
            WantedRoute { node: Arc::new(NodeFacts::registered("a")), range: "10.1.0.0/24".parse().unwrap() };
        for (row, outcomes, counts, is_settled) in rows {
            let (mut known, now) = (Elsewhere::default(), Instant::now());
            for (route, outcome) in outcomes {
                known.on_outcome(&wanted, route, &outcome, now, period);
            }
            assert_eq!(known.has(&wanted.node, wanted.range), counts, "{row}");
            assert_eq!(known.is_settled(&wanted, 1, now), is_settled, "{row}");
            assert!(!known.is_settled(&wanted, 1, now + period), "{row}: at the audit");
            assert_eq!(known.next_after(now), counts.then_some(now + period), "{row}");
            assert_eq!(known.next_after(now + period), None, "{row}");
            let other = NodeFacts { uid: "other".to_owned(), ..NodeFacts::registered("a") };
            assert!(!known.has(&other, wanted.range), "{row}");
            known.retain(|uid, range| uid == "uid-a" && range == wanted.range);
            assert_eq!(known.has(&wanted.node, wanted.range), counts, "{row}");
            known.retain(|_, _| false);
            assert!(!known.has(&wanted.node, wanted.range), "{row}");
        }
    }
}
