//! Whether a machine runs, by its power state and its provisioning state. Pure.

use pileus_guest::InstanceState;
use serde::Deserialize;

/// The state of a machine at run time, which comes only if a request asks for it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InstanceView {
    statuses: Option<Vec<Status>>,
    pub(crate) platform_fault_domain: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    code: String,
}

/// Whether the machine is being deleted. Its instance counts as absent then, as with cloud-provider-azure.
pub(crate) fn is_deleting(provisioning: Option<&str>) -> bool {
    provisioning.is_some_and(|state| state.eq_ignore_ascii_case("Deleting"))
}

/// The state of a machine. It has stopped only if nothing else is being done to it: a machine that is being reimaged or moved
/// stops for a while, too.
pub(crate) fn state(view: Option<&InstanceView>, provisioning: Option<&str>) -> InstanceState {
    let codes = view.and_then(|view| view.statuses.as_ref()).into_iter().flatten();
    let mut power = codes.filter_map(|Status { code }| {
        let (kind, state) = code.split_once('/')?;
        kind.eq_ignore_ascii_case("PowerState").then(|| state.to_ascii_lowercase())
    });
    let is_settled = provisioning.is_some_and(|state| state.eq_ignore_ascii_case("Succeeded"));
    match power.next_back().as_deref() {
        Some("running" | "starting") => InstanceState::Running,
        Some("stopped" | "deallocated" | "deallocating") if is_settled => InstanceState::Stopped,
        _ => InstanceState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Section 2.6 and bug 15 (CPA#4428): a machine that runs is never stopped, and one that is reimaged isn't either.
    #[test]
    fn a_machine_has_stopped_only_if_nothing_is_being_done_to_it() {
        use InstanceState::{Running, Stopped, Unknown};
        let rows = [
            (Some("PowerState/running"), Some("Succeeded"), Running),
            (Some("PowerState/running"), Some("Updating"), Running),
            (Some("PowerState/starting"), Some("Succeeded"), Running),
            (Some("PowerState/stopped"), Some("Succeeded"), Stopped),
            (Some("powerstate/Deallocated"), Some("succeeded"), Stopped),
            (Some("PowerState/deallocating"), Some("Succeeded"), Stopped),
            (Some("PowerState/deallocated"), Some("Updating"), Unknown),
            (Some("PowerState/stopped"), Some("Failed"), Unknown),
            (Some("PowerState/stopped"), None, Unknown),
            (Some("PowerState/stopping"), Some("Succeeded"), Unknown),
            (Some("PowerState/new"), Some("Succeeded"), Unknown),
            (Some("ProvisioningState/succeeded"), Some("Succeeded"), Unknown),
            (None, Some("Succeeded"), Unknown),
        ];
        for (power, provisioning, expected) in rows {
            let statuses: Vec<_> = ["ProvisioningState/succeeded"]
                .into_iter()
                .chain(power)
                .map(|code| json!({"code": code, "level": "Info"}))
                .collect();
            let view: InstanceView = serde_json::from_value(json!({"statuses": statuses})).unwrap();
            assert_eq!(state(Some(&view), provisioning), expected, "{power:?} {provisioning:?}");
        }
        assert_eq!(state(None, Some("Succeeded")), Unknown);
        assert_eq!(state(Some(&InstanceView::default()), Some("Succeeded")), Unknown);
    }

    #[test]
    fn a_machine_that_is_being_deleted_counts_as_absent() {
        assert!(is_deleting(Some("Deleting")) && is_deleting(Some("deleting")));
        assert!(!is_deleting(Some("Updating")) && !is_deleting(Some("Failed")) && !is_deleting(None));
    }
}
