//! The resources, with an index of which resource refers to which: it makes back references, checks of deletions and free
//! addresses cheap with thousands of machines. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use super::reference::{Reference, addresses, named, references};
use crate::catalog::Kind;
use crate::compute::Machine;
use crate::id::{Id, Key};
use crate::json::{at, text};

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
        let from = Key::start(prefix);
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

    /// A reference from outside a resource to a part of it, or to itself: the part's key, and the ID of the user.
    pub(crate) fn user_outside(&self, part: &Key, whole: &Key) -> Option<(&Key, &str)> {
        let range = self.users.range(part.clone()..);
        let range = range.take_while(|(key, _)| key.as_str().starts_with(part.as_str()));
        range
            .filter(|(key, _)| key.is_within(part))
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
        self.part(id).is_some()
    }

    /// The body of a stored resource or of a part of one.
    pub(crate) fn part(&self, id: &str) -> Option<&Value> {
        let owner = self.owner(id)?;
        let rest = id.get(owner.id.as_str().len()..).unwrap_or_default();
        let mut found = &owner.body;
        let mut segments = rest.split('/').skip(1);
        while let (Some(field), Some(name)) = (segments.next(), segments.next()) {
            found = named(at(found, "/properties"), field, name)?;
        }
        Some(found)
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
            .range(Key::start(prefix)..)
            .take_while(move |(key, _)| key.as_str().starts_with(prefix));
        range.filter(move |(_, (at, _))| *at > since).map(|(_, (_, resource))| resource)
    }

    /// Forgets deleted resources that nothing shows any more.
    pub(crate) fn sweep(&mut self, before: Duration) {
        self.deleted.retain(|_, (at, _)| *at > before);
    }
}
