//! What clients write: load balancers, and the actions that change load balancers and networks. Pure.

use std::time::Duration;

use serde_json::{Value, json};
use simulated_cloud::world::WriteFaults;

use super::World;
use super::action::{Action, Pending, Reference, ResourceType, Status};
use super::change::{Change, RouteChange};
use super::creation::NewLoadBalancer;
use super::label;
use super::load_balancer::{LoadBalancerUpdate, check_name};
use crate::refusal::{Code, Refusal};

impl World {
    /// Creates a load balancer from the body of a request. It exists at once, and is locked until its action ends. An action
    /// that fails removes it.
    pub fn create_load_balancer(
        &mut self,
        now: Duration,
        body: &[u8],
        faults: WriteFaults,
    ) -> Result<Value, Refusal> {
        self.advance(now);
        let new: NewLoadBalancer = serde_json::from_slice(body)?;
        self.check_balancer_name(&new.name)?;
        if self.project.max_load_balancers.is_some_and(|most| self.load_balancers.len() >= most) {
            return Err(Refusal::new(Code::ResourceLimitExceeded, "load balancer limit exceeded"));
        }
        let (id, ipv4, ipv6) = (self.next_id(), self.next_ipv4(), self.next_ipv6());
        let balancer = new.build(self, id, ipv4, ipv6)?;
        if let Some(attachment) = balancer.private {
            self.network_mut(attachment.network)?.used.insert(attachment.ip);
        }
        let mut shown = json!({"load_balancer": balancer.view(self)});
        self.load_balancers.insert(id, balancer);
        let action = self.start(
            "create_load_balancer",
            Pending::Create,
            vec![(ResourceType::LoadBalancer, id)],
            faults,
        );
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("action".to_owned(), action);
        }
        Ok(shown)
    }

    /// Changes the name or the labels of a load balancer.
    pub fn update_load_balancer(
        &mut self,
        now: Duration,
        id: u64,
        body: &[u8],
        faults: WriteFaults,
    ) -> Result<Value, Refusal> {
        self.advance(now);
        let LoadBalancerUpdate { name, labels } = serde_json::from_slice(body)?;
        let resource = (ResourceType::LoadBalancer, id);
        let mut balancer = self.load_balancers.get(&id).ok_or_else(|| missing(resource))?.clone();
        self.check_unlocked(resource, Code::Conflict)?;
        preempt(faults)?;
        if let Some(name) = name.filter(|name| *name != balancer.name) {
            check_name(&name)?;
            self.check_balancer_name(&name)?;
            balancer.name = name;
        }
        if let Some(labels) = labels {
            label::check(&labels)?;
            balancer.labels = labels;
        }
        let view = balancer.view(self);
        self.load_balancers.insert(id, balancer);
        Ok(json!({"load_balancer": view}))
    }

    /// Deletes a load balancer.
    pub fn delete_load_balancer(&mut self, now: Duration, id: u64) -> Result<(), Refusal> {
        self.advance(now);
        let resource = (ResourceType::LoadBalancer, id);
        let balancer = self.load_balancers.get(&id).ok_or_else(|| missing(resource))?;
        if balancer.protection.delete {
            return Err(Refusal::new(Code::Protected, "load balancer deletion is protected"));
        }
        self.check_unlocked(resource, Code::Locked)?;
        self.remove_load_balancer(id);
        Ok(())
    }

    /// Begins an action on a load balancer or a network. Its change is made when the action ends, and is not made if the
    /// action fails.
    pub fn act(
        &mut self,
        now: Duration,
        resource: Reference,
        command: &str,
        body: &[u8],
        faults: WriteFaults,
    ) -> Result<Value, Refusal> {
        self.advance(now);
        self.check_exists(resource)?;
        let (kind, id) = resource;
        let mut resources = vec![resource];
        let pending = if kind == ResourceType::Network {
            let change = RouteChange::parse(command, body)?;
            self.check_unlocked(resource, Code::Conflict)?;
            self.network(id)?.clone().change(&change)?;
            Pending::Route(change)
        } else {
            let change = Change::parse(command, body)?;
            self.check_unlocked(resource, Code::Locked)?;
            if let Some(other) = change.also_concerns() {
                self.check_unlocked(other, Code::Conflict)?;
                resources.push(other);
            }
            let mut balancer = self.load_balancers.get(&id).ok_or_else(|| missing(resource))?.clone();
            balancer.apply(self, &change)?;
            Pending::Change(change)
        };
        preempt(faults)?;
        Ok(json!({"action": self.start(command, pending, resources, faults)}))
    }

    /// Starts an action, and ends it at once if it takes no time.
    fn start(
        &mut self,
        command: &str,
        pending: Pending,
        resources: Vec<Reference>,
        faults: WriteFaults,
    ) -> Value {
        let id = self.next_id();
        let WriteFaults { takes, fails, is_preempted: _, overtakes: _ } = faults;
        let (started, due) = (self.now, self.now.saturating_add(takes));
        let status = Status::Running { pending, fails };
        let command = command.to_owned();
        self.actions.insert(id, Action { id, command, started, due, status, resources });
        self.running.insert((due, id));
        self.advance(self.now);
        self.actions.get(&id).map(|action| action.view(self.now, self.started_at)).unwrap_or_default()
    }

    pub(super) fn change_load_balancer(&mut self, id: u64, change: &Change) -> Result<(), Refusal> {
        let resource = (ResourceType::LoadBalancer, id);
        let mut balancer = self.load_balancers.get(&id).ok_or_else(|| missing(resource))?.clone();
        let before = balancer.private;
        balancer.apply(self, change)?;
        if before != balancer.private {
            if let Some(left) = before {
                self.network_mut(left.network)?.used.remove(&left.ip);
            }
            if let Some(joined) = balancer.private {
                self.network_mut(joined.network)?.used.insert(joined.ip);
            }
        }
        self.load_balancers.insert(id, balancer);
        Ok(())
    }

    pub(super) fn remove_load_balancer(&mut self, id: u64) {
        let removed = self.load_balancers.remove(&id);
        if let Some(attachment) = removed.and_then(|it| it.private)
            && let Some(network) = self.networks.get_mut(&attachment.network)
        {
            network.used.remove(&attachment.ip);
        }
    }

    pub(super) fn check_exists(&self, resource: Reference) -> Result<(), Refusal> {
        let exists = match resource.0 {
            ResourceType::Server => self.servers.contains_key(&resource.1),
            ResourceType::LoadBalancer => self.load_balancers.contains_key(&resource.1),
            ResourceType::Network => self.networks.contains_key(&resource.1),
        };
        if exists { Ok(()) } else { Err(missing(resource)) }
    }

    fn check_balancer_name(&self, name: &str) -> Result<(), Refusal> {
        if self.load_balancers.values().any(|it| it.name == name) {
            return Err(Refusal::new(Code::UniquenessError, "load balancer name is already used"));
        }
        Ok(())
    }
}

fn missing((kind, id): Reference) -> Refusal {
    Refusal::not_found(kind.name(), id)
}

/// A write that is refused as if another client had just changed the resource.
fn preempt(faults: WriteFaults) -> Result<(), Refusal> {
    if faults.is_preempted {
        return Err(Refusal::new(Code::Conflict, "the resource has changed during the request"));
    }
    Ok(())
}
