//! What a provider does with routes: in the cloud, where that is allowed, and in front of one that is in trouble.

use pileus_cloud::{ErrorKind, ListedRoute};
use pileus_host::Capability;

use super::changes::judge::{self, TWO_NODES, done};
use super::changes::{Came, Changes, Played, Step};
use super::check::{Check, Shortfall, Verdict, failed, not_run};
use super::facts::Facts;
use super::instances::{callable, seen};
use super::words;

/// What there is nothing to look at without.
const CREATED: &str = "routes.create has to pass first";
/// What a route can't be told from others without.
const LISTED: &str = "routes.listed has to pass first";

const LIST: &str = "list()";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "routes.create",
        claim: "a route is created, and created once more without an error",
        matters: "without its route no Pod of a Node is reached, and an answer may get lost",
        judge: create,
    },
    Check {
        id: "routes.one-each",
        claim: "every call brings one outcome for each change",
        matters: "the host throws a list of another length away as a whole: no Node of it gets its route",
        judge: |facts| judge::one_each(routing(facts)?),
    },
    Check {
        id: "routes.listed",
        claim: "what was created is listed once, with its range and its Node or machine",
        matters: "the host creates what the list lacks, again and again, and deletes what leads to nobody",
        judge: listed,
    },
    Check {
        id: "routes.move",
        claim: "a range moves from one Node to another in one call",
        matters: "a new Node gets the range of one that is gone; with both in one call the deletion comes first",
        judge: moves,
    },
    Check {
        id: "routes.delete",
        claim: "a route is deleted as it was listed, and the other routes stay",
        matters: "the table is shared with others, and the routes of this cluster carry its traffic",
        judge: delete,
    },
    Check {
        id: "routes.gone",
        claim: "deleting what is gone is done",
        matters: "an answer gets lost and the host asks again; with an error it does so for ever",
        judge: gone,
    },
    Check {
        id: "routes.left",
        claim: "nothing of this test is left in the cloud",
        matters: "a route that is left leads traffic astray",
        judge: |facts| judge::nothing_left(routing(facts)?),
    },
    Check {
        id: "routes.read-only",
        claim: "list makes no request that could change something",
        matters: "a write drops the host's cache and isn't repeated; what no rule matches counts as one",
        judge: |facts| judge::lists_only_read(routing(facts)?, LIST),
    },
    Check {
        id: "routes.trouble",
        claim: "what a cloud in trouble doesn't confirm is an error of the right kind, and not done",
        matters: "the host would tell a Node that its network works while nothing leads to it",
        judge: |facts| judge::kinds(routing(facts)?),
    },
    Check {
        id: "routes.whole-list",
        claim: "list fails where it can't read all of the table",
        matters: "the host creates what a list lacks; a part of the table makes it write all of it",
        judge: |facts| judge::lists_are_whole(routing(facts)?, LIST),
    },
    Check {
        id: "routes.deadline",
        claim: "a call stops by itself after its soft deadline, with in-progress or an error for what is left",
        matters: "a call that the host has to stop at the hard deadline loses the outcomes of all its Nodes",
        judge: |facts| judge::stops(routing(facts)?),
    },
];

/// What was seen of it, or why there is nothing.
fn routing(facts: &Facts) -> Result<&Changes<ListedRoute>, Shortfall> {
    callable(facts, Capability::Routes)?;
    seen(facts.routes.as_ref())
}

fn played(facts: &Facts) -> Result<&Played<ListedRoute>, Shortfall> {
    routing(facts)?.played()
}

/// The routes to a destination.
fn to<'a>(listed: &'a [ListedRoute], destination: &str) -> Vec<&'a ListedRoute> {
    listed.iter().filter(|route| route.destination == destination).collect()
}

fn missed(sent: &str, listed: &[ListedRoute], advice: impl Into<String>) -> Shortfall {
    failed(format!("{sent}, and {LIST} after it"), words::routes(listed), advice)
}

fn create(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    done(
        played.turn(Step::Make, CREATED)?,
        "create the route to the machine that `target` names, and answer done",
    )?;
    let again = played.turn(Step::Again, CREATED)?;
    done(again, "answer done where the same route is there already, as after a 409 that says so").map(|_| ())
}

fn listed(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    let turn = played.turn(Step::Again, CREATED)?;
    let listed = played.list(Step::Again, CREATED)?;
    let made = |destination: &String| match to(listed, destination).as_slice() {
        [route] => route.node.is_some() || route.target.is_some(),
        _ => false,
    };
    match played.keys.iter().find(|destination| !made(destination)) {
        Some(destination) => Err(missed(
            &turn.sent,
            listed,
            format!(
                "list one route to {destination}, with the Node that was stored with it or the machine that it leads to"
            ),
        )),
        None => Ok(()),
    }
}

fn moves(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    listed(facts).map_err(first_listed)?;
    let turn = played.turn(Step::Move, TWO_NODES)?;
    let advice = "make the deletions of a call before its creations, and answer done for both";
    done(turn, advice)?;
    // The host tries again, so it comes right in the end; meanwhile the range leads nowhere.
    if let [Came::Done(_), Came::Failed(error)] = turn.first.as_slice()
        && error.kind == ErrorKind::Conflict
    {
        let came = format!("at first {}", words::came_of_changes(&Ok(turn.first.clone())));
        return Err(failed(&turn.sent, came, advice));
    }
    let before = to(played.list(Step::Again, CREATED)?, &played.keys[0]);
    let after = played.list(Step::Move, CREATED)?;
    match (before.as_slice(), to(after, &played.keys[0]).as_slice()) {
        ([before], [after]) if (&before.node, &before.target) != (&after.node, &after.target) => Ok(()),
        _ => Err(missed(
            &turn.sent,
            after,
            format!("have one route to {}, to the Node that it was created for last", played.keys[0]),
        )),
    }
}

/// What is not listed can't be judged.
fn first_listed(shortfall: Shortfall) -> Shortfall {
    match shortfall {
        Shortfall::Failed(_) => not_run(LISTED),
        needs @ Shortfall::NotRun(_) => needs,
    }
}

fn delete(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    listed(facts).map_err(first_listed)?;
    let turn = played.turn(Step::Delete, LISTED)?;
    done(turn, "delete what is listed under this name, and answer done")?;
    let listed = played.list(Step::Delete, LISTED)?;
    // Others may change the table at the same time, so that only the test's own second route stands for all of them.
    let [first, second] = &played.keys;
    if !to(listed, first).is_empty() {
        return Err(missed(&turn.sent, listed, "answer in-progress while the cloud still has the route"));
    }
    if to(listed, second).len() != 1 {
        return Err(missed(&turn.sent, listed, "delete no other route"));
    }
    Ok(())
}

fn gone(facts: &Facts) -> Verdict {
    let turn = played(facts)?.turn(Step::DeleteAgain, LISTED)?;
    done(turn, "answer done where the cloud says that it has no such route, as a 404 does").map(|_| ())
}

#[cfg(test)]
mod tests {
    use pileus_cloud::Error;
    use pileus_gate::Effect;
    use pileus_host::Fault;

    use super::super::changes::NoAnswer;
    use super::super::cloud::Scene;
    use super::super::samples::changes::{list, request, trouble, turn};
    use super::super::samples::{facts, outcomes};
    use super::*;

    /// Each row breaks one promise of a provider that keeps all.
    #[test]
    fn each_check_sees_its_own_mistake_and_no_other_does() {
        type Change = fn(&mut Facts);
        let rows: [(&str, Change); 17] = [
            ("routes.create", |it| turn(&mut it.routes, Step::Make).came = Ok(broken())),
            ("routes.create", |it| turn(&mut it.routes, Step::Again).came = Ok(broken())),
            ("routes.one-each", |it| {
                let fault = Fault::Contract("change answered 1 times about 2 routes".to_owned());
                trouble(&mut it.routes, Scene::NotFound).turn.came = Err(NoAnswer::Fault(fault));
            }),
            ("routes.listed", |it| drop(list(&mut it.routes, Step::Again).pop())),
            ("routes.listed", |it| {
                let route = &mut list(&mut it.routes, Step::Again)[1];
                (route.node, route.target) = (None, None);
            }),
            ("routes.listed", |it| {
                let route = list(&mut it.routes, Step::Again)[1].clone();
                list(&mut it.routes, Step::Again).push(route);
            }),
            ("routes.move", |it| turn(&mut it.routes, Step::Move).came = Ok(broken())),
            ("routes.move", |it| drop(list(&mut it.routes, Step::Move).pop())),
            ("routes.move", |it| {
                let taken = Error::new(ErrorKind::Conflict, "the range is taken");
                turn(&mut it.routes, Step::Move).first[1] = Came::Failed(taken);
            }),
            ("routes.move", |it| {
                let before = list(&mut it.routes, Step::Again)[1].clone();
                list(&mut it.routes, Step::Move)[2] = before;
            }),
            ("routes.delete", |it| turn(&mut it.routes, Step::Delete).came = Ok(broken())),
            ("routes.delete", |it| drop(list(&mut it.routes, Step::Delete).pop())),
            ("routes.gone", |it| turn(&mut it.routes, Step::DeleteAgain).came = Ok(broken())),
            ("routes.left", |it| {
                it.routes.as_mut().unwrap().played.as_mut().unwrap().left.push("r-1".to_owned());
            }),
            ("routes.read-only", |it| {
                let list = trouble(&mut it.routes, Scene::Busy).list.as_mut().unwrap();
                list.requests.push(request(Effect::Write));
            }),
            ("routes.trouble", |it| {
                trouble(&mut it.routes, Scene::Down).turn.came = Ok(vec![Came::Done(Vec::new())]);
            }),
            ("routes.whole-list", |it| {
                trouble(&mut it.routes, Scene::Page).list.as_mut().unwrap().came = Ok(Vec::new());
            }),
        ];
        for (number, (expected, change)) in rows.into_iter().enumerate() {
            let mut facts = facts();
            change(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected], "{number}");
        }
    }

    fn broken() -> Vec<Came> {
        vec![Came::Failed(Error::new(ErrorKind::Broken, "it can't"))]
    }

    #[test]
    fn without_leave_nothing_is_judged_that_needs_it() {
        let mut facts = facts();
        facts.routes.as_mut().unwrap().played = Err("--allow-changes, which …".to_owned());
        for judge in [create, listed, moves, delete, gone] {
            let Err(Shortfall::NotRun(needs)) = judge(&facts) else { unreachable!() };
            assert!(needs.starts_with("--allow-changes"));
        }
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
    }
}
