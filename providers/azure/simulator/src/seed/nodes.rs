//! Node machines of all kinds with their network. Pure.

use serde_json::{Value, json};

use super::{Arrangement, NewNodes};
use crate::catalog::Kind;
use crate::compute::scale_set;
use crate::id::{Id, Key};
use crate::refusal::Refusal;
use crate::state::{LOCATIONS, State, normalize_location};

/// The most machines of a scale set, as in Azure.
const MAX_SCALE_SET: u32 = 1_000;

impl State {
    pub(super) fn create_nodes(&mut self, nodes: &NewNodes) -> Result<Vec<String>, Refusal> {
        let sets = nodes.sets.max(1);
        let location = normalize_location(&nodes.location);
        if !LOCATIONS.iter().any(|known| known.name == location) {
            return Err(Refusal::new(
                400,
                "LocationNotAvailableForResourceType",
                format!("unknown region '{location}'"),
            ));
        }
        let is_too_many = nodes.count.div_ceil(sets) > MAX_SCALE_SET;
        if is_too_many && matches!(nodes.arrangement, Arrangement::Uniform | Arrangement::Flexible) {
            let message = format!(
                "A scale set has at most {MAX_SCALE_SET} machines: {} need more than {sets} sets.",
                nodes.count
            );
            return Err(Refusal::new(400, "InvalidParameter", message));
        }
        let subscription = nodes.subscription.clone().unwrap_or_else(|| self.subscription.clone());
        self.add_group(&subscription, &nodes.group, &location);
        let base = format!("/subscriptions/{subscription}/resourceGroups/{}/providers", nodes.group);
        let plan = Plan { nodes, base, location };
        self.create_network(&plan)?;
        let mut names = Vec::new();
        for index in 0..sets {
            let count = nodes.count / sets + u32::from(index < nodes.count % sets);
            names.extend(match nodes.arrangement {
                Arrangement::Uniform => self.create_uniform(&plan, index, count)?,
                Arrangement::Flexible | Arrangement::AvailabilitySets => {
                    self.create_in_set(&plan, index, count)?
                }
                Arrangement::Standalone => {
                    self.create_machines(&plan, &format!("{}-vm{index}", nodes.prefix), count, &json!({}))?
                }
            });
        }
        Ok(names)
    }

    fn create_network(&mut self, plan: &Plan<'_>) -> Result<(), Refusal> {
        let id = format!("{}/Microsoft.Network/virtualNetworks/{}", plan.base, plan.nodes.network);
        if self.store.get(&Key::of(&id)).is_some() {
            return Ok(());
        }
        self.create(&json!({"id": id, "location": plan.location, "properties": {
            "addressSpace": {"addressPrefixes": ["10.224.0.0/12", "fd12:3456:789a::/48"]},
            "subnets": [{"name": "nodes", "properties": {"addressPrefixes": ["10.224.0.0/16", "fd12:3456:789a::/64"]}}],
        }}))
    }

    fn create_uniform(&mut self, plan: &Plan<'_>, index: u32, count: u32) -> Result<Vec<String>, Refusal> {
        let name = format!("{}{index}-vmss", plan.nodes.prefix);
        let id = format!("{}/Microsoft.Compute/virtualMachineScaleSets/{name}", plan.base);
        let template = json!({"name": "pip", "properties": {"idleTimeoutInMinutes": 4}});
        let public = plan.nodes.public_addresses.then_some(("publicIPAddressConfiguration", template));
        let mut set = json!({
            "id": id, "location": plan.location, "sku": {"name": plan.nodes.size, "capacity": count}, "tags": {"pool": name},
            "properties": {"orchestrationMode": "Uniform", "virtualMachineProfile": {
                "osProfile": {"computerNamePrefix": name},
                "networkProfile": {"networkInterfaceConfigurations": [
                    {"name": name, "properties": {"primary": true, "ipConfigurations": plan.configurations(public)}},
                ]},
            }},
        });
        plan.add_zones(&mut set, None);
        self.create(&set)?;
        let key = Key::of(&id);
        let Some(set) = self.store.get(&key).cloned() else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for _ in 0..count {
            let machine = scale_set::add_machine(self, &set)?;
            names.extend(self.computer_name(&machine));
        }
        Ok(names)
    }

    fn create_in_set(&mut self, plan: &Plan<'_>, index: u32, count: u32) -> Result<Vec<String>, Refusal> {
        let is_flexible = plan.nodes.arrangement == Arrangement::Flexible;
        let (kind, suffix) =
            if is_flexible { (Kind::ScaleSet, "flex") } else { (Kind::AvailabilitySet, "as") };
        let name = format!("{}{index}-{suffix}", plan.nodes.prefix);
        let id = format!("{}/Microsoft.Compute/{}/{name}", plan.base, kind.name());
        let (field, set) = if is_flexible {
            let mut set = json!({"id": id, "location": plan.location, "sku": {"name": plan.nodes.size, "capacity": count}, "properties": {
                "orchestrationMode": "Flexible", "platformFaultDomainCount": 1, "singlePlacementGroup": false,
                "virtualMachineProfile": {"osProfile": {"computerNamePrefix": name}},
            }});
            plan.add_zones(&mut set, None);
            ("virtualMachineScaleSet", set)
        } else {
            let properties = json!({"platformFaultDomainCount": 2, "platformUpdateDomainCount": 5});
            (
                "availabilitySet",
                json!({"id": id, "location": plan.location, "sku": {"name": "Aligned"}, "properties": properties}),
            )
        };
        self.create(&set)?;
        self.create_machines(plan, &name, count, &json!({field: {"id": id}}))
    }

    /// Creates virtual machines with an interface each, and a public address where that is asked for.
    fn create_machines(
        &mut self,
        plan: &Plan<'_>,
        prefix: &str,
        count: u32,
        more: &Value,
    ) -> Result<Vec<String>, Refusal> {
        let mut names = Vec::new();
        for number in 0..count {
            let computer = format!("{prefix}{number:06}");
            let is_flexible = plan.nodes.arrangement == Arrangement::Flexible;
            // The resource of a flexible machine has another name than its computer.
            let name = if is_flexible { format!("{prefix}_{number:08x}") } else { computer.clone() };
            let public = plan
                .nodes
                .public_addresses
                .then(|| format!("{}/Microsoft.Network/publicIPAddresses/{name}-pip", plan.base));
            if let Some(id) = &public {
                self.create(&json!({"id": id, "location": plan.location, "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}}))?;
            }
            let interface = format!("{}/Microsoft.Network/networkInterfaces/{name}-nic", plan.base);
            let configurations = plan.configurations(public.map(|id| ("publicIPAddress", json!({"id": id}))));
            self.create(&json!({"id": interface, "location": plan.location, "properties": {"ipConfigurations": configurations}}))?;
            let mut properties = more.clone();
            for (field, value) in [
                ("hardwareProfile", json!({"vmSize": plan.nodes.size})),
                ("osProfile", json!({"computerName": computer})),
                (
                    "networkProfile",
                    json!({"networkInterfaces": [{"id": interface, "properties": {"primary": true}}]}),
                ),
            ] {
                crate::json::set(&mut properties, field, value);
            }
            let id = format!("{}/Microsoft.Compute/virtualMachines/{name}", plan.base);
            let mut machine = json!({"id": id, "location": plan.location, "properties": properties});
            if plan.nodes.arrangement != Arrangement::AvailabilitySets {
                plan.add_zones(&mut machine, Some(number));
            }
            self.create(&machine)?;
            if let Some(facts) = self.store.get_mut(&Key::of(&id)).and_then(|it| it.machine.as_mut())
                && plan.nodes.arrangement == Arrangement::AvailabilitySets
            {
                facts.fault_domain = u64::from(number % 2);
                facts.update_domain = u64::from(number % 5);
            }
            names.push(computer);
        }
        Ok(names)
    }

    fn computer_name(&self, id: &Id) -> Option<String> {
        let machine = self.store.get(&id.key())?;
        Some(crate::json::text(&machine.body, "/properties/osProfile/computerName").to_owned())
    }
}

/// What the resources of some node machines have in common.
struct Plan<'a> {
    nodes: &'a NewNodes,
    base: String,
    location: String,
}

impl Plan<'_> {
    /// The IP configurations of an interface. `public` is the field that gives the first one a public address.
    fn configurations(&self, public: Option<(&str, Value)>) -> Value {
        let subnet =
            format!("{}/Microsoft.Network/virtualNetworks/{}/subnets/nodes", self.base, self.nodes.network);
        let subnet = json!({"id": subnet});
        let mut first = json!({"primary": true, "privateIPAddressVersion": "IPv4", "subnet": subnet});
        if let Some((name, value)) = public {
            crate::json::set(&mut first, name, value);
        }
        let mut all = vec![json!({"name": "ipconfig1", "properties": first})];
        if self.nodes.dual_stack {
            let second = json!({"primary": false, "privateIPAddressVersion": "IPv6", "subnet": subnet});
            all.push(json!({"name": "ipconfigv6", "properties": second}));
        }
        Value::Array(all)
    }

    /// Puts a machine into its zone, or a scale set into all.
    fn add_zones(&self, resource: &mut Value, number: Option<u32>) {
        let has_zones = LOCATIONS.iter().any(|known| known.name == self.location && known.has_zones);
        if !self.nodes.zones || !has_zones {
            return;
        }
        let zones =
            number.map_or_else(|| json!(["1", "2", "3"]), |number| json!([(number % 3 + 1).to_string()]));
        crate::json::set(resource, "zones", zones);
    }
}
