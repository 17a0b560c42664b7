//! What an operator reads and changes besides the API: machines that stop, vanish, are reimaged or move, and an overview for the
//! status page. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::operation::{Operation, Outcome, Purpose};
use super::reference::references;
use super::store::{Provisioning, Resource};
use super::throttle::{Quotas, Throttle};
use super::{Behavior, Metadata, State};
use crate::catalog::Kind;
use crate::compute::{Machine, Power};
use crate::id::Id;
use crate::json::{object, set, text};
use crate::refusal::Refusal;
use crate::token::Directory;

/// How many resources of a type the overview shows.
const SHOWN: usize = 100;

/// A change of machines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MachineCommand {
    /// Computer names, names of virtual machines, or IDs.
    pub machines: Vec<String>,
    /// What happens to them.
    pub action: MachineAction,
    /// The zone, for a move.
    #[serde(default)]
    pub zone: Option<String>,
    /// The fault domain, for a move.
    #[serde(default)]
    pub fault_domain: Option<u64>,
    /// How long a reimaging takes, in milliseconds; until the next command where it is missing.
    #[serde(default)]
    pub takes_ms: Option<u64>,
}

/// What happens to machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineAction {
    /// They run, and all is well.
    Start,
    /// They are off, and still paid for.
    Stop,
    /// They are off and released.
    Deallocate,
    /// No power state is shown.
    Hide,
    /// They are gone at once.
    Delete,
    /// They show that they are being deleted.
    Deleting,
    /// They are being reimaged.
    Reimage,
    /// Their last operation has failed.
    Fail,
    /// They are in another zone or fault domain.
    Move,
    /// They are gone, and others with the same names are there.
    Recreate,
}

impl State {
    /// How the resource manager behaves.
    pub fn behavior(&self) -> &Behavior {
        &self.behavior
    }

    /// Changes how the resource manager behaves.
    pub fn set_behavior(&mut self, behavior: Behavior) -> Result<(), Refusal> {
        let longest = u64::try_from(super::behavior::MAX_LAG.as_millis()).unwrap_or(u64::MAX);
        if behavior.page_size == 0 || behavior.lag_ms > longest {
            let message = format!("pageSize has to be at least 1, and lagMs at most {longest}.");
            return Err(Refusal::new(400, "InvalidParameter", message));
        }
        self.behavior = behavior;
        Ok(())
    }

    /// The rate limits.
    pub fn quotas(&self) -> &Quotas {
        self.throttle.quotas()
    }

    /// Changes the rate limits, and fills the buckets.
    pub fn set_quotas(&mut self, quotas: Quotas) {
        self.throttle = Throttle::new(quotas);
    }

    /// Replaces the clients. Tokens stay valid unless the generation changes.
    pub fn set_directory(&mut self, directory: Option<Directory>) {
        self.directory = directory;
    }

    /// Revokes all tokens.
    pub fn revoke_tokens(&mut self) {
        if let Some(directory) = &mut self.directory {
            directory.generation += 1;
        }
    }

    /// Changes which machine the metadata service describes, and how well.
    pub fn set_metadata(&mut self, metadata: Metadata) {
        self.metadata = metadata;
    }

    /// Changes machines. Returns how many; none is changed where one doesn't exist.
    pub fn command(&mut self, now: Duration, command: &MachineCommand) -> Result<usize, Refusal> {
        self.advance(now);
        let unknown = |name: &String| Refusal::new(404, "NotFound", format!("no machine '{name}'"));
        let find = |name: &String| self.machine(name).map(|it| it.id.clone()).ok_or_else(|| unknown(name));
        let ids = command.machines.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        for id in &ids {
            self.change_machine(id, command)?;
        }
        Ok(ids.len())
    }

    fn change_machine(&mut self, id: &Id, command: &MachineCommand) -> Result<(), Refusal> {
        let key = id.key();
        match command.action {
            MachineAction::Delete => {
                self.remove(&key);
                return Ok(());
            }
            MachineAction::Recreate => return self.recreate(id),
            _ => {}
        }
        let now = self.now;
        let Some(resource) = self.store.get_mut(&key) else { return Ok(()) };
        resource.before = Some(Box::new(Resource { before: None, ..resource.clone() }));
        resource.changed = now;
        let (mut provisioning, mut power) = (Provisioning::Succeeded, None);
        match command.action {
            MachineAction::Start => power = Some(Power::Running),
            MachineAction::Stop => power = Some(Power::Stopped),
            MachineAction::Deallocate => power = Some(Power::Deallocated),
            MachineAction::Hide => power = Some(Power::Unknown),
            MachineAction::Deleting => provisioning = Provisioning::Deleting,
            MachineAction::Reimage => (provisioning, power) = (Provisioning::Updating, Some(Power::Unknown)),
            MachineAction::Fail => provisioning = Provisioning::Failed,
            MachineAction::Move => {
                if let Some(zone) = &command.zone {
                    set(&mut resource.body, "zones", json!([zone]));
                }
                if let Some(domain) = command.fault_domain {
                    set(object(&mut resource.body, "properties"), "platformFaultDomain", domain);
                }
            }
            MachineAction::Delete | MachineAction::Recreate => {}
        }
        resource.provisioning = provisioning;
        if let Some(machine) = &mut resource.machine {
            machine.power = power.unwrap_or(machine.power);
            machine.fault_domain = command.fault_domain.unwrap_or(machine.fault_domain);
        }
        if let (MachineAction::Reimage, Some(takes)) = (command.action, command.takes_ms) {
            self.begin_reimage(id, Duration::from_millis(takes));
        }
        Ok(())
    }

    fn begin_reimage(&mut self, id: &Id, takes: Duration) {
        let Some(resource) = self.store.get(&id.key()) else { return };
        let operation = Operation {
            provider: Some(resource.kind.provider()),
            location: resource.location().to_owned(),
            subscription: id.path().subscription.clone(),
            purpose: Purpose::Reimage,
            kind: Some(resource.kind),
            target: id.key(),
            began: self.now,
            ends: self.now + takes,
            outcome: Outcome::Succeeded,
            id: self.next_guid(),
        };
        self.begin(operation);
    }

    /// Replaces a machine by another one with the same computer name. In a uniform scale set it has another instance ID.
    fn recreate(&mut self, id: &Id) -> Result<(), Refusal> {
        let Some(former) = self.store.get(&id.key()).cloned() else { return Ok(()) };
        let guid = self.next_guid();
        if former.kind == Kind::ScaleSetMachine {
            let Some(owner) = id.parent().and_then(|owner| self.store.get(&owner.key()).cloned()) else {
                return Ok(());
            };
            let new = crate::compute::scale_set::add_machine(self, &owner)?;
            self.remove(&id.key());
            let name = text(&former.body, "/properties/osProfile/computerName").to_owned();
            if let Some(machine) = self.store.get_mut(&new.key()) {
                set(object(object(&mut machine.body, "properties"), "osProfile"), "computerName", name);
            }
            return Ok(());
        }
        self.remove(&id.key());
        let now = self.now;
        let machine = former.machine.as_ref().map(|it| Machine::new(guid, it.fault_domain));
        self.store.insert(Resource { machine, created: now, changed: now, before: None, ..former });
        Ok(())
    }

    /// The data of the status page: of each type the number and the first resources, and what refers to what among these.
    pub fn overview(&mut self, now: Duration) -> Value {
        self.advance(now);
        let mut kinds: BTreeMap<String, (usize, Vec<Value>)> = BTreeMap::new();
        let mut edges = Vec::new();
        for resource in self.store.all() {
            let (total, shown) = kinds.entry(resource.kind.full_name()).or_default();
            *total += 1;
            if shown.len() >= SHOWN {
                continue;
            }
            let power = resource.machine.as_ref().map(|machine| json!(machine.power));
            let computer = text(&resource.body, "/properties/osProfile/computerName");
            shown.push(json!({
                "id": resource.id.as_str(), "name": resource.id.name(), "group": resource.id.group(), "computer": computer,
                "state": resource.provisioning.name(), "power": power, "zones": resource.body.get("zones"),
            }));
            for reference in references(&resource.id, &resource.body) {
                if let Some(owner) = self.store.owner(&reference.to).filter(|owner| owner.id != resource.id) {
                    edges.push(json!([resource.id.as_str(), owner.id.as_str()]));
                }
            }
            if let Some(parent) = resource.id.parent() {
                edges.push(json!([resource.id.as_str(), parent.as_str()]));
            }
        }
        edges.dedup();
        let kinds: BTreeMap<_, _> = kinds
            .into_iter()
            .map(|(kind, (total, first))| (kind, json!({"total": total, "first": first})))
            .collect();
        let running = self.operations.values().filter(|operation| operation.ends > self.now).count();
        json!({
            "kinds": kinds, "edges": edges, "operations": {"running": running, "known": self.operations.len()},
            "behavior": self.behavior, "quotas": self.quotas(), "metadata": self.metadata, "requests": self.requests,
        })
    }
}
