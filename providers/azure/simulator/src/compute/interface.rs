//! The interfaces and public addresses of the machines of a uniform scale set. They have no resources of their own: the network
//! configuration of the machine has them, with the addresses that it was given. Pure.

use serde_json::{Value, json};

use crate::catalog::Type;
use crate::id::{Key, Path};
use crate::json::{at, default, fields, items, items_mut, object, set, text};
use crate::network;
use crate::refusal::Refusal;
use crate::state::{Resource, State, named};

/// Reduces what a network profile refers to to IDs.
pub(super) fn reduce(profile: &mut Value) {
    for interface in items_mut(profile, "/networkInterfaceConfigurations") {
        network::clean_part(interface, &[]);
        default(object(interface, "properties"), "enableIPForwarding", false);
        for configuration in items_mut(interface, "/properties/ipConfigurations") {
            network::clean_part(configuration, &[]);
            default(object(configuration, "properties"), "privateIPAddressVersion", "IPv4");
        }
    }
}

/// Gives addresses to the configurations of a machine. Those that it had before stay.
pub(super) fn assign(state: &mut State, body: &mut Value, before: Option<&Value>) -> Result<(), Refusal> {
    let before = before.map(|before| at(before, "/properties").clone()).unwrap_or_default();
    let interfaces = "/properties/networkProfileConfiguration/networkInterfaceConfigurations";
    for interface in items_mut(body, interfaces) {
        let known =
            named(&before, "networkInterfaces", text(interface, "/name")).cloned().unwrap_or_default();
        for configuration in items_mut(interface, "/properties/ipConfigurations") {
            let name = text(configuration, "/name").to_owned();
            let known = named(at(&known, "/properties"), "ipConfigurations", &name);
            let known = known.map(|it| at(it, "/properties").clone()).unwrap_or_default();
            let properties = object(configuration, "properties");
            let subnet = text(properties, "/subnet/id").to_owned();
            let is_same = Key::of(text(&known, "/subnet/id")) == Key::of(&subnet);
            let address = match text(&known, "/privateIPAddress") {
                known if is_same && !known.is_empty() => known.to_owned(),
                _ => {
                    let is_ipv4 = text(properties, "/privateIPAddressVersion") != "IPv6";
                    state.allocate(&subnet, is_ipv4)?.to_string()
                }
            };
            set(properties, "privateIPAddress", address);
            let is_ipv4 = text(properties, "/privateIPAddressVersion") != "IPv6";
            if let Some(public) = properties.get_mut("publicIPAddressConfiguration") {
                let known = text(&known, "/publicIPAddressConfiguration/properties/ipAddress").to_owned();
                let address = if known.is_empty() { state.next_public_address(is_ipv4) } else { known };
                set(object(public, "properties"), "ipAddress", address);
            }
        }
    }
    Ok(())
}

/// Removes the given addresses from a configuration, which shows the model only.
pub(super) fn hide_addresses(interface: &mut Value) {
    for configuration in items_mut(interface, "/properties/ipConfigurations") {
        let properties = object(configuration, "properties");
        fields(properties).remove("privateIPAddress");
        if let Some(public) = properties.get_mut("publicIPAddressConfiguration") {
            fields(object(public, "properties")).remove("ipAddress");
        }
    }
}

/// The interfaces or public addresses below a path, with their names.
pub(crate) fn read(state: &State, path: &Path, found: Type) -> Result<Vec<(String, Value)>, Refusal> {
    let set = path.first(2);
    let set = state.resource_id(&set);
    super::scale_set::check_uniform(state, &set)?;
    let (machine, interface) = match path.segments.get(2) {
        Some(segment) if segment.eq_ignore_ascii_case("virtualMachines") => {
            (path.segments.get(3), path.segments.get(5))
        }
        _ => (None, None),
    };
    let prefix = format!("{}/virtualmachines/", set.key());
    let mut machines: Vec<&Resource> = match machine {
        None => state.store.below(&prefix).collect(),
        Some(id) => {
            super::check_instance_id(id)?;
            let key = Key::of(&format!("{prefix}{id}"));
            vec![state.store.get(&key).ok_or_else(|| {
                Refusal::new(
                    404,
                    "NotFound",
                    format!("The entity {id} was not found in the scale set {}.", set.name()),
                )
            })?]
        }
    };
    machines.sort_by_key(|machine| machine.id.name().parse::<u64>().unwrap_or_default());
    let interface = interface.filter(|_| found == Type::ScaleSetAddresses);
    let all = machines.into_iter().flat_map(|machine| {
        let configurations =
            items(&machine.body, "/properties/networkProfileConfiguration/networkInterfaceConfigurations");
        configurations.iter().map(move |configuration| (machine, configuration))
    });
    let meant =
        all.filter(|(_, it)| interface.is_none_or(|name| text(it, "/name").eq_ignore_ascii_case(name)));
    Ok(if found == Type::ScaleSetInterfaces {
        meant.map(|(machine, it)| (text(it, "/name").to_owned(), interface_view(machine, it))).collect()
    } else {
        meant.flat_map(|(machine, it)| addresses(machine, it)).collect()
    })
}

fn interface_view(machine: &Resource, configuration: &Value) -> Value {
    let name = text(configuration, "/name");
    let id = format!("{}/networkInterfaces/{name}", machine.id);
    let etag = format!("W/\"{}\"", machine.machine.as_ref().map_or("", |it| it.id.as_str()));
    let shown = items(configuration, "/properties/ipConfigurations").iter().enumerate().map(|(index, it)| {
        let mut properties = at(it, "/properties").clone();
        let own = format!("{id}/ipConfigurations/{}", text(it, "/name"));
        set(&mut properties, "provisioningState", "Succeeded");
        set(&mut properties, "privateIPAllocationMethod", "Dynamic");
        default(&mut properties, "primary", index == 0);
        if let Some(public) = fields(&mut properties).remove("publicIPAddressConfiguration") {
            set(
                &mut properties,
                "publicIPAddress",
                json!({"id": format!("{own}/publicIPAddresses/{}", text(&public, "/name"))}),
            );
        }
        json!({"name": text(it, "/name"), "id": own, "etag": etag, "properties": properties})
    });
    let shown: Vec<_> = shown.collect();
    let setting = |name: &str| at(configuration, &format!("/properties/{name}")).clone();
    let mut properties = json!({
        "provisioningState": "Succeeded", "resourceGuid": machine.machine.as_ref().map_or("", |it| it.id.as_str()),
        "ipConfigurations": shown, "dnsSettings": {"dnsServers": [], "appliedDnsServers": []},
        "enableAcceleratedNetworking": setting("enableAcceleratedNetworking").as_bool().unwrap_or_default(),
        "enableIPForwarding": setting("enableIPForwarding").as_bool().unwrap_or_default(),
        "primary": setting("primary").as_bool().unwrap_or(true), "virtualMachine": {"id": machine.id.as_str()},
        "macAddress": network::mac_address(machine.machine.as_ref().map_or("", |it| it.id.as_str())),
    });
    let group = setting("networkSecurityGroup");
    if !group.is_null() {
        set(&mut properties, "networkSecurityGroup", group);
    }
    json!({"name": name, "id": id, "etag": etag, "properties": properties})
}

fn addresses(machine: &Resource, interface: &Value) -> Vec<(String, Value)> {
    let interface_name = text(interface, "/name");
    let configurations = items(interface, "/properties/ipConfigurations").iter();
    let shown = configurations.filter_map(|it| {
        let public = it.pointer("/properties/publicIPAddressConfiguration")?;
        let name = text(public, "/name");
        let own = format!("{}/networkInterfaces/{interface_name}/ipConfigurations/{}", machine.id, text(it, "/name"));
        let view = json!({
            "name": name, "id": format!("{own}/publicIPAddresses/{name}"), "sku": {"name": "Standard", "tier": "Regional"},
            "location": machine.location(),
            "properties": {
                "provisioningState": "Succeeded", "ipAddress": text(public, "/properties/ipAddress"),
                "publicIPAddressVersion": text(it, "/properties/privateIPAddressVersion"), "publicIPAllocationMethod": "Static",
                "idleTimeoutInMinutes": 4, "ipTags": [], "ipConfiguration": {"id": own},
            },
        });
        Some((name.to_owned(), view))
    });
    shown.collect()
}
