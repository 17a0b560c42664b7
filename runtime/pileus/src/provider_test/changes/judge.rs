//! What both load balancers and routes have to keep to, held against what was seen of either.

use pileus_cloud::{ErrorKind, Ingress};
use pileus_gate::Effect;

use super::super::check::{Shortfall, Verdict, failed, not_run};
use super::super::cloud::{RETRY_AFTER, Scene};
use super::super::facts::Seen;
use super::super::words;
use super::{Came, Changes, Listing, NoAnswer, Trouble, Turn};

/// What steps need that are about two Nodes.
pub(in super::super) const TWO_NODES: &str =
    "two Nodes that the cloud knows: pass --node NAME or --node NAME=PROVIDER-ID twice";

/// A turn that has to be done with, and its ways in.
pub(in super::super) fn done<'a>(turn: &'a Turn, advice: &str) -> Result<Vec<&'a [Ingress]>, Shortfall> {
    turn.done().ok_or_else(|| turn.missed(advice))
}

/// Every call brings one outcome for each change.
pub(in super::super) fn one_each<T>(changes: &Changes<T>) -> Verdict {
    match changes.turns().find(|turn| turn.is_misaligned()) {
        Some(turn) => Err(turn.failed(
            "build the list from the changes that were sent, one after another, in whatever order they are made",
        )),
        None => changes.played().map(|_| ()),
    }
}

/// A list changes nothing.
pub(in super::super) fn lists_only_read<T>(changes: &Changes<T>, list: &str) -> Verdict {
    let troubled = changes.troubles.iter().filter_map(|trouble| trouble.list.as_ref());
    let played = changes.played.iter().flat_map(|played| &played.lists).map(|(_, list)| list);
    let requests: Vec<_> = played.chain(troubled).flat_map(|list| &list.requests).collect();
    if requests.is_empty() {
        return Err(grant_needed());
    }
    match requests.into_iter().find(|request| request.effect == Effect::Write) {
        Some(Seen { line, has_rule: true, .. }) => Err(failed(
            list,
            format!("{line}, which a rule calls a write"),
            "read alone; what is wrong with what is there is for a change to mend",
        )),
        Some(Seen { line, .. }) => Err(failed(
            list,
            format!("{line}, which no rule is about, so it counts as a write"),
            "add a rule for it to the settings, with the effect read",
        )),
        None => Ok(()),
    }
}

/// All that was made is gone at the end.
pub(in super::super) fn nothing_left<T>(changes: &Changes<T>) -> Verdict {
    let left = &changes.played()?.left;
    if left.is_empty() {
        return Ok(());
    }
    Err(failed(
        "all that removes what the test made, at its end",
        format!("still there: {}", left.join("; ")),
        "remove it in the cloud by hand, and then correct what the checks before this one name",
    ))
}

/// Whether a kind of error is right, and how the right ones are called.
type Kinds = (fn(ErrorKind) -> bool, &'static str);

/// The kinds of error that tell of trouble; none where an error may be of any kind.
fn fitting(scene: Scene) -> Option<Kinds> {
    let asked = |kind| matches!(kind, ErrorKind::Throttled(Some(after)) if after.as_secs() == RETRY_AFTER);
    let down = |kind| matches!(kind, ErrorKind::Unavailable | ErrorKind::Throttled(_));
    match scene {
        Scene::Busy => Some((asked, "throttled, with the time of Retry-After")),
        Scene::Down => Some((down, "unavailable")),
        Scene::Forbidden => Some((|kind| kind == ErrorKind::Denied, "denied")),
        Scene::CutOff => Some((|kind| kind == ErrorKind::Unavailable, "unavailable")),
        _ => None,
    }
}

fn grant_needed() -> Shortfall {
    not_run("a grant for the hosts that it asks: pass --grant URL, or --provider FILE.yaml")
}

/// The troubles that a change or its list met; one that asked nothing of the cloud met none.
fn met<T>(changes: &Changes<T>) -> Result<Vec<&Trouble<T>>, Shortfall> {
    let has_met = |trouble: &&Trouble<T>| {
        !trouble.turn.requests.is_empty() || matches!(trouble.turn.came, Err(NoAnswer::Fault(_)))
    };
    let met: Vec<_> = changes.troubles.iter().filter(has_met).collect();
    if met.is_empty() { Err(grant_needed()) } else { Ok(met) }
}

/// What could not be done is an error of the right kind, or under way.
pub(in super::super) fn kinds<T>(changes: &Changes<T>) -> Verdict {
    for Trouble { scene, turn, list: _ } in met(changes)? {
        let Some((fits, kind)) = fitting(*scene) else { continue };
        let right = match &turn.came {
            Err(NoAnswer::Error(error)) => fits(error.kind),
            Err(NoAnswer::Fault(_)) => false,
            Ok(outcomes) => outcomes.iter().all(|came| match came {
                Came::Failed(error) => fits(error.kind),
                Came::Under { .. } => true,
                Came::Done(_) | Came::Elsewhere => false,
            }),
        };
        if !right {
            return Err(in_trouble(
                *scene,
                turn,
                &format!(
                    "answer an error of kind {kind} for what the cloud did not confirm, and done for nothing of it"
                ),
            ));
        }
    }
    Ok(())
}

fn in_trouble(scene: Scene, turn: &Turn, advice: &str) -> Shortfall {
    let sent = format!("{} with {} behind it", turn.sent, scene.as_str());
    turn.unless_misaligned(failed(sent, words::came_of_changes(&turn.came), advice))
}

/// What can't be read whole is no list.
pub(in super::super) fn lists_are_whole<T>(changes: &Changes<T>, list: &str) -> Verdict {
    let mut has_met = false;
    for Trouble { scene, list: listing, .. } in &changes.troubles {
        let Some(Listing { came, requests }) = listing else { continue };
        // What came before it broke down may have been all.
        let is_cut = *scene != Scene::BreaksDown || requests.len() > 1;
        if !is_cut || *scene == Scene::NotFound || requests.is_empty() && came.is_ok() {
            continue;
        }
        has_met = true;
        let came = match came {
            Err(NoAnswer::Error(_)) => continue,
            Err(NoAnswer::Fault(fault)) => format!("no answer: the call {fault}"),
            Ok(listed) => format!("a list of {}", listed.len()),
        };
        let sent = format!("{list} with {} behind it", scene.as_str());
        return Err(failed(
            sent,
            came,
            "where a page of the list fails, fail with its error; a part of a list is none",
        ));
    }
    if has_met { Ok(()) } else { Err(grant_needed()) }
}

/// A call stops by itself after its soft deadline.
pub(in super::super) fn stops<T>(changes: &Changes<T>) -> Verdict {
    let (soft, hard) = changes.patience;
    for Trouble { scene, turn, .. } in met(changes)? {
        if *scene != Scene::Silence {
            continue;
        }
        let right = match &turn.came {
            Err(NoAnswer::Error(_)) => true,
            Err(NoAnswer::Fault(_)) => false,
            Ok(outcomes) => outcomes.iter().all(|came| matches!(came, Came::Under { .. } | Came::Failed(_))),
        };
        if !right {
            return Err(in_trouble(
                *scene,
                turn,
                &format!(
                    "ask `call.remaining` how much is left (here {} at first, and the call is stopped after {}), and answer \
                 in-progress for what is not done by then",
                    words::human(soft),
                    words::human(hard)
                ),
            ));
        }
    }
    Ok(())
}
