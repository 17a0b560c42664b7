//! A cloud and an API server for tests, in memory: what a random history needs of both, with their faults, and without a
//! clock. Each controller's histories drive them through the controller's pure parts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Answer, Error as CloudError, ErrorKind, Instance, InstanceState, NodeReference, ProviderId, Purpose,
};

use crate::error::Error;
use crate::facts::node::NodeFacts;

/// Numbers that look random and are the same for the same seed (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        (!items.is_empty()).then(|| &items[usize::try_from(self.below(items.len() as u64)).unwrap()])
    }
}

/// A cloud: machines by provider ID, each made for the Node of one name.
#[derive(Debug, Default)]
pub(crate) struct Cloud {
    machines: BTreeMap<String, (String, InstanceState)>,
    /// What a list shows, which is as old as the last call of `list_catches_up`.
    listed: BTreeMap<String, (String, InstanceState)>,
    made: u64,
    pub(crate) faults: Faults,
}

/// How a cloud misbehaves, in percent of answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Answers of errors and pending.
    pub(crate) errors: u64,
    /// Lookups that fail as a whole.
    pub(crate) failures: u64,
    /// Machines that a list lacks although they exist.
    pub(crate) lying_list: u64,
    /// Machines that a direct read denies although they exist.
    pub(crate) lying_reads: u64,
}

impl Cloud {
    /// Makes a machine for the Node of this name; its provider ID is nobody else's, ever.
    pub(crate) fn make(&mut self, name: &str) -> ProviderId {
        self.made += 1;
        let id = format!("model://m-{}", self.made);
        self.machines.insert(id.clone(), (name.to_owned(), InstanceState::Running));
        ProviderId::parse(&id).unwrap()
    }

    pub(crate) fn vanish(&mut self, id: &ProviderId) {
        self.machines.remove(id.as_str());
    }

    pub(crate) fn set(&mut self, id: &ProviderId, state: InstanceState) {
        if let Some(machine) = self.machines.get_mut(id.as_str()) {
            machine.1 = state;
        }
    }

    /// The machine behind a Node, in truth.
    pub(crate) fn machine(&self, node: &NodeFacts) -> Option<(ProviderId, InstanceState)> {
        let (id, state) = find(&self.machines, node.provider_id.as_ref(), &node.name)?;
        Some((ProviderId::parse(id).unwrap(), state))
    }

    pub(crate) fn list_catches_up(&mut self) {
        self.listed = self.machines.clone();
    }

    /// What a provider would answer.
    pub(crate) fn look_up(
        &self,
        random: &mut Random,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, CloudError>>, CloudError> {
        if random.percent(self.faults.failures) {
            return Err(CloudError::new(ErrorKind::Unavailable, "the cloud is down"));
        }
        Ok(nodes.iter().map(|node| self.answer(random, purpose, node)).collect())
    }

    fn answer(
        &self,
        random: &mut Random,
        purpose: Purpose,
        node: &NodeReference,
    ) -> Result<Answer, CloudError> {
        if random.percent(self.faults.errors) {
            let after = Duration::from_secs(random.below(30));
            return match random.below(4) {
                0 => Ok(Answer::Pending(after)),
                1 => Err(CloudError::new(ErrorKind::Throttled(Some(after)), "slower")),
                2 => Err(CloudError::new(ErrorKind::Broken, "not found, says this provider")),
                _ => Err(CloudError::new(ErrorKind::Unavailable, "no answer")),
            };
        }
        let (machines, lies) = match purpose {
            Purpose::Confirm => (&self.machines, self.faults.lying_reads),
            Purpose::Initialise | Purpose::Refresh => (&self.listed, self.faults.lying_list),
        };
        if random.percent(lies) {
            return Ok(Answer::Absent);
        }
        Ok(find(machines, node.provider_id.as_ref(), &node.name)
            .map_or(Answer::Absent, |(id, state)| Answer::Found(instance(id, state))))
    }
}

fn find<'a>(
    machines: &'a BTreeMap<String, (String, InstanceState)>,
    id: Option<&ProviderId>,
    name: &str,
) -> Option<(&'a str, InstanceState)> {
    let (id, (_, state)) = match id {
        Some(id) => machines.get_key_value(id.as_str()),
        None => machines.iter().find(|(_, (of, _))| of == name),
    }?;
    Some((id, *state))
}

/// A machine without anything but its state.
pub(crate) fn instance(id: &str, state: InstanceState) -> Instance {
    Instance {
        provider_id: ProviderId::parse(id).unwrap(),
        instance_type: None,
        zone: None,
        region: None,
        addresses: Vec::new(),
        labels: Vec::new(),
        state,
    }
}

/// An API server: Nodes by name, each write with a resourceVersion of its own.
#[derive(Debug, Default)]
pub(crate) struct ApiServer {
    nodes: BTreeMap<String, Arc<NodeFacts>>,
    version: u64,
}

impl ApiServer {
    /// A kubelet registers a Node, unless there is one of that name.
    pub(crate) fn register(&mut self, mut node: NodeFacts) {
        if !self.nodes.contains_key(&node.name) {
            self.version += 1;
            node.uid = format!("uid-{}", self.version);
            node.resource_version = self.version.to_string();
            self.nodes.insert(node.name.clone(), Arc::new(node));
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<NodeFacts>> {
        self.nodes.values().cloned().collect()
    }

    /// Somebody else changes a Node. A write that changes nothing makes no new version.
    pub(crate) fn edit(&mut self, name: &str, edit: impl FnOnce(&mut NodeFacts)) {
        if let Some(node) = self.nodes.get_mut(name) {
            let mut edited = NodeFacts::clone(node);
            edit(&mut edited);
            if edited != **node {
                self.version += 1;
                edited.resource_version = self.version.to_string();
                *node = Arc::new(edited);
            }
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// A patch that names the UID of these facts, and the resourceVersion where `checks_version`.
    pub(crate) fn patch(
        &mut self,
        facts: &NodeFacts,
        checks_version: bool,
        edit: impl FnOnce(&mut NodeFacts),
    ) -> Result<(), Error> {
        self.check(facts, checks_version)?;
        self.edit(&facts.name, edit);
        Ok(())
    }

    /// A deletion with the UID and resourceVersion of these facts.
    pub(crate) fn delete(&mut self, facts: &NodeFacts) -> Result<(), Error> {
        self.check(facts, true)?;
        self.remove(&facts.name);
        Ok(())
    }

    fn check(&self, facts: &NodeFacts, checks_version: bool) -> Result<(), Error> {
        let found = self.nodes.get(&facts.name).filter(|node| node.uid == facts.uid).ok_or(Error::Gone)?;
        if checks_version && found.resource_version != facts.resource_version {
            return Err(Error::Conflict);
        }
        Ok(())
    }
}
