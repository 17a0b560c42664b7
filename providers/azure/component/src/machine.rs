//! The machines behind Nodes. A Node's provider ID, or else a label and the configuration, tells its resource group; Nodes of one
//! group that are looked up together share the lists of that group. `sweep` lists a group; `uniform` and `standalone` find
//! one machine.

pub(crate) mod address;
pub(crate) mod power;
pub(crate) mod provider_id;
mod standalone;
mod sweep;
mod uniform;
pub(crate) mod zone;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use address::{NetworkInterface, Published};
use pileus_guest::{
    Answer, Error, Instance, Instances, NodeReference, Purpose, Stance, lookup_in_list, map_concurrently,
};
use power::InstanceView;
use provider_id::MachineId;
use serde::Deserialize;

use crate::Azure;
use crate::arm::Group;

/// The Node label that takes a machine out of Azure's hands: `kubernetes.azure.com/managed=false`.
pub(crate) const MANAGED: &str = "kubernetes.azure.com/managed";

/// The Node label with the resource group of the machine, if it isn't that of the cluster.
pub(crate) const RESOURCE_GROUP: &str = "kubernetes.azure.com/resource-group";

/// The Node label with the group of machines that a fast network joins, and the tag that Azure has for it.
pub(crate) const INTERCONNECT: (&str, &str) =
    ("topology.kubernetes.azure.com/interconnect-group", "Platform_Interconnect_Group");

/// When to look again at a machine that is being created.
const CREATING: Duration = Duration::from_secs(5);

/// A virtual machine, by itself or in a scale set, as far as Nodes need it.
#[derive(Debug, Deserialize)]
pub(crate) struct Machine {
    #[serde(default)]
    id: String,
    #[serde(default)]
    location: String,
    zones: Option<Vec<String>>,
    tags: Option<HashMap<String, String>>,
    sku: Option<Sku>,
    #[serde(default)]
    properties: Properties,
}

#[derive(Debug, Deserialize)]
struct Sku {
    name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Properties {
    hardware_profile: Option<Hardware>,
    os_profile: Option<System>,
    network_profile: Option<Network>,
    provisioning_state: Option<String>,
    platform_fault_domain: Option<i64>,
    instance_view: Option<InstanceView>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hardware {
    vm_size: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct System {
    computer_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Network {
    network_interfaces: Option<Vec<InterfaceReference>>,
}

#[derive(Debug, Deserialize)]
struct InterfaceReference {
    #[serde(default)]
    id: String,
    properties: Option<Primary>,
}

#[derive(Debug, Deserialize)]
struct Primary {
    primary: Option<bool>,
}

impl Instances for Azure {
    async fn lookup(&self, _: Purpose, node: &NodeReference) -> Result<Answer, Error> {
        let answer = match &node.provider_id {
            Some(id) => {
                let id = MachineId::parse(id)
                    .ok_or_else(|| Error::invalid_provider_id(id, provider_id::EXAMPLE))?;
                match &id.set {
                    Some(set) => self.uniform_machine(&id, set).await?,
                    None => self.standalone_machine(&id).await?,
                }
            }
            None => self.machine_named(&self.group(node)?, &node.name).await?,
        };
        Ok(self.unless_young(answer, node))
    }

    async fn lookup_many(
        &self,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        let mut groups = BTreeMap::<_, (Vec<usize>, Vec<NodeReference>)>::new();
        for (row, node) in nodes.iter().enumerate() {
            let (rows, members) = groups.entry(self.group(node)?).or_default();
            rows.push(row);
            members.push(node.clone());
        }
        let look_up = async |(group, (rows, members)): (Group, (Vec<usize>, Vec<NodeReference>))| {
            let list = async |source| Some(self.sweep(&group, source).await);
            (rows, lookup_in_list(self, purpose, &members, list).await)
        };
        let mut answers: Vec<_> = map_concurrently(groups, look_up)
            .await
            .into_iter()
            .flat_map(|(rows, answers)| rows.into_iter().zip(answers))
            .collect();
        answers.sort_by_key(|(row, _)| *row);
        let young = |(row, answer): (usize, Result<Answer, Error>)| {
            answer.map(|answer| nodes.get(row).map_or(answer.clone(), |node| self.unless_young(answer, node)))
        };
        Ok(answers.into_iter().map(young).collect())
    }

    fn unmanaged(&self, node: &NodeReference) -> Option<Stance> {
        let is_labeled = is_unmanaged(|key| node.label(key));
        let is_other = node.provider_id.as_deref().is_some_and(|id| MachineId::parse(id).is_none());
        (is_labeled || is_other).then_some(Stance::Released)
    }
}

/// Whether labels say that Azure has no part in a Node.
pub(crate) fn is_unmanaged<'a>(label: impl Fn(&str) -> Option<&'a str>) -> bool {
    label(MANAGED).is_some_and(|value| value.eq_ignore_ascii_case("false"))
}

impl Azure {
    /// The resource group of a Node's machine.
    ///
    /// # Errors
    ///
    /// `invalid` if the configuration is for node managers alone.
    fn group(&self, node: &NodeReference) -> Result<Group, Error> {
        if self.subscription.is_empty() {
            return Err(Error::invalid(
                "the configuration has no subscriptionId, so it serves node managers alone",
            ));
        }
        if let Some(id) = node.provider_id.as_deref().and_then(MachineId::parse) {
            return Ok(id.group);
        }
        let name = node.label(RESOURCE_GROUP).unwrap_or(&self.resource_group).to_lowercase();
        Ok(Group { subscription: self.subscription.to_lowercase(), name })
    }

    /// The answer, unless it is about a Node that is too young for its machine to be visible everywhere.
    fn unless_young(&self, answer: Answer, node: &NodeReference) -> Answer {
        let is_young = || SystemTime::now().duration_since(node.created_at).is_ok_and(|age| age < self.grace);
        match answer {
            Answer::Absent if !self.grace.is_zero() && is_young() => Answer::Pending(CREATING),
            answer => answer,
        }
    }
}

impl Machine {
    fn provisioning_state(&self) -> Option<&str> {
        self.properties.provisioning_state.as_deref()
    }

    fn is_deleting(&self) -> bool {
        power::is_deleting(self.provisioning_state())
    }

    /// The name of the Node, in lower case. None while the machine is being created.
    fn computer_name(&self) -> Option<String> {
        let system = self.properties.os_profile.as_ref()?;
        system.computer_name.as_ref().map(|name| name.to_lowercase())
    }

    /// The IDs of its network interfaces: the primary one alone, if it is marked.
    fn interface_ids(&self) -> Vec<&str> {
        let all = self.properties.network_profile.as_ref().and_then(|it| it.network_interfaces.as_deref());
        let all = all.unwrap_or_default();
        let is_marked =
            |it: &&InterfaceReference| it.properties.as_ref().is_some_and(|it| it.primary == Some(true));
        match all.iter().find(is_marked) {
            Some(one) => vec![&one.id],
            None => all.iter().map(|it| &*it.id).collect(),
        }
    }

    /// The answer about the machine with this interface. It is pending while the machine has none, or while a public address of
    /// it isn't known.
    fn answer(&self, id: &MachineId, interface: Option<&NetworkInterface>, published: &Published) -> Answer {
        if self.is_deleting() {
            return Answer::Absent;
        }
        let name = self.computer_name();
        let addresses = name.as_deref().zip(interface).and_then(|(name, it)| it.addresses(name, published));
        let Some(addresses) = addresses else { return Answer::Pending(CREATING) };
        let Properties { hardware_profile, platform_fault_domain, instance_view, .. } = &self.properties;
        let size = hardware_profile.as_ref().and_then(|hardware| hardware.vm_size.clone());
        let of_set = id.set.as_ref().and_then(|_| self.sku.as_ref()?.name.clone());
        let domain = instance_view.as_ref().and_then(|view| view.platform_fault_domain);
        let zones = self.zones.as_deref().unwrap_or_default();
        let (label, tag) = INTERCONNECT;
        let joined = self.tags.iter().flatten().find(|(key, _)| key.eq_ignore_ascii_case(tag));
        Answer::Found(Instance {
            provider_id: id.provider_id(),
            instance_type: of_set.or(size),
            zone: zone::zone(&self.location, zones, domain.or(*platform_fault_domain)),
            region: Some(zone::region(&self.location)).filter(|region| !region.is_empty()),
            addresses,
            labels: joined.map(|(_, value)| (label.to_owned(), value.clone())).into_iter().collect(),
            state: power::state(instance_view.as_ref(), self.provisioning_state()),
            ..Instance::default()
        })
    }
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
