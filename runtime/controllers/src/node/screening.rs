//! What of a cloud's answer a Node may have: what it can't have is left out or refused, and users are told which fact and why.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use pileus_cloud::{AddressKind, Instance, ProviderId, Retry};

use super::Controller;
use super::decide::SyncResult;
use super::labels::invalid_labels;
use super::notices::Notices;
use super::plan::Goal;
use crate::cluster_addresses::addresses_of_node;
use crate::events::Reason;
use crate::facts::node::NodeFacts;
use crate::nodes::{Conflict, ips, is_live};

/// The provider ID and the internal addresses that a write gives to a Node.
#[derive(Debug)]
pub(super) struct Given {
    id: ProviderId,
    internal: Vec<IpAddr>,
}

impl Given {
    fn of(instance: &Instance) -> Self {
        let internal = ips(&instance.addresses, AddressKind::InternalIp);
        Self { id: instance.provider_id.clone(), internal }
    }

    /// What of it no other Node may be given at the same time. The address of a Node with a silent kubelet may move.
    fn claimed_by(self, node: &NodeFacts) -> Self {
        if is_live(node) { self } else { Self { internal: Vec::new(), ..self } }
    }

    /// What this shares with what another Node is being given at the same time.
    fn conflict(&self, other: &str, theirs: &Self) -> Option<Conflict> {
        let other = other.to_owned();
        if self.id == theirs.id {
            return Some(Conflict::ProviderId { id: self.id.clone(), other });
        }
        let ip = self.internal.iter().find(|ip| theirs.internal.contains(ip))?;
        Some(Conflict::Address { ip: *ip, other })
    }
}

impl Controller {
    /// Takes the addresses out that the cluster itself has. Tells users what was left out of the cloud's answer.
    pub(super) fn screen(&self, node: &NodeFacts, goal: &mut Goal, notices: &mut Notices) {
        let Goal::Instance(instance) = goal else { return };
        let given = std::mem::take(&mut instance.addresses);
        let (addresses, reserved) = addresses_of_node(node, given, |ip| self.addresses.owner(ip));
        instance.addresses = addresses;
        let invalid = invalid_labels(instance);
        let left_out = instance.left_out.iter().cloned().chain(reserved).chain(invalid);
        let new: Vec<_> = left_out.filter(|fact| notices.is_new(node, fact)).collect();
        if !new.is_empty() {
            let facts = new.join("; ");
            tracing::warn!(node = %node.name, facts, "facts of the cloud left out");
            let note = format!("Left out of what the cloud says about the node: {facts}");
            self.events.record_for_node(node, Reason::CloudFactsLeftOut, note);
        }
    }

    /// Adds what a write gives to a Node to what is being written.
    ///
    /// # Errors
    /// What the Node can't have, because another Node has it or is being given it now.
    pub(super) fn claim(
        &self,
        node: &NodeFacts,
        goal: &Goal,
        writing: &mut HashMap<String, Given>,
    ) -> Result<(), Conflict> {
        let Goal::Instance(instance) = goal else { return Ok(()) };
        let given = Given::of(instance);
        let known = self.nodes.conflict(node, &given.id, &given.internal);
        let others = || writing.iter().filter(|(name, _)| **name != node.name);
        if let Some(conflict) =
            known.or_else(|| others().find_map(|(name, theirs)| given.conflict(name, theirs)))
        {
            return Err(conflict);
        }
        writing.insert(node.name.clone(), given.claimed_by(node));
        Ok(())
    }

    /// Tells users about a conflict on both Nodes, once. Returns the result of the work on the refused one.
    pub(super) fn refuse(
        &self,
        node: &Arc<NodeFacts>,
        conflict: &Conflict,
        notices: &mut Notices,
    ) -> SyncResult {
        if notices.is_new(node, conflict) {
            tracing::warn!(node = %node.name, other = conflict.other(), reason = %conflict, "node refused");
            let (reason, what) = match conflict {
                Conflict::ProviderId { id, .. } => (Reason::DuplicateProviderID, format!("provider ID {id}")),
                Conflict::Address { ip, .. } => (Reason::DuplicateAddress, format!("address {ip}")),
            };
            self.events.record_for_node(node, reason.clone(), format!("The node is refused: {conflict}"));
            if let Some(other) = self.nodes.get(conflict.other()) {
                let note = format!("Node {} has this node's {what}, too, and is refused", node.name);
                self.events.record_for_node(&other, reason, note);
            }
        }
        SyncResult::Failed(Retry::WithBackoff, conflict.to_string())
    }
}
