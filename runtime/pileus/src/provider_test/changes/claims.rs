//! The checks that load balancers and routes share; those with a failing cloud are in `failures`. Each function makes
//! one check for a capability, so that the capability can list it where it belongs. [`Changing`] has what differs
//! between capabilities.

use pileus_cloud::Ingress;
use pileus_host::Capability;

use super::super::check::{Check, CheckResult, NotPassed, failed, not_run};
use super::super::facts::Facts;
use super::super::instances::{callable, observed};
use super::{CallRecord, Changes, Scenario, Step};

/// A capability that changes the cloud.
pub(in super::super) trait Changing {
    /// An item of its list.
    type Item: 'static;
    const CAPABILITY: Capability;
    /// The call that lists.
    const LIST: &'static str;
    /// What a check needs that is about created objects.
    const CREATED: &'static str;
    /// What a check needs that is about listed objects.
    const LISTED: &'static str;

    /// The observations, if there are any.
    fn changes(facts: &Facts) -> Option<&Changes<Self::Item>>;

    /// Whether an item belongs to the object with this key.
    fn is_of(item: &Self::Item, cluster: &str, key: &str) -> bool;

    /// Whether these items of one object are complete.
    fn is_complete(items: &[&Self::Item]) -> bool;

    /// What to do if an object isn't listed.
    fn listing_advice(cluster: &str, key: &str) -> String;

    /// A list as text.
    fn describe(listed: &[Self::Item]) -> String;
}

/// What a check needs that is about two Nodes.
pub(in super::super) const TWO_NODES: &str =
    "two Nodes that the cloud knows: pass --node NAME or --node NAME=PROVIDER-ID twice";

/// Every call returns one outcome for each change.
pub(in super::super) const fn one_each<C: Changing>(id: &'static str, matters: &'static str) -> Check {
    Check { id, claim: "every call returns one outcome for each change", matters, test: test_one_each::<C> }
}

/// What was created is listed. `claim` says with which details.
pub(in super::super) const fn listed<C: Changing>(
    id: &'static str,
    claim: &'static str,
    matters: &'static str,
) -> Check {
    Check { id, claim, matters, test: test_listed::<C> }
}

/// A deletion removes its object and nothing else.
pub(in super::super) const fn delete<C: Changing>(id: &'static str, matters: &'static str) -> Check {
    Check { id, claim: "a deleted object is gone, and the other one stays", matters, test: test_delete::<C> }
}

/// Deletions are idempotent.
pub(in super::super) const fn gone<C: Changing>(id: &'static str, matters: &'static str) -> Check {
    Check { id, claim: "deleting what does not exist is done", matters, test: test_gone::<C> }
}

/// The test leaves nothing behind.
pub(in super::super) const fn left<C: Changing>(id: &'static str, matters: &'static str) -> Check {
    Check { id, claim: "nothing of this test is left in the cloud", matters, test: test_left::<C> }
}

/// The observations of a capability, or why there are none.
pub(in super::super) fn changes<C: Changing>(facts: &Facts) -> Result<&Changes<C::Item>, NotPassed> {
    callable(facts, C::CAPABILITY)?;
    observed(C::changes(facts))
}

/// What happened in the real cloud, or why nothing did.
pub(in super::super) fn scenario<C: Changing>(facts: &Facts) -> Result<&Scenario<C::Item>, NotPassed> {
    changes::<C>(facts)?.scenario()
}

/// The ingress of each change of a call in which all must be done.
pub(in super::super) fn done<'a>(
    call: &'a CallRecord,
    advice: &str,
) -> Result<Vec<&'a [Ingress]>, NotPassed> {
    call.done().ok_or_else(|| call.missed(advice))
}

/// Whether a list has the complete items of an object.
pub(in super::super) fn has<C: Changing>(listed: &[C::Item], cluster: &str, key: &str) -> bool {
    C::is_complete(&items_of::<C>(listed, cluster, key))
}

/// The items of an object.
pub(in super::super) fn items_of<'a, C: Changing>(
    listed: &'a [C::Item],
    cluster: &str,
    key: &str,
) -> Vec<&'a C::Item> {
    listed.iter().filter(|item| C::is_of(item, cluster, key)).collect()
}

/// The failure of a list that followed a call.
pub(in super::super) fn wrong_list<C: Changing>(
    call: &CallRecord,
    listed: &[C::Item],
    advice: impl Into<String>,
) -> NotPassed {
    failed(format!("{}, then {}", call.sent, C::LIST), C::describe(listed), advice)
}

/// Turns a failure into a reason not to run checks that build on it.
pub(in super::super) fn precondition(result: CheckResult, needs: &str) -> CheckResult {
    result.map_err(|not_passed| match not_passed {
        NotPassed::Failed(_) => not_run(needs),
        not_run @ NotPassed::NotRun(_) => not_run,
    })
}

fn test_one_each<C: Changing>(facts: &Facts) -> CheckResult {
    let changes = changes::<C>(facts)?;
    match changes.calls().find(|call| call.is_misaligned()) {
        Some(call) => Err(call
            .failed("build the list from the changes that were sent, in their order, however they are made")),
        None => changes.scenario().map(|_| ()),
    }
}

/// Uses the first list: of load balancers after they were created, of routes after they were created twice.
pub(in super::super) fn test_listed<C: Changing>(facts: &Facts) -> CheckResult {
    let scenario = scenario::<C>(facts)?;
    let Scenario { cluster, keys, .. } = scenario;
    let step = if scenario.list(Step::Make, "").is_ok() { Step::Make } else { Step::Again };
    let call = scenario.call(step, C::CREATED)?;
    let listed = scenario.list(step, C::CREATED)?;
    if scenario.lists.iter().any(|(_, list)| list.items.is_ok() && list.requests.is_empty()) {
        let advice = "read the list from the cloud in the same call: the host doesn't believe it otherwise";
        return Err(wrong_list::<C>(call, listed, advice));
    }
    match keys.iter().find(|key| !has::<C>(listed, cluster, key)) {
        Some(key) => Err(wrong_list::<C>(call, listed, C::listing_advice(cluster, key))),
        None => Ok(()),
    }
}

fn test_delete<C: Changing>(facts: &Facts) -> CheckResult {
    precondition(test_listed::<C>(facts), C::LISTED)?;
    let scenario = scenario::<C>(facts)?;
    let Scenario { cluster, keys: [first, second], .. } = scenario;
    let call = scenario.call(Step::Delete, C::LISTED)?;
    done(
        call,
        "remove all that was created for the object, and answer done once the cloud has none of it left",
    )?;
    let listed = scenario.list(Step::Delete, C::LISTED)?;
    // Others may change the cloud at the same time, so the second object stands for all that must stay.
    if !items_of::<C>(listed, cluster, first).is_empty() {
        let advice = "answer in-progress while the cloud still has something of the object";
        return Err(wrong_list::<C>(call, listed, advice));
    }
    if !has::<C>(listed, cluster, second) {
        return Err(wrong_list::<C>(call, listed, "remove nothing of other objects"));
    }
    Ok(())
}

fn test_gone<C: Changing>(facts: &Facts) -> CheckResult {
    let scenario = scenario::<C>(facts)?;
    let calls: Vec<_> = [Step::Before, Step::DeleteAgain]
        .into_iter()
        .filter_map(|step| scenario.call(step, "").ok())
        .collect();
    if calls.is_empty() {
        return Err(not_run(C::LISTED));
    }
    for call in calls {
        done(call, "answer done if the cloud says that the object doesn't exist, as with a 404")?;
        if call.requests.is_empty() {
            let advice =
                "ask the cloud before you answer done: the host doesn't believe a deletion otherwise";
            return Err(call.missed(advice));
        }
    }
    Ok(())
}

fn test_left<C: Changing>(facts: &Facts) -> CheckResult {
    let left = &scenario::<C>(facts)?.left;
    if left.is_empty() {
        return Ok(());
    }
    Err(failed(
        "all calls that remove what the test created, at its end",
        format!("still there: {}", left.join("; ")),
        "remove it from the cloud by hand, then fix what the failed checks above name",
    ))
}

#[cfg(test)]
mod tests {
    use pileus_cloud::{Error, ErrorKind};
    use pileus_gate::Effect;
    use pileus_host::Fault;

    use super::super::super::cloud::CloudMode;
    use super::super::super::samples::changes::{call, fault, list, request};
    use super::super::super::samples::{facts, outcomes};
    use super::super::{CallFailure, ChangeOutcome, ServiceReport};
    use super::*;

    type Mistake = fn(&mut Facts);

    fn broken() -> Vec<ChangeOutcome> {
        vec![ChangeOutcome::Failed(Error::new(ErrorKind::Broken, "it can't"))]
    }

    /// A mistake for each shared check, in the observations of one capability.
    macro_rules! mistakes {
        ($of:ident, $group:literal) => {{
            let rows: [(&str, Mistake); 10] = [
                (concat!($group, ".one-each"), |it| {
                    let contract = Fault::Contract("change answered 1 times about 2 items".to_owned());
                    fault(&mut it.$of, CloudMode::NotFound).call.outcomes = Err(CallFailure::Fault(contract));
                }),
                (concat!($group, ".delete"), |it| call(&mut it.$of, Step::Delete).outcomes = Ok(broken())),
                (concat!($group, ".delete"), |it| drop(list(&mut it.$of, Step::Delete).pop())),
                (concat!($group, ".gone"), |it| call(&mut it.$of, Step::DeleteAgain).outcomes = Ok(broken())),
                (concat!($group, ".gone"), |it| call(&mut it.$of, Step::DeleteAgain).requests.clear()),
                (concat!($group, ".left"), |it| {
                    let scenario = it.$of.as_mut().unwrap().scenario.as_mut().unwrap();
                    scenario.left.push("second".to_owned());
                }),
                (concat!($group, ".read-only"), |it| {
                    let list = fault(&mut it.$of, CloudMode::Busy).list.as_mut().unwrap();
                    list.requests.push(request(Effect::Write));
                }),
                (concat!($group, ".trouble"), |it| {
                    let done = vec![ChangeOutcome::Done(ServiceReport::default())];
                    fault(&mut it.$of, CloudMode::CutOff).call.outcomes = Ok(done);
                }),
                (concat!($group, ".whole-list"), |it| {
                    fault(&mut it.$of, CloudMode::Page).list.as_mut().unwrap().items = Ok(Vec::new());
                }),
                (concat!($group, ".deadline"), |it| {
                    let trap = Err(CallFailure::Fault(Fault::StackOverflow));
                    fault(&mut it.$of, CloudMode::Silence).call.outcomes = trap;
                }),
            ];
            rows
        }};
    }

    #[test]
    fn each_mistake_fails_exactly_its_own_check_for_both_capabilities() {
        let balancing = mistakes!(load_balancers, "load-balancers");
        for (expected, mistake) in balancing.into_iter().chain(mistakes!(routes, "routes")) {
            let mut facts = facts();
            mistake(&mut facts);
            assert_eq!(outcomes(&facts, "failed"), [expected]);
        }
    }
}
