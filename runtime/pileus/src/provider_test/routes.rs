//! Checks of what a provider does with routes: in the real cloud, if the test may change it, and with a cloud that fails.

use pileus_cloud::{ErrorKind, ListedRoute, is_uid_of};
use pileus_host::Capability;

use super::changes::claims::{self, Changing, TWO_NODES, done, items_of, precondition, wrong_list};
use super::changes::failures;
use super::changes::{ChangeOutcome, Changes, Scenario, Step};
use super::check::{Check, CheckResult, NotPassed, failed};
use super::describe;
use super::facts::Facts;

const CREATED: &str = "routes.create has to pass first";
const LISTED: &str = "routes.listed has to pass first";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "routes.create",
        claim: "a route is created, and creating it again is no error",
        matters: "without its route the Pods of a Node can't be reached, and an answer may get lost",
        test: create,
    },
    claims::one_each::<Routing>(
        "routes.one-each",
        "the host discards a list of another length, so none of its Nodes gets its route",
    ),
    claims::listed::<Routing>(
        "routes.listed",
        "a created route is listed once, with its CIDR and its Node or instance",
        "the host creates missing routes again and again, and deletes routes without a Node",
    ),
    Check {
        id: "routes.move",
        claim: "a CIDR moves from one Node to another in one call",
        matters: "a new Node may get the Pod CIDR of a deleted one; within a call, deletions come before creations",
        test: moves,
    },
    claims::delete::<Routing>(
        "routes.delete",
        "the table is shared with others, and the routes of this cluster carry its traffic",
    ),
    claims::gone::<Routing>(
        "routes.gone",
        "if an answer is lost the host asks again; after an error it would do so forever",
    ),
    claims::left::<Routing>("routes.left", "a leftover route misdirects traffic"),
    failures::read_only::<Routing>("routes.read-only"),
    failures::faults::<Routing>(
        "routes.trouble",
        "the host would mark the network of a Node as available while its route is missing",
    ),
    failures::whole_list::<Routing>(
        "routes.whole-list",
        "the host creates what a list lacks; a part of the table makes it write all of it",
    ),
    failures::deadline::<Routing>("routes.deadline"),
];

/// The capability of managing routes.
enum Routing {}

impl Changing for Routing {
    type Item = ListedRoute;
    const CAPABILITY: Capability = Capability::Routes;
    const LIST: &'static str = "list()";
    const CREATED: &'static str = CREATED;
    const LISTED: &'static str = LISTED;

    fn changes(facts: &Facts) -> Option<&Changes<ListedRoute>> {
        facts.routes.as_ref()
    }

    fn is_of(route: &ListedRoute, cluster: &str, destination: &str) -> bool {
        // The host leaves a route of another cluster alone, and so would never find its own.
        let is_foreign = route.cluster_uid.as_deref().is_some_and(|mark| !is_uid_of(mark, cluster));
        !is_foreign && route.destination == destination
    }

    fn is_complete(items: &[&ListedRoute]) -> bool {
        match items {
            [route] => route.node.is_some() || route.target.is_some(),
            _ => false,
        }
    }

    fn listing_advice(_: &str, destination: &str) -> String {
        format!(
            "list one route to {destination}, with the Node stored with it or the instance that it leads to, and with this \
             cluster's UID or none"
        )
    }

    fn describe(listed: &[ListedRoute]) -> String {
        describe::routes(listed)
    }
}

fn scenario(facts: &Facts) -> Result<&Scenario<ListedRoute>, NotPassed> {
    claims::scenario::<Routing>(facts)
}

fn create(facts: &Facts) -> CheckResult {
    let scenario = scenario(facts)?;
    let created = scenario.call(Step::Make, CREATED)?;
    done(created, "create the route to the instance that `target` names, and answer done")?;
    let again = scenario.call(Step::Again, CREATED)?;
    done(again, "answer done if the same route already exists, for example after a 409 that says so")
        .map(|_| ())
}

fn moves(facts: &Facts) -> CheckResult {
    let scenario = scenario(facts)?;
    precondition(claims::test_listed::<Routing>(facts), LISTED)?;
    let call = scenario.call(Step::Move, TWO_NODES)?;
    let advice = "make the deletions of a call before its creations, and answer done for both";
    done(call, advice)?;
    // The host retries, so the route is right in the end; until then its traffic is lost.
    let first: Vec<_> = call.history.iter().filter_map(|outcomes| outcomes.first().cloned()).collect();
    if let [ChangeOutcome::Done(_), ChangeOutcome::Failed(error)] = first.as_slice()
        && matches!(error.kind, ErrorKind::Conflict(_))
    {
        let received = format!("at first {}", describe::change_outcomes(&Ok(first)));
        return Err(failed(&call.sent, received, advice));
    }
    let Scenario { cluster, keys: [first, _], .. } = scenario;
    let before = items_of::<Routing>(scenario.list(Step::Again, CREATED)?, cluster, first);
    let listed = scenario.list(Step::Move, CREATED)?;
    match (before.as_slice(), items_of::<Routing>(listed, cluster, first).as_slice()) {
        ([before], [after]) if (&before.node, &before.target) != (&after.node, &after.target) => Ok(()),
        _ => {
            let advice = format!("keep one route to {first}, to the Node that it was created for last");
            Err(wrong_list::<Routing>(call, listed, advice))
        }
    }
}

#[cfg(test)]
mod tests {
    use pileus_cloud::Error;

    use super::super::samples::changes::{call, list};
    use super::super::samples::{facts, outcomes};
    use super::*;

    /// Each row breaks one rule in the observations of a conforming provider.
    #[test]
    fn each_mistake_fails_exactly_its_own_check() {
        type Mistake = fn(&mut Facts);
        let rows: [(&str, Mistake); 10] = [
            ("routes.create", |it| call(&mut it.routes, Step::Make).outcomes = Ok(broken())),
            ("routes.create", |it| call(&mut it.routes, Step::Again).outcomes = Ok(broken())),
            ("routes.listed", |it| drop(list(&mut it.routes, Step::Again).pop())),
            ("routes.listed", |it| {
                let route = &mut list(&mut it.routes, Step::Again)[1];
                (route.node, route.target) = (None, None);
            }),
            ("routes.listed", |it| {
                list(&mut it.routes, Step::Again)[1].cluster_uid = Some("another".to_owned());
            }),
            ("routes.listed", |it| {
                let route = list(&mut it.routes, Step::Again)[1].clone();
                list(&mut it.routes, Step::Again).push(route);
            }),
            ("routes.move", |it| call(&mut it.routes, Step::Move).outcomes = Ok(broken())),
            ("routes.move", |it| drop(list(&mut it.routes, Step::Move).pop())),
            ("routes.move", |it| {
                let taken = Error::new(ErrorKind::Conflict(None), "the range is taken");
                call(&mut it.routes, Step::Move).history[1].insert(0, ChangeOutcome::Failed(taken));
            }),
            ("routes.move", |it| {
                let before = list(&mut it.routes, Step::Again)[1].clone();
                list(&mut it.routes, Step::Move)[2] = before;
            }),
        ];
        for (number, (expected, mistake)) in rows.into_iter().enumerate() {
            let mut facts = facts();
            mistake(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected], "{number}");
        }
    }

    fn broken() -> Vec<ChangeOutcome> {
        vec![ChangeOutcome::Failed(Error::new(ErrorKind::Broken, "it can't"))]
    }

    #[test]
    fn a_route_may_be_listed_with_the_beginning_of_the_clusters_uid() {
        let cluster = "0f3c7a1e-52b4-4d6e-9a80-1c2d3e4f5a6b";
        for (mark, expected) in [
            (None, true),
            (Some(cluster), true),
            (Some("0f3c7a1e52b44d6e9a801c2d3e4f5a6"), true),
            (Some("0f3c7a1e52b44d6e9a801c2"), false),
            (Some("another"), false),
        ] {
            let mut facts = facts();
            let route = &mut list(&mut facts.routes, Step::Again)[1];
            route.cluster_uid = mark.map(str::to_owned);
            assert_eq!(Routing::is_of(route, cluster, &route.destination), expected, "{mark:?}");
        }
    }

    #[test]
    fn checks_that_change_the_cloud_need_a_flag() {
        let mut facts = facts();
        facts.routes.as_mut().unwrap().scenario = Err("--allow-changes, which …".to_owned());
        let needing = CHECKS.iter().filter(|check| {
            let result = (check.test)(&facts);
            matches!(result, Err(NotPassed::NotRun(needs)) if needs.starts_with("--allow-changes"))
        });
        let needing: Vec<_> = needing.map(|check| check.id.trim_start_matches("routes.")).collect();
        assert_eq!(needing, ["create", "one-each", "listed", "move", "delete", "gone", "left"]);
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
    }
}
