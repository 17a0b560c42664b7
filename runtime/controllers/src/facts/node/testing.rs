//! A Node for tests.

use std::collections::BTreeSet;

use jiff::Timestamp;
use pileus_cloud::{Address, AddressKind, ProviderId};

use super::{NodeFacts, NodeIps, Readiness, Taint};
use crate::claims::NodeOwner;
use crate::facts::Labels;
use crate::model::PROVIDER;
use crate::well_known::TAINT_UNINITIALIZED;

impl NodeFacts {
    /// A Node that a kubelet has just registered: with the uninitialized taint, not ready, and without anything from the cloud. It
    /// belongs to the provider of the tests.
    pub(crate) fn registered(name: &str) -> Self {
        let taint = Taint {
            key: TAINT_UNINITIALIZED.to_owned(),
            value: Some("true".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        };
        Self {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            resource_version: "1".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            is_deleting: false,
            provider_id: None,
            twin: None,
            owner: NodeOwner::Provider(PROVIDER.to_owned()),
            taints: vec![taint],
            addresses: vec![Address::new(AddressKind::Hostname, name)],
            system_uuid: None,
            node_ips: NodeIps::Given(Vec::new()),
            labels: Labels::default(),
            owned_labels: BTreeSet::new(),
            has_node_manager: false,
            readiness: Readiness::Unknown,
            readiness_since: None,
            is_held: false,
            release_deletion: None,
            pod_cidrs: Vec::new(),
            network_unavailable: None,
        }
    }

    /// This Node with a provider ID that no provider serves.
    pub(crate) fn unserved(self, id: &str) -> Self {
        let owner = NodeOwner::Unserved { contenders: Vec::new(), reporter: Some(PROVIDER.to_owned()) };
        Self { provider_id: Some(ProviderId::parse(id).unwrap()), owner, ..self }
    }

    /// A Node with this provider ID, as ready as its kubelet says, which waits to be initialized or has been.
    pub(crate) fn with_instance(
        name: &str,
        provider_id: Option<&str>,
        waits: bool,
        readiness: Readiness,
    ) -> Self {
        let mut node = Self { readiness, ..Self::registered(name) };
        node.provider_id = provider_id.map(|id| ProviderId::parse(id).unwrap());
        if !waits {
            node.taints.clear();
        }
        node
    }
}
