//! A check as a value: a claim, why it matters, and a pure function that tests the claim against the observations.

use super::facts::Facts;
use super::{
    batches, configuration, faults, info, instances, load_balancers, refusals, routes, service_reports,
};

/// A check of one rule of the contract.
pub(crate) struct Check {
    /// A stable name that scripts may use.
    pub(crate) id: &'static str,
    /// What must hold, as a clause.
    pub(crate) claim: &'static str,
    /// What would happen in a cluster otherwise.
    pub(crate) matters: &'static str,
    /// Tests the claim.
    pub(crate) test: fn(&Facts) -> CheckResult,
}

/// The result of a check.
pub(crate) type CheckResult = Result<(), NotPassed>;

/// Why a check was not passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotPassed {
    /// The claim doesn't hold.
    Failed(Failure),
    /// The check could not run: what it needs, and how to provide it.
    NotRun(String),
}

/// How a claim was violated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What the test sent.
    pub(crate) sent: String,
    /// What the provider answered.
    pub(crate) received: String,
    /// What the provider's author should do.
    pub(crate) advice: String,
}

/// All checks, in the order of the report.
pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    let groups = [
        info::CHECKS,
        configuration::CHECKS,
        instances::CHECKS,
        batches::CHECKS,
        faults::CHECKS,
        refusals::CHECKS,
        load_balancers::CHECKS,
        service_reports::CHECKS,
        routes::CHECKS,
    ];
    groups.into_iter().flatten()
}

/// The result of a violated claim.
pub(crate) fn failed(
    sent: impl Into<String>,
    received: impl Into<String>,
    advice: impl Into<String>,
) -> NotPassed {
    NotPassed::Failed(Failure { sent: sent.into(), received: received.into(), advice: advice.into() })
}

/// The result of a check that lacks something.
pub(crate) fn not_run(needs: impl Into<String>) -> NotPassed {
    NotPassed::NotRun(needs.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn checks_have_unique_ids_claims_and_reasons() {
        let ids: BTreeSet<_> = all().map(|check| check.id).collect();
        assert_eq!(ids.len(), all().count());
        for Check { id, claim, matters, test: _ } in all() {
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
