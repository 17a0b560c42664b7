//! What a check is, and what it may say. A check is a value: a sentence that must hold, why it matters, and a pure
//! function that holds it against what was seen.

use super::facts::Facts;
use super::{batches, configuration, info, instances, load_balancers, routes, trouble};

/// One promise of the contract.
pub(crate) struct Check {
    /// A name that stays: scripts and people refer to it.
    pub(crate) id: &'static str,
    /// What must hold, as a sentence.
    pub(crate) claim: &'static str,
    /// What would happen in a cluster where it doesn't.
    pub(crate) matters: &'static str,
    /// Holds it against what was seen.
    pub(crate) judge: fn(&Facts) -> Verdict,
}

/// Whether a check holds.
pub(crate) type Verdict = Result<(), Shortfall>;

/// Why a check was not passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shortfall {
    /// It doesn't hold.
    Failed(Failure),
    /// It couldn't be asked: what it needs, and how to give it.
    NotRun(String),
}

/// How a promise was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What was sent.
    pub(crate) sent: String,
    /// What came back.
    pub(crate) came: String,
    /// What to do.
    pub(crate) advice: String,
}

/// All checks, in the order of the report.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    let groups = [
        info::CHECKS,
        configuration::CHECKS,
        instances::CHECKS,
        batches::CHECKS,
        trouble::CHECKS,
        load_balancers::CHECKS,
        routes::CHECKS,
    ];
    groups.into_iter().flatten()
}

/// A promise that was broken.
pub(crate) fn failed(
    sent: impl Into<String>,
    came: impl Into<String>,
    advice: impl Into<String>,
) -> Shortfall {
    Shortfall::Failed(Failure { sent: sent.into(), came: came.into(), advice: advice.into() })
}

/// A check that lacks something.
pub(crate) fn not_run(needs: impl Into<String>) -> Shortfall {
    Shortfall::NotRun(needs.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_check_has_a_name_of_its_own_and_says_why_it_matters() {
        let ids: BTreeSet<_> = all().map(|check| check.id).collect();
        assert_eq!(ids.len(), all().count());
        for Check { id, claim, matters, judge: _ } in all() {
            assert!(
                id.split_once('.').is_some_and(|(group, name)| !group.is_empty() && !name.is_empty()),
                "{id}"
            );
            for text in [claim, matters] {
                assert!(text.len() > 20 && !text.ends_with('.'), "{id}: {text}");
            }
        }
    }
}
