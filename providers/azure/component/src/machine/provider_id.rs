//! Provider IDs: `azure://` and the machine's ID in the resource manager, with the resource group in lower case. Older Nodes have
//! other spellings. Pure.

use crate::arm::Group;
use crate::arm::id::ResourceId;

/// The scheme of provider IDs, without `://`.
pub(crate) const SCHEME: &str = "azure";

/// A form of provider ID, for messages.
pub(crate) const EXAMPLE: &str =
    "azure:///subscriptions/…/resourceGroups/…/providers/Microsoft.Compute/virtualMachines/…";

const COMPUTE: &str = "Microsoft.Compute";
const MACHINES: &str = "virtualMachines";
const SETS: &str = "virtualMachineScaleSets";

/// Which machine it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineId {
    pub(crate) group: Group,
    /// The uniform scale set that it is an instance of. Machines of flexible scale sets are machines by themselves.
    pub(crate) set: Option<String>,
    /// The name, or the number in its scale set.
    pub(crate) name: String,
}

impl MachineId {
    /// Reads a provider ID. None for the ID of anything else than a machine, which isn't managed.
    pub(crate) fn parse(provider_id: &str) -> Option<Self> {
        let (scheme, id) = provider_id.split_once("://")?;
        if scheme != SCHEME || !id.starts_with('/') {
            return None;
        }
        Self::of(id)
    }

    /// Reads an ID of the resource manager.
    pub(crate) fn of(id: &str) -> Option<Self> {
        let ResourceId { subscription, resource_group, namespace, path } = ResourceId::parse(id)?;
        if !namespace.eq_ignore_ascii_case(COMPUTE) {
            return None;
        }
        let is = |kind: &str, expected: &str| kind.eq_ignore_ascii_case(expected);
        let (set, name) = match &*path {
            [(kind, name)] if is(kind, MACHINES) => (None, (*name).to_owned()),
            [(outer, set), (kind, instance)] if is(outer, SETS) && is(kind, MACHINES) => {
                (Some((*set).to_owned()), instance_number(set, instance).to_owned())
            }
            _ => return None,
        };
        let group = Group { subscription: subscription.to_lowercase(), name: resource_group.to_lowercase() };
        Some(Self { group, set, name })
    }

    /// The provider ID, as cloud-provider-azure writes it.
    pub(crate) fn provider_id(&self) -> String {
        let Self { group: Group { subscription, name: group }, set, name } = self;
        let set = set.as_ref().map(|set| format!("/{SETS}/{set}")).unwrap_or_default();
        format!(
            "{SCHEME}:///subscriptions/{subscription}/resourceGroups/{group}/providers/{COMPUTE}{set}/{MACHINES}/{name}"
        )
    }

    /// The path below the resource group's compute resources.
    pub(crate) fn path(&self) -> Vec<&str> {
        match &self.set {
            None => vec![MACHINES, &self.name],
            Some(set) => vec![SETS, set, MACHINES, &self.name],
        }
    }
}

/// The number of an instance. Some Nodes have it as `{set}_{number}`, the name of the instance.
fn instance_number<'a>(set: &str, instance: &'a str) -> &'a str {
    match instance.rsplit_once('_') {
        Some((prefix, number)) if prefix.eq_ignore_ascii_case(set) => number,
        _ => instance,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use pileus_guest::Provider;

    use super::*;
    use crate::Azure;

    const GROUP: &str = "azure:///subscriptions/sub/resourceGroups/mc_group/providers/Microsoft.Compute";

    /// Section 2.1 and bug 41 (K8S#71994): each historic spelling is of the same machine, and comes out in one.
    #[test]
    fn every_spelling_of_a_provider_id_is_of_one_machine() {
        let standalone = format!("{GROUP}/virtualMachines/Node-1");
        let uniform = format!("{GROUP}/virtualMachineScaleSets/Pool_a/virtualMachines/10");
        let rows = [
            ("as it is written", standalone.clone(), &standalone),
            ("group in upper case", standalone.replace("mc_group", "MC_Group"), &standalone),
            ("resourcegroups", standalone.replace("resourceGroups", "resourcegroups"), &standalone),
            ("more slashes", standalone.replace(":///", ":////"), &standalone),
            ("subscription in upper case", standalone.replace("/sub/", "/SUB/"), &standalone),
            ("a scale set's instance", uniform.clone(), &uniform),
            ("by its name", uniform.replace("/10", "/Pool_a_10"), &uniform),
            ("by its name in another case", uniform.replace("/10", "/pool_A_10"), &uniform),
            ("microsoft.compute", uniform.replace("Microsoft.Compute", "microsoft.compute"), &uniform),
        ];
        for (row, spelling, expected) in rows {
            let id = MachineId::parse(&spelling).unwrap_or_else(|| panic!("{row}"));
            assert_eq!(&id.provider_id(), expected, "{row}");
            assert_eq!(Azure::canonical_id(&spelling), Azure::canonical_id(expected), "{row}");
        }
        let lower = standalone.to_lowercase();
        assert_eq!(Azure::canonical_id(&lower), Azure::canonical_id(&standalone));
        assert_ne!(Azure::canonical_id(&uniform), Azure::canonical_id(&standalone));
    }

    /// Section 2.1: what isn't a machine of Azure's compute provider isn't managed.
    #[test]
    fn other_provider_ids_are_of_no_machine() {
        for id in [
            "azure://0B1C2D3E-0000-0000-0000-000000000000",
            "azure:///subscriptions/sub/resourceGroups/group/providers/Microsoft.HybridCompute/machines/a",
            "azure:///subscriptions/sub/resourceGroups/group/providers/Microsoft.Compute/disks/a",
            "azure:///subscriptions/sub/resourceGroups/group/providers/Microsoft.Compute/virtualMachineScaleSets/a",
            "aws:///subscriptions/sub/resourceGroups/group/providers/Microsoft.Compute/virtualMachines/a",
            "azure",
        ] {
            assert_eq!(MachineId::parse(id), None, "{id}");
            assert_eq!(Azure::canonical_id(id), Cow::Owned::<str>(id.to_lowercase()), "{id}");
        }
    }

    /// D7: a machine whose name contains the name of its resource group keeps its name.
    #[test]
    fn a_name_that_contains_the_resource_group_stays() {
        let id =
            "/subscriptions/sub/resourceGroups/Kube/providers/Microsoft.Compute/virtualMachines/Kube-Node";
        let expected = "azure:///subscriptions/sub/resourceGroups/kube/providers/Microsoft.Compute/virtualMachines/Kube-Node";
        assert_eq!(MachineId::of(id).unwrap().provider_id(), expected);
    }
}
