//! What a provider does for Services of type LoadBalancer: in the cloud, where that is allowed, and in front of one that is
//! in trouble.

use pileus_cloud::OwnedLoadBalancer;
use pileus_host::Capability;

use super::changes::judge::{self, TWO_NODES, done};
use super::changes::{Changes, Played, Step};
use super::check::{Check, Shortfall, Verdict, failed, not_run};
use super::facts::Facts;
use super::instances::{callable, seen};
use super::words;

/// What there is nothing to look at without.
const ENSURED: &str = "load-balancers.ensure has to pass first";
/// What a Service can't be told from others without.
const LISTED: &str = "load-balancers.owned has to pass first";

const LIST: &str = "list-owned()";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "load-balancers.ensure",
        claim: "a Service gets a load balancer with an address or a host name",
        matters: "without one nobody reaches the Service from outside",
        judge: ensure,
    },
    Check {
        id: "load-balancers.one-each",
        claim: "every call brings one outcome for each change",
        matters: "the host throws a list of another length away as a whole: no Service of it gets on",
        judge: |facts| judge::one_each(balancing(facts)?),
    },
    Check {
        id: "load-balancers.order",
        claim: "outcomes stand in the order of the changes",
        matters: "an outcome at the wrong place sends the users of one Service to another",
        judge: order,
    },
    Check {
        id: "load-balancers.no-write",
        claim: "a Service that is as it wants to be costs no write, and keeps its way in",
        matters: "the host looks at every Service each half an hour; writes would eat up the cloud's limits",
        judge: no_write,
    },
    Check {
        id: "load-balancers.known",
        claim: "a Service that isn't changed keeps all that it has, whether it is known or not",
        matters: "the host leaves out of `known` what the provider failed at; its users would lose their way in",
        judge: known,
    },
    Check {
        id: "load-balancers.targets",
        claim: "other targets are written, and then cost no write",
        matters: "Nodes that come get no traffic, and Nodes that went get what nobody answers",
        judge: targets,
    },
    Check {
        id: "load-balancers.owned",
        claim: "list-owned tells of each Service with its UID and the cluster's",
        matters: "what bears no UID is never removed when its Service has vanished: it costs money for ever",
        judge: owned,
    },
    Check {
        id: "load-balancers.delete",
        claim: "what is deleted is gone, and the other Service has what it had",
        matters: "a Service can only be removed once its load balancer is, and nobody else's may go with it",
        judge: delete,
    },
    Check {
        id: "load-balancers.gone",
        claim: "deleting what is gone, or never was, is done",
        matters: "an answer gets lost and the host asks again; with an error the Service stays for ever",
        judge: gone,
    },
    Check {
        id: "load-balancers.orphan",
        claim: "an orphan is removed by what list-owned told of it alone",
        matters: "its Service is gone, so nobody knows anything else of it",
        judge: orphan,
    },
    Check {
        id: "load-balancers.left",
        claim: "nothing of this test is left in the cloud",
        matters: "what is left costs money, and would be left in a cluster as well",
        judge: |facts| judge::nothing_left(balancing(facts)?),
    },
    Check {
        id: "load-balancers.read-only",
        claim: "list-owned makes no request that could change something",
        matters: "a write drops the host's cache and isn't repeated; what no rule matches counts as one",
        judge: |facts| judge::lists_only_read(balancing(facts)?, LIST),
    },
    Check {
        id: "load-balancers.trouble",
        claim: "what a cloud in trouble doesn't confirm is an error of the right kind, and not done",
        matters: "a Service would lose its finalizer while the cloud still has its load balancer",
        judge: |facts| judge::kinds(balancing(facts)?),
    },
    Check {
        id: "load-balancers.whole-list",
        claim: "list-owned fails where it can't read all of the list",
        matters: "what is missing from a list is taken for gone",
        judge: |facts| judge::lists_are_whole(balancing(facts)?, LIST),
    },
    Check {
        id: "load-balancers.deadline",
        claim: "a call stops by itself after its soft deadline, with in-progress or an error for what is left",
        matters: "a call that the host has to stop at the hard deadline loses the outcomes of all its Services",
        judge: |facts| judge::stops(balancing(facts)?),
    },
];

/// What was seen of it, or why there is nothing.
fn balancing(facts: &Facts) -> Result<&Changes<OwnedLoadBalancer>, Shortfall> {
    callable(facts, Capability::LoadBalancers)?;
    seen(facts.load_balancers.as_ref())
}

fn played(facts: &Facts) -> Result<&Played<OwnedLoadBalancer>, Shortfall> {
    balancing(facts)?.played()
}

fn ensure(facts: &Facts) -> Verdict {
    let turn = played(facts)?.turn(Step::Make, "load-balancers.gone has to pass first")?;
    let status = done(
        turn,
        "make what the Services want, answer in-progress while the cloud is at it, and done after that",
    )?;
    if status.iter().any(|ways| ways.is_empty()) {
        return Err(turn.missed("answer in-progress until the cloud tells an address or a host name"));
    }
    Ok(())
}

fn no_write(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    let (first, again) = (played.turn(Step::Make, ENSURED)?, played.turn(Step::Again, ENSURED)?);
    let status =
        done(again, "find what is there already by the Service's UID, and answer done where all is so")?;
    if first.done().is_some_and(|before| before != status) {
        return Err(again.missed(format!(
            "tell the same way in as before, which was: {}",
            words::came_of_changes(&first.came)
        )));
    }
    match again.write() {
        Some(request) => Err(again.missed(format!(
            "compare what is there with what is wanted, and leave out {} where nothing differs",
            request.line
        ))),
        None => Ok(()),
    }
}

fn order(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    let (first, mixed) = (played.turn(Step::Make, ENSURED)?, played.turn(Step::Mixed, ENSURED)?);
    if played.turn(Step::Before, ENSURED)?.done().is_none() {
        return Err(not_run("load-balancers.gone has to pass first"));
    }
    let Some(&[one, other]) = first.done().as_deref() else {
        return Err(not_run(ENSURED));
    };
    if one == other {
        return Err(not_run("a cloud that gives two Services different ways in"));
    }
    match mixed.done().as_deref() {
        Some(&[[], second, first]) if (first, second) == (one, other) => Ok(()),
        _ => Err(mixed
            .missed("put each outcome where its change stands; the first was about nothing that is there")),
    }
}

fn known(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    let made = played.turn(Step::Make, ENSURED)?;
    let Some(&[_, before]) = made.done().as_deref() else { return Err(not_run(ENSURED)) };
    no_write(facts).map_err(|_| not_run("load-balancers.no-write has to pass first"))?;
    owned(facts).map_err(|_| not_run(LISTED))?;
    // Else the way in that was told of the second is the first's.
    if matches!(order(facts), Err(Shortfall::Failed(_))) {
        return Err(not_run("load-balancers.order has to pass first"));
    }
    let Played { cluster, keys: [_, second], .. } = played;
    for (step, after) in [(Step::Unknown, Step::AfterUnknown), (Step::Known, Step::AfterKnown)] {
        let changed = played.turn(step, ENSURED)?;
        done(changed, "write the port that has changed, and answer done")?;
        if changed.write().is_none() {
            return Err(changed.missed("compare the ports that are there with those that were sent"));
        }
        let advice = "leave as it is what the cloud has for a Service that no change is about";
        let listed = played.list(step, LISTED)?;
        if !tells(listed, cluster, second) {
            let sent = format!("{}, and {LIST} after it", changed.sent);
            return Err(failed(sent, words::owned(listed), advice));
        }
        let kept = played.turn(after, ENSURED)?;
        if kept.done().as_deref() != Some(&[before]) || kept.write().is_some() {
            return Err(kept.missed(format!("{advice}; this came after {}", changed.sent)));
        }
    }
    Ok(())
}

fn targets(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    played.turn(Step::Again, ENSURED)?;
    let moved = played.turn(Step::Move, TWO_NODES)?;
    let again = played.turn(Step::MoveAgain, ENSURED)?;
    done(moved, "write the targets that were sent, and answer done")?;
    if moved.write().is_none() {
        return Err(moved
            .missed("compare the targets that are there with those that were sent, and write what differs"));
    }
    done(again, "answer done where all is so")?;
    match again.write() {
        Some(_) => {
            Err(again.missed("write all of the targets at once; they are the same as the time before"))
        }
        None => Ok(()),
    }
}

/// Whether a list tells of a Service of the test.
fn tells(listed: &[OwnedLoadBalancer], cluster: &str, service: &str) -> bool {
    let is_it = |owned: &OwnedLoadBalancer| {
        owned.service_uid.as_deref() == Some(service) && owned.cluster_uid.as_deref() == Some(cluster)
    };
    listed.iter().any(is_it)
}

fn owned(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    let Played { cluster, keys, .. } = played;
    let listed = played.list(Step::Make, ENSURED)?;
    match keys.iter().find(|uid| !tells(listed, cluster, uid)) {
        Some(uid) => Err(failed(
            LIST,
            words::owned(listed),
            format!(
                "store the UIDs of cluster and Service on what is created, in labels or in names, and list both: nothing has \
                 {cluster} and {uid}"
            ),
        )),
        None => Ok(()),
    }
}

fn delete(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    let Played { cluster, keys: [first, second], .. } = played;
    let turn = played.turn(Step::Delete, ENSURED)?;
    done(
        turn,
        "remove all that was created for the Service, and answer done once the cloud has nothing of it",
    )?;
    if !tells(played.list(Step::Make, ENSURED)?, cluster, first) {
        return Err(not_run(LISTED));
    }
    let listed = played.list(Step::Delete, LISTED)?;
    let listed_after = format!("{}, and {LIST} after it", turn.sent);
    if tells(listed, cluster, first) {
        return Err(failed(
            listed_after,
            words::owned(listed),
            "answer in-progress while the cloud still has something of the Service",
        ));
    }
    if !tells(listed, cluster, second) {
        return Err(failed(listed_after, words::owned(listed), "remove nothing of any other Service"));
    }
    Ok(())
}

fn gone(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    let advice = "answer done where the cloud says that it has nothing of this name, as a 404 does";
    done(played.turn(Step::Before, ENSURED)?, advice)?;
    if let Ok(again) = played.turn(Step::DeleteAgain, ENSURED) {
        done(again, advice)?;
    }
    Ok(())
}

fn orphan(facts: &Facts) -> Verdict {
    let played = played(facts)?;
    let Played { cluster, keys: [_, second], .. } = played;
    let (turn, again) = (played.turn(Step::Orphan, LISTED)?, played.turn(Step::OrphanAgain, LISTED)?);
    done(turn, "find it by its name and by what it put into `extra`, and remove all of it")?;
    let listed = played.list(Step::Orphan, LISTED)?;
    if tells(listed, cluster, second) {
        let sent = format!("{}, and {LIST} after it", turn.sent);
        return Err(failed(sent, words::owned(listed), "answer in-progress while the cloud still has it"));
    }
    done(again, "answer done where it is gone already").map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pileus_cloud::{Error, ErrorKind};
    use pileus_gate::Effect;
    use pileus_host::Fault;

    use super::super::changes::{Came, NoAnswer};
    use super::super::cloud::Scene;
    use super::super::samples::changes::{ip, list, request, trouble, turn};
    use super::super::samples::{facts, outcomes};
    use super::*;

    /// Each row breaks one promise of a provider that keeps all.
    #[test]
    fn each_check_sees_its_own_mistake_and_no_other_does() {
        type Change = fn(&mut Facts);
        let rows: [(&str, Change); 30] = [
            ("load-balancers.ensure", |it| turn(&mut it.load_balancers, Step::Make).came = Ok(broken())),
            ("load-balancers.one-each", |it| {
                let fault = Fault::Contract("change answered 1 times about 3 services".to_owned());
                turn(&mut it.load_balancers, Step::DeleteAgain).came = Ok(vec![Came::Done(Vec::new())]);
                trouble(&mut it.load_balancers, Scene::NotFound).turn.came = Err(NoAnswer::Fault(fault));
            }),
            ("load-balancers.order", |it| {
                let came = vec![ip("198.51.100.1"), ip("198.51.100.2"), Came::Done(Vec::new())];
                turn(&mut it.load_balancers, Step::Mixed).came = Ok(came);
            }),
            ("load-balancers.order", |it| turn(&mut it.load_balancers, Step::Mixed).came = Ok(broken())),
            ("load-balancers.no-write", |it| {
                turn(&mut it.load_balancers, Step::Again).requests.push(request(Effect::Write));
            }),
            ("load-balancers.no-write", |it| {
                turn(&mut it.load_balancers, Step::Again).came =
                    Ok(vec![ip("198.51.100.1"), ip("198.51.100.3")]);
            }),
            ("load-balancers.no-write", |it| turn(&mut it.load_balancers, Step::Again).came = Ok(broken())),
            ("load-balancers.known", |it| turn(&mut it.load_balancers, Step::Unknown).came = Ok(broken())),
            ("load-balancers.known", |it| turn(&mut it.load_balancers, Step::Unknown).requests.clear()),
            ("load-balancers.known", |it| {
                list(&mut it.load_balancers, Step::Unknown).pop();
            }),
            ("load-balancers.known", |it| {
                turn(&mut it.load_balancers, Step::AfterKnown).requests.push(request(Effect::Write));
            }),
            ("load-balancers.known", |it| {
                turn(&mut it.load_balancers, Step::AfterKnown).came = Ok(vec![ip("198.51.100.3")]);
            }),
            ("load-balancers.targets", |it| turn(&mut it.load_balancers, Step::Move).came = Ok(broken())),
            ("load-balancers.targets", |it| turn(&mut it.load_balancers, Step::Move).requests.clear()),
            ("load-balancers.targets", |it| {
                turn(&mut it.load_balancers, Step::MoveAgain).requests.push(request(Effect::Write));
            }),
            ("load-balancers.owned", |it| list(&mut it.load_balancers, Step::Make)[1].cluster_uid = None),
            ("load-balancers.delete", |it| turn(&mut it.load_balancers, Step::Delete).came = Ok(broken())),
            ("load-balancers.delete", |it| {
                let first = list(&mut it.load_balancers, Step::Make)[0].clone();
                list(&mut it.load_balancers, Step::Delete).push(first);
            }),
            ("load-balancers.delete", |it| list(&mut it.load_balancers, Step::Delete).clear()),
            ("load-balancers.gone", |it| turn(&mut it.load_balancers, Step::Before).came = Ok(broken())),
            ("load-balancers.gone", |it| turn(&mut it.load_balancers, Step::DeleteAgain).came = Ok(broken())),
            ("load-balancers.orphan", |it| turn(&mut it.load_balancers, Step::Orphan).came = Ok(broken())),
            ("load-balancers.orphan", |it| {
                turn(&mut it.load_balancers, Step::OrphanAgain).came = Ok(broken());
            }),
            ("load-balancers.orphan", |it| {
                let second = list(&mut it.load_balancers, Step::Make)[1].clone();
                list(&mut it.load_balancers, Step::Orphan).push(second);
            }),
            ("load-balancers.left", |it| {
                let played = it.load_balancers.as_mut().unwrap().played.as_mut().unwrap();
                played.left.push("lb-second".to_owned());
            }),
            ("load-balancers.read-only", |it| {
                let list = trouble(&mut it.load_balancers, Scene::Busy).list.as_mut().unwrap();
                list.requests.push(request(Effect::Write));
            }),
            ("load-balancers.trouble", |it| {
                trouble(&mut it.load_balancers, Scene::CutOff).turn.came = Ok(vec![Came::Done(Vec::new())]);
            }),
            ("load-balancers.trouble", |it| {
                let late = ErrorKind::Throttled(Some(Duration::from_secs(1)));
                let error = Error::new(late, "too early");
                trouble(&mut it.load_balancers, Scene::Busy).turn.came = Err(NoAnswer::Error(error));
            }),
            ("load-balancers.whole-list", |it| {
                trouble(&mut it.load_balancers, Scene::BreaksDown).list.as_mut().unwrap().came =
                    Ok(Vec::new());
            }),
            ("load-balancers.deadline", |it| {
                let fault = Fault::StackOverflow;
                trouble(&mut it.load_balancers, Scene::Silence).turn.came = Err(NoAnswer::Fault(fault));
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
    fn what_is_not_allowed_or_not_known_is_told_with_what_to_pass() {
        let mut facts = facts();
        let played = &mut facts.load_balancers.as_mut().unwrap().played;
        played.as_mut().unwrap().turns.retain(|(step, _)| *step != Step::Move);
        let Err(Shortfall::NotRun(needs)) = targets(&facts) else { unreachable!() };
        assert!(needs.contains("--node NAME"), "{needs}");
        facts.load_balancers.as_mut().unwrap().played = Err("--allow-changes, which …".to_owned());
        let needs = |verdict| match verdict {
            Err(Shortfall::NotRun(needs)) => needs,
            other => unreachable!("{other:?}"),
        };
        for judge in [ensure, order, no_write, known, targets, owned, delete, gone, orphan] {
            assert!(needs(judge(&facts)).starts_with("--allow-changes"));
        }
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
    }

    #[test]
    fn a_list_that_was_whole_before_the_cloud_broke_down_is_one() {
        let mut facts = facts();
        let list = trouble(&mut facts.load_balancers, Scene::BreaksDown).list.as_mut().unwrap();
        (list.came, list.requests) = (Ok(Vec::new()), vec![request(Effect::Read)]);
        assert_eq!(outcomes(&facts, "failed"), [""; 0]);
    }

    #[test]
    fn a_provider_that_asks_nothing_has_not_passed() {
        let mut facts = facts();
        for trouble in &mut facts.load_balancers.as_mut().unwrap().troubles {
            trouble.turn.requests.clear();
            let list = trouble.list.as_mut().unwrap();
            (list.came, list.requests) = (Ok(Vec::new()), Vec::new());
        }
        let ids = ["load-balancers.trouble", "load-balancers.whole-list", "load-balancers.deadline"];
        assert_eq!(outcomes(&facts, "not run"), ids);
    }
}
