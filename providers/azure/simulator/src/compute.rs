//! The compute provider: virtual machines, scale sets with their machines, and availability sets. Pure.

pub(crate) mod interface;
mod machine;
pub(crate) mod scale_set;

use serde_json::{Value, json};

pub(crate) use self::machine::{Machine, Power, instance_view};
use crate::catalog::Kind;
use crate::id::{Id, Key};
use crate::json::{at, fields, items, object, set, text};
use crate::network;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::state::{Resource, State};

/// The fields of a body besides `properties` that are kept.
const KEPT: [&str; 7] = ["location", "tags", "sku", "zones", "identity", "extendedLocation", "plan"];

/// Turns a written body into what is stored, or refuses it. What an update leaves out stays as it is.
pub(crate) fn normalize(
    state: &mut State,
    id: &Id,
    kind: Kind,
    body: &Value,
    existing: Option<&Resource>,
) -> Result<Value, Refusal> {
    let mut kept = existing.map_or_else(|| json!({}), |existing| existing.body.clone());
    for name in KEPT {
        if let Some(value) = body.get(name).filter(|value| !value.is_null()) {
            set(&mut kept, name, value.clone());
        }
    }
    let properties = object(&mut kept, "properties");
    for (name, value) in at(body, "/properties").as_object().into_iter().flatten() {
        let is_read_only = name == "provisioningState" || kind.read_only().contains(&name.as_str());
        if !is_read_only && !value.is_null() {
            set(properties, name, value.clone());
        }
    }
    for secret in [
        "/osProfile/adminPassword",
        "/virtualMachineProfile/osProfile/adminPassword",
        "/osProfile/customData",
    ] {
        let (object, name) = secret.rsplit_once('/').unwrap_or_default();
        if let Some(profile) = properties.pointer_mut(object) {
            fields(profile).remove(name);
        }
    }
    match kind {
        Kind::VirtualMachine => normalize_machine(state, id, &mut kept, existing)?,
        Kind::ScaleSet => scale_set::normalize(state, id, &mut kept, existing)?,
        Kind::ScaleSetMachine => {
            let Some(existing) = existing else {
                let message = "Virtual machines of a scale set are created by its capacity.";
                return Err(Refusal::new(404, "InvalidInstanceId", message).with_target("instanceId"));
            };
            let configurations = object(properties_of(&mut kept), "networkProfileConfiguration");
            interface::reduce(configurations);
            network::check_references(state, id, &kept)?;
            network::check_balancers(state, id, &kept)?;
            interface::assign(state, &mut kept, Some(&existing.body))?;
        }
        _ => set(
            properties_of(&mut kept),
            "platformUpdateDomainCount",
            at(body, "/properties/platformUpdateDomainCount").as_u64().unwrap_or(5),
        ),
    }
    Ok(kept)
}

fn properties_of(body: &mut Value) -> &mut Value {
    object(body, "properties")
}

fn normalize_machine(
    state: &State,
    id: &Id,
    body: &mut Value,
    existing: Option<&Resource>,
) -> Result<(), Refusal> {
    let invalid = |target: &str| {
        Refusal::new(400, "InvalidParameter", format!("Required parameter '{target}' is missing (null)."))
            .with_target(target)
    };
    if existing.is_none() {
        for required in ["hardwareProfile", "networkProfile"] {
            if at(body, &format!("/properties/{required}")).is_null() {
                return Err(invalid(required));
            }
        }
    }
    let interfaces = items(body, "/properties/networkProfile/networkInterfaces");
    if interfaces.is_empty() {
        return Err(invalid("networkProfile.networkInterfaces"));
    }
    for interface in interfaces {
        let key = Key::of(text(interface, "/id"));
        let other = state
            .store
            .users(&key)
            .find(|user| Key::of(user) != id.key() && user.to_lowercase().contains("/virtualmachines/"));
        if let Some(other) = other {
            let message = format!("Network Interface {key} is already used by the virtual machine {other}.");
            return Err(Refusal::new(400, "NetworkInterfaceInUse", message));
        }
    }
    for name in ["availabilitySet", "virtualMachineScaleSet"] {
        let value = at(body, &format!("/properties/{name}/id")).clone();
        if value.is_string() {
            set(properties_of(body), name, json!({"id": value}));
        }
    }
    network::check_references(state, id, body)
}

/// The facts of a new machine besides its model.
pub(crate) fn new_machine(state: &mut State, kind: Kind, body: &Value) -> Option<Machine> {
    (kind == Kind::VirtualMachine).then(|| {
        let domain = at(body, "/properties/platformFaultDomain").as_u64();
        Machine::new(state.next_guid(), domain.unwrap_or_default())
    })
}

/// A resource as responses show it.
pub(crate) fn view(state: &State, resource: &Resource, with_instance_view: bool) -> Value {
    let Resource { id, kind, body, etag, provisioning, created, .. } = resource;
    let mut view = body.clone();
    set(&mut view, "id", id.as_str());
    set(&mut view, "name", id.name());
    set(&mut view, "type", kind.full_name());
    if *kind != Kind::AvailabilitySet {
        set(&mut view, "etag", etag.clone());
        set(properties_of(&mut view), "provisioningState", provisioning.name());
        set(properties_of(&mut view), "timeCreated", state.time(*created));
    }
    match kind {
        Kind::VirtualMachine => machine::complete(resource, properties_of(&mut view)),
        Kind::ScaleSet => scale_set::complete(resource, &mut view),
        Kind::ScaleSetMachine => scale_set::complete_machine(resource, &mut view),
        _ => {
            let key = id.key();
            let machines: Vec<_> = state.store.users(&key).map(|user| json!({"id": user})).collect();
            set(properties_of(&mut view), "virtualMachines", machines);
        }
    }
    if with_instance_view && resource.machine.is_some() {
        set(properties_of(&mut view), "instanceView", instance_view(state, resource));
    }
    view
}

/// Which elements of a list are meant.
pub(crate) enum Filter {
    /// The machines of a flexible scale set.
    ScaleSet(Key),
}

impl Filter {
    pub(crate) fn admits(&self, resource: &Resource) -> bool {
        let Self::ScaleSet(set) = self;
        Key::of(text(&resource.body, "/properties/virtualMachineScaleSet/id")) == *set
    }
}

/// Parses the parameter `$filter` of a list.
pub(crate) fn filter(request: &Request, kind: Kind) -> Result<Option<Filter>, Refusal> {
    let Some(text) = request.parameter("$filter").filter(|text| !text.is_empty()) else { return Ok(None) };
    let words: Vec<_> = text.split_whitespace().collect();
    match words.as_slice() {
        ["'virtualMachineScaleSet/id'" | "virtualMachineScaleSet/id", "eq" | "EQ", set]
            if kind == Kind::VirtualMachine =>
        {
            Ok(Some(Filter::ScaleSet(Key::of(set.trim_matches('\'')))))
        }
        _ => {
            let message = format!("The value '{text}' of parameter '$filter' is invalid.");
            Err(Refusal::new(400, "InvalidParameter", message).with_target("$filter"))
        }
    }
}

/// Refuses the ID of a machine of a scale set that is not a number.
pub(crate) fn check_instance_id(id: &str) -> Result<(), Refusal> {
    if !id.is_empty() && id.chars().all(|char| char.is_ascii_digit()) {
        return Ok(());
    }
    let message = "Virtual Machine Scale Set VM instanceId must be a number.";
    Err(Refusal::new(400, "InvalidParameter", message).with_target("instanceId"))
}

/// Refuses the deletion of what others use.
pub(crate) fn check_unused(state: &State, id: &Id, kind: Kind) -> Result<(), Refusal> {
    let user = state.store.user_outside(&id.key(), &id.key());
    let Some((_, user)) = user else { return Ok(()) };
    let message = match kind {
        Kind::AvailabilitySet => format!(
            "Availability Set '{}' cannot be deleted. Before deleting an Availability Set please ensure that it does not contain any \
             VM.",
            id.name()
        ),
        Kind::ScaleSet => {
            format!("Cannot delete scale set '{}' because the virtual machine {user} is in it.", id.name())
        }
        _ => return Ok(()),
    };
    Err(Refusal::new(409, "OperationNotAllowed", message))
}

/// Carries out an action on a machine or a scale set.
pub(crate) fn act(state: &mut State, resource: &Resource, action: &str, body: &[u8]) -> Result<(), Refusal> {
    if resource.kind == Kind::ScaleSet {
        return scale_set::act(state, resource, action, body);
    }
    let power = match action {
        "start" | "restart" | "redeploy" | "reimage" => Power::Running,
        "poweroff" => Power::Stopped,
        "deallocate" => Power::Deallocated,
        _ => return Err(unknown_action(action)),
    };
    if let Some(machine) =
        state.store.get_mut(&resource.id.key()).and_then(|resource| resource.machine.as_mut())
    {
        machine.power = power;
    }
    Ok(())
}

fn unknown_action(action: &str) -> Refusal {
    Refusal::gateway(404, "InvalidResourceType", format!("The action '{action}' could not be found."))
}
