//! The resources, with an index of which resource refers to which: it makes back references, checks of deletions and free
//! addresses cheap with thousands of machines. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::catalog::Kind;
use crate::compute::Machine;
use crate::id::{Id, Key};
use crate::json::{at, items, text};

/// What the provisioning state shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provisioning {
    Creating,
    Updating,
    Deleting,
    Succeeded,
    Failed,
    Canceled,
}

impl Provisioning {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Updating => "Updating",
            Self::Deleting => "Deleting",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Canceled => "Canceled",
        }
    }
}

/// A stored resource. Its body has what clients write and Azure keeps, without IDs, etags and states, which views add.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    pub(crate) id: Id,
    pub(crate) kind: Kind,
    pub(crate) body: Value,
    pub(crate) etag: String,
    pub(crate) guid: String,
    pub(crate) provisioning: Provisioning,
    /// The operation that runs on it.
    pub(crate) operation: Option<String>,
    pub(crate) created: Duration,
    pub(crate) changed: Duration,
    /// The state before the last change, which eventual consistency may still show; `None` for a new resource.
    pub(crate) before: Option<Box<Resource>>,
    /// What a machine has besides its model.
    pub(crate) machine: Option<Machine>,
}

impl Resource {
    pub(crate) fn location(&self) -> &str {
        text(&self.body, "/location")
    }
}

/// A reference from a part of a resource to another resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The ID of the innermost part that refers.
    pub(crate) from: String,
    /// The ID that it refers to, as it is written.
    pub(crate) to: String,
}

/// All references of a body.
pub(crate) fn references(id: &Id, body: &Value) -> Vec<Reference> {
    let mut found = Vec::new();
    walk(body, id.as_str(), &mut found);
    found
}

fn walk(value: &Value, holder: &str, found: &mut Vec<Reference>) {
    match value {
        Value::Object(fields) => {
            if let Some(to) = fields.get("id").and_then(Value::as_str).filter(|to| Id::parse(to).is_some()) {
                found.push(Reference { from: holder.to_owned(), to: to.to_owned() });
                return;
            }
            for (field, value) in fields {
                for element in value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice) {
                    match part_name(element) {
                        Some(name) => walk(element, &format!("{holder}/{}/{name}", part_type(field)), found),
                        None => walk(element, holder, found),
                    }
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| walk(element, holder, found)),
        _ => {}
    }
}

/// The name of an element that has an ID of its own.
fn part_name(element: &Value) -> Option<&str> {
    let is_part = element.get("properties").is_some() && element.get("id").is_none();
    element.get("name").and_then(Value::as_str).filter(|_| is_part)
}

/// The segment of the parts of a field: a scale set's configurations are the interfaces of its machines.
fn part_type(field: &str) -> &str {
    if field == "networkInterfaceConfigurations" { "networkInterfaces" } else { field }
}

/// The private addresses of a body, with the keys of their subnets.
fn addresses(body: &Value) -> Vec<(Key, IpAddr)> {
    let mut found = Vec::new();
    collect_addresses(body, &mut found);
    found
}

fn collect_addresses(value: &Value, found: &mut Vec<(Key, IpAddr)>) {
    if let (subnet, Ok(address)) = (text(value, "/subnet/id"), text(value, "/privateIPAddress").parse())
        && !subnet.is_empty()
    {
        found.push((Key::of(subnet), address));
    }
    match value {
        Value::Object(fields) => fields.values().for_each(|value| collect_addresses(value, found)),
        Value::Array(elements) => elements.iter().for_each(|value| collect_addresses(value, found)),
        _ => {}
    }
}

/// The resources of all subscriptions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    resources: BTreeMap<Key, Resource>,
    /// For each ID the IDs of the parts that refer to it.
    users: BTreeMap<Key, BTreeSet<String>>,
    /// The addresses in use, by subnet.
    taken: BTreeMap<Key, BTreeSet<IpAddr>>,
    /// Deleted resources and when they were deleted, which eventual consistency may still show.
    deleted: BTreeMap<Key, (Duration, Resource)>,
}

impl Store {
    pub(crate) fn get(&self, key: &Key) -> Option<&Resource> {
        self.resources.get(key)
    }

    /// Changes what has no references and addresses: states, etags and facts of machines.
    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut Resource> {
        self.resources.get_mut(key)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Resource> {
        self.resources.values()
    }

    /// The resources whose keys begin with a text, in the order of their keys.
    pub(crate) fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Resource> {
        let from = Key::of(prefix);
        self.resources
            .range(from..)
            .take_while(move |(key, _)| key.as_str().starts_with(prefix))
            .map(|(_, it)| it)
    }

    /// Stores a resource in place of the former one of its ID.
    pub(crate) fn insert(&mut self, resource: Resource) {
        let key = resource.id.key();
        self.forget(&key);
        for Reference { from, to } in references(&resource.id, &resource.body) {
            self.users.entry(Key::of(&to)).or_default().insert(from);
        }
        for (subnet, address) in addresses(&resource.body) {
            self.taken.entry(subnet).or_default().insert(address);
        }
        self.deleted.remove(&key);
        self.resources.insert(key, resource);
    }

    pub(crate) fn remove(&mut self, key: &Key, now: Duration) {
        if let Some(removed) = self.forget(key) {
            self.deleted.insert(key.clone(), (now, removed));
        }
    }

    fn forget(&mut self, key: &Key) -> Option<Resource> {
        let removed = self.resources.remove(key)?;
        for Reference { from, to } in references(&removed.id, &removed.body) {
            let to = Key::of(&to);
            if let Some(users) = self.users.get_mut(&to) {
                users.remove(&from);
                if users.is_empty() {
                    self.users.remove(&to);
                }
            }
        }
        for (subnet, address) in addresses(&removed.body) {
            if let Some(taken) = self.taken.get_mut(&subnet) {
                taken.remove(&address);
            }
        }
        Some(removed)
    }

    /// The IDs of the parts that refer to an ID.
    pub(crate) fn users(&self, key: &Key) -> impl Iterator<Item = &str> {
        self.users.get(key).into_iter().flatten().map(String::as_str)
    }

    /// A part outside a resource that refers to the resource or to one of its parts.
    pub(crate) fn user_outside(&self, whole: &Key) -> Option<(&Key, &str)> {
        let range =
            self.users.range(whole.clone()..).take_while(|(key, _)| key.as_str().starts_with(whole.as_str()));
        range
            .filter(|(key, _)| key.is_within(whole))
            .flat_map(|(key, users)| users.iter().map(move |user| (key, user.as_str())))
            .find(|(_, user)| !Key::of(user).is_within(whole))
    }

    pub(crate) fn is_taken(&self, subnet: &Key, address: IpAddr) -> bool {
        self.taken.get(subnet).is_some_and(|taken| taken.contains(&address))
    }

    /// Marks an address as given, before the resource with it is stored.
    pub(crate) fn take(&mut self, subnet: &Key, address: IpAddr) {
        self.taken.entry(subnet.clone()).or_default().insert(address);
    }

    /// The addresses that are given in a subnet.
    pub(crate) fn taken(&self, subnet: &Key) -> impl Iterator<Item = &IpAddr> {
        self.taken.get(subnet).into_iter().flatten()
    }

    /// The address that was given last in a subnet.
    pub(crate) fn last_taken(&self, subnet: &Key, is_ipv4: bool) -> Option<IpAddr> {
        let taken = self.taken.get(subnet)?;
        // IPv4 addresses are before all of IPv6.
        let last_ipv4 = IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
        let last = if is_ipv4 { taken.range(..=last_ipv4).next_back() } else { taken.last() };
        last.filter(|address| address.is_ipv4() == is_ipv4).copied()
    }

    /// The stored resource that an ID belongs to: its own, or the one whose part it is.
    pub(crate) fn owner(&self, id: &str) -> Option<&Resource> {
        let mut id = Some(Id::parse(id)?);
        while let Some(current) = id {
            if let Some(found) = self.resources.get(&current.key()) {
                return Some(found);
            }
            id = current.parent();
        }
        None
    }

    /// Whether an ID is one of a stored resource or of a part of one.
    pub(crate) fn exists(&self, id: &str) -> bool {
        let Some(owner) = self.owner(id) else { return false };
        let rest = id.get(owner.id.as_str().len()..).unwrap_or_default();
        let mut value = at(&owner.body, "/properties");
        let mut segments = rest.split('/').skip(1);
        while let (Some(field), Some(name)) = (segments.next(), segments.next()) {
            let Some(part) = named(value, field, name) else { return false };
            value = at(part, "/properties");
        }
        true
    }

    /// A resource that was deleted after a time.
    pub(crate) fn deleted(&self, key: &Key, since: Duration) -> Option<&Resource> {
        self.deleted.get(key).filter(|(at, _)| *at > since).map(|(_, resource)| resource)
    }

    /// Resources that were deleted after a time and begin with a text.
    pub(crate) fn deleted_since<'a>(
        &'a self,
        since: Duration,
        prefix: &'a str,
    ) -> impl Iterator<Item = &'a Resource> {
        let range = self
            .deleted
            .range(Key::of(prefix)..)
            .take_while(move |(key, _)| key.as_str().starts_with(prefix));
        range.filter(move |(_, (at, _))| *at > since).map(|(_, (_, resource))| resource)
    }

    /// Forgets deleted resources that nothing shows any more.
    pub(crate) fn sweep(&mut self, before: Duration) {
        self.deleted.retain(|_, (at, _)| *at > before);
    }
}

/// The element of an array field by the field and its name, without case. The interfaces of a scale set's machine are in its
/// configuration.
pub(crate) fn named<'a>(properties: &'a Value, field: &str, name: &str) -> Option<&'a Value> {
    let elements = if field.eq_ignore_ascii_case("networkInterfaces") {
        items(properties, "/networkProfileConfiguration/networkInterfaceConfigurations")
    } else {
        let fields = properties.as_object()?;
        let (_, elements) = fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(field))?;
        elements.as_array()?
    };
    elements.iter().find(|element| text(element, "/name").eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_name_the_part_that_holds_them() {
        let base = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";
        let subnet = format!("{base}/virtualNetworks/v/subnets/a");
        let id = Id::parse(&format!("{base}/networkInterfaces/n")).unwrap();
        let body = json!({"properties": {
            "networkSecurityGroup": {"id": format!("{base}/networkSecurityGroups/x")},
            "ipConfigurations": [{"name": "one", "properties": {"subnet": {"id": subnet}, "privateIPAddress": "10.0.0.4"}}],
        }});
        let found = references(&id, &body);
        assert_eq!(found.len(), 2);
        assert!(
            found.contains(&Reference { from: format!("{id}/ipConfigurations/one"), to: subnet.clone() })
        );
        assert_eq!(addresses(&body), [(Key::of(&subnet), "10.0.0.4".parse().unwrap())]);
    }
}
