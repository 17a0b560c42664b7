//! What the resource manager's error codes mean, where the status misleads. The outer code is `error.code`; the network provider
//! has the reason of a lock in the first of `error.details`.

use pileus_guest::http::{BaseUrl, CodePlace, Codes, Meaning};

/// The codes of a 404 that say nothing about the resource itself: another part of its path is wrong, or a region doesn't know a new
/// resource group yet.
pub(crate) const NOT_ABOUT_THE_RESOURCE: [&str; 5] = [
    "ResourceGroupNotFound",
    "SubscriptionNotFound",
    "InvalidSubscriptionId",
    "InvalidResourceType",
    "InvalidResourceNamespace",
];

/// Status, code and meaning, in the place `error.details.0.code`.
const DETAILS: [(u16, &str, Meaning); 2] = [
    (429, "ReferencedResourceNotProvisioned", Meaning::Locked),
    (429, "RetryableErrorDueToAnotherOperation", Meaning::Locked),
];

/// Status, code and meaning, in the place `error.code`. The first that fits counts.
pub(crate) const CODES: [(u16, &str, Meaning); 32] = [
    // A lock of one resource, which is no throttling.
    (429, "RetryableError", Meaning::Locked),
    (429, "RetryableErrorDueToAnotherOperation", Meaning::Locked),
    (429, "AnotherOperationInProgress", Meaning::Locked),
    (409, "AnotherOperationInProgress", Meaning::Locked),
    (409, "RetryableError", Meaning::Locked),
    (409, "ConcurrentRequestConflict*", Meaning::Locked),
    (409, "OperationPreempted", Meaning::Later),
    (409, "Canceled*", Meaning::Later),
    // An operator has to act.
    (409, "ScopeLocked", Meaning::Denied),
    (409, "*RegistrationRequired", Meaning::Denied),
    (409, "MissingSubscriptionRegistration", Meaning::Denied),
    (409, "OperationNotAllowed", Meaning::Invalid),
    (409, "QuotaExceeded", Meaning::Invalid),
    (403, "RequestDisallowedByPolicy", Meaning::Denied),
    // Not yet: something else goes first.
    (400, "InUse*", Meaning::Later),
    (400, "PublicIPAddressCannotBeDeleted", Meaning::Later),
    (400, "*InUseByVirtualMachineScaleSet", Meaning::Later),
    (400, "ReferencedResourceNotProvisioned", Meaning::Later),
    (400, "OperationNotAllowed", Meaning::Invalid),
    (400, "*LimitReached", Meaning::Invalid),
    // Absent, and what only looks so: a region that doesn't know a new resource group yet, a wrong subscription.
    (404, "ResourceNotFound", Meaning::Absent),
    (404, "ParentResourceNotFound", Meaning::Absent),
    (404, "NotFound", Meaning::Absent),
    (404, "InvalidInstanceId", Meaning::Absent),
    (400, "InvalidInstanceId", Meaning::Absent),
    (404, "ResourceGroupNotFound", Meaning::Unavailable),
    (404, "SubscriptionNotFound", Meaning::Denied),
    (404, "InvalidSubscriptionId", Meaning::Denied),
    (404, "InvalidResourceType", Meaning::Invalid),
    (404, "InvalidResourceNamespace", Meaning::Invalid),
    // A server that gives up is asked again.
    (400, "OperationTimedOut", Meaning::Unavailable),
    (409, "ServerTimeout", Meaning::Unavailable),
];

/// The tables for a resource manager. The details come first, because they say more.
pub(crate) fn codes(arm: &BaseUrl) -> [Codes; 2] {
    let table = |place: &str, rows: &[(u16, &str, Meaning)]| {
        let codes = arm.codes(CodePlace::Json(place.to_owned()));
        rows.iter().fold(codes, |codes, (status, code, meaning)| codes.code(*status, *code, *meaning))
    };
    [table("error.details.0.code", &DETAILS), table("error.code", &CODES)]
}

#[cfg(test)]
mod tests {
    use pileus_guest::ErrorKind::{Conflict, Denied, Invalid, Throttled, Unavailable};
    use pileus_guest::testing::{Host, get};
    use pileus_guest::{ErrorKind, NodeReference, Purpose};
    use serde_json::{Value, json};

    use crate::Azure;

    const URL: &str = "https://management.azure.com/subscriptions/sub/resourceGroups/group/providers/Microsoft.Compute/\
                       virtualMachines/vm?api-version=2025-04-01&%24expand=instanceView";

    fn error(code: &str, details: &Value) -> Value {
        json!({"error": {"code": code, "message": "no", "details": details}})
    }

    /// Section 5.5: each body and its kind. The body of a throttled compute request may lack the outer `error`.
    #[test]
    fn each_error_has_its_kind() {
        let locked = json!([{"code": "ReferencedResourceNotProvisioned", "message": "{}"}]);
        let throttled = json!([{"code": "TooManyRequests", "target": "HighCostGet", "message": "{}"}]);
        let none = json!([]);
        let rows: [(u16, Value, Result<bool, ErrorKind>); 34] = [
            (404, error("ResourceNotFound", &none), Ok(true)),
            (404, error("NotFound", &none), Ok(true)),
            (404, error("ParentResourceNotFound", &none), Ok(true)),
            (404, error("ResourceGroupNotFound", &none), Err(Unavailable(None))),
            (404, error("SubscriptionNotFound", &none), Err(Unavailable(None))),
            (404, error("InvalidInstanceId", &none), Ok(true)),
            (400, error("InvalidInstanceId", &none), Ok(true)),
            (404, error("NewInTomorrowsApi", &none), Ok(true)),
            (404, json!("<html>not found</html>"), Err(Unavailable(None))),
            (410, json!(null), Err(Unavailable(None))),
            (200, json!(null), Err(ErrorKind::Broken)),
            (400, error("InvalidParameter", &none), Err(Invalid)),
            (400, error("NoRegisteredProviderFound", &none), Err(Invalid)),
            (400, error("PublicIPAddressCannotBeDeleted", &none), Err(Conflict(None))),
            (400, error("LoadBalancerInUseByVirtualMachineScaleSet", &none), Err(Conflict(None))),
            (400, error("InUseSubnetCannotBeDeleted", &none), Err(Conflict(None))),
            (400, error("PublicIPCountLimitReached", &none), Err(Invalid)),
            (400, error("PublicIPAndLBSkuDoNotMatch", &none), Err(Invalid)),
            (401, error("ExpiredAuthenticationToken", &none), Err(Denied)),
            (403, error("AuthorizationFailed", &none), Err(Denied)),
            (409, error("AnotherOperationInProgress", &none), Err(Conflict(None))),
            (409, error("ConcurrentRequestConflictError", &none), Err(Conflict(None))),
            (409, error("CanceledAndSupersededDueToAnotherOperation", &none), Err(Conflict(None))),
            (409, error("OperationPreempted", &none), Err(Conflict(None))),
            (409, error("ScopeLocked", &none), Err(Denied)),
            (409, error("OperationNotAllowed", &none), Err(Invalid)),
            (412, error("PreconditionFailed", &none), Err(Conflict(None))),
            (429, error("RetryableError", &locked), Err(Conflict(None))),
            (429, error("RetryableErrorDueToAnotherOperation", &none), Err(Conflict(None))),
            (429, error("OperationNotAllowed", &throttled), Err(Throttled(None))),
            (429, json!({"code": "OperationNotAllowed", "details": throttled}), Err(Throttled(None))),
            (429, error("SubscriptionRequestsThrottled", &none), Err(Throttled(None))),
            (500, error("InternalServerError", &none), Err(Unavailable(None))),
            (503, json!(null), Err(Unavailable(None))),
        ];
        let node = NodeReference::new("vm").with_provider_id(
            "azure:///subscriptions/sub/resourceGroups/group/providers/Microsoft.Compute/virtualMachines/vm",
        );
        for (status, body, expected) in rows {
            let answer = get(URL).status(status);
            let answer = if body.is_null() { answer } else { answer.json(&body) };
            let host = Host::new().configuration(crate::tests::minimal()).exchange(answer);
            let found = host.lookup::<Azure>(Purpose::Confirm, std::slice::from_ref(&node)).unwrap();
            let found = found.into_iter().next().unwrap();
            let found =
                found.map(|answer| answer == pileus_guest::Answer::Absent).map_err(|error| error.kind);
            assert_eq!(found, expected, "{status} {body}");
        }
    }
}
