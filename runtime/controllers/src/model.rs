//! A cloud and an API server in memory, for tests with random histories. Both have faults and no clock. The histories of a
//! controller drive them through the pure parts of the controller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pileus_cloud::{
    Answer, Error as CloudError, ErrorKind, Instance, InstanceState, NodeReference, Provider, ProviderId,
    Purpose, ServiceRequirements,
};

use crate::claims::Claims;
use crate::error::Error;
use crate::facts::node::NodeFacts;

/// The UID of the object with this name, in the form of the API server's.
pub(crate) fn uid(name: &str) -> String {
    let digits =
        name.bytes().fold(0_u64, |digits, byte| digits.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
    format!("00000000-0000-4000-{:04x}-{:012x}", digits >> 48, digits & 0xffff_ffff_ffff)
}

/// Pseudorandom numbers from a seed (splitmix64).
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

    /// Whether an event of this probability, in percent, happens.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        (!items.is_empty()).then(|| &items[usize::try_from(self.below(items.len() as u64)).unwrap()])
    }
}

/// A cloud: instances by provider ID, each made for a Node name.
#[derive(Debug, Default)]
pub(crate) struct Cloud {
    instances: BTreeMap<String, (String, InstanceState)>,
    /// What a list shows: the instances at the last call of `list_catches_up`.
    listed: BTreeMap<String, (String, InstanceState)>,
    made: u64,
    pub(crate) faults: Faults,
}

/// How a cloud misbehaves, in percent of answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Answers that are errors or pending.
    pub(crate) errors: u64,
    /// Lookups that fail as a whole.
    pub(crate) failures: u64,
    /// Existing instances that a list lacks.
    pub(crate) lying_list: u64,
    /// Existing instances that a direct read denies.
    pub(crate) lying_reads: u64,
}

impl Cloud {
    /// Makes an instance for the Node of this name. Its provider ID is never used again.
    pub(crate) fn make(&mut self, name: &str) -> ProviderId {
        self.made += 1;
        let id = format!("model://m-{}", self.made);
        self.instances.insert(id.clone(), (name.to_owned(), InstanceState::Running));
        ProviderId::parse(&id).unwrap()
    }

    pub(crate) fn vanish(&mut self, id: &ProviderId) {
        self.instances.remove(id.as_str());
    }

    pub(crate) fn set(&mut self, id: &ProviderId, state: InstanceState) {
        if let Some(instance) = self.instances.get_mut(id.as_str()) {
            instance.1 = state;
        }
    }

    /// The instance of a Node, which a list or read may misreport.
    pub(crate) fn instance(&self, node: &NodeFacts) -> Option<(ProviderId, InstanceState)> {
        let (id, state) = find(&self.instances, node.provider_id.as_ref(), &node.name)?;
        Some((ProviderId::parse(id).unwrap(), state))
    }

    pub(crate) fn list_catches_up(&mut self) {
        self.listed = self.instances.clone();
    }

    /// Answers like a provider.
    pub(crate) fn look_up(
        &self,
        random: &mut Random,
        purpose: Purpose,
        nodes: &[NodeReference],
    ) -> Result<Vec<Result<Answer, CloudError>>, CloudError> {
        if random.percent(self.faults.failures) {
            return Err(CloudError::new(ErrorKind::Unavailable(None), "the cloud is down"));
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
                _ => Err(CloudError::new(ErrorKind::Unavailable(None), "no answer")),
            };
        }
        let (instances, lies) = match purpose {
            Purpose::Confirm => (&self.instances, self.faults.lying_reads),
            Purpose::Initialise | Purpose::Refresh => (&self.listed, self.faults.lying_list),
        };
        if random.percent(lies) {
            return Ok(Answer::Absent);
        }
        Ok(find(instances, node.provider_id.as_ref(), &node.name)
            .map_or(Answer::Absent, |(id, state)| Answer::Found(instance(id, state))))
    }
}

fn find<'a>(
    instances: &'a BTreeMap<String, (String, InstanceState)>,
    id: Option<&ProviderId>,
    name: &str,
) -> Option<(&'a str, InstanceState)> {
    let (id, (_, state)) = match id {
        Some(id) => instances.get_key_value(id.as_str()),
        None => instances.iter().find(|(_, (of, _))| of == name),
    }?;
    Some((id, *state))
}

/// The name of the provider of the tests that have one.
pub(crate) const PROVIDER: &str = "test";

/// A provider without capabilities, whose provider IDs have this scheme.
pub(crate) fn provider(scheme: &str) -> Provider {
    Provider {
        name: PROVIDER.to_owned(),
        schemes: vec![scheme.to_owned()],
        node_labels: Vec::new(),
        largest_lookup_batch: 1,
        service_requirements: ServiceRequirements::default(),
        load_balancers: None,
        largest_route_batch: 1,
        routes: None,
        instances: None,
    }
}

/// The claims of the provider of the tests, with all schemes that it has there.
pub(crate) fn claims() -> Claims {
    Claims::of_only_provider(PROVIDER, ["fake", "model", "sim", "simulated"].map(str::to_owned).into())
}

/// An instance with nothing but its state.
pub(crate) fn instance(id: &str, state: InstanceState) -> Instance {
    Instance {
        provider_id: ProviderId::parse(id).unwrap(),
        instance_type: None,
        zone: None,
        region: None,
        addresses: Vec::new(),
        labels: Vec::new(),
        state,
        left_out: Vec::new(),
    }
}

/// An API server: Nodes by name. Each write gets a new resourceVersion.
#[derive(Debug, Default)]
pub(crate) struct ApiServer {
    nodes: BTreeMap<String, Arc<NodeFacts>>,
    version: u64,
}

impl ApiServer {
    /// Registers a Node like a kubelet, unless one of that name exists.
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

    /// Changes a Node like another client. A write that changes nothing makes no new version.
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
