//! The limits of the compute provider by operation, as Azure publishes them. Pure.

use axum::http::Method;

use crate::id::Path;

/// A token bucket: how much it holds, and how much it gets a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limit {
    pub(super) burst: f64,
    pub(super) per_second: f64,
}

pub(super) const fn a_second(per_second: f64, burst: f64) -> Limit {
    Limit { burst, per_second }
}

/// A limit of the compute provider, which are published by the minute.
const fn a_minute(per_minute: f64, burst: f64) -> Limit {
    Limit { burst, per_second: per_minute / 60.0 }
}

/// A policy of the compute provider: its name, the limit of a resource, and that of a subscription in a region.
pub(super) type Policy = (&'static str, Option<Limit>, Limit);

const PUT_VM: Policy = ("PutVM", Some(a_minute(4.0, 12.0)), a_minute(500.0, 1_500.0));
const DELETE_VM: Policy = ("DeleteVM", Some(a_minute(4.0, 12.0)), a_minute(500.0, 1_500.0));
const GET_VM: Policy = ("LowCostGet", Some(a_minute(12.0, 36.0)), a_minute(8_000.0, 24_000.0));
const LIST_VM: Policy = ("HighCostGet", None, a_minute(300.0, 900.0));
const POLL: Policy = ("GetOperation", Some(a_minute(15.0, 45.0)), a_minute(5_000.0, 15_000.0));
const CREATE_SET: Policy = ("CreateVMScaleSet", Some(a_minute(4.0, 12.0)), a_minute(125.0, 375.0));
const UPDATE_SET: Policy = ("UpdateVMScaleSet", Some(a_minute(4.0, 12.0)), a_minute(500.0, 1_500.0));
const DELETE_SET: Policy = ("DeleteVMScaleSet", Some(a_minute(4.0, 12.0)), a_minute(175.0, 525.0));
const GET_SET: Policy = ("LowCostGetVMScaleSet", Some(a_minute(12.0, 36.0)), a_minute(800.0, 2_400.0));
const LIST_SET: Policy = ("HighCostGetVMScaleSet", None, a_minute(360.0, 1_080.0));
const VIEW_SET: Policy = ("HighCostGetVMScaleSet", Some(a_minute(10.0, 30.0)), a_minute(360.0, 1_080.0));
const PUT_SET_VM: Policy = ("UpdateVMScaleSetVM", Some(a_minute(4.0, 12.0)), a_minute(500.0, 1_500.0));
const DELETE_SET_VM: Policy = ("DeleteVMScaleSetVM", Some(a_minute(4.0, 12.0)), a_minute(500.0, 1_500.0));
const GET_SET_VM: Policy = ("GetVMScaleSetVM", Some(a_minute(12.0, 36.0)), a_minute(2_000.0, 6_000.0));

/// The policy of a request to the compute provider.
pub(super) fn policy(method: &Method, path: &Path, exists: bool) -> Policy {
    let types = path.types();
    let (is_read, is_delete) = (*method == Method::GET, *method == Method::DELETE);
    let is_of_set = types.starts_with("virtualmachinescalesets");
    if types.starts_with("locations/operations") {
        return POLL;
    }
    match (is_of_set, path.segments.len()) {
        (true, 1 | 3) if is_read => LIST_SET,
        (true, 2) if is_read => GET_SET,
        (true, 2) if is_delete => DELETE_SET,
        (true, 2) if !exists => CREATE_SET,
        (true, 2 | 3) => UPDATE_SET,
        (true, _) if is_read && types.ends_with("instanceview") && path.segments.len() == 3 => VIEW_SET,
        (true, _) if is_read => GET_SET_VM,
        (true, _) if is_delete => DELETE_SET_VM,
        (true, _) => PUT_SET_VM,
        (false, 1) if is_read => LIST_VM,
        (false, _) if is_read => GET_VM,
        (false, _) if is_delete => DELETE_VM,
        (false, _) => PUT_VM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_to_the_compute_provider_has_its_policy() {
        let base = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute";
        let table = [
            (Method::GET, "virtualMachines", "HighCostGet"),
            (Method::GET, "virtualMachines/v", "LowCostGet"),
            (Method::PUT, "virtualMachines/v", "PutVM"),
            (Method::DELETE, "virtualMachines/v", "DeleteVM"),
            (Method::GET, "virtualMachineScaleSets", "HighCostGetVMScaleSet"),
            (Method::GET, "virtualMachineScaleSets/a", "LowCostGetVMScaleSet"),
            (Method::GET, "virtualMachineScaleSets/a/virtualMachines", "HighCostGetVMScaleSet"),
            (Method::GET, "virtualMachineScaleSets/a/networkInterfaces", "HighCostGetVMScaleSet"),
            (Method::GET, "virtualMachineScaleSets/a/virtualMachines/0", "GetVMScaleSetVM"),
            (Method::PUT, "virtualMachineScaleSets/a/virtualMachines/0", "UpdateVMScaleSetVM"),
            (Method::PUT, "virtualMachineScaleSets/a", "UpdateVMScaleSet"),
            (Method::GET, "locations/eastus/operations/1", "GetOperation"),
        ];
        for (method, rest, expected) in table {
            let path = Path::parse(&format!("{base}/{rest}")).unwrap();
            assert_eq!(policy(&method, &path, true).0, expected, "{method} {rest}");
        }
        let set = Path::parse(&format!("{base}/virtualMachineScaleSets/a")).unwrap();
        assert_eq!(policy(&Method::PUT, &set, false).0, "CreateVMScaleSet");
    }
}
