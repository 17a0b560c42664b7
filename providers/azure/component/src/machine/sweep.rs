//! The lists of a resource group, which answer for all Nodes of it: one for scale sets, one for machines outside of uniform scale
//! sets, and for each uniform scale set its machines and their network interfaces. Network interfaces and public addresses of
//! the group are listed only if a machine has one. No request is about a single Node, unless it borrows a resource of another group.

use std::collections::HashMap;

use futures::future::join;
use pileus_guest::http::Source;
use pileus_guest::{Answer, Error, InstanceList, map_concurrently};
use serde::Deserialize;

use super::Machine;
use super::address::{NetworkInterface, PublicAddress, Published, primary, published};
use super::provider_id::MachineId;
use crate::Azure;
use crate::arm::{Api, Group, Listed, id, list, with_instance_view};

/// A scale set.
#[derive(Debug, Deserialize)]
pub(super) struct ScaleSet {
    pub(super) name: String,
    #[serde(default)]
    properties: SetProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SetProperties {
    orchestration_mode: Option<String>,
    virtual_machine_profile: Option<Profile>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    os_profile: Option<SystemProfile>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SystemProfile {
    computer_name_prefix: Option<String>,
}

impl ScaleSet {
    pub(super) fn is_uniform(&self) -> bool {
        let mode = self.properties.orchestration_mode.as_deref();
        !mode.is_some_and(|mode| mode.eq_ignore_ascii_case("Flexible"))
    }

    /// The beginning of its machines' computer names.
    pub(super) fn prefix(&self) -> &str {
        let system = self.properties.virtual_machine_profile.as_ref().and_then(|it| it.os_profile.as_ref());
        let prefix = system.and_then(|system| system.computer_name_prefix.as_deref());
        prefix.unwrap_or(&self.name)
    }
}

/// The provider ID, the name and the answer of each machine of a list.
type Entries = Listed<(String, String, Answer)>;

impl Azure {
    /// The answers for all machines of a resource group.
    pub(super) async fn sweep(&self, group: &Group, source: Source) -> InstanceList {
        let of_sets = async {
            if !self.has_scale_sets {
                return (Vec::new(), Ok(()));
            }
            let (sets, end) = self.scale_sets(group, source).await;
            let uniform = sets.into_iter().filter(ScaleSet::is_uniform);
            let parts = map_concurrently(uniform, async |set| self.uniform(group, &set, source).await).await;
            parts.into_iter().fold((Vec::new(), end), merge)
        };
        let (of_sets, others) = join(of_sets, self.standalone(group, source)).await;
        InstanceList::new(merge(of_sets, others), |entry| entry)
    }

    pub(super) async fn scale_sets(&self, group: &Group, source: Source) -> Listed<ScaleSet> {
        list(self.url(group, Api::ScaleSets, &["virtualMachineScaleSets"]), source).await
    }

    /// The machines of a uniform scale set.
    async fn uniform(&self, group: &Group, set: &ScaleSet, source: Source) -> Entries {
        let below = |kind| ["virtualMachineScaleSets", &set.name, kind];
        let machines = self.url(group, Api::ScaleSets, &below("virtualMachines"));
        let machines = if self.lists_power_states { with_instance_view(&machines) } else { machines };
        let interfaces = self.url(group, Api::SetNetwork, &below("networkInterfaces"));
        let (machines, interfaces) =
            join(list::<Machine>(machines, source), list::<NetworkInterface>(interfaces, source)).await;
        let addresses = self.url(group, Api::SetNetwork, &below("publicIPAddresses"));
        let (found, end) = public_addresses(&interfaces.0, addresses, source).await;
        let (interfaces, end) = (interfaces.0, interfaces.1.and(end));
        // The ID of such an interface is below that of its machine.
        let mut by_machine = HashMap::<_, Vec<_>>::new();
        for interface in &interfaces {
            let key = id::key(&interface.id);
            let machine = key.split("/networkinterfaces/").next().unwrap_or_default().to_owned();
            by_machine.entry(machine).or_default().push(interface);
        }
        let interface = |machine: &Machine| {
            let own = by_machine.get(&id::key(&machine.id)).map(Vec::as_slice).unwrap_or_default();
            primary(own.iter().copied())
        };
        entries(machines, &end, interface, &found)
    }

    /// The machines outside of uniform scale sets: standalone, in availability sets, and in flexible scale sets.
    async fn standalone(&self, group: &Group, source: Source) -> Entries {
        let machines = self.machines(group, source).await;
        if machines.0.is_empty() {
            return (Vec::new(), machines.1);
        }
        let url = self.url(group, Api::Network, &["networkInterfaces"]);
        let (mut interfaces, mut end) = list::<NetworkInterface>(url, source).await;
        let has = |interfaces: &[NetworkInterface], id: &str| {
            interfaces.iter().any(|it| it.id.eq_ignore_ascii_case(id))
        };
        let elsewhere: Vec<_> = machines
            .0
            .iter()
            .flat_map(Machine::interface_ids)
            .filter(|id| is_elsewhere(id, group) && !has(&interfaces, id))
            .collect();
        for read in map_concurrently(elsewhere, async |id: &str| self.interface(id, source).await).await {
            match read {
                Ok(interface) => interfaces.extend(interface),
                Err(error) => end = end.and(Err(error)),
            }
        }
        let url = self.url(group, Api::Network, &["publicIPAddresses"]);
        let (mut found, listed) = public_addresses(&interfaces, url, source).await;
        let borrowed = interfaces.iter().flat_map(NetworkInterface::public_ids);
        let borrowed: Vec<_> = borrowed.filter(|id| is_elsewhere(id, group)).collect();
        let (more, read) = self.read_public(borrowed, Api::Network, source).await;
        found.extend(more);
        let by_id: HashMap<_, _> = interfaces.iter().map(|it| (id::key(&it.id), it)).collect();
        let interface = |machine: &Machine| {
            let own: Vec<_> = machine
                .interface_ids()
                .into_iter()
                .filter_map(|id| by_id.get(&id::key(id)).copied())
                .collect();
            primary(own.iter().copied())
        };
        entries(machines, &end.and(listed).and(read), interface, &found)
    }
}

/// The entries of machines. Where lists of the network are incomplete, a machine that lacks something is left out, so that its
/// Node gets their error.
fn entries<'a>(
    (machines, end): Listed<Machine>,
    network: &Result<(), Error>,
    interface: impl Fn(&Machine) -> Option<&'a NetworkInterface>,
    published: &Published,
) -> Entries {
    let entry = |machine: &Machine| {
        let id = MachineId::of(&machine.id)?;
        let answer = machine.answer(&id, interface(machine), published);
        if network.is_err() && matches!(answer, Answer::Pending(_)) {
            return None;
        }
        // A machine that is being deleted has no name, so that a new one of its name is found.
        let name = machine.computer_name().filter(|_| answer != Answer::Absent).unwrap_or_default();
        Some((id.provider_id(), name, answer))
    };
    (machines.iter().filter_map(entry).collect(), end.and(network.clone()))
}

/// The public addresses of interfaces, if they have any.
async fn public_addresses(
    interfaces: &[NetworkInterface],
    url: String,
    source: Source,
) -> (Published, Result<(), Error>) {
    if interfaces.iter().all(|interface| interface.public_ids().next().is_none()) {
        return (Published::new(), Ok(()));
    }
    let (addresses, end) = list::<PublicAddress>(url, source).await;
    (published(addresses), end)
}

/// Whether a resource is in another resource group.
fn is_elsewhere(id: &str, group: &Group) -> bool {
    id::ResourceId::parse(id).is_some_and(|id| {
        !id.resource_group.eq_ignore_ascii_case(&group.name)
            || !id.subscription.eq_ignore_ascii_case(&group.subscription)
    })
}

fn merge<T>((mut all, end): Listed<T>, (more, other): Listed<T>) -> Listed<T> {
    all.extend(more);
    (all, end.and(other))
}
