//! What a machine has besides its model: power, placement and identity. Pure.

use serde_json::{Value, json};

use crate::json::{default, object, set, text};
use crate::state::{Provisioning, Resource, State};

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Power {
    Starting,
    Running,
    Stopping,
    Stopped,
    Deallocating,
    Deallocated,
    /// No status is shown.
    Unknown,
}

impl Power {
    fn code(self) -> Option<&'static str> {
        Some(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Deallocating => "deallocating",
            Self::Deallocated => "deallocated",
            Self::Unknown => return None,
        })
    }
}

/// The facts of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) power: Power,
    pub(crate) fault_domain: u64,
    pub(crate) update_domain: u64,
    /// Whether it has the model of its scale set.
    pub(crate) has_latest_model: bool,
}

impl Machine {
    pub(crate) fn new(id: String, fault_domain: u64) -> Self {
        Self { id, power: Power::Running, fault_domain, update_domain: fault_domain, has_latest_model: true }
    }
}

/// Adds what views of a virtual machine show and its body doesn't have.
pub(super) fn complete(resource: &Resource, properties: &mut Value) {
    if let Some(machine) = &resource.machine {
        set(properties, "vmId", machine.id.clone());
    }
    complete_profiles(resource.id.name(), properties);
}

/// Adds the defaults of the profiles of a machine.
pub(super) fn complete_profiles(name: &str, properties: &mut Value) {
    let system = object(properties, "osProfile");
    default(system, "computerName", name);
    default(system, "adminUsername", "azureuser");
    default(system, "allowExtensionOperations", true);
    default(system, "requireGuestProvisionSignal", true);
    default(system, "secrets", json!([]));
    if system.get("windowsConfiguration").is_none() {
        let settings = json!({"disablePasswordAuthentication": true, "provisionVMAgent": true, "enableVMAgentPlatformUpdates": false});
        default(system, "linuxConfiguration", settings);
    }
    let storage = object(properties, "storageProfile");
    default(storage, "dataDisks", json!([]));
    default(
        storage,
        "imageReference",
        json!({
            "publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest", "exactVersion": "24.04.202606010",
        }),
    );
    default(
        storage,
        "osDisk",
        json!({
            "osType": "Linux", "name": format!("{name}_OsDisk_1"), "createOption": "FromImage", "caching": "ReadWrite",
            "managedDisk": {"storageAccountType": "Premium_LRS"}, "deleteOption": "Delete", "diskSizeGB": 128,
        }),
    );
}

/// The instance view of a machine.
pub(crate) fn instance_view(state: &State, resource: &Resource) -> Value {
    let Some(machine) = &resource.machine else { return json!({}) };
    let time = state.time(resource.changed);
    let status = |code: &str, display: &str| json!({"code": code, "level": "Info", "displayStatus": display, "time": time});
    // A machine that is being deleted has no statuses.
    let mut statuses = Vec::new();
    if resource.provisioning != Provisioning::Deleting {
        let provisioning = resource.provisioning.name().to_lowercase();
        statuses.push(status(
            &format!("ProvisioningState/{provisioning}"),
            &format!("Provisioning {provisioning}"),
        ));
        if let Some(power) = machine.power.code() {
            statuses.push(json!({"code": format!("PowerState/{power}"), "level": "Info", "displayStatus": format!("VM {power}")}));
        }
    }
    let agent = if machine.power == Power::Running {
        json!([{"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Ready", "message": "Guest Agent is running", "time": time}])
    } else {
        json!([])
    };
    let name = match text(&resource.body, "/properties/osProfile/computerName") {
        "" => resource.id.name(),
        name => name,
    };
    json!({
        "platformUpdateDomain": machine.update_domain, "platformFaultDomain": machine.fault_domain, "computerName": name,
        "osName": "ubuntu", "osVersion": "24.04", "hyperVGeneration": "V2",
        "vmAgent": {"vmAgentVersion": "2.15.0.1", "statuses": agent},
        "disks": [{"name": format!("{}_OsDisk_1", resource.id.name()), "statuses": [status("ProvisioningState/succeeded", "Provisioning succeeded")]}],
        "statuses": statuses,
    })
}
