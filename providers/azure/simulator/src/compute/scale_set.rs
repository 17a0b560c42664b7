//! Scale sets: a model, and as many machines of it as the capacity says. Pure.

use serde_json::{Value, json};

use super::interface;
use super::machine::{Machine, complete_profiles};
use crate::catalog::Kind;
use crate::id::{Id, Key};
use crate::json::{at, default, items, items_mut, object, set, text};
use crate::network;
use crate::refusal::Refusal;
use crate::state::{Provisioning, Resource, State};

/// The most machines of a scale set.
const MAX_CAPACITY: u64 = 1_000;

/// Whether the machines of a scale set are ordinary virtual machines.
pub(crate) fn is_flexible(set: &Resource) -> bool {
    text(&set.body, "/properties/orchestrationMode") == "Flexible"
}

/// Completes and checks the model of a scale set.
pub(super) fn normalize(
    state: &State,
    id: &Id,
    body: &mut Value,
    existing: Option<&Resource>,
) -> Result<(), Refusal> {
    let properties = object(body, "properties");
    default(properties, "orchestrationMode", "Uniform");
    default(properties, "platformFaultDomainCount", 5);
    default(properties, "singlePlacementGroup", true);
    default(object(properties, "upgradePolicy"), "mode", "Manual");
    let mode = text(properties, "/orchestrationMode").to_owned();
    if let Some(existing) = existing
        && text(&existing.body, "/properties/orchestrationMode") != mode
    {
        let message = "Changing property 'orchestrationMode' is not allowed.";
        return Err(Refusal::new(400, "PropertyChangeNotAllowed", message).with_target("orchestrationMode"));
    }
    if let Some(profile) = properties.pointer_mut("/virtualMachineProfile/networkProfile") {
        interface::reduce(profile);
    }
    if at(body, "/sku/capacity").as_u64().is_some_and(|capacity| capacity > MAX_CAPACITY) {
        let message = format!("The capacity of a scale set is at most {MAX_CAPACITY}.");
        return Err(Refusal::new(400, "InvalidParameter", message).with_target("sku.capacity"));
    }
    network::check_references(state, id, body)?;
    network::check_balancers(state, id, body)
}

/// Brings the machines of a scale set to its capacity, and the model to them where the upgrade policy says so.
pub(crate) fn settle(state: &mut State, key: &Key) {
    let Some(set) = state.store.get(key).cloned() else { return };
    if is_flexible(&set) {
        return;
    }
    let prefix = format!("{key}/virtualmachines/");
    let machines: Vec<_> = state.store.below(&prefix).map(|machine| machine.id.clone()).collect();
    let capacity = at(&set.body, "/sku/capacity").as_u64().and_then(|it| usize::try_from(it).ok());
    let capacity = capacity.unwrap_or(machines.len());
    for _ in machines.len()..capacity {
        // A subnet without free addresses leaves the scale set smaller than its capacity.
        if add_machine(state, &set).is_err() {
            break;
        }
    }
    for id in machines.iter().skip(capacity) {
        state.remove(&id.key());
    }
    let model_changed = set.before.as_ref().is_none_or(|before| profile(&before.body) != profile(&set.body));
    if !model_changed {
        return;
    }
    let is_manual = text(&set.body, "/properties/upgradePolicy/mode") == "Manual";
    for id in machines.iter().take(capacity) {
        if is_manual {
            if let Some(machine) = state.store.get_mut(&id.key()).and_then(|it| it.machine.as_mut()) {
                machine.has_latest_model = false;
            }
        } else {
            apply_model(state, &set, &id.key());
        }
    }
}

fn profile(body: &Value) -> &Value {
    at(body, "/properties/virtualMachineProfile")
}

/// Gives a machine the network configuration of the model. Its addresses stay.
fn apply_model(state: &mut State, set_resource: &Resource, key: &Key) {
    let Some(machine) = state.store.get(key).cloned() else { return };
    let mut body = machine.body.clone();
    let network = at(profile(&set_resource.body), "/networkProfile/networkInterfaceConfigurations").clone();
    set(
        object(object(&mut body, "properties"), "networkProfileConfiguration"),
        "networkInterfaceConfigurations",
        network,
    );
    if interface::assign(state, &mut body, Some(&machine.body)).is_err() {
        return;
    }
    let etag = state.next_etag(Kind::ScaleSetMachine, Some(&machine.etag));
    let facts = machine.machine.clone().map(|facts| Machine { has_latest_model: true, ..facts });
    let changed = state.now();
    state.store.insert(Resource { body, etag, machine: facts, changed, ..machine });
}

/// Adds a machine of the model to a uniform scale set, and returns its ID.
pub(crate) fn add_machine(state: &mut State, set_resource: &Resource) -> Result<Id, Refusal> {
    let prefix = format!("{}/virtualmachines/", set_resource.id.key());
    let numbers = state.store.below(&prefix).filter_map(|machine| machine.id.name().parse::<u64>().ok());
    let number = numbers.max().map_or(0, |last| last + 1);
    let count = at(&set_resource.body, "/properties/platformFaultDomainCount").as_u64().unwrap_or(5).max(1);
    let id = Id::parse(&format!("{}/virtualMachines/{number}", set_resource.id))
        .ok_or_else(|| Refusal::new(400, "InvalidParameter", "the name of the scale set is invalid"))?;
    let model = profile(&set_resource.body);
    let zones = items(&set_resource.body, "/zones");
    let mut body = json!({
        "location": set_resource.location(),
        "sku": {"name": at(&set_resource.body, "/sku/name"), "tier": "Standard"},
        "properties": {
            "hardwareProfile": {"vmSize": at(&set_resource.body, "/sku/name")},
            "osProfile": {"computerName": computer_name(set_resource, number)},
            "networkProfileConfiguration": at(model, "/networkProfile").clone(),
        },
    });
    if let Some(tags) = set_resource.body.get("tags") {
        set(&mut body, "tags", tags.clone());
    }
    let domain = if zones.is_empty() { number % count } else { 0 };
    if let Some(zone) = usize::try_from(number).ok().and_then(|it| zones.get(it % zones.len().max(1))) {
        set(&mut body, "zones", json!([zone]));
    }
    interface::assign(state, &mut body, None)?;
    let machine = Machine::new(state.next_guid(), domain);
    let now = state.now();
    let etag = state.next_etag(Kind::ScaleSetMachine, None);
    state.store.insert(Resource {
        id: id.clone(),
        kind: Kind::ScaleSetMachine,
        body,
        etag,
        guid: String::new(),
        provisioning: Provisioning::Succeeded,
        operation: None,
        created: now,
        changed: now,
        before: None,
        machine: Some(machine),
    });
    Ok(id)
}

/// The prefix of the scale set's computer names, and the number in base 36 with six digits.
fn computer_name(set: &Resource, number: u64) -> String {
    let prefix = match text(profile(&set.body), "/osProfile/computerNamePrefix") {
        "" => set.id.name(),
        prefix => prefix,
    };
    let mut digits = [b'0'; 6];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        let value = u8::try_from(rest % 36).unwrap_or_default();
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        rest /= 36;
    }
    format!("{prefix}{}", String::from_utf8_lossy(&digits))
}

/// Adds what views of a scale set show and its body doesn't have.
pub(super) fn complete(resource: &Resource, view: &mut Value) {
    let properties = object(view, "properties");
    set(properties, "uniqueId", resource.guid.clone());
    default(properties, "overprovision", false);
    default(properties, "doNotRunExtensionsOnOverprovisionedVMs", false);
    default(object(view, "sku"), "tier", "Standard");
}

/// Adds what views of a machine of a scale set show and its body doesn't have.
pub(super) fn complete_machine(resource: &Resource, view: &mut Value) {
    let set_name = resource.id.path().segments.get(1).map_or("", String::as_str);
    let name = format!("{set_name}_{}", resource.id.name());
    set(view, "name", name.clone());
    set(view, "instanceId", resource.id.name());
    let properties = object(view, "properties");
    let interfaces: Vec<_> = items(properties, "/networkProfileConfiguration/networkInterfaceConfigurations")
        .iter()
        .map(|it| json!({"id": format!("{}/networkInterfaces/{}", resource.id, text(it, "/name"))}))
        .collect();
    for configuration in items_mut(properties, "/networkProfileConfiguration/networkInterfaceConfigurations")
    {
        interface::hide_addresses(configuration);
    }
    set(properties, "networkProfile", json!({"networkInterfaces": interfaces}));
    if let Some(machine) = &resource.machine {
        set(properties, "vmId", machine.id.clone());
        set(properties, "latestModelApplied", machine.has_latest_model);
    }
    set(properties, "modelDefinitionApplied", "VirtualMachineScaleSet");
    set(properties, "resilientVMDeletionStatus", "Disabled");
    complete_profiles(&name, properties);
}

/// Refuses a list of the machines of a flexible scale set, which are ordinary virtual machines.
pub(crate) fn check_uniform(state: &State, set: &Id) -> Result<(), Refusal> {
    let Some(set) = state.store.get(&set.key()).filter(|set| is_flexible(set)) else { return Ok(()) };
    let message = format!(
        "The operation is not allowed on scale set '{}' with flexible orchestration mode.",
        set.id.name()
    );
    Err(Refusal::new(400, "OperationNotAllowed", message))
}

/// Carries out an action on a scale set: the upgrade or the deletion of some of its machines.
pub(super) fn act(state: &mut State, set: &Resource, action: &str, body: &[u8]) -> Result<(), Refusal> {
    let body: Value = serde_json::from_slice(body).map_err(Refusal::content)?;
    let prefix = format!("{}/virtualmachines/", set.id.key());
    let wanted = items(&body, "/instanceIds");
    let is_meant = |id: &Id| wanted.iter().any(|it| it == "*" || *it == id.name());
    let machines: Vec<_> = state.store.below(&prefix).map(|it| it.id.clone()).filter(is_meant).collect();
    match action {
        "manualupgrade" => {
            for id in &machines {
                apply_model(state, set, &id.key());
            }
        }
        "delete" => {
            for id in &machines {
                state.remove(&id.key());
            }
            let left = state.store.below(&prefix).count();
            if let Some(resource) = state.store.get_mut(&set.id.key()) {
                crate::json::set(object(&mut resource.body, "sku"), "capacity", left);
            }
        }
        _ => return Err(super::unknown_action(action)),
    }
    Ok(())
}
