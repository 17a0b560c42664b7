//! What the requests of a call prove about the provider's answer. Pure.
//!
//! That something is missing follows only from an answer of the cloud. A provider that takes an error for an empty answer
//! would have the host delete Nodes that live, plan routes against an empty table, and release Services whose load balancers
//! remain. So such answers are believed only with the replies that they can rest on; the gate records these for each call.
//! A provider that means harm can read something and answer what it likes. These rules catch the one that fails open.

use std::collections::HashSet;

use pileus_cloud::{
    Answer, Error, ErrorKind, NodeReference, ProviderId, Purpose, ServiceChange, ServiceProgress,
};
use pileus_gate::ReplyCounts;

/// The answers of one lookup, as far as the replies that they need depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LookupSummary {
    /// The instances that are absent: Nodes with one provider ID are one instance.
    absent: usize,
    /// The Nodes whose instance was found, or that aren't the provider's.
    found: usize,
    /// The Nodes without an answer of the cloud yet.
    open: usize,
}

impl LookupSummary {
    /// Summarizes one answer for each Node.
    pub(crate) fn new(nodes: &[NodeReference], answers: &[Result<Answer, Error>]) -> Self {
        let (mut summary, mut instances) = (Self::default(), HashSet::new());
        for (node, answer) in nodes.iter().zip(answers) {
            match answer {
                Ok(Answer::Absent) => {
                    let id = node.provider_id.as_ref().map(ProviderId::as_str);
                    instances.insert((id, id.is_none().then_some(node.name.as_str())));
                }
                Ok(Answer::Found(_) | Answer::Unmanaged(_)) => summary.found += 1,
                Ok(Answer::Pending(_)) => summary.open += 1,
                Err(error) => summary.open += usize::from(explains_failure(error)),
            }
        }
        Self { absent: instances.len(), ..summary }
    }
}

/// Whether the replies to a lookup support its absent answers.
///
/// Either no request failed, and a list was read to its end or as many reads as instances are absent were answered 404 or
/// 410. To confirm, instances that were found need reads too, since what was read may have been only theirs.
///
/// Or, where requests failed, each of the failures belongs to a Node without an answer, and each absent instance has a 404 or
/// 410 of its own. With found instances among them nothing tells whose failures these were.
pub(crate) fn supports_absent(replies: &ReplyCounts, purpose: Purpose, summary: LookupSummary) -> bool {
    let LookupSummary { absent, found, open } = summary;
    let failures = failures(replies);
    if failures > 0 {
        return found == 0 && failures <= open && replies.gone >= absent;
    }
    let covers_all = replies.complete + replies.gone >= absent + found;
    let has_list = replies.complete > 0 && (purpose != Purpose::Confirm || found == 0 || covers_all);
    has_list || replies.gone >= absent
}

/// Whether the replies to a direct lookup support that an instance has stopped: the host may detach its volumes.
pub(crate) fn supports_stopped(replies: &ReplyCounts) -> bool {
    replies.complete > 0
}

/// Whether the replies to a call support a list: the cloud answered a read, and every other read too.
pub(crate) fn supports_list(replies: &ReplyCounts) -> bool {
    replies.complete + replies.gone > 0 && failures(replies) == 0
}

/// The outcomes of one call that makes changes, as far as the replies that they need depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChangeSummary {
    /// The changes after which nothing is left in the cloud.
    removed: usize,
    /// The changes that the cloud hasn't confirmed yet.
    open: usize,
}

impl ChangeSummary {
    /// Summarizes one outcome for each change.
    pub(crate) fn new(changes: &[ServiceChange], outcomes: &[Result<ServiceProgress, Error>]) -> Self {
        let mut summary = Self::default();
        for (change, outcome) in changes.iter().zip(outcomes) {
            match outcome {
                Ok(ServiceProgress::InProgress { .. }) => summary.open += 1,
                Ok(progress) => summary.removed += usize::from(claims_removal(change, progress)),
                Err(error) => summary.open += usize::from(explains_failure(error)),
            }
        }
        summary
    }
}

/// Whether the replies to a call support that something was removed or didn't exist.
///
/// The cloud answered something, and either no request failed, or each failure belongs to a change that isn't confirmed and
/// each removal has an answer of its own. A refusal, such as 409, may be part of a removal.
pub(crate) fn supports_removal(replies: &ReplyCounts, summary: ChangeSummary) -> bool {
    let ChangeSummary { removed, open } = summary;
    let answered = replies.complete + replies.gone + replies.changed;
    if replies.failed == 0 { answered > 0 } else { replies.failed <= open && answered >= removed }
}

/// Whether an error may be how a provider reports a request that failed.
fn explains_failure(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Throttled(_) | ErrorKind::Conflict(_) | ErrorKind::Denied | ErrorKind::Unavailable(_) => {
            true
        }
        ErrorKind::Invalid | ErrorKind::Broken => false,
    }
}

/// Whether an outcome says that the cloud has nothing left for a change.
pub(crate) fn claims_removal(change: &ServiceChange, outcome: &ServiceProgress) -> bool {
    change.action.is_removal() && matches!(outcome, ServiceProgress::Done { .. } | ServiceProgress::Elsewhere)
}

/// The requests of a call that only reads, and which don't say what the cloud has.
fn failures(replies: &ReplyCounts) -> usize {
    replies.failed + replies.refused + replies.incomplete
}

/// Shows the replies for the log and for errors.
pub(crate) fn describe(replies: &ReplyCounts) -> String {
    let ReplyCounts { complete, gone, incomplete, changed, refused, failed } = replies;
    let all = complete + gone + incomplete + changed + refused + failed;
    if all == 0 {
        return "it sent no request to the cloud".to_owned();
    }
    format!(
        "of its {all} requests, {complete} reads were answered and read to their end, {gone} were answered 404 or 410, \
         {changed} changes were answered, {incomplete} answers weren't read to their end, {refused} were refused and \
         {failed} failed"
    )
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{OwnedLoadBalancer, ProviderId, Service, ServiceAction, Stance};

    use super::*;

    fn node(name: &str, id: Option<&str>) -> NodeReference {
        NodeReference {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            provider_id: id.map(|id| ProviderId::parse(id).unwrap()),
            created_at: jiff::Timestamp::UNIX_EPOCH,
            addresses: Vec::new(),
            node_ips: Vec::new(),
            labels: Vec::new(),
            system_uuid: None,
        }
    }

    const NONE: ReplyCounts =
        ReplyCounts { complete: 0, gone: 0, incomplete: 0, changed: 0, refused: 0, failed: 0 };

    #[test]
    fn absent_is_supported_by_a_list_or_by_as_many_answers_and_by_nothing_beside_a_failure() {
        let absent = |absent| LookupSummary { absent, found: 0, open: 0 };
        let list = ReplyCounts { complete: 1, ..NONE };
        let gone = |gone| ReplyCounts { gone, ..NONE };
        let rows = [
            (NONE, absent(1), false),
            (list, absent(1), true),
            (list, absent(1000), true),
            (gone(1), absent(1), true),
            (gone(1), absent(2), false),
            (gone(2), absent(2), true),
            (ReplyCounts { complete: 1, ..gone(1) }, absent(2), true),
            (ReplyCounts { incomplete: 1, ..NONE }, absent(1), false),
            (ReplyCounts { changed: 1, ..NONE }, absent(1), false),
            (ReplyCounts { refused: 1, ..NONE }, absent(1), false),
            (ReplyCounts { failed: 1, ..NONE }, absent(1), false),
            (ReplyCounts { failed: 1, ..list }, absent(1), false),
            (ReplyCounts { refused: 1, ..list }, absent(1), false),
            (ReplyCounts { incomplete: 1, ..list }, absent(1), false),
            (ReplyCounts { failed: 1, ..gone(1) }, absent(1), false),
            // A failure that a Node without an answer has explains itself.
            (ReplyCounts { failed: 1, ..gone(1) }, LookupSummary { open: 1, ..absent(1) }, true),
            (ReplyCounts { failed: 2, ..gone(1) }, LookupSummary { open: 1, ..absent(1) }, false),
            (ReplyCounts { failed: 1, ..gone(1) }, LookupSummary { open: 1, ..absent(2) }, false),
            (ReplyCounts { failed: 1, ..list }, LookupSummary { open: 1, ..absent(1) }, false),
            (ReplyCounts { failed: 1, ..gone(1) }, LookupSummary { absent: 1, found: 1, open: 1 }, false),
        ];
        for (replies, summary, expected) in rows {
            for purpose in [Purpose::Initialise, Purpose::Refresh, Purpose::Confirm] {
                let is_supported = supports_absent(&replies, purpose, summary);
                assert_eq!(is_supported, expected, "{replies:?} {summary:?} {purpose:?}");
            }
        }
    }

    #[test]
    fn a_direct_read_of_a_found_instance_confirms_no_other() {
        let mixed = LookupSummary { absent: 1, found: 2, open: 0 };
        for (complete, gone, expected) in
            [(1, 0, false), (2, 0, false), (3, 0, true), (2, 1, true), (0, 1, true)]
        {
            let replies = ReplyCounts { complete, gone, ..NONE };
            assert_eq!(supports_absent(&replies, Purpose::Confirm, mixed), expected, "{complete} {gone}");
            assert!(supports_absent(&replies, Purpose::Refresh, mixed), "one list names all");
        }
    }

    #[test]
    fn nodes_of_one_provider_id_are_one_instance() {
        let nodes = [
            node("a", Some("x://1")),
            node("b", Some("x://1")),
            node("c", None),
            node("d", None),
            node("e", None),
            node("f", None),
        ];
        let failed = Err(Error::new(ErrorKind::Unavailable(None), "it failed"));
        let absent = || Ok(Answer::Absent);
        let pending = Ok(Answer::Pending(std::time::Duration::ZERO));
        let answers =
            [absent(), absent(), absent(), failed, pending, Ok(Answer::Unmanaged(Stance::LeftAlone))];
        let expected = LookupSummary { absent: 2, found: 1, open: 2 };
        assert_eq!(LookupSummary::new(&nodes, &answers), expected);
    }

    #[test]
    fn a_list_and_a_removal_need_an_answer_and_no_failure() {
        let rows = [
            (NONE, false, false),
            (ReplyCounts { complete: 1, ..NONE }, true, true),
            (ReplyCounts { gone: 1, ..NONE }, true, true),
            (ReplyCounts { incomplete: 1, ..NONE }, false, false),
            (ReplyCounts { changed: 1, ..NONE }, false, true),
            (ReplyCounts { refused: 1, ..NONE }, false, false),
            (ReplyCounts { failed: 1, ..NONE }, false, false),
            (ReplyCounts { complete: 1, failed: 1, ..NONE }, false, false),
            (ReplyCounts { complete: 1, incomplete: 1, ..NONE }, false, true),
            (ReplyCounts { complete: 1, refused: 1, ..NONE }, false, true),
            (ReplyCounts { changed: 1, failed: 1, ..NONE }, false, false),
        ];
        for (replies, list, removal) in rows {
            let summary = ChangeSummary { removed: 2, open: 0 };
            let found = (supports_list(&replies), supports_removal(&replies, summary));
            assert_eq!(found, (list, removal), "{replies:?}");
        }
    }

    #[test]
    fn a_removal_beside_a_failure_needs_an_answer_of_its_own_and_a_change_that_has_the_failure() {
        let rows = [
            (ReplyCounts { changed: 2, failed: 1, ..NONE }, 2, 1, true),
            (ReplyCounts { changed: 1, failed: 1, ..NONE }, 2, 1, false),
            (ReplyCounts { changed: 2, failed: 2, ..NONE }, 2, 1, false),
            (ReplyCounts { failed: 1, ..NONE }, 1, 1, false),
        ];
        for (replies, removed, open, expected) in rows {
            let summary = ChangeSummary { removed, open };
            assert_eq!(supports_removal(&replies, summary), expected, "{replies:?} {summary:?}");
        }
        let of = |action| ServiceChange { action, resume: None };
        let service = || Service::named("default", "web", "uid".to_owned());
        let changes = [ServiceAction::Delete(service()), ServiceAction::Ensure(service())].map(of);
        let done = || Ok(ServiceProgress::done(Vec::new()));
        let going = || Ok(ServiceProgress::in_progress(std::time::Duration::ZERO, None));
        let failed = |kind| Err(Error::new(kind, "it failed"));
        for (ensured, open) in [
            (done(), 0),
            (going(), 1),
            (failed(ErrorKind::Unavailable(None)), 1),
            (failed(ErrorKind::Denied), 1),
            (failed(ErrorKind::Invalid), 0), // needs no request
        ] {
            let summary = ChangeSummary::new(&changes, &[done(), ensured]);
            assert_eq!(summary, ChangeSummary { removed: 1, open });
        }
    }

    #[test]
    fn only_a_finished_removal_claims_that_nothing_is_left() {
        let service = || Service::named("default", "web", "uid".to_owned());
        let owned = OwnedLoadBalancer {
            cluster_uid: None,
            service_uid: None,
            service: None,
            name: "lb".to_owned(),
            extra: Vec::new(),
        };
        let done = || ServiceProgress::done(Vec::new());
        let going = ServiceProgress::in_progress(std::time::Duration::ZERO, None);
        let of = |action| ServiceChange { action, resume: None };
        let rows = [
            (ServiceAction::Delete(service()), done(), true),
            (ServiceAction::Delete(service()), ServiceProgress::Elsewhere, true),
            (ServiceAction::Delete(service()), going, false),
            (ServiceAction::RemoveOrphan(owned), done(), true),
            (ServiceAction::Ensure(service()), done(), false),
            (ServiceAction::Ensure(service()), ServiceProgress::Elsewhere, false),
            (ServiceAction::UpdateTargets(service()), done(), false),
        ];
        for (action, progress, expected) in rows {
            assert_eq!(claims_removal(&of(action), &progress), expected, "{progress:?}");
        }
    }
}
